"""Backbones: from images or feature vectors to the features z that the classifiers see."""

from normatch.nets.backbone import (
    PRETRAINED,
    SMALL,
    Backbone,
    BackboneSpec,
    backbones,
    create_backbone,
    find_backbone,
    fitting_backbone,
    register,
    suitable_backbone,
)

__all__ = [
    "PRETRAINED",
    "SMALL",
    "Backbone",
    "BackboneSpec",
    "backbones",
    "create_backbone",
    "find_backbone",
    "fitting_backbone",
    "register",
    "suitable_backbone",
]
