"""What a data set refuses, wherever its items come from."""

import numpy as np
import pytest

from normatch.data import Dataset
from normatch.errors import UserError


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (("cat", ""), "classes has no name for class 1: give it one"),
        (("cat", "cat"), "classes has 'cat' twice: give each class a different name"),
    ],
)
def test_every_class_has_a_name_of_its_own(classes: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Dataset(np.zeros((4, 2), np.float32), np.arange(4) % 2, classes)
