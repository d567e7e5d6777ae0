"""Methods and networks that fast.py tried and that are not part of the package."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import contrast
import succession
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import gelu

from normatch.methods import Batch, Outcome, Task, ViewsWanted, methods
from normatch.methods.normatch import NorMatch, NorMatchSettings
from normatch.methods.parts.losses import labelled_loss
from normatch.methods.supervised import Supervised
from normatch.nets.backbone import Backbone, BackboneSpec, ImageShapes, register
from normatch.nets.model import Model
from normatch.nets.partial import Parts, join, parts_of
from normatch.nets.quick_resnet import SLOPE, QuickResNet
from normatch.nets.wide_resnet import NORM_MOMENTUM, WideResNet

__all__ = ["add_what_was_tried"]


class Sharp(NorMatch):
    """Pseudo-labels p² / Σ p², a temperature of ½, in the place of p."""

    def losses(
        self, logits_labelled: Tensor, labels: Tensor, logits_strong: Tensor, p: Tensor, weight: Tensor
    ) -> dict[str, Tensor]:
        sharp = p.square() / p.square().sum(1, keepdim=True)
        return super().losses(logits_labelled, labels, logits_strong, sharp, weight)


class Decided(NorMatch):
    """Pseudo-labels p^(1/T), normalised: soft (T = 1) in the first half of the run, then T falls linearly to 0."""

    temperature: Tensor

    def __init__(self, model: Model, task: Task, settings: NorMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.register_buffer("temperature", torch.tensor(1.0))

    def forward(self, batch: Batch) -> Outcome:
        self.temperature.copy_((2 - 2 * batch.step / self.task.steps).clamp(0.01, 1))
        return super().forward(batch)

    def losses(
        self, logits_labelled: Tensor, labels: Tensor, logits_strong: Tensor, p: Tensor, weight: Tensor
    ) -> dict[str, Tensor]:
        target = (p.log().clamp_min(-100) / self.temperature).softmax(1)
        return super().losses(logits_labelled, labels, logits_strong, target, weight)


class Taught(NorMatch):
    """Pseudo-labels of the averaged weights, from ``after`` of the run on."""

    after: ClassVar[float] = 0.0

    def forward(self, batch: Batch) -> Outcome:
        with torch.no_grad():
            self._taught = batch.teacher(batch.unlabelled[0]).float().softmax(1)
        self._late = batch.step >= round(self.after * self.task.steps)
        outcome = super().forward(batch)
        del self._taught, self._late
        return outcome

    @torch.no_grad()
    def believe(self, z_weak: Tensor) -> Tensor:
        p = torch.where(self._late, self._taught, self.model.head(z_weak).float().softmax(1))
        return p if self.alignment is None else self.alignment(p)


class TaughtLate(Taught):
    after = 0.25


class Together(Taught):
    """Pseudo-labels of the network and the averaged weights together, from half of the run on."""

    after = 0.5

    @torch.no_grad()
    def believe(self, z_weak: Tensor) -> Tensor:
        own = self.model.head(z_weak).float().softmax(1)
        p = torch.where(self._late, (own + self._taught) / 2, own)
        return p if self.alignment is None else self.alignment(p)


class Averaged(NorMatch):
    """Features and pseudo-labels of weak views from the averaged weights, normalised by the statistics of the batch.

    The running statistics are those of the network's own weights, whose outputs are larger."""

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        (labelled,), (weak, strong) = batch.labelled, batch.unlabelled
        teacher = batch.teacher
        # The statistics that this updates are the teacher's, which are overwritten after the step.
        weights = dict(teacher.backbone.named_parameters()) | dict(teacher.backbone.named_buffers())
        with torch.no_grad():
            z_weak = functional_call(self.model.backbone, weights, (self.model.normalise(weak),))
        self._head = teacher.head
        z_labelled, z_strong = self.model.features(torch.cat([labelled, strong])).split([len(labelled), len(strong)])
        return z_labelled, z_weak, z_strong

    @torch.no_grad()
    def believe(self, z_weak: Tensor) -> Tensor:
        p: Tensor = self._head(z_weak).float().softmax(1)
        del self._head
        return p if self.alignment is None else self.alignment(p)


class Mirrored(NorMatch):
    """Pseudo-labels averaged over the weak view and its mirror image."""

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        weak, strong = batch.unlabelled
        both = batch._replace(unlabelled=(torch.cat([weak, weak.flip(3)]), strong))
        z_labelled, z_both, z_strong = super().embed(both)
        z_weak, self._mirrored = z_both.chunk(2)
        return z_labelled, z_weak, z_strong

    @torch.no_grad()
    def believe(self, z_weak: Tensor) -> Tensor:
        both: Tensor = self.model.head(torch.cat([z_weak, self._mirrored])).float().softmax(1)
        del self._mirrored
        first, second = both.chunk(2)
        p = (first + second) / 2
        return p if self.alignment is None else self.alignment(p)


class Remembered(NorMatch):
    """Pseudo-labels averaged over the visits to an image; each counts 0.7 of the next."""

    memory: Tensor

    def __init__(self, model: Model, task: Task, settings: NorMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.register_buffer("memory", torch.zeros(task.unlabelled, task.classes + 1))

    def forward(self, batch: Batch) -> Outcome:
        self._positions = batch.positions
        outcome = super().forward(batch)
        del self._positions
        return outcome

    @torch.no_grad()
    def believe(self, z_weak: Tensor) -> Tensor:
        p = super().believe(z_weak)
        visits = 0.7 * self.memory[self._positions] + torch.cat([p, torch.ones_like(p[:, :1])], 1)
        self.memory[self._positions] = visits
        return visits[:, :-1] / visits[:, -1:]


class Balance(nn.Module):
    """p e^u, renormalised, where u makes the classes equally frequent: a step of Sinkhorn's iteration with each batch.

    Alignment divides by the frequencies of p instead, which hardly moves predictions that are decided."""

    RATE = 0.05
    MOST = 4.0
    """Largest factor by which a class counts as too frequent or too rare."""

    u: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("u", torch.zeros(classes))

    @torch.no_grad()
    def forward(self, p: Tensor) -> Tensor:
        balanced = (p.clamp_min(torch.finfo(p.dtype).tiny).log() + self.u).softmax(1)
        frequency = len(self.u) * balanced.mean(0)
        self.u.sub_(self.RATE * frequency.clamp(1 / self.MOST, self.MOST).log())
        return balanced


class Balanced(NorMatch):
    """Pseudo-labels of equally frequent classes."""

    def __init__(self, model: Model, task: Task, settings: NorMatchSettings) -> None:
        super().__init__(model, task, settings)
        self.alignment = Balance(task.classes)  # type: ignore[assignment]


class Mixed(NorMatch):
    """Half of the strong views are mixed with those of other images, and so are their pseudo-labels."""

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        weak, strong = batch.unlabelled
        mixed, self._own = self.mix(strong, strong.roll(1, 0))
        labelled = tuple(view.to(mixed.dtype) for view in batch.labelled)
        return super().embed(batch._replace(labelled=labelled, unlabelled=(weak.to(mixed.dtype), mixed)))

    def mix(self, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """Mixed images, and the share (N,) that x has in them: CutMix, a square from the other of up to all pixels."""
        area, down, across, chance = torch.rand(4, len(x), 1, device=x.device)
        half = area.sqrt() / 2 * (chance < 0.5)
        rows, columns = ((torch.arange(side, device=x.device) + 0.5) / side for side in x.shape[2:])
        inside = ((rows - down).abs() < half)[:, None, :, None] & ((columns - across).abs() < half)[:, None, None, :]
        return torch.where(inside, other, x), 1 - inside.float().mean((1, 2, 3))

    def losses(
        self, logits_labelled: Tensor, labels: Tensor, logits_strong: Tensor, p: Tensor, weight: Tensor
    ) -> dict[str, Tensor]:
        own, weighed = self._own[:, None], weight[:, None] * p
        del self._own
        target = own * weighed + (1 - own) * weighed.roll(1, 0)
        return super().losses(logits_labelled, labels, logits_strong, target, torch.ones_like(weight))


class MixedUp(Mixed):
    """The same with mixup: the other image shines through, with up to half of each pixel."""

    def mix(self, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        share, chance = torch.rand(2, len(x), device=x.device)
        own = torch.where(chance < 0.5, (1 + share) / 2, 1.0)
        return torch.lerp(other.float(), x.float(), own[:, None, None, None]), own


class AllLabels(Supervised):
    """The weak and the strong view of labelled images: with all labels, the most that pseudo-labels could do."""

    views = ViewsWanted(labelled=("weak", "strong"))

    def forward(self, batch: Batch) -> Outcome:
        logits = self.model(torch.cat(batch.labelled))
        return Outcome({"labelled": labelled_loss(logits, batch.labels.repeat(2))}, {})


class MaxPooled(QuickResNet):
    """Its features are the largest values instead of the mean ones."""

    def forward(self, x: Tensor, learning: int | None = None) -> Tensor:
        parts = self.stem(parts_of(x, learning))
        for stage in self.stages:
            parts = stage(parts)
        return join(parts).amax(dim=(2, 3))


class Gelu(QuickResNet):
    """GELU instead of a leaky ReLU."""

    def __init__(self, channels: int, widths: Sequence[int], norm_momentum: float) -> None:
        super().__init__(channels, widths, norm_momentum)
        for layer in self.modules():
            if hasattr(layer, "activate"):
                layer.activate = gelu  # type: ignore[assignment]


class Deeper(QuickResNet):
    """Its stages have several residual pairs."""

    def __init__(self, channels: int, pairs: Sequence[int], norm_momentum: float) -> None:
        super().__init__(channels, norm_momentum=norm_momentum)
        for stage, count in zip(self.stages, pairs, strict=True):
            stage.residual = Pairs(copy.deepcopy(stage.get_submodule("residual")) for _ in range(count))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, a=SLOPE, mode="fan_out", nonlinearity="leaky_relu")


class Pairs(nn.ModuleList):
    """Residual pairs one after the other; what they add to their input."""

    def forward(self, parts: Parts) -> Parts:
        start = parts
        for pair in self:
            parts = tuple(map(torch.add, parts, pair(parts)))
        return tuple(map(torch.sub, parts, start))


class Uneven(WideResNet):
    """A wide residual network of width 2 whose groups have different numbers of blocks."""

    def __init__(self, channels: int, blocks: Sequence[int], norm_momentum: float) -> None:
        super().__init__(channels, depth=4 + 6 * max(blocks), norm_momentum=norm_momentum)
        groups = [list(self.blocks)[i * max(blocks) : i * max(blocks) + count] for i, count in enumerate(blocks)]
        self.blocks = nn.Sequential(*(block for group in groups for block in group))


def add_what_was_tried() -> None:
    contrast.add_methods()
    succession.add_methods()
    methods.add("normatch-sharp", Sharp)
    methods.add("normatch-decided", Decided)
    methods.add("normatch-taught", Taught)
    methods.add("normatch-taught-late", TaughtLate)
    methods.add("normatch-together", Together)
    methods.add("normatch-averaged", Averaged)
    methods.add("normatch-mirrored", Mirrored)
    methods.add("normatch-remembered", Remembered)
    methods.add("normatch-balanced", Balanced)
    methods.add("normatch-cutmix", Mixed)
    methods.add("normatch-mixup", MixedUp)
    methods.add("all-labels", AllLabels)
    for depth, width in ((16, 4), (10, 4)):
        _add(f"wrn-{depth}-{width}", partial(WideResNet, depth=depth, width=width), NORM_MOMENTUM)
    for width in (48, 64):
        _add(f"quick-resnet-{width}", partial(QuickResNet, widths=[width * 2**i for i in range(4)]))
    _add("quick-resnet-late-256", partial(QuickResNet, widths=(32, 64, 256, 256)))
    _add("quick-resnet-late-384", partial(QuickResNet, widths=(32, 64, 192, 384)))
    _add("quick-resnet-late-512", partial(QuickResNet, widths=(32, 64, 256, 512)))
    _add("quick-resnet-128-384-512", partial(QuickResNet, widths=(32, 128, 384, 512)))
    _add("quick-resnet-late-384-max", partial(MaxPooled, widths=(32, 64, 192, 384)))
    _add("quick-resnet-late-384-gelu", partial(Gelu, widths=(32, 64, 192, 384)))
    for pairs in ((2, 2, 2), (3, 3, 1)):
        _add("quick-resnet-" + "".join(map(str, pairs)), partial(Deeper, pairs=pairs))
    for blocks in ((1, 4, 4), (2, 4, 4)):
        _add("wrn-" + "".join(map(str, blocks)), partial(Uneven, blocks=blocks), NORM_MOMENTUM)


def _add(name: str, build: Callable[..., Backbone], norm_momentum: float = 0.01) -> None:
    register(
        BackboneSpec(
            name=name,
            summary="tried in benchmarks/fast.py",
            shapes=ImageShapes(16, 64),
            build=lambda shape, momentum: build(shape[0], norm_momentum=momentum),
            norm_momentum=norm_momentum,
            partial=True,
        )
    )
