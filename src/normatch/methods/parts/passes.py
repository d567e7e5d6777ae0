"""How the views of a batch pass through the backbone: together, with gradients for all or for some."""

from typing import Literal

import torch
from torch import Tensor

from normatch.nets.model import Model

__all__ = ["Passes", "embed"]

Passes = Literal["joint", "shared"]


def embed(
    model: Model, labelled: Tensor, weak: Tensor, strong: Tensor, passes: Passes
) -> tuple[Tensor, Tensor, Tensor]:
    """Features of the labelled, weak and strong views.

    ``joint`` is the paper's way: one pass, so that batch normalisation sees all views together. ``shared`` is the same
    forward pass, but the backward pass covers labelled and strong views only: weak ones enter no loss and would get a
    gradient only through the batch statistics.
    """
    sizes = [len(labelled), len(strong), len(weak)]
    learning = sizes[0] + sizes[1] if passes == "shared" else None
    z_labelled, z_strong, z_weak = model.features(torch.cat([labelled, strong, weak]), learning).split(sizes)
    return z_labelled, z_weak.detach() if passes == "shared" else z_weak, z_strong
