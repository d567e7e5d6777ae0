"""The file of a run's predictions: what is written is what is read."""

from pathlib import Path

import numpy as np
import pytest
import torch

from normatch.data import Dataset
from normatch.errors import UserError
from normatch.training.predictions import read_predictions, write_predictions

CLASSES = ("=ape", "bee, or wasp", "caf\udce9")
"""A formula, a comma, and the name of a folder that is no text."""


def written(path: Path, files: list[str] | None = None) -> Path:
    names = None if files is None else np.array(files, dtype=object)
    test = Dataset(np.zeros((4, 2, 2, 1), np.uint8), np.array([0, -1, 1, 2]), CLASSES, files=names)
    write_predictions(path, test, torch.tensor([[0.25, 0.75, 0], [0.5, 0.5, 0], [0.625, 0.375, 0], [0, 0, 1]]))
    return path


@pytest.mark.parametrize(
    ("files", "heading"),
    [(["@a", "b,\n", "\udce9", "'-"], "sample,file,label,probability,truth"), (None, "sample,label,probability,truth")],
)
def test_predictions_of_known_class_are_read_back(files: list[str] | None, heading: str, tmp_path: Path) -> None:
    path = written(tmp_path / "table.csv", files)
    found = read_predictions(path, CLASSES)
    assert (found.which, found.samples.tolist()) == ("test", [0, 2, 3])
    assert (found.labels.tolist(), found.predicted.tolist()) == ([0, 1, 2], [1, 0, 2])
    assert found.confidence.tolist() == [0.75, 0.625, 1.0]
    assert found.correct.tolist() == [False, False, True]
    text = path.read_text()
    assert text.splitlines()[0] == heading
    assert not any(cell[0] in "=@" for cell in text.replace("\n", ",").split(",") if cell), "no formulas"


def test_a_file_that_is_damaged_or_of_other_classes_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "table.csv")
    with pytest.raises(UserError, match=r"table\.csv cannot be read \(KeyError\('bee, or wasp'\)\): restore it"):
        read_predictions(path, ("=ape", "bee", "caf\udce9"))
    text = path.read_text()
    for good, bad, says in (
        ("2,'=ape", f"{'9' * 30},'=ape", "too (large|big)"),
        ("0.625000", "1e999", "not between 0 and 1"),
        ("0.625000", f'"{"0" * 200_000}', "field larger than field limit"),
    ):
        path.write_text(text.replace(good, bad))
        assert path.read_text() != text
        with pytest.raises(UserError, match=rf"table\.csv cannot be read .*{says}"):
            read_predictions(path, CLASSES)
    path.write_text(text.replace("truth", "true"))
    with pytest.raises(UserError, match=r"table\.csv cannot be read \(KeyError\('truth'\)\): restore it"):
        read_predictions(path, CLASSES)
