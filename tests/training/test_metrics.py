"""The metrics of a step, by hand and against NumPy; the moving average of the weights."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from normatch.errors import UserError
from normatch.methods import Outcome, PseudoLabels
from normatch.training.ema import EMA
from normatch.training.metrics import Meter, measure, pseudo_label_quality, step_means, total_loss
from tests.conftest import make_method


@pytest.mark.parametrize("ramp", [False, True])
def test_average(ramp: bool) -> None:
    method = make_method("supervised")
    model, average = method.model, EMA(method, 0.9, ramp)
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    for step in range(4):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
            for b in model.buffers():
                b.add_(1)
        average.update(torch.tensor(step))
        decay = min(0.9, (1 + step) / (10 + step)) if ramp else 0.9
        expected = {n: decay * expected[n] + (1 - decay) * p.detach() for n, p in model.named_parameters()}
    for name, p in average.model.named_parameters():
        torch.testing.assert_close(p, expected[name])
        assert not p.requires_grad
    for mine, theirs in zip(average.model.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert not average.model.training


def test_curves_of_figures_3_and_4() -> None:
    """Eight pseudo-labels by hand; the truth of the last three is not known: one is just not above 0.95, one is trusted
    and above it, one is neither."""
    pseudo = PseudoLabels(
        label=torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]),
        weight=torch.tensor([1.0, 1.0, 1.0, 0.5, 0.25, 0.75, 1.0, 0.5]),
        trusted=torch.tensor([True, True, True, False, False, False, True, False]),
        confidence=torch.tensor([0.99, 0.97, 0.6, 0.96, 0.5, 0.95, 0.98, 0.4]),
        auxiliary=torch.tensor([0.9, 0.8, 0.7, 0.5, 0.25, 0.75, 0.6, 0.3]),
    )
    curves = pseudo_label_quality(pseudo, torch.tensor([0, 1, 0, 0, 2, -1, -1, -1]), classes=4)
    total, count = curves.pop("pseudo/classes")
    assert (total / count).tolist() == pytest.approx([3 / 8, 3 / 8, 2 / 8, 0])
    got = {name: (total / count).item() for name, (total, count) in curves.items()}
    expected = {
        "pseudo/trusted": 4 / 8,
        "pseudo/confident": 4 / 8,
        "pseudo/correct": 3 / 5,
        "pseudo/accuracy_trusted": 2 / 3,
        "pseudo/accuracy_distrusted": 1 / 2,
        "pseudo/accuracy_confident": 3 / 3,
        "pseudo/weight": 6 / 8,
        "pseudo/weight_distrusted": 2 / 4,
        "pseudo/uncertainty": 1 - 6.35 / 8,
        "pseudo/uncertainty_auxiliary": 1 - 4.8 / 8,
    }
    assert got == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64])
def test_curves_are_exact_whatever_the_type_of_the_weights(dtype: torch.dtype) -> None:
    """A mask as weights, or probabilities of a network in bfloat16, in which 447 of 448 would be 448."""
    trusted = torch.arange(448) > 0
    pseudo = PseudoLabels(torch.zeros(448, dtype=torch.int64), trusted.to(dtype), trusted, trusted.float(), None)
    curves = pseudo_label_quality(pseudo, torch.zeros(448, dtype=torch.int64), classes=2)
    for name in ("trusted", "weight"):
        total, count = curves[f"pseudo/{name}"]
        assert (total.item(), count.item()) == (447, 448)
    assert curves["pseudo/weight_distrusted"][1].item() == 1


def outcome(**changes: Any) -> Outcome:
    """What a method may return for four unlabelled images."""
    one = torch.ones(4)
    pseudo = PseudoLabels(torch.zeros(4, dtype=torch.int64), one, one > 0, one, one)
    return Outcome({"mine": torch.ones((), requires_grad=True)}, {"other": torch.ones(())}, pseudo)._replace(**changes)


def pseudo(**changes: Any) -> Outcome:
    whole = outcome()
    assert whole.pseudo is not None
    return whole._replace(pseudo=whole.pseudo._replace(**changes))


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (outcome().losses, "the method returns dict: return an Outcome with at least one loss by name"),
        (outcome(losses={}), "the method returns no losses: return an Outcome"),
        (
            outcome(losses={"mine": torch.ones(1)}),
            r"loss 'mine' is a torch.float32 tensor of shape \(1,\): return a tensor",
        ),
        (outcome(losses={"mine": 0.5}), r"loss 'mine' is 0.5: return a tensor of shape \(\)"),
        (outcome(metrics={"loss": torch.ones(())}), "a metric 'loss', a name that each run's record has already"),
        (outcome(metrics={"pseudo/correct": torch.ones(())}), "a metric 'pseudo/correct', a name"),
        (outcome(metrics={"mine": torch.ones(3)}), r"metric 'mine' is a torch.float32 tensor of shape \(3,\)"),
        *(
            (pseudo(**{name: torch.ones(4, 1)}), rf"{name} of the pseudo-labels is .* \(4, 1\): return .* \(4,\)")
            for name in PseudoLabels._fields
        ),
        (pseudo(label=torch.ones(4)), r"label .* is a torch.float32 tensor .*: return a torch.int64 tensor"),
        (pseudo(trusted=torch.ones(4)), r"trusted .* is a torch.float32 tensor .*: return a torch.bool tensor"),
    ],
)
def test_what_a_method_returns_is_checked(returned: Outcome, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        step_means(returned, total_loss(returned), torch.zeros(4, dtype=torch.int64), classes=2)


def test_the_loss_is_the_sum_of_losses_and_all_is_measured() -> None:
    losses = {"mine": torch.ones((), requires_grad=True), "yours": torch.full((), 2.5)}
    loss = total_loss(outcome(losses=losses, pseudo=pseudo(auxiliary=None).pseudo))
    assert loss.item() == 3.5
    means = step_means(outcome(), loss, torch.zeros(4, dtype=torch.int64), classes=2)
    assert {"loss", "loss/mine", "other", "pseudo/trusted"} <= means.keys()


def test_meter_weighs_batches_by_their_counts_and_starts_anew() -> None:
    meter = Meter(torch.device("cpu"))
    rng = np.random.default_rng(0)
    values, counts = rng.normal(size=5), rng.integers(1, 9, size=5)
    for value, count in zip(values, counts, strict=True):
        nothing, n = torch.tensor(0.0), torch.tensor(float(count))
        shares = torch.tensor([1.0, 0.0, value]) * n
        means = {"a": (torch.tensor(value * count), n), "b": (nothing, nothing), "c": (shares, n.expand(3))}
        meter.add(measure(means))
    restored = Meter(torch.device("cpu"))
    restored.load(dict(sorted(meter.state().items(), reverse=True)))
    for m in (meter, restored):
        read = m.read()
        assert read["a"] == pytest.approx(np.average(values, weights=counts))
        assert read["b"] is None
        assert read["c"] == pytest.approx([1, 0, np.average(values, weights=counts)], abs=1e-6)
        assert m.read() == {"a": None, "b": None, "c": None}


def test_other_measurements_than_at_the_steps_before_are_named() -> None:
    one = (torch.ones(()), torch.ones(()))
    meter, resumed = Meter(torch.device("cpu")), Meter(torch.device("cpu"))
    meter.add(measure({"a": one, "b": one}))
    resumed.load(meter.state())
    for m in (meter, resumed):
        with pytest.raises(UserError, match=r"are a, c, at the steps before they were a, b: return the same") as error:
            m.add(measure({"a": one, "c": one}))
        assert "\n" not in str(error.value)
        with pytest.raises(UserError, match=r"are a, b, c, at the steps before they were a, b: return"):
            m.add(measure({"a": one, "b": one, "c": one}))


def test_what_is_not_finite_is_read_as_none() -> None:
    meter, one = Meter(torch.device("cpu")), torch.ones(())
    for value in (1.0, math.inf, 2.0):
        shares = (torch.tensor([0.5, math.nan]), one.expand(2))
        meter.add(measure({"loss": (torch.tensor(value), one), "shares": shares}))
    assert meter.read() == {"loss": None, "shares": None}
