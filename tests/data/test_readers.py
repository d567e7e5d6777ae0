"""The contract of every reader: originals load equal, packed or not; what is wrong is said on one line, by name."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from normatch.data.dataset import Corpus
from normatch.data.source import sources
from normatch.errors import UserError
from tests.data.original_formats import CASES, Case, Expected, state_md5

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
with_files = pytest.mark.parametrize("case", [case for case in CASES if case.victim], ids=lambda case: case.id)
with_checksum = pytest.mark.parametrize("case", [case for case in CASES if case.checked], ids=lambda case: case.id)


def written(case: Case, folder: Path) -> Path:
    """The file to spoil, of a data set that is in order."""
    case.write(folder)
    assert case.victim is not None
    return folder / case.victim


def complaint(case: Case, folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        case.read(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def test_every_source_has_a_case() -> None:
    assert set(sources.names()) <= {case.name for case in CASES}


@every_case
def test_loads_equal(case: Case, tmp_path: Path) -> None:
    expected = case.write(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    corpus = case.read(tmp_path)
    assert_equal(corpus, expected)
    assert sorted(tmp_path.rglob("*")) == before, "a reader only reads"
    if case.name in sources:
        source = sources.get(case.name)
        assert corpus.name == case.name
        assert corpus.train.shape == source.shape
        # Three classes stand for Mini-ImageNet's hundred.
        assert len(corpus.train.classes) == source.classes or case.name == "mini-imagenet"


def assert_equal(corpus: Corpus, expected: Expected) -> None:
    for dataset, images, labels in (
        (corpus.train, expected.train, expected.train_labels),
        (corpus.test, expected.test, expected.test_labels),
    ):
        if not len(images):
            assert dataset is None
            continue
        assert dataset is not None
        assert isinstance(dataset.inputs, np.ndarray)
        assert dataset.inputs.dtype == np.uint8
        assert dataset.labels.dtype == np.int64
        assert dataset.inputs.flags["C_CONTIGUOUS"]
        assert dataset.inputs.flags["WRITEABLE"], "torch warns of arrays that are not"
        assert np.array_equal(dataset.inputs, images)
        np.testing.assert_array_equal(dataset.labels, labels)
        assert dataset.classes == expected.classes
    assert len(corpus.folds) == len(expected.folds)
    for fold, wanted in zip(corpus.folds, expected.folds, strict=True):
        assert fold.dtype == np.int64
        np.testing.assert_array_equal(fold, wanted)
    assert corpus.skipped == ()


@with_files
def test_missing_file(case: Case, tmp_path: Path) -> None:
    victim = written(case, tmp_path)
    victim.unlink()
    if case.name in ("folder", "mini-imagenet"):
        # The files themselves say which images there are: none is missed until the last has gone.
        shutil.rmtree(victim.parents[1])
        assert {"folder": f"{tmp_path / 'test'} has subfolders", "mini-imagenet": "train/ is missing"}[
            case.name
        ] in complaint(case, tmp_path)
        return
    message = complaint(case, tmp_path)
    # Of two archives that would do, the one is named that can be downloaded.
    assert victim.name.replace("binary.tar", "python.tar" if "cifar" in case.name else "binary.tar") in message
    assert str(tmp_path) in message


@with_files
def test_truncated_file(case: Case, tmp_path: Path) -> None:
    victim = written(case, tmp_path)
    with victim.open("r+b") as file:
        file.truncate(victim.stat().st_size // 2)
    assert victim.name in complaint(case, tmp_path)
    if case.checked:
        # With a checksum that agrees, the damage shows when the content is read.
        state_md5(victim)
        message = complaint(case, tmp_path)
        assert victim.name in message
        assert "checksum" not in message
        # And without any, when its size is compared with the published one.
        victim.with_name(f"{victim.name}.md5").unlink()
        assert f"{victim} is truncated" in complaint(case, tmp_path)


@with_checksum
def test_wrong_checksum(case: Case, tmp_path: Path) -> None:
    victim = written(case, tmp_path)
    with victim.open("r+b") as file:
        file.seek(victim.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    message = complaint(case, tmp_path)
    assert f"{victim} has a wrong checksum" in message
    assert "md5sum" in message


@with_files
def test_unreadable_file(case: Case, tmp_path: Path) -> None:
    victim = written(case, tmp_path)
    victim.write_bytes(b"<html>404 not found</html>" * 10)
    if case.checked:
        state_md5(victim)
    message = complaint(case, tmp_path)
    assert str(victim) in message
    if case.images:
        assert f"cannot read image {victim}" in message
