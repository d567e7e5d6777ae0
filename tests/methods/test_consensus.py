"""The auxiliary classifiers: what they lend to the pseudo-labels, and their losses against NumPy."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from normatch.flow import NormalizingFlowClassifier
from normatch.methods.parts.consensus import AuxiliaryOutput, Consensus

Floats = NDArray[np.float64]
rng = np.random.default_rng(0)
LABELS = rng.integers(0, 4, size=7)


def numpy_log_joint(flow: NormalizingFlowClassifier, z: torch.Tensor) -> tuple[Floats, Floats]:
    """log N(f(z); μ_k, σ_k² I) + log π_k (N, K) from the flow's latent, and the log-determinant."""
    latent, logdet = (t.detach().double().numpy() for t in flow.transform(z))
    mixture = flow.mixture
    means, scales = mixture.means.detach().double().numpy(), mixture.scales.detach().double().numpy()
    weights = mixture.log_weights.detach().double().numpy()
    d = latent.shape[1]
    squared = ((latent[:, None] - means) ** 2).sum(2) / scales**2
    return weights - 0.5 * (squared + d * np.log(2 * np.pi)) - d * np.log(scales), logdet


def output(confidence: float, log_prob: float | None = -4.0) -> AuxiliaryOutput:
    """That of a classifier which gives the first of two classes this probability."""
    logits = torch.tensor([[confidence, 1 - confidence]]).log()
    return AuxiliaryOutput(logits, logits, None if log_prob is None else torch.tensor([log_prob]))


def test_two_flows_learn_as_published() -> None:
    """The mean of their cross-entropies, and NUM of the first alone."""
    two, none = [output(0.9, -4.0), output(0.6, -7.0)], [output(0.9, None)]
    pseudo = torch.tensor([[0.7, 0.3]]), torch.tensor([0.5])
    consensus = Consensus(torch.nn.ModuleList())
    consensus.pseudo_labels = True
    for outputs in (two, two[::-1]):
        assert consensus.weigh(pseudo[0], outputs)[2].tolist() == pytest.approx([0.6]), "the least confident classifier"
    losses = consensus.losses(two, torch.tensor([1]), 0.1, *pseudo)
    assert losses["auxiliary"].item() == pytest.approx(-(np.log(0.1) + np.log(0.4)) / 2)
    assert losses["density"].item() == pytest.approx(0.4)
    assert losses["auxiliary_pseudo"].item() == pytest.approx(-0.5 * (np.log(0.9) + np.log(0.6)) / 2)
    consensus.pseudo_labels = False
    assert set(consensus.losses(none, torch.tensor([1]), 0.1, *pseudo)) == {"auxiliary"}


def test_auxiliary_losses() -> None:
    torch.manual_seed(0)
    flow = NormalizingFlowClassifier(6, 4, means="normal")
    z_labelled, z_weak = torch.randn(7, 6), torch.randn(9, 6)
    consensus = Consensus(torch.nn.ModuleList([flow]))
    consensus.pseudo_labels = True
    outputs = consensus.outputs(z_labelled, z_weak)
    p = torch.from_numpy(rng.dirichlet(np.ones(4), size=9)).float()
    weight = torch.from_numpy(rng.uniform(size=9)).float()
    losses = consensus.losses(outputs, torch.from_numpy(LABELS), 0.5, p, weight)

    joint, _ = numpy_log_joint(flow, z_labelled)
    np.testing.assert_allclose(
        losses["auxiliary"].item(), -log_softmax(joint, 1)[np.arange(7), LABELS].mean(), rtol=1e-4
    )
    joint, logdet = numpy_log_joint(flow, z_weak)
    marginal = np.log(np.exp(joint).sum(1)) + logdet
    np.testing.assert_allclose(losses["density"].item(), -0.5 * marginal.mean(), rtol=1e-4)
    entropy = -log_softmax(joint, 1)[np.arange(9), p.argmax(1).numpy()]
    np.testing.assert_allclose(losses["auxiliary_pseudo"].item(), (weight.numpy() * entropy).mean(), rtol=1e-4)
