"""What is chosen for the user's own data: from the data, with a reason, and stored so that it can be repeated."""

import html
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor, nn

import normatch
from normatch import recipes
from normatch.autoconfig import Plan, minutes, plan, planning
from normatch.autoconfig.minutes import Pace
from normatch.autoconfig.minutes import pace as measure
from normatch.cli import main
from normatch.config import to_json
from normatch.data import Corpus, Dataset, Reading
from normatch.data.inspect import describe, inspect
from normatch.errors import UserError
from normatch.evaluate.held_out import evaluate_run
from normatch.methods import methods
from normatch.methods.normatch import NorMatch, NorMatchSettings
from normatch.methods.parts.groups import Group, OptimConfig
from normatch.nets import backbones
from normatch.nets.backbone import Backbone, BackboneSpec
from normatch.training import Job, Loop, Run, prepare, train
from tests.data.original_formats import save_png

QUICK = ["--steps", "2", "--epoch", "1", "--batch", "8", "--ratio", "1", "--device", "cpu"]


def arrays(path: Path, *, items: int = 40, classes: int = 2, labelled: int | None = None, test: int = 0) -> Path:
    rng = np.random.default_rng(0)
    labels = np.arange(items) % classes
    labels[items if labelled is None else labelled :] = -1
    held: dict[str, Any] = {"test_x": rng.normal(size=(test, 4)), "test_y": np.arange(test) % classes} if test else {}
    np.savez(path, x=rng.normal(size=(items, 4)), y=labels, **held)
    return path


def pictures(where: Path, sides: list[int], mode: str = "RGB") -> Path:
    rng = np.random.default_rng(0)
    for i, side in enumerate(sides):
        place = where / ("cat", "dog")[i % 2] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (side, side + 3, 3), np.uint8)).convert(mode).save(place)
    return where


def choose(data: Path, **options: Any) -> Plan:
    changes = options.pop("changes", {})
    return plan(recipes.own(str(data)).replace(device="cpu", **changes), data.parent / "run", **options)


@pytest.mark.parametrize(
    ("items", "labelled", "batch", "ratio"),
    [(40, 40, 32, 1), (400, 100, 32, 7), (400, 20, 16, 7), (30, 10, 8, 3), (12, 10, 8, 1)],
)
def test_batches_go_by_the_number_of_items(tmp_path: Path, items: int, labelled: int, batch: int, ratio: int) -> None:
    made = choose(arrays(tmp_path / "x.npz", items=items, labelled=labelled))
    assert (made.config.batch, made.config.ratio) == (batch, ratio)


def test_a_share_is_held_out_where_labels_can_be_spared(tmp_path: Path) -> None:
    share = {
        name: choose(arrays(tmp_path / f"{name}.npz", **options)).config.test_share
        for name, options in {
            "plain": {},
            "many": {"items": 40_000},
            "few": {"items": 40, "labelled": 8},
            "given": {"test": 10},
        }.items()
    }
    assert share == {"plain": 0.2, "many": 0.05, "few": 0.0, "given": 0.0}


def test_a_test_set_without_items_is_none(tmp_path: Path) -> None:
    content = dict(np.load(arrays(tmp_path / "x.npz")))
    for empty in (np.zeros((0, 4)), np.array([])):
        np.savez(tmp_path / "x.npz", **content, test_x=empty, test_y=np.array([], empty.dtype))
        made = choose(tmp_path / "x.npz")
        assert made.config.test_share == 0.2
        assert "8 of the 40 labelled items, to test on" in made.describe()
    (pictures(tmp_path / "p/train", [20] * 10).parent / "test/cat").mkdir(parents=True)
    (tmp_path / "p/test/cat/cut.png").touch()
    assert choose(tmp_path / "p", changes={"on_bad_image": "skip"}).config.test_share == 0.2


def test_a_test_set_without_labels_is_no_dead_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It gives no accuracy, so others are held out; where that is forbidden, the advice can be followed."""
    data = tmp_path / "x.npz"
    content = dict(np.load(arrays(data, test=100)))
    np.savez(data, **content | {"test_y": np.full(100, -1)})
    argv = ["train", "--data", str(data), *QUICK]
    assert main([*argv, "--out", str(tmp_path / "chosen")]) == 0
    said = capsys.readouterr().out
    assert "100 test items without labels\n" in said
    assert "8 of the 40 labelled items, to test on in place of the 100 test items, which have no labels\n" in said
    assert "\naccuracy " in said
    assert main([*argv, "--test-share", "0", "--out", str(tmp_path / "none")]) == 0
    assert "\nno accuracy: train with --test-share 0.2, or add labelled test samples to" in capsys.readouterr().out
    assert main([*argv, "--test-share", "0.2", "--out", str(tmp_path / "followed")]) == 0
    assert "\naccuracy " in capsys.readouterr().out
    assert main(["eval", str(tmp_path / "followed")]) == 0
    few = arrays(tmp_path / "few.npz", labelled=8, test=3)
    np.savez(few, **dict(np.load(few)) | {"test_y": np.full(3, -1)})
    assert "too few to hold some out" in choose(few).describe()
    assert "too few to hold some out" in describe(inspect(str(few)))


def test_a_hundredth_at_least_is_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.arange(500_000) % 2
    corpus = Corpus("stub", Dataset(np.zeros((len(labels), 1), np.float32), labels, ("a", "b")))
    monkeypatch.setattr(planning, "open_corpus", lambda *_, **__: corpus)
    (tmp_path / "x.npz").touch()
    made = choose(tmp_path / "x.npz")
    assert made.config.test_share == 0.01
    assert "5,000 of the 500,000 labelled items" in made.describe()


@pytest.mark.parametrize(
    ("sides", "size", "why"),
    [
        ([20, 50, 70, 90], 32, "the shorter sides are 20 to 90 pixels, their median 60; no more than 32 without a GPU"),
        ([20, 21, 22, 23], 32, "their median 21.5"),
        ([300, 300, 300, 300], 32, "without a GPU"),
    ],
)
def test_the_image_size_goes_by_the_sizes_seen(tmp_path: Path, sides: list[int], size: int, why: str) -> None:
    made = choose(pictures(tmp_path / "p", sides))
    assert made.config.image_size == size
    assert made.corpus is not None
    assert made.corpus.train.shape == (3, size, size)
    assert why in made.describe()
    assert made.config.backbone == "small-wide"


def test_a_larger_size_gets_another_network(tmp_path: Path) -> None:
    made = choose(pictures(tmp_path / "p", [80, 90, 100, 70]), changes={"image_size": 96}, fixed={"image_size"})
    assert (made.config.image_size, made.config.backbone) == (96, "resnet-18")


@pytest.mark.parametrize(
    ("changes", "fixed", "passes"),
    [
        ({}, (), "shared"),
        ({"method": "fixmatch"}, (), "shared"),
        ({"backbone": "wrn-28-2"}, (), "shared"),
        ({}, ("settings.passes",), "joint"),
        ({"settings": NorMatchSettings(stop_gradient=False)}, (), "joint"),
        ({"image_size": 64, "backbone": "resnet-18"}, (), "shared"),
    ],
)
def test_weak_views_are_left_out_of_the_backward_pass_where_they_can_be(
    changes: dict[str, Any], fixed: tuple[str, ...], passes: str, tmp_path: Path
) -> None:
    short = {"steps": 1, "batch": 4, "ratio": 1}
    made = choose(pictures(tmp_path / "p", [32] * 4), changes=short | changes, fixed=fixed)
    assert to_json(made.config)["settings"]["passes"] == passes
    assert ("settings.passes" in {name for name, *_ in made.chosen}) == (passes == "shared")
    assert train(made.config, tmp_path / "run", corpus=made.corpus).finished


def test_vectors_pass_as_in_the_paper(tmp_path: Path) -> None:
    """Their network has no other way."""
    assert choose(arrays(tmp_path / "x.npz")).config.settings == NorMatchSettings()


def test_images_stay_large_for_a_network_that_takes_no_small_ones(tmp_path: Path) -> None:
    """Without a GPU they become small, and the error asked for another network, although these are of its size."""
    data = pictures(tmp_path / "p", [80, 90, 100, 70])
    made = choose(data, changes={"backbone": "resnet-18"})
    assert (made.config.image_size, made.config.backbone) == (64, "resnet-18")
    assert choose(data, changes={"backbone": "wrn-28-2"}).config.image_size == 32


def test_files_that_are_not_read_are_counted(tmp_path: Path) -> None:
    data = pictures(tmp_path / "p", [20, 20, 20])
    (data / "cat" / "IMG_1.HEIC").touch()
    (data / "dog" / "gone.png").symlink_to("nowhere.png")
    said = "\n! 1 file of another kind is ignored: .heic 1\n! ignored, a broken link: "
    assert f"3 labelled, 0 unlabelled{said}" in choose(data).describe()
    assert said in describe(inspect(str(data)))


def test_images_that_are_passed_over_are_named(tmp_path: Path) -> None:
    data = tmp_path / "p"
    for part in ("train", "val"):
        pictures(data / part, [20] * 4)
    named = f"! ignored, outside the folders that are read: {data / 'val' / 'cat' / '0.png'} and 3 more\n"
    assert named in choose(data).describe()


def test_a_test_set_that_is_read_as_a_class_is_named(tmp_path: Path) -> None:
    data = pictures(tmp_path / "p", [20] * 10)
    shutil.copytree(data / "cat", data / "test")
    remark = "! 'test' is read as a class: if its pictures are to test on, sort them into test/<class> beside"
    assert remark in choose(data).describe()
    assert remark in describe(inspect(str(data)))


def test_classes_that_may_be_one_are_named(tmp_path: Path) -> None:
    data = pictures(tmp_path / "p", [20] * 10)
    assert "!" not in choose(data).describe()
    shutil.copytree(data / "cat", data / "Cat ")
    remark = "'Cat ', 'cat' are 2 classes whose names differ only in case or blanks: rename them if they are one"
    assert f" 0 unlabelled\n! {remark}\n" in choose(data).describe()
    assert f"! {remark}\n" in describe(inspect(str(data)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": 3}, "labels is 3: give a multiple of the 2 classes"),
        ({"labels": 20}, "class 'cat' has 4 labelled samples left to train on, but 10 are needed: label more, or set"),
        ({"test_share": 0.9}, "class 'cat' has no labelled sample left to train on, but 1 is needed: label more"),
    ],
)
def test_what_the_list_of_files_tells_is_not_found_after_decoding(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    def never(done: int, total: int) -> None:
        raise AssertionError("decoded")

    data = pictures(tmp_path / "p", [20] * 10)
    reading = Reading(cache=False, progress=never)
    with pytest.raises(UserError, match=said):
        choose(data, changes=changes, reading=reading)
    shutil.rmtree(data / "dog")
    with pytest.raises(UserError, match="has only one class, 'cat': label items of at least two classes"):
        choose(data, changes=changes, reading=reading)


@pytest.mark.parametrize(("n", "said"), [(8, "all 8 pictures of class 'dog' are"), (1, "the only picture of class")])
def test_a_class_without_a_readable_picture_is_named(tmp_path: Path, n: int, said: str) -> None:
    data = pictures(tmp_path / "p", [20] * 16)
    for i, file in enumerate(sorted((data / "dog").iterdir())):
        file.write_bytes(b"") if i < n else file.unlink()
    with pytest.raises(UserError, match=f"^{said}.* unreadable: replace .*, or remove the class$"):
        choose(data, changes={"on_bad_image": "skip"})


def test_deep_pictures_of_few_levels_are_pointed_out(tmp_path: Path) -> None:
    for i in range(4):
        place = tmp_path / "p" / ("cat", "dog")[i % 2] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 4096, (20, 20), np.uint16)).save(place)
    remark = r"\n! nearly black \(level 1\d of 255 at most\): 4 pictures of 16 or 32 bits; if fewer bits are in use"
    assert re.search(remark, choose(tmp_path / "p").describe())
    assert re.search(remark, describe(inspect(str(tmp_path / "p"))))
    Image.fromarray(np.full((20, 20), 40_000, np.uint16)).save(place)
    assert "nearly black" not in describe(inspect(str(tmp_path / "p")))


def test_images_of_one_size_keep_it(tmp_path: Path) -> None:
    made = choose(pictures(tmp_path / "p", [20, 20, 20], "L"))
    assert made.config.image_size is None, "they are 23 × 20, which no number says"
    assert made.corpus is not None
    assert made.corpus.train.shape == (1, 20, 23)


def test_what_the_user_fixes_stays(tmp_path: Path) -> None:
    changes = {"batch": 5, "steps": 77, "test_share": 0.5, "backbone": "linear"}
    made = choose(arrays(tmp_path / "x.npz"), changes=changes, fixed=set(changes))
    assert {name: getattr(made.config, name) for name in changes} == changes
    assert not {name for name, *_ in made.chosen} & set(changes)


def test_the_page_s_python_keeps_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pictures(Path("pictures"), [20, 30] * 8)
    page = (Path(__file__).parents[1] / "docs" / "own-images.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("steps=200", "steps=2, batch=8, ratio=1, device='cpu'"), names)
    assert names["run"].config.steps == 2


def test_one_plan_serves_runs_of_several_seeds(tmp_path: Path) -> None:
    """Each run holds out the items that its own config names: the same as if it had read the data itself."""
    made = choose(arrays(tmp_path / "x.npz", items=100), changes={"steps": 2, "batch": 8, "ratio": 1})
    assert made.corpus is not None
    assert (made.config.test_share, len(made.corpus.train), made.corpus.test) == (0.2, 100, None)
    for seed in (0, 1):
        config = made.config.replace(seed=seed)
        run, alone = (train(config, tmp_path / f"{seed}{c is None}", corpus=c) for c in (made.corpus, None))
        for file in ("model.safetensors", "predictions.csv", "split.json"):
            assert (run.path / file).read_bytes() == (alone.path / file).read_bytes()
        assert evaluate_run(run.path, device="cpu")["accuracy"] == run.accuracy


def test_what_a_config_changes_stays(tmp_path: Path) -> None:
    """In Python there are no flags: a field that differs from the recipe is the user's choice."""
    changes = {"batch": 16, "steps": 200, "epoch": 10, "ratio": 2, "norm_momentum": 0.05, "log_every": 50}
    made = choose(arrays(tmp_path / "x.npz"), changes=changes)
    assert {name: getattr(made.config, name) for name in changes} == changes
    assert {name for name, *_ in made.chosen} == {"backbone", "test_share"}
    assert choose(arrays(tmp_path / "x.npz"), changes={"method": "fixmatch"}).config.steps == 1024
    assert choose(arrays(tmp_path / "x.npz"), fixed={"steps"}).config.steps == recipes.own("x.npz").steps
    with pytest.raises(UserError, match="give one of them"):
        choose(arrays(tmp_path / "x.npz"), changes={"steps": 200}, minutes=1)


def uneven(path: Path, *counts: int, unlabelled: int = 40) -> Path:
    """Vectors with so many labels of each class."""
    labels = np.repeat([*range(len(counts)), -1], [*counts, unlabelled])
    np.savez(path, x=np.random.default_rng(0).normal(size=(len(labels), 4)), y=labels)
    return path


def test_skewed_labels_turn_alignment_off(tmp_path: Path) -> None:
    skewed = uneven(tmp_path / "skewed.npz", 40, 10)
    made = choose(skewed)
    assert made.config.settings == NorMatchSettings(alignment=False)
    assert "\n! classes are 4.0 : 1: 0 has 40 labelled samples, 1 10\n" in made.describe()
    assert re.search(
        r"  --settings.alignment +off +labels to learn from are 4\.0 : 1, and alignment makes", made.describe()
    )
    assert choose(skewed, fixed={"settings.alignment"}).config.settings == NorMatchSettings()
    assert "alignment" not in choose(skewed, changes={"settings": NorMatchSettings(alignment=False)}).describe()
    assert "alignment" not in choose(skewed, changes={"method": "supervised"}).describe()
    assert "alignment" not in choose(skewed, changes={"labels": 8}).describe(), "equally many are drawn"


def test_labels_that_chance_makes_uneven_keep_alignment(tmp_path: Path) -> None:
    made = choose(uneven(tmp_path / "x.npz", 6, 2, 5, 3))
    assert made.config.settings == NorMatchSettings()
    assert "classes are 3.0 : 1" in made.describe()


def test_a_flag_keeps_alignment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(uneven(tmp_path / "x.npz", 40, 10))
    asked = {
        (): False,
        ("--settings.alignment",): True,
        ("--settings.no-alignment",): False,
        ("--settings.alignment-batches", "8"): True,
    }
    for flags, alignment in asked.items():
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        assert main(["train", "--data", data, *QUICK, *flags, "--out", str(out)]) == 0
        assert json.loads((out / "config.json").read_text())["settings"]["alignment"] is alignment
        assert ("  --settings.alignment " in capsys.readouterr().out) is (not flags)
        warned = [warning["name"] for warning in Run.open(out).warnings]
        assert warned == (["skewed-labels"] if alignment else [])


def test_train_and_inspect_agree_on_too_few(tmp_path: Path) -> None:
    data = uneven(tmp_path / "x.npz", 40, 4)
    remark = "1 has 4 labelled samples: too few to hold some out for testing"
    assert remark in choose(data).describe()
    assert f"! {remark}" in describe(inspect(str(data)))


@pytest.mark.parametrize(
    ("changes", "epoch", "said"),
    [
        ({"epoch": 10}, 10, "0.5 s for an evaluation every 10,"),
        ({"evaluate_every": 10}, 324, "32 checkpoints"),
        ({"evaluate_every": 10, "checkpoint_every": 100}, 324, "32 epochs"),
        ({"epoch": 20, "evaluate_every": 10}, 20, "0.5 s for an evaluation every 10,"),
    ],
)
def test_a_time_budget_counts_evaluations_at_fixed_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, int], epoch: int, said: str
) -> None:
    monkeypatch.setattr(minutes, "pace", lambda job: Pace(start=0.0, step=0.005, evaluation=0.5))
    made = choose(arrays(tmp_path / "x.npz"), minutes=10, changes=changes)
    # An evaluation after each ten steps and one after the last: 10,354 · 0.005 s + 1,036 · 0.5 s = 569.8 s of 570 s.
    assert (made.config.steps, made.config.epoch) == (10_354, epoch)
    assert said in made.describe()


@pytest.mark.parametrize(("steps", "momentum"), [(100, 0.1), (200, 0.1), (400, 0.05), (2000, 0.01), (4000, 0.01)])
def test_the_momentum_of_batch_norm_is_20_by_the_steps_within_bounds(
    tmp_path: Path, steps: int, momentum: float
) -> None:
    made = choose(arrays(tmp_path / "x.npz"), changes={"steps": steps}, fixed={"steps"})
    assert made.config.norm_momentum == momentum


RATES = [(1, 0.1), (256, 0.1), (1024, 0.05), (4096, 0.025), (10_240, 0.016), (1_000_000, 0.01)]


@pytest.mark.parametrize(("steps", "rate"), RATES)
def test_convolutions_are_trained_by_muon_at_a_rate_that_suits_the_steps(
    tmp_path: Path, steps: int, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pictures(tmp_path / "p", [32] * 4)
    made = choose(folder, changes={"steps": steps}, fixed={"steps"})
    assert made.config.optim == OptimConfig(muon=rate)
    unit = "step" if steps == 1 else "steps"
    assert f"--optim.muon       {rate:<10}  convolutions learn faster by it; for {steps:,} {unit}\n" in made.describe()
    # 95 % of the time are for steps, less 32 evaluations.
    monkeypatch.setattr(minutes, "LEAST_STEPS", 1)
    monkeypatch.setattr(minutes, "pace", lambda job: Pace(start=0.0, step=56.9 / steps, evaluation=1e-9))
    assert choose(folder, minutes=1).config.optim.muon == rate


@pytest.mark.parametrize(
    ("changes", "fixed", "rate"),
    [
        ({"backbone": "wrn-28-2"}, (), 0.05),
        ({"method": "supervised"}, (), 0.05),
        ({}, ("optim.muon",), 0.0),
        ({"optim": OptimConfig(muon=0.3)}, (), 0.3),
        ({"backbone": "without-convolutions"}, (), 0.0),
        ({"method": "all-by-adamw"}, (), 0.0),
        ({"method": "grouped-as-ours"}, (), 0.05),
    ],
)
def test_muon_is_for_networks_and_methods_that_have_it_and_up_to_the_user(
    changes: dict[str, Any], fixed: tuple[str, ...], rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Flat(Backbone):
        def __init__(self) -> None:
            super().__init__(features=8)
            self.layer = nn.Linear(3 * 32 * 32, 8)

        def forward(self, x: Tensor) -> Tensor:
            features: Tensor = self.layer(x.flatten(1))
            return features

    class GroupedAsOurs(NorMatch):
        pass

    class AllByAdamW(NorMatch):
        def groups(self, optim: OptimConfig) -> list[Group]:
            return [Group(list(self.parameters()), "adamw", 1e-3, 0.0)]

    flat = BackboneSpec("without-convolutions", "", (8, 64), lambda shape, momentum: Flat())
    monkeypatch.setattr(backbones, "_things", backbones._things | {"without-convolutions": flat})
    others = {"all-by-adamw": AllByAdamW, "grouped-as-ours": GroupedAsOurs}
    monkeypatch.setattr(methods, "_things", methods._things | others)
    short = {"steps": 1024, "batch": 4, "ratio": 1}
    made = choose(pictures(tmp_path / "p", [32] * 4), changes=short | changes, fixed=fixed)
    assert made.config.optim.muon == rate
    assert ("optim.muon" in {name for name, *_ in made.chosen}) == (rate == 0.05)
    Loop(prepare(made.config, made.corpus)).step()


@pytest.mark.parametrize(("steps", "epochs"), [(1, 1), (32, 32), (33, 17), (63, 32), (100, 25), (1024, 32)])
def test_a_run_has_no_more_epochs_than_are_promised(tmp_path: Path, steps: int, epochs: int) -> None:
    config = choose(arrays(tmp_path / "x.npz"), changes={"steps": steps}, fixed={"steps"}).config
    assert math.ceil(steps / config.epoch) == epochs


def test_vectors_are_not_trained_by_muon(tmp_path: Path) -> None:
    assert choose(arrays(tmp_path / "x.npz")).config.optim == OptimConfig()


def test_a_time_budget_becomes_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "pace", lambda job: Pace(start=10.0, step=0.5, evaluation=1.0))
    made = choose(arrays(tmp_path / "x.npz"), minutes=10)
    # 570 of the 600 seconds, less 10 to start and 32 evaluations, at two steps a second.
    assert (made.config.steps, made.config.epoch) == (1056, 33)
    assert "10 minutes at 2.00 steps/s" in made.describe()
    slow = choose(arrays(tmp_path / "x.npz"), minutes=2)
    assert (slow.config.steps, slow.config.epoch) == (168, 6)
    assert slow.config.evaluate_every == 9, "evaluations may take a fifth of the time"
    assert re.search(r"--evaluate-every +9 +19 evaluations\n", slow.describe())
    recipe = plan(recipes.digits(), tmp_path / "run", automatic=False, minutes=10)
    assert (recipe.config.steps, recipe.config.epoch) == (1100, 110)


def test_a_plan_of_too_few_steps_gets_smaller_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine: the time of a step follows the images in it."""

    def pace(job: Job) -> Pace:
        return Pace(start=1.0, step=0.1 * job.config.batch * (1 + job.config.ratio), evaluation=0.1)

    monkeypatch.setattr(minutes, "pace", pace)
    data = arrays(tmp_path / "x.npz")
    made = choose(data, minutes=3)
    assert (choose(data).config.batch, made.config.batch) == (32, 8)
    assert made.config.steps >= 100
    assert re.search(r"--batch +8 +\d+ steps with \d+ images each would not learn\n", made.describe())


def test_a_plan_that_cannot_learn_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "pace", lambda job: Pace(start=10.0, step=20.0, evaluation=1.0))
    refused = r"minutes is 3: at 0\.05 steps/s.* too few for 100 steps.* --minutes 36"
    with pytest.raises(UserError, match=refused):
        choose(arrays(tmp_path / "x.npz"), minutes=3)
    with pytest.raises(UserError, match=refused):
        plan(recipes.digits(), tmp_path / "run", automatic=False, minutes=3)


@pytest.mark.parametrize("evaluation", [0.001, 0.5, 2.0, 60.0])
def test_slow_evaluations_do_not_lengthen_the_ramps_of_a_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluation: float
) -> None:
    monkeypatch.setattr(minutes, "pace", lambda job: Pace(start=1.0, step=0.01, evaluation=evaluation))
    own_data = choose(arrays(tmp_path / "x.npz"), minutes=2).config
    recipe = plan(recipes.digits(), tmp_path / "run", automatic=False, minutes=2).config
    for config, epochs in ((own_data, 32), (recipe, 10)):
        assert epochs - 1 <= config.steps / config.epoch <= epochs
        every = config.evaluate_every or config.epoch
        spent = (config.steps // every) * evaluation
        assert spent <= 0.2 * 120 or every == config.steps, "the one after the last step"
        assert config.checkpoint_every is None


def test_a_recipe_of_many_epochs_has_few_checkpoints_in_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minutes, "pace", lambda job: Pace(start=1.0, step=0.01, evaluation=0.1))
    config = recipes.digits().replace(steps=60_000)
    made = plan(config, tmp_path / "run", automatic=False, minutes=2).config
    assert math.ceil(made.steps / made.epoch) > 900
    assert made.checkpoint_every == math.ceil(made.steps / 32)
    changed = config.replace(checkpoint_every=50)
    kept = plan(changed, tmp_path / "run", automatic=False, minutes=2, fixed={"checkpoint_every"})
    assert kept.config.checkpoint_every == 50


def test_the_intervals_of_a_recipe_are_scaled_to_its_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "pace", lambda job: Pace(start=1.0, step=0.05, evaluation=0.5))
    config = recipes.digits().replace(steps=96_000, epoch=1000, evaluate_every=4000, checkpoint_every=8000)
    made = plan(config, tmp_path / "run", automatic=False, minutes=2)
    steps = made.config.steps
    assert 1500 < steps < 2500
    assert made.config.evaluate_every == math.ceil(steps / 24)
    assert made.config.checkpoint_every == math.ceil(steps / 32)
    assert made.config.epoch == math.ceil(steps / 96)
    few = plan(
        config.replace(evaluate_every=30), tmp_path / "run", automatic=False, minutes=2, fixed={"evaluate_every"}
    )
    assert few.config.evaluate_every == 30


def test_what_is_said_of_a_few_steps_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "LEAST_STEPS", 1)
    monkeypatch.setattr(minutes, "pace", lambda job: Pace(start=0.0, step=3.0, evaluation=1.0))
    made = plan(recipes.digits().replace(steps=60_000), tmp_path / "run", automatic=False, minutes=1)
    assert made.config.steps == 15
    said = {name: why for name, _, why in made.chosen}
    assert said["evaluate_every"] == f"{math.ceil(15 / (made.config.evaluate_every or 1))} evaluations"
    assert made.config.checkpoint_every is None
    assert said["epoch"] == "15 checkpoints"


def test_a_network_asked_for_as_auto_is_chosen(tmp_path: Path) -> None:
    data = arrays(tmp_path / "x.npz")
    named = choose(data, fixed={"backbone"}).config
    assert named == choose(data).config
    assert named.backbone != "auto"


def test_nothing_is_chosen_for_a_named_data_set_unless_asked_for(tmp_path: Path) -> None:
    """Its recipe has the values that suit it: one that happens to be the draft's for own data is no open choice."""
    config = recipes.digits().replace(batch=64, device="cpu")
    assert config.batch == recipes.own("x").batch
    made = plan(config, tmp_path / "run")
    assert (made.config, made.chosen) == (config, ())
    assert plan(config, tmp_path / "run", automatic=True).config.batch == 32


def test_a_short_run_is_recorded_often_enough_for_a_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = arrays(tmp_path / "x.npz")

    def recorded(fixed: set[str], **changes: int) -> int:
        return choose(data, changes=changes, fixed=fixed).config.log_every

    assert recorded(set()) == 64, "as before where the run is long"
    assert recorded({"steps"}, steps=50) == 3
    assert recorded({"steps"}, steps=5) == 1
    assert recorded({"steps", "log_every"}, steps=50, log_every=40) == 40
    monkeypatch.setattr(minutes, "pace", lambda job: Pace(start=10.0, step=0.5, evaluation=1.0))
    assert choose(data, minutes=2).config.log_every == 10, "of 168 steps"
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits-40", "--steps", "20", "--batch", "8", "--ratio", "1", "--device", "cpu"]) == 0
    assert [record["step"] for record in Run.open(Path("runs/digits-40")).metrics()] == list(range(1, 21))
    assert plan(recipes.digits(), tmp_path / "whole", automatic=False).config == recipes.digits()


def test_the_speed_is_measured_and_its_steps_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Pace] = []

    def pace(job: Job) -> Pace:
        measured.append(measure(job, seconds=0.1))
        return Pace(start=0.0, step=1.0, evaluation=0.1)

    monkeypatch.setattr(minutes, "LEAST_STEPS", 1)
    monkeypatch.setattr(minutes, "pace", pace)
    argv = ["train", "--data", str(arrays(tmp_path / "x.npz")), "--minutes", "0.1", "--out", str(tmp_path / "run")]
    assert main([*argv, "--device", "cpu"]) == 0
    (speed,) = measured
    assert speed.start > 0
    assert speed.step > 0
    assert speed.evaluation > 0
    run = Run.open(tmp_path / "run")
    assert run.result["steps"] == run.config.steps == 4
    again = train(run.config, tmp_path / "again")
    assert (again.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("minutes", [-1.0, 0.0, 1e300, float("nan"), float("inf")])
def test_wrong_minutes(tmp_path: Path, minutes: float) -> None:
    with pytest.raises(UserError, match="give a number of minutes above 0"):
        choose(arrays(tmp_path / "x.npz"), minutes=minutes)


def test_minutes_and_steps_contradict(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give one of them"):
        choose(arrays(tmp_path / "x.npz"), minutes=1, fixed={"steps"})
    with pytest.raises(UserError, match="leave it out"):
        choose(arrays(tmp_path / "x.npz"), minutes=1, resume=True)


def test_a_manifest_with_test_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are tested on, by train and eval, and known to inspect; to predict, all rows count."""
    monkeypatch.chdir(tmp_path)
    files = sorted(pictures(Path("pets"), [20] * 16).rglob("*.png"))
    rows = [f"{file},{file.parent.name},{'test' if i % 4 == 0 else 'train'}\n" for i, file in enumerate(files)]
    Path("pets.csv").write_text("path,label,split\n" + "".join(rows))
    assert main(["train", "--data", "pets.csv", *QUICK, "--out", "run"]) == 0
    said = capsys.readouterr().out
    assert "pets.csv: 2 classes, 12 labelled, 0 unlabelled, 4 test items\n" in said
    assert "\naccuracy " in said
    table = Path("run/predictions.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in table[1:]] == [str(file) for file in files[::4]]
    assert main(["eval", "run"]) == 0
    assert "on 4 test samples" in capsys.readouterr().out
    assert main(["data", "inspect", "pets.csv"]) == 0
    assert "12 labelled in 2 classes, 0 unlabelled, 4 test\n" in capsys.readouterr().out
    assert main(["predict", "run", "pets.csv", "--out", "labels.csv"]) == 0
    assert len(Path("labels.csv").read_text().splitlines()) == 17


def test_choices_are_printed_stored_and_repeat_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = pictures(tmp_path / "pets", [40, 50, 60, 70] * 4)
    argv = ["train", "--data", str(data), *QUICK, "--out", str(tmp_path / "run")]
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert f"{data}: 2 classes, 16 labelled, 0 unlabelled" in shown
    assert re.search("  --image-size +32  ", shown)
    assert "  --batch  " not in shown, "the user set it"
    assert "  To change one, add its flag. All are stored in config.json.\n" in shown
    flags = re.findall(r"^  (--[\w.-]+)  +(\S+)", shown, re.MULTILINE)
    given = [part for flag, value in flags for part in ((flag, value) if value != "on" else (flag,))]
    assert main([*argv[:-1], str(tmp_path / "flags"), *given]) == 0, "each is a flag"
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (stored["image_size"], stored["backbone"], stored["test_share"]) == (32, "small-wide", 0.2)
    run = Run.open(tmp_path / "run")
    again = train(run.config, tmp_path / "again")
    assert {"normatch": normatch.__version__} | to_json(again.config) == stored
    assert (again.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()
    assert main(["eval", str(run.path), "--json"]) == 0


def test_a_run_without_a_test_set_says_what_gives_it_an_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not --test-share, for which there are too few labels."""
    monkeypatch.chdir(tmp_path)
    data = pictures(Path("pets"), [20] * 13)
    for file in sorted((data / "dog").iterdir())[3:]:
        file.unlink()
    assert main(["train", "--data", "pets", *QUICK]) == 0
    remedy = "label 2 more of 'dog', or put labelled pictures into test/ beside train/"
    assert f"\nno accuracy: {remedy}; 2 steps in " in capsys.readouterr().out
    assert main(["eval", "runs/pets"]) == 2
    said = capsys.readouterr().err
    assert said == f"normatch: runs/pets has no held-out items, and so no accuracy: {remedy}\n"
    assert main(["eval", "runs/pets", "--on", "validation"]) == 2
    assert "has no validation items: train with --validation" in capsys.readouterr().err
    assert main(["report", "runs/pets"]) == 0
    assert html.escape(remedy) in Path("runs/pets/report.html").read_text(encoding="utf-8")
    shutil.copytree(data, "more/train")
    shutil.copytree(data, "more/test")
    capsys.readouterr()
    assert main(["train", "--data", "more", *QUICK]) == 0
    assert "\naccuracy " in capsys.readouterr().out, "the advice can be followed"


def test_resuming_needs_only_the_data_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "pets", [20, 30] * 8)
    assert main(["train", "--data", "pets", *QUICK]) == 0
    assert main(["train", "--data", "pets", "--resume"]) == 0


def test_unlabelled_pictures_elsewhere(tmp_path: Path) -> None:
    pictures(tmp_path / "pets", [20, 30] * 8)
    pictures(tmp_path / "more", [20, 30, 40])
    for flag in ("--unlabeled", "--unlabelled"):
        out = tmp_path / flag
        argv = ["train", "--data", str(tmp_path / "pets"), flag, str(tmp_path / "more"), *QUICK, "--out", str(out)]
        assert main(argv) == 0
        split = json.loads((out / "split.json").read_text())
        # 4 of the 16 labelled are held out; the other 12 and the 3 without labels are learnt from.
        assert len(split["labelled"]) == 12
        assert len(split["unlabelled"]) == 15
        assert json.loads((out / "config.json").read_text())["unlabelled"] == str(tmp_path / "more")


def test_pictures_added_to_a_recipe_are_counted(tmp_path: Path) -> None:
    for i in range(3):
        save_png(tmp_path / "more" / f"{i}.png", np.full((8, 8, 1), i, np.uint8))
    config = recipes.digits().replace(unlabelled=tmp_path / "more", device="cpu")
    said = plan(config, tmp_path / "run").describe()
    assert "digits: 10 classes, 1,797 labelled, 3 unlabelled" in said
    assert plan(recipes.digits(), tmp_path / "run").describe() == ""
