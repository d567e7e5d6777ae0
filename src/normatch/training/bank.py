"""A bank of features: what a frozen embedder makes of several views of every image, computed once and kept."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.augment import Views
from normatch.data import Dataset, Pool
from normatch.data.dataset import Selected
from normatch.nets.frozen import Frozen
from normatch.nets.model import Model, batch_for, contiguous
from normatch.seeding import derive

__all__ = ["BankPool", "embed"]

BATCH = 32
"""Images that go through the embedder at once on a CPU, where more do not fit its cache."""


@torch.no_grad()
def embed(
    model: Model, images: Dataset, views: Views, copies: int, seed: int, done: Callable[[int], None] = lambda n: None
) -> NDArray[np.float32]:
    """(N, 1 + 2 · copies, D): the embedder's features of each image, of ``copies`` weak views and as many strong ones.

    ``done`` is called with the number of views of each batch when they are computed. What is drawn is a function of the
    seed and the batch.
    """
    assert isinstance(model.backbone, Frozen)
    embedder = model.backbone.embedder
    device = model.normalise.mean.device
    kinds = ["none", *["weak"] * copies, *["strong"] * copies]
    size = batch_for(images.shape, BATCH if device.type == "cpu" else 512)
    bank = np.empty((len(images), len(kinds), embedder.features), np.float32)
    for start, part in zip(range(0, len(images), size), Selected.of(images.inputs).split(size), strict=True):
        generator = torch.Generator(device).manual_seed(derive(seed, "bank", start))
        batch = contiguous(part.to(device))
        for copy, kind in enumerate(kinds):
            view = model.normalise(views(kind, batch, generator)).contiguous(memory_format=torch.channels_last)
            bank[start : start + len(part), copy] = embedder(view).float().cpu().numpy()
            done(len(part))
    return bank


class BankPool(Pool):
    """A pool whose ``inputs`` are the plain images' features (N, D); a step draws all copies of a sample, of which its
    views pick one."""

    bank: Tensor

    def __init__(self, dataset: Dataset, bank: NDArray[np.float32], device: torch.device | str = "cpu") -> None:
        super().__init__(dataset, device)
        self.bank = torch.from_numpy(bank).to(device)

    def gather(self, index: Tensor) -> Tensor:
        """(B, copies, D) at the positions ``index`` (B,)."""
        return self.bank.index_select(0, index)
