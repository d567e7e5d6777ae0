"""The normalizing flow classifier of the paper: couplings into a mixture with one Gaussian per class."""

from normatch.flow.classifier import NormalizingFlowClassifier
from normatch.flow.coupling import AffineCoupling, CouplingStack
from normatch.flow.mixture import GaussianMixture, MeansInit

__all__ = ["AffineCoupling", "CouplingStack", "GaussianMixture", "MeansInit", "NormalizingFlowClassifier"]
