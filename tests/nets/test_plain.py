"""HOG against loops over pixels; beside the features of a network."""

from pathlib import Path

import numpy as np
import pytest
import torch

from normatch.errors import UserError
from normatch.nets import create_backbone, find_backbone
from normatch.nets.weights import load_weights


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
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    found = create_backbone("hog", tuple(pixels.shape[1:]))(pixels).numpy().reshape(n, 7, 7, 36)
    for i in range(7):
        for j in range(7):
            block = np.concatenate([expected[:, i + a, j + b] for a in (0, 1) for b in (0, 1)], 1)
            block /= np.linalg.norm(block, axis=1, keepdims=True) + 1e-3
            np.testing.assert_allclose(found[:, i, j], block, atol=1e-4)


def test_hog_stands_beside_the_features_of_a_network(tmp_path: Path) -> None:
    inner, x = create_backbone("small-wide", (3, 16, 16)).eval(), torch.randn(2, 3, 16, 16)
    torch.save(inner.state_dict(), tmp_path / "weights.pth")
    frozen = create_backbone("frozen:with-hog:small-wide", (3, 16, 16)).eval()
    load_weights(frozen, tmp_path / "weights.pth")
    z = frozen.embedder(x)  # type: ignore[operator]
    torch.testing.assert_close(z, torch.cat([inner(x), create_backbone("hog", (3, 16, 16))(x)], 1))
    with pytest.raises(UserError, match="with-hog takes images, and 'mlp' takes feature vectors"):
        find_backbone("with-hog:mlp")
