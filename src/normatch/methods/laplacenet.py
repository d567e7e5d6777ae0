"""LaplaceNet: pseudo-labels of least Laplacian energy, several strong views, mixup (Sellars et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from normatch.methods.base import Batch, Settings, Task, ViewsWanted, methods
from normatch.methods.parts.graph import Floats, knn_graph, propagate, row_shares
from normatch.methods.parts.graph_labels import GraphLabels, GraphLabelsSettings
from normatch.methods.parts.mixing import Beta
from normatch.methods.parts.weak_to_strong import Features, Pass
from normatch.nets.model import Model

__all__ = ["LaplaceNet", "LaplaceNetSettings", "smoothly_aligned"]

ROUNDS, MOST = 100, 0.01
"""Rounds of smooth alignment, and the most by which one changes a class."""


@dataclass(frozen=True)
class LaplaceNetSettings(GraphLabelsSettings):
    """The settings of LaplaceNet."""

    samples: int = 3
    """Views of each image in a step, over which the loss is averaged."""
    mixup: float = 1.0
    """Both parameters of the Beta distribution of the mixing share."""

    def check(self) -> None:
        super().check()
        self.must_be_positive("samples", "mixup")


@methods.named("laplacenet")
class LaplaceNet(GraphLabels):
    """L = 1/m Σ_j 1/(B + μB) Σ λ · H(y, p(x̃_j)) + (1 − λ) · H(y', p(x̃_j)), with x̃ = λ x + (1 − λ) x'.

    x' and y' are another image of the batch and its label, drawn from labelled and unlabelled images alike; λ, from
    Beta(1, 1), and the pairs are the same for all m views, weak ones of labelled and strong ones of unlabelled images.
    Labels of unlabelled images are argmax Z of least energy ½ Σ_ij W_ij ‖z_i/√d_i − z_j/√d_j‖² + fidelity to the
    labels, (I − α D^−½ W D^−½) Z = Y, with W_ij = max(cos(z_i, z_j), 0) if one is a nearest neighbour of the other. In
    100 rounds the columns of Z are then scaled, by 1 % at most each, towards the shares of the classes in the labels.

    Departures: features are those of the averaged weights; labels alone teach for one epoch of ``epoch`` steps, instead
    of 100 passes over them, and are mixed with each other meanwhile.
    """

    summary: ClassVar[str] = "labels of least Laplacian energy, several strong views, mixup"
    paper: ClassVar[str] = "Sellars et al., TNNLS 2022"
    Settings: ClassVar[type[Settings]] = LaplaceNetSettings

    def __init__(self, model: Model, task: Task, settings: LaplaceNetSettings) -> None:
        super().__init__(model, task, settings)
        m = settings.samples
        # The flow, if there is one, sees images that are not mixed.
        self.views = ViewsWanted(("weak",) * m, ("strong",) * m + ("weak",) * (self.consensus is not None))
        self.beta = Beta(settings.mixup)

    def spread(self, z: Tensor, sources: Floats) -> Floats:
        graph = knn_graph(z, self.settings.neighbours, 1.0, "max")
        scores = propagate(graph, sources, self.settings.alpha)
        unlabelled = ~sources.any(1)
        scores[unlabelled] = smoothly_aligned(scores[unlabelled], np.array(self.task.prior, dtype=np.float32))
        return scores

    def weights(self, p: Floats) -> Floats:
        """1, unless the graph says nothing about an image."""
        some: Floats = (p.max(1) > p.min(1)).astype(np.float32)
        return some

    def started(self, step: Tensor) -> Tensor:
        """() 1 from the first graph on, before that 0."""
        begun: Tensor = step >= self.settings.warm_up * self.epoch
        return begun.float()

    def embed(self, batch: Batch) -> Features:
        m, labelled = self.settings.samples, len(batch.labels)
        views = [torch.cat(pair).float() for pair in zip(batch.labelled, batch.unlabelled[:m], strict=True)]
        n = len(views[0])
        unlabelled = torch.arange(n, device=batch.step.device) >= labelled
        apart = unlabelled * (1 - self.started(batch.step))
        partner = (torch.rand(n, device=batch.step.device) + apart).argsort()
        share = self.beta(1)
        mixed = [torch.lerp(view[partner], view, share) for view in views]
        plain = [batch.labelled[0].float(), batch.unlabelled[m].float()] if self.consensus else []
        shared = self.settings.passes == "shared" and bool(plain)
        z = self.model.features(torch.cat([*mixed, *plain]), m * n if shared else None)
        parts = z.split([len(view) for view in (*mixed, *plain)])
        z_labelled, z_weak = parts[m:] if plain else (z[:0], z[:0])
        return Features(z_labelled, (z_weak,), parts[:m], mixing=(share, partner))

    def losses(self, now: Pass) -> dict[str, Tensor]:
        share, partner = now.z.mixing
        labels = F.one_hot(now.batch.labels, self.task.classes).float()
        pseudo = now.target * now.weight[:, None]
        count = len(labels) + self.started(now.batch.step) * len(pseudo)
        log_p = torch.stack(now.logits_strong).float().log_softmax(2).mean(0)

        def of(y: Tensor) -> Tensor:
            return -(torch.lerp(y[partner], y, share) * log_p).sum() / count

        return {
            "labelled": of(torch.cat([labels, torch.zeros_like(pseudo)])),
            "unlabelled": of(torch.cat([torch.zeros_like(labels), pseudo])),
        }


def smoothly_aligned(scores: Floats, shares: Floats) -> Floats:
    """Scores (N, K) whose columns are scaled, little by little, until classes are named about as often as ``shares``
    (K,) says."""
    p = row_shares(scores)
    for _ in range(ROUNDS):
        named = np.bincount(p.argmax(1), minlength=len(shares)) / len(p)
        p = row_shares(p * np.clip(shares / (named + 1e-7), 1 - MOST, 1 + MOST).astype(np.float32))
    return p
