"""What the engine hands to whom, and when: the right items, weights, seeds and rates, at the right steps."""

import contextlib
import math
import sys
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
from normatch.cli import main
from normatch.config import Config
from normatch.data import Corpus, Dataset, Pool, Stream
from normatch.errors import UserError
from normatch.methods import Batch, Embedding, Method, Outcome, ViewsWanted, methods
from normatch.methods.parts.groups import Group
from normatch.nets.model import features, read_spec
from normatch.training import Loop, Run, bench, checkpoint, prepare, train
from normatch.training.metrics import RESERVED, RESERVED_PREFIXES, Record
from normatch.training.run import Recorder
from normatch.training.step import Step
from normatch.training.train import MAY_DIFFER


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return tiny_config.replace(device="cpu")


class Clock:
    """Stands still but for a second a step."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock, step = Clock(), Step.__call__

    def timed(self: Step) -> None:
        step(self)
        clock.now += 1

    monkeypatch.setattr(Step, "__call__", timed)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock


class Lines(Recorder):
    """Keeps records by their steps."""

    def __init__(self) -> None:
        self.kept: dict[int, Record] = {}

    def write(self, step: int, record: Record) -> None:
        self.kept[step] = record


def stepped(config: Config, steps: int = 1) -> Loop:
    """A loop whose first steps are done."""
    loop = Loop(prepare(config))
    loop.step.method.train()
    for _ in range(steps):
        loop.step()
    return loop


def test_positions_count_unlabelled_items_and_the_truth_is_theirs(config: Config) -> None:
    loop = stepped(config.replace(validation=0.1, include_labelled=False, seed=3))
    job = loop.job
    batch, truth = loop.step.sample()
    unlabelled = Stream(job.method.task.unlabelled, config.batch * config.ratio, 3, "unlabelled")
    assert torch.equal(batch.positions, unlabelled.rows(1, 1)[0])
    expected = job.corpus.train.labels[job.split.unlabelled[batch.positions.numpy()]]
    assert truth.tolist() == expected.tolist()
    labelled = Stream(job.method.task.labelled, config.batch, 3, "labelled").rows(1, 1)[0].numpy()
    assert batch.labels.tolist() == job.corpus.train.labels[job.split.labelled[labelled]].tolist()


@pytest.mark.parametrize("every", [1, 2, 5])
def test_every_step_draws_its_own_items_however_many_are_planned_at_once(
    config: Config, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(normatch.training.step, "PLAN", 3)
    loop = stepped(config, 0)
    unlabelled = Stream(loop.job.method.task.unlabelled, config.batch * config.ratio, config.seed, "unlabelled")
    for step in range(8):
        loop.step._prepare()
        assert torch.equal(loop.step.sample()[0].positions, unlabelled.rows(step, 1)[0])
        loop.step()
        if loop.step.done % every == 0:
            loop.step.draw_ahead()


def test_the_next_indices_are_drawn_once_and_before_they_are_needed(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normatch.training.step, "PLAN", 3)
    loop = stepped(config.replace(steps=8, log_every=2, epoch=8), 0)
    step = loop.step
    drawn: list[tuple[int, int]] = []
    rows = Stream.rows

    def seen(self: Stream, first: int, count: int) -> Tensor:
        drawn.append((step.done, first))
        return rows(self, first, count)

    monkeypatch.setattr(Stream, "rows", seen)
    loop.run()
    at = [(0, 0), (2, 3), (4, 6), (8, 9)]
    assert drawn == [each for each in at for _ in ("labelled", "unlabelled")]


def test_labelled_and_unlabelled_items_are_drawn_in_orders_of_their_own(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = stepped(config.replace(labels=None, ratio=1))
    labelled, unlabelled = loop.job.split.labelled, loop.job.split.unlabelled
    assert labelled.tolist() == unlabelled.tolist()
    drawn: list[list[int]] = []
    images = loop.step.feed.images

    def seen(*positions: Tensor) -> tuple[Tensor, ...]:
        drawn.extend(at.tolist() for at in positions)
        return images(*positions)

    monkeypatch.setattr(loop.step.feed, "images", seen)
    loop.step.sample()
    assert len(drawn) == 2
    assert drawn[0] != drawn[1]


def test_what_is_minimised_is_the_sum_of_the_methods_losses(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = stepped(config, config.epoch + 1)
    outcomes: list[Outcome] = []
    forward = loop.step.method.forward

    def kept(batch: Batch) -> Outcome:
        outcomes.append(forward(batch))
        return outcomes[-1]

    monkeypatch.setattr(loop.step.method, "forward", kept)
    loss, _ = loop.step.learn(*loop.step.sample())
    losses = [value.item() for value in outcomes[0].losses.values()]
    assert len(losses) == 4
    assert all(losses), "the ramp has begun"
    assert loss.item() == pytest.approx(sum(losses), rel=1e-6)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda groups: groups[1:],
            r"'fixmatch' gives parameter 'model.backbone.stem.weight' to no optimiser: put it into one group",
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


def test_a_batch_that_is_too_small_for_batch_norm_is_named(config: Config, tmp_path: Path) -> None:
    tiny = config.replace(method="supervised", backbone="quick-resnet", batch=1, ratio=1, steps=1)
    with pytest.raises(UserError, match=r"batch is 1 and ratio 1, too few for batch norm \(.*\): give more"):
        train(tiny, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_view_that_does_not_exist_is_refused_before_training(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods.get("supervised"), "views", ViewsWanted(labelled=("medium",)))
    with pytest.raises(UserError, match="unknown view 'medium': choose from none, weak, strong"):
        prepare(config.replace(method="supervised"))


def test_every_name_of_a_record_is_known_to_be_the_engines(config: Config, tmp_path: Path) -> None:
    names = {name for line in train(config.replace(validation=0.1), tmp_path / "run").metrics() for name in line}
    assert [name for name in names if name not in RESERVED and not name.startswith(RESERVED_PREFIXES)] == []
    assert set(RESERVED) <= names


def test_the_teacher_is_the_averaged_model(config: Config) -> None:
    loop = stepped(config)
    teacher = loop.step.sample()[0].teacher
    assert teacher is loop.step.ema.model
    assert not teacher.training


def test_every_step_has_a_seed_of_its_own(config: Config) -> None:
    seeds = set()
    for seed in (0, 1):
        loop = stepped(config.replace(seed=seed), 0)
        for _ in range(4):
            loop.step()
            seeds.add(loop.job.runtime.generator.initial_seed())
    assert len(seeds) == 8, "also of every run"


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_a_method_computes_in_the_precision_of_its_run(
    config: Config, precision: Literal["auto", "float32", "bfloat16"], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = stepped(config.replace(precision=precision), 0)
    forward, found = loop.step.method.forward, []

    def seen(batch: Batch) -> Outcome:
        found.append(torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16)
        return forward(batch)

    monkeypatch.setattr(loop.step.method, "forward", seen)
    loop.step()
    assert found == [precision == "bfloat16"]


def test_rates_start_at_their_full_value(config: Config) -> None:
    loop = stepped(config, 0)
    optimisers = loop.step.optimisers
    for done in range(3):
        loop.step()
        factor = math.cos(config.optim.cosine * math.pi * done / config.steps)
        assert optimisers._rates.tolist() == pytest.approx([group.lr * factor for group in optimisers.groups], rel=1e-6)


def test_a_ramped_average_keeps_a_tenth_of_the_first_weights(config: Config) -> None:
    assert config.ema_ramp
    loop = stepped(config, 0)
    first = [p.clone() for p in loop.step.ema.model.parameters()]
    loop.step()
    trained = loop.step.method.model.parameters()
    for mine, start, p in zip(loop.step.ema.model.parameters(), first, trained, strict=True):
        torch.testing.assert_close(mine, 0.1 * start + 0.9 * p.detach(), rtol=1e-5, atol=1e-7)


def test_inputs_are_normalised_by_training_items_alone(config: Config) -> None:
    job = prepare(config)
    train, test, spec = np.asarray(job.corpus.train.inputs), job.corpus.test, job.method.model.spec
    assert (*spec.mean, *spec.std) == pytest.approx((train.mean(), train.std()), rel=1e-9)
    assert test is not None
    assert np.asarray(test.inputs).mean() != pytest.approx(train.mean(), rel=1e-4)


def test_the_first_weights_are_the_seeds(config: Config) -> None:
    zero, again, one = (
        torch.cat([p.detach().flatten() for p in prepare(config.replace(seed=seed)).method.model.backbone.parameters()])
        for seed in (0, 0, 1)
    )
    assert torch.equal(zero, again)
    assert not torch.equal(zero, one)


def test_embedding_asks_the_averaged_model_and_changes_nothing(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    job = prepare(config.replace(steps=5))
    loop = Loop(job)
    images = Pool(job.corpus.train).inputs
    epochs = []

    def begin_epoch(epoch: int, embed: Callable[[], Embedding]) -> None:
        before = {name: tensor.clone() for name, tensor in job.method.state_dict().items()}
        embedding = embed()
        after = job.method.state_dict()
        assert [name for name in before if not torch.equal(before[name], after[name])] == []
        for got, at in ((embedding.labelled, job.split.labelled), (embedding.unlabelled, job.split.unlabelled)):
            assert torch.equal(got, features(loop.step.ema.model, images[at]))
        epochs.append(epoch)

    monkeypatch.setattr(job.method, "begin_epoch", begin_epoch)
    loop.run()
    assert epochs == [0, 1]


def test_what_begin_epoch_draws_is_the_seeds_and_changes_no_step(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config.replace(checkpoint_every=4)
    plain = train(config, tmp_path / "plain")
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

    monkeypatch.setattr(methods.get(config.method), "begin_epoch", begin_epoch)
    whole = draws("whole")
    assert list(whole) == [0, 1, 2]
    assert len(set(whole.values())) == 3
    assert not set(whole.values()) & set(draws("other", seed=1).values())
    stop_at = 2
    assert draws("stopped") == {epoch: whole[epoch] for epoch in (0, 1)}
    stop_at = None
    assert draws("stopped", resume=True) == {2: whole[2]}
    for name in ("whole", "stopped"):
        assert (tmp_path / name / "model.safetensors").read_bytes() == (plain.path / "model.safetensors").read_bytes()


def test_a_resumed_run_goes_on_counting_its_time(
    config: Config, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoint.save

    def save_and_stop(folder: Path, step: int, tensors: dict[str, Tensor]) -> None:
        save(folder, step, tensors)
        if step == 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "run")
    clock.now = 1000.0  # another process, another clock
    run = train(config, tmp_path / "run", resume=True)
    lines = list(run.metrics())
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10, 12]
    assert [line["seconds"] for line in lines] == [2, 4, 6, 8, 10, 12]
    assert run.result["seconds"] == 12
    assert [line["steps_per_second"] for line in lines] == [1] * 6


@pytest.mark.usefixtures("clock")
def test_the_last_line_is_whole_whenever_it_comes(config: Config) -> None:
    lines = Lines()
    Loop(prepare(config.replace(steps=5))).run(lines)
    assert list(lines.kept) == [2, 4, 5]
    assert all(isinstance(line["loss"], float) for line in lines.kept.values())
    assert [line["steps_per_second"] for line in lines.kept.values()] == [1, 1, 1]


def test_by_default_an_epoch_ends_with_an_evaluation_and_a_checkpoint(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (config.steps, config.epoch, config.log_every) == (12, 4, 2)
    saved: list[int] = []
    monkeypatch.setattr(checkpoint, "save", lambda folder, step, tensors: saved.append(step))
    lines = Lines()
    Loop(prepare(config.replace(evaluate_every=None, checkpoint_every=None))).run(lines, checkpoints=tmp_path)
    assert [step for step, line in lines.kept.items() if "test/accuracy" in line] == [4, 8, 12]
    assert [step for step, line in lines.kept.items() if "labelled/accuracy" in line] == [4, 8, 12]
    assert saved == [4, 8, 12]


@pytest.mark.parametrize("most", [100, 300])
def test_labelled_items_looked_at_are_of_all_classes_in_whatever_order_they_come(
    most: int, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two classes in turn, every second item would be one of them alone."""
    monkeypatch.setattr("normatch.training.loop.LABELLED_SAMPLE", most)
    images = np.arange(200 * 64, dtype=np.uint8).reshape(200, 8, 8, 1)
    corpus = Corpus("in turn", Dataset(images, np.arange(200) % 2, ("a", "b")))
    job = prepare(config.replace(data="in turn", labels=None, test_share=0.0), corpus)
    first, again = (Loop(job)._fitted.labels.tolist() for _ in range(2))
    assert first == again
    assert len(first) == min(most, 200)
    assert 0.3 < np.mean(first) < 0.7


def test_the_labelled_accuracy_is_of_labelled_samples_alone(config: Config) -> None:
    loop = Loop(prepare(config.replace(include_labelled=False, validation=0.1, seed=3)))
    labelled = loop.pool.subset(loop.job.split.labelled)
    assert isinstance(loop._fitted, Pool)
    assert isinstance(labelled, Pool)
    assert len(loop._fitted) == len(labelled) == 40
    places = [int((labelled.inputs == one).flatten(1).all(1).nonzero()[0]) for one in loop._fitted.inputs]
    assert sorted(places) == list(range(40))
    assert torch.equal(loop._fitted.labels, labelled.labels[places])


def test_a_resume_may_change_where_a_run_is_trained_and_nothing_else(config: Config, tmp_path: Path) -> None:
    assert {"device", "precision", "compile", "threads", "deterministic", "pool", "data_root", "name"} == MAY_DIFFER
    job = prepare(config)
    run = Run.create(tmp_path / "run", config, job.split, job.corpus)
    with pytest.raises(UserError, match="was started with seed 0, not 1"):
        train(config.replace(seed=1), run.path, resume=True)


def test_a_run_keeps_the_network_picked_for_it_where_another_would_be_picked(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another kind of device, where a run may be resumed: the checkpoint did not fit its network."""
    auto, save = config.replace(backbone="auto"), checkpoint.save

    def save_and_stop(folder: Path, step: int, tensors: dict[str, Tensor]) -> None:
        save(folder, step, tensors)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            train(auto, tmp_path / "run")
    monkeypatch.setattr("normatch.training.job.suitable_backbone", lambda *_, **__: "quick-resnet")
    run = train(auto, tmp_path / "run", resume=True)
    assert run.finished
    assert run.config.backbone == read_spec(run.path / "model.json").backbone == "small-wide"


def test_the_backward_pass_is_timed_without_the_forward_pass(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = iter([0.001, 0.002, 0.007, 0.004, 0.005])
    monkeypatch.setattr(bench, "_time_part", lambda part, runtime: (next(alone), False))
    milliseconds, _ = bench._parts(Loop(prepare(config)).step)
    expected = {"augmentation": 1, "forward": 2, "backward": 5, "optimisers": 4, "average of weights": 5}
    assert milliseconds == pytest.approx(expected)


def test_the_bench_says_how_many_times_longer_the_slower_method_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = {"normatch": 10.0, "supervised": 20.0}
    module = sys.modules["normatch.training.bench"]  # the package has the function by that name
    monkeypatch.setattr(module, "bench", lambda config, **_: {"steps_per_second": rates[config.method]})
    monkeypatch.setattr(module, "describe", lambda report: "")
    assert main(["bench", "digits-40", "--device", "cpu", "--compare", "supervised"]) == 0
    assert "a step of normatch takes 2.00 times the time of supervised" in capsys.readouterr().out


@pytest.mark.parametrize("method", methods.names())
def test_all_that_is_compiled_of_a_step_is_one_graph(config: Config, method: str) -> None:
    """Losses and what is measured beside them: a break in the graph would cost a captured step its speed."""
    loop = stepped(config.replace(method=method))
    loop.step._prepare()
    batch, truth = loop.step.sample()
    compiled = torch.compile(loop.step._forward, fullgraph=True, dynamic=False, backend="eager")
    loss, measured = compiled(batch, truth)
    assert loss.isfinite()
    assert {"loss", "loss/labelled"} <= measured.shapes.keys()
