"""What to label next: items of the run's own data that have no label, as a table that becomes a manifest."""

import csv
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from normatch.cli import main
from normatch.config import Config
from normatch.data.manifest import list_manifest
from normatch.errors import UserError
from normatch.evaluate import load
from normatch.evaluate import suggest as module
from normatch.evaluate.suggest import suggest, unlabelled_clusters
from normatch.training import Run, train
from normatch.training.job import open_corpus, with_test_set

QUICK = ["--steps", "2", "--epoch", "1", "--batch", "4", "--ratio", "1", "--device", "cpu"]


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
    assert main(["train", "--data", str(where / "pets"), *QUICK, "--out", str(where / "run")]) == 0
    return where


def read_table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def added(run: Run) -> dict[str, str]:
    """The files that have labels of label files, and these."""
    files = with_test_set(run.config, open_corpus(run.config), run).train.files
    assert files is not None
    return {files[at]: name for at, name in run.added_labels.items()}


def fill_in(path: Path, label: str, *, but: int = 0) -> list[str]:
    """Give all rows of a table but the last few a label; the names of the files that have it."""
    rows = read_table(path)
    for row in rows[: len(rows) - but]:
        row["label"] = label
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return [Path(row["path"]).name for row in rows if row["label"]]


def test_they_are_unlabelled_training_items(run: Run) -> None:
    found = suggest(run.path, 15, device="cpu")
    items = [row.item for row in found.rows]
    assert len(set(items)) == 15
    free = set(run.split.unlabelled.tolist()) - set(run.split.labelled.tolist())
    assert set(items) <= free
    assert not set(items) & set(run.split.validation.tolist())
    assert found.unlabelled == len(free)
    uncertainty = [row.uncertainty for row in found.rows]
    assert uncertainty == sorted(uncertainty, reverse=True)
    assert all(row.uncertainty < row.cluster_size for row in found.rows)
    model = load(run.path)
    assert [row.predicted for row in found.rows] == model.predict(found.samples.inputs)
    np.testing.assert_array_equal(
        [row.probability for row in found.rows], model.predict_proba(found.samples.inputs).max(1)
    )


def test_the_seed_decides(run: Run) -> None:
    first, again, other = (suggest(run.path, 5, seed=seed, device="cpu") for seed in (0, 0, 1))
    assert first.rows == again.rows
    assert first.rows != other.rows


def test_of_many_items_some_are_looked_at(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 50)
    monkeypatch.setattr(module, "MOST_LABELLED", 3)
    found = suggest(run.path, 47, device="cpu")  # as many kinds as there are unlabelled items, less the labelled
    assert 44 <= len(found.rows) <= 47
    assert sum(row.cluster_size for row in found.rows) <= 50


def test_a_table_that_becomes_a_manifest(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["suggest", str(pictures / "run"), "--labels", "6", "--out", "next.csv", "--sheet", "next.png"]) == 0
    counted, said = capsys.readouterr().out.splitlines()
    assert counted == "6 samples to label, of 28 without one: next.csv"
    assert said.startswith("next: fill in its column label, then normatch train --config ")
    for words in (
        f"--config {pictures / 'run'}/config.json --labelled {pictures / 'run'} next.csv --labels None",
        f"{pictures / 'run'}-more",
    ):
        assert words in said
    rows = read_table(Path("next.csv"))
    assert list(rows[0]) == ["path", "label", "predicted", "probability", "cluster_size", "uncertainty"]
    assert all(row["label"] == "" for row in rows)
    listed = list_manifest(Path("next.csv")).train
    assert [path.resolve() for path in listed.paths] == [
        (pictures / "pets" / str(row.item)).resolve() for row in suggest(pictures / "run", 6).rows
    ]
    classes = {row["predicted"] for row in rows}
    with Image.open("next.png") as sheet:
        assert sheet.height == 8 + len(classes) * (26 + 96 + 8)  # a title, a picture and a gap for each


@pytest.mark.parametrize("name", ["tables/next.csv", "link/next.csv", "n.csv"])
def test_paths_are_relative_to_the_tables_folder(
    name: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tables/deep").mkdir(parents=True)
    Path("link").symlink_to("tables/deep")
    assert main(["suggest", str(pictures / "run"), "--labels", "3", "--out", name]) == 0
    assert all(path.is_file() for path in list_manifest(Path(name)).train.paths)
    assert not any(Path(row["path"]).is_absolute() for row in read_table(Path(name)))


def test_pictures_outside_the_folder_are_found_as_well(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pictures / "pets", "pets")
    Path("pets/unlabeled").rename("more")
    assert main(["train", "--data", "pets", "--unlabeled", "more", *QUICK, "--out", "run"]) == 0
    for moved in ([], ["--unlabeled", "more"]):
        assert main(["suggest", "run", "--labels", "3", "--out", "next.csv", "--force", *moved]) == 0
        assert all(row["path"].startswith("more/") for row in read_table(Path("next.csv")))
    names = fill_in(Path("next.csv"), "dog")
    command = ["train", "--data", "pets", "--unlabeled", "more", "--labelled", "run", "next.csv", *QUICK]
    assert main([*command, "--out", "second"]) == 0
    second = Run.open(Path("second"))
    assert sorted(map(os.path.basename, added(second))) == sorted(names)
    (second.path / "result.json").unlink()
    Path("next.csv").unlink()
    Path("more").rename("moved")
    moved = ["--unlabeled", "moved"]
    assert main(["train", "--out", "second", "--resume", *moved]) == 0
    assert main(["eval", "second", *moved]) == 0
    assert main(["report", "second", *moved]) == 0
    assert main(["suggest", "second", "--labels", "2", "--out", "again.csv", *moved]) == 0
    fill_in(Path("again.csv"), "cat")
    assert main(["train", "--data", "pets", *moved, "--labelled", "second", "again.csv", *QUICK, "--out", "third"]) == 0
    assert len(Run.open(Path("third")).added_labels) == 5
    assert all(name.startswith(str(tmp_path / "moved")) for name in added(Run.open(Path("third"))))


def test_links_to_folders_are_followed(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pictures / "pets", "real")
    Path("real/unlabeled").rename("elsewhere")
    Path("real/unlabeled").symlink_to("../elsewhere")
    Path("pets").symlink_to("real")
    assert main(["train", "--data", "pets", *QUICK, "--out", "run"]) == 0
    assert main(["suggest", "run", "--labels", "3", "--out", "next.csv"]) == 0
    fill_in(Path("next.csv"), "cat")
    for data in ("pets", "real"):
        assert main(["train", "--data", data, "--labelled", "run", "next.csv", *QUICK, "--out", f"on-{data}"]) == 0
        assert len(Run.open(Path(f"on-{data}")).added_labels) == 3


def test_no_label_is_lost_to_validation(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pictures / "pets", "pets")
    shares = ["--test-share", "0", "--validation", "0.2"]
    assert main(["train", "--data", "pets", *shares, *QUICK, "--out", "run"]) == 0
    first = Run.open(Path("run"))
    held = first.files["validation"]
    capsys.readouterr()
    for number, name in enumerate(["run", "run-more"], start=1):
        assert main(["suggest", name, "--labels", "4", "--out", f"{name}.csv"]) == 0
        fill_in(Path(f"{name}.csv"), "cat")
        *_, said = capsys.readouterr().out.splitlines()
        assert main(shlex.split(said.partition(", then normatch ")[2])) == 0
        capsys.readouterr()
        run = Run.open(Path(f"{name}-more"))
        assert run.files["validation"] == held
        assert len(run.files["labelled"]) == len(first.files["labelled"]) + 4 * number


def test_a_table_corrects_a_run_but_not_the_data(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pictures / "pets", "pets")
    rows = [f"{path},{path.parent.name.replace('unlabeled', '')}" for path in sorted(Path("pets").rglob("*.png"))]
    Path("all.csv").write_text("\n".join(["path,label", *rows]))
    for name in ("cat", "dog"):
        Path(f"{name}.csv").write_text(f"path,label\npets/unlabeled/20.png,{name}\n")
    train = ["train", "--data", "all.csv", *QUICK]
    assert main([*train, "--out", "run"]) == 0
    for name in ("cat", "dog"):
        assert main([*train, "--labelled", "run", f"{name}.csv", "--out", name]) == 0
    assert main([*train, "--labelled", "cat", "dog.csv", "--out", "corrected"]) == 0
    assert added(Run.open(Path("corrected"))) == {"pets/unlabeled/20.png": "dog"}
    assert main([*train, "--labelled", "cat", "dog", "--out", "both"]) == 2
    said = "is 'dog' here and 'cat' in another: add a table with the right label"
    assert said in capsys.readouterr().err

    Path("all.csv").write_text("\n".join(["path,label", *rows]).replace("20.png,", "20.png,dog"))
    assert main([*train, "--labelled", "cat", "--out", "third"]) == 2
    assert "labelled is cat, a run on other samples than those of all.csv here" in capsys.readouterr().err
    assert main(["eval", "cat"]) == 0
    assert main(["suggest", "cat", "--labels", "1"]) == 2  # a label has changed since


def test_labels_that_are_filled_in_train_a_run_with_the_same_test_items(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pictures / "pets", "pets")
    assert main(["train", "--data", "pets", *QUICK, "--out", "run"]) == 0
    assert main(["suggest", "run", "--labels", "5", "--out", "next.csv"]) == 0
    names = fill_in(Path("next.csv"), "cat", but=2)
    *_, said = capsys.readouterr().out.splitlines()
    assert main(shlex.split(said.partition(", then normatch ")[2])) == 0
    first, second = Run.open(Path("run")), Run.open(Path("run-more"))
    assert {Path(name).name for name in added(second)} == set(names)
    assert set(second.added_labels.values()) == {"cat"}
    assert second.files["test"] == first.files["test"]
    assert sorted(second.files["labelled"]) == sorted([*first.files["labelled"], *added(second)])
    before, after = (run.result["labels_by_class"] for run in (first, second))
    assert (after["cat"], after["dog"]) == (before["cat"] + 3, before["dog"])
    assert main(["compare", "run", "run-more"]) == 0
    assert "(McNemar, 3 test samples)" in capsys.readouterr().out

    # Its labels are the run's own now, wherever the table and the pictures are.
    assert main(["suggest", "run-more", "--labels", "2", "--out", "again.csv"]) == 0
    more = fill_in(Path("again.csv"), "dog")
    assert not set(more) & set(names)
    Path("next.csv").unlink()
    assert main(["train", "--data", "pets", "--labelled", "run-more", "again.csv", *QUICK, "--out", "third"]) == 0
    third = Run.open(Path("third"))
    assert {Path(name).name: label for name, label in added(third).items()} == {
        **dict.fromkeys(names, "cat"),
        **dict.fromkeys(more, "dog"),
    }
    Path("again.csv").unlink()
    model = (third.path / "model.safetensors").read_bytes()
    (third.path / "result.json").unlink()
    assert main(["train", "--out", "third", "--resume"]) == 0
    assert (third.path / "model.safetensors").read_bytes() == model
    Path("pets").rename("moved")
    assert main(["eval", "third", "--data", "moved"]) == 0
    assert main(["report", "third", "--data", "moved", "--out", "third.html"]) == 0


def test_labels_are_added_to_those_of_a_manifest(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pictures / "pets", "pets")
    names = {"cat": "cat", "dog": "dog", "unlabeled": ""}
    rows = [f"../{path},{names[path.parent.name]}" for path in sorted(Path("pets").rglob("*.png"))]
    Path("lists").mkdir()
    Path("lists/all.csv").write_text("\n".join(["path,label", *rows]))
    assert main(["train", "--data", "lists/all.csv", *QUICK, "--out", "run"]) == 0
    assert main(["suggest", "run", "--labels", "3", "--out", "next.csv"]) == 0
    labelled = fill_in(Path("next.csv"), "cat")
    command = ["train", "--data", "lists/all.csv", "--labelled", "run", "next.csv", *QUICK, "--out", "second"]
    assert main(command) == 0
    assert added(Run.open(Path("second"))) == {f"../pets/unlabeled/{name}": "cat" for name in labelled}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{free},"], "x.csv has no label yet: fill in its column label"),
        (["{free},cow"], r"is 'cow', and the classes of pets are cat, dog: correct it"),
        (["{test},cat"], r"\.png is a test image of pets: leave it out"),
        (["{known},dog"], r"\.png is 'dog', but 'cat' in pets: correct one of the two"),
        (["other.png,cat"], r"other\.png is no image of pets: leave it out"),
        (["gone.png,cat"], r"x\.csv, line 2: no such file: gone\.png"),
        (["{free},cat", "{free},dog"], "line 3: .* is listed already on line 2 as 'cat', now as 'dog'"),
        (["path;label", "{free};cat"], "commas"),
    ],
)
def test_what_cannot_be_a_label_is_named(
    lines: list[str],
    says: str,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pictures / "pets", "pets")
    files = Run.open(pictures / "run").files
    known = next(name for name in files["labelled"] if name.startswith("cat"))
    names = {"free": "pets/unlabeled/20.png", "test": f"pets/{files['test'][0]}", "known": f"pets/{known}"}
    shutil.copy("pets/unlabeled/20.png", "other.png")
    heading = [] if lines[0].startswith("path") else ["path,label"]
    Path("x.csv").write_text("\n".join([*heading, *lines]).format(**names) + "\n")
    assert main(["train", "--data", "pets", "--labelled", "x.csv", *QUICK, "--out", "new"]) == 2
    said = capsys.readouterr().err
    assert re.search(says, said), said
    assert not Path("new").exists()


def test_test_items_and_two_opinions_are_no_labels_to_learn(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pictures / "pets", "pets")
    Path("x.csv").write_text("path,label,split\npets/unlabeled/20.png,cat,train\npets/unlabeled/21.png,cat,test\n")
    assert main(["train", "--data", "pets", "--labelled", "x.csv", *QUICK, "--out", "new"]) == 2
    assert "x.csv lists test images: leave them out" in capsys.readouterr().err
    for name in ("cat", "dog"):
        Path(f"{name}.csv").write_text(f"path,label\npets/unlabeled/20.png,{name}\n")
    assert main(["train", "--data", "pets", "--labelled", "cat.csv", "dog.csv", *QUICK, "--out", "new"]) == 2
    assert "dog.csv: unlabeled/20.png is 'dog' here and 'cat' in another: correct one" in capsys.readouterr().err


@pytest.mark.parametrize("of", ["pictures", "digits"])
def test_suggestions_in_parquet(
    of: str, run: Run, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = run.path if of == "digits" else pictures / "run"
    for name in ("next.csv", "next.parquet"):
        assert main(["suggest", str(path), "--labels", "3", "--out", name, "--device", "cpu"]) == 0
    rows, stored = read_table(Path("next.csv")), pyarrow.parquet.read_table("next.parquet").to_pylist()
    assert [list(row) for row in stored] == [list(row) for row in rows]
    for row, written in zip(rows, stored, strict=True):
        assert (row["predicted"], int(row["cluster_size"])) == (written["predicted"], written["cluster_size"])
        assert float(row["probability"]) == pytest.approx(written["probability"], abs=1e-6)


def test_many_of_one_guess_have_several_rows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACROSS", 2)
    found = suggest(run.path, 15, device="cpu")
    rows = list(found.by_class())
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
    assert heading == "item,predicted,probability,cluster_size,uncertainty"
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
    assert main(["train", "--data", "own.npz", *QUICK, "--out", "run"]) == 0
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
    with pytest.raises(UserError, match="has no sample without a label"):
        suggest(tmp_path / "run", device="cpu")


SIZES = (5, 30, 10, 20, 15)


@pytest.fixture(scope="module")
def blobs() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Clusters of different sizes, far apart, in a mixed order; and the cluster of each sample."""
    rng = np.random.default_rng(0)
    cluster = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    return (rng.normal(size=(len(cluster), 3)) + 100 * np.eye(len(SIZES))[cluster, :3] + 90 * cluster[:, None]).astype(
        "f4"
    ), cluster


def test_each_cluster_has_one_near_its_mean(blobs: tuple[NDArray[np.float32], NDArray[np.int64]]) -> None:
    x, cluster = blobs
    chosen, clusters = unlabelled_clusters(x, len(SIZES))
    assert [len(members) for members in clusters] == sorted(SIZES, reverse=True)
    assert cluster[chosen].tolist() == np.argsort(SIZES)[::-1].tolist()
    for position, members in zip(chosen, clusters, strict=True):
        assert members.tolist() == np.flatnonzero(cluster == cluster[position]).tolist()
        middle = x[members].mean(0)
        assert position == members[np.linalg.norm(x[members] - middle, axis=1).argmin()]


def test_clusters_with_a_label_need_none(blobs: tuple[NDArray[np.float32], NDArray[np.int64]]) -> None:
    x, cluster = blobs
    labelled = np.array([np.flatnonzero(cluster == k)[0] for k in (1, 2)])
    chosen, clusters = unlabelled_clusters(x, 3, labelled)
    assert cluster[chosen].tolist() == [3, 4, 0]
    assert [len(members) for members in clusters] == [20, 15, 5]


def test_clusters_of_the_largest_weight_come_first(blobs: tuple[NDArray[np.float32], NDArray[np.int64]]) -> None:
    x, cluster = blobs
    weights = np.array([0.5, 0.1, 0.0, 0.01, 0.3], np.float32)[cluster]  # in all 2.5, 3, 0, 0.2, 4.5
    assert cluster[unlabelled_clusters(x, 5, weights=weights)[0]].tolist() == [4, 1, 0, 3, 2]


@settings(max_examples=60)
@given(
    points=st.lists(st.tuples(*[st.integers(-3, 3)] * 2), min_size=3, max_size=30),
    count=st.integers(1, 12),
    known=st.integers(0, 3),
    seed=st.integers(0, 5),
)
def test_what_is_chosen(points: list[tuple[int, int]], count: int, known: int, seed: int) -> None:
    x, labelled = np.array(points, np.float32), np.arange(known)
    chosen, clusters = unlabelled_clusters(x, count, labelled, seed=seed)
    again, _ = unlabelled_clusters(x, count, labelled, seed=seed)
    assert chosen.tolist() == again.tolist()
    sizes = [len(members) for members in clusters]
    assert sizes == sorted(sizes, reverse=True)
    together = [position for members in clusters for position in members]
    assert len(set(together)) == len(together)
    assert all(position in members for position, members in zip(chosen, clusters, strict=True))
    assert not {points[i] for i in together} & set(points[:known])
    different = len(set(points))
    assert len(chosen) <= min(count, different - len(set(points[:known])))
    if different >= known + count:
        assert len(chosen) == count
