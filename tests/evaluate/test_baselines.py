"""Baselines: what they are fitted on, and HOG against loops."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from normatch.data import UNKNOWN
from normatch.evaluate.baselines import baselines, hog


def test_baselines_learn_from_the_labels_alone() -> None:
    """Poisoned labels of unlabelled samples cannot matter: they are not there."""
    z, y = make_blobs(300, centers=3, n_features=5, random_state=0, cluster_std=1.0)
    z = z.astype(np.float32)
    labels = np.where(np.arange(300) < 30, y, UNKNOWN)
    found = baselines(z[:200], labels[:200], z[200:], seed=0)
    assert [baseline.name for baseline in found] == ["logistic regression", "label spreading"]
    assert all((baseline.predicted == y[200:]).mean() > 0.9 for baseline in found)
    (alone,) = baselines(z[:30], y[:30], z[200:], seed=0)
    assert alone.name == "logistic regression", "without unlabelled samples nothing spreads"
    one_each = np.full(200, UNKNOWN)
    for c in range(3):
        one_each[np.flatnonzero(y[:200] == c)[0]] = c
    assert len(baselines(z[:200], one_each, z[200:], seed=0)) == 2, (
        "one label a class is too few to validate, not to fit"
    )


@pytest.mark.parametrize("shape", [(3, 16, 16, 3), (2, 33, 20, 1)], ids=str)
def test_hog_equals_loops_over_pixels(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    n, height, width, _ = shape
    expected = np.zeros((n, 8, 8, 9))
    for image, cells in zip(images.astype(float).mean(3), expected, strict=True):
        for y in range(height):
            for x in range(width):
                dy = image[y + 1, x] - image[y - 1, x] if 0 < y < height - 1 else 0.0
                dx = image[y, x + 1] - image[y, x - 1] if 0 < x < width - 1 else 0.0
                angle = np.arctan2(dy, dx) % np.pi / np.pi * 9
                low, share = int(angle) % 9, angle % 1
                cells[y * 8 // height, x * 8 // width, low] += np.hypot(dy, dx) * (1 - share)
                cells[y * 8 // height, x * 8 // width, (low + 1) % 9] += np.hypot(dy, dx) * share
    found = hog(images).reshape(n, 7, 7, 36)
    for i in range(7):
        for j in range(7):
            block = np.concatenate([expected[:, i + a, j + b] for a in (0, 1) for b in (0, 1)], 1)
            block /= np.linalg.norm(block, axis=1, keepdims=True) + 1e-3
            np.testing.assert_allclose(found[:, i, j], block, atol=1e-4)
