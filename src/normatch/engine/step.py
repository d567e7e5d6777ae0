"""One training step, from indices to averaged weights: gather, augment, forward, backward, optimise, average.

Everything it touches lives on the device and keeps its address, so on a GPU the whole step is one captured graph
that the host only replays.
"""

import torch
from torch import Tensor

from normatch.augment import Views
from normatch.config import Config
from normatch.data import Pool, Split, Stream
from normatch.engine.average import Average
from normatch.engine.diagnostics import Mean, pseudo_label_curves
from normatch.engine.meter import Meter
from normatch.engine.optimisers import Optimisers
from normatch.engine.runtime import Runtime
from normatch.methods import Batch, Method, Outcome
from normatch.seeding import derive

__all__ = ["Step"]

PLAN = 256
"""Steps whose indices are sent to the device at once."""

WARM_UP = 3
"""Steps run one by one before capture: they make the optimisers' state and let kernels be chosen."""


class Step:
    """Calling it trains for one step. ``done`` counts them."""

    def __init__(
        self, method: Method, config: Config, runtime: Runtime, views: Views, pool: Pool, split: Split
    ) -> None:
        self.method = method
        self.average = Average(method.model, config.ema, config.ema_ramp)
        self.optimisers = Optimisers(method.groups(config.optim), config.optim, config.steps, runtime.device)
        self.meter = Meter(runtime.device)
        self.done = 0
        self._runtime, self._views, self._pool, self._seed = runtime, views, pool, config.seed
        self._labelled = torch.from_numpy(split.labelled).to(runtime.device)
        self._unlabelled = torch.from_numpy(split.unlabelled).to(runtime.device)
        self._streams = [Stream(len(split.labelled), config.batch, config.seed, "labelled")]
        if method.views.unlabelled:
            unlabelled = Stream(len(split.unlabelled), config.batch * config.ratio, config.seed, "unlabelled")
            self._streams.append(unlabelled)
        self._plans = [torch.zeros(PLAN, s.batch, dtype=torch.int64, device=runtime.device) for s in self._streams]
        self._planned: int | None = None
        self._step = torch.zeros((), dtype=torch.int64, device=runtime.device)
        self._warm = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self.learn = torch.compile(self._forward) if runtime.capture else self._forward
        self._view = torch.compile(views.apply) if runtime.capture else views.apply

    def __call__(self) -> None:
        self._prepare()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._run()
            self._warm += 1
            if self._runtime.capture and self._warm == WARM_UP:
                self._capture()
        self.done += 1

    def _run(self) -> None:
        """The path of one batch, top to bottom."""
        batch, truth = self.sample()
        self.optimisers.zero()
        outcome, loss = self.learn(batch)
        loss.backward()
        self.optimisers.step(self._step)
        self.average.update(self._step)
        self.meter.add(_means(outcome, loss, truth, self.method.task.classes))
        self._step += 1

    def sample(self) -> tuple[Batch, Tensor]:
        """The views of this step's items, and the true labels of the unlabelled ones, which the method never sees."""
        row = (self._step % PLAN).view(1)
        labelled, *others = (plan.index_select(0, row).view(-1) for plan in self._plans)
        unlabelled = others[0] if others else labelled[:0]
        at, at_unlabelled = self._labelled[labelled], self._unlabelled[unlabelled]
        wanted = self.method.views
        batch = Batch(
            labelled=self._views_of(at, wanted.labelled),
            labels=self._pool.labels[at],
            unlabelled=self._views_of(at_unlabelled, wanted.unlabelled),
            positions=unlabelled,
            step=self._step,
            teacher=self.average.model,
        )
        return batch, self._pool.labels[at_unlabelled]

    def _forward(self, batch: Batch) -> tuple[Outcome, Tensor]:
        with self._runtime.autocast():
            outcome = self.method(batch)
        return outcome, torch.stack(list(outcome.losses.values())).sum()

    def _views_of(self, positions: Tensor, kinds: tuple[str, ...]) -> tuple[Tensor, ...]:
        if not kinds:
            return ()
        images = self._pool.gather(positions)
        return tuple(self._make_view(kind, images) for kind in kinds)

    def _make_view(self, kind: str, images: Tensor) -> Tensor:
        # Draws stay outside the compiled part: there they would not come from the generator that is seeded each step.
        params = self._views.draw(kind, len(images), self._runtime.generator, self._runtime.device)
        return self._view(kind, images, params)

    def _prepare(self) -> None:
        """Host work before a step: its seed, and fresh indices every few hundred steps."""
        self._runtime.generator.manual_seed(derive(self._seed, "step", self.done))
        chunk = self.done // PLAN
        if self._planned != chunk:
            for plan, stream in zip(self._plans, self._streams, strict=True):
                plan.copy_(stream.rows(chunk * PLAN, PLAN), non_blocking=True)
            self._planned = chunk

    def _capture(self) -> None:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run()
        self._graph = graph

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
    values = {"loss": loss} | {f"loss/{name}": value for name, value in outcome.losses.items()} | outcome.metrics
    means: dict[str, Mean] = {name: (value.detach().float(), one) for name, value in values.items()}
    if outcome.pseudo is not None:
        means |= pseudo_label_curves(outcome.pseudo, truth, classes)
    return means
