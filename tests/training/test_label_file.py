"""Label files: read from each kind of place, together, and trained on."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from normatch.config import Config
from normatch.data import UNKNOWN, Corpus, Dataset
from normatch.errors import UserError
from normatch.training import Run, train
from normatch.training.label_file import read_label_files, with_labels

ARRAYS = Corpus("arrays", Dataset(np.zeros((3, 2), np.float32), np.arange(3), ("a", "b", "c")))


@pytest.fixture(scope="module")
def first(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_config, tmp_path_factory.mktemp("runs") / "first")


@given(arrays.arrays(np.int64, st.integers(1, 30), elements=st.integers(0, 10**6)))
def test_every_kind_of_file_names_the_same_positions(
    tmp_path_factory: pytest.TempPathFactory, positions: np.ndarray
) -> None:
    folder = tmp_path_factory.mktemp("kinds")
    np.save(folder / "a.npy", positions)
    (folder / "lines.txt").write_text("\n".join(map(str, positions)))
    (folder / "one line").write_text(", ".join(map(str, positions)) + "\n")
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("Sample", "guess"), *((at, "seven, or one") for at in positions)])
    for name in ("a.npy", "lines.txt", "one line", "table.csv"):
        assert read_label_files([folder / name], ARRAYS) == dict.fromkeys(sorted(positions.tolist()))


def test_places_count_together_and_each_sample_once(first: Run, tmp_path: Path) -> None:
    labelled = first.split.labelled
    (tmp_path / "more.txt").write_text(f"{labelled[0]}\n5\n")
    found = read_label_files([first.path, tmp_path / "more.txt"], ARRAYS)
    assert list(found) == sorted({*labelled.tolist(), 5})


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.csv", b"sample,guess\n3,cat\nfour,dog\n", r"x.csv', which cannot be read \(it has 'four' for a position\)"),
        ("x.csv", b"sample\n\n", "names no sample"),
        ("x.csv", b"guess,sample\ncat\n", "it has '' for a position"),
        ("x.csv", b"path,label\n1.png,\n", r"x.csv', a table of files, but arrays has none: give positions"),
        ("x.txt", b"", "x.txt names no sample: give whole numbers, one a line"),
        ("x.txt", b"1\n-2\n", "x.txt has position -2, and positions begin with 0"),
        ("x.txt", b"1.5\n", "it has '1.5' for a position"),
        ("x.txt", b"\xff\xfe", "it is no text"),
        ("x.npy", b"1 2 3", "x.npy', which cannot be read"),
        ("x.npy", np.zeros(3), "it holds no list of whole numbers"),
        ("x.npy", np.zeros((2, 2), int), "it holds no list of whole numbers"),
    ],
)
def test_what_is_no_label_file_is_named(tmp_path: Path, name: str, content: bytes | np.ndarray, says: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        np.save(tmp_path / name, content)
    with pytest.raises(UserError, match=says) as caught:
        read_label_files([tmp_path / name], ARRAYS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["labels.npy", "labels.txt", "labels.csv"])
def test_pipes_are_refused(tmp_path: Path, name: str) -> None:
    """One that nobody writes to would be waited for without end."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=r"cannot be read \(it is no regular file\): give whole numbers"):
        read_label_files([tmp_path / name], ARRAYS)


def test_labels_are_added_where_the_data_has_none() -> None:
    partly = Corpus("arrays", Dataset(np.zeros((3, 2), np.float32), np.array([0, UNKNOWN, UNKNOWN]), ("a", "b")))
    more = with_labels(partly, {0: "b", 1: "b", 2: None, 9: "a"})
    assert more.train.labels.tolist() == [0, 1, UNKNOWN]
    assert more.labels_of_data.tolist() == partly.train.labels.tolist()
    assert more.added_labels == {1: "b"}


def test_the_labels_of_a_run_make_the_same_run(first: Run, tiny_config: Config, tmp_path: Path) -> None:
    again = train(tiny_config.replace(labelled=first.path), tmp_path / "again")
    assert again.split.to_json() == first.split.to_json()
    assert (again.path / "model.safetensors").read_bytes() == (first.path / "model.safetensors").read_bytes()
