"""The quickstart page: its commands, run one after the other on a small folder as mixed as the page's."""

import csv
import json
import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest

from normatch import autoconfig
from normatch.cli import main
from normatch.training.bench import Pace

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "quickstart.md").read_text()


def commands() -> list[str]:
    """The lines of the page's shell blocks, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def test_every_command_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    runpy.run_path(str(ROOT / "benchmarks" / "mixed_pictures.py"))["write_pictures"](Path("pictures"), 400)
    # As on a machine so slow that only a few steps fit into the time.
    monkeypatch.setattr(autoconfig, "LEAST_STEPS", 1)
    monkeypatch.setattr(autoconfig, "pace", lambda job: Pace(start=0.0, step=100.0, evaluation=1.0))
    for line in commands():
        verb, *argv = shlex.split(line)
        if verb == "rm":
            for path in map(Path, argv):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif verb == "normatch":
            assert main(argv) == 0, f"{line}: {capsys.readouterr().err}"
    shown = capsys.readouterr()
    assert "1 × same pixels under two labels" in shown.out
    assert "3 unreadable images skipped:\n" in shown.out
    run = tmp_path / "runs" / "pictures"
    assert json.loads((run / "result.json").read_text())["evaluated_on"] == "test"
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(list((tmp_path / "pictures/train/unlabeled").iterdir())) - 3
    for made in ("sheet.png", "runs/pictures/report.html", "runs/pictures/model.onnx"):
        assert (tmp_path / made).is_file()
