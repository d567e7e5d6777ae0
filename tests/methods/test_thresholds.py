"""Which pseudo-labels count: the thresholds and weights of six methods, batch after batch, against NumPy."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from normatch.errors import UserError
from normatch.methods import Batch, Method, methods
from normatch.methods.adamatch import AdaMatchSettings
from normatch.methods.parts.pseudo_labels import consensus_weights, sharpen, targets
from normatch.methods.parts.weak_to_strong import Pass, WeakToStrong
from tests.conftest import make_batch, make_method

Floats = NDArray[np.float32]


def made(name: str, **choices: object) -> Any:
    torch.manual_seed(0)
    method = make_method(name, **choices).train()
    assert isinstance(method, WeakToStrong)
    return method


def batches(method: Method, count: int = 6, n: int = 14) -> list[tuple[Floats, torch.Tensor, Batch]]:
    """Random probabilities (n, 3), some of them confident, of images that may occur twice in a batch."""
    rng = np.random.default_rng(0)
    found = []
    for step in range(count):
        p = rng.dirichlet([0.2, 0.3, 0.1], size=n).astype(np.float32)
        batch = make_batch(method, step=step)._replace(positions=torch.from_numpy(rng.integers(0, 30, size=n)))
        found.append((p, torch.from_numpy(p), batch))
    return found


def test_flexmatch_counts_each_image_once() -> None:
    method, last = made("flexmatch"), np.full(30, -1)
    for p, tensor, batch in batches(method, 8):
        counts = np.array([(last == c).sum() for c in range(-1, 3)])
        beta = counts[1:] / counts.max()
        threshold = 0.95 * beta / (2 - beta)
        assert method.weigh(tensor, batch).tolist() == (p.max(1) >= threshold[p.argmax(1)]).tolist()
        before = last.copy()
        for position, row in zip(batch.positions.tolist(), p, strict=True):
            last[position] = row.argmax() if row.max() >= 0.95 else before[position]
        assert method.label.tolist() == last.tolist()
    assert 0 < threshold.min() < threshold.max() <= 0.95


def test_freematch_thresholds_follow_the_confidence() -> None:
    method, tau, average, shares = made("freematch", memory=0.7), 1 / 3, np.full(3, 1 / 3), np.full(3, 1 / 3)
    for p, tensor, batch in batches(method):
        tau = 0.7 * tau + 0.3 * p.max(1).mean()
        average = 0.7 * average + 0.3 * p.mean(0)
        shares = 0.7 * shares + 0.3 * np.bincount(p.argmax(1), minlength=3) / len(p)
        used = p.max(1) >= (tau * average / average.max())[p.argmax(1)]
        assert method.weigh(tensor, batch).tolist() == used.tolist()
        assert used.any()

        strong = torch.from_numpy(np.random.default_rng(1).normal(size=(14, 3)).astype(np.float32))
        q = strong.softmax(1).numpy()[used]
        named = np.bincount(q.argmax(1), minlength=3)
        ours = np.divide(q.mean(0), named / len(q), out=np.zeros(3), where=named > 0)
        wanted = average / shares
        expected = (wanted / wanted.sum() * np.log(ours / ours.sum() + 1e-12)).sum()
        got = method.extra_losses(passed(batch, tensor, strong, torch.from_numpy(used).float()))["fairness"]
        assert got.item() == pytest.approx(0.05 * expected, rel=1e-4)
    assert not used.all()
    none = method.extra_losses(passed(batch, tensor, strong, torch.zeros(14)))["fairness"]
    assert none.item() == 0, "no pseudo-label is used"


def passed(batch: Batch, p: torch.Tensor, strong: torch.Tensor, weight: torch.Tensor) -> Pass:
    """What a method's losses see."""
    unused: Any = None
    return Pass(batch, unused, torch.zeros(6, 3), (strong,), p, targets(p, one_hot=True), weight)


@pytest.mark.parametrize(("uniform", "n"), [(True, 1.0), (True, 2.0), (False, 1.0)])
def test_softmatch_averages_confidence_and_weighs_it_aligned(uniform: bool, n: float) -> None:
    method, average, mean, variance = (
        made("softmatch", uniform=uniform, n_sigma=n),
        np.array([0.6, 0.3, 0.1]),
        0.9,
        0.01,
    )
    assert method.average.tolist() == pytest.approx([1 / 3] * 3)
    assert (method.adaptive.mean.item(), method.adaptive.variance.item()) == pytest.approx((1 / 3, 1.0))
    method.average.copy_(torch.from_numpy(average))
    method.adaptive.mean.fill_(mean)
    method.adaptive.variance.fill_(variance)
    for p, tensor, batch in batches(method):
        average += 0.001 * (p.mean(0) - average)
        mean += 0.001 * (p.max(1).mean() - mean)
        variance += 0.001 * (p.max(1).var(ddof=1) - variance)
        aligned = p / average / (p / average).sum(1, keepdims=True) if uniform else p
        expected = np.exp(-(np.minimum(aligned.max(1) - mean, 0) ** 2) / (2 * variance / n**2))
        np.testing.assert_allclose(method.weigh(tensor, batch).numpy(), expected, rtol=1e-4)
    assert method.adaptive.variance.item() == pytest.approx(variance, rel=1e-6)
    assert method.weigh(tensor[:1], batch).isfinite().all(), "one image has no unbiased variance"


def test_dash_threshold_falls_from_the_labelled_loss() -> None:
    """100 steps, 10 of them warm-up, divided every 5."""
    method, reference = made("dash", warm_up=0.1, period=0.05), 0.0
    assert method.last_start == 10
    p = torch.tensor([[0.8, 0.1, 0.1], [0.4, 0.3, 0.3], [0.99, 0.01, 0.0]])
    for step in range(10):
        outcome = method(make_batch(method, step=step))
        loss = outcome.losses["labelled"].item()
        reference = loss if step == 0 else reference + 0.1 * (loss - reference)
        assert not outcome.pseudo.weight.any()
    for step, divisions in ((10, 0), (14, 0), (15, 1), (44, 6), (99, 17)):
        batch = make_batch(method, step=step)
        threshold = max(1.0001 * reference / 1.27**divisions, 0.05)
        assert method.threshold(batch.step).item() == pytest.approx(threshold, rel=1e-4)
        assert method.weigh(p, batch).tolist() == (-np.log([0.8, 0.4, 0.99]) <= threshold).tolist()
    assert torch.equal(method.target(p, batch), targets(p, one_hot=True)), "at the least threshold"
    early = make_batch(method, step=15)
    assert method.threshold(early.step) > 0.05
    assert torch.equal(method.target(p, early), sharpen(p, 0.5)), "before"
    assert torch.equal(made("dash", pseudo_label="onehot").target(p, early), targets(p, one_hot=True))
    before = method.reference.item()
    method(batch._replace(labels=(batch.labels + 1) % 3))
    assert method.reference.item() == before == pytest.approx(reference, rel=1e-4), "measured in the warm-up alone"


def test_adsh_passes_the_same_share_of_each_class() -> None:
    method = made("adsh", threshold=0.8)

    def embed() -> Any:
        raise AssertionError("Adsh needs no features")

    method.begin_epoch(0, embed)
    assert method.thresholds.tolist() == pytest.approx([0.8] * 3), "before the first prediction"
    kept: dict[int, tuple[float, int]] = {}
    for p, tensor, batch in batches(method, 3):
        assert method.weigh(tensor, batch).tolist() == (p.max(1) >= np.float32(0.8)).tolist()
        kept |= {at: (row.max(), int(row.argmax())) for at, row in zip(batch.positions.tolist(), p, strict=True)}
    method.begin_epoch(1, embed)
    of_class = [sorted((c for c, label in kept.values() if label == k), reverse=True) for k in range(3)]
    share = sum(c >= 0.8 for c in of_class[1]) / len(of_class[1])  # of the class with the most labels
    assert 0.5 < share < 1
    expected = [0.8 if k == 1 else of_class[k][max(int(share * len(of_class[k])) - 1, 0)] for k in range(3)]
    assert method.thresholds.tolist() == pytest.approx(expected)
    assert method.weigh(tensor, batch).tolist() == (p.max(1) >= method.thresholds.numpy()[p.argmax(1)]).tolist()


def test_adamatch_equals_numpy() -> None:
    method = made("adamatch", memory=0.9)
    method.eval()  # batch norm makes no difference between the passes, and so interpolation none between the logits
    batch = make_batch(method, step=20)
    outcome = method(batch)
    with torch.no_grad():
        weak, strong = (method.model(x).softmax(1).double().numpy() for x in batch.unlabelled)
        of_labelled = [method.model(x).softmax(1).double().numpy() for x in batch.labelled]
    ratio = (0.3 + 0.1 * of_labelled[0].mean(0)) / weak.mean(0)
    aligned = weak * ratio / (weak * ratio).sum(1, keepdims=True)
    used = aligned.max(1) >= 0.9 * of_labelled[0].max(1).mean()
    assert outcome.pseudo.trusted.tolist() == used.tolist()
    labels = batch.labels.numpy()
    expected = sum(-np.log(q[np.arange(6), labels]).mean() for q in of_labelled) / 2
    assert outcome.losses["labelled"].item() == pytest.approx(expected, rel=1e-4)
    expected = (0.5 - 0.5 * np.cos(2 * np.pi * 20 / 100)) * (
        used * -np.log(strong[np.arange(14), aligned.argmax(1)])
    ).mean()
    assert outcome.losses["unlabelled"].item() == pytest.approx(expected, rel=1e-4)
    assert expected > 0


def test_adamatch_interpolates_between_the_logits_of_two_passes() -> None:
    """And batch norm's running statistics take one of them in."""
    method, other = (made("adamatch") for _ in range(2))
    batch = make_batch(method)
    images = torch.cat([*batch.labelled, batch.unlabelled[1], batch.unlabelled[0]])
    together, alone = other.model(images)[:12], made("adamatch").model(torch.cat(batch.labelled))
    torch.manual_seed(3)
    got = method(batch).losses["labelled"]
    torch.manual_seed(3)
    logits = alone + torch.rand(12, 3) * (together - alone)
    assert not torch.allclose(together, alone, atol=0.01)
    expected = torch.nn.functional.cross_entropy(logits, batch.labels.repeat(2))
    torch.testing.assert_close(got, expected)
    weak = logits[:6].softmax(1)
    torch.testing.assert_close(method.confidence, weak.amax(1).mean())
    torch.testing.assert_close(method.shares, 0.999 / 3 + 0.001 * weak.mean(0))
    for name, value in method.model.named_buffers():
        if "running" in name:
            torch.testing.assert_close(value, other.model.get_buffer(name))


@pytest.mark.parametrize("name", ["fixmatch", "flexmatch", "freematch", "softmatch", "uda", "dash"])
def test_consensus_is_one_flag(name: str) -> None:
    """Off there is no trace of it; on it multiplies the method's own weights, and comes with the flow's losses."""
    plain, on = made(name).eval(), made(name, consensus="nfc", means="normal").eval()
    assert plain.consensus is None
    assert not list(plain.model.auxiliary.parameters())
    on.model.backbone.load_state_dict(plain.model.backbone.state_dict())
    on.model.head.load_state_dict(plain.model.head.state_dict())
    batch = make_batch(plain)
    head, flow, _ = on.model.outputs(batch.unlabelled[0])
    tau, agree = consensus_weights(head, [flow])
    assert agree.unique().tolist() == [False, True]
    least = head.detach().amax(1).kthvalue(3).values.item()  # two do not reach it
    for method in (plain, on):
        if name in ("fixmatch", "uda"):
            method.settings = dataclasses.replace(method.settings, threshold=least)
        if name == "dash":
            method.threshold = lambda step: torch.tensor(-math.log(least) + 1e-6)
    before, after = (method(batch) for method in (plain, on))
    torch.testing.assert_close(after.pseudo.weight, before.pseudo.weight * tau)
    assert after.pseudo.trusted.tolist() == (before.pseudo.trusted & agree).tolist()
    assert after.pseudo.trusted.any()
    torch.testing.assert_close(after.pseudo.auxiliary, flow.amax(1))
    assert set(after.losses) - set(before.losses) == {"auxiliary", "density"}
    assert after.losses["labelled"].item() == before.losses["labelled"].item()


@pytest.mark.parametrize(
    ("name", "setting", "value", "remedy"),
    [
        ("flexmatch", "threshold", 1.5, "give a number from 0 to 1"),
        ("freematch", "memory", -0.1, "give a number from 0 to 1"),
        ("freematch", "fairness", -1.0, "give a number that is not negative"),
        ("dash", "decay", 0.9, "give 1 or more, by which the threshold is divided"),
        ("dash", "warm_up", 1.0, "give a share of the run, from 0 to below 1"),
        ("dash", "period", 0.0, "give a positive number"),
        ("adsh", "threshold", -1.0, "give a number from 0 to 1"),
        ("comatch", "memory", 0, "give a positive number"),
        ("comatch", "contrast_weight", -1.0, "give a number that is not negative"),
        ("simmatch", "smoothing", 0.0, "give a positive number"),
        ("semco", "semantic_threshold", 2.0, "give a number from 0 to 1"),
    ],
)
def test_impossible_settings_are_refused(name: str, setting: str, value: float, remedy: str) -> None:
    with pytest.raises(UserError, match=rf"settings\.{setting} is {value}: {remedy}"):
        methods.get(name).Settings(**{setting: value}).check()


def test_adamatch_refuses_a_second_alignment() -> None:
    with pytest.raises(UserError, match="AdaMatch aligns to labelled images already"):
        AdaMatchSettings(alignment=True).check()
