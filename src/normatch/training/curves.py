"""Quality of pseudo-labels: the curves of Figures 3 and 4, computed outside the method, which never sees the truth."""

import torch
import torch.nn.functional as F
from torch import Tensor

from normatch.data import UNKNOWN
from normatch.methods import PseudoLabels

__all__ = ["HIGH_CONFIDENCE", "Mean", "pseudo_label_curves"]

HIGH_CONFIDENCE = 0.95
"""The confidence threshold with which Figures 3 and 4 and Table 3 compare."""

Mean = tuple[Tensor, Tensor]
"""An open mean: a sum and a count, not divided yet; both scalars, or vectors of the same fixed length."""


def pseudo_label_curves(pseudo: PseudoLabels, truth: Tensor, classes: int) -> dict[str, Mean]:
    """Open means over the batch; those that need the truth count only images whose class is known.

    Figure 3: shares trusted, above the threshold, and correct. Figure 4: accuracy of trusted, distrusted and
    above-threshold pseudo-labels, mean weight of the distrusted, uncertainty 1 − p̄ of both classifiers. In addition
    ``pseudo/classes`` (K,), the share of each class, which shows a collapse.
    """
    # In float32 whatever the weights are: a method may give a mask, and bfloat16 counts to 256 only.
    every = torch.ones_like(pseudo.weight, dtype=torch.float32)
    named = F.one_hot(pseudo.label, classes).to(every.dtype).sum(0)
    trusted = pseudo.trusted.to(every.dtype)
    distrusted = 1 - trusted
    confident = (pseudo.confidence > HIGH_CONFIDENCE).to(every.dtype)
    known = (truth != UNKNOWN).to(every.dtype)
    correct = (pseudo.label == truth).to(every.dtype)
    curves = {
        "pseudo/trusted": _mean(trusted, every),
        "pseudo/confident": _mean(confident, every),
        "pseudo/correct": _mean(correct, known),
        "pseudo/accuracy_trusted": _mean(correct, known * trusted),
        "pseudo/accuracy_distrusted": _mean(correct, known * distrusted),
        "pseudo/accuracy_confident": _mean(correct, known * confident),
        "pseudo/weight": _mean(pseudo.weight, every),
        "pseudo/weight_distrusted": _mean(pseudo.weight, distrusted),
        "pseudo/uncertainty": _mean(1 - pseudo.confidence, every),
        "pseudo/classes": (named, every.sum().expand_as(named)),
    }
    if pseudo.auxiliary is not None:
        curves["pseudo/uncertainty_auxiliary"] = _mean(1 - pseudo.auxiliary, every)
    return curves


def _mean(values: Tensor, weights: Tensor) -> Mean:
    return (values * weights).sum(), weights.sum()
