"""Tables of predictions on the command line: whole or absent, and every error in one line."""

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image

import normatch
from normatch.cli import main
from normatch.config import Config
from normatch.evaluate import table
from normatch.evaluate.predictor import Prediction
from normatch.methods.normatch import NorMatchSettings
from normatch.training import train

IMAGES = np.random.default_rng(0).integers(0, 256, (11, 8, 8), dtype=np.uint8)


@pytest.fixture(scope="module")
def run(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(train(tiny_config.replace(steps=2), tmp_path_factory.mktemp("table") / "run").path)


@pytest.fixture(scope="module")
def vector_run(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("vectors")
    x = np.random.default_rng(0).normal(size=(60, 5))
    np.savez(folder / "own.npz", x=x, y=np.arange(60) % 3)
    config = tiny_config.replace(data=str(folder / "own.npz"), labels=6, backbone="mlp", method="fixmatch", steps=2)
    return str(train(config, folder / "run").path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in: pictures and arrays, right and wrong."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    for i, image in enumerate(IMAGES):
        Image.fromarray(image).save(tmp_path / "pictures" / f"{i:02d}.png")
    (tmp_path / "empty").mkdir()
    np.save("images.npy", IMAGES)
    np.save("wide.npy", np.zeros((3, 8, 9), np.uint8))
    features = np.random.default_rng(0).normal(size=(8, 5))
    np.save("features.npy", features)
    np.save("few.npy", features[:, :4])
    features[6, 1] = np.nan
    np.save("nan.npy", features)
    return tmp_path


def error_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line of a command that fails with 2 and leaves the folder as it was."""
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    capsys.readouterr()
    assert main(argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before
    return said.err


def test_csv_and_parquet_say_the_same(run: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ROW_GROUP", 4)  # so that there are several
    for inputs, column in (("pictures", "path"), ("images.npy", "item")):
        assert main(["predict", run, inputs, "--out", f"{column}.csv", "--batch", "3"]) == 0
        assert main(["predict", run, inputs, "--out", f"{column}.parquet", "--batch", "3"]) == 0
        with Path(f"{column}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        stored = pyarrow.parquet.read_table(f"{column}.parquet")
        assert stored.column_names == list(rows[0]) == [column, *Prediction._fields[1:]]
        assert pyarrow.parquet.ParquetFile(f"{column}.parquet").num_row_groups > 1
        for row, other in zip(rows, stored.to_pylist(), strict=True):
            assert row.pop("agree") == str(other.pop("agree")).lower()
            for name, value in row.items():
                if isinstance(other[name], float):
                    assert float(value) == pytest.approx(other[name], abs=1e-4)
                else:
                    assert value == ("" if other[name] is None else str(other[name]))
        expected = normatch.load(run).label(IMAGES)
        assert [row["label"] for row in rows] == [row.label for row in expected]
        assert [float(row["probability"]) for row in rows] == pytest.approx([r.probability for r in expected], abs=1e-5)


def test_no_class_is_an_empty_field(here: Path) -> None:
    rows = [Prediction("a.png", "cat", 0.75, None, 0.5, False, -3.0)]
    for name in ("labels.csv", "labels.parquet"):
        with table.written(Path(name), ("path", *Prediction._fields[1:])) as write:
            write(rows)
    assert Path("labels.csv").read_text().splitlines()[1] == "a.png,cat,0.750000,,0.500000,false,-3.000000"
    assert pyarrow.parquet.read_table("labels.parquet")["flow_label"].to_pylist() == [None]


def test_a_model_without_a_flow_has_fewer_columns(
    vector_run: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["predict", vector_run, "features.npy"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "item,label,probability"
    assert len(said.out.splitlines()) == 9
    assert said.err == "8 predictions: standard output\n"


def test_a_flow_that_is_the_head_is_no_second_opinion(
    tiny_config: Config, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = NorMatchSettings(head="nfc", auxiliary="mlp")
    run = str(train(tiny_config.replace(steps=2, settings=settings), here / "run").path)
    capsys.readouterr()
    assert main(["predict", run, "images.npy"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(rows[0]) == ["item", "label", "probability", "flow_log_density"]
    expected = normatch.load(run).label(IMAGES)
    assert [row["label"] for row in rows] == [row.label for row in expected]
    densities = [row.flow_log_density for row in expected]
    assert [float(row["flow_log_density"]) for row in rows] == pytest.approx(densities, abs=1e-5)
    assert main(["predict", run, "images.npy", "--out", "labels.parquet"]) == 0
    assert pyarrow.parquet.read_table("labels.parquet")["flow_log_density"].to_pylist() == pytest.approx(densities)
    assert main(["export", run, "--format", "torch"]) == 0
    assert " to probabilities, flow_log_density; " in capsys.readouterr().out


def test_paths_on_standard_input(
    run: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("pictures/03.png\n\npictures/01.png\n"))
    capsys.readouterr()
    assert main(["predict", run, "-"]) == 0
    assert [row.split(",")[0] for row in capsys.readouterr().out.splitlines()[1:]] == [
        "pictures/03.png",
        "pictures/01.png",
    ]


def test_a_table_that_exists_is_replaced_only_by_force(
    run: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("out.csv").write_text("mine")
    assert "out.csv exists already: choose another name, or replace it with --force" in error_of(
        capsys, "predict", run, "images.npy", "--out", "out.csv"
    )
    # An error on the way leaves the old one too.
    error_of(capsys, "predict", run, "wide.npy", "--out", "out.csv", "--force")
    assert Path("out.csv").read_text() == "mine"
    assert main(["predict", run, "images.npy", "--out", "out.csv", "--force"]) == 0
    assert len(Path("out.csv").read_text().splitlines()) == 12


def test_files_of_other_kinds_are_counted(run: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pictures/1.HEIC").write_text("")
    Path("pictures/2.heic").write_text("")
    assert main(["predict", run, "pictures", "--out", "out.csv"]) == 0
    said = capsys.readouterr().out
    assert said.endswith(" predictions: out.csv\n2 files of other kinds are ignored: .heic 2\n")


def test_links_that_are_not_followed_are_named(run: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("L", (8, 8)).save(here / "elsewhere.png")
    (here / "linked").mkdir()
    (here / "own").mkdir()
    (here / "own" / "more").symlink_to(here / "linked")
    (here / "own" / "moved.png").symlink_to(here / "nowhere.png")
    (here / "own" / "one.png").symlink_to(here / "elsewhere.png")
    assert main(["predict", run, "own", "--out", "out.csv"]) == 0
    broken, outside = capsys.readouterr().out.splitlines()[1:]
    assert broken == "ignored, a broken link: own/moved.png"
    assert outside == "ignored, outside the folders that are read: own/more"


def test_unreadable_images(run: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pictures/10.png").write_text("<html>")
    argv = ["predict", run, "pictures", "--batch", "2", "--out", "out.csv"]
    assert "cannot read image pictures/10.png" in error_of(capsys, *argv)
    assert main([*argv, "--on-bad-image", "skip"]) == 0
    said = capsys.readouterr().out
    assert "10 predictions: out.csv\n1 unreadable image skipped:\npictures/10.png: not an image of a known kind" in said
    assert len(Path("out.csv").read_text().splitlines()) == 11


def test_classes_that_are_not_text_are_written_with_escapes(here: Path) -> None:
    with table.written(here / "x.parquet", ("path", "label", "probability")) as write:
        write([("1.png", "\udce9t\udce9", 0.5)])
    (row,) = pyarrow.parquet.read_table("x.parquet").to_pylist()
    assert row == {"path": "1.png", "label": r"\udce9t\udce9", "probability": 0.5}


def test_names_that_are_not_text_do_no_harm(run: str, here: Path) -> None:
    try:
        os.rename(b"pictures/00.png", b"pictures/00-\xe9.png")
    except OSError:
        pytest.skip("this file system takes only text for names")
    for suffix in ("csv", "parquet"):
        assert main(["predict", run, "pictures", "--out", f"out.{suffix}"]) == 0
    with Path("out.csv").open(newline="", encoding="utf-8") as file:
        paths = [row["path"] for row in csv.DictReader(file)]
    assert paths == pyarrow.parquet.read_table("out.parquet")["path"].to_pylist()
    assert r"pictures/00-\udce9.png" in paths
    # Where the terminal takes nothing but text.
    command = [sys.executable, "-m", "normatch", "predict", run, "pictures"]
    strictly = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, env=strictly, capture_output=True, text=True, check=True)
    assert [line.split(",")[0] for line in done.stdout.splitlines()[1:]] == paths


WRONG: dict[str, tuple[str, list[str], str]] = {
    "a shape": ("images", ["wide.npy"], "wide.npy: images are uint8 of shape (3, 8, 9)"),
    "a number of features": (
        "vectors",
        ["few.npy"],
        "of shape (8, 4): this model takes numbers (N, 5)",
    ),
    "NaN": ("vectors", ["nan.npy"], "nan.npy: row 6 of the features holds NaN"),
    "images for a model of vectors": ("vectors", ["pictures"], "not image files: give an array"),
    "a missing file": ("images", ["nowhere.png"], "no such file or folder: nowhere.png"),
    "a missing array": ("images", ["nowhere.npy"], "no such file or folder: nowhere.npy"),
    "an empty folder": ("images", ["empty"], "no images in empty"),
    "no input": ("images", [], "nothing to predict"),
    "two arrays": ("images", ["images.npy", "images.npy"], "one array at a time"),
    "a batch": ("images", ["images.npy", "--batch", "0"], "batch is 0"),
    "a kind of table": ("images", ["images.npy", "--out", "out.json"], "ends in .csv or .parquet"),
    "a folder for a table": ("images", ["images.npy", "--out", "nowhere/out.csv"], "nowhere is no folder"),
    "a device": ("images", ["images.npy", "--device", "cuda"], "torch sees no GPU"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line(
    case: str, run: str, vector_run: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, argv, names = WRONG[case]
    if case == "a device" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert names in error_of(capsys, "predict", run if model == "images" else vector_run, *argv)
    if "--out" not in argv:
        assert names in error_of(capsys, "predict", run if model == "images" else vector_run, *argv, "--out", "out.csv")


def test_parquet_without_pyarrow(
    run: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'normatch[parquet]'" in error_of(capsys, "predict", run, "images.npy", "--out", "out.parquet")


def test_an_empty_array_gives_a_heading(run: str, here: Path) -> None:
    np.save("none.npy", IMAGES[:0])
    for suffix in ("csv", "parquet"):
        assert main(["predict", run, "none.npy", "--out", f"none.{suffix}"]) == 0
    assert Path("none.csv").read_text().startswith("item,label,")
    assert pyarrow.parquet.read_table("none.parquet").num_rows == 0


def test_a_terminal_sees_progress(run: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["predict", run, "images.npy", "--batch", "2", "--out", "out.csv"]) == 0
    assert "11/11" in terminal.getvalue()
