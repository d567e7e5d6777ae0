"""Results in the places that they answer, and in no others."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from normatch.errors import UserError
from normatch.reproduce.fill import Filled, answers, value
from normatch.reproduce.paper import STUDIES, Trial
from normatch.reproduce.results import question
from tests.reproduce.conftest import ALL_TRIALS, broken, make_result, trial_of

FIXMATCH, NCUE, _, NCUE_NUM = (trial_of("table1", row) for row in range(4))

by_seed = st.dictionaries(st.integers(0, 4), st.floats(0, 1), min_size=1, max_size=4)


def test_a_result_answers_its_own_trial_alone() -> None:
    named = {(trial.recipe, trial.name): make_result(trial) for trial in ALL_TRIALS}
    for trial in ALL_TRIALS[::2]:
        (answer,) = answers(trial, list(named.values()))
        assert answer.results == (named[trial.recipe, trial.name],)


def test_a_row_that_is_trained_elsewhere_is_shown_once_it_has_results() -> None:
    figure = STUDIES["figure3"]
    assert [row.elsewhere for row in figure.rows] == [False, True]
    (elsewhere,) = (trial for trial in STUDIES["choices"].trials() if trial.name == "shared")
    assert elsewhere not in figure.trials()
    assert Filled(figure, [make_result(trial_of("figure3", 0))]).rows == [figure.rows[0]]
    filled = Filled(figure, [make_result(elsewhere)])
    assert filled.rows == list(figure.rows)
    assert [len(cell["ours"]) for cell in filled.cells()] == [0, 1]
    assert [cell["paper"] for cell in filled.cells()] == [{"accuracy": {"value": 93.71, "spread": None}}, {}]


def test_no_trial_has_no_answer() -> None:
    assert answers(None, [make_result(FIXMATCH)]) == []
    assert answers(FIXMATCH, []) == []


def test_the_longest_runs_come_first_each_with_its_seeds_in_order() -> None:
    results = [make_result(NCUE, seed, steps) for steps in (512, 307200, 4096) for seed in (2, 0, 1)]
    found = answers(NCUE, results)
    assert [answer.steps for answer in found] == [307200, 4096, 512]
    assert all([result.seed for result in answer.results] == [0, 1, 2] for answer in found)
    assert {answer.whole for answer in found} == {300 * 1024}


def test_two_results_of_one_seed_are_not_two_seeds() -> None:
    mine = make_result(NCUE, 1)
    results = [make_result(NCUE), mine, dataclasses.replace(mine, path=Path("elsewhere/of-another-machine.json"))]
    message = r"ncue-2048-seed1\.json and of-another-machine\.json are results of the same run and seed 1: move one"
    with pytest.raises(UserError, match=message):
        answers(NCUE, results)
    assert len(answers(NCUE, [*results[:2], make_result(NCUE, 1, steps=512)])) == 2


def test_a_short_run_answers_long_and_short_schedules_but_a_long_one_its_own() -> None:
    short, long = trial_of("table5", 1), trial_of("table5", 2)
    quick, middle, whole = make_result(short), make_result(short, steps=300 * 1024), make_result(long, steps=2**20)
    results = [quick, middle, whole]
    assert [answer.results for answer in answers(short, results)] == [(middle,), (quick,)]
    assert [answer.results for answer in answers(long, results)] == [(whole,), (middle,), (quick,)]
    assert {answer.whole for answer in answers(long, results)} == {2**20}


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 8},
        {"batch": 32},
        {"ema": 0.99},
        {"labels": 250},
        {"backbone": "wrn-28-8"},
        {"include_labelled": False},
        {"validation": 0.1},
        {"data": "svhn"},
    ],
)
def test_a_run_of_something_else_is_not_mixed_in(change: dict[str, Any]) -> None:
    own, other = make_result(NCUE, 0), make_result(NCUE, 1, change=change)
    (answer,) = answers(NCUE, [own, other])
    assert answer.results == (own,)


def test_a_run_of_other_settings_is_not_mixed_in() -> None:
    own = make_result(NCUE, 0)
    for f, other in (("flow_ramp", 6), ("num_weight", 1e-9), ("passes", "shared"), ("consensus", "drop")):
        changed = make_result(NCUE, 1, change={"settings": dataclasses.replace(own.config.settings, **{f: other})})
        (answer,) = answers(NCUE, [own, changed])
        assert answer.results == (own,), f


@pytest.mark.parametrize(
    "change",
    [{"device": "cuda"}, {"precision": "float32"}, {"log_every": 7}, {"evaluate_every": 9}, {"checkpoint_every": 5}],
)
def test_where_it_was_trained_and_how_often_looked_at_does_not_matter(change: dict[str, Any]) -> None:
    own, other = make_result(NCUE, 0), make_result(NCUE, 1, change=change)
    (answer,) = answers(NCUE, [other, own])
    assert answer.results == (own, other)
    assert question(own.config) == question(other.config)


def test_folds_are_seeds_of_one_question() -> None:
    trial = trial_of("table6", -1, -1)
    results = [make_result(trial, seed) for seed in (0, 4)]
    assert [result.config.fold for result in results] == [0, 4]
    assert results[0].question == results[1].question
    (answer,) = answers(trial, results)
    assert answer.results == tuple(results)


def test_a_stand_in_is_asked_for_by_name() -> None:
    here, there = make_result(NCUE, steps=60), make_result(NCUE, steps=60, stand_in="digits-40")
    (own,), (other,) = answers(NCUE, [here, there]), answers(NCUE, [here, there], "digits-40")
    assert (own.results, own.whole) == ((here,), 300 * 1024)
    assert (other.results, other.whole) == ((there,), 600)


def test_values_are_in_the_papers_units() -> None:
    result = make_result(NCUE, accuracy=0.25, confident=0.5, weights=44_544, products=40_000)
    assert value(result, "accuracy") == 25
    assert value(result, "confident") == 50
    assert value(result, "weights") == 44_544 / 10**6
    assert value(result, "products") == 40_000 / 10**6
    for measure in ("confident", "weights", "products"):
        assert value(make_result(NCUE), measure) is None


def test_what_failed_is_counted_as_failed_alone() -> None:
    (answer,) = answers(NCUE, [make_result(NCUE, 0, accuracy=0.5), broken(NCUE, 1, confident=0.9)])
    assert answer.values() == [50]
    assert answer.values("confident") == []
    assert answer.failed == 1


def accuracies(trial: Trial, reached: dict[int, float], steps: int = 2048) -> list[Any]:
    return [make_result(trial, seed, steps, share) for seed, share in reached.items()]


@settings(max_examples=25)
@given(by_seed, by_seed)
def test_gains_are_paired_by_seed(first: dict[int, float], second: dict[int, float]) -> None:
    two_rows = dataclasses.replace(STUDIES["table1"], rows=STUDIES["table1"].rows[:2])
    found = Filled(two_rows, accuracies(FIXMATCH, first) + accuracies(NCUE, second)).gains()
    common = sorted(first.keys() & second.keys())
    if not common:
        assert found == []
        return
    (gain,) = found
    each = 100 * (np.array([second[seed] for seed in common]) - [first[seed] for seed in common])
    assert (gain.row, gain.steps) == ("FixMatch + NCUE", 2048)
    assert gain.paper == pytest.approx(92.78 - 87.77)
    assert sorted(gain.each) == pytest.approx(sorted(each))
    assert gain.mean == pytest.approx(each.mean(), abs=1e-9)
    if len(common) > 1:
        assert gain.spread == pytest.approx(each.std(ddof=1), abs=1e-9)
        if each.std() > 1e-6:
            expected = scipy.stats.t.interval(0.95, len(each) - 1, each.mean(), scipy.stats.sem(each))
            assert gain.interval == pytest.approx(expected, abs=1e-6)
    else:
        assert gain.spread is None
        assert gain.interval is None


def test_runs_of_other_lengths_are_not_paired() -> None:
    base = accuracies(FIXMATCH, {0: 0.5}, 1024) + accuracies(FIXMATCH, {0: 0.6}, 2048)
    better = accuracies(NCUE, {0: 0.9}, 2048) + accuracies(NCUE, {0: 0.7}, 4096)
    found = Filled(STUDIES["table1"], base + better).gains()
    assert [gain.steps for gain in found] == [2048]
    assert found[0].each == pytest.approx((30,))


def test_what_failed_is_in_no_pair() -> None:
    base, better = accuracies(FIXMATCH, {0: 0.5, 1: 0.5}), accuracies(NCUE, {1: 0.6, 2: 0.9})
    (gain,) = Filled(STUDIES["table1"], [*base, *better, broken(NCUE, 0), broken(FIXMATCH, 2)]).gains()
    assert gain.each == pytest.approx((10,))
    assert Filled(STUDIES["table1"], [*base, broken(NCUE, 0), broken(NCUE, 1)]).gains() == []


def test_every_row_is_held_against_the_first_in_order() -> None:
    results = [make_result(trial) for trial in STUDIES["table1"].trials()]
    found = Filled(STUDIES["table1"], results).gains()
    assert [gain.row for gain in found] == [row.name for row in STUDIES["table1"].rows[1:]]
    assert [gain.paper for gain in found] == pytest.approx([92.78 - 87.77, 91.55 - 87.77, 93.41 - 87.77])


def test_a_gain_over_what_the_paper_does_not_number_has_none_of_it() -> None:
    results = [make_result(trial_of("choices", 0)), make_result(trial_of("choices", 1))]
    (gain,) = Filled(STUDIES["choices"], results).gains()
    assert (gain.row, gain.paper, gain.each) == ("means start at N(0, 1)", None, (0,))


def test_no_trial_gains_over_itself_and_no_table_of_columns_over_its_first() -> None:
    table5 = [make_result(trial_of("table5", row), steps=60, stand_in="digits-40") for row in (0, 1)]
    found = Filled(STUDIES["table5"], table5, "digits-40").gains()
    # Its schedule has no 1,024 epochs: the row of these would ask what that of 300 has asked.
    assert [gain.row for gain in found] == [STUDIES["table5"].rows[1].name]
    assert [row.name for row in Filled(STUDIES["table5"], []).rows] == [row.name for row in STUDIES["table5"].rows]
    assert Filled(STUDIES["figure3"], [make_result(trial_of("figure3", 0))]).gains() == []
    assert Filled(STUDIES["table6"], [make_result(trial) for trial in STUDIES["table6"].trials()]).gains() == []
