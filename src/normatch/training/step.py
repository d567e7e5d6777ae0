"""One training step, from indices to averaged weights: gather, augment, forward, backward, optimise, average.

Everything it touches lives on the device and keeps its address, so on a GPU the whole step is one captured graph
that the host only replays.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from normatch.augment import Views
from normatch.config import Config
from normatch.data import HostPool, Pool, Split, Stream
from normatch.errors import UserError
from normatch.methods import Batch, Method
from normatch.methods.parts.groups import apart
from normatch.seeding import derive
from normatch.training.distributed import Part
from normatch.training.ema import EMA
from normatch.training.feed import DeviceFeed, HostFeed
from normatch.training.metrics import Measured, Meter, measure, step_means, total_loss
from normatch.training.optim import Optimisers
from normatch.training.progress import quiet
from normatch.training.runtime import Runtime, capture, compiling

__all__ = ["Step"]

PLAN = 256
"""Number of steps whose indices are sent to the device at once."""

WARM_UP = 3
"""Number of steps run before capture: they create the optimisers' state and let kernels be chosen."""


class Step:
    """Calling it trains for one step. ``done`` is the number of steps done."""

    def __init__(
        self, method: Method, config: Config, runtime: Runtime, views: Views, pool: Pool | HostPool | Part, split: Split
    ) -> None:
        runtime.world.share(method.model)
        self.method = method
        self.ema = EMA(method, config.ema, config.ema_ramp)
        names = {id(p): name for name, p in method.named_parameters()}
        groups = apart(method.groups(config.optim), method.model.backbone.body.parameters(), config.optim)
        self.optimisers = Optimisers(groups, names, config.optim, config.steps, runtime.device)
        self.meter = Meter(runtime.device)
        self.done = 0
        self.runtime = runtime
        """The given runtime; its ``capture`` becomes False if compiling or capturing the step fails."""
        self.progress = quiet
        self._insist = config.compile == "on"
        self._views, self._pool, self._seed = views, pool, config.seed
        self._labelled = torch.from_numpy(split.labelled).to(runtime.device)
        self._unlabelled = torch.from_numpy(split.unlabelled).to(runtime.device)
        self._streams = [Stream(len(split.labelled), config.batch, config.seed, "labelled")]
        if method.views.unlabelled:
            unlabelled = Stream(len(split.unlabelled), config.batch * config.ratio, config.seed, "unlabelled")
            self._streams.append(unlabelled)
        draws = list(zip(self._streams, (split.labelled, split.unlabelled), strict=False))
        self.feed: HostFeed | DeviceFeed
        if isinstance(pool, HostPool) or (isinstance(pool, Part) and isinstance(pool.own, HostPool)):
            self.feed = HostFeed(pool, draws)
        else:
            self.feed = DeviceFeed(pool)
        self._plans = [torch.zeros(PLAN, s.batch, dtype=torch.int64, device=runtime.device) for s in self._streams]
        self._planned: int | None = None
        self._drawn: dict[int, list[Tensor]] = {}
        self._step = torch.zeros((), dtype=torch.int64, device=runtime.device)
        self._warm = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self.learn = torch.compile(self._forward, dynamic=False) if runtime.capture else self._forward
        """:meth:`_forward`, compiled if the step is to be captured."""
        self._make_view = torch.compile(views.make, dynamic=False) if runtime.capture else views.make

    def __call__(self) -> None:
        self._prepare()
        if self._graph is not None:
            self._graph.replay()
        elif self.runtime.capture:
            self._warm_up()
        else:
            self._run()
        self.done += 1

    def close(self) -> None:
        """Stop background work and drop the graph, for whose end NCCL would wait; a later step starts them again."""
        self.feed.close()
        self._graph, self._warm = None, min(self._warm, 1)

    def draw_ahead(self) -> None:
        """Draw the next plan of indices, unless that is done: for a moment at which the host is about to wait for the
        device. Drawn when they are needed, they may keep the device waiting."""
        if self._planned is not None:
            self._indices(self._planned + 1)

    def _run(self) -> None:
        """One training step, from batch to averaged weights."""
        # Else weights that were rounded in earlier steps would be used again, if the caller is within an autocast.
        torch.clear_autocast_cache()
        batch, truth = self.sample()
        self.optimisers.zero()
        if self.method.teacher_trains:
            self.ema.model.train()
        loss, measured = self.learn(batch, truth)
        if self.method.teacher_trains:
            self.ema.model.eval()
        loss.backward()
        self.runtime.world.average_gradients(p for group in self.optimisers.groups for p in group.params)
        self.optimisers.step(self._step)
        self.ema.update(self._step)
        self.meter.add(measured)
        self._step += 1

    def sample(self) -> tuple[Batch, Tensor]:
        """The batch of this step, and the true labels of its unlabelled samples, which the method never sees."""
        row = (self._step % PLAN).view(1)
        labelled, *others = (plan.index_select(0, row).view(-1) for plan in self._plans)
        unlabelled = others[0] if others else labelled[:0]
        at, at_unlabelled = self._labelled[labelled], self._unlabelled[unlabelled]
        images, images_unlabelled = self.feed.images(at, at_unlabelled)
        wanted = self.method.views
        batch = Batch(
            labelled=self._views_of(images, wanted.labelled),
            labels=self._pool.labels[at],
            labelled_positions=labelled,
            unlabelled=self._views_of(images_unlabelled, wanted.unlabelled),
            positions=unlabelled,
            step=self._step,
            teacher=self.ema.model,
            teacher_heads=self.ema.heads,
        )
        return batch, self._pool.labels[at_unlabelled]

    def _forward(self, batch: Batch, truth: Tensor) -> tuple[Tensor, Measured]:
        """The loss of a batch, and the measurements of the step."""
        with self.runtime.autocast():
            outcome = self.method(batch)
        loss = total_loss(outcome)
        return loss, measure(step_means(outcome, loss, truth, self.method.task.classes))

    def _views_of(self, images: Tensor, kinds: tuple[str, ...]) -> tuple[Tensor, ...]:
        # Drawn outside the compiled part, which would not use the generator that is seeded at each step.
        generator, device = self.runtime.generator, self.runtime.device
        drawn = [self._views.numbers(kind, len(images), generator, device) for kind in kinds]
        return tuple(self._make_view(images, numbers) for numbers in drawn)

    def _prepare(self) -> None:
        """Host work before a step: set its seed, prepare its inputs, and every PLAN steps send new indices."""
        self.runtime.generator.manual_seed(derive(self._seed, "step", self.done))
        self.feed.prepare(self.done)
        chunk = self.done // PLAN
        if self._planned != chunk:
            for plan, indices in zip(self._plans, self._indices(chunk), strict=True):
                plan.copy_(indices, non_blocking=True)
            self._planned = chunk

    def _indices(self, chunk: int) -> list[Tensor]:
        """The indices of PLAN steps from each stream, kept until others are asked for; in pinned memory if they go to a
        GPU, so that sending them does not wait for earlier steps."""
        if chunk not in self._drawn:
            drawn = [stream.rows(chunk * PLAN, PLAN) for stream in self._streams]
            self._drawn = {chunk: [indices.pin_memory() for indices in drawn] if self.runtime.on_gpu else drawn}
        return self._drawn[chunk]

    def _warm_up(self) -> None:
        """Run one of the steps before the graph exists: the first is compiled, the last is followed by capture."""
        if self._warm == 0:
            with self.progress.busy("compiling the step"):
                self._compile()
        else:
            self._run()
        self._warm += 1
        if self._warm == WARM_UP and self.runtime.capture:
            with self.progress.busy("capturing the step"), self._or_eager("captured"):
                # If it fails, there is nothing to undo: recorded work is not executed.
                self._graph = capture(self._run)

    def _compile(self) -> None:
        # Saved on the host: the first step, in which cuDNN tries kernels, needs the most GPU memory.
        before = {name: value.to("cpu", copy=True) for name, value in self.state().items()}
        with self._or_eager("compiled"):
            with compiling() as breaks:
                self._run()
            if breaks:
                self.progress.note(f"steps are slower than they could be: compiled in pieces ({breaks[0]})")
        if self.runtime.capture:
            return
        self.learn, self._make_view = self._forward, self._views.make
        # Undo what the compiled step did before it failed.
        self.method.zero_grad()
        self.load(before, self.done)
        self._prepare()
        self._run()

    @contextlib.contextmanager
    def _or_eager(self, what: str) -> Iterator[None]:
        """If the block fails, switch to eager steps and say why; not if ``compile`` is "on", nor for lack of memory."""
        try:
            yield
        except RuntimeError as error:
            if self._insist or isinstance(error, torch.OutOfMemoryError):
                raise
            line = next(iter(str(error).strip().splitlines()), "")
            because = f"the step cannot be {what} ({type(error).__name__}: {line})"
            self.runtime = dataclasses.replace(self.runtime, capture=False, eager_because=because)
            self.progress.note(f"steps run eagerly: {because}")

    def state(self) -> dict[str, Tensor]:
        """All tensors that the next step depends on, by name."""
        parts = {
            "method": self.method.state_dict(),
            "average": self.ema.model.state_dict(),
            "average_heads": self.ema.heads.state_dict(),
            "optimiser": self.optimisers.state(),
            "meter": self.meter.state(),
        }
        return {f"{part}/{name}": value for part, tensors in parts.items() for name, value in tensors.items()}

    def load(self, tensors: dict[str, Tensor], done: int) -> None:
        parts: dict[str, dict[str, Tensor]] = {
            part: {} for part in ("method", "average", "average_heads", "optimiser", "meter")
        }
        for key, value in tensors.items():
            part, name = key.split("/", 1)
            parts[part][name] = value
        try:
            self.method.load_state_dict(parts["method"])
            self.ema.model.load_state_dict(parts["average"])
            self.ema.heads.load_state_dict(parts["average_heads"])
            self.optimisers.load(parts["optimiser"])
        except (RuntimeError, ValueError) as error:
            differs = " ".join(str(error).split())  # torch names all that differs, a line each
            raise UserError(
                f"the checkpoint of step {done} does not fit the method's present code ({differs}): undo the change, "
                "or start another run with another --out"
            ) from error
        self.meter.load(parts["meter"])
        self.done = done
        self._step.fill_(done)
