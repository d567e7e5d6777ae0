"""Mixup, MixMatch, ReMixMatch and PLCB against NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.special import log_softmax, softmax

from normatch.errors import UserError
from normatch.methods import Batch
from normatch.methods.parts.mixing import Beta, Mixing, MixSettings, mixup
from normatch.methods.parts.pseudo_labels import Alignment
from normatch.methods.parts.weak_to_strong import Pass
from normatch.methods.plcb import PLCB
from tests.conftest import logits_of, make_batch, make_method, same_with_gradients

Floats = NDArray[np.float64]
PRIOR = (0.3, 0.5, 0.2)


@pytest.mark.parametrize("alpha", [0.5, 0.75, 4.0])
def test_shares_follow_the_beta_distribution(alpha: float) -> None:
    torch.manual_seed(0)
    shares = Beta(alpha)(10_000).numpy()
    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).pvalue > 0.05
    assert ((shares >= 0) & (shares <= 1)).all()


@pytest.mark.parametrize("shape", [(1, 2, 2), (3,)])
def test_mixup_mixes_samples_and_targets_alike(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (5, *shape), dtype=np.uint8), rng.dirichlet(np.ones(3), 5)
    share, partner = rng.uniform(size=5), rng.permutation(5)
    shares = torch.from_numpy(share).float()
    got = mixup(torch.from_numpy(x), torch.from_numpy(y).float(), shares, torch.from_numpy(partner))
    for mixed, value in zip(got, (x.astype(float), y), strict=True):
        expected = [share[i] * value[i] + (1 - share[i]) * value[partner[i]] for i in range(5)]
        np.testing.assert_allclose(mixed.numpy(), expected, rtol=1e-5)


def test_each_sample_has_the_larger_share_and_unlabelled_ones_are_not_mixed_in() -> None:
    method, batch, now, x, y = mixed_by("mixmatch")
    assert now.target.sum(1).allclose(torch.ones(14))
    target = now.target.clone()
    target[::2] = 0
    torch.manual_seed(3)
    x, y = method.mix(now._replace(target=target), batch.unlabelled)
    torch.manual_seed(3)
    partner = torch.rand(34).argsort()
    share = method.beta(34)
    share = torch.maximum(share, 1 - share)
    plain = torch.cat([batch.labelled[0], *batch.unlabelled])
    labels = torch.cat([torch.eye(3)[batch.labels], target, target])
    share[labels[partner].sum(1) == 0] = 1
    for found, expected in zip((x, y), mixup(plain, labels, share, partner), strict=True):
        torch.testing.assert_close(found, expected)
    assert 0 < (x == plain).flatten(1).all(1).sum() < 34


def mixed_by(name: str, known: int = 30, **choices: object) -> tuple[Any, Batch, Pass, torch.Tensor, torch.Tensor]:
    """A method in evaluation mode, its batch, and what it has mixed in a forward pass; PLCB has so many
    pseudo-labels."""
    torch.manual_seed(0)
    method = make_method(name, **choices).eval()
    assert isinstance(method, Mixing)
    with torch.no_grad():  # predictions for random images that differ visibly
        method.model.get_parameter("head.weight").mul_(50)
    if isinstance(method, PLCB):
        method.known[:known] = torch.rand(30, 3).softmax(1)[:known]
    batch, seen, mix = make_batch(method), [], method.mix

    def spied(now: Pass, views: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append((now, *mix(now, views)))
        return seen[-1][1:]

    method.mix = spied  # type: ignore[method-assign]
    method.outcome = method(batch)
    method.mix = mix  # type: ignore[method-assign]
    return method, batch, *seen[0]


def entropies(logits: Floats, target: torch.Tensor) -> Floats:
    found: Floats = -(target.double().numpy() * log_softmax(logits, 1)).sum(1)
    return found


def sharpened(p: Floats) -> Floats:
    q: Floats = p**2 / (p**2).sum(1, keepdims=True)
    return q


def test_mixmatch() -> None:
    method, batch, now, x, y = mixed_by("mixmatch", consensus="nfc", means="normal", ramp=1.0)
    guess = sharpened(np.mean([softmax(logits_of(method.model, view), 1) for view in batch.unlabelled], axis=0))
    np.testing.assert_allclose(now.target.numpy(), guess, rtol=1e-4)
    logits = logits_of(method.model, x)
    losses, weight = method.outcome.losses, now.weight.double().numpy()
    assert 0 < weight.min() < weight.max() == 1, "by consensus"
    assert losses["labelled"].item() == pytest.approx(entropies(logits[:6], y[:6]).mean(), rel=1e-4)
    error = ((softmax(logits[6:], 1) - y[6:].numpy()) ** 2).mean(1)
    expected = 75 * 0.5 * (np.tile(weight, 2) * error).mean()  # step 50 of 100
    assert losses["unlabelled"].item() == pytest.approx(expected, rel=1e-4)


def test_remixmatch() -> None:
    method, batch, now, x, y = mixed_by("remixmatch", consensus="nfc", means="normal", ramp=1.0)
    weak, strong, rotated = batch.unlabelled
    p = softmax(logits_of(method.model, weak), 1)
    ratio = p * PRIOR / p.mean(0)
    aligned = ratio / ratio.sum(1, keepdims=True)
    np.testing.assert_allclose(now.target.numpy(), sharpened(aligned), rtol=1e-4)
    assert x.shape == (6 + 2 * 14, 1, 8, 8)
    logits, losses, weight = logits_of(method.model, x), method.outcome.losses, now.weight.double().numpy()
    assert 0 < weight.min() < weight.max() == 1, "by consensus"
    with torch.no_grad():
        turned = method.rotation(method.model.features(rotated)).double().numpy()
    turns = torch.eye(4)[torch.arange(14) % 4]
    expected = {
        "labelled": entropies(logits[:6], y[:6]).mean(),
        "unlabelled": 0.5 * 1.5 * (np.tile(weight, 2) * entropies(logits[6:], y[6:])).mean(),  # step 50 of 100
        "anchored": 0.5 * 0.5 * (weight * entropies(logits_of(method.model, strong), now.target)).mean(),
        "rotation": 0.5 * entropies(turned, turns).mean(),
    }
    assert {name: losses[name].item() for name in expected} == pytest.approx(expected, rel=1e-4)


def test_remixmatch_aligns_to_the_shares_of_the_labels() -> None:
    align = make_method("remixmatch").alignment
    assert isinstance(align, Alignment)
    assert align.queue.shape == (128, 3)
    assert align.target is not None
    assert align.target.tolist() == pytest.approx(PRIOR)
    q = np.array([0.5, 0.3, 0.2])
    p = np.random.default_rng(0).dirichlet(np.ones(3), 8)
    expected = p * q / p.mean(0)
    found = Alignment(3, 128, tuple(q))(torch.from_numpy(p).float())
    np.testing.assert_allclose(found.numpy(), expected / expected.sum(1, keepdims=True), rtol=1e-5)


def test_vectors_have_no_rotations() -> None:
    method = make_method("remixmatch", shape=(5,))
    assert method.views.unlabelled == ("weak", "strong")
    assert set(method(make_batch(method)).losses) == {"labelled", "unlabelled", "anchored"}


@pytest.mark.parametrize("known", [3, 30])
def test_plcb(known: int) -> None:
    """Images without a pseudo-label are no part of the means, nor of the mean prediction."""
    method, _, now, x, y = mixed_by("plcb", known=known)
    torch.testing.assert_close(now.target, method.known[:14])
    n = 6 + min(known, 14)
    p, y, prior = method.model(x)[:n].softmax(1), y[:n], torch.tensor(PRIOR)
    entropy = -(y * p.log()).sum(1)
    expected = {
        "labelled": entropy[:6].sum() / n,
        "unlabelled": entropy[6:].sum() / n,
        "balance": 0.8 * (prior * (prior / p.mean(0)).log()).sum(),
        "entropy": -0.4 * (p * p.log()).sum(1).mean(),
    }
    assert method.outcome.losses.keys() == expected.keys()
    for name, loss in method.outcome.losses.items():
        same_with_gradients(method, loss, expected[name])


def test_pseudo_labels_are_renewed_after_each_epoch() -> None:
    torch.manual_seed(0)
    method = make_method("plcb", warmup=0.2).eval()
    assert isinstance(method, PLCB)
    batch = make_batch(method)
    predicted = softmax(logits_of(method.model, batch.unlabelled[0]), 1)

    def pseudo(epoch: int) -> Any:
        method.begin_epoch(epoch, lambda: pytest.fail("no features are needed"))
        return method(batch).pseudo

    for epoch in (0, 1):  # two epochs of ten steps are a fifth of 100 steps
        assert pseudo(epoch).weight.tolist() == [0] * 14
    assert method.last_start == 20
    renewed = pseudo(2)
    assert renewed.weight.tolist() == [1] * 14
    np.testing.assert_allclose(method.known[batch.positions].numpy(), predicted, rtol=1e-4)
    assert method.known[14:].count_nonzero() == 0
    with torch.no_grad():
        method.model.get_parameter("head.bias").add_(torch.tensor([9.0, 0.0, 0.0]))
    np.testing.assert_allclose(method(batch).pseudo.confidence.numpy(), predicted.max(1), rtol=1e-4)
    assert pseudo(3).label.tolist() == [0] * 14


def test_impossible_settings_are_refused() -> None:
    for choices, message in (({"alpha": 0.0}, "alpha is 0.0"), ({"passes": "shared"}, "passes is 'shared'")):
        with pytest.raises(UserError, match=message):
            MixSettings(**choices).check()
