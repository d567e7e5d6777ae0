"""What the auxiliary classifiers lend to the pseudo-labels, and their losses, by hand."""

import pytest
import torch
from torch import nn

from normatch.methods.parts.consensus import AuxiliaryOutput, Consensus


def consensus() -> Consensus:
    return Consensus(nn.ModuleList(), stop_gradient=True, disagree="min")


def sure(confidence: float) -> AuxiliaryOutput:
    """A classifier that gives the first of two classes this probability."""
    logits = torch.tensor([[confidence, 1 - confidence]]).log()
    return AuxiliaryOutput(labelled=logits, weak=logits, log_prob=torch.tensor([-4.0]))


@pytest.mark.parametrize("confidences", [(0.9, 0.6), (0.6, 0.9)])
def test_the_auxiliary_confidence_is_that_of_the_least_sure_classifier(confidences: tuple[float, float]) -> None:
    _, _, least = consensus().weigh(torch.tensor([[0.7, 0.3]]), [sure(c) for c in confidences])
    assert least.tolist() == pytest.approx([0.6])


def test_each_classifier_adds_its_losses_in_full() -> None:
    labels, p, weight = torch.tensor([1]), torch.tensor([[0.7, 0.3]]), torch.tensor([0.5])
    once = consensus().losses([sure(0.9)], labels, 0.1, (p, weight))
    twice = consensus().losses([sure(0.9)] * 2, labels, 0.1, (p, weight))
    assert set(once) == {"auxiliary", "density", "auxiliary_pseudo"}
    assert once["density"].item() == pytest.approx(0.4)
    for name, loss in once.items():
        assert twice[name].item() == pytest.approx(2 * loss.item())
