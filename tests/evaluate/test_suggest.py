"""What to label next: samples of the run's own data that have no label, as a table that becomes a manifest."""

import csv
import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from normatch.cli import main
from normatch.config import Config
from normatch.data.manifest import list_manifest
from normatch.errors import UserError
from normatch.evaluate import load
from normatch.evaluate import suggest as module
from normatch.evaluate.suggest import suggest, unlabelled_clusters
from normatch.text import read_cell
from normatch.training import Run, train
from normatch.training.job import open_corpus, with_test_set
from normatch.training.label_file import read_label_files

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
        Image.fromarray(image).save(where / "pets" / name / f"{'=' * (i > 20)}{i}.png")
    assert main(["train", "--data", str(where / "pets"), *QUICK, "--out", str(where / "run")]) == 0
    return where


@pytest.fixture
def desk(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a copy of the pictures."""
    shutil.copytree(pictures / "pets", tmp_path / "pets")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_table(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(path).read_text().splitlines()))


def fill_in(path: str, label: str, *, but: int = 0) -> list[str]:
    """Give all rows of a table but the last few a label; the names of the files that have it."""
    rows = read_table(path)
    for row in rows[: len(rows) - but]:
        row["label"] = label
    with Path(path).open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return [Path(read_cell(row["path"])).name for row in rows if row["label"]]


def added(name: str) -> dict[str, str]:
    """The names of the files to which label files gave a label in a run, and these."""
    run = Run.open(Path(name))
    files = with_test_set(run.config, open_corpus(run.config), run).train.files
    assert files is not None
    return {os.path.basename(files[at]): label for at, label in run.added_labels.items()}


def test_they_are_unlabelled_training_samples(run: Run) -> None:
    found = suggest(run.path, 15, device="cpu")
    samples = [row.sample for row in found.rows]
    assert len(set(samples)) == 15
    free = set(run.split.unlabelled.tolist()) - set(run.split.labelled.tolist())
    assert set(samples) <= free
    assert not set(samples) & set(run.split.validation.tolist())
    assert found.unlabelled == len(free)
    uncertainty = [row.uncertainty or 0.0 for row in found.rows]
    assert uncertainty == sorted(uncertainty, reverse=True)
    assert all(sum_ < row.cluster_size for sum_, row in zip(uncertainty, found.rows, strict=True))
    model = load(run.path)
    assert [row.predicted for row in found.rows] == model.predict(found.samples.inputs)
    np.testing.assert_array_equal(
        [row.probability for row in found.rows], model.predict_proba(found.samples.inputs).max(1)
    )
    again, other = (suggest(run.path, 15, seed=seed, device="cpu") for seed in (0, 1))
    assert found.rows == again.rows
    assert found.rows != other.rows


def test_of_many_samples_some_are_clustered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 50)
    monkeypatch.setattr(module, "MOST_LABELLED", 3)
    found = suggest(run.path, 47, device="cpu")  # with the labelled, as many clusters as there are samples
    assert 44 <= len(found.rows) <= 47
    assert sum(row.cluster_size for row in found.rows) <= 50


@pytest.mark.parametrize("out", ["next.csv", "tables/next.csv", "link/next.csv"])
def test_a_table_that_becomes_a_manifest(
    out: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tables/deep").mkdir(parents=True)
    Path("link").symlink_to("tables/deep")
    where = pictures / "run"
    assert main(["suggest", str(where), "--labels", "6", "--out", out, "--sheet", "next.png"]) == 0
    counted, said = capsys.readouterr().out.splitlines()
    assert counted == f"6 samples to label, of 28 without one: {out}"
    assert said.startswith(f"next: fill in its column label, then normatch train --config {where}/config.json ")
    assert f"--labelled {where} {out} --labels None --out {where}-more" in said
    assert main(["suggest", str(where), "--labels", "6", "--out", "next.parquet"]) == 0
    rows, stored = read_table(out), pyarrow.parquet.read_table("next.parquet").to_pylist()
    assert [row["cluster_size"] for row in rows] == [str(row["cluster_size"]) for row in stored]
    assert (
        list(stored[0]) == list(rows[0]) == ["path", "label", "predicted", "probability", "cluster_size", "uncertainty"]
    )
    assert all(row["label"] == "" for row in rows)
    assert not any(Path(row["path"]).is_absolute() for row in rows)
    expected = [pictures / "pets" / str(row.sample) for row in suggest(where, 6).rows]
    assert [path.resolve() for path in list_manifest(Path(out)).paths] == [path.resolve() for path in expected]
    classes = {row["predicted"] for row in rows}
    with Image.open("next.png") as sheet:
        assert sheet.height == 8 + len(classes) * (26 + 96 + 8)  # a title, a picture and a gap for each


def test_many_of_one_class_have_several_rows_of_the_sheet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACROSS", 2)
    found = suggest(run.path, 15, device="cpu")
    titles, pictures = zip(*found.by_class(), strict=True)
    assert sum(map(len, pictures)) == 15
    assert max(map(len, pictures)) == 2
    assert [title[0] for title in titles] == sorted(title[0] for title in titles)
    samples = [int(sample) for title in titles for sample in title[4:].split(", ")]
    assert sorted(samples) == sorted(int(row.sample) for row in found.rows)


def test_standard_output_has_the_table_alone(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suggest", str(run.path), "--labels", "15", "--seed", "1", "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    heading, *rows = shown.out.splitlines()
    assert heading == "sample,predicted,probability,cluster_size,uncertainty"
    expected, other = (suggest(run.path, 15, seed=seed, device="cpu").rows for seed in (1, 0))
    assert [int(row.split(",")[0]) for row in rows] == [row.sample for row in expected] != [row.sample for row in other]
    assert shown.err.endswith("without one: standard output\n")


def test_where_labels_are_known_the_next_run_is_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the data where it is now."""
    monkeypatch.chdir(tmp_path)
    np.savez("old.npz", x=np.random.default_rng(0).normal(size=(60, 5)), y=np.arange(60) % 3)
    assert main(["train", "--data", "old.npz", *QUICK, "--labels", "6", "--out", "run"]) == 0
    Path("old.npz").rename("new.npz")
    capsys.readouterr()
    assert main(["suggest", "run", "--data", "new.npz", "--labels", "4", "--out", "next.csv"]) == 0
    _, said = capsys.readouterr().out.splitlines()
    program, *argv = shlex.split(said.removeprefix("next: "))
    assert program == "normatch"
    assert main(argv) == 0
    first, second = Run.open(Path("run")), Run.open(Path("run-10"))
    suggested = [int(row["sample"]) for row in read_table("next.csv")]
    assert second.split.labelled.tolist() == sorted([*first.split.labelled.tolist(), *suggested])
    changed = {"data": second.config.data, "labelled": second.config.labelled, "labels": 10}
    assert second.config == first.config.replace(**changed)


@pytest.mark.parametrize("shares", [["--test-share", "0.2"], ["--test-share", "0", "--validation", "0.2"]])
def test_labels_that_are_filled_in_train_a_run_with_the_same_held_out_samples(
    shares: list[str], desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--data", "pets", *shares, *QUICK, "--out", "run"]) == 0
    first, given = Run.open(Path("run")), dict[str, str]()
    name, table = "run", "pets/unlabeled/next.csv"
    for label in ("cat", "dog"):
        assert main(["suggest", name, "--labels", "5", "--out", table, "--force"]) == 0
        assert any(row["path"].startswith("'=") for row in read_table(table)), "no formulas, but read back as files"
        names = fill_in(table, label, but=2)
        assert not set(names) & set(given)
        given |= dict.fromkeys(names, label)
        *_, said = capsys.readouterr().out.splitlines()
        assert main(shlex.split(said.partition(", then normatch ")[2])) == 0
        name = f"{name}-more"
        more = Run.open(Path(name))
        assert added(name) == given
        assert len(more.files["labelled"]) == len(first.files["labelled"]) + len(given)
        for part in ("test", "validation"):
            assert more.files.get(part) == first.files.get(part)
        capsys.readouterr()
    # The labels are the run's own now, wherever the table and the pictures are.
    Path(table).unlink()
    model = (more.path / "model.safetensors").read_bytes()
    (more.path / "result.json").unlink()
    assert main(["train", "--out", name, "--resume"]) == 0
    assert (more.path / "model.safetensors").read_bytes() == model
    Path("pets").rename("moved")
    assert main(["eval", name, "--data", "moved"]) == 0


def test_pictures_outside_the_folder_and_behind_links_are_found(desk: Path) -> None:
    Path("pets/unlabeled").rename("more")
    Path("pets").rename("real")
    Path("pets").symlink_to("real")
    for data, name in (["pets", "run"], ["real", "second"]):
        command = ["train", "--data", data, "--unlabeled", "more", *QUICK, "--out", name]
        assert main(command if name == "run" else [*command, "--labelled", "run", "next.csv"]) == 0
        if name == "run":
            assert main(["suggest", "run", "--labels", "3", "--out", "next.csv"]) == 0
            assert all(row["path"].startswith("more/") for row in read_table("next.csv"))
            names = fill_in("next.csv", "dog")
    assert sorted(added("second")) == sorted(names)
    Path("more").rename("moved")
    assert main(["suggest", "second", "--labels", "2", "--out", "again.csv", "--unlabeled", "moved"]) == 0
    assert all(row["path"].startswith("moved/") for row in read_table("again.csv"))


def test_a_label_file_corrects_a_run_but_not_the_data(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"../{path},{path.parent.name.replace('unlabeled', '')}" for path in sorted(Path("pets").rglob("*.png"))]
    Path("lists").mkdir()
    Path("lists/all.csv").write_text("\n".join(["path,label", *rows]))
    for name in ("cat", "dog"):
        Path(f"{name}.csv").write_text(f"path,label\npets/unlabeled/20.png,{name}\n")
    train = ["train", "--data", "lists/all.csv", *QUICK]
    assert main([*train, "--out", "run"]) == 0
    for name in ("cat", "dog"):
        assert main([*train, "--labelled", "run", f"{name}.csv", "--out", name]) == 0
    assert main([*train, "--labelled", "cat", "dog.csv", "--out", "corrected"]) == 0
    assert added("corrected") == {"20.png": "dog"}
    capsys.readouterr()
    assert main([*train, "--labelled", "cat", "dog", "--out", "both"]) == 2
    assert "is 'dog' here and 'cat' in another: add a table with the right label" in capsys.readouterr().err
    Path("lists/all.csv").write_text("\n".join(["path,label", *rows]).replace("/20.png,", "/20.png,dog"))
    assert main([*train, "--labelled", "cat", "--out", "third"]) == 2
    assert "labelled is cat, a run on other samples than those of lists/all.csv here" in capsys.readouterr().err
    for verb in ("eval", "suggest"):
        assert main([verb, "cat"]) == 2
        assert "the data has changed since cat was started" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{free},"], "0.csv has no label yet: fill in its column label"),
        (["{free},cow"], r"is 'cow', and the classes of .*pets are cat, dog: correct it"),
        (["{test},cat"], r"\.png is a test image of .*pets: leave it out"),
        (["{known},dog"], r"\.png is 'dog', but 'cat' in .*pets: correct one of the two"),
        (["{other},cat"], r"other\.png is no image of .*pets: leave it out"),
        (["gone.png,cat"], r"0\.csv, line 2: no such file: .*gone\.png"),
        (["{free},cat", "{free},dog"], "line 3: .* is listed already on line 2"),
        (["path;label", "{free};cat"], "commas"),
        (["path,label,split", "{free},cat,test"], "0.csv lists test"),
        (["{free},cat", "|", "path,label", "{free},dog"], "is 'dog' here and 'cat' in another: correct one"),
    ],
)
def test_what_cannot_be_a_label_is_named(lines: list[str], says: str, pictures: Path, tmp_path: Path) -> None:
    run = Run.open(pictures / "run")
    corpus, pets = with_test_set(run.config, open_corpus(run.config)), pictures / "pets"
    known = next(name for name in run.files["labelled"] if name.startswith("cat"))
    shutil.copy(pets / "unlabeled" / "20.png", tmp_path / "other.png")
    names = {"free": pets / "unlabeled" / "20.png", "test": pets / run.files["test"][0], "known": pets / known}
    text = "\n".join([*([] if lines[0].startswith("path") else ["path,label"]), *lines])
    files = []
    for i, content in enumerate(text.format(**names, other=tmp_path / "other.png").split("|\n")):
        files.append(tmp_path / f"{i}.csv")
        files[-1].write_text(content)
    with pytest.raises(UserError, match=says):
        read_label_files(files, corpus)


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
    assert len(read_table("next.csv")) == 4
    assert capsys.readouterr().out.endswith("without one: next.csv\n")  # their classes are not known


def test_without_unlabelled_samples_there_is_nothing_to_suggest(desk: Path) -> None:
    shutil.rmtree("pets/unlabeled")
    quick = ["--steps", "2", "--epoch", "1", "--batch", "4", "--method", "supervised", "--device", "cpu"]
    assert main(["train", "--data", "pets", *quick, "--out", "run"]) == 0
    with pytest.raises(UserError, match="has no sample without a label"):
        suggest("run", device="cpu")


def test_clusters_that_are_apart_are_found() -> None:
    """Each has one sample, that nearest to its mean; those with a label have none; the largest weight comes first."""
    rng, sizes = np.random.default_rng(0), (5, 30, 10, 20, 15)
    cluster = rng.permutation(np.repeat(np.arange(5), sizes))
    x = (rng.normal(size=(80, 3)) + 100 * np.eye(5)[cluster, :3] + 90 * cluster[:, None]).astype("f4")
    none, ones = np.zeros(0, np.int64), np.ones(80, np.float32)
    chosen, clusters = unlabelled_clusters(x, 5, none, ones)
    assert cluster[chosen].tolist() == [1, 3, 4, 2, 0], "by size"
    for position, members in zip(chosen, clusters, strict=True):
        assert members.tolist() == np.flatnonzero(cluster == cluster[position]).tolist()
        assert position == members[np.linalg.norm(x[members] - x[members].mean(0), axis=1).argmin()]
    labelled = np.array([np.flatnonzero(cluster == k)[0] for k in (1, 2)])
    assert cluster[unlabelled_clusters(x, 3, labelled, ones)[0]].tolist() == [3, 4, 0]
    weights = np.array([0.5, 0.1, 0.0, 0.01, 0.3], np.float32)[cluster]  # in all 2.5, 3, 0, 0.2, 4.5
    assert cluster[unlabelled_clusters(x, 5, none, weights)[0]].tolist() == [4, 1, 0, 3, 2]


@settings(max_examples=60)
@given(
    points=st.lists(st.tuples(*[st.integers(-3, 3)] * 2), min_size=3, max_size=30),
    count=st.integers(1, 12),
    known=st.integers(0, 3),
    seed=st.integers(0, 5),
)
def test_what_is_chosen(points: list[tuple[int, int]], count: int, known: int, seed: int) -> None:
    x, labelled = np.array(points, np.float32), np.arange(known)
    chosen, clusters = unlabelled_clusters(x, count, labelled, np.ones(len(x), np.float32), seed)
    again, _ = unlabelled_clusters(x, count, labelled, np.ones(len(x), np.float32), seed)
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


@pytest.fixture
def album(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with 60 pictures of three kinds, some deeper than others, none with a label."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "side_to_embed", lambda *_: 32)
    rng = np.random.default_rng(0)
    for i in range(60):
        image = rng.integers(0, 60, (24, 24, 3), dtype=np.uint8)
        image[:, :: (2, 6, 24)[i % 3]] = 255
        where = tmp_path / "album" / ("." if i % 2 else "unlabeled/2019")
        where.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(where / f"{'abc'[i % 3]}{i}.png")
    return tmp_path


@pytest.mark.parametrize("weights", [True, False])
def test_the_first_labels_of_a_folder_without_any(
    weights: bool, album: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By pretrained features or, without weights, by gradients; then the loop, to a run with these labels."""
    if not weights:
        monkeypatch.setattr(module, "installed_weights", lambda: None)
    assert main(["suggest", "--data", "album", "--count", "6", "--out", "next.csv", "--sheet", "next.png"]) == 0
    said, command = capsys.readouterr().out.splitlines()
    by = "features of efficientnet-lite0" if weights else "gradients (HOG)"
    assert said == f"6 samples to label, of 60 without one: next.csv, by {by}"
    rows = read_table("next.csv")
    assert list(rows[0]) == ["path", "label", "cluster_size"]
    kinds = [Path(row["path"]).name[0] for row in rows]
    assert {*kinds} == {*"abc"}, "each of them"
    sizes = [int(row["cluster_size"]) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == 60
    with Image.open("next.png") as sheet:
        assert sheet.height == 8 + 26 + 96 + 8
    argv = shlex.split(command.partition("normatch ")[2])
    assert argv == ["train", "--data", "album", "--labelled", "next.csv"]
    assert main(argv) == 2
    assert "next.csv has no labelled sample" in capsys.readouterr().err
    for row, kind in zip(rows, kinds, strict=True):
        row["label"] = kind
    Path("next.csv").write_text("\n".join(["path,label", *(f"{row['path']},{row['label']}" for row in rows)]))
    assert main([*argv, *QUICK, "--out", "run"]) == 0
    run = Run.open(Path("run"))
    assert (len(run.split.labelled), len(run.split.unlabelled)) == (6, 60)
    assert load(run.path).classes == ("a", "b", "c")
    assert main(["suggest", "run", "--labels", "4", "--out", "more.csv"]) == 0
    assert not {row["path"] for row in rows} & {row["path"] for row in read_table("more.csv")}


def test_where_some_have_labels_others_are_suggested_and_added(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "side_to_embed", lambda *_: 32)
    monkeypatch.setattr(module, "installed_weights", lambda: None)
    assert main(["suggest", "--data", "pets", "--labels", "5", "--out", "next.csv"]) == 0
    assert "5 samples to label, of 28 without one" in capsys.readouterr().out
    names = fill_in("next.csv", "cat")
    assert main(["train", "--data", "pets", "--labelled", "next.csv", *QUICK, "--test-share", "0", "--out", "run"]) == 0
    assert sorted(added("run")) == sorted(names)
    assert len(Run.open(Path("run")).split.labelled) == 12 + 5, "those of the folder, too"


def test_vectors_are_clustered_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    y = np.arange(60) % 3
    x = 9 * np.eye(3, 5)[y] + np.random.default_rng(0).normal(size=(60, 5))
    np.savez("own.npz", x=x, y=np.full(60, -1))
    found = module.suggest_first("own.npz", 3)
    assert {y[int(row.sample)] for row in found.rows} == {0, 1, 2}
    assert found.fields == ["sample", "cluster_size"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("suggest", "suggest needs a run, or --data with the folder of pictures"),
        ("suggest --data nowhere", "no such folder or file"),
        ("suggest --data empty", "no images in empty"),
        ("suggest --data album --labels 0", "labels is 0"),
        ("suggest --data album --out next.txt", "ends in .csv or .parquet"),
    ],
)
def test_first_labels_of_nothing(argv: str, says: str, album: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert main(argv.split()) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
