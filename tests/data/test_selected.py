"""Selected rows are what indexing would copy, and share the memory of the others."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from normatch.data import Corpus, Dataset, Pool
from normatch.data import selected as module
from normatch.data.holdout import hold_out
from normatch.data.selected import Selected, pieces
from tests.data.original_formats import random_bytes

IMAGES = random_bytes(9, 2, 3, 1)
ROWS = st.lists(st.integers(0, 8), max_size=12).map(lambda rows: np.array(rows, np.int64))


@given(ROWS, st.slices(12), st.data())
def test_it_reads_what_indexing_copies(rows: NDArray[np.int64], part: slice, data: st.DataObject) -> None:
    found, copied = Selected.of(IMAGES).at(rows), IMAGES[rows]
    for name in ("shape", "ndim", "dtype", "nbytes"):
        assert getattr(found, name) == getattr(copied, name)
    assert len(found) == len(copied)
    np.testing.assert_array_equal(found, copied)
    np.testing.assert_array_equal(found[part], copied[part])
    if len(rows):
        row = data.draw(st.integers(0, len(rows) - 1))
        np.testing.assert_array_equal(found[row], copied[row])
        np.testing.assert_array_equal(found.at(np.array([row, 0])), copied[[row, 0]])
    batches = [batch.permute(0, 2, 3, 1).numpy() for batch in found.split(2)]
    np.testing.assert_array_equal(np.concatenate([copied[:0], *batches]), copied)


def test_it_becomes_an_array() -> None:
    rows = Selected(IMAGES, np.array([4, 4, 0]))
    assert np.asarray(rows, np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="without a copy"):
        np.array(rows, copy=False)
    assert Selected.of(rows) is rows


@given(st.integers(0, 40), st.integers(1, 200))
def test_pieces_are_all_rows_once(n: int, size: int) -> None:
    images = random_bytes(n, 2, 3, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", size)
        rows = [row for piece in pieces(images) for row in range(n)[piece]]
        assert rows == list(range(n))
        assert all(images[piece].nbytes <= max(size, 6) for piece in pieces(images))


def test_a_pool_is_filled_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset(IMAGES, np.arange(9) % 2, ("a", "b"))
    whole = Pool(dataset).inputs
    monkeypatch.setattr(module, "PIECE", 12)
    assert torch.equal(Pool(dataset).inputs, whole)
    assert torch.equal(Pool(dataset.view(np.array([8, 1]))).inputs, whole[[8, 1]])
    assert len(Pool(dataset.view(np.zeros(0, np.int64)))) == 0


def test_items_held_out_are_not_copied() -> None:
    held = hold_out(Corpus("toy", Dataset(IMAGES, np.arange(9) % 2, ("a", "b"))), 0.3, 0)
    assert held.test is not None
    for part in (held.train, held.test):
        assert isinstance(part.inputs, Selected)
        assert part.inputs.array is IMAGES
        np.testing.assert_array_equal(part.labels, part.inputs.index % 2)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_run_with_its_images_in_a_file_takes_no_memory_for_them(tmp_path: Path) -> None:
    code = f"""
import numpy as np
from normatch.config import Config
from normatch.data import Corpus, Dataset
from normatch.training import Loop, prepare

def own():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1000

shape = 4000, 200, 200, 3
images = np.memmap({str(tmp_path / "images")!r}, np.uint8, mode="w+", shape=shape)
labels = np.where(np.arange(4000) < 40, np.arange(4000) % 2, -1)
corpus = Corpus("toy", Dataset(np.asarray(images), labels, ("a", "b")))
config = Config(
    labels=None, test_share=0.2, backbone="resnet-18", method="fixmatch", pool="host", device="cpu", steps=1, batch=2
)
Loop(prepare(config, Corpus("toy", corpus.train.view(np.arange(40)))))
before = own()
Loop(prepare(config, corpus))
print(own() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 200  # MB, of 480
