"""Metrics of predictions, and the predictor that makes them."""

from normatch.evaluate.metrics import calibration_error, confusion, scores
from normatch.evaluate.predictor import Predictor, load

__all__ = ["Predictor", "calibration_error", "confusion", "load", "scores"]
