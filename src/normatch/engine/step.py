"""One training step, from indices to averaged weights: gather, augment, forward, backward, optimise, average.

Everything it touches lives on the device and keeps its address, so on a GPU the whole step is one captured graph
that the host only replays.
"""

import dataclasses

import torch
from torch import Tensor

from normatch.augment import Numbers, Views
from normatch.config import Config
from normatch.data import HostPool, Pool, Split, Stream
from normatch.engine.average import Average
from normatch.engine.curves import Mean, pseudo_label_curves
from normatch.engine.feed import feed_from
from normatch.engine.graphs import capture
from normatch.engine.meter import Measured, Meter, measure
from normatch.engine.optimisers import Optimisers
from normatch.engine.progress import Progress, quiet
from normatch.engine.runtime import Runtime
from normatch.errors import UserError
from normatch.methods import Batch, Method, Outcome
from normatch.seeding import derive

__all__ = ["Step"]

PLAN = 256
"""Steps whose indices are sent to the device at once."""

OURS = ("step", "seconds", "steps_per_second", "loss")
OURS_BEGIN = ("loss/", "pseudo/", "test/", "validation/", "labelled/")
"""Names in a record that are the engine's own."""

WARM_UP = 3
"""Steps run one by one before capture: they make the optimisers' state and let kernels be chosen."""


class Step:
    """Calling it trains for one step. ``done`` counts them."""

    def __init__(
        self, method: Method, config: Config, runtime: Runtime, views: Views, pool: Pool | HostPool, split: Split
    ) -> None:
        self.method = method
        self.average = Average(method.model, config.ema, config.ema_ramp)
        self.optimisers = Optimisers(method.groups(config.optim), config.optim, config.steps, runtime.device)
        self.meter = Meter(runtime.device)
        self.done = 0
        self.runtime = runtime
        """What the step makes of the runtime it was given: less, where it turns out that it cannot be captured."""
        self.progress: Progress = quiet
        self._insist = config.compile == "on"
        self._views, self._pool, self._seed = views, pool, config.seed
        self._labelled = torch.from_numpy(split.labelled).to(runtime.device)
        self._unlabelled = torch.from_numpy(split.unlabelled).to(runtime.device)
        self._streams = [Stream(len(split.labelled), config.batch, config.seed, "labelled")]
        if method.views.unlabelled:
            unlabelled = Stream(len(split.unlabelled), config.batch * config.ratio, config.seed, "unlabelled")
            self._streams.append(unlabelled)
        self.feed = feed_from(pool, list(zip(self._streams, (split.labelled, split.unlabelled), strict=False)))
        self._plans = [torch.zeros(PLAN, s.batch, dtype=torch.int64, device=runtime.device) for s in self._streams]
        self._planned: int | None = None
        self._step = torch.zeros((), dtype=torch.int64, device=runtime.device)
        self._warm = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self.learn = torch.compile(self._forward, dynamic=False) if runtime.capture else self._forward
        self._view = torch.compile(self._see, dynamic=False) if runtime.capture else self._see

    def __call__(self) -> None:
        self._prepare()
        if self._graph is not None:
            self._graph.replay()
        elif self.runtime.capture:
            self._warm_up()
        else:
            self._run()
        self.done += 1

    @property
    def settled(self) -> bool:
        """Whether nothing is left to be compiled or captured: from here on a step is the device's work."""
        return self._graph is not None or not self.runtime.capture

    def _run(self) -> None:
        """The path of one batch, top to bottom."""
        batch, truth = self.sample()
        self.optimisers.zero()
        loss, measured = self.learn(batch, truth)
        loss.backward()
        self.optimisers.step(self._step)
        self.average.update(self._step)
        self.meter.add(measured)
        self._step += 1

    def sample(self) -> tuple[Batch, Tensor]:
        """The views of this step's items, and the true labels of the unlabelled ones, which the method never sees."""
        row = (self._step % PLAN).view(1)
        labelled, *others = (plan.index_select(0, row).view(-1) for plan in self._plans)
        unlabelled = others[0] if others else labelled[:0]
        at, at_unlabelled = self._labelled[labelled], self._unlabelled[unlabelled]
        images, images_unlabelled = self.feed.images(at, at_unlabelled)
        wanted = self.method.views
        batch = Batch(
            labelled=self._views_of(images, wanted.labelled),
            labels=self._pool.labels[at],
            unlabelled=self._views_of(images_unlabelled, wanted.unlabelled),
            positions=unlabelled,
            step=self._step,
            teacher=self.average.model,
        )
        return batch, self._pool.labels[at_unlabelled]

    def _forward(self, batch: Batch, truth: Tensor) -> tuple[Tensor, Measured]:
        """The loss, and what is measured beside it."""
        with self.runtime.autocast():
            outcome = self.method(batch)
        loss = torch.stack(list(outcome.losses.values())).sum()
        return loss, measure(_means(outcome, loss, truth, self.method.task.classes))

    def _views_of(self, images: Tensor, kinds: tuple[str, ...]) -> tuple[Tensor, ...]:
        return tuple(self._make_view(kind, images) for kind in kinds)

    def _see(self, kind: str, images: Tensor, numbers: Numbers) -> Tensor:
        return self._views.apply(kind, images, self._views.settle(numbers))

    def _make_view(self, kind: str, images: Tensor) -> Tensor:
        # Draws stay outside the compiled part: there they would not come from the generator that is seeded each step.
        numbers = self._views.numbers(kind, len(images), self.runtime.generator, self.runtime.device)
        return self._view(kind, images, numbers)

    def _prepare(self) -> None:
        """Host work before a step: its seed, its inputs, and fresh indices every few hundred steps."""
        self.runtime.generator.manual_seed(derive(self._seed, "step", self.done))
        self.feed.prepare(self.done)
        chunk = self.done // PLAN
        if self._planned != chunk:
            for plan, stream in zip(self._plans, self._streams, strict=True):
                plan.copy_(stream.rows(chunk * PLAN, PLAN), non_blocking=True)
            self._planned = chunk

    def _warm_up(self) -> None:
        """One of the steps before the graph: the first is compiled, the last is followed by capture."""
        if self._warm == 0:
            with self.progress.busy("compiling the step"):
                self._compile()
        else:
            self._run()
        self._warm += 1
        if self._warm == WARM_UP and self.runtime.capture:
            with self.progress.busy("capturing the step"):
                self._capture()

    def _compile(self) -> None:
        # On the host: the first step, in which cuDNN tries its kernels, is the one that needs most of the GPU.
        before = {name: value.to("cpu", copy=True) for name, value in self.state().items()}
        try:
            self._run()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._give_up("compiled", error)
            self.learn, self._view = self._forward, self._see
            # What the compiled step had done before it failed is undone.
            self.method.zero_grad()
            self.load(before, self.done)
            self._prepare()
            self._run()

    def _capture(self) -> None:
        try:
            self._graph = capture(self._run)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # Nothing is to be undone: work that is recorded is not done.
            self._give_up("captured", error)

    def _give_up(self, what: str, error: RuntimeError) -> None:
        """Run eagerly from here on and say why, unless the config insists."""
        if self._insist:
            raise error
        line = next(iter(str(error).strip().splitlines()), "")
        because = f"the step cannot be {what} ({type(error).__name__}: {line})"
        self.runtime = dataclasses.replace(self.runtime, capture=False, eager_because=because)
        self.progress.note(f"steps run eagerly: {because}")

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        parts = {
            "method": self.method.state_dict(),
            "average": self.average.model.state_dict(),
            "optimiser": self.optimisers.state(),
            "meter": self.meter.state(),
        }
        return {f"{part}/{name}": value for part, tensors in parts.items() for name, value in tensors.items()}

    def load(self, tensors: dict[str, Tensor], done: int) -> None:
        parts: dict[str, dict[str, Tensor]] = {"method": {}, "average": {}, "optimiser": {}, "meter": {}}
        for key, value in tensors.items():
            part, name = key.split("/", 1)
            parts[part][name] = value
        self.method.load_state_dict(parts["method"])
        self.average.model.load_state_dict(parts["average"])
        self.optimisers.load(parts["optimiser"])
        self.meter.load(parts["meter"])
        self.done = done
        self._step.fill_(done)


def _means(outcome: Outcome, loss: Tensor, truth: Tensor, classes: int) -> dict[str, Mean]:
    one = torch.ones((), device=loss.device)
    _check_metrics(outcome.metrics)
    values = {"loss": loss} | {f"loss/{name}": value for name, value in outcome.losses.items()} | outcome.metrics
    means: dict[str, Mean] = {name: (value.float(), one) for name, value in values.items()}
    if outcome.pseudo is not None:
        means |= pseudo_label_curves(outcome.pseudo, truth, classes)
    return means


def _check_metrics(metrics: dict[str, Tensor]) -> None:
    """A record has one place for a name: what a method measures must not hide what is measured beside it."""
    for name, value in metrics.items():
        if name in OURS or name.startswith(OURS_BEGIN):
            raise UserError(f"the method has a metric {name!r}, a name that each run's record has already: rename it")
        if not isinstance(value, Tensor) or value.ndim:
            what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise UserError(f"metric {name!r} of the method is {what}: give a tensor of one number, of shape ()")
