"""A pretrained network whose weights stay, below a small one that is trained: ``frozen:efficientnet-lite0``."""

import dataclasses
from functools import partial

import torch
from torch import Tensor

from normatch.nets.backbone import Backbone, BackboneSpec, create_backbone, families, find_backbone

__all__ = ["FAMILY", "Frozen"]

FAMILY = "frozen"


class Frozen(Backbone):
    """z = MLP((e(x) − m) / s): e is the embedder ``name``, m and s are the mean and deviation of its features.

    The embedder stays in evaluation mode and has no gradients, so its features of an image are always the same and may
    be computed once for a whole run.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, name: str, shape: tuple[int, ...], norm_momentum: float) -> None:
        embedder = create_backbone(name, shape)
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


def _spec(name: str) -> BackboneSpec:
    inner = find_backbone(name)
    return dataclasses.replace(
        inner,
        name=f"{FAMILY}:{name}",
        summary=f"{name} with weights that stay, below two hidden layers that are trained",
        build=partial(Frozen, name),
        norm_momentum=0.1,
        partial=False,
        muon=False,
    )


families.add(FAMILY, _spec)
