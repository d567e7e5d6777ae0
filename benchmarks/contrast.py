"""Contrastive learning before and during NorMatch, as fast.py tried SimCLR (Chen et al. 2020), and few_labels.py a
contrast of the views that NorMatch has anyway."""

import math
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import affine_grid, cross_entropy, grid_sample, normalize

from normatch.methods import Batch, Method, Outcome, Task, ViewsWanted, methods
from normatch.methods.base import Settings
from normatch.methods.normatch import NorMatch, NorMatchSettings
from normatch.methods.parts.passes import embed
from normatch.nets.model import Model

__all__ = ["Contrast", "Contrasting", "Likened", "SimclrView", "Started", "add_methods", "nt_xent"]

TEMPERATURE = 0.5
TO_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
"""Red, green and blue to luma and two axes of colour: to turn these is to change the hue."""


class SimclrView(nn.Module):
    """SimCLR's view of images (N, 3, H, W) from 0 to 255: a random resized crop of 0.2 to 1 of the area, a flip, colour
    jitter (0.4, 0.4, 0.4, 0.1) for four of five, grey for one of five. Each image has its own draw."""

    hue: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("hue", torch.stack([TO_YIQ, torch.linalg.inv(TO_YIQ)]))

    def forward(self, x: Tensor) -> Tensor:
        draws = torch.rand(11, len(x), device=x.device)
        x = _crop(x.float() / 255, draws[:5])
        jittered = self._jitter(x, draws[5:9])
        x = torch.where(_each(draws[9]) < 0.8, jittered, x)
        x = torch.where(_each(draws[10]) < 0.2, _grey(x).expand_as(x), x)
        return x * 255

    def _jitter(self, x: Tensor, draws: Tensor) -> Tensor:
        brightness, contrast, colour = (_each(0.6 + 0.8 * draw) for draw in draws[:3])
        x = (x * brightness).clamp(0, 1)
        mean = _grey(x).mean((2, 3), keepdim=True)
        x = ((x - mean) * contrast + mean).clamp(0, 1)
        grey = _grey(x)
        x = grey + (x - grey) * colour
        return self._turn_hue(x, (draws[3] - 0.5) * (2 * math.pi * 0.2)).clamp(0, 1)

    def _turn_hue(self, x: Tensor, angle: Tensor) -> Tensor:
        c, s = angle.cos(), angle.sin()
        one, zero = torch.ones_like(c), torch.zeros_like(c)
        rows = ((one, zero, zero), (zero, c, -s), (zero, s, c))
        turn = torch.stack([torch.stack(row, 1) for row in rows], 1)
        return torch.einsum("nij,njhw->nihw", self.hue[1] @ turn @ self.hue[0], x)


def _crop(x: Tensor, draws: Tensor) -> Tensor:
    area, ratio = 0.2 + 0.8 * draws[0], torch.exp((2 * draws[1] - 1) * math.log(4 / 3))
    w, h = (area * ratio).sqrt().clamp_max(1), (area / ratio).sqrt().clamp_max(1)
    across, down = (2 * draws[2] - 1) * (1 - w), (2 * draws[3] - 1) * (1 - h)
    flip = torch.where(draws[4] < 0.5, 1.0, -1.0)
    zero = torch.zeros_like(w)
    place = torch.stack([torch.stack([w * flip, zero, across], 1), torch.stack([zero, h, down], 1)], 1)
    grid = affine_grid(place, list(x.shape), align_corners=False)
    return grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def _grey(x: Tensor) -> Tensor:
    return 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]


def _each(of_images: Tensor) -> Tensor:
    return of_images[:, None, None, None]


def nt_xent(h: Tensor) -> Tensor:
    """SimCLR's loss of 2n projections (2n, D), of which i and i + n are two views of one image."""
    h = normalize(h.float())
    similar = h @ h.T / TEMPERATURE - 1e9 * torch.eye(len(h), device=h.device)
    other = (torch.arange(len(h), device=h.device) + len(h) // 2) % len(h)
    return cross_entropy(similar, other)


def projector(features: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(features, features, bias=False), nn.BatchNorm1d(features), nn.ReLU(), nn.Linear(features, 128)
    )


class Contrast(Method):
    """SimCLR. The head learns the labels from features that it does not change."""

    views = ViewsWanted(labelled=("weak",), unlabelled=("none",))

    def __init__(self, model: Model, task: Task, settings: Settings) -> None:
        super().__init__(model, task, settings)
        self.project = projector(model.backbone.features)
        self.view = SimclrView()

    def forward(self, batch: Batch) -> Outcome:
        (x,), (labelled,) = batch.unlabelled, batch.labelled
        z = self.model.features(torch.cat([self.view(x), self.view(x), labelled.float()]))
        z, z_labelled = z.split([2 * len(x), len(labelled)])
        logits = self.model.head(z_labelled.detach())
        losses = {"contrast": nt_xent(self.project(z)), "labelled": cross_entropy(logits.float(), batch.labels)}
        return Outcome(losses, {})


class Contrasting(NorMatch):
    """NorMatch, and SimCLR's loss of the strong view and one of SimCLR's; its weight falls from 1 to 0 by a cosine."""

    views = ViewsWanted(labelled=("weak",), unlabelled=("weak", "strong", "none"))

    def __init__(self, model: Model, task: Task, settings: NorMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.project = projector(model.backbone.features)
        self.view = SimclrView()

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        (labelled,), (weak, strong, plain) = batch.labelled, batch.unlabelled
        learning = torch.cat([strong.float(), self.view(plain)])
        z_labelled, z_weak, z = embed(self.model, labelled.float(), weak.float(), learning, self.settings.passes)
        self.contrast = nt_xent(self.project(z))
        return z_labelled, z_weak, z[: len(strong)]

    def forward(self, batch: Batch) -> Outcome:
        outcome = super().forward(batch)
        fall = 0.5 + 0.5 * torch.cos(math.pi * batch.step / self.task.steps)
        outcome.losses["contrast"] = fall * self.contrast
        del self.contrast
        return outcome


class Likened(NorMatch):
    r"""NorMatch, and at first a contrast of its own views, which costs no other pass through the backbone.

    .. math:: -\log \frac{\exp(q_i k_i / T)}{\sum_j \exp(q_i k_j / T)}

    is its loss for the unit projections q of strong and k of weak views, the latter without gradients; the weight falls
    from 1 to 0 by a cosine in the first ``until`` of the run. Images then keep to those that look like them before
    there are names for them.
    """

    temperature: ClassVar[float] = 0.1
    until: ClassVar[float] = 0.4

    def __init__(self, model: Model, task: Task, settings: NorMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.project = projector(model.backbone.features)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        z_labelled, z_weak, z_strong = super().embed(batch)
        q, k = normalize(self.project(torch.cat([z_strong, z_weak.detach()])).float()).chunk(2)
        self.contrast = cross_entropy(q @ k.detach().T / self.temperature, torch.arange(len(q), device=q.device))
        return z_labelled, z_weak, z_strong

    def forward(self, batch: Batch) -> Outcome:
        outcome = super().forward(batch)
        part = (batch.step / (self.until * self.task.steps)).clamp_max(1)
        outcome.losses["contrast"] = (0.5 + 0.5 * torch.cos(math.pi * part)) * self.contrast
        del self.contrast
        return outcome


class Started(NorMatch):
    """NorMatch from the backbone and head of a finished run, such as one of Contrast."""

    start: ClassVar[Path | None] = None
    """That run's folder; None starts as NorMatch does."""

    def __init__(self, model: Model, task: Task, settings: NorMatchSettings) -> None:
        super().__init__(model, task, settings)
        if self.start is not None:
            state = load_file(self.start / "model.safetensors")
            kept = {name: value for name, value in state.items() if name.startswith(("backbone.", "head."))}
            model.load_state_dict(kept, strict=False)


def add_methods() -> None:
    methods.add("contrast", Contrast)
    methods.add("normatch-contrasting", Contrasting)
    methods.add("normatch-likened", Likened)
    methods.add("normatch-started", Started)
