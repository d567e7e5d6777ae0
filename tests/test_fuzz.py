"""Files that are damaged in any way, or meant to do harm, cost one line: no crash, no hang, nothing written elsewhere.

``python -m tests.test_fuzz 600`` damages files for ten minutes.
"""

import contextlib
import io
import json
import os
import pickle
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from normatch import recipes
from normatch.cli import main
from normatch.data.readers.cifar import CIFAR10
from normatch.errors import UserError
from normatch.training import train
from normatch.training.progress import Lines
from tests.data.original_formats import cifar, hundredth, pack, state_md5

QUICK = ["--steps", "1", "--epoch", "1", "--batch", "8", "--ratio", "1", "--device", "cpu", "--scratch"]

LIMIT = 60.0
"""Seconds that no command may take, whatever it is given."""


class Stops(Lines):
    def __init__(self) -> None:
        super().__init__("stops")

    def __call__(self, step: int, total: int, record: object) -> None:
        if step >= 4:
            raise KeyboardInterrupt


def make_place(place: Path) -> dict[str, str]:
    """A finished run, its copy, one that was stopped, arrays, a folder and manifest of pictures, and an archive of
    CIFAR. Returns what commands that read the run print, by their words."""
    config = recipes.digits(labels=20).replace(
        steps=6, epoch=2, batch=8, ratio=1, log_every=2, checkpoint_every=2, device="cpu", threads=1
    )
    train(config, place / "run")
    shutil.copytree(place / "run", place / "other")
    with contextlib.suppress(KeyboardInterrupt):
        train(config, place / "stopped", progress=Stops())
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (24, 8, 8, 3), np.uint8)
    np.savez(place / "own.npz", images=images, labels=np.arange(24) % 3 - 1)
    np.savez_compressed(place / "packed.npz", x=rng.normal(size=(24, 5)).astype(np.float32), y=np.arange(24) % 2)
    np.save(place / "new.npy", images[:4, ..., 0])
    (place / "pictures").mkdir()
    for i, image in enumerate(images):
        Image.fromarray(image).save(place / "pictures" / f"{i}.png")
    rows = [f"pictures/{i}.png,{'cat' if i % 2 else 'dog'}" for i in range(24)]
    (place / "list.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    form = hundredth(CIFAR10)
    pack(place, form.archive.name, form.folder, cifar(form, tuple("abcdefghij"))[1])
    state_md5(place / form.archive.name)
    with contextlib.chdir(place):
        return {" ".join(command): called(command)[1] for command in SAME}


def called(command: list[str]) -> tuple[int, str, str]:
    """The exit code, output and errors of the command line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return main(command), out.getvalue(), err.getvalue()


SAME = (["eval", "run"], ["predict", "run", "new.npy"], ["suggest", "run", "--labels", "3"])
"""Commands that print the same of a damaged run, unless they refuse it: all that they read has a digest."""

RESUME = ["train", "--out", "stopped", "--resume"]

COMMANDS = {
    "run/**/*": (*SAME, ["compare", "run", "other"], ["report", "run"], ["report", "run", "--json"], ["export", "run"]),
    "stopped/*": (RESUME,),
    "stopped/checkpoint/*": (RESUME,),
    "stopped/events/*": (RESUME,),
    "own.npz": (["data", "inspect", "own.npz"], ["train", "--data", "own.npz", *QUICK]),
    "packed.npz": (["data", "inspect", "packed.npz"], ["train", "--data", "packed.npz", *QUICK]),
    "new.npy": (["predict", "run", "new.npy"],),
    "pictures/*.png": (["data", "inspect", "list.csv"], ["train", "--data", "list.csv", *QUICK]),
    "list.csv": (["data", "inspect", "list.csv"], ["train", "--data", "list.csv", *QUICK]),
}
"""What reads which files."""

WORDS = [
    b"[" * 4000,
    b"-1",
    b"1e999",
    b"null",
    b'"',
    b"\x00",
    b"\xff" * 8,
    b"=cmd()",
    b"../../x",
    b"\x80\x04c",
    b"9" * 30,
]


def damaged(content: bytes, draws: random.Random) -> bytes:
    """Truncated, with bytes changed, moved or put in, or with a line lost."""
    at = draws.randrange(len(content) + 1)
    if (kind := draws.randrange(6)) == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + draws.choice(WORDS) + content[at:]
    if kind == 2:
        return content[:at] + draws.choice(WORDS) + content[at + draws.randrange(1, 9) :]
    if kind == 3:
        return content[:at] + bytes([draws.randrange(256)]) + content[at + 1 :]
    if kind == 4:
        other = draws.randrange(len(content) + 1)
        return content[:at] + content[other : other + draws.randrange(1, 200)] + content[at:]
    lines = content.splitlines(keepends=True)
    del lines[draws.randrange(len(lines) or 1) :][:1]
    return b"".join(lines)


def names(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.iterdir()}


def attack(original: Path, place: Path, draws: random.Random, prints: dict[str, str]) -> tuple[str, int]:
    """Damage one file in a copy, and call a command that reads it: its words and exit code."""
    shutil.copytree(original, place / "here")
    pattern = draws.choice(list(COMMANDS))
    files = sorted(path for path in (place / "here").glob(pattern) if path.is_file() and path.name != ".lock")
    path = draws.choice(files)
    path.write_bytes(damaged(path.read_bytes(), draws))
    command = draws.choice(COMMANDS[pattern])
    what = f"{' '.join(command)} with {path.relative_to(place / 'here')}"
    before, start = names(place / "here"), time.monotonic()
    with contextlib.chdir(place / "here"):
        code, out, err = called(command)
    assert code in (0, 2), (what, code)
    assert code == 0 or [line.startswith("normatch: ") for line in err.splitlines()].count(True) == 1, what
    assert time.monotonic() - start < LIMIT, what
    assert names(place / "here") - before <= {"runs"}, what
    assert names(place) == {"here"}, what
    if code == 0 and command in SAME and pattern.startswith("run"):
        assert out == prints[" ".join(command)], what
    if code == 0 and command == RESUME:
        weights = [place / "here" / run / "model.safetensors" for run in ("stopped", "run")]
        assert weights[0].read_bytes() == weights[1].read_bytes(), what
    shutil.rmtree(place / "here")
    return what, code


def attack_archive(original: Path, place: Path, draws: random.Random) -> int:
    """Damage the archive of a published data set, whose checksum is stated anew; 1 if the reader refuses it, with the
    error that the command line prints."""
    form = hundredth(CIFAR10)
    archive = place / form.archive.name
    archive.write_bytes(damaged((original / archive.name).read_bytes(), draws))
    state_md5(archive)
    try:
        form.read(place)
    except UserError:
        return 1
    return 0


def test_damage_costs_one_line(tmp_path: Path) -> None:
    prints = make_place(tmp_path / "original")
    (tmp_path / "copies").mkdir()
    draws = random.Random(0)
    codes = Counter(attack(tmp_path / "original", tmp_path / "copies", draws, prints)[1] for _ in range(60))
    assert codes[2] > 10
    assert sum(attack_archive(tmp_path / "original", tmp_path / "copies", draws) for _ in range(60)) > 10


class Harmful:
    """Unpickled, it makes a folder."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.made),)


def test_nothing_in_a_file_is_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    harmful = pickle.dumps(Harmful(made))
    pickle.loads(harmful)
    assert made.is_dir(), "it would do harm"
    made.rmdir()
    place = tmp_path / "place"
    make_place(place)
    np.savez(place / "own.npz", images=np.array([Harmful(made)], object), labels=np.arange(1))
    torch.save({"a": Harmful(made)}, place / "weights.pth")
    (checkpoint,) = (place / "stopped" / "checkpoint").glob("*.safetensors")
    for path in (checkpoint, place / "run" / "model.safetensors", place / "new.npy"):
        path.write_bytes(harmful)
    form = hundredth(CIFAR10)
    pack(place, form.archive.name, form.folder, dict.fromkeys((form.meta, *form.counts), harmful))
    state_md5(place / form.archive.name)
    commands = [
        ["data", "inspect", "own.npz"],
        ["train", "--data", "own.npz", *QUICK],
        ["train", "--data", "list.csv", "--freeze", "--weights", "weights.pth", "--out", "new"],
        ["train", "--out", "stopped", "--resume"],
        ["eval", "run"],
        ["predict", "run", "new.npy"],
    ]
    capsys.readouterr()
    with contextlib.chdir(place):
        for command in commands:
            assert main(command) == 2, command
            said = capsys.readouterr().err
            assert said.count("\n") == 1, said
            if "weights.pth" in command:
                assert "weights.pth" in said
    with pytest.raises(UserError, match="which plain data never needs"):
        form.read(place)
    assert not made.exists()


if __name__ == "__main__":
    until = time.monotonic() + float(sys.argv[1])
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns())
    counted: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        original, copies = Path(folder) / "original", Path(folder) / "copies"
        printed = make_place(original)
        copies.mkdir()
        while time.monotonic() < until:
            counted[f"command {attack(original, copies, chance, printed)[1]}"] += 1
            counted["archive refused" if attack_archive(original, copies, chance) else "archive read"] += 1
            for path in copies.iterdir():
                path.unlink()
    print(json.dumps(counted))
