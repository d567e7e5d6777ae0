"""Backbones: from images or feature vectors to the features z that the classifiers see.

>>> from normatch.nets import create_backbone
>>> create_backbone("small-wide", (1, 8, 8)).features
128
"""

from normatch.nets.backbone import (
    SMALL,
    Backbone,
    BackboneSpec,
    backbones,
    create_backbone,
    families,
    find_backbone,
    fitting_backbone,
    register,
    suitable_backbone,
)

__all__ = [
    "SMALL",
    "Backbone",
    "BackboneSpec",
    "backbones",
    "create_backbone",
    "families",
    "find_backbone",
    "fitting_backbone",
    "register",
    "suitable_backbone",
]
