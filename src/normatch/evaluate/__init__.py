"""Metrics of predictions, and the predictor that makes them."""

from normatch.evaluate.calibration import calibration_error, fit_temperature
from normatch.evaluate.metrics import confusion, scores
from normatch.evaluate.predictor import Predictor, load
from normatch.significance import mcnemar, wilson_interval

__all__ = [
    "Predictor",
    "calibration_error",
    "confusion",
    "fit_temperature",
    "load",
    "mcnemar",
    "scores",
    "wilson_interval",
]
