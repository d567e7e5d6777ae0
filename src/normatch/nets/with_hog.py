"""A network's features beside histograms of oriented gradients, ``with-hog:efficientnet-lite0``: for shapes, such as
signs, of which a network that has learnt photographs sees too little."""

import dataclasses
from functools import partial

import torch
from torch import Tensor

from normatch.errors import UserError
from normatch.nets.backbone import Backbone, BackboneSpec, backbones, create_backbone, families
from normatch.nets.plain import HOG

__all__ = ["WITH_HOG", "WithHOG"]

WITH_HOG = "with-hog"


class WithHOG(Backbone):
    """z = [e(x), HOG(x)], where e is the network ``name``."""

    def __init__(self, name: str, shape: tuple[int, ...], norm_momentum: float) -> None:
        network, hog = create_backbone(name, shape, norm_momentum), HOG()
        super().__init__(network.features + hog.features)
        self.network, self.hog = network, hog

    def forward(self, x: Tensor, learning: int | None = None) -> Tensor:
        """Images (N, C, H, W) to features (N, features); only the first ``learning`` are back-propagated."""
        z = self.network(x) if learning is None else self.network(x, learning)
        return torch.cat([z.float(), self.hog(x)], 1)

    def load_pretrained(self) -> None:
        self.network.load_pretrained()

    def translate(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """A file has weights of the network alone, or those of a whole run."""
        if any(name.startswith("network.") for name in weights):
            return weights
        return {f"network.{name}": value for name, value in self.network.translate(weights).items()}


def _with_hog(name: str) -> BackboneSpec:
    network = backbones.get(name)
    if network.sides is None or network.vectors:
        raise UserError(f"{WITH_HOG} takes images, and {name!r} takes {network.takes}: name another network")
    return dataclasses.replace(
        network,
        name=f"{WITH_HOG}:{name}",
        summary=f"{name} and histograms of oriented gradients beside it",
        build=partial(WithHOG, name),
    )


families.add(WITH_HOG, _with_hog)
