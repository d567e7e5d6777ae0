"""Random views of whole batches (weak, RandAugment, cutout), drawn per sample, on any device, in torch alone."""

from normatch.augment.config import AugmentConfig
from normatch.augment.randaugment import OPS
from normatch.augment.views import VIEWS, Numbers, Views, check_view

__all__ = ["OPS", "VIEWS", "AugmentConfig", "Numbers", "Views", "check_view"]
