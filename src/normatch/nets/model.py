"""The model that is trained and saved: normalisation, backbone, the head that predicts, and auxiliary classifiers."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from normatch.flow import NormalizingFlowClassifier
from normatch.nets import create_backbone

__all__ = ["HeadSpec", "Model", "ModelSpec", "Normalise", "Opinions"]


@dataclass(frozen=True)
class HeadSpec:
    """A classifier on features: a linear softmax layer, a softmax MLP, or a normalizing-flow classifier.

    ``mlp`` is the second discriminative classifier of Table 2: ``layers`` fully connected layers, each but the last
    followed by ReLU and batch normalisation, as wide as the features: 0.09 M weights for 128, the paper's number.
    """

    kind: Literal["softmax", "mlp", "nfc"] = "softmax"
    layers: int = 6
    hidden: int = 32
    means: Literal["zero", "normal"] = "zero"
    dropout: bool = False

    def build(self, dim: int, classes: int) -> nn.Module:
        if self.kind == "nfc":
            return NormalizingFlowClassifier(dim, classes, self.layers, self.hidden, self.means, self.dropout)
        if self.kind == "mlp":
            hidden = [m for _ in range(self.layers - 1) for m in (nn.Linear(dim, dim), nn.ReLU(), nn.BatchNorm1d(dim))]
            return nn.Sequential(*hidden, _linear(dim, classes))
        return _linear(dim, classes)


@dataclass(frozen=True)
class ModelSpec:
    """All that is needed to rebuild the model (without its weights): the content of ``model.json``."""

    backbone: str
    shape: tuple[int, ...]
    """(C, H, W) of an image, or (D,) of a feature vector."""
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    """Per channel (or feature), on the scale of the inputs: 0 … 255 for images."""
    std: tuple[float, ...]
    norm_momentum: float | None = None
    head: HeadSpec = HeadSpec()
    auxiliary: tuple[HeadSpec, ...] = ()


class Normalise(nn.Module):
    """(x − mean) / std per channel; takes any number type, returns float32."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], dims: int) -> None:
        super().__init__()
        shape = (1, -1) + (1,) * (dims - 1)
        self.register_buffer("mean", torch.tensor(mean).view(shape))
        self.register_buffer("std", torch.tensor(std).view(shape))

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() - self.mean) / self.std


class Opinions(NamedTuple):
    """The predictions of a model for N inputs: those of its head and, if it has one, those of its flow.

    If the flow is the head itself, there is no second opinion, but a density.
    """

    probabilities: Tensor
    """(N, K) of the head."""
    flow_probabilities: Tensor | None
    """(N, K), the posterior of a flow beside the head, Eq. (1)."""
    flow_log_density: Tensor | None
    """(N,), log p(z) of the features, Eq. (5): low if an input is unlike the data that the flow has learnt."""


class Model(nn.Module):
    """Inputs on their original scale → features → class logits.

    Images may be uint8 or, if a method mixes them, float on the same 0 … 255 scale: the normalisation is linear, so
    mixing before or after it is the same.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.normalise = Normalise(spec.mean, spec.std, len(spec.shape))
        self.backbone = create_backbone(spec.backbone, spec.shape, spec.norm_momentum)
        self.head = spec.head.build(self.backbone.features, len(spec.classes))
        self.auxiliary = nn.ModuleList(a.build(self.backbone.features, len(spec.classes)) for a in spec.auxiliary)

    def features(self, x: Tensor, learning: int | None = None) -> Tensor:
        """Features (N, D); only the first ``learning`` items are back-propagated, if given (BackboneSpec.partial)."""
        x = self.normalise(x)
        z: Tensor = self.backbone(x) if learning is None else self.backbone(x, learning)
        return z

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits

    @property
    def flow(self) -> NormalizingFlowClassifier | None:
        """The first flow among the auxiliary classifiers and the head; None if there is none."""
        classifiers = (*self.auxiliary, self.head)
        return next((c for c in classifiers if isinstance(c, NormalizingFlowClassifier)), None)

    @property
    def has_second_opinion(self) -> bool:
        """Whether there is a flow beside the head."""
        return self.flow not in (None, self.head)

    def opinions(self, x: Tensor) -> Opinions:
        """The predictions of head and flow, from one pass through the backbone."""
        z = self.features(x)
        p = self.head(z).softmax(1)
        if self.flow is None:
            return Opinions(p, None, None)
        logits, log_density = self.flow.evaluate(z)
        return Opinions(p, logits.softmax(1) if self.has_second_opinion else None, log_density)


def _linear(dim: int, classes: int) -> nn.Linear:
    layer = nn.Linear(dim, classes)
    nn.init.xavier_normal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
