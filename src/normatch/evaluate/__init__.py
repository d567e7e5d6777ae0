"""Metrics of predictions, and the predictor that makes them."""

from normatch.evaluate.predict import Predictor, load
from normatch.metrics import calibration_error, confusion, fit_temperature, scores

__all__ = ["Predictor", "calibration_error", "confusion", "fit_temperature", "load", "scores"]
