"""The auxiliary classifiers: their weighting of pseudo-labels and their losses (Sections 3.2, 3.3)."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from normatch.flow import NormalizingFlowClassifier
from normatch.methods.parts.pseudo_labels import consensus_weights, labelled_loss, pseudo_loss, targets

__all__ = ["AuxiliaryOutput", "Consensus"]


class AuxiliaryOutput(NamedTuple):
    """The predictions of one auxiliary classifier for the labelled and the weakly augmented unlabelled features."""

    labelled: Tensor
    """(B, K) class logits."""
    weak: Tensor
    """(μB, K) class logits."""
    log_prob: Tensor | None
    """(μB,) log p_n(z), for a flow."""


class Consensus:
    """Auxiliary classifiers on features that are detached from the backbone.

    ``classifiers`` are the model's: :class:`~normatch.flow.NormalizingFlowClassifier` or a softmax MLP. The model
    owns them; this class is not a module, so that they appear only once in a state dict.
    """

    def __init__(self, classifiers: nn.ModuleList, disagree: Literal["min", "drop"] = "min") -> None:
        self.classifiers = classifiers
        self.disagree: Literal["min", "drop"] = disagree
        self.stop_gradient = True
        """False lets the auxiliary losses reach the backbone (Table 3)."""
        self.pseudo_labels = False
        """True trains the classifiers on pseudo-labels as well (Table 4)."""

    def outputs(self, z_labelled: Tensor, z_weak: Tensor) -> list[AuxiliaryOutput]:
        """The output of each classifier, from one pass over all features."""
        z = torch.cat([z_labelled, z_weak])
        if self.stop_gradient:
            z = z.detach()
        sizes = [len(z_labelled), len(z_weak)]
        outputs = []
        for classifier in self.classifiers:
            if isinstance(classifier, NormalizingFlowClassifier):
                logits, log_prob = classifier.evaluate(z)
                labelled, weak = logits.split(sizes)
                outputs.append(AuxiliaryOutput(labelled, weak, log_prob[len(labelled) :]))
            else:
                labelled, weak = classifier(z).float().split(sizes)
                outputs.append(AuxiliaryOutput(labelled, weak, None))
        return outputs

    @torch.no_grad()
    def weigh(self, p: Tensor, outputs: list[AuxiliaryOutput]) -> tuple[Tensor, Tensor, Tensor]:
        """τ (N,), agreement (N,) and the least auxiliary confidence (N,) for the main classifier's ``p`` (N, K)."""
        others = [output.weak.softmax(1) for output in outputs]
        weight, agree = consensus_weights(p, others, self.disagree)
        return weight, agree, torch.stack([q.amax(1) for q in others]).amin(0)

    def losses(
        self, outputs: list[AuxiliaryOutput], labels: Tensor, num_weight: float, p: Tensor, tau: Tensor
    ) -> dict[str, Tensor]:
        """L_x(θ_n), λ L_u(θ_n) (NUM, eq. 7) and, with ``pseudo_labels``, the loss of Table 4 on p_d (N, K) and τ (N,).

        L_u is the mean of −log p_n(z) over the unlabelled batch. Softmax classifiers have no density, hence no NUM. Of
        several classifiers, the cross-entropies are averaged, and NUM is that of the first alone, as published.
        """
        terms = {"auxiliary": torch.stack([labelled_loss(output.labelled, labels) for output in outputs]).mean()}
        if outputs[0].log_prob is not None:
            terms["density"] = -num_weight * outputs[0].log_prob.mean()
        if self.pseudo_labels:
            target = targets(p, one_hot=True)
            terms["auxiliary_pseudo"] = torch.stack([pseudo_loss(o.weak, target, tau) for o in outputs]).mean()
        return terms
