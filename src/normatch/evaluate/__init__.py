"""The use of a finished run: scores, predictions, what to label next, export."""

from normatch.evaluate.predict import Predictor, load

__all__ = ["Predictor", "load"]
