"""What the engine hands to whom, and when: the right samples, weights, seeds and rates, at the right steps."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

import normatch.training.step
from normatch.config import Config
from normatch.data import Dataset, Pool, Stream, dataset
from normatch.errors import UserError
from normatch.methods import Batch, Embedding, Method, Outcome, ViewsWanted, methods
from normatch.methods.parts.groups import Group
from normatch.nets.model import features, logits, read_spec
from normatch.training import Loop, checkpoint, prepare, train
from normatch.training.job import _statistics
from normatch.training.metrics import RESERVED
from normatch.training.step import Step
from tests.data.original_formats import random_bytes
from tests.training.conftest import stopped_before


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return tiny_config.replace(device="cpu")


def stepped(config: Config, steps: int = 1) -> Loop:
    """A loop whose first steps are done."""
    loop = Loop(prepare(config))
    loop.step.method.train()
    for _ in range(steps):
        loop.step()
    return loop


def test_a_batch_has_its_samples_their_truth_and_the_averaged_model(config: Config) -> None:
    loop = stepped(config.replace(validation=0.1, include_labelled=False, seed=3))
    job = loop.job
    batch, truth = loop.step.sample()
    unlabelled = Stream(job.method.task.unlabelled, config.batch * config.ratio, 3, "unlabelled")
    assert torch.equal(batch.positions, unlabelled.rows(1, 1)[0])
    expected = job.corpus.train.labels[job.split.unlabelled[batch.positions.numpy()]]
    assert truth.tolist() == expected.tolist()
    assert batch.teacher is loop.step.ema.model
    assert not batch.teacher.training
    labelled = Stream(job.method.task.labelled, config.batch, 3, "labelled").rows(1, 1)[0].numpy()
    assert batch.labels.tolist() == job.corpus.train.labels[job.split.labelled[labelled]].tolist()
    images, spec = np.asarray(job.corpus.train.inputs), job.method.model.spec
    assert (*spec.mean, *spec.std) == pytest.approx((images.mean(), images.std()), rel=1e-9), "no test samples"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda groups: groups[1:],
            r"'fixmatch' gives parameter 'model.backbone.stem.weight' to 0 optimisers: put it into one group",
        ),
        (lambda groups: [*groups, groups[0]], r"gives parameter 'model.backbone.stem.weight' to 2 optimisers: put it"),
        (
            lambda groups: [*groups, replace(groups[0], params=[torch.nn.Parameter(torch.ones(2))])],
            "have a parameter that is not the method's, so that no checkpoint would have it",
        ),
    ],
)
def test_a_method_trains_all_its_parameters_and_no_others(
    change: Callable[[list[Group]], list[Group]], complaint: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = methods.get("fixmatch")
    groups = kind.groups
    monkeypatch.setattr(kind, "groups", lambda self, optim: change(groups(self, optim)))
    with pytest.raises(UserError, match=complaint):
        prepare(config.replace(method="fixmatch"))


def test_a_view_that_does_not_exist_is_refused_before_training(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods.get("supervised"), "views", ViewsWanted(labelled=("medium",)))
    with pytest.raises(UserError, match="unknown view 'medium': choose from none, weak, strong"):
        prepare(config.replace(method="supervised"))


def test_every_step_has_a_seed_of_its_own(config: Config) -> None:
    seeds = set()
    for seed in (0, 1):
        loop = stepped(config.replace(seed=seed), 0)
        for _ in range(4):
            loop.step()
            seeds.add(loop.job.runtime.generator.initial_seed())
    assert len(seeds) == 8, "also of every run"


@pytest.mark.parametrize("precision", ["auto", "bfloat16"])
def test_a_method_computes_in_the_precision_of_its_run(
    config: Config, precision: Literal["auto", "bfloat16"], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = stepped(config.replace(precision=precision), 0)
    forward, found = loop.step.method.forward, []

    def seen(batch: Batch) -> Outcome:
        found.append(torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16)
        return forward(batch)

    monkeypatch.setattr(loop.step.method, "forward", seen)
    loop.step()
    assert found == [precision == "bfloat16"]


@pytest.mark.parametrize("pieces", [1, 4, 100])
def test_statistics_are_those_of_each_channel_however_they_are_counted(
    pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = random_bytes(11, 4, 5, 3)
    monkeypatch.setattr(dataset, "PIECE", pieces * images[0].nbytes)
    mean, std = _statistics(Dataset(dataset.Selected.of(images), np.zeros(11, np.int64), ("a",)))
    np.testing.assert_allclose(mean, images.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, images.std((0, 1, 2)), rtol=1e-12)


def test_a_resumed_run_goes_on_counting_its_time(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that stands still but for a second a step."""
    step, now = Step.__call__, [0.0]

    def timed(self: Step) -> None:
        step(self)
        now[0] += 1

    monkeypatch.setattr(Step, "__call__", timed)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    with stopped_before(6):
        train(config, tmp_path / "run")
    now[0] = 1000.0  # another process, another clock
    run = train(config, tmp_path / "run", resume=True)
    lines = list(run.metrics())
    assert [line["seconds"] for line in lines] == [2, 4, 6, 8, 10, 12]
    assert run.result["seconds"] == 12
    assert [line["steps_per_second"] for line in lines] == [1] * 6


def test_the_accuracy_on_labelled_samples_is_of_these_alone(config: Config) -> None:
    loop = Loop(prepare(config.replace(include_labelled=False)))
    job = loop.job
    train = Pool(job.corpus.train).subset(job.split.labelled)
    right = logits(loop.step.ema.model, train.inputs).argmax(1) == train.labels
    assert loop.evaluate()["labelled/accuracy"] == right.double().mean().item()
    assert 0 < right.sum() < len(right), "that of other samples differs"


def test_by_default_an_epoch_ends_with_an_evaluation_and_a_checkpoint(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (config.epoch, config.log_every) == (4, 2)
    saved: list[int] = []
    monkeypatch.setattr(checkpoint, "save", lambda folder, step, tensors: saved.append(step))
    run = train(config.replace(steps=9, evaluate_every=None, checkpoint_every=None), tmp_path / "run")
    lines = list(run.metrics())
    # The last line is whole, whenever it comes.
    assert [line["step"] for line in lines if isinstance(line.get("loss"), float)] == [2, 4, 6, 8, 9]
    for name in ("test/accuracy", "labelled/accuracy"):
        assert [line["step"] for line in lines if name in line] == [4, 8, 9]
    assert saved == [4, 8, 9]


@pytest.mark.parametrize("method", ["normatch", "fixmatch", "supervised"])
def test_all_that_is_compiled_of_a_step_is_one_graph(config: Config, method: str) -> None:
    """Losses and what is measured beside them, of pseudo-labels with and without an auxiliary classifier and of none: a
    break in the graph would cost a captured step its speed. Each method by itself is in tests/methods/test_contract."""
    loop = stepped(config.replace(method=method))
    loop.step._prepare()
    batch, truth = loop.step.sample()
    torch._dynamo.reset()
    compiled = torch.compile(loop.step._forward, fullgraph=True, dynamic=False, backend="eager")
    loss, measured = compiled(batch, truth)
    assert loss.isfinite()
    assert {"loss", "loss/labelled"} <= measured.shapes.keys()


def test_every_step_draws_its_own_samples_and_plans_them_once_and_ahead(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normatch.training.step, "PLAN", 3)
    loop = stepped(config.replace(steps=8, log_every=2, epoch=8), 0)
    step, rows, forward = loop.step, Stream.rows, loop.step.method.forward
    positions = [rows(step._streams[1], at, 1)[0] for at in range(8)]
    drawn: list[tuple[int, int]] = []

    def seen(self: Stream, first: int, count: int) -> Tensor:
        drawn.append((step.done, first))
        return rows(self, first, count)

    def checked(batch: Batch) -> Outcome:
        assert torch.equal(batch.positions, positions[step.done])
        return forward(batch)

    monkeypatch.setattr(Stream, "rows", seen)
    monkeypatch.setattr(step.method, "forward", checked)
    loop.run()
    at = [(0, 0), (2, 3), (4, 6), (8, 9)]
    assert drawn == [each for each in at for _ in ("labelled", "unlabelled")]


@pytest.mark.parametrize(("ramp", "kept"), [(True, 0.1), (False, 0.8)])
def test_the_first_step_has_full_rates_and_its_average_a_share_of_the_first_weights(
    ramp: bool, kept: float, config: Config
) -> None:
    """Of the first weights; running statistics are those of the trained model."""
    loop = stepped(config.replace(ema=0.8, ema_ramp=ramp), 0)
    average, trained = loop.step.ema.model, loop.step.method.model
    first = [p.clone() for p in average.parameters()]
    loop.step()
    optimisers = loop.step.optimisers
    assert optimisers._rates.tolist() == pytest.approx([group.lr for group in optimisers.groups], rel=1e-6)
    for mine, start, p in zip(average.parameters(), first, trained.parameters(), strict=True):
        torch.testing.assert_close(mine, kept * start + (1 - kept) * p.detach(), rtol=1e-5, atol=1e-7)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(average.buffers(), trained.buffers(), strict=True))
    assert average.get_buffer("backbone.norm.running_mean").any()


@pytest.mark.parametrize("pool", ["device", "host"])
@pytest.mark.parametrize("method", ["normatch", "supervised"])
def test_begin_epoch_is_offered_features_of_all_images_by_the_averaged_model(
    method: str, pool: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = {"labels": None, "include_labelled": False} if method == "supervised" else {}
    job = prepare(config.replace(method=method, pool=pool, steps=5, **everything))
    loop, images, epochs = Loop(job), Pool(job.corpus.train).inputs, []
    assert bool(len(job.split.unlabelled)) == (method == "normatch")

    def begin_epoch(epoch: int, embed: Callable[[], Embedding]) -> None:
        before = {name: tensor.clone() for name, tensor in job.method.state_dict().items()}
        embedding = embed()
        after = job.method.state_dict()
        assert [name for name in before if not torch.equal(before[name], after[name])] == []
        assert embedding.labels.tolist() == job.corpus.train.labels[job.split.labelled].tolist()
        for got, at in ((embedding.labelled, job.split.labelled), (embedding.unlabelled, job.split.unlabelled)):
            assert got.shape == (len(at), 128)
            assert torch.equal(got, features(loop.step.ema.model, images[at]))
        epochs.append(epoch)

    monkeypatch.setattr(job.method, "begin_epoch", begin_epoch)
    loop.run()
    assert epochs == [0, 1]


def test_what_begin_epoch_draws_is_the_seeds_and_changes_no_step(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config.replace(method="supervised", checkpoint_every=4, evaluate_every=100)
    drawn: dict[int, float] = {}
    stop_at: int | None = None

    def begin_epoch(self: Method, epoch: int, embed: Callable[[], Embedding]) -> None:
        if epoch == stop_at:
            raise KeyboardInterrupt
        drawn[epoch] = torch.rand(()).item()

    def draws(name: str, *, resume: bool = False, seed: int = 0) -> dict[int, float]:
        drawn.clear()
        torch.rand(len(name))  # another random state of the caller
        with contextlib.suppress(KeyboardInterrupt):
            train(config.replace(seed=seed), tmp_path / name, resume=resume)
        return dict(drawn)

    plain = train(config, tmp_path / "plain")
    monkeypatch.setattr(methods.get(config.method), "begin_epoch", begin_epoch)
    stop_at = 2
    begun = draws("run")
    stop_at = None
    whole = begun | draws("run", resume=True)
    assert (list(begun), list(whole)) == ([0, 1], [0, 1, 2])
    assert len({*whole.values(), *draws("other", seed=1).values()}) == 6
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "run")]
    assert weights[0] == weights[1]
    assert set(RESERVED) <= {name for line in plain.metrics() for name in line}


def test_a_resumed_run_keeps_the_network_and_threads_picked_for_it(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another kind of device, where others would be picked: the checkpoint did not fit its network."""
    auto, before = config.replace(backbone="auto"), torch.get_num_threads()
    with stopped_before(3):
        train(auto.replace(threads=2), tmp_path / "run")
    monkeypatch.setattr("normatch.training.job.suitable_backbone", lambda *_, **__: "quick-resnet")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run = train(auto, tmp_path / "run", resume=True)
    assert run.config.backbone == read_spec(run.path / "model.json").backbone == "small-wide"
    assert run.config.threads == 2
    assert "2 threads" in run.result["hardware"]
    assert torch.get_num_threads() == before
