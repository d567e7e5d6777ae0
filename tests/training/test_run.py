"""A run's folder: what is in it, that it is never overwritten, and that damage is noticed."""

import csv
import errno
import json
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

from normatch.autoconfig import plan
from normatch.config import Config
from normatch.data import Corpus, Dataset, Split
from normatch.errors import UserError
from normatch.evaluate.held_out import evaluate_run
from normatch.evaluate.predict import load
from normatch.recipes import own
from normatch.training import Run, prepare, train
from normatch.training.metrics import Record
from normatch.training.progress import Lines
from normatch.training.run import RunRecorder
from tests.data.original_formats import random_bytes, save_png


@pytest.fixture
def recorded(tiny_config: Config, tmp_path: Path) -> Run:
    """A run without a model whose records of steps 2 to 12 are there."""
    nothing = Dataset(np.zeros((1, 1), np.float32), np.zeros(1, np.int64), ("a",))
    run = Run.create(tmp_path / "run", tiny_config, Split(*[np.arange(1)] * 3), Corpus("nothing", nothing))
    (run.path / "metrics.jsonl").write_text(
        "".join(f'{{"step": {step}, "seconds": 1.0}}\n' for step in range(2, 13, 2))
    )
    return run


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_finished_run_has_its_files(finished: Run) -> None:
    assert {p.name for p in finished.path.iterdir()} == {
        *(".lock", "config.json", "split.json", "metrics.jsonl", "warnings.json", "events", "checkpoint"),
        *("model.safetensors", "model.json", "predictions.csv", "result.json"),
    }
    result = finished.result
    assert (result["n"], result["evaluated_on"], result["steps"], result["labels"]) == (360, "test", 12, 40)
    assert finished.accuracy == result["accuracy"]
    assert {"hardware", "versions", "date", "seed", "method"} <= set(result)
    assert set(result["labels_by_class"].values()) == {4}
    assert sum(result["label_counts"].values()) == 1437, "also labels that it did not use"
    assert list(read_table(finished.path / "predictions.csv")[0]) == ["sample", "label", "probability", "truth"]
    assert set(json.loads((finished.path / "split.json").read_text())) == {
        *("sha256", "digest", "labelled", "unlabelled", "validation")
    }
    lines = list(finished.metrics())
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10, 12]
    assert all("loss" in line and len(line["pseudo/classes"]) == 10 for line in lines)
    evaluated = {"labelled/accuracy", "test/accuracy", "validation/accuracy"}
    assert [evaluated & set(line) for line in lines] == [set(), evaluated] * 3


def test_predictions_are_the_kept_models(finished: Run) -> None:
    corpus = prepare(finished.config).corpus
    assert corpus.test is not None
    p = load(finished.path, calibrated=False).predict_proba(corpus.test.inputs)
    rows = read_table(finished.path / "predictions.csv")
    assert [row["label"] for row in rows] == [corpus.test.classes[k] for k in p.argmax(1)]
    assert [row["truth"] for row in rows] == [corpus.test.classes[k] for k in corpus.test.labels]
    np.testing.assert_allclose([float(row["probability"]) for row in rows], p.max(1), atol=1e-6)
    truth, guess = ([row[name] for row in rows] for name in ("truth", "label"))
    assert finished.accuracy == pytest.approx(accuracy_score(truth, guess))
    recall, f1 = balanced_accuracy_score(truth, guess), f1_score(truth, guess, average="macro")
    assert (finished.result["balanced_accuracy"], finished.result["macro_f1"]) == pytest.approx((recall, f1))
    assert f"balanced accuracy {recall:.2%}, macro-F1 {f1:.2%}, " in finished.describe()


def test_the_config_and_split_can_be_read_back(finished: Run, tiny_config: Config) -> None:
    assert finished.config == tiny_config.replace(validation=0.1, threads=finished.config.threads)
    split, labels = finished.split, prepare(finished.config).corpus.train.labels
    assert np.bincount(labels[split.labelled]).tolist() == [4] * 10
    assert len(split.validation) == 144
    assert not set(split.validation) & set(split.unlabelled)


def test_one_process_at_a_time_trains_a_run(tiny_config: Config, tmp_path: Path) -> None:
    refused: list[str] = []

    class Meddler(Lines):
        def __call__(self, step: int, total: int, record: Record) -> None:
            with pytest.raises(UserError) as error:
                train(tiny_config, tmp_path / "run", resume=True)
            refused.append(str(error.value))

    train(tiny_config, tmp_path / "run", progress=Meddler("digits"))
    assert set(refused) == {f"{tmp_path / 'run'} is being trained by another process: wait for it, or stop it"}


def test_a_folder_that_cannot_be_filled_leaves_nothing_behind(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left") as caught:
            train(tiny_config, tmp_path / "run")
        assert caught.value.filename == str(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    assert ", 1 step in " in train(tiny_config.replace(steps=1), tmp_path / "run").describe()


@pytest.mark.parametrize("parent", ["file", "locked"])
def test_a_folder_that_cannot_be_made_is_named_before_the_data_is_read(
    parent: str, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "locked").mkdir()
    allowed = os.access
    # The tests may be run by somebody to whom no folder is closed.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "locked" and allowed(path, mode))
    with pytest.raises(UserError, match=rf"/{parent} is no folder that can be written to\): choose another --out"):
        plan(tiny_config.replace(data="nowhere"), tmp_path / parent / "deep" / "run", automatic=False)


DEEP = "[" * 200_000


@pytest.mark.parametrize(
    ("name", "was", "now", "says"),
    [
        ("config.json", '"seed": 0', '"seed": 1', r"it was changed: its sha256 is of other content"),
        ("split.json", '"labelled": [', '"labelled": [0,', r"it was changed: its sha256 is of other content"),
        ("config.json", "{", DEEP, "it is nested too deeply"),
        ("split.json", "{", DEEP, "it is nested too deeply"),
        ("result.json", "{", DEEP, "it is nested too deeply"),
        ("warnings.json", "[", DEEP, "it is nested too deeply"),
        ("metrics.jsonl", "{", DEEP, "a line is no record"),
        ("metrics.jsonl", '"loss": ', '"loss": 1e999, "x": ', "a line is no record"),
        ("metrics.jsonl", '"loss": ', '"loss": true, "x": ', "a line is no record"),
        ("result.json", '"accuracy": ', '"accuracy": -', "accuracy is -"),
        ("result.json", '"macro_f1": ', '"macro_f1": 1', "macro_f1 is 1"),
        ("result.json", '"balanced_accuracy": 0', '"balanced_accuracy": NaN, "x": 0', r"balanced_accuracy is nan\)"),
    ],
)
def test_a_damaged_run_is_named(name: str, was: str, now: str, says: str, finished: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(finished.path, tmp_path / "run")))
    content = (run.path / name).read_text()
    assert was in content
    (run.path / name).write_text(content.replace(was, now, 1))
    with pytest.raises(UserError, match=rf"{name} cannot be read \({says}") as error:
        _ = run.config, run.split, run.result, run.warnings, list(run.metrics())
    assert "\n" not in str(error.value)


def test_records_of_later_steps_and_damage_after_them_are_dropped(recorded: Run) -> None:
    with (recorded.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"st')
    for step, left in ((12, [2, 4, 6, 8, 10, 12]), (5, [2, 4]), (2, [2]), (0, [])):
        assert [record["step"] for record in recorded.metrics_until(step)] == left
        assert [record["step"] for record in recorded.metrics()] == left


@pytest.mark.parametrize(
    "damage", [b"\0\0\0\n", b"\xff\xfe\n", b'{"st\n', b"3\n", b'{"step": 6}\n', b"[" * 200_000, b"\0\0"]
)
def test_damaged_records_are_dropped_if_no_record_before_the_checkpoint_is_lost(damage: bytes, recorded: Run) -> None:
    file = recorded.path / "metrics.jsonl"
    content = file.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*content[:2], damage, *content[2:]])
    file.write_bytes(damaged)
    with pytest.raises(UserError, match=r"metrics.jsonl is damaged \(it lacks the record of step 6\): restore it, or"):
        recorded.metrics_until(6)
    assert file.read_bytes() == damaged
    assert [record["step"] for record in recorded.metrics_until(5)] == [2, 4]


def test_pictures_are_called_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pixels = random_bytes(24, 8, 8, 1)
    listed = [f"{('ape', 'bee')[i % 2]}/{i}.png" for i in range(24)]
    for name, image in zip(listed, pixels, strict=True):
        save_png(Path("pets") / name, image)
    save_png(Path("pets/unlabeled/deep/x.png"), pixels[0])
    save_png(Path("more/y.png"), pixels[1])
    elsewhere = tmp_path / "more" / "y.png"
    lines = [f"../pets/{name},{name[:3]}" for name in listed]
    Path("lists").mkdir()
    Path("lists/all.csv").write_text("\n".join(["path,label", f"{elsewhere},", *lines]))
    short = {"steps": 2, "epoch": 1, "batch": 4, "ratio": 1, "test_share": 0.25, "validation": 0.25, "labels": 4}
    config = own("pets").replace(unlabelled=Path("more"), **short)
    # By a folder, and by a manifest, whose files are called as it calls them.
    for data, prefix in (("pets", ""), ("lists/all.csv", "../pets/")):
        changed = config.replace(data=data, unlabelled=None if prefix else config.unlabelled)
        run = train(changed, Path(f"run{len(prefix)}"))
        corpus = prepare(changed).corpus
        assert corpus.test is not None
        assert corpus.train.files is not None
        rows = read_table(run.path / "predictions.csv")
        assert list(rows[0]) == ["sample", "file", "label", "probability", "truth"]
        assert [row["sample"] for row in rows] == [str(i) for i in range(6)]
        for row, image in zip(rows, np.asarray(corpus.test.inputs), strict=True):
            assert row["truth"] == row["file"].removeprefix(prefix)[:3]
            np.testing.assert_array_equal(image, pixels[listed.index(row["file"].removeprefix(prefix))])
        files = json.loads((run.path / "split.json").read_text())["files"]
        assert files["test"] == [row["file"] for row in rows]
        assert files["validation"] == corpus.train.files[run.split.validation].tolist()
        assert {name: len(files[name]) for name in files} == {"labelled": 4, "validation": 5, "test": 6}
        others = {*corpus.train.files} - {f"{prefix}{name}" for name in listed}
        assert others == {str(elsewhere), *([] if prefix else ["unlabeled/deep/x.png"])}


def test_names_that_are_not_text_do_no_harm(tmp_path: Path) -> None:
    for i in range(8):
        place = tmp_path / "pets" / ("ape", "bee")[i % 2] / f"{i}.png"
        save_png(place, random_bytes(8, 8, 1))
        try:
            os.rename(place, os.fsencode(place.with_suffix("")) + b'-\xe9, "\n.png')
        except OSError:
            pytest.skip("this file system takes only text for names")
    config = own(str(tmp_path / "pets")).replace(steps=1, epoch=1, batch=4, ratio=1, test_share=0.5)
    run = train(config, tmp_path / "run")
    files = json.loads((run.path / "split.json").read_text())["files"]["test"]
    assert all((tmp_path / "pets" / name).is_file() for name in files)
    rows = read_table(run.path / "predictions.csv")
    assert [row["file"] for row in rows] == [name.replace("\udce9", r"\udce9") for name in files]
    assert "accuracy" in evaluate_run(run.path, device="cpu")


@pytest.mark.parametrize("resumed_at", [0, 20])
def test_events_of_steps_that_are_done_again_are_dropped(tmp_path: Path, resumed_at: int) -> None:
    """TensorBoard shows each step once, that of the checkpoint included."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for begin, steps in ((0, (10, 20, 30)), (resumed_at, range(resumed_at + 10, 50, 10))):
        with RunRecorder(tmp_path, begin) as recorder:
            for step in steps:
                recorder.write(step, {"loss": 1.0})
        if 30 in steps and 40 not in steps:
            # TensorBoard reads files in the order of their names, which in one second is that of 9 and 10 as text.
            (file,) = (tmp_path / "events").glob(f"*.{os.getpid()}.*")
            file.rename(file.with_name("events.out.tfevents.0000000000.earlier"))
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [10, 20, 30, 40]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught, RunRecorder(tmp_path, 0) as recorder:
        recorder.write(1, {"loss": 1.0})
    assert caught.value.filename == str(tmp_path / "metrics.jsonl")


@pytest.mark.parametrize("written", [0, 1])
def test_a_disk_that_is_full_for_events_alone_is_told_once(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """TensorBoard writes them in a thread, whose traceback nobody could use."""
    hook, left = threading.excepthook, [None] * written

    def full(*_: object) -> None:
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        left.pop()

    def record() -> None:
        until = time.monotonic() + 10
        with RunRecorder(tmp_path, 0) as recorder:
            while time.monotonic() < until:
                recorder.write(1, {"loss": 1.0})

    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
    with pytest.raises(OSError, match="No space left") as caught:
        record()
    assert caught.value.filename == str(tmp_path / "events")
    assert capsys.readouterr().err == ""
    assert threading.excepthook == hook
