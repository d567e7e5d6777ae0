"""The file of a run's predictions: what is written is what is read, and older files are read too."""

from pathlib import Path

import numpy as np
import pytest
import torch

from normatch.data import Dataset
from normatch.errors import UserError
from normatch.training.predictions import Line, read_predictions, write_predictions

CLASSES = ("=ape", "bee, or wasp")
KNOWN = [Line(0, 1, 0.75, 0), Line(2, 0, 0.625, 1)]


def written(path: Path, files: list[str] | None) -> str:
    names = None if files is None else np.array(files, dtype=object)
    test = Dataset(np.zeros((3, 2, 2, 1), np.uint8), np.array([0, -1, 1]), CLASSES, files=names)
    write_predictions(path, test, torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.625, 0.375]]))
    return path.read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("files", "header"),
    [(["@a.png", "b,\n.png", "\udce9"], "item,file,label,probability,truth"), (None, "item,label,probability,truth")],
)
def test_lines_of_known_class_are_read_back(files: list[str] | None, header: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    assert written(path, files) == header
    assert read_predictions(path, CLASSES) == KNOWN
    assert not any(cell[0] in "=@" for cell in path.read_text().replace("\n", ",").split(",") if cell), "no formulas"


def test_classes_whose_names_are_no_text_are_read_back(tmp_path: Path) -> None:
    classes = ("caf\udce9", "ape")
    test = Dataset(np.zeros((1, 2, 2, 1), np.uint8), np.array([0]), classes)
    write_predictions(tmp_path / "table.csv", test, torch.tensor([[0.25, 0.75]]))
    assert read_predictions(tmp_path / "table.csv", classes) == [Line(0, 1, 0.75, 0)]


def test_a_file_that_is_damaged_or_of_other_classes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    written(path, None)
    with pytest.raises(UserError, match=r"table\.csv cannot be read \(KeyError\('bee, or wasp'\)\): restore it"):
        read_predictions(path, ("=ape", "bee"))
    path.write_text(path.read_text().replace("truth", "true"))
    with pytest.raises(UserError, match=r"table\.csv cannot be read \(KeyError\('truth'\)\): restore it"):
        read_predictions(path, CLASSES)


@pytest.mark.parametrize("content", ["", "item,label,probability,true\n"])
def test_a_damaged_heading_is_noticed_although_no_line_follows(tmp_path: Path, content: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=r"table\.csv cannot be read \(KeyError"):
        read_predictions(path, CLASSES)
    path.write_text("item,label,probability,truth\n")
    assert read_predictions(path, CLASSES) == []
