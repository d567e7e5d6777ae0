"""The normalizing flow classifier of the paper: couplings into a mixture with one Gaussian per class.

>>> import torch
>>> from normatch.flow import NormalizingFlowClassifier
>>> logits, log_prob = NormalizingFlowClassifier(dim=8, classes=3).evaluate(torch.zeros(2, 8))
>>> logits.shape, log_prob.shape
(torch.Size([2, 3]), torch.Size([2]))
"""

from normatch.flow.classifier import NormalizingFlowClassifier
from normatch.flow.coupling import AffineCoupling, CouplingStack
from normatch.flow.mixture import GaussianMixture, MeansInit

__all__ = ["AffineCoupling", "CouplingStack", "GaussianMixture", "MeansInit", "NormalizingFlowClassifier"]
