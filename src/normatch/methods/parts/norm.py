"""A pass through the model that leaves the running statistics of batch norm as they are."""

from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from normatch.nets.model import Model

__all__ = ["logits_without_tracking"]


def logits_without_tracking(model: Model, x: Tensor) -> Tensor:
    """``model(x)``, normalised by the statistics of this batch, which the running ones do not take in."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    kept = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    logits: Tensor = model(x)
    for norm, momentum in zip(norms, kept, strict=True):
        norm.momentum = momentum
    return logits
