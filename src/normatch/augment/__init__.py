"""Views of whole batches on any device, per-sample random, with nothing but torch: weak, RandAugment, cutout."""

from normatch.augment.randaugment import OPS
from normatch.augment.views import KINDS, AugmentConfig, ImageParams, Numbers, Params, VectorParams, Views

__all__ = ["KINDS", "OPS", "AugmentConfig", "ImageParams", "Numbers", "Params", "VectorParams", "Views"]
