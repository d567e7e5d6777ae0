"""Metrics of predictions, and the predictor that makes them."""

from normatch.evaluate.metrics import calibration_error, confusion, fit_temperature, scores
from normatch.evaluate.predict import Predictor, load

__all__ = ["Predictor", "calibration_error", "confusion", "fit_temperature", "load", "scores"]
