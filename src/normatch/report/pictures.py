"""Images of the data as PNG data URIs, small enough to be embedded in a page."""

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.report.evidence import Evidence
from normatch.report.findings import Findings

__all__ = ["data_uri", "pictures_of"]

LARGEST = 128
"""Largest side in pixels; larger images are scaled down."""


def pictures_of(evidence: Evidence, findings: Findings) -> dict[int, str]:
    """The images of the items on the page, by number; empty for feature vectors or if the data could not be read."""
    items = evidence.shown
    if items is None or not items.dataset.is_images:
        return {}
    wanted = {case.item for case in (findings.disputed or []) + (findings.errors or [])}
    rows = (row for row, item in enumerate(items.items.tolist()) if item in wanted)
    return {int(items.items[row]): data_uri(items.dataset.inputs[row]) for row in rows}


def data_uri(image: NDArray[np.uint8]) -> str:
    """A uint8 image (H, W, C) as a data URI of a PNG."""
    # Imported here: training does not need Pillow.
    from PIL import Image

    pixels: NDArray[Any] = image[..., 0] if image.shape[2] == 1 else image
    picture = Image.fromarray(pixels)
    picture.thumbnail((LARGEST, LARGEST))
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
