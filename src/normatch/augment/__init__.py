"""Random views of whole batches (weak, RandAugment, cutout), drawn per sample, on any device, in torch alone."""

from normatch.augment.randaugment import OPS
from normatch.augment.views import KINDS, AugmentConfig, ImageParams, Numbers, Params, VectorParams, Views, check_kind

__all__ = ["KINDS", "OPS", "AugmentConfig", "ImageParams", "Numbers", "Params", "VectorParams", "Views", "check_kind"]
