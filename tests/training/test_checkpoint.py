"""Checkpoints: of the moment they were asked for, the newest counts, and damage is noticed."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as save_tensors

from normatch.errors import UserError
from normatch.training import checkpoint


def test_a_checkpoint_removes_earlier_ones_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / ".step-00000001.safetensors.part").write_bytes(b"cut off")
    for step in (1, 2):
        checkpoint.save(tmp_path, step, {"x": torch.tensor([float(step)])})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "step-00000002.safetensors"]


def test_of_several_checkpoints_the_newest_counts(tmp_path: Path) -> None:
    """A kill between writing one and removing the last leaves both."""
    assert (checkpoint.load_latest(tmp_path), checkpoint.newest_step(tmp_path)) == (None, 0)
    for step in (9, 10):
        checkpoint.save(tmp_path / str(step), step, {"x": torch.tensor([float(step)])})
        (file,) = (tmp_path / str(step)).iterdir()
        file.rename(tmp_path / file.name)
    found = checkpoint.load_latest(tmp_path)
    assert found is not None
    assert (found[0], found[1]["x"].item(), checkpoint.newest_step(tmp_path)) == (10, 10, 10)


def test_a_checkpoint_is_of_the_moment_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, changed = checkpoint.save, threading.Event()
    written: list[tuple[int, list[float]]] = []

    def save_late(*given: Any) -> None:
        assert changed.wait(600)
        save(*given)
        found = checkpoint.load_latest(tmp_path)
        assert found is not None
        written.append((found[0], found[1]["x"].tolist()))

    monkeypatch.setattr(checkpoint, "save", save_late)
    x = torch.zeros(3)
    with checkpoint.Writer(tmp_path) as writer:
        writer.save(1, {"x": x})
        x += 1  # training goes on while it is written
        changed.set()
        writer.save(2, {"x": x, "transposed": torch.arange(6.0).view(2, 3).T})
        assert checkpoint.newest_step(tmp_path) >= 1, "one at a time"
    found = checkpoint.load_latest(tmp_path)
    assert found is not None
    assert written == [(1, [0, 0, 0]), (2, [1, 1, 1])]
    assert found[1]["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_checkpoint_that_cannot_be_written_stops_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = checkpoint.Writer(tmp_path / "file" / "checkpoint")
    writer.save(1, {})
    with pytest.raises(OSError, match="file"):
        writer.save(2, {})
    writer.save(3, {})
    with pytest.raises(OSError, match="file"):
        writer.__exit__(None, None, None)


def test_damage_is_named(tmp_path: Path) -> None:
    """One wrong bit, a checkpoint of another step, one without a checksum, and what is no checkpoint."""
    tensors = {"a/half": torch.ones(3, dtype=torch.bfloat16), "a/none": torch.ones(0), "b": torch.ones(2, 2).t()}
    checkpoint.save(tmp_path, 5, tensors)
    step, back = checkpoint.load_latest(tmp_path) or (0, {})
    assert step == 5
    torch.testing.assert_close(back, tensors, rtol=0, atol=0)
    file, later = (tmp_path / f"step-0000000{step}.safetensors" for step in (5, 6))
    content = file.read_bytes()
    for path, damaged in (
        (file, content[:-1] + bytes([content[-1] ^ 1])),
        (later, content),
        (later, save_tensors({"a": torch.ones(3)})),
    ):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{path.name} is damaged \(its checksum is another\)"):
            checkpoint.load_latest(tmp_path)
    later.unlink()
    later.mkdir()
    with pytest.raises(UserError, match=rf"{later.name} is damaged \(.*\): restore it, or remove it"):
        checkpoint.load_latest(tmp_path)
