"""A finished run scored anew."""

from pathlib import Path

import numpy as np
import pytest

from normatch.cli import main
from normatch.errors import UserError
from normatch.evaluate.score import describe, score_run
from normatch.recipes import own
from normatch.report import numbers_of
from normatch.training import train
from normatch.training.run import Moved
from tests.data.original_formats import save_png


def test_test_items_without_a_label_are_not_scored(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels, test_labels = np.arange(60) % 3, np.arange(50) % 3
    data = tmp_path / "data.npz"
    np.savez(
        data,
        x=rng.normal(size=(60, 4)) + labels[:, None],
        y=labels,
        test_x=rng.normal(size=(50, 4)) + test_labels[:, None],
        test_y=np.where(np.arange(50) % 2, test_labels, -1),
    )
    config = own(str(data)).replace(steps=3, epoch=1, batch=6, ratio=2, device="cpu")
    run = train(config, tmp_path / "run")
    scored = score_run(run.path, device="cpu")
    assert (scored["evaluated_on"], scored["n"]) == ("test", 25)
    assert (run.result["n"], run.result["accuracy"]) == (25, scored["accuracy"])


def test_without_a_test_set_validation_items_are_scored_while_all_items_are_there(tmp_path: Path) -> None:
    labels = np.arange(60) % 3
    x = np.random.default_rng(0).normal(size=(60, 4)) + labels[:, None]
    data = tmp_path / "data.npz"
    np.savez(data, x=x, y=labels)
    config = own(str(data)).replace(steps=3, epoch=1, batch=6, ratio=2, device="cpu", test_share=0.0, validation=0.2)
    run = train(config, tmp_path / "run")
    scored = score_run(run.path, device="cpu")
    assert (scored["evaluated_on"], scored["n"], scored["accuracy"]) == ("validation", 12, run.result["accuracy"])
    np.savez(data, x=x[:-1], y=labels[:-1])
    with pytest.raises(UserError, match="the data has changed since"):
        score_run(run.path, device="cpu")


def test_data_that_has_moved_is_read_from_its_new_place(tmp_path: Path) -> None:
    labels = np.arange(60) % 3
    old, new, other = (tmp_path / name for name in ("old.npz", "new.npz", "other.npz"))
    np.savez(old, x=np.random.default_rng(0).normal(size=(60, 4)) + labels[:, None], y=labels)
    np.savez(other, x=np.zeros((60, 5)), y=labels)
    config = own(str(old)).replace(steps=3, epoch=1, batch=6, ratio=2, device="cpu", test_share=0.2)
    run = train(config, tmp_path / "run")
    old.rename(new)
    with pytest.raises(UserError, match=r"old\.npz': no such folder or file; check the path or, if it has moved"):
        score_run(run.path, device="cpu")
    scored = score_run(run.path, moved=Moved(str(new)), device="cpu")
    assert scored["accuracy"] == run.result["accuracy"]
    with pytest.raises(UserError, match=r"its items are of shape \(5,\) now, not \(4,\)"):
        score_run(run.path, moved=Moved(str(other)), device="cpu")
    np.savez(other, x=np.zeros((60, 4)), y=labels, classes=["2", "1", "0"])
    with pytest.raises(UserError, match=r"its classes have changed \(in another order\)"):
        score_run(run.path, moved=Moved(str(other)), device="cpu")
    assert numbers_of(run.path, device="cpu")["left_out"]
    assert "moved" not in str(numbers_of(run.path, moved=Moved(str(new)), device="cpu")["left_out"])


def test_a_picture_more_or_another_name_is_not_scored_as_if_it_had_been_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    data, picture = tmp_path / "data", np.zeros((8, 8, 3), np.uint8)
    for i in range(12):
        save_png(data / ("ape", "bee")[i % 2] / f"{i:02}.png", picture + i)
    config = own(str(data)).replace(steps=2, epoch=1, batch=4, ratio=1, device="cpu", test_share=0.0, validation=0.5)
    run = train(config, tmp_path / "run")
    before = score_run(run.path, device="cpu")["accuracy"]
    save_png(data / "ape" / "00-more.png", picture)
    assert score_run(run.path, device="cpu")["accuracy"] == before
    assert "the data has changed since" in numbers_of(run.path, device="cpu")["left_out"]["pictures"]
    (data / "ape" / "00-more.png").rename(data / "bee" / "99.png")
    assert score_run(run.path, device="cpu")["accuracy"] == before
    gone = run.files["validation"][0]
    (data / gone).rename(data / "bee" / "98.png")
    with pytest.raises(UserError, match="the data has changed since"):
        score_run(run.path, device="cpu")


def test_a_cache_that_cannot_be_written_is_not_taken_for_lost_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(12):
        save_png(tmp_path / "data" / ("ape", "bee")[i % 2] / f"{i:02}.png", np.full((8, 8, 3), i, np.uint8))
    quick = ["--steps", "2", "--epoch", "1", "--batch", "4", "--ratio", "1", "--device", "cpu"]
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    assert main(["train", "--data", data, *quick, "--out", run, "--no-cache"]) == 0
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "file"))
    timing = ["bench", "--data", data, *quick, "--seconds", "0.01", "--repeats", "1"]
    for command in (["report", run, "--device", "cpu"], ["report", run, "--json"], ["eval", run], timing):
        capsys.readouterr()
        assert main(command) == 2
        assert "cannot write decoded images" in capsys.readouterr().err
        assert main([*command, "--no-cache"]) == 0
        assert "could not be read" not in capsys.readouterr().out


def test_a_new_label_leaves_the_score_of_an_older_run_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    rng, data = np.random.default_rng(0), tmp_path / "data"
    for i in range(40):
        save_png(data / ("ape", "bee", "unlabeled")[i % 3] / f"{i:02}.png", rng.integers(0, 256, (8, 8, 3), np.uint8))
    config = own(str(data)).replace(steps=2, epoch=1, batch=4, ratio=1, device="cpu", test_share=0.2)
    run = train(config.replace(validation=0.2), tmp_path / "run")
    before = score_run(run.path, device="cpu")
    assert (before["evaluated_on"], before["n"]) == ("test", 6)
    on_validation = score_run(run.path, on="validation", device="cpu")
    assert (on_validation["evaluated_on"], on_validation["n"]) == ("validation", 5)
    for name in ("02", "05", "08", "11", "14"):
        (data / "unlabeled" / f"{name}.png").rename(data / "ape" / f"{name}.png")
    assert score_run(run.path, device="cpu") == before
    # It is another matter if a picture that was held out has another class now.
    manifest = data / "list.csv"
    lines = [f"{file.relative_to(data)},{file.parent.name}\n" for file in data.glob("[ab]*/*")]
    manifest.write_text("".join(["path,label\n", *lines]))
    assert score_run(run.path, moved=Moved(str(manifest)), device="cpu") == before
    first = run.files["test"][0]
    other = {"ape": "bee", "bee": "ape"}[Path(first).parent.name]
    manifest.write_text(manifest.read_text().replace(f"{first},{Path(first).parent.name}", f"{first},{other}"))
    with pytest.raises(
        UserError, match=r"list\.csv is not the data that .*run was trained on: its test items have changed"
    ):
        score_run(run.path, moved=Moved(str(manifest)), device="cpu")


def test_other_data_is_named_as_it_was_given(tmp_path: Path) -> None:
    labels = np.arange(60) % 3
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32) + labels[:, None]
    own_data, other = tmp_path / "own.npz", tmp_path / "other.npz"
    np.savez(own_data, x=x, y=labels)
    np.savez(other, x=x[:9], y=labels[:9])
    config = own(str(own_data)).replace(steps=2, epoch=1, batch=6, ratio=1, device="cpu", test_share=0.2)
    run = train(config, tmp_path / "run")
    with pytest.raises(UserError, match=r"data has changed since .*run was started: samples of .*other\.npz or"):
        score_run(run.path, moved=Moved(str(other)), device="cpu")


def test_scores_as_text_have_a_line_for_each_class() -> None:
    """Whatever its name, and without a recall if it has no samples."""
    names = ("cat\nn 9", "dog\x1b[2J")
    rows = [{"name": name, "n": n, "precision": 0.0, "recall": 0.0} for name, n in zip(names, (1, 0), strict=True)]
    report = {"accuracy": 0.0, "macro_f1": 0.25, "balanced_accuracy": 0.125, "n": 1, "evaluated_on": "test"}
    total, macro, *lines = describe(report | {"per_class": rows}).split("\n")
    assert "on 1 test sample (" in total
    assert macro == "macro-F1 25.00%, balanced accuracy 12.50%"
    assert [line.split("  ")[1] for line in lines] == [r"cat\nn 9", r"dog\x1b[2J"]
    assert [line.split()[-1] for line in lines] == ["0.0%", "–"]
