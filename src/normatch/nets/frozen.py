"""A pretrained network below a small one that is trained: its weights stay, ``frozen:efficientnet-lite0``, or are then
trained too, ``tuned:efficientnet-lite0``."""

import dataclasses
from functools import partial

import torch
from torch import Tensor

from normatch.nets.backbone import Backbone, BackboneSpec, create_backbone, families, find_backbone

__all__ = ["FROZEN", "TUNED", "Frozen", "Tuned", "plain_name"]

FROZEN, TUNED = "frozen", "tuned"


class Frozen(Backbone):
    """z = MLP((e(x) − m) / s): e is the embedder ``name``, m and s are the mean and deviation of its features.

    The embedder stays in evaluation mode and has no gradients, so its features of an image are always the same and may
    be computed once for a whole run.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, name: str, shape: tuple[int, ...], norm_momentum: float) -> None:
        embedder = create_backbone(name, shape, norm_momentum)
        trunk = create_backbone("mlp", (embedder.features,), norm_momentum)
        super().__init__(trunk.features)
        self.embedder: Backbone = embedder.eval().requires_grad_(False)
        self.trunk = trunk
        self.register_buffer("mean", torch.zeros(embedder.features))
        self.register_buffer("std", torch.ones(embedder.features))

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) to features (N, features)."""
        with torch.no_grad():
            embedded = self.embedder(x.contiguous(memory_format=torch.channels_last))  # faster on a CPU
        return self._top(embedded)

    def _top(self, embedded: Tensor) -> Tensor:
        z: Tensor = self.trunk((embedded.float() - self.mean) / self.std)
        return z

    def train(self, mode: bool = True) -> "Frozen":
        super().train(mode)
        self.embedder.eval()
        return self

    def load_pretrained(self) -> None:
        self.embedder.load_pretrained()

    def translate(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """A file has weights of the embedder alone, or those of a whole run."""
        if any(name.startswith("embedder.") for name in weights):
            return weights
        given = {f"embedder.{name}": value for name, value in self.embedder.translate(weights).items()}
        return {name: v for name, v in self.state_dict().items() if not name.startswith("embedder.")} | given


class Tuned(Frozen):
    """The same network, of which the embedder is trained as well, from the weights of a frozen run."""

    def __init__(self, name: str, shape: tuple[int, ...], norm_momentum: float) -> None:
        super().__init__(name, shape, norm_momentum)
        self.embedder.train().requires_grad_(True)

    @property
    def body(self) -> Backbone:
        return self.embedder

    def forward(self, x: Tensor, learning: int | None = None) -> Tensor:
        """Images (N, C, H, W) to features (N, features); of the embedder only the first ``learning`` are
        back-propagated."""
        x = x.contiguous(memory_format=torch.channels_last)
        return self._top(self.embedder(x) if learning is None else self.embedder(x, learning))

    def train(self, mode: bool = True) -> "Tuned":
        Backbone.train(self, mode)
        return self


def plain_name(backbone: str) -> str:
    """The name of the embedder, or of a backbone that is neither frozen nor tuned.

    >>> plain_name("tuned:efficientnet-lite0"), plain_name("timm:resnet18")
    ('efficientnet-lite0', 'timm:resnet18')
    """
    return backbone.removeprefix(f"{FROZEN}:").removeprefix(f"{TUNED}:")


def _frozen(name: str) -> BackboneSpec:
    inner = find_backbone(name)
    return dataclasses.replace(
        inner,
        name=f"{FROZEN}:{name}",
        summary=f"{name} with weights that stay, below two hidden layers that are trained",
        build=partial(Frozen, name),
        norm_momentum=0.1,
        partial=False,
        muon=False,
    )


def _tuned(name: str) -> BackboneSpec:
    return dataclasses.replace(
        _frozen(name),
        name=f"{TUNED}:{name}",
        summary=f"{name} below two hidden layers, all of them trained",
        build=partial(Tuned, name),
        partial=find_backbone(name).partial,
    )


families.add(FROZEN, _frozen)
families.add(TUNED, _tuned)
