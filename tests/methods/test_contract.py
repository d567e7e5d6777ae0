"""Every method, through the same questions, on images and on feature vectors."""

from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from normatch.config import Config
from normatch.data import Corpus, Dataset
from normatch.methods import Batch, Embedding, Method, Outcome, methods
from normatch.methods.parts.groups import OptimConfig
from normatch.methods.parts.weak_to_strong import Features
from normatch.training import train
from normatch.training.metrics import Record
from normatch.training.optim import Optimisers
from normatch.training.progress import Progress
from tests.conftest import make_batch, make_method

NAMES = methods.names()
VECTORS = (5,)
SHAPES: list[dict[str, object]] = [{}, {"shape": VECTORS}]
VARIANTS: list[tuple[str, dict[str, object]]] = [
    *((name, shape) for name in NAMES for shape in SHAPES),
    ("fixmatch", {"alignment": True, "pseudo_label": "soft", "passes": "shared"}),
    ("normatch", {"disagree": "drop", "consensus": "mlp", "accumulate_mixture": True}),
    ("normatch", {"consensus": "nfc+nfc", "auxiliary_pseudo_labels": True, "passes": "shared"}),
    ("normatch", {"head": "nfc", "flow_dropout": "first-epoch", "means": "normal"}),
    ("normatch", {"stop_gradient": False, "alignment": False, "pseudo_label": "onehot"}),
    ("normatch", {"accumulate_mixture": True, "flow_ramp": 0, "num_weight": 0.0}),
    ("normatch", {"adaptive": True, "decide_after": 0.5, "passes": "shared"}),
    ("vat", {"entropy": 1.0, "iterations": 2}),
    ("uda", {"annealing": "log", "consensus": "nfc"}),
    ("pseudo-label", {"consensus": "nfc", "alignment": True}),
    ("mixmatch", {"consensus": "nfc"}),
    ("remixmatch", {"alignment": False, "rotation_weight": 0.0}),
    ("remixmatch", {"consensus": "nfc"}),
    ("simple", {"consensus": "nfc", "passes": "shared"}),
    ("plcb", {"consensus": "nfc", "alignment": True}),
    ("fixmatch", {"consensus": "nfc"}),
    ("flexmatch", {"consensus": "nfc"}),
    ("freematch", {"consensus": "nfc", "fairness": 0.0}),
    ("softmatch", {"consensus": "nfc", "uniform": False}),
    ("dash", {"consensus": "nfc+nfc", "warm_up": 0.0}),
    ("adsh", {"consensus": "mlp", "passes": "shared"}),
    ("adamatch", {"consensus": "nfc", "passes": "shared"}),
    ("comatch", {"consensus": "nfc", "alignment": False, "memory": 16}),
    ("simmatch", {"consensus": "nfc", "bank": "teacher"}),
    ("semco", {"consensus": "nfc", "group_distance": 2.0}),
    ("label-propagation", {"consensus": "nfc", "alignment": True, "pseudo_label": "soft"}),
    ("laplacenet", {"consensus": "nfc", "passes": "shared", "samples": 2}),
    ("flowgmm", {"backbone": "identity"}),
    ("flowgmm", {"backbone": "identity", "shape": VECTORS}),
]
STILL: dict[str, set[str]] = {}
"""Parameters that need not move in the first steps, by method."""
OUTSIDE = {"normatch": {"auxiliary", "density"}, "flowgmm": {"labelled", "density", "consistency"}}
"""Losses of a flow, which stop before the backbone."""

each = pytest.mark.parametrize("name", NAMES)
each_shape = pytest.mark.parametrize("shape", [(1, 8, 8), VECTORS], ids=["images", "vectors"])
each_variant = pytest.mark.parametrize(("name", "choices"), VARIANTS, ids=lambda v: v if isinstance(v, str) else str(v))


def begin_epoch(method: Method, epoch: int = 3) -> None:
    """As the engine does, with random features."""
    draw, task = torch.Generator().manual_seed(epoch), method.task
    z = torch.randn(task.labelled + task.unlabelled, method.model.backbone.features, generator=draw)
    labels = torch.arange(task.labelled) % task.classes
    method.begin_epoch(epoch, lambda: Embedding(z[: task.labelled], labels, z[task.labelled :]))


def losses(method: Method, batch: Batch, seed: int = 0) -> dict[str, float]:
    torch.manual_seed(seed)
    return {name: loss.item() for name, loss in method(batch).losses.items()}


@each_variant
def test_a_step(name: str, choices: dict[str, object]) -> None:
    method = make_method(name, **choices).train()
    begin_epoch(method)
    buffers = dict(method.named_buffers())
    outcome = method(make_batch(method))
    assert isinstance(outcome, Outcome)
    assert outcome.losses
    assert all(loss.shape == () and torch.isfinite(loss) for loss in outcome.losses.values())
    assert all(metric.shape == () for metric in outcome.metrics.values())
    # A captured graph refers to the addresses of buffers: it would never see one that took another's place.
    assert [where for where, buffer in method.named_buffers() if buffer is not buffers.get(where)] == []
    # No checkpoint would keep a tensor that is neither parameter nor buffer.
    stored = [value for module in method.modules() for value in vars(module).values()]
    assert not any(isinstance(value, Tensor) for value in stored)
    if (pseudo := outcome.pseudo) is not None:
        assert method.views.unlabelled
        assert not any(t.requires_grad for t in pseudo if t is not None)
        assert ((pseudo.weight >= 0) & (pseudo.weight <= 1)).all()
        assert pseudo.trusted.dtype == torch.bool


@each_variant
def test_every_parameter_moves(name: str, choices: dict[str, object]) -> None:
    torch.manual_seed(0)
    method = make_method(name, **choices).train()
    begin_epoch(method)
    trained = {where: p for where, p in method.named_parameters() if p.requires_grad}
    groups = method.groups(OptimConfig())
    grouped = [id(p) for group in groups for p in group.params]
    assert sorted(grouped) == sorted(map(id, trained.values())), "each parameter has one optimiser"
    before = {where: p.detach().clone() for where, p in trained.items()}
    names = {id(p): where for where, p in trained.items()}
    optimisers = Optimisers(groups, names, OptimConfig(), method.task.steps, torch.device("cpu"))
    for step in range(50, 53):
        optimisers.zero()
        torch.stack(list(method(make_batch(method, step)).losses.values())).sum().backward()
        optimisers.step(torch.tensor(step))
    still = {where for where, p in trained.items() if torch.equal(p, before[where])}
    assert still <= STILL.get(name, set())
    assert all(p.isfinite().all() for p in trained.values())


@each
def test_losses_reach_the_backbone_through_what_learns_alone(name: str) -> None:
    """Pseudo-labels are constants: where there are strong views, weak ones get no gradient."""
    torch.manual_seed(0)
    passed = {f.name: 0.0 for f in fields(methods.get(name).Settings) if f.name.endswith("threshold")}
    method: Any = make_method(name, shape=VECTORS, **passed).train()
    begin_epoch(method)
    weak: list[Tensor] = []
    if "strong" in method.views.unlabelled:
        embed = method.embed

        def spied(batch: Batch) -> Features:
            z: Features = embed(batch)
            weak.extend(view for view in z.weak if view.requires_grad)
            return z

        method.embed = spied
    backbone, losses = list(method.model.backbone.parameters()), method(make_batch(method)).losses
    for what, loss in losses.items():
        to_weak = torch.autograd.grad(loss, weak, retain_graph=True, allow_unused=True) if weak else ()
        assert not any(g is not None and g.any() for g in to_weak), what
        reached = torch.autograd.grad(loss, backbone, retain_graph=True, allow_unused=True)
        assert any(g is not None for g in reached) == (what not in OUTSIDE.get(name, ())), what


class Look(NamedTuple):
    """A batch that a method must expect."""

    labelled: str = "any"
    unlabelled: str = "any"
    labels: tuple[int, ...] = (0,) * 6
    step: int = 50
    position: int | None = None
    """The one image that all of the unlabelled batch are."""

    def of(self, batch: Batch) -> Batch:
        def looks(view: Tensor, look: str) -> Tensor:
            highest = 3.0 if view.is_floating_point() else 255
            constant = {"dark": torch.zeros_like(view), "bright": torch.full_like(view, highest)}
            return {"any": view, "same": view[:1].expand_as(view), **constant}[look]

        return batch._replace(
            labelled=tuple(looks(view, self.labelled) for view in batch.labelled),
            unlabelled=tuple(looks(view, self.unlabelled) for view in batch.unlabelled),
            labels=torch.tensor(self.labels),
            step=torch.tensor(self.step),
            positions=batch.positions if self.position is None else torch.full_like(batch.positions, self.position),
        )


looks = st.sampled_from(["any", "same", "dark", "bright"])
any_look = st.builds(
    Look,
    looks,
    looks,
    st.tuples(*[st.integers(0, 2)] * 6),
    st.integers(0, 99),
    st.none() | st.integers(0, 29),
)


@each
@each_shape
@hypothesis.settings(max_examples=3, database=None)
@hypothesis.given(look=any_look)
@hypothesis.example(Look("dark", "dark"))
@hypothesis.example(Look("bright", "same", position=0))
@hypothesis.example(Look(step=0))
def test_losses_are_finite_for_any_input(name: str, shape: tuple[int, ...], look: Look) -> None:
    torch.manual_seed(0)
    method = make_method(name, shape=shape).train()
    begin_epoch(method)
    outcome = method(look.of(make_batch(method)))
    assert all(loss.isfinite() for loss in outcome.losses.values())
    torch.stack(list(outcome.losses.values())).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())


class OnTheDevice(TorchDispatchMode):
    """Refuses tensors on the host: each is a copy, for which it waits."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, found)) if isinstance(x, Tensor)]
        assert not any(x.is_cpu for x in tensors), f"{func} on the host"
        return found


@each_variant
def test_no_value_is_read_by_the_host(name: str, choices: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device without values: an ``.item()``, a branch or a shape that needs one raises."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # this device has none
    method = make_method(name, **choices).train()
    batch = make_batch(method)
    for module in (method, batch.teacher, batch.teacher_heads):
        module.to("meta")
    batch = tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, batch)
    with OnTheDevice():  # type: ignore[no-untyped-call]
        method(batch)


@each
def test_compiles_without_a_graph_break(name: str) -> None:
    method = make_method(name).train()
    batch = make_batch(method)
    torch._dynamo.reset()
    compiled = torch.compile(method, fullgraph=True, backend="eager")
    state = {k: v.clone() for k, v in method.state_dict().items()}
    torch.manual_seed(0)
    expected = method(batch)
    method.load_state_dict(state)
    torch.manual_seed(0)
    got = compiled(batch)
    for key, loss in expected.losses.items():
        torch.testing.assert_close(got.losses[key], loss)


@each_variant
def test_the_state_decides_what_follows(name: str, choices: dict[str, object]) -> None:
    """A method with the state of another that has trained goes on as it does, bit for bit."""
    first, second = (make_method(name, **choices).train() for _ in range(2))
    begin_epoch(first)
    for step in (7, 8):
        losses(first, make_batch(first, step), seed=step)
    second.load_state_dict(first.state_dict())
    for step in (50, 51):
        assert losses(first, make_batch(first, step)) == losses(second, make_batch(second, step))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Corpus, Corpus]:
    """Which six images are labelled; all images, and the same with wrong labels for all others."""
    positions = tmp_path_factory.mktemp("data") / "labelled.txt"
    positions.write_text("\n".join(map(str, range(6))))
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (30, 8, 8, 1), dtype=np.uint8), np.arange(30) % 3
    wrong = np.where(np.arange(30) < 6, labels, (labels + draw.integers(1, 3, 30)) % 3)
    true, poisoned = (Corpus("tiny", Dataset(images, y, ("bird", "cat", "dog")), None) for y in (labels, wrong))
    return positions, true, poisoned


class StopAt(Progress):
    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, step: int, total: int, record: Record) -> None:
        if step == self.step:
            raise InterruptedError


@each
def test_a_run_is_the_same_if_it_is_stopped_and_whatever_the_hidden_labels(
    name: str, data: tuple[Path, Corpus, Corpus], tiny_config: Config, tmp_path: Path
) -> None:
    """Two runs, of three epochs each: one on the true labels, left alone; one on an array whose unlabelled images have
    other labels, stopped in its last epoch and resumed from a checkpoint in its second."""
    labelled, true, poisoned = data
    config = tiny_config.replace(method=name, test_share=0.0, labels=None, labelled=(labelled,))
    config = config.replace(steps=6, epoch=2, batch=4, ratio=2, log_every=1, evaluate_every=6, checkpoint_every=3)
    train(config, tmp_path / "whole", corpus=true)
    with pytest.raises(InterruptedError):
        train(config, tmp_path / "stopped", corpus=poisoned, progress=StopAt(5))
    train(config, tmp_path / "stopped", corpus=poisoned, resume=True)
    for file in ("model.safetensors", "checkpoint/step-00000006.safetensors"):
        whole, stopped = (safetensors.torch.load_file(tmp_path / run / file) for run in ("whole", "stopped"))
        # The meter alone compares pseudo-labels with the truth.
        names = [n for n in whole if not n.startswith("meter/")]
        assert [n for n in names if not torch.equal(whole[n], stopped[n])] == []
