"""Deep label propagation: pseudo-labels spread over a nearest-neighbour graph of the features (Iscen et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from normatch.methods.base import Settings, methods
from normatch.methods.parts.graph import Floats, knn_graph, propagate
from normatch.methods.parts.graph_labels import GraphLabels, GraphLabelsSettings

__all__ = ["LabelPropagation", "LabelPropagationSettings"]


@dataclass(frozen=True)
class LabelPropagationSettings(GraphLabelsSettings):
    """The settings of deep label propagation."""

    power: float = 3.0
    """γ, the power of the cosines."""

    def check(self) -> None:
        super().check()
        self.must_be_positive("power")


@methods.named("label-propagation")
class LabelPropagation(GraphLabels):
    """L = 1/B Σ ζ_y · H(y, p) + 1/μB Σ ω ζ_ŷ · H(ŷ, p), on weak views.

    Before each epoch the labels Y spread over a graph of all images: (I − α D^−½ W D^−½) Z = Y, solved by conjugate
    gradients, with W = A + Aᵀ and A_ij = max(cos(z_i, z_j), 0)^γ for the k nearest neighbours j of i. Then
    ŷ = argmax Z, ω = 1 − H(Z) / log K, where rows of Z are normalised, and ζ_k is the inverse of the number of images
    labelled or pseudo-labelled k, scaled to a mean of 1 over the images.

    Departures: features are those of the averaged weights; one epoch of ``epoch`` steps on labels alone comes first
    where the published code trains to the end on them and starts again from these weights; labelled and unlabelled
    images are averaged apart, since the paper's batches have equally many of both. The published code also divides ω by
    its maximum, and the labels Y of a class by their number.
    """

    summary: ClassVar[str] = "labels spread over a nearest-neighbour graph once an epoch"
    paper: ClassVar[str] = "Iscen et al., CVPR 2019"
    Settings: ClassVar[type[Settings]] = LabelPropagationSettings

    def spread(self, z: Tensor, sources: Floats) -> Floats:
        graph = knn_graph(z, self.settings.neighbours, self.settings.power)
        return propagate(graph, sources, self.settings.alpha)
