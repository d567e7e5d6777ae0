"""No network at all: the normalised input itself as features, for a flow on small images or vectors."""

from math import prod

from torch import Tensor

from normatch.nets.backbone import Backbone, BackboneSpec, register

__all__ = ["Identity"]


class Identity(Backbone):
    """Flattens its input; it has no parameters, so that the head learns alone.

    Arguments:
        shape: The shape of an input, (C, H, W) or (D,).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(features=prod(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Inputs (N, ...) to features (N, features)."""
        return x.flatten(1)


register(
    BackboneSpec(
        name="identity",
        summary="no network: the pixels of small images, or the vectors themselves, for flowgmm",
        sides=(8, 32),
        vectors=True,
        build=lambda shape, momentum: Identity(shape),
    )
)
