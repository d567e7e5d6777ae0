"""The commands and the Python of the how-to pages do what the pages say."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from normatch.config import Config
from normatch.data.images import Channels, decode_all
from normatch.training import train

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def desk(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader of the pages has it: a run, pictures, an array, and the command on the path."""
    folder = tmp_path_factory.mktemp("desk")
    train(tiny_config.replace(steps=2), folder / "runs" / "digits")
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    np.save(folder / "images.npy", images)
    (folder / "pictures").mkdir()
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / "pictures" / f"{i}.png")
    command = folder / "bin" / "normatch"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -W error -m normatch "$@"\n')
    command.chmod(0o755)
    return folder


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(8, 8), (31, 9), (90, 200), (900, 1100)])
def test_an_exported_model_is_given_what_training_reads(
    channels: Channels, size: tuple[int, int], tmp_path: Path
) -> None:
    """By the function of the page, which needs no normatch."""
    path = tmp_path / "1.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)).save(path, exif=exif)
    (source,) = (block for block in blocks("export.md", "python") if "def read" in block)
    here: dict[str, Any] = {"np": np, "Image": Image, "ImageOps": ImageOps, "shape": (16, 12, channels)}
    exec(source[source.index("rows, columns, channels =") : source.index("images = ")], here)
    (expected,) = decode_all([path], size=(16, 12), channels=channels).images
    np.testing.assert_array_equal(here["read"](path), expected)


def do(desk: Path, *argv: str) -> str:
    env = os.environ | {"PATH": f"{desk / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(argv, cwd=desk, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("predict.md", ["12 predictions: labels.csv", "12 predictions: labels.parquet", "path,label,probability"]),
        ("export.md", ["model.onnx: ", "digits.pt2: ", "['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']"]),
    ],
)
def test_a_page_can_be_followed(page: str, says: list[str], desk: Path) -> None:
    commands, programs = blocks(page, "bash"), blocks(page, "python")
    assert commands
    assert programs
    # `head` closes the pipe early, which is no failure of the page.
    said = do(desk, "bash", "-euc", "\n".join(commands))
    said += "".join(do(desk, sys.executable, "-c", program) for program in programs)
    for text in says:
        assert text in said
