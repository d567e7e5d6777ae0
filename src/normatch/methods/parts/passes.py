"""How the views of a batch go through the backbone: all in one pass, or the weak ones without gradients."""

from typing import Literal

import torch
from torch import Tensor

from normatch.model import Model

__all__ = ["Passes", "embed"]

Passes = Literal["joint", "split"]


def embed(
    model: Model, labelled: Tensor, weak: Tensor, strong: Tensor, passes: Passes
) -> tuple[Tensor, Tensor, Tensor]:
    """Features of the three kinds of views.

    ``joint`` is the paper's: one pass, so batch normalisation sees all views together. ``split`` runs the weak views,
    through which nothing is back-propagated, in a pass of their own without gradients: a third less work, but two
    sets of batch statistics.
    """
    if passes == "joint":
        sizes = [len(labelled), len(weak), len(strong)]
        z_labelled, z_weak, z_strong = model.features(torch.cat([labelled, weak, strong])).split(sizes)
        return z_labelled, z_weak, z_strong
    with torch.no_grad():
        z_weak = model.features(weak)
    z_labelled, z_strong = model.features(torch.cat([labelled, strong])).split([len(labelled), len(strong)])
    return z_labelled, z_weak, z_strong
