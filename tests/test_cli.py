"""The command line as a person meets it: verbs, one-line errors, exit codes, JSON."""

import contextlib
import csv
import errno
import io
import json
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import normatch
from normatch.arguments import parse_run
from normatch.cli import main
from normatch.cli.main import VERBS
from normatch.data import sources
from normatch.errors import UserError
from normatch.methods import methods
from normatch.nets import backbones
from normatch.recipes import recipes
from normatch.training import Run
from normatch.training.progress import Progress, quiet

QUICK = ["--steps", "4", "--epoch", "2", "--batch", "8", "--ratio", "2", "--log-every", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", "digits-40", *QUICK, "--out", str(out)]) == 0
    return out


def test_closed_streams_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has None for a stream that a service or ``2>&-`` has closed."""
    names = ("stdin", "stdout", "stderr")
    for name in names:
        monkeypatch.setattr(sys, name, None)
    assert main(["train", "digits-40", *QUICK, "--out", str(tmp_path / "run")]) == 0
    assert main(["predict", str(tmp_path / "run"), "-"]) == 2
    for name in names:
        assert os.get_inheritable(getattr(sys, name).fileno())
        getattr(sys, name).close()


@pytest.mark.parametrize(
    ("encoding", "errors", "printed"),
    [
        ("ascii", "surrogateescape", rb"8\xd78"),  # the C locale
        ("latin1", "strict", b"8\xd78"),
        ("utf-8", "surrogateescape", "8×8".encode()),
        ("ascii", "replace", b"8?8"),  # PYTHONIOENCODING
    ],
)
def test_any_encoding_can_be_printed_in(
    encoding: str, errors: str, printed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((4, 8, 8), np.uint8), labels=np.arange(4) % 2)
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding, errors))
    assert main(["data", "inspect", str(tmp_path / "x.npz")]) == 0
    sys.stdout.flush()
    assert printed in out.getvalue()


def error_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line on standard error of a command that exits with 2 and prints nothing else."""
    capsys.readouterr()
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("normatch: ")
    return captured.err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert main(["--help"]) == 0
    assert "train" in capsys.readouterr().out
    for verb in VERBS:
        with pytest.raises(SystemExit) as stop:
            main([verb, "--help"])
        assert stop.value.code == 0
        assert "usage: normatch" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["data", "--help"])
    about = capsys.readouterr().out.split("\n\n")[1].splitlines()
    assert [line.endswith(".") for line in about] == [True] * 3


def test_eval_prints_one_object(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    result = json.loads((run / "result.json").read_text())
    assert report["accuracy"] == result["accuracy"]
    assert 0 <= report["accuracy"] <= 1
    assert report["n"] == 360
    assert [entry["name"] for entry in report["per_class"]] == [str(d) for d in range(10)]
    assert sum(entry["n"] for entry in report["per_class"]) == 360
    assert main(["eval", str(run)]) == 0
    assert "accuracy" in capsys.readouterr().out


def test_eval_says_what_was_not_held_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no validation items" in error_of(capsys, "eval", str(run), "--on", "validation")


def test_predict_labels_files_and_folders(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    rng = np.random.default_rng(0)
    for i, size in enumerate([(8, 8), (20, 30), (64, 64)]):
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(pictures / f"{i}.png")
    out = tmp_path / "labels.csv"
    assert main(["predict", str(run), str(pictures), "--out", str(out)]) == 0
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [Path(row["path"]).name for row in rows] == ["0.png", "1.png", "2.png"]
    assert all(row["label"] in map(str, range(10)) and 0 <= float(row["probability"]) <= 1 for row in rows)
    capsys.readouterr()
    assert main(["predict", str(run), str(pictures / "0.png")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "path,label,probability,flow_label,flow_probability,agree,flow_log_density"
    assert len(printed) == 2

    (pictures / "page.jpg").write_text("<html>")
    out.unlink()
    message = error_of(capsys, "predict", str(run), str(pictures), "--out", str(out))
    assert "page.jpg" in message
    assert message.endswith("replace or remove it, or leave such out with --on-bad-image skip\n")
    assert not out.exists()
    assert "nowhere" in error_of(capsys, "predict", str(run), str(tmp_path / "nowhere"))


def test_predict_can_skip_what_is_unreadable(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("<html>")
    assert main(["predict", str(run), str(tmp_path), "--on-bad-image", "skip"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert "1 unreadable image skipped" in shown.err
    assert f"{tmp_path / 'b.png'}: not an image of a known kind\n" in shown.err


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("methods", methods.names()),
        ("datasets", sources.names()),
        ("backbones", backbones.names()),
        ("recipes", recipes.names()),
    ],
)
def test_list(what: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", what, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == names
    assert all(row["summary"] for row in rows)
    assert main(["list", what]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(names)


def test_a_resumed_run_keeps_its_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def shown(name: str) -> contextlib.AbstractContextManager[Progress]:
        names.append(name)
        return contextlib.nullcontext(quiet)

    monkeypatch.setattr("normatch.cli.train.shown", shown)
    assert main(["train", "--out", str(run), "--resume", "--name", "other"]) == 0
    assert names == [f"{Run.open(run).config.name} normatch"]
    assert "other" not in names[0]


def test_a_run_is_refused_then_resumed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "exists already" in error_of(capsys, "train", "digits-40", *QUICK, "--out", str(run))
    assert main(["train", "--resume", "--out", str(run)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("already finished: ")
    assert str(run) in shown
    assert "was started with steps 4, not 9" in error_of(capsys, "train", "--resume", "--out", str(run), "--steps", "9")


def test_a_run_ends_with_what_can_be_done_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "my run"
    assert main(["train", "digits-40", *QUICK, "--out", str(out)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"next: normatch report '{out}', or normatch predict '{out}' NEW --out labels.csv"
    said = last.removeprefix("next: ").split(", or ")[0]
    assert main(shlex.split(said)[1:]) == 0


def test_home_is_meant_where_the_shell_left_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in --out=~/run: a folder called ~ would be removed with more than was meant."""
    monkeypatch.setenv("HOME", str(run.parent))
    monkeypatch.chdir(tmp_path)
    for argv in (["report", "~/run", "--out=~/page.html"], ["report", "~/run", "--out", "~/another.html"]):
        assert main(argv) == 0
    assert capsys.readouterr().out.split() == [str(run.parent / name) for name in ("page.html", "another.html")]
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_may_stand_anywhere() -> None:
    first, last = (parse_run("train", argv, {})[0] for argv in (["svhn-40", "--seed", "1"], ["--seed", "1", "svhn-40"]))
    assert first == last
    assert (last.data, last.seed) == ("svhn", 1)
    assert parse_run("train", [], {})[0].name == "digits-40"
    with pytest.raises(UserError, match="unknown recipe 'svhn-41'"):
        parse_run("train", ["--seed", "1", "svhn-41"], {})


def test_own_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 12, 12), dtype=np.uint8), np.arange(60) % 3
    np.savez(tmp_path / "own.npz", images=images, labels=labels)
    assert main(["train", *QUICK, "--data", str(tmp_path / "own.npz"), "--out", str(tmp_path / "run")]) == 0
    assert main(["eval", str(tmp_path / "run"), "--json"]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["name"], config["labels"], config["backbone"]) == ("own", None, "small-wide")


def test_own_folder_with_an_unreadable_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog", "unlabeled"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(10):
            picture = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(picture).save(tmp_path / "pets" / name / f"{i}.png")
    (tmp_path / "pets" / "dog" / "broken.png").write_text("not a picture")
    argv = ["train", *QUICK, "--data", str(tmp_path / "pets"), "--out", str(tmp_path / "run")]
    message = error_of(capsys, *argv)
    assert "broken.png" in message
    assert message.endswith("replace or remove it, or leave such out with --on-bad-image skip\n")
    assert main([*argv, "--on-bad-image", "skip"]) == 0
    assert "1 unreadable image skipped" in capsys.readouterr().out
    (skipped,) = json.loads((tmp_path / "run" / "result.json").read_text())["skipped"]
    assert "broken.png" in skipped


def test_what_has_no_flag_to_skip_unreadable_images_recommends_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(10):
            Image.new("L", (16, 16), 9 * i).save(tmp_path / "pets" / name / f"{i}.png")
    run = tmp_path / "run"
    assert main(["train", *QUICK, "--data", str(tmp_path / "pets"), "--out", str(run)]) == 0
    capsys.readouterr()
    broken = tmp_path / "pets" / "cat" / "3.png"
    broken.write_text("not a picture")
    assert error_of(capsys, "eval", str(run)).endswith("not an image of a known kind; replace or remove it\n")
    with pytest.raises(normatch.UserError, match=r"replace or remove it$"):
        normatch.load(run).predict([broken])


def test_demo_compares_four_learners_on_the_same_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--steps", "2", "--out", str(tmp_path / "demo")]) == 0
    shown = capsys.readouterr().out
    for name in ("the 40 labels alone", "scikit-learn LabelSpreading", "FixMatch", "NorMatch"):
        assert name in shown
    splits = [(tmp_path / "demo" / m / "split.json").read_bytes() for m in ("supervised", "fixmatch", "normatch")]
    assert splits[0] == splits[1] == splits[2]
    page = tmp_path / "demo" / "normatch" / "report.html"
    assert str(page) in shown
    assert page.is_file()


def test_a_demo_into_runs_that_are_there_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--steps", "2", "--device", "cpu", "--out"]
    assert main(["train", "digits-40", *quick, str(tmp_path / "demo" / "normatch")]) == 0
    assert main(["train", "digits-40", *quick, str(tmp_path / "run")]) == 0
    for place, there in (("demo", "demo/normatch"), ("run", "run")):
        before = sorted(tmp_path.rglob("*"))
        capsys.readouterr()
        assert main(["demo", "--steps", "2", "--out", str(tmp_path / place)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err == f"normatch: {tmp_path / there} exists already, a finished run: choose another --out\n"
        assert sorted(tmp_path.rglob("*")) == before


def test_a_second_demo_replaces_the_page_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["demo", "--steps", "2"]) == 0
        assert "all about the NorMatch run: " in capsys.readouterr().out


def test_digits_need_no_download(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["data", "get", "digits", "--root", str(tmp_path)]) == 0
    assert "nothing to fetch" in capsys.readouterr().out


def write_binary_cifar10(folder: Path, records: int = 10_000) -> Path:
    """The unpacked binary form of CIFAR-10, with random pixels."""
    rng = np.random.default_rng(0)
    where = folder / "cifar10" / "cifar-10-batches-bin"
    where.mkdir(parents=True)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        batch = rng.integers(0, 256, (records, 3073), dtype=np.uint8)
        batch[:, 0] %= 10
        batch.tofile(where / name)
    (where / "batches.meta.txt").write_text(
        "\n".join(["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"])
    )
    return where


def test_damaged_data_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["train", "cifar10-40", "--data-root", str(tmp_path), "--out", str(tmp_path / "run")]
    missing = error_of(capsys, *argv)
    assert "normatch data get cifar10" in missing

    where = write_binary_cifar10(tmp_path)
    (where / "data_batch_3.bin").unlink()
    assert "data_batch_3.bin" in error_of(capsys, *argv)
    (where / "data_batch_3.bin").write_bytes(b"\0" * 1000)
    assert "data_batch_3.bin" in error_of(capsys, *argv)

    archive = tmp_path / "cifar10" / "cifar-10-python.tar.gz"
    archive.write_bytes(b"\0" * 1000)
    for file in where.iterdir():
        file.unlink()
    where.rmdir()
    assert "cifar-10-python.tar.gz is truncated" in error_of(capsys, *argv)
    (tmp_path / "cifar10" / "cifar-10-python.tar.gz.md5").write_text("0" * 32)
    assert "cifar-10-python.tar.gz has a wrong checksum" in error_of(capsys, *argv)

    for name in ("cat/1.jpg", "dog/2.jpg"):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True)
        (tmp_path / "pictures" / name).write_text("<html>")
    own = error_of(capsys, "train", "--data", str(tmp_path / "pictures"), "--out", str(tmp_path / "run"))
    assert "1.jpg" in own
    assert not (tmp_path / "run").exists()


def test_the_cache_is_shown_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        Image.new("L", (9, 9)).save(tmp_path / "pets" / name / "1.png")
    assert main(["data", "inspect", str(tmp_path / "pets"), "--no-cache"]) == 0
    assert not (tmp_path / "cache").exists()
    assert main(["data", "inspect", str(tmp_path / "pets")]) == 0
    capsys.readouterr()
    assert main(["data", "cache", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["images"], row["source"]) == (2, str(tmp_path / "pets"))
    assert main(["data", "cache"]) == 0
    assert "1 entry" in capsys.readouterr().out
    assert main(["data", "cache", "--clear"]) == 0
    assert "deleted" in capsys.readouterr().out
    assert list((tmp_path / "cache").iterdir()) == []


def test_stopped_by_hand_it_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only what has begun goes on: while data is read, there is no run yet."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    argv = ["train", "digits-40", *QUICK, "--out", str(tmp_path / "my run")]
    for where, says in (
        ("normatch.autoconfig.planning.open_corpus", "normatch: stopped\n"),
        ("normatch.training.run.Run.create", "normatch: stopped\n"),
        (
            "normatch.training.progress.Lines.__call__",
            f"normatch: stopped; continue with normatch train --out '{tmp_path / 'my run'}' --resume\n",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, stop)
            patch.setattr("normatch.training.progress.Lines.SECONDS", 0.0)
            assert main(argv) == 1
        assert capsys.readouterr().err == says
    assert main(["train", "--out", str(tmp_path / "my run"), "--resume"]) == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_one_line(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, content: object) -> int:
        raise OSError(number, os.strerror(number))

    out = tmp_path / "run"
    quick = ["--steps", "1", "--batch", "8", "--ratio", "1", "--device", "cpu"]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert main(["train", "digits-40", *quick, "--out", str(out)]) == 2
    checkpoint = out / "checkpoint" / "step-00000001.safetensors"
    assert f"normatch: {checkpoint}: {os.strerror(number)}; " in capsys.readouterr().err.splitlines()[-1]
    assert main(["train", "--resume", "--out", str(out)]) == 0
