"""A pass through the model that leaves the running statistics of batch norm as they are."""

from torch import Tensor
from torch.func import functional_call

from normatch.nets.model import Model

__all__ = ["untracked_logits"]


def untracked_logits(model: Model, x: Tensor) -> Tensor:
    """``model(x)``, normalised by the statistics of this batch, which the running ones do not take in."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    logits: Tensor = functional_call(model, buffers, (x,))
    return logits
