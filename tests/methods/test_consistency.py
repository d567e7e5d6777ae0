"""Consistency losses, the Π-Model, Mean Teacher and VAT, against NumPy."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, rel_entr, softmax

from normatch.errors import UserError
from normatch.methods import Method, Task
from normatch.methods.parts.consistency import divergence, squared_error
from normatch.methods.pi_model import PiModel
from normatch.methods.vat import VAT, VATSettings, unit
from normatch.nets.model import Model
from tests.conftest import logits_of, make_batch, make_method, same_with_gradients

Floats = NDArray[np.float64]
rng = np.random.default_rng(0)


def test_losses_average_over_samples() -> None:
    logits, target, weight = rng.normal(size=(7, 4)), rng.dirichlet(np.ones(4), size=7), rng.uniform(size=7)
    one_hot = np.eye(4)[[0, 1, 2, 3, 0, 1, 2]]
    for q in (target, one_hot):
        given, to = torch.from_numpy(logits), torch.from_numpy(q)
        error = ((softmax(logits, 1) - q) ** 2).mean(1)
        assert squared_error(given, to).item() == pytest.approx(error.mean(), rel=1e-5)
        assert squared_error(given, to, torch.from_numpy(weight)).item() == pytest.approx((weight * error).mean())
        expected = rel_entr(q, softmax(logits, 1)).sum(1).mean()
        assert divergence(given.float(), to.float()).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("name", "step"), [("pi-model", 10), ("pi-model", 60), ("mean-teacher", 10)])
def test_two_views_are_compared_by_a_weight_that_grows(name: str, step: int) -> None:
    torch.manual_seed(0)
    method = make_method(name).eval()
    assert isinstance(method, PiModel)
    batch = make_batch(method, step)
    second = method.model
    if name == "mean-teacher":
        for p in batch.teacher.parameters():
            p.mul_(1.5)
        second = copy.deepcopy(batch.teacher)
        assert second.training, "the teacher normalises by the batch"
    a, b = (torch.cat(views) for views in zip(batch.labelled, batch.unlabelled, strict=True))
    first, other = method.model(a).softmax(1), second(b).softmax(1)
    losses = method(batch).losses
    weight = 100 * np.exp(-5 * (1 - min(step / (100 * 80 / 300), 1)) ** 2)
    same_with_gradients(method, losses["consistency"], weight * (first - other).square().mean())
    labelled = -log_softmax(logits_of(method.model, batch.labelled[0]), 1)[np.arange(6), batch.labels].mean()
    assert losses["labelled"].item() == pytest.approx(labelled, rel=1e-5)


def linear_vat(**choices: object) -> VAT:
    """VAT with p = softmax(Wx + b) of five numbers."""
    torch.manual_seed(0)
    spec = make_method("vat", shape=(5,)).model.spec
    model = Model(dataclasses.replace(spec, backbone="identity", mean=(100.0,) * 5, std=(50.0,) * 5))
    task = Task(prior=(1 / 3, 1 / 3, 1 / 3), labelled=6, unlabelled=30, epoch=10, steps=100)
    return VAT(model, task, VATSettings(**choices))  # type: ignore[arg-type]


def test_the_direction_is_the_first_eigenvector_of_the_fisher_matrix() -> None:
    """KL(p(x) ‖ p(x + r)) ≈ ½ rᵀ Wᵀ (diag p − p pᵀ) W r."""
    method = linear_vat(iterations=40)
    images = 100 + 30 * torch.randn(4, 5)
    logits = logits_of(method.model, images)
    found = method.direction(images, torch.from_numpy(softmax(logits, 1)).float()).double().numpy()
    w = method.model.get_parameter("head.weight").detach().double().numpy()
    for p, d in zip(softmax(logits, 1), found, strict=True):
        _, vectors = np.linalg.eigh(w.T @ (np.diag(p) - np.outer(p, p)) @ w)
        assert abs(vectors[:, -1] @ d) / np.linalg.norm(d) > 0.999
        assert np.sqrt((d**2).mean()) == pytest.approx(1)


def test_vat_compares_with_the_perturbed_images() -> None:
    method = linear_vat(epsilon=0.5, weight=2.0, entropy=0.3)
    batch = make_batch(method)
    d = unit(torch.randn(20, 5))
    method.direction = lambda images, p: d  # type: ignore[method-assign]
    losses = method(batch).losses
    images = torch.cat([batch.labelled[0], batch.unlabelled[0]])
    p, q = (method.model(x).double().softmax(1) for x in (images, images + 0.5 * 50 * d))
    target = p.detach()
    same_with_gradients(method, losses["adversarial"], 2 * (target * (target / q).log()).sum(1).mean())
    same_with_gradients(method, losses["entropy"], -0.3 * (p * p.log()).sum(1).mean())


def test_perturbed_images_leave_no_trace_in_the_running_statistics() -> None:
    method: Method = make_method("vat").train()
    assert method.model.backbone.plain, "fused kernels give images no gradient"
    batch, plain = make_batch(method), copy.deepcopy(method.model)
    plain(torch.cat([batch.labelled[0], batch.unlabelled[0]]))
    method(batch)
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(method.model.get_buffer(name), buffer)


def test_directions_too_small_to_square_have_unit_length() -> None:
    d = torch.tensor([[3e-30, 4e-30], [0.0, 0.0]])
    torch.testing.assert_close(unit(d), torch.tensor([[0.6, 0.8], [0.0, 0.0]]) * 2**0.5)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UserError, match=r"settings\.probe is 0: give a positive number"):
        VATSettings(probe=0).check()
    with pytest.raises(UserError, match=r"settings\.weight is -1: give a number that is not negative"):
        PiModel.Settings(weight=-1).check()  # type: ignore[call-arg]
