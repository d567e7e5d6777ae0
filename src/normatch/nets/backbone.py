"""Backbones by name: from an image or a feature vector to features."""

import dataclasses
from collections.abc import Callable

from torch import Tensor, nn

from normatch.errors import UserError
from normatch.registry import Registry

__all__ = ["Backbone", "BackboneSpec", "backbones", "create_backbone", "find_backbone", "register", "suitable_backbone"]

Shape = tuple[int, ...]


class Backbone(nn.Module):
    """A module that turns a batch of samples of one shape into features (N, ``features``), the input of the heads."""

    plain: bool = False
    """Whether to use ordinary layers only, even if there are faster kernels for the same result."""

    saved_as: str | None = None
    """The name under which a saved model builds it, if that is not the name in the config."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features

    @property
    def body(self) -> "Backbone":
        """The part that may have a learning rate of its own (``optim.backbone_lr``): all of it, or the pretrained one
        below layers that are trained from the start."""
        return self

    def load_pretrained(self) -> None:
        """Load pretrained weights, downloaded if necessary; does nothing for a network without any.

        Building a backbone never downloads anything, so a saved model can be loaded offline.
        """

    def translate(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights of a file by the names of this network's; a network that is published under others overrides it."""
        return weights


@dataclasses.dataclass(frozen=True)
class BackboneSpec:
    """The name, description and constructor of a backbone.

    Arguments:
        name: The name in configs.
        summary: One line for ``normatch list backbones``.
        sides: The smallest and largest side, in pixels, of the images (C, H, W) that it takes, in grey or colour; None
            if it takes feature vectors (D,).
        build: Builds it for a shape and a batch-norm momentum.
        norm_momentum: The default batch-norm momentum (the weight of the newest batch, as in torch).
        partial: Whether ``forward`` takes ``learning``: only the first that many samples are back-propagated. The
            others count in the batch statistics, but their share of the backward pass is saved.
        statistics: Returns the mean and deviation of each channel, on the scale 0 … 255, that its pretrained weights
            expect; None if it starts from random weights, so that the statistics of the data are used.
        muon: Whether its convolutions are trained by Muon where nobody chose (runs on one's own pictures, estimators).
        vectors: Whether a network with ``sides`` takes feature vectors too.
    """

    name: str
    summary: str
    sides: tuple[int, int] | None
    build: Callable[[Shape, float], Backbone]
    norm_momentum: float = 0.1
    partial: bool = False
    statistics: Callable[[Shape], tuple[tuple[float, ...], tuple[float, ...]]] | None = None
    muon: bool = False
    vectors: bool = False

    def supports(self, shape: Shape) -> bool:
        """Whether it takes samples of this shape: (C, H, W) or (D,)."""
        if self.sides is None or (self.vectors and len(shape) == 1):
            return len(shape) == 1 and shape[0] >= 1
        least, most = self.sides
        return len(shape) == 3 and shape[0] in (1, 3) and all(least <= side <= most for side in shape[1:])

    @property
    def takes(self) -> str:
        """The samples that it takes, in words."""
        if self.sides is None:
            return "feature vectors (D,)"
        images = "images (C, H, W) of 1 or 3 channels with sides of {} to {} pixels".format(*self.sides)
        return f"{images}, or feature vectors (D,)" if self.vectors else images


TINY = 16
"""With backbone "auto", images up to this side get the network for tiny images."""

PRETRAINED = "efficientnet-lite0"
"""The pretrained backbone where nobody chose one."""

SMALL = 32
"""The same limit without a GPU, where a step's time grows with the number of pixels."""

backbones: Registry[BackboneSpec] = Registry("backbone", package="normatch.nets")

families: Registry[Callable[[str], BackboneSpec]] = Registry("family of backbones", package="normatch.nets")
"""Networks of other libraries, too many to list: the backbone ``FAMILY:NAME`` is ``families.get(FAMILY)(NAME)``."""


def register(spec: BackboneSpec) -> None:
    """Add a backbone under its name; the modules of ``nets`` call it when they are imported."""
    backbones.add(spec.name, spec)


def find_backbone(name: str) -> BackboneSpec:
    """The spec of the backbone ``name``: one of ``backbones.names()``, or ``FAMILY:NAME``."""
    family, colon, member = name.partition(":")
    return families.get(family)(member) if colon and family in families else backbones.get(name)


def suitable_backbone(shape: Shape, *, quick: bool = False) -> str:
    """The name of the backbone for samples of this shape. ``quick`` is for a machine without a GPU: small images then
    get a small network. They do not get the paper's, which is less accurate after a short run.

    >>> suitable_backbone((1, 8, 8)), suitable_backbone((3, 32, 32)), suitable_backbone((3, 96, 96))
    ('small-wide', 'quick-resnet', 'resnet-18')
    >>> suitable_backbone((3, 32, 32), quick=True)
    'small-wide'
    """
    tiny = len(shape) == 3 and max(shape[1:]) <= (SMALL if quick else TINY)
    order = ("small-wide", "quick-resnet", "resnet-18", "mlp") if tiny else ("quick-resnet", "resnet-18", "mlp")
    found = next((name for name in order if backbones.get(name).supports(shape)), None)
    if found is None:
        takes = "; ".join(f"{name} {backbones.get(name).takes}" for name in order)
        remedy = "resize them, or set image_size" if len(shape) == 3 else "give vectors of at least one number"
        raise UserError(f"no backbone takes samples of shape {shape}: {remedy} ({takes})")
    return found


def fitting_backbone(name: str, shape: Shape, *, quick: bool = False) -> BackboneSpec:
    """The spec of the backbone ``name``, with "auto" of a suitable one; UserError if it does not take this shape."""
    spec = find_backbone(suitable_backbone(shape, quick=quick) if name == "auto" else name)
    if not spec.supports(shape):
        fitting = [other for other, candidate in backbones.items() if candidate.supports(shape)]
        remedy = f"choose {' or '.join(fitting)}" if fitting else "none takes it: set another image_size"
        raise UserError(f"backbone {name!r} does not take samples of shape {shape}, only {spec.takes}; {remedy}")
    return spec


def create_backbone(name: str, shape: Shape, norm_momentum: float | None = None) -> Backbone:
    """Build the backbone ``name`` for samples of ``shape``, with weights drawn from torch's global generator.

    ``norm_momentum`` replaces the backbone's own; without batch norm it does nothing.

    >>> create_backbone("wrn-28-2", (3, 32, 32)).features
    128
    """
    spec = fitting_backbone(name, tuple(shape))
    return spec.build(tuple(shape), spec.norm_momentum if norm_momentum is None else norm_momentum)
