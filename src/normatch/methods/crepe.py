"""CREPE: pseudo-labels of least 1-Laplacian energy on a graph of the features (Aviles-Rivero et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from normatch.methods.base import Settings, methods
from normatch.methods.label_propagation import LabelPropagationSettings
from normatch.methods.parts.graph import Floats, knn_graph, propagate, row_shares
from normatch.methods.parts.graph_labels import GraphLabels
from normatch.methods.parts.one_laplacian import minimise_energy

__all__ = ["CREPE", "CREPESettings"]


@dataclass(frozen=True)
class CREPESettings(LabelPropagationSettings):
    """The settings of CREPE: ``alpha`` is that of the quadratic energy whose solution it starts from."""

    neighbours: int = 10
    """k, the nearest neighbours of each image in the graph."""


@methods.named("crepe")
class CREPE(GraphLabels):
    """L = 1/B Σ ζ_y · H(y, p) + 1/μB Σ ω ζ_ŷ · H(ŷ, p), on weak views.

    Before each epoch all images get scores v (N, K) of low energy Σ_k J(v_k) / B(v_k). J(v) = Σ_{i<j} W_ij |v_i − v_j|
    is the total variation on the graph of label propagation, its subgradient the 1-Laplacian; B(v) is the volume that
    v sets apart. Unlike the quadratic energy this permits jumps: scores are nearly constant within a cluster, however
    far the next label is. Labels are constraints: v_ik ≥ 1 for the class of a labelled image, ≤ −1/(K − 1) for others;
    the scores of an unlabelled image sum to 0. ŷ = argmax v; ω and ζ are as in label propagation.

    The scheme: from the quadratic solution, five steps of a flow for such quotients, v ← argmin Σ_k J(v_k) −
    E_k ⟨∂B(v_k⁰), v_k⟩ + ½ ‖v_k − v_k⁰‖², E_k the present quotient, each by 20 primal-dual iterations.
    Departures: B weighs both sides of a class by their expected shares; k = 10, since the cost is a dual variable per
    edge and class; the warm-up is that of label propagation here. Five steps, chosen on digits, stop early: more lower
    the energy further and, there, the accuracy too.
    """

    summary: ClassVar[str] = "labels of least graph 1-Laplacian energy once an epoch"
    paper: ClassVar[str] = "Aviles-Rivero et al., arXiv 2019"
    Settings: ClassVar[type[Settings]] = CREPESettings

    def spread(self, z: Tensor, sources: Floats) -> Floats:
        graph = knn_graph(z, self.settings.neighbours, self.settings.power)
        quadratic = propagate(graph, sources, self.settings.alpha)
        classes, shares = self.task.classes, np.array(self.task.prior, dtype=np.float32)
        v = minimise_energy(graph, sources, row_shares(quadratic), shares)
        return np.maximum((classes - 1) * v + 1, 0)  # 0 for all classes becomes equal scores, a label's margins one-hot
