"""The command line as a person meets it: verbs, defaults, one-line errors, exit codes, JSON."""

import contextlib
import errno
import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normatch.cli import VERBS, BenchOptions, TrainOptions, _parse_run, _spelt, main
from normatch.config import Config
from normatch.data import Corpus, Dataset, Split, sources
from normatch.errors import UserError, repeat_command
from normatch.methods import methods
from normatch.methods.fixmatch import FixMatchSettings
from normatch.nets import backbones
from normatch.recipes import own, recipes
from normatch.training import Run
from normatch.training.progress import Progress, quiet

QUICK = ["--steps", "4", "--epoch", "2", "--batch", "8", "--ratio", "2", "--log-every", "3", "--device", "cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", "digits-40", *QUICK, "--out", str(out)]) == 0
    return out


def error_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line on standard error of a command that exits with 2 and prints nothing else."""
    capsys.readouterr()
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("normatch: ")
    return captured.err


def parsed(*argv: str, options: type[Any] = TrainOptions) -> tuple[Config, bool]:
    """The config of these words, and whether what they leave open is chosen for the data."""
    config, _, automatic = _parse_run(options, "train" if options is TrainOptions else "bench", list(map(_spelt, argv)))
    return config, automatic


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["--help"], ["data"], ["data", "--help"]):
        assert main(argv) == 0
        assert "  data inspect  Count and compare" in capsys.readouterr().out
    for verb in VERBS:
        with pytest.raises(SystemExit) as stop:
            main([*verb.split(), "--help"])
        assert stop.value.code == 0
        assert f"usage: normatch {verb}" in capsys.readouterr().out


# train: where the defaults come from


def test_a_recipe_may_stand_anywhere() -> None:
    assert parsed("svhn-40", "--seed", "1") == parsed("--seed", "1", "svhn-40")
    assert parsed("svhn-40", "--seed", "1") == (recipes.get("svhn-40").build().replace(seed=1), False)
    assert parsed() == (recipes.get("digits-40").build(), False)
    with pytest.raises(UserError, match="unknown recipe 'svhn-41'"):
        parsed("--seed", "1", "svhn-41")


def test_own_data_is_no_recipe_whatever_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parsed("--data", "svhn-40") == (own("svhn-40"), True)
    assert parsed("--data=mnist", "--steps", "7", options=BenchOptions) == (own("mnist").replace(steps=7), True)
    assert parsed("--data", "digits") == (recipes.get("digits-40").build(), False)
    assert parsed("digits-40", "--data", "mnist") == (recipes.get("digits-40").build().replace(data="mnist"), False)


def test_every_field_is_a_flag_also_those_of_the_methods_settings() -> None:
    config, _ = parsed(
        *["--method", "fixmatch", "--settings.threshold", "0.8", "--augment.no-flip", "--optim.lr", "0.5"],
        *["--labeled", "runs/a b", "next.csv", "--unlabeled=more", "--fold", "None"],
    )
    assert type(config.settings) is FixMatchSettings
    assert (config.settings.threshold, config.augment.flip, config.optim.lr, config.fold) == (0.8, False, 0.5, None)
    assert (config.labelled, config.unlabelled) == ((Path("runs/a b"), Path("next.csv")), Path("more"))


def test_a_resumed_run_gives_the_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    begun = recipes.get("digits-40").build().replace(steps=30, seed=7, method="fixmatch")
    one = Corpus("one", Dataset(np.zeros((1, 1), np.float32), np.zeros(1, np.int64), ("a",)))
    Run.create(Path("runs/digits-40"), begun, Split(*(np.arange(1) for _ in range(3))), one)
    for argv in (["digits-40"], [], ["--seed", "7", "digits-40"]):
        assert parsed(*argv, "--resume") == (begun, False)
    with pytest.raises(UserError, match=r"unknown option --settings\.head;"):
        parsed("--resume", "--settings.head", "nfc")
    with pytest.raises(UserError, match="a run on digits, cifar10-40 is on cifar10: resume it without cifar10-40"):
        parsed("cifar10-40", "--name", "digits-40", "--resume")


def test_a_stored_config_is_repeated_and_flags_change_it(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = Run.open(run).config
    assert parsed("--config", str(run / "config.json")) == parsed(f"--config={run}") == (stored, False)
    again = parsed("--config", str(run / "config.json"), "--method", "fixmatch", "--seed", "3")
    assert again == (stored.replace(method="fixmatch", seed=3), False)
    command = shlex.split(repeat_command(run, "--out", str(tmp_path / "again")))
    assert main(command[1:]) == 0
    assert Run.open(tmp_path / "again").config == stored
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert "give one of them" in error_of(capsys, "train", "digits-40", "--config", str(run / "config.json"))


# train: from the first line to the last


def test_a_finished_run_is_resumed_under_its_own_name(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names: list[str] = []

    def shown(name: str) -> contextlib.AbstractContextManager[Progress]:
        names.append(name)
        return contextlib.nullcontext(quiet)

    monkeypatch.setattr("normatch.training.progress.shown", shown)
    capsys.readouterr()
    assert main(["train", "--out", str(run), "--resume", "--name", "other"]) == 0
    assert names == [f"{Run.open(run).config.name} normatch"]
    assert capsys.readouterr().out.startswith("already finished: ")


def test_a_run_ends_with_what_can_be_done_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "my run"
    assert main(["train", "digits-40", *QUICK, "--out", str(out)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"next: normatch report '{out}', or normatch predict '{out}' NEW --out labels.csv"
    assert main(shlex.split(last.removeprefix("next: ").split(", or ")[0])[1:]) == 0


def test_stopped_by_hand_it_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only what has begun can be continued: while data is read, there is no run yet."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    argv = ["train", "digits-40", *QUICK, "--out", str(tmp_path / "my run")]
    for where, code, says in (
        ("normatch.training.run.Run.create", 1, "normatch: stopped\n"),
        (
            "normatch.training.progress.Lines.__call__",
            75,
            f"normatch: stopped; continue with normatch train --out '{tmp_path / 'my run'}' --resume\n",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, stop)
            patch.setattr("normatch.training.progress.Lines.SECONDS", 0.0)
            assert main(argv) == code
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


def test_home_is_meant_where_the_shell_left_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in --out=~/run: a folder called ~ would be removed with more than was meant."""
    monkeypatch.setenv("HOME", str(run.parent))
    monkeypatch.chdir(tmp_path)
    assert main(["report", "~/run", "--out=~/page.html"]) == 0
    assert str(run.parent / "page.html") in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def write_pets(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog", "unlabeled"):
        (folder / name).mkdir(parents=True)
        for i in range(10):
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / name / f"{i}.png")


def test_only_verbs_that_can_skip_unreadable_images_propose_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pets(tmp_path / "pets")
    broken, run = tmp_path / "pets" / "dog" / "broken.png", tmp_path / "run"
    broken.write_text("not a picture")
    argv = ["train", *QUICK, "--data", str(tmp_path / "pets"), "--out", str(run)]
    for verb in (argv, ["bench", *argv[1:-2]]):
        message = error_of(capsys, *verb)
        assert "broken.png" in message
        assert message.endswith("replace or remove it, or leave such out with --on-bad-image skip\n")
    assert main([*argv, "--on-bad-image", "skip"]) == 0
    assert "1 unreadable image skipped" in capsys.readouterr().out
    (skipped,) = json.loads((run / "result.json").read_text())["skipped"]
    assert "broken.png" in skipped
    assert "--on-bad-image" not in error_of(capsys, "data", "inspect", str(tmp_path / "pets" / "dog" / "broken.png"))


def test_names_cannot_control_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pets(tmp_path / "pets")
    evil = "\x1b]0;owned\x07\x9b2J"
    (tmp_path / "pets" / "cat").rename(tmp_path / "pets" / f"cat{evil}")
    (tmp_path / "pets").rename(tmp_path / f"pets{evil}")
    run = str(tmp_path / f"run{evil}")
    assert main(["train", *QUICK, "--data", str(tmp_path / f"pets{evil}"), "--out", run]) == 0
    for argv in (["eval", run], ["data", "inspect", str(tmp_path / f"pets{evil}")], ["report", run]):
        assert main(argv) == 0
    assert main(["eval", str(tmp_path / evil)]) == 2
    shown = capsys.readouterr()
    assert r"cat\x1b]0;owned\x07\x9b2J" in shown.out
    assert not set("\x1b\x07\x9b") & set(shown.out + shown.err)


# the other verbs


def test_eval_prints_one_object(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    result = json.loads((run / "result.json").read_text())
    assert report["accuracy"] == result["accuracy"]
    assert report["n"] == sum(entry["n"] for entry in report["per_class"]) == 360


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    registries: dict[str, Any] = {"methods": methods, "datasets": sources, "backbones": backbones, "recipes": recipes}
    for what, registry in registries.items():
        assert main(["list", what, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [row["name"] for row in rows] == registry.names()
        assert all(row["summary"] for row in rows)
        assert main(["list", what]) == 0
        assert len(capsys.readouterr().out.splitlines()) == len(rows)


def test_demo_compares_four_learners_on_the_same_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--steps", "2", "--out", "demo"]) == 0
    shown = capsys.readouterr().out
    for name in ("the 40 labels alone", "scikit-learn LabelSpreading", "FixMatch", "NorMatch"):
        assert name in shown
    splits = [(Path("demo") / m / "split.json").read_bytes() for m in ("supervised", "fixmatch", "normatch")]
    assert splits[0] == splits[1] == splits[2]
    assert (tmp_path / "demo" / "normatch" / "report.html").is_file()
    assert "exists already" in error_of(capsys, "demo", "--steps", "2", "--out", "demo")
    for _ in range(2):  # a second demo replaces the page of the first
        assert main(["demo", "--steps", "1"]) == 0
        assert Path("runs/demo.html").is_file()


def test_digits_need_no_download(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["data", "get", "digits", "--root", str(tmp_path)]) == 0
    assert "nothing to fetch" in capsys.readouterr().out
