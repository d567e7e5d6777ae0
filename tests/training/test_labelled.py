"""Labelled items that files or earlier runs name: read from each, together, and trained on."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from normatch.cli import main
from normatch.config import Config, from_json, to_json
from normatch.data import Corpus, Dataset
from normatch.errors import UserError
from normatch.evaluate.suggest import suggest_to
from normatch.training import Run, train
from normatch.training.bench import bench
from normatch.training.labelled import named_items
from normatch.training.train import with_absolute_paths

ARRAYS = Corpus("arrays", Dataset(np.zeros((3, 2), np.float32), np.arange(3), ("a", "b", "c")))


@pytest.fixture(scope="module")
def first(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_config, tmp_path_factory.mktemp("runs") / "first")


@given(arrays.arrays(np.int64, st.integers(1, 30), elements=st.integers(0, 10**6)))
def test_every_kind_of_file_names_the_same(tmp_path_factory: pytest.TempPathFactory, items: np.ndarray) -> None:
    folder = tmp_path_factory.mktemp("kinds")
    np.save(folder / "a.npy", items)
    (folder / "lines.txt").write_text("\n".join(map(str, items)))
    (folder / "one line").write_text(", ".join(map(str, items)) + "\n")
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("Item", "guess"), *((item, "seven, or one") for item in items)])
    for name in ("a.npy", "lines.txt", "one line", "table.csv"):
        assert named_items([folder / name], ARRAYS).tolist() == sorted(set(items.tolist()))


def test_places_count_together_and_each_item_once(first: Run, tmp_path: Path) -> None:
    labelled = first.split.labelled
    (tmp_path / "more.txt").write_text(f"{labelled[0]}\n5\n")
    assert named_items([first.path, tmp_path / "more.txt"], ARRAYS).tolist() == sorted({*labelled.tolist(), 5})


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "x.csv",
            b"item,guess\n3,cat\nfour,dog\n",
            r"x.csv', which cannot be read \(it has 'four' for a position\): give",
        ),
        ("x.csv", b"item\n\n", "names no item"),
        ("x.csv", b"guess,item\ncat\n", "it has '' for a position"),
        ("x.csv", b"path,label\n1.png,\n", r"x.csv', a table of files, but arrays has none: give positions"),
        ("x.txt", b"", "x.txt names no item: give whole numbers, one a line"),
        ("x.txt", b"1\n-2\n", "x.txt has item -2: positions begin with 0"),
        ("x.txt", b"1.5\n", "it has '1.5' for a position"),
        ("x.txt", b"\xff\xfe", "it is no text"),
        ("x.npy", b"1 2 3", "x.npy', which cannot be read"),
    ],
)
def test_what_names_no_items(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=says) as caught:
        named_items([tmp_path / name], ARRAYS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((2, 2), int), np.array(3)])
def test_an_array_of_something_else(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(UserError, match="it holds no list of whole numbers"):
        named_items([tmp_path / "x.npy"], ARRAYS)


def test_the_labels_of_a_run_make_the_same_run(first: Run, tiny_config: Config, tmp_path: Path) -> None:
    again = train(tiny_config.replace(labelled=first.path), tmp_path / "again")
    assert again.split.to_json() == first.split.to_json()
    assert (again.path / "model.safetensors").read_bytes() == (first.path / "model.safetensors").read_bytes()


def test_suggestions_are_added_to_the_labels_of_a_run(first: Run, tiny_config: Config, tmp_path: Path) -> None:
    suggest_to(first.path, 5, tmp_path / "next.csv", None, device="cpu")
    places = (first.path, tmp_path / "next.csv")
    labels = len(first.split.labelled) + 5
    run = train(tiny_config.replace(labelled=places, labels=labels), tmp_path / "second")
    assert run.result["labels"] == labels
    assert set(first.split.labelled.tolist()) < set(run.split.labelled.tolist())
    assert run.config.labelled == places


def test_a_run_resumes_when_what_named_its_items_is_gone(
    first: Run, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("chosen.npy", first.split.labelled)
    config = tiny_config.replace(labelled="chosen.npy")
    run = train(config, "run")
    (run.path / "result.json").unlink()
    Path("chosen.npy").unlink()
    assert train(config, "run", resume=True).finished
    with pytest.raises(UserError, match=r"was started with labelled \[.*chosen.npy'\], not \[\]"):
        train(tiny_config, "run", resume=True)


def test_a_run_on_other_items_names_none_of_these(first: Run, tiny_config: Config, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="first, a run on other items than those of digits here: give a run on the same"
    ):
        train(tiny_config.replace(labelled=first.path, seed=1), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_bench_needs_none_of_them(tiny_config: Config) -> None:
    config = tiny_config.replace(labelled="nowhere.npy", labels=53)
    assert bench(config, repeats=1, seconds=0.01)["steps_per_second"] > 0


def test_places_in_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(labelled=["a.npy", Path("b")])  # type: ignore[arg-type]  # converted
    assert config.labelled == (Path("a.npy"), Path("b"))
    assert from_json(Config, to_json(config)) == config
    monkeypatch.chdir(tmp_path)
    assert with_absolute_paths(config).labelled == (tmp_path / "a.npy", tmp_path / "b")
    with pytest.raises(UserError, match="labelled is 3: give"):
        Config(labelled=3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="fold is 0: give either it or labelled"):
        Config(labelled=config.labelled, fold=0)


@pytest.mark.parametrize("flag", ["--labelled", "--labeled"])
def test_on_the_command_line(first: Run, tmp_path: Path, flag: str) -> None:
    (tmp_path / "more.txt").write_text("7")
    argv = ["train", "digits-40", "--steps", "2", "--epoch", "1", "--batch", "8", "--ratio", "1", "--device", "cpu"]
    places = [str(first.path), str(tmp_path / "more.txt")]
    assert main([*argv, "--labels", "41", "--out", str(tmp_path / "run"), flag, *places]) == 0
    assert 7 in Run.open(tmp_path / "run").split.labelled
