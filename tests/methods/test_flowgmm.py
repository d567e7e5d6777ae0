"""FlowGMM's losses against NumPy, and what of them reaches a learned backbone."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp

from normatch.errors import UserError
from normatch.flow import NormalizingFlowClassifier
from normatch.methods.flowgmm import FlowGMMSettings
from tests.conftest import make_batch, make_method
from tests.methods.test_consensus import numpy_log_joint


def test_losses_of_a_flow_on_the_input_itself() -> None:
    torch.manual_seed(0)
    method = make_method("flowgmm", shape=(5,), backbone="identity", consistency=0.5, ramp=0.8)
    batch, flow = make_batch(method, step=40), method.model.head
    assert isinstance(flow, NormalizingFlowClassifier)
    assert set(method.state_dict()) == {f"model.{name}" for name in method.model.state_dict()}
    (labelled,), (first, second) = batch.labelled, batch.unlabelled
    (l_x, l_u, l_v) = (
        joint + det[:, None] for joint, det in (numpy_log_joint(flow, x) for x in (labelled, first, second))
    )
    assert method.settings.label_weight == 3.0
    assert not any(p.requires_grad for p in flow.mixture.parameters()), "means, variances and class weights stay"
    outcome = method(batch)
    label = l_u.argmax(1)
    expected = {
        "labelled": -3 * log_softmax(l_x, 1)[np.arange(6), batch.labels].mean() / 5,
        "density": -logsumexp(np.concatenate([l_x, l_u]), axis=1).mean() / 5,
        "consistency": -0.5 * (40 / 80) * (l_v[np.arange(14), label] + np.log(3)).mean() / 5,
    }
    assert {name: loss.item() for name, loss in outcome.losses.items()} == pytest.approx(expected, rel=1e-4)
    assert outcome.pseudo is not None
    assert outcome.pseudo.label.tolist() == label.tolist()


def test_pixels_get_uniform_noise_around_their_levels() -> None:
    method = make_method("flowgmm", backbone="identity", noise=16.0)
    batch, seen = make_batch(method), []
    method.model.normalise.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    method(batch)
    noise = seen[0] - torch.cat([*batch.labelled, *batch.unlabelled])
    assert -8 <= noise.min() < -7.9
    assert 7.9 < noise.max() <= 8
    assert noise.std().item() == pytest.approx(16 / 12**0.5, rel=0.05)


def test_a_learned_backbone_gets_gradients_of_the_posterior_alone() -> None:
    torch.manual_seed(0)
    method = make_method("flowgmm").train()
    losses = method(make_batch(method)).losses
    weights = list(method.model.backbone.parameters())
    for name, loss in losses.items():
        gradients = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
        reached = [g is not None and bool(g.any()) for g in gradients]
        assert all(reached) if name.startswith("posterior") else not any(reached), name


def test_posterior_losses() -> None:
    torch.manual_seed(0)
    method = make_method("flowgmm", shape=(5,), ramp=0.0).eval()
    batch = make_batch(method)
    losses = method(batch).losses
    log_p = method.model(torch.cat([*batch.labelled, *batch.unlabelled])).log_softmax(1).detach().numpy()
    label = log_p[6:20].argmax(1)
    assert losses["posterior"].item() == pytest.approx(-log_p[np.arange(6), batch.labels].mean(), rel=1e-4)
    assert losses["posterior_consistency"].item() == pytest.approx(-log_p[20 + np.arange(14), label].mean(), rel=1e-4)


def test_settings_that_cannot_be_are_refused() -> None:
    for setting, value in {"consistency": -1.0, "flow_layers": 0, "ramp": 2.0}.items():
        with pytest.raises(UserError, match=rf"settings\.{setting} is {value}: give a "):
            FlowGMMSettings(**{setting: value}).check()  # type: ignore[arg-type]
