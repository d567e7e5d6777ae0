"""What to label next: items of the run's own data that have no label, as a table that becomes a manifest."""

import csv
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normatch.cli import main
from normatch.config import Config
from normatch.data.manifest import list_manifest
from normatch.engine import Run, kinds, train
from normatch.errors import UserError
from normatch.evaluate import load
from normatch.evaluate import suggest as module
from normatch.evaluate.suggest import suggest


@pytest.fixture(scope="module")
def run(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_config.replace(validation=0.1), tmp_path_factory.mktemp("suggest") / "run")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures, and a run on it."""
    where = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(40):
        name = ("cat", "dog")[i % 2] if i < 12 else "unlabeled"
        (where / "pets" / name).mkdir(parents=True, exist_ok=True)
        image = rng.integers(100 * (i % 2), 100 * (i % 2) + 100, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(image).save(where / "pets" / name / f"{i}.png")
    quick = ["--steps", "2", "--epoch", "1", "--batch", "4", "--ratio", "1", "--device", "cpu"]
    assert main(["train", "--data", str(where / "pets"), *quick, "--out", str(where / "run")]) == 0
    return where


def test_they_are_unlabelled_training_items(run: Run) -> None:
    found = suggest(run.path, 15, device="cpu")
    items = [row.item for row in found.rows]
    assert len(set(items)) == 15
    free = set(run.split.unlabelled.tolist()) - set(run.split.labelled.tolist())
    assert set(items) <= free
    assert not set(items) & set(run.split.validation.tolist())
    assert found.unlabelled == len(free)
    in_doubt = [row.in_doubt for row in found.rows]
    assert in_doubt == sorted(in_doubt, reverse=True)
    assert all(row.in_doubt < row.stands_for for row in found.rows)
    model = load(run.path)
    assert [row.guess for row in found.rows] == model.predict(found.items.inputs)
    np.testing.assert_array_equal(
        [row.probability for row in found.rows], model.predict_proba(found.items.inputs).max(1)
    )


def test_the_seed_decides(run: Run) -> None:
    first, again, other = (suggest(run.path, 5, seed=seed, device="cpu") for seed in (0, 0, 1))
    assert first.rows == again.rows
    assert first.rows != other.rows


def test_of_many_items_some_are_looked_at(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "MOST", 50)
    monkeypatch.setattr(kinds, "MOST_LABELLED", 3)
    found = suggest(run.path, 47, device="cpu")  # as many kinds as there are unlabelled items, less the labelled
    assert 44 <= len(found.rows) <= 47
    assert sum(row.stands_for for row in found.rows) <= 50


def test_a_table_that_becomes_a_manifest(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["suggest", str(pictures / "run"), "--labels", "6", "--out", "next.csv", "--sheet", "next.png"]) == 0
    assert capsys.readouterr().out == "6 items to label, of 28 without one: next.csv\n"
    rows = list(csv.DictReader(Path("next.csv").read_text().splitlines()))
    assert list(rows[0]) == ["path", "label", "guess", "probability", "stands_for", "in_doubt"]
    assert all(row["path"].startswith("unlabeled/") and row["label"] == "" for row in rows)
    manifest = pictures / "pets" / "next.csv"
    shutil.copy("next.csv", manifest)
    try:
        listed = list_manifest(manifest).train
    finally:
        manifest.unlink()
    assert [path.name for path in listed.paths] == [Path(row["path"]).name for row in rows]
    guesses = {row["guess"] for row in rows}
    with Image.open("next.png") as sheet:
        assert sheet.height == 8 + len(guesses) * (26 + 96 + 8)  # a title, a picture and a gap for each


def test_many_of_one_guess_have_several_rows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACROSS", 2)
    found = suggest(run.path, 15, device="cpu")
    rows = list(found.by_guess())
    assert sum(len(pictures) for _, pictures in rows) == 15
    assert max(len(pictures) for _, pictures in rows) == 2
    titles = [title for title, _ in rows]
    assert [title[0] for title in titles] == sorted(title[0] for title in titles)
    assert sorted(int(item) for title in titles for item in title[4:].split(", ")) == sorted(
        row.item for row in found.rows
    )


def test_standard_output_has_the_table_alone(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suggest", str(run.path), "--labels", "3", "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    heading, *rows = shown.out.splitlines()
    assert heading == "item,guess,probability,stands_for,in_doubt"
    assert len(rows) == 3
    assert shown.err.endswith("without one: standard output\n")


def test_the_next_run_is_a_command(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "next.csv"
    assert main(["suggest", str(run.path), "--labels", "3", "--out", str(table), "--device", "cpu"]) == 0
    _, said = capsys.readouterr().out.splitlines()
    program, *argv = shlex.split(said.removeprefix("next: "))
    assert program == "normatch"
    assert main([*argv, "--device", "cpu"]) == 0
    found = Run.open(Path(argv[-1]))
    assert found.path == run.path.with_name(f"{run.path.name}-{len(run.split.labelled) + 3}")
    assert found.config == run.config.replace(
        labelled=(run.path, table), labels=len(found.split.labelled), device="cpu"
    )


def test_the_next_run_is_on_the_data_where_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("old.npz", x=np.random.default_rng(0).normal(size=(60, 5)), y=np.arange(60) % 3)
    quick = ["--steps", "2", "--epoch", "1", "--batch", "4", "--ratio", "1", "--device", "cpu", "--labels", "6"]
    assert main(["train", "--data", "old.npz", *quick, "--out", "run"]) == 0
    Path("old.npz").rename("new.npz")
    capsys.readouterr()
    assert main(["suggest", "run", "--data", "new.npz", "--labels", "4", "--out", "next.csv"]) == 0
    _, said = capsys.readouterr().out.splitlines()
    assert main(shlex.split(said)[2:]) == 0
    assert len(Run.open(Path("run-10")).split.labelled) == 10


def test_vectors_have_no_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = np.where(np.arange(60) < 12, np.arange(60) % 3, -1)
    np.savez("own.npz", x=np.random.default_rng(0).normal(size=(60, 5)), y=labels)
    quick = ["--steps", "2", "--epoch", "1", "--batch", "4", "--ratio", "1", "--device", "cpu"]
    assert main(["train", "--data", "own.npz", *quick, "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["suggest", "run", "--labels", "4", "--out", "next.csv", "--sheet", "next.png"]) == 2
    assert "sheet is 'next.png', but run is a run on feature vectors: leave it out" in capsys.readouterr().err
    assert not list(tmp_path.glob("next.*"))
    assert main(["suggest", "run", "--labels", "4", "--out", "next.csv"]) == 0
    assert len(Path("next.csv").read_text().splitlines()) == 5
    assert capsys.readouterr().out.endswith("without one: next.csv\n")  # their classes are not known


def test_without_unlabelled_items_there_is_nothing_to_suggest(pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(pictures / "pets", tmp_path / "pets")
    shutil.rmtree(tmp_path / "pets" / "unlabeled")
    quick = ["--steps", "2", "--epoch", "1", "--batch", "4", "--method", "supervised", "--device", "cpu"]
    assert main(["train", "--data", str(tmp_path / "pets"), *quick, "--out", str(tmp_path / "run")]) == 0
    with pytest.raises(UserError, match="has no item without a label"):
        suggest(tmp_path / "run", device="cpu")
