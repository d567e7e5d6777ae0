"""What is prepared for training."""

import numpy as np
import pytest

from normatch.data import Dataset, dataset
from normatch.training.job import _grey_levels, _statistics


@pytest.mark.parametrize("channels", [1, 3])
def test_statistics_of_images_do_not_depend_on_how_they_are_counted(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (11, 4, 5, channels), dtype=np.uint8)
    whole = _grey_levels(images)
    for piece in (1, 4, 11, 100):
        monkeypatch.setattr(dataset, "PIECE", piece * images[0].nbytes)
        np.testing.assert_array_equal(_grey_levels(images), whole)
        np.testing.assert_array_equal(_grey_levels(dataset.Selected.of(images)), whole)
    mean, std = _statistics(Dataset(images, np.zeros(11, np.int64), ("a",)))
    np.testing.assert_allclose(mean, images.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, images.std((0, 1, 2)), rtol=1e-12)
