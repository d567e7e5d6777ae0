"""Pseudo-Label, UDA and SimPLE against NumPy."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from normatch.errors import UserError
from normatch.methods.pseudo_label import PseudoLabelSettings
from normatch.methods.simple import pair_loss
from normatch.methods.uda import UDA
from tests.conftest import logits_of, make_batch, make_method

Floats = NDArray[np.float64]


def sharpened(p: Floats, temperature: float) -> Floats:
    q: Floats = p ** (1 / temperature)
    q /= q.sum(1, keepdims=True)
    return q


@pytest.mark.parametrize(("step", "weight"), [(0, 0.0), (10, 0.0), (35, 1.5), (60, 3.0), (99, 3.0)])
def test_pseudo_labels_teach_their_own_view_by_a_weight_that_grows(step: int, weight: float) -> None:
    torch.manual_seed(0)
    method = make_method("pseudo-label").eval()
    assert method.last_start == 10
    batch = make_batch(method, step)
    log_p = log_softmax(logits_of(method.model, batch.unlabelled[0]), 1)
    loss = method(batch).losses["unlabelled"].item()
    assert loss == pytest.approx(-weight * log_p.max(1).mean(), rel=1e-4)


def test_a_ramp_cannot_end_before_it_begins() -> None:
    with pytest.raises(UserError, match=r"settings\.begin is 0\.7, after settings\.end 0\.6"):
        PseudoLabelSettings(begin=0.7).check()


SCHEDULES: dict[str, Callable[[float], float]] = {
    "log": lambda t: 1 - np.exp(-5 * t),
    "linear": lambda t: t,
    "exp": lambda t: np.exp(5 * (t - 1)),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_annealing_leaves_out_labelled_images_that_are_predicted_too_well(schedule: str) -> None:
    torch.manual_seed(0)
    method = make_method("uda", annealing=schedule).eval()
    assert isinstance(method, UDA)
    for step in (0, 30, 100):
        ceiling = SCHEDULES[schedule](step / 100) * (1 - 1 / 3) + 1 / 3
        assert method.ceiling(torch.tensor(step)).item() == pytest.approx(ceiling, rel=1e-5)
    batch = make_batch(method)
    log_p = log_softmax(logits_of(method.model, batch.labelled[0]), 1)[np.arange(6), batch.labels]
    between = float(np.exp(np.sort(log_p)[2:4]).mean())  # three count, three do not
    method.ceiling = lambda step: torch.tensor(between)  # type: ignore[method-assign]
    assert method(batch).losses["labelled"].item() == pytest.approx(-np.sort(log_p)[:3].mean(), rel=1e-4)
    method.ceiling = lambda step: torch.tensor(0.0)  # type: ignore[method-assign]
    assert method(batch).losses["labelled"] == 0


def test_uda_sharpens_its_confident_predictions() -> None:
    torch.manual_seed(0)
    method = make_method("uda").eval()
    batch = make_batch(method)
    weak, strong = (logits_of(method.model, images) for images in batch.unlabelled)
    p = softmax(weak, 1)
    threshold = float(np.median(p.max(1)))
    method.settings = dataclasses.replace(method.settings, threshold=threshold)
    counts = p.max(1) >= threshold
    expected = -(counts * (sharpened(p, 0.4) * log_softmax(strong, 1)).sum(1)).mean()
    assert method(batch).losses["unlabelled"].item() == pytest.approx(expected, rel=1e-4)


def numpy_pair_loss(logits: Floats, target: Floats, weight: Floats, threshold: float) -> float:
    p, n, total = softmax(logits, 1), len(logits), 0.0
    for i in range(n):
        for j in range(n):
            similar = np.sqrt(target[i] * target[j]).sum()
            if i != j and similar > threshold:
                total += weight[i] * similar * (1 - np.sqrt(target[i] * p[j]).sum())
    return total / (n * (n - 1) / 2)


def test_pair_loss_equals_a_loop_over_pairs() -> None:
    rng = np.random.default_rng(0)
    logits, target, weight = rng.normal(size=(9, 3)), rng.dirichlet(np.ones(3), size=9), rng.integers(0, 2, 9)
    args = torch.from_numpy(logits), torch.from_numpy(target).float(), torch.from_numpy(weight)
    for threshold in (0.0, 0.9, 0.95):
        expected = numpy_pair_loss(logits, target, weight.astype(float), threshold)
        assert pair_loss(*args, threshold).item() == pytest.approx(expected, rel=1e-5)
    certain = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    pair_loss(certain, torch.eye(2), torch.ones(2), 0.0).backward()
    assert certain.grad is not None
    assert certain.grad.isfinite().all(), "the root of a probability of 0"


@pytest.mark.parametrize("consensus", ["none", "nfc"])
def test_simple_guesses_by_the_averaged_model(consensus: str) -> None:
    torch.manual_seed(0)
    method = make_method("simple", consensus=consensus, weight=20.0, pair_weight=10.0, ramp=1.0).eval()
    batch = make_batch(method)
    for parameter in batch.teacher.parameters():
        parameter.mul_(1.2)
    first, second, strong = batch.unlabelled
    guess = sharpened(np.mean([softmax(logits_of(batch.teacher, weak), 1) for weak in (first, second)], axis=0), 0.5)
    threshold = float(np.median(guess.max(1)))
    method.settings = dataclasses.replace(method.settings, threshold=threshold)
    outcome = method(batch)
    assert outcome.pseudo.label.tolist() == guess.argmax(1).tolist()
    weight = outcome.pseudo.weight.double().numpy()
    assert (weight > 0).tolist() == (guess.max(1) >= threshold).tolist()
    logits = logits_of(method.model, strong)
    error = ((softmax(logits, 1) - guess) ** 2).mean(1)  # at step 50 of 100 both weights are half
    assert outcome.losses["unlabelled"].item() == pytest.approx(10 * (weight * error).mean(), rel=1e-4)
    expected = 5 * numpy_pair_loss(logits, guess, weight, 0.9)
    assert outcome.losses["pair"].item() == pytest.approx(expected, rel=1e-4)
