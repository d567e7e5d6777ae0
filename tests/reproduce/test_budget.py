"""Budgets: what may be said, and the schedule that comes of it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normatch.config import Config
from normatch.errors import UserError
from normatch.reproduce.budget import Budget, scaled
from tests.reproduce.conftest import trial_of

EPOCH = 1024
ANALYSIS = trial_of("table1", 0)
"""300 epochs."""
COMPARISON = trial_of("table6", -1)
"""1024 epochs."""


@pytest.mark.parametrize("text", ["full", "300", "quick"])
def test_named_budgets_have_no_number(text: str) -> None:
    assert Budget.parse(text) == Budget(text)


@pytest.mark.parametrize(
    ("text", "minutes", "steps"),
    [("7.5", 7.5, None), ("301", 301.0, None), ("1e-2", 0.01, None), ("1steps", None, 1), ("20480steps", None, 20480)],
)
def test_other_budgets_are_minutes_or_steps(text: str, minutes: float | None, steps: int | None) -> None:
    assert Budget.parse(text) == Budget(text, minutes, steps)


@pytest.mark.parametrize(
    "text",
    ["", "much", "0", "-3", "nan", "inf", "-inf", "steps", "0steps", "-5steps", "1.5steps", "20480 step", "FULL", "5m"],
)
def test_what_is_no_budget_is_named_with_what_is(text: str) -> None:
    with pytest.raises(UserError) as error:
        Budget.parse(text)
    assert repr(text) in str(error.value)
    assert all(word in str(error.value) for word in ("full", "300", "quick", "minutes", "steps"))


def test_a_budget_says_its_number() -> None:
    said = {text: Budget.parse(text).describe() for text in ("full", "300", "quick", "7.5", "20480steps")}
    assert len(set(said.values())) == len(said)
    assert "300 epochs" in said["300"]
    assert said["7.5"] == "at most 7.5 minutes a run"
    assert said["20480steps"] == "at most 20,480 steps a run"
    assert [Budget.parse(one).describe() for one in ("1", "1steps")] == [
        "at most 1 minute a run",
        "at most 1 step a run",
    ]


def test_the_full_budget_is_the_papers_schedule() -> None:
    for trial, epochs in ((ANALYSIS, 300), (COMPARISON, 1024)):
        config = Budget.parse("full").apply(trial, 5)
        assert config == trial.config(5)
        assert (config.steps, config.epoch, config.seed) == (epochs * EPOCH, EPOCH, 5)


def test_300_cuts_what_is_longer() -> None:
    assert Budget.parse("300").apply(ANALYSIS, 0) == ANALYSIS.config(0)
    cut = Budget.parse("300").apply(COMPARISON, 0)
    assert cut == COMPARISON.config(0).replace(steps=300 * EPOCH)


def test_quick_is_quick_on_every_data_set() -> None:
    for trial in (ANALYSIS, COMPARISON):
        config = Budget.parse("quick").apply(trial, 0)
        assert (config.steps, config.epoch) == (1024, 3)
        assert config.steps / config.epoch == pytest.approx(300, rel=0.15)
        small = Budget.parse("quick").apply(trial, 0, "digits-40")
        assert (small.data, small.steps, small.epoch) == ("digits", 60, 6)


@pytest.mark.parametrize("steps", [1, 999, 20480, 300 * EPOCH])
def test_up_to_300_epochs_every_schedule_is_the_same(steps: int) -> None:
    short, long = (Budget("", steps=steps).apply(trial, 0) for trial in (ANALYSIS, COMPARISON))
    assert (short.steps, short.epoch) == (long.steps, long.epoch)
    assert short.steps == steps


def test_above_300_epochs_the_whole_is_made_shorter_and_never_longer() -> None:
    budget = Budget.parse("524288steps")
    half = budget.apply(COMPARISON, 0)
    assert (half.steps, half.epoch) == (2**19, 512)
    assert budget.apply(ANALYSIS, 0) == ANALYSIS.config(0)
    assert Budget.parse("2000000steps").apply(COMPARISON, 0) == COMPARISON.config(0)
    assert Budget.parse("2000000steps").apply(COMPARISON, 0, "digits-40") == COMPARISON.config(0, "digits-40")


def test_minutes_are_the_steps_that_fit() -> None:
    minutes = Budget.parse("7.5")
    assert minutes.apply(ANALYSIS, 2, in_time=4096) == Budget.parse("4096steps").apply(ANALYSIS, 2)
    with pytest.raises(ValueError, match="needs the speed"):
        minutes.apply(ANALYSIS, 2)


@given(st.integers(1, 2000), st.integers(1, 2048), st.integers(1, 2**21))
def test_a_scaled_schedule_has_these_steps_and_as_many_epochs(epochs: int, epoch: int, steps: int) -> None:
    whole = Config(steps=epochs * epoch, epoch=epoch)
    short = scaled(whole, steps)
    assert short.steps == steps
    assert isinstance(short.epoch, int)
    assert short.epoch == 1 or abs(short.epoch - steps / epochs) <= 0.5
    assert 1 <= short.epoch <= steps
    unchanged = ("steps", "epoch", "log_every", "evaluate_every", "checkpoint_every")
    assert short.replace(**{name: getattr(whole, name) for name in unchanged}) == whole


@given(st.integers(1, 2000), st.integers(1, 2048), st.integers(1, 2**21))
def test_a_scaled_run_is_looked_at_often_enough_and_not_too_often(epochs: int, epoch: int, steps: int) -> None:
    whole = Config(steps=epochs * epoch, epoch=epoch)
    short = scaled(whole, steps)
    assert 1 <= short.log_every <= whole.log_every
    if steps == whole.steps:
        return
    assert short.evaluate_every is not None
    assert short.checkpoint_every is not None
    assert short.evaluate_every >= short.epoch
    assert short.checkpoint_every >= short.evaluate_every
    assert steps / short.evaluate_every <= max(20, steps / 512)
    assert steps // short.log_every >= min(steps, 40)


@given(st.integers(1, 2000), st.integers(1, 2048))
def test_scaling_to_the_whole_changes_nothing(epochs: int, epoch: int) -> None:
    whole = Config(steps=epochs * epoch, epoch=epoch, evaluate_every=math.ceil(epoch / 3))
    assert scaled(whole, whole.steps) == whole


@pytest.mark.parametrize(
    ("steps", "epoch", "every"),
    [
        pytest.param(300, 1, 15, id="a short run"),
        pytest.param(2**14, 64, 820, id="20 in a run"),
        pytest.param(2**16, 64, 1024, id="more in a longer one"),
        pytest.param(2**16, 2048, 2048, id="at most one an epoch"),
    ],
)
def test_a_checkpoint_comes_with_every_evaluation(steps: int, epoch: int, every: int) -> None:
    short = scaled(Config(steps=2 * steps, epoch=2 * epoch), steps)
    assert (short.epoch, short.evaluate_every, short.checkpoint_every) == (epoch, every, every)
