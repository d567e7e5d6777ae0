"""A run's folder: what is in it, that it repeats, and that it is never overwritten."""

import contextlib
import csv
import dataclasses
import errno
import importlib
import json
import math
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from normatch.augment import AugmentConfig
from normatch.autoconfig import plan
from normatch.cli import main
from normatch.config import Config
from normatch.data import Corpus, Dataset, Split
from normatch.errors import UserError
from normatch.evaluate.held_out import evaluate_run
from normatch.evaluate.predict import load
from normatch.files import read_sealed
from normatch.methods import Embedding, methods
from normatch.nets.model import Model, logits
from normatch.recipes import own
from normatch.training import Run, checkpoint, open_corpus, prepare, train
from normatch.training.loop import Loop
from normatch.training.metrics import Record
from normatch.training.progress import Lines, quiet
from normatch.training.recorder import Silent
from normatch.training.step import Step
from tests.data.original_formats import random_bytes, save_png


@pytest.fixture(scope="module")
def finished(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_config.replace(validation=0.1), tmp_path_factory.mktemp("runs") / "run")


def test_a_finished_run_has_its_files(finished: Run) -> None:
    names = {p.name for p in finished.path.iterdir()}
    assert names == {
        "config.json",
        "split.json",
        ".lock",
        "metrics.jsonl",
        "warnings.json",
        "events",
        "checkpoint",
        "model.safetensors",
        "model.json",
        "predictions.csv",
        "result.json",
    }
    assert finished.finished
    result = finished.result
    assert (result["n"], result["evaluated_on"], result["steps"], result["labels"]) == (360, "test", 12, 40)
    assert finished.accuracy == result["accuracy"]
    assert {"hardware", "versions", "date", "seed", "method"} <= set(result)


def test_metrics_hold_losses_figures_and_accuracy(finished: Run) -> None:
    lines = list(finished.metrics())
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10, 12]
    assert {"loss", "loss/labelled", "loss/unlabelled", "loss/auxiliary", "loss/density"} <= set(lines[0])
    figures = {"trusted", "confident", "correct", "accuracy_trusted", "accuracy_distrusted", "weight_distrusted"}
    assert {f"pseudo/{name}" for name in figures} | {"pseudo/uncertainty", "pseudo/uncertainty_auxiliary"} <= set(
        lines[0]
    )
    assert all(len(line["pseudo/classes"]) == 10 for line in lines)
    assert [sum(line["pseudo/classes"]) for line in lines] == pytest.approx([1] * 6, abs=1e-5)
    assert all(("labelled/accuracy" in line) == ("test/accuracy" in line) for line in lines)
    assert [("test/accuracy" in line, "validation/accuracy" in line) for line in lines] == [
        (False, False),
        (True, True),
    ] * 3


def test_predictions_are_the_kept_models(finished: Run) -> None:
    corpus = prepare(finished.config).corpus
    assert corpus.test is not None
    p = load(finished.path, calibrated=False).predict_proba(corpus.test.inputs)
    with (finished.path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [corpus.test.classes[k] for k in p.argmax(1)]
    assert [row["truth"] for row in rows] == [corpus.test.classes[k] for k in corpus.test.labels]
    np.testing.assert_allclose([float(row["probability"]) for row in rows], p.max(1), atol=1e-6)
    assert finished.accuracy == np.mean([row["label"] == row["truth"] for row in rows])


def test_the_config_and_split_can_be_read_back(finished: Run, tiny_config: Config) -> None:
    assert finished.config == tiny_config.replace(validation=0.1)
    split, labels = finished.split, prepare(finished.config).corpus.train.labels
    assert np.bincount(labels[split.labelled]).tolist() == [4] * 10
    assert len(split.validation) == 144
    assert not set(split.validation) & set(split.unlabelled)


def test_the_result_tells_labels_used_from_labels_known(finished: Run) -> None:
    result, train_set = finished.result, prepare(finished.config).corpus.train
    assert result["labels"] == 40
    assert result["labels_by_class"] == dict.fromkeys(train_set.classes, 4)
    assert sum(result["label_counts"].values()) == len(train_set) == 1437


@pytest.mark.parametrize("method", methods.names())
def test_the_same_seed_gives_the_same_bits(method: str, tiny_config: Config, tmp_path: Path) -> None:
    config = tiny_config.replace(method=method, steps=4)
    torch.manual_seed(1)
    first = train(config, tmp_path / "a")
    torch.manual_seed(2)
    again = train(config, tmp_path / "b")
    other = train(config.replace(seed=1), tmp_path / "c")
    weights = [(run.path / "model.safetensors").read_bytes() for run in (first, again, other)]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


@contextlib.contextmanager
def coarse_products() -> Iterator[None]:
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "state",
    [coarse_products, torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)],
    ids=["coarse products", "no gradients", "autocast"],
)
def test_the_callers_state_does_not_change_a_run(
    state: Callable[[], AbstractContextManager[object]], precision: str, tiny_config: Config, tmp_path: Path
) -> None:
    config = tiny_config.replace(method="fixmatch", steps=3, device="cpu", precision=precision)
    train(config, tmp_path / "plain")
    with state():
        train(config, tmp_path / "other")
    weights, others = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "other"))
    assert weights == others


def test_training_leaves_the_callers_random_state_alone(tiny_config: Config, tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    train(tiny_config.replace(steps=2), tmp_path / "run")
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


def test_an_existing_folder_is_refused_and_left_alone(finished: Run, tiny_config: Config, tmp_path: Path) -> None:
    stopped = Run(Path(shutil.copytree(finished.path, tmp_path / "stopped")))
    (stopped.path / "result.json").unlink()
    for run, what_to_do in (
        (finished, r", a finished run: choose another --out"),
        (stopped, r": continue it with --resume \(in Python, resume=True\), or choose another --out"),
    ):
        before = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
        with pytest.raises(UserError, match=f"exists already{what_to_do}"):
            train(tiny_config, run.path)
        assert {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()} == before


def test_resume_needs_a_run_and_the_same_config(finished: Run, tiny_config: Config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run"):
        train(tiny_config, tmp_path / "nothing", resume=True)
    with pytest.raises(UserError, match=r"was started with validation 0.1, not 0.0"):
        train(tiny_config, finished.path, resume=True)
    settings = dataclasses.replace(finished.config.settings, consensus="drop")  # type: ignore[call-arg]
    with pytest.raises(UserError, match=r"was started with settings.consensus min, not drop"):
        train(finished.config.replace(settings=settings), finished.path, resume=True)
    with pytest.raises(UserError, match=r"config is 'pictures': give a Config, such as normatch.recipes.own"):
        train("pictures", tmp_path / "other")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"config is 'pictures': give a Config"):
        plan("pictures", tmp_path / "other")  # type: ignore[arg-type]


def test_one_process_at_a_time_trains_a_run(tiny_config: Config, tmp_path: Path) -> None:
    refused: list[str] = []

    class Meddler(Lines):
        def __call__(self, step: int, total: int, record: Record) -> None:
            with pytest.raises(UserError) as error:
                train(tiny_config, tmp_path / "run", resume=True)
            refused.append(str(error.value))

    train(tiny_config, tmp_path / "run", progress=Meddler("digits"))
    assert set(refused) == {f"{tmp_path / 'run'} is being trained by another process: wait for it, or stop it"}
    (tmp_path / "run/result.json").unlink()
    assert train(tiny_config, tmp_path / "run", resume=True).finished


def test_wrong_input_leaves_nothing_behind(tiny_config: Config, tmp_path: Path) -> None:
    for wrong in ({"labels": 43}, {"backbone": "wrn-28-2"}, {"data": "nowhere"}, {"fold": 3}):
        with pytest.raises(UserError):
            train(tiny_config.replace(**wrong), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_filled_leaves_nothing_behind(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            train(tiny_config, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    assert ", 1 step in " in train(tiny_config.replace(steps=1), tmp_path / "run").describe()


def test_a_folder_that_cannot_be_made_is_named(tiny_config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot make the folder .*file/run .*: choose another --out"):
        train(tiny_config, tmp_path / "file" / "run")


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


def test_a_damaged_run_is_named(finished: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"method": "normatch", "stepz": 3}')
    with pytest.raises(UserError, match="unknown field stepz"):
        _ = Run(broken).config
    (broken / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config.json cannot be read"):
        _ = Run(broken).config
    shutil.copy(finished.path / "config.json", broken)
    shutil.copy(finished.path / "split.json", broken)
    for name, was, now in (
        ("config.json", '"seed": 0', '"seed": 1'),
        ("split.json", '"labelled": [', '"labelled": [0,'),
    ):
        damaged = (broken / name).read_text()
        assert was in damaged
        (broken / name).write_text(damaged.replace(was, now))
    for read in (lambda: Run(broken).config, lambda: Run(broken).split, lambda: Run(broken).digest):
        with pytest.raises(UserError, match=r"(config|split).json cannot be read \(it was changed: its sha256"):
            read()
    (broken / "config.json").write_text("[" * 200_000)
    with pytest.raises(UserError, match=r"config.json cannot be read \(it is nested too deeply"):
        _ = Run(broken).config


def test_a_damaged_checkpoint_is_named(tiny_config: Config, tmp_path: Path) -> None:
    job = prepare(tiny_config)
    run = Run.create(tmp_path / "run", tiny_config, job.split, job.corpus)
    (run.path / "checkpoint" / "step-00000003.safetensors").write_bytes(b"half")
    with pytest.raises(UserError, match=r"step-00000003.safetensors is damaged"):
        train(tiny_config, run.path, resume=True)


def test_a_checkpoint_of_other_code_is_named(tiny_config: Config, tmp_path: Path) -> None:
    run = train(tiny_config.replace(method="supervised"), tmp_path / "run")
    (run.path / "result.json").unlink()
    step, tensors = checkpoint.load_latest(run.path / "checkpoint") or (0, {})
    for lost in ("method/model.head.bias", "optimiser/sgd.momentum_buffer.model.head.bias"):
        kept = {name: tensor for name, tensor in tensors.items() if name != lost}
        assert len(kept) == len(tensors) - 1
        checkpoint.save(run.path / "checkpoint", step, kept)
        with pytest.raises(
            UserError, match=r"step 12 does not fit the method's present code \(.*head\.bias.*\): undo the change, or"
        ) as error:
            train(run.config, run.path, resume=True)
        assert "\n" not in str(error.value)


def test_a_checkpoint_whose_optimisers_are_numbered_is_refused(tiny_config: Config, tmp_path: Path) -> None:
    """As those of earlier versions were: what belongs to which parameter is not known."""
    run = train(tiny_config.replace(method="supervised", steps=3), tmp_path / "run")
    (run.path / "result.json").unlink()
    step, tensors = checkpoint.load_latest(run.path / "checkpoint") or (0, {})
    named = [name for name in tensors if name.startswith("optimiser/")]
    numbered = {f"optimiser/0.{i}.momentum_buffer": tensors.pop(name) for i, name in enumerate(named)}
    checkpoint.save(run.path / "checkpoint", step, tensors | numbered)
    with pytest.raises(UserError, match=r"the checkpoint of step 3 does not fit .*'0\.0\.momentum_buffer'\): undo"):
        train(run.config, run.path, resume=True)


def test_a_run_that_fails_before_its_first_step_is_done_leaves_nothing_behind(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("of the method")

    config, supervised = tiny_config.replace(method="supervised"), methods.get("supervised")
    for part, replacement in (("forward", fails), ("last_start", property(fails))):
        with monkeypatch.context() as patch:
            patch.setattr(supervised, part, replacement)
            with pytest.raises(RuntimeError, match="of the method"):
                train(config, tmp_path / "run")
        assert list(tmp_path.iterdir()) == []

    class Stopped(Lines):
        def __call__(self, step: int, total: int, record: Record) -> None:
            raise RuntimeError("later")

    with pytest.raises(RuntimeError, match="later"):
        train(config, tmp_path / "run", progress=Stopped("digits"))
    assert Run.open(tmp_path / "run").config == config


@pytest.fixture
def recorded(tiny_config: Config, tmp_path: Path) -> Run:
    """A run without a model whose records of steps 2 to 12 are there."""
    nothing = Dataset(np.zeros((1, 1), np.float32), np.zeros(1, np.int64), ("a",))
    run = Run.create(tmp_path / "run", tiny_config, Split(*[np.arange(1)] * 3), Corpus("nothing", nothing))
    (run.path / "metrics.jsonl").write_text("".join(f'{{"step": {step}}}\n' for step in range(2, 13, 2)))
    return run


def test_records_of_later_steps_and_damage_after_them_are_dropped(recorded: Run) -> None:
    with (recorded.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"st')
    for step, left in ((12, [2, 4, 6, 8, 10, 12]), (5, [2, 4]), (2, [2]), (0, [])):
        assert [record["step"] for record in recorded.metrics_until(step)] == left
        assert [record["step"] for record in recorded.metrics()] == left


@pytest.mark.parametrize("damage", [b"\0\0\0\n", b"\xff\xfe\n", b'{"st\n', b"3\n", b"{}\n", b"[" * 200_000, b"\0\0"])
def test_damaged_records_are_dropped_if_no_record_before_the_checkpoint_is_lost(damage: bytes, recorded: Run) -> None:
    file = recorded.path / "metrics.jsonl"
    content = file.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*content[:2], damage, *content[2:]])
    file.write_bytes(damaged)
    with pytest.raises(UserError, match=r"metrics.jsonl is damaged \(it lacks the record of step 6\): restore it, or"):
        recorded.metrics_until(6)
    assert file.read_bytes() == damaged
    assert [record["step"] for record in recorded.metrics_until(5)] == [2, 4]


@pytest.mark.parametrize("lines", [0, 3, None])
def test_records_that_are_lost_are_noticed_on_resume(lines: int | None, finished: Run, tmp_path: Path) -> None:
    shutil.copytree(finished.path, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    file = tmp_path / "run" / "metrics.jsonl"
    if lines is None:
        file.unlink()
    else:
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:lines]))
    with pytest.raises(UserError, match=rf"it lacks the record of step {2 * (lines or 0) + 2}\)"):
        train(finished.config, tmp_path / "run", resume=True)


def test_a_run_with_an_augmentation_that_does_nothing_is_resumed_but_none_begun(
    finished: Run, tiny_config: Config, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(UserError, match=r"augment.mix is 0.5, which is for feature vectors"):
        train(tiny_config.replace(augment=AugmentConfig(mix=0.5)), out)
    assert not out.exists()
    shutil.copytree(finished.path, out)
    (out / "result.json").unlink()
    config = read_sealed(out / "config.json")
    config["augment"]["mix"] = 0.5
    (out / "config.json").write_text(json.dumps(config))
    assert train(Run(out).config, out, resume=True).finished


def test_a_run_whose_records_end_in_damage_is_resumed(finished: Run, tmp_path: Path) -> None:
    shutil.copytree(finished.path, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with (tmp_path / "run" / "metrics.jsonl").open("ab") as file:
        file.write(b"\0\0\0\n")
    run = train(finished.config, tmp_path / "run", resume=True)
    assert run.accuracy == finished.accuracy
    assert list(run.metrics()) == list(finished.metrics())


def test_the_test_set_is_predicted_once_after_the_last_evaluation(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def counting(model: Model, inputs: torch.Tensor) -> torch.Tensor:
        sizes.append(len(inputs))
        return logits(model, inputs)

    for module in ("normatch.training.train", "normatch.training.loop"):
        monkeypatch.setattr(importlib.import_module(module), "logits", counting)
    run = train(tiny_config.replace(steps=4, evaluate_every=4), tmp_path / "run")
    assert sizes == [360, 40, 360], "the test set and the labels at the last step, then the predictions"
    assert run.accuracy == list(run.metrics())[-1]["test/accuracy"]


def test_each_set_is_put_on_the_device_once(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, sizes = importlib.import_module("normatch.training.loop"), []
    make_pool = module.make_pool

    def counting(dataset: Dataset, *where: object) -> object:
        sizes.append(len(dataset))
        return make_pool(dataset, *where)

    monkeypatch.setattr(module, "make_pool", counting)
    train(tiny_config.replace(steps=2, validation=0.1), tmp_path / "run")
    assert sizes == [1437, 360]


def test_test_items_without_a_label_are_predicted_but_not_scored(tiny_config: Config, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    partly = np.where(np.arange(10) < 6, labels[:10], -1)
    images = rng.integers(0, 256, (50, 8, 8), dtype=np.uint8)
    path = tmp_path / "own.npz"
    np.savez(path, images=images[:40], labels=labels, test_images=images[40:], test_labels=partly)
    run = train(tiny_config.replace(data=str(path), test_share=0.0, labels=4, steps=2), tmp_path / "run")
    assert run.result["n"] == 6
    assert run.accuracy == list(run.metrics())[-1]["test/accuracy"]
    assert len((run.path / "predictions.csv").read_text().splitlines()) == 11


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


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
    # By any name of the folder, and by a manifest, whose files are called as it calls them.
    for i, (data, prefix) in enumerate([("pets", ""), (str(tmp_path / "pets"), ""), ("lists/all.csv", "../pets/")]):
        changed = config.replace(data=data, unlabelled=None if i == 2 else config.unlabelled)
        run = train(changed, Path(f"run{i}"))
        corpus = prepare(changed).corpus
        assert corpus.test is not None
        rows = read_table(run.path / "predictions.csv")
        assert list(rows[0]) == ["item", "file", "label", "probability", "truth"]
        assert [row["item"] for row in rows] == [str(i) for i in range(6)]
        for row, image in zip(rows, np.asarray(corpus.test.inputs), strict=True):
            assert row["truth"] == row["file"].removeprefix(prefix)[:3]
            np.testing.assert_array_equal(image, pixels[listed.index(row["file"].removeprefix(prefix))])
        files = json.loads((run.path / "split.json").read_text())["files"]
        assert files["test"] == [row["file"] for row in rows]
        assert {name: len(files[name]) for name in files} == {"labelled": 4, "validation": 5, "test": 6}
        assert corpus.train.files is not None
        assert corpus.test.files is not None
        assert files["validation"] == corpus.train.files[run.split.validation].tolist()
        assert len({*files["labelled"], *files["validation"], *files["test"]}) == 15
        others = {*corpus.train.files, *corpus.test.files} - {f"{prefix}{name}" for name in listed}
        assert others == {str(elsewhere), *(["unlabeled/deep/x.png"] if i < 2 else [])}


def test_a_run_on_a_relative_path_can_be_used_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started from Python; the command line is not alone in storing absolute paths."""
    rng = np.random.default_rng(0)
    for folder in ("here", "here/more", "elsewhere"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    np.savez("x.npz", images=rng.integers(0, 256, (40, 8, 8), np.uint8), labels=np.arange(40) % 2)
    save_png(Path("more/y.png"), rng.integers(0, 256, (8, 8, 1), np.uint8))
    config = own("x.npz").replace(
        unlabelled=Path("more"), data_root=Path("sets"), steps=2, epoch=1, batch=4, ratio=1, test_share=0.25
    )
    run = train(config, tmp_path / "run")
    stored = run.config
    assert (stored.data, stored.unlabelled) == (str(tmp_path / "here/x.npz"), tmp_path / "here/more")
    assert stored.data_root == tmp_path / "here/sets"
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert evaluate_run(run.path, device="cpu")["accuracy"] == run.accuracy
    (run.path / "result.json").unlink()
    assert train(stored, run.path, resume=True).finished
    with pytest.raises(UserError, match=r"data is 'cifar1O': no such .+; did you mean 'cifar10'\?"):
        train(config.replace(data="cifar1O"), tmp_path / "other")


@pytest.mark.parametrize("listed", ["pets", "pets.csv"])
def test_a_run_whose_pictures_have_changed_is_not_resumed(
    listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8))
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(5):
            picture.save(tmp_path / f"pets/{name}/{i}.png")
    lines = [f"{path},{path.parent.name}\n" for path in sorted((tmp_path / "pets").rglob("*.png"))]
    (tmp_path / "pets.csv").write_text("".join(["path,label\n", *lines]))
    quick = ["--steps", "1", "--batch", "4", "--ratio", "1", "--device", "cpu", "--out", "run"]
    assert main(["train", "--data", listed, *quick]) == 0
    (tmp_path / "run/result.json").unlink()
    assert main(["train", "--resume", "--out", "run"]) == 0  # Its data is called by a whole path now.
    (tmp_path / "run/result.json").unlink()
    # The numbers of the items stay as they are: one more is held out to test on.
    picture.save(tmp_path / "pets/cat/5.png")
    (tmp_path / "pets.csv").write_text("".join(["path,label\n", *lines, "pets/cat/5.png,cat\n"]))
    with pytest.raises(UserError, match="the data has changed since run was started"):
        train(Run(Path("run")).config, "run", resume=True)


def test_a_run_whose_unlabelled_pictures_are_in_another_order_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mean, its labels and its numbers of items stay as they are, but each step would draw other pictures."""
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    for i, image in enumerate(random_bytes(12, 8, 8, 3)):
        save_png(tmp_path / "pets" / ("ape", "bee", "unlabeled")[i % 3] / f"{i:02}.png", image)
    config = own(str(tmp_path / "pets")).replace(steps=2, epoch=1, batch=4, ratio=1, device="cpu", test_share=0.0)
    run = train(config.replace(validation=0.0), tmp_path / "run")
    (run.path / "result.json").unlink()
    last = tmp_path / "pets" / "unlabeled" / "99.png"
    (tmp_path / "pets" / "unlabeled" / "02.png").rename(last)
    with pytest.raises(UserError, match="the data has changed since"):
        train(run.config, run.path, resume=True)
    last.rename(tmp_path / "pets" / "unlabeled" / "02.png")
    assert train(run.config, run.path, resume=True).finished


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 200 GiB"),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] data. DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_too_little_memory_is_said_in_a_line(
    error: Exception, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: Step) -> None:
        raise error

    monkeypatch.setattr(Step, "__call__", step)
    with pytest.raises(UserError, match="batch is 8 and ratio 2, too many for the memory: lower --batch, --ratio or"):
        train(tiny_config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_whose_labels_have_changed_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    for i, image in enumerate(random_bytes(8, 8, 8, 3)):
        save_png(tmp_path / f"{i}.png", image)
    table = tmp_path / "list.csv"
    lines = [f"{i}.png,{('ape', 'bee')[i % 2]}\n" for i in range(8)]
    table.write_text("".join(["path,label\n", *lines]))
    config = own(str(table)).replace(steps=2, epoch=1, batch=4, ratio=1, device="cpu", test_share=0.0, validation=0.0)
    run = train(config, tmp_path / "run")
    (run.path / "result.json").unlink()
    swapped = ["0.png,bee\n", "1.png,ape\n", *lines[2:]]
    table.write_text("".join(["path,label\n", *swapped]))
    with pytest.raises(UserError, match="the data has changed since"):
        train(config, run.path, resume=True)


def test_a_run_whose_data_has_moved_is_resumed_from_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))

    def pictures(folder: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for i in range(16):
            save_png(tmp_path / folder / ("ape", "bee")[i % 2] / f"{i}.png", rng.integers(0, 256, (8, 8, 3), np.uint8))
        save_png(tmp_path / f"{folder}-more" / "x.png", rng.integers(0, 256, (8, 8, 3), np.uint8))

    class Stopping(Lines):
        def __call__(self, step: int, total: int, record: Record) -> None:
            if step > 2:
                raise KeyboardInterrupt

    pictures("old", 0)
    pictures("other", 1)
    old, new, other = (str(tmp_path / name) for name in ("old", "new", "other"))
    config = own(old).replace(
        unlabelled=Path(f"{old}-more"), steps=4, epoch=2, log_every=1, batch=4, ratio=1, test_share=0.25, device="cpu"
    )
    whole = train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", progress=Stopping("stops"))
    Path(old).rename(new)
    Path(f"{old}-more").rename(f"{new}-more")

    resume = ["train", "--resume", "--out", str(tmp_path / "run")]
    moved = [*resume, "--data", new, "--unlabeled", f"{new}-more"]
    for argv, says in (
        (resume, "no such folder or file; check the path or, if it has moved, give its new place with --data\n"),
        ([*resume, "--data", new], f"{old}-more"),
        ([*resume, "--data", other, "--unlabeled", f"{other}-more"], "the data has changed since"),
        ([*resume, "--data", new, "--unlabeled", "None"], "the data has changed since"),
        ([*moved, "--seed", "1"], "was started with seed 0, not 1"),
    ):
        assert main(argv) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1

    assert main(moved) == 0
    for name in ("model.safetensors", "predictions.csv", "split.json", "config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (whole.path / name).read_bytes()


def test_a_run_is_not_resumed_on_items_of_another_size_or_value(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    config = own(str(tmp_path / "old.npz")).replace(steps=2, epoch=1, batch=6, ratio=2, device="cpu", test_share=0.2)
    other = np.where(np.arange(60) < 2, 1 - y, y)
    for name, rows in (("old", x), ("wide", np.tile(x, 2)), ("shifted", x + 0.01), ("turned", x[::-1]), ("copy", x)):
        np.savez(tmp_path / f"{name}.npz", x=rows, y=y)
    np.savez(tmp_path / "relabelled.npz", x=x, y=other)
    run = train(config, tmp_path / "run")
    (run.path / "result.json").unlink()
    for name in ("wide", "shifted", "turned", "relabelled"):
        with pytest.raises(UserError, match="the data has changed since"):
            train(config.replace(data=str(tmp_path / f"{name}.npz")), run.path, resume=True)
    assert train(config.replace(data=str(tmp_path / "copy.npz")), run.path, resume=True).finished
    # Once finished, its data is not read again: so other data cannot be the same.
    assert train(config, run.path, resume=True).finished
    with pytest.raises(UserError, match=r"was started with data .*old\.npz, not .*wide\.npz"):
        train(config.replace(data=str(tmp_path / "wide.npz")), run.path, resume=True)


def test_items_that_are_no_files_have_no_names(finished: Run) -> None:
    assert list(read_table(finished.path / "predictions.csv")[0]) == ["item", "label", "probability", "truth"]
    assert set(json.loads((finished.path / "split.json").read_text())) == {
        *("sha256", "digest", "labelled", "unlabelled", "validation")
    }


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


def test_unlabelled_items_are_needed(tiny_config: Config) -> None:
    corpus = open_corpus(tiny_config)
    few = Corpus("few", type(corpus.train)(corpus.train.inputs[:60], corpus.train.labels[:60], corpus.train.classes))
    config = tiny_config.replace(labels=None, include_labelled=False, test_share=0.0)
    with pytest.raises(UserError, match="needs unlabelled samples"):
        prepare(config, few)
    Loop(prepare(config.replace(method="supervised"), few)).run(Silent(), quiet, None)


def test_begin_epoch_is_offered_features_of_all_images(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    job = prepare(tiny_config.replace(steps=9))
    seen: list[tuple[int, Embedding]] = []
    monkeypatch.setattr(job.method, "begin_epoch", lambda epoch, embed: seen.append((epoch, embed())))
    Loop(job).run(Silent(), quiet, None)
    assert [epoch for epoch, _ in seen] == [0, 1, 2]
    for _, embedding in seen:
        assert embedding.labelled.shape == (40, 128)
        assert embedding.labels.tolist() == job.corpus.train.labels[job.split.labelled].tolist()
        assert embedding.unlabelled.shape == (len(job.split.unlabelled), 128)


def test_begin_epoch_is_offered_features_where_nothing_is_unlabelled(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = open_corpus(tiny_config)
    few = Corpus("few", corpus.train.subset(np.arange(60)))
    config = tiny_config.replace(method="supervised", labels=None, include_labelled=False, test_share=0.0)
    job = prepare(config.replace(steps=1, pool="host"), few)
    seen: list[Embedding] = []
    monkeypatch.setattr(job.method, "begin_epoch", lambda epoch, embed: seen.append(embed()))
    Loop(job).run(Silent(), quiet, None)
    assert [(part.labelled.shape, part.unlabelled.shape) for part in seen] == [((60, 128), (0, 128))]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_run_which_resumes_as_if_left_alone(
    number: signal.Signals, finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    step = Step.__call__

    def stopping(self: Step) -> None:
        if self.done == 4:
            signal.raise_signal(number)
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", stopping)
        with pytest.raises(KeyboardInterrupt, match=r"^continue with normatch train --out .*run --resume$"):
            train(finished.config, tmp_path / "run")
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert checkpoint.newest_step(tmp_path / "run" / "checkpoint") == 5, "where none is due"
    run = train(finished.config, tmp_path / "run", resume=True)
    for name in ("model.safetensors", "predictions.csv"):
        assert (run.path / name).read_bytes() == (finished.path / name).read_bytes()


def test_a_second_ctrl_c_stops_at_once(tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping(self: Step) -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr(Step, "__call__", stopping)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_config, tmp_path / "run")
    assert checkpoint.newest_step(tmp_path / "run" / "checkpoint") == 0


def test_a_run_in_another_thread_leaves_signals_alone(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: pytest.fail("a handler was installed"))
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(train, tiny_config.replace(steps=1), tmp_path / "run").result().finished


@pytest.mark.parametrize(("code", "stopped"), [(75, True), (2, False)])
def test_exit_codes_of_a_run_that_did_not_end(
    code: int, stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if stopped:
        monkeypatch.setattr(Step, "_prepare", lambda self: signal.raise_signal(signal.SIGTERM))
    argv = ["train", "digits-40", "--steps", "2", "--batch", "8", "--ratio", "1", "--device", "cpu"]
    # With this rate the weights are finite after the last step, the logits are not.
    argv += ["--out", str(tmp_path / "run"), *([] if stopped else ["--optim.lr", "1e10", "--steps", "1"])]
    assert main(argv) == code
    said = capsys.readouterr().err.splitlines()[-1]
    assert ("continue with normatch train" if stopped else "training stopped at step 1: loss, weights") in said
    assert not Run.open(tmp_path / "run").finished


def test_the_result_has_scores_that_count_classes_alike(finished: Run) -> None:
    lines = [row for row in read_table(finished.path / "predictions.csv") if row["truth"]]
    truth, guess = ([line[name] for line in lines] for name in ("truth", "label"))
    recalls, scores = [], []
    for name in sorted({*truth, *guess}):
        hits = sum(t == g == name for t, g in zip(truth, guess, strict=True))
        scores.append(2 * hits / (truth.count(name) + guess.count(name)))
        recalls += [hits / truth.count(name)] if name in truth else []
    assert finished.result["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    assert finished.result["macro_f1"] == pytest.approx(np.mean(scores))
    assert f"balanced accuracy {np.mean(recalls):.2%}, macro-F1 {np.mean(scores):.2%}, " in finished.describe()


@pytest.mark.parametrize(("name", "value"), [("accuracy", -0.1), ("macro_f1", 1.5), ("balanced_accuracy", math.nan)])
def test_a_score_that_is_no_share_is_named(name: str, value: float, finished: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(finished.path, tmp_path / "run")))
    (run.path / "result.json").write_text(json.dumps(run.result | {name: value}))
    with pytest.raises(UserError, match=rf"result.json cannot be read \({name} is {value}\): restore it"):
        _ = run.accuracy
