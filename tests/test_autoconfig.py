"""What is chosen for the user's own data: from the data, with a reason, and stored so that it can be repeated."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from normatch import recipes
from normatch.augment import AugmentConfig
from normatch.autoconfig import Plan, muon_rate, plan, plans, rules
from normatch.autoconfig import minutes as fitting
from normatch.cli import main
from normatch.config import Config, to_json
from normatch.data import Dataset, Reading
from normatch.data.inspect import describe, inspect
from normatch.errors import UserError
from normatch.evaluate.held_out import evaluate_run
from normatch.files import write_sealed
from normatch.methods import methods
from normatch.methods.normatch import NorMatch, NorMatchSettings
from normatch.methods.parts.groups import Group, OptimConfig
from normatch.nets.model import FORMAT, ModelSpec
from normatch.nets.plain import HOG
from normatch.training import Job, Loop, Run, prepare, train
from normatch.training.bench import Pace
from normatch.training.bench import pace as measure

QUICK = ["--steps", "2", "--epoch", "1", "--batch", "8", "--ratio", "1", "--device", "cpu"]


def arrays(path: Path, counts: tuple[int, ...] = (20, 20), unlabelled: int = 0, test: int = 0) -> Path:
    """Vectors with so many labels of each class, some without, and some to test on."""
    labels = np.repeat([*range(len(counts)), -1], [*counts, unlabelled])
    rng = np.random.default_rng(0)
    held: dict[str, Any] = {"test_x": rng.normal(size=(test, 4)), "test_y": np.arange(test) % 2} if test else {}
    np.savez(path, x=rng.normal(size=(len(labels), 4)), y=labels, **held)
    return path


def pictures(where: Path, sides: list[int], mode: str = "RGB") -> Path:
    rng = np.random.default_rng(0)
    for i, side in enumerate(sides):
        place = where / ("cat", "dog")[i % 2] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (side, side + 3, 3), np.uint8)).convert(mode).save(place)
    return where


@pytest.fixture(autouse=True)
def _alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features of images to choose by, in no time: all are the same, so they choose nothing."""
    monkeypatch.setattr(rules, "frozen_features", lambda config, images: np.ones((len(images), 2000)))


def embed_at(monkeypatch: pytest.MonkeyPatch, pace: Callable[..., float]) -> None:
    """Let networks embed so many images in a second."""
    for module in (rules, fitting):
        monkeypatch.setattr(module, "embedding_pace", pace)


def choose(data: Path, **options: Any) -> Plan:
    changes = options.pop("changes", {})
    return plan(recipes.own(str(data)).replace(device="cpu", **changes), data.parent / "run", **options)


# The rules


@pytest.mark.parametrize(
    ("each", "unlabelled", "batch", "ratio"),
    [(20, 0, 32, 1), (50, 300, 32, 7), (10, 380, 16, 7), (15, 90, 16, 7), (5, 20, 8, 3), (5, 2, 8, 1)],
)
def test_batches_go_by_the_number_of_samples(
    tmp_path: Path, each: int, unlabelled: int, batch: int, ratio: int
) -> None:
    made = choose(arrays(tmp_path / "x.npz", (each, each), unlabelled))
    assert (made.config.batch, made.config.ratio) == (batch, ratio)


@pytest.mark.parametrize(
    ("options", "share", "why"),
    [
        ({}, 0.2, "8 of the 40 labelled samples, to test on"),
        ({"counts": (20_000, 20_000), "unlabelled": 60_000}, 0.05, "2,000 of the 40,000 labelled samples"),
        ({"counts": (250_000, 250_000)}, 0.01, "5,000 of the 500,000 labelled samples"),
        ({"counts": (4, 4)}, 0.0, "too few to hold some out for testing"),
        ({"test": 10}, 0.0, "10 test samples are there already"),
    ],
)
def test_a_share_is_held_out_where_labels_can_be_spared(
    options: dict[str, Any], share: float, why: str, tmp_path: Path
) -> None:
    made = choose(arrays(tmp_path / "x.npz", **options))
    assert made.config.test_share == share
    assert why in made.describe()


def test_a_test_set_without_labels_is_no_dead_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It gives no accuracy, so others are held out; where that is forbidden, the advice can be followed."""
    data = arrays(tmp_path / "x.npz", test=100)
    np.savez(data, **dict(np.load(data)) | {"test_y": np.full(100, -1)})
    argv = ["train", "--data", str(data), *QUICK]
    assert main([*argv, "--out", str(tmp_path / "chosen")]) == 0
    said = capsys.readouterr().out
    assert "8 of the 40 labelled samples, to test on in place of the 100 test samples, which have no labels\n" in said
    assert "\naccuracy " in said
    assert main([*argv, "--test-share", "0", "--out", str(tmp_path / "none")]) == 0
    assert "\nno accuracy: train with --test-share 0.2, or " in capsys.readouterr().out
    assert main([*argv, "--test-share", "0.2", "--out", str(tmp_path / "followed")]) == 0
    assert "\naccuracy " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sides", "changes", "size", "backbone", "why"),
    [
        ([20, 50, 70, 90], {}, 32, "small-wide", "20 to 90 pixels, their median 60; no more than 32 without a GPU"),
        ([20, 21, 22, 23], {}, 32, "small-wide", "their median 21.5"),
        ([80, 90, 100, 70], {"image_size": 96}, 96, "resnet-18", "suits samples of 3×96×96"),
        # Its size, since it takes no small images.
        ([80, 90, 100, 70], {"backbone": "resnet-18"}, 64, "resnet-18", "their median 85"),
        ([80, 90, 100, 70], {"backbone": "wrn-28-2"}, 32, "wrn-28-2", "no more than 32 without a GPU"),
        ([20, 20, 20, 20], {}, None, "small-wide", "samples of 3×20×23"),  # one size, which no number says
    ],
)
def test_the_image_size_and_the_network_go_by_the_sizes_seen(
    sides: list[int], changes: dict[str, Any], size: int | None, backbone: str, why: str, tmp_path: Path
) -> None:
    made = choose(pictures(tmp_path / "p", sides), changes=changes, fixed={"freeze"})
    assert (made.config.image_size, made.config.backbone) == (size, backbone)
    assert made.corpus is not None
    assert made.corpus.train.shape == ((3, size, size) if size else (3, 20, 23))
    assert why in made.describe()


def test_fine_tuning_follows_a_frozen_run_and_has_the_flags(tmp_path: Path) -> None:
    data = pictures(tmp_path / "p", [40, 50, 60, 70] * 4)
    given = {"steps": 77, "augment": AugmentConfig(ops=3), "image_size": 64, "seed": 3}
    made = choose(data, changes=given, finetune=True)
    assert made.before is not None
    first, second = made.before.config, made.config
    assert first == choose(data, changes={"image_size": 64, "seed": 3}).config
    assert (second.freeze, second.steps, second.augment.ops, second.backbone) == (False, 77, 3, "efficientnet-lite0")
    assert (second.norm_momentum, second.optim.backbone_lr) == (0, 1e-4)
    assert getattr(second.settings, "passes", None) == "shared"
    same = ("seed", "image_size", "test_share", "validation", "labels", "data", "method")
    assert all(getattr(first, name) == getattr(second, name) for name in same)
    shown = made.describe()
    assert shown.index("enough on features that stay") < shown.index("then all of the network is trained, --finetune:")
    assert first.validation == 0, "few labels: all are for training"


def test_many_labels_can_spare_some_to_choose_by(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    np.savez(tmp_path / "x.npz", images=rng.integers(0, 256, (400, 24, 24, 3), np.uint8), labels=labels)
    made = choose(tmp_path / "x.npz", changes={"image_size": 64}, finetune=True)
    assert made.config.validation == 0.2
    assert "to choose between start and end of fine-tuning by" in made.describe()


def test_minutes_are_for_both_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embed_at(monkeypatch, lambda *_: 1.0)  # 16 pictures in as many seconds
    monkeypatch.setattr(fitting, "pace", lambda job: Pace(start=2.0, step=0.01, evaluation=0.1))
    data = pictures(tmp_path / "p", [60] * 16)
    made = choose(data, changes={"image_size": 64}, minutes=1, finetune=True)
    assert made.before is not None
    assert made.before.config.steps == 300  # 16 + 2 + 3 + 1 seconds; of the 38 that are left, 5 % stay free
    assert made.config.steps == int((38 * 0.95 - 2 - 10 * 0.1) / 0.01)
    assert choose(data, changes={"image_size": 64}, minutes=1).before is None, "on a CPU only if it is asked for"
    with pytest.raises(UserError, match=r"minutes is 0.4: .* give --minutes 1"):
        choose(data, changes={"image_size": 64}, minutes=0.4, finetune=True)


def test_a_run_to_start_from_says_what_it_is(tmp_path: Path) -> None:
    data, start = pictures(tmp_path / "p", [40, 50] * 4), tmp_path / "start"
    spec = ModelSpec("frozen:efficientnet-lite1", (3, 96, 96), ("cat", "dog"), (127.0,) * 3, (128.0,) * 3)
    start.mkdir()
    (start / "config.json").write_text("{}")
    write_sealed(start / "model.json", {"format": FORMAT, "normatch": "0.1.0"} | to_json(spec))
    config = choose(data, changes={"start": start}).config
    assert (config.freeze, config.backbone, config.image_size) == (False, "efficientnet-lite1", 96)
    assert (config.norm_momentum, config.optim.backbone_lr, config.steps) == (0, 1e-4, 200)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image_size": 32}, "nothing is frozen first: --image-size is below 64"),
        ({"backbone": "hog"}, "nothing is frozen first: backbone is 'hog' without --freeze"),
        ({"data": "digits"}, "data is 'digits', not your own: leave it out"),
        ({"start": Path("runs/old")}, "start is runs/old: leave it out"),
    ],
)
def test_fine_tuning_without_a_frozen_run_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    data = pictures(tmp_path / "p", [40, 50, 60, 70] * 4)
    with pytest.raises(UserError, match=said):
        choose(data, changes=changes, finetune=True)


def test_photographs_start_from_pretrained_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pictures(tmp_path / "p", [40, 50, 60, 70] * 4)
    made = choose(data)
    config = made.config
    assert (config.freeze, config.backbone, config.image_size, config.steps) == (True, "efficientnet-lite0", 160, 300)
    assert (config.augment.mix, config.augment.mask, config.optim.lr, config.optim.muon) == (0.5, 0.5, 0.06, 0)
    assert "photographs start from features of ImageNet; --scratch for random weights" in made.describe()
    assert not choose(data, changes={"backbone": "wrn-28-2"}).config.freeze, "the user has chosen a network"
    assert not choose(data, fixed={"freeze"}).config.freeze
    assert not choose(data, changes={"image_size": 32}).config.freeze, "too small for it"
    with pytest.raises(UserError, match="leave it out, or give --copies 2, or --scratch"):
        prepare(config.replace(augment=AugmentConfig(cutout=0.3)))
    monkeypatch.setattr(rules, "installed_weights", lambda: None)
    made = choose(data)
    assert not made.config.freeze
    assert "--scratch" in made.describe()
    assert "pip install 'normatch[pretrained]'" in made.describe()


@pytest.mark.parametrize("helps", [True, False])
def test_hog_is_put_beside_the_network_where_the_labels_say_so(
    helps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its features are the last of those that are cross-validated; those of test pictures choose nothing."""
    data = pictures(tmp_path / "p", [40] * 60)
    seen: list[int] = []

    def features(config: Config, images: Dataset) -> Any:
        assert config.backbone == "with-hog:efficientnet-lite0"
        seen.append(len(images))
        z = np.random.default_rng(0).normal(size=(len(images), HOG.size + 3))
        z[:, -1 if helps else 0] = 100 * images.labels
        return z.astype(np.float32)

    monkeypatch.setattr(rules, "frozen_features", features)
    made = choose(data)
    assert made.config.backbone == ("with-hog:" if helps else "") + "efficientnet-lite0"
    assert seen == [48], "a fifth is held out"
    assert ("in cross-validation over the labels, without HOG" in made.describe()) == helps
    assert choose(data, changes={"backbone": "efficientnet-lite0", "freeze": True}).config.backbone[:4] == "effi"
    assert len(seen) == 1, "the user has chosen a network"


def test_a_gpu_embeds_larger_pictures_by_a_larger_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pictures(tmp_path / "p", [40, 50, 60, 70] * 40)
    monkeypatch.setattr(plans, "device_of", lambda name: torch.device("cuda"))
    monkeypatch.setattr(rules, "installed_weights", lambda size=0: Path(f"lite{size}.pth"))
    config = choose(data).config
    assert (config.backbone, config.image_size, config.steps) == ("efficientnet-lite2", 260, 1500)
    assert config.epoch == 150
    monkeypatch.setattr(rules, "installed_weights", lambda size=0: None if size else Path("lite0.pth"))
    config = choose(data).config
    assert (config.backbone, config.image_size) == ("efficientnet-lite0", 260)


def test_tiny_images_start_from_random_weights_unless_asked(tmp_path: Path) -> None:
    data = pictures(tmp_path / "p", [20, 21, 22, 23] * 4)
    made = choose(data)
    assert not made.config.freeze
    assert "the shorter sides have a median of 21.5 pixels, below 24; --freeze for photographs" in made.describe()
    assert choose(data, changes={"freeze": True}).config.image_size == 160
    arrays = tmp_path / "x.npz"
    np.savez(arrays, images=np.zeros((20, 64, 64, 3), np.uint8), labels=np.arange(20) % 2)
    assert choose(arrays).config.freeze


@pytest.mark.parametrize(("n", "side"), [(3000, 160), (5000, 128), (10_000, 96), (10**6, 96)])
def test_many_photographs_are_embedded_at_a_smaller_size_without_a_gpu(
    n: int, side: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = np.full(n, 300, np.int32).view([("width", np.int32)])
    both = {"width": facts["width"], "height": facts["width"]}
    monkeypatch.setattr(rules, "sizes_of", lambda paths, reading: both)
    assert choose(pictures(tmp_path / "p", [50] * 4)).config.image_size == side


@pytest.mark.parametrize(("minutes", "side", "steps"), [(1.0, 160, 300), (0.2, 96, 300), (0.1, 64, 200)])
def test_minutes_count_the_embedding(
    minutes: float, side: int, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the time is for the embedding of 16 images, at most; of the rest there may be less than for 300 steps."""
    embed_at(monkeypatch, lambda name, shape, device: 4 * 96**2 / shape[1] ** 2)
    monkeypatch.setattr(fitting, "pace", lambda job: Pace(start=0.0, step=0.02, evaluation=1e-9))
    made = choose(pictures(tmp_path / "p", [60] * 16), minutes=minutes)
    assert (made.config.image_size, made.config.steps) == (side, steps)
    embed_at(monkeypatch, lambda name, shape, device: 1e-3)
    with pytest.raises(UserError, match="too few for 100 steps"):
        choose(pictures(tmp_path / "p", [60] * 16), minutes=minutes)


@pytest.mark.parametrize(
    ("changes", "fixed", "passes"),
    [
        ({}, (), "shared"),
        ({"method": "fixmatch"}, (), "shared"),
        ({}, ("settings.passes",), "joint"),
        ({"settings": NorMatchSettings(stop_gradient=False)}, (), "joint"),
        ({"image_size": 64, "backbone": "resnet-18"}, (), "shared"),
    ],
)
def test_weak_views_are_left_out_of_the_backward_pass_where_they_can_be(
    changes: dict[str, Any], fixed: tuple[str, ...], passes: str, tmp_path: Path
) -> None:
    short = {"steps": 1, "batch": 4, "ratio": 1}
    made = choose(pictures(tmp_path / "p", [32] * 4), changes=short | changes, fixed={*fixed, "freeze"})
    assert to_json(made.config)["settings"]["passes"] == passes
    assert ("settings.passes" in made.chosen) == (passes == "shared")
    Loop(prepare(made.config, made.corpus)).step()


def test_skewed_labels_turn_alignment_off(tmp_path: Path) -> None:
    skewed = arrays(tmp_path / "skewed.npz", (40, 10), unlabelled=40)
    made = choose(skewed)
    assert made.config.settings == NorMatchSettings(alignment=False)
    assert "\n! classes are 4.0 : 1: 0 has 40 labelled" in made.describe()
    assert re.search(r"  --settings.alignment +off +labels to learn from are 4\.0 : 1", made.describe())
    assert choose(skewed, fixed={"settings.alignment"}).config.settings == NorMatchSettings()
    for changes in ({"settings": NorMatchSettings(alignment=False)}, {"method": "supervised"}, {"labels": 8}):
        assert "settings.alignment" not in choose(skewed, changes=changes).chosen
    random = choose(arrays(tmp_path / "x.npz", (6, 2, 5, 3), unlabelled=40))  # a random draw explains it
    assert random.config.settings == NorMatchSettings()
    assert "classes are 3.0 : 1" in random.describe()


@pytest.mark.parametrize(
    ("steps", "epochs", "momentum", "muon"),
    [
        (1, 1, 0.1, 0.1),
        (32, 32, 0.1, 0.1),
        (33, 17, 0.1, 0.1),
        (256, 32, 0.078, 0.1),
        (1024, 32, 0.02, 0.05),
        (4096, 32, 0.01, 0.025),
        (1_000_000, 32, 0.01, 0.01),
    ],
)
def test_what_follows_from_the_number_of_steps(
    steps: int, epochs: int, momentum: float, muon: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the steps follow from minutes: 95 % of the time are for them, less 32 evaluations."""
    folder = pictures(tmp_path / "p", [32] * 4)
    monkeypatch.setattr(fitting, "LEAST_STEPS", 1)
    monkeypatch.setattr(fitting, "pace", lambda job: Pace(start=0.0, step=56.9 / steps, evaluation=1e-9))
    given = choose(folder, changes={"steps": steps}, fixed={"steps", "freeze"}).config
    assert math.ceil(steps / given.epoch) == epochs
    for config in (given, choose(folder, minutes=1, fixed={"freeze"}).config):
        assert (config.norm_momentum, config.optim.muon) == (momentum, muon)


class AllByAdamW(NorMatch):
    """A plug-in's method with a parameter group of its own."""

    def groups(self, optim: OptimConfig) -> list[Group]:
        return [Group(list(self.parameters()), "adamw", 1e-3, 0.0)]


def test_muon_is_for_networks_and_methods_that_have_it_and_up_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        methods, "_things", methods._things | {"adamw": AllByAdamW, "plug-in": type("P", (NorMatch,), {})}
    )
    rates = {"wrn-28-2 supervised": 0.05, "wrn-28-2 plug-in": 0.05, "wrn-28-2 adamw": 0, "identity normatch": 0}
    for case, rate in rates.items():
        backbone, method = case.split()
        assert muon_rate(method, backbone, 1024) == rate
    folder = pictures(tmp_path / "p", [32] * 4)
    assert choose(folder, fixed={"optim.muon"}).config.optim.muon == 0
    assert choose(folder, changes={"optim": OptimConfig(muon=0.3)}).config.optim.muon == 0.3


def test_a_short_run_is_recorded_often_enough_for_a_curve(tmp_path: Path) -> None:
    data = arrays(tmp_path / "x.npz")
    for changes, every in (({}, 64), ({"steps": 50}, 3), ({"steps": 5}, 1), ({"steps": 50, "log_every": 40}, 40)):
        assert choose(data, changes=changes).config.log_every == every
    assert plan(recipes.digits().replace(steps=20), tmp_path / "run", automatic=False).config.log_every == 1
    assert plan(recipes.digits(), tmp_path / "run", automatic=False).config == recipes.digits()


# What the user decides


def test_what_a_config_changes_or_fixes_stays(tmp_path: Path) -> None:
    """In Python there are no flags: a field that differs from the recipe is the user's choice."""
    data = arrays(tmp_path / "x.npz")
    changes = {"batch": 16, "steps": 200, "epoch": 10, "ratio": 2, "norm_momentum": 0.05, "log_every": 50}
    made = choose(data, changes=changes)
    assert {name: getattr(made.config, name) for name in changes} == changes
    assert made.chosen.keys() == {"backbone", "test_share"}
    assert choose(data, changes={"method": "fixmatch"}).config.steps == 1024
    assert choose(data, fixed={"steps"}).config.steps == recipes.own("x.npz").steps
    assert choose(data, fixed={"backbone"}).config == choose(data).config, "auto is to be chosen"


def test_nothing_is_chosen_for_a_named_data_set_unless_asked_for(tmp_path: Path) -> None:
    """Its recipe has the values that suit it: one that happens to be the draft's for own data is no open choice."""
    config = recipes.digits().replace(batch=64, device="cpu")
    assert config.batch == recipes.own("x").batch
    made = plan(config, tmp_path / "run")
    assert (made.config, made.chosen, made.describe()) == (config, {}, "")
    assert plan(config, tmp_path / "run", automatic=True).config.batch == 32


def test_choices_are_printed_stored_and_repeat_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = pictures(tmp_path / "pets", [40, 50, 60, 70] * 4)
    argv = ["train", "--data", str(data), *QUICK, "--scratch", "--out", str(tmp_path / "run")]
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert f"{data}: 2 classes, 16 labelled, 0 unlabelled" in shown
    assert re.search("  --image-size +32  ", shown)
    assert "  --batch  " not in shown, "the user set it"
    flags = re.findall(r"^  (--[\w.-]+)  +(\S+)", shown, re.MULTILINE)
    given = [part for flag, value in flags for part in ((flag, value) if value != "on" else (flag,))]
    assert main([*argv[:-1], str(tmp_path / "flags"), *given]) == 0, "each is a flag"
    run = Run.open(tmp_path / "run")
    assert (run.config.image_size, run.config.backbone, run.config.test_share) == (32, "small-wide", 0.2)
    again = train(run.config, tmp_path / "again")
    assert again.config == run.config
    assert (again.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


def test_one_plan_serves_runs_of_several_seeds(tmp_path: Path) -> None:
    """Each run holds out the samples that its own config names: the same as if it had read the data itself."""
    made = choose(arrays(tmp_path / "x.npz", (50, 50)), changes={"steps": 2, "batch": 8, "ratio": 1})
    assert made.corpus is not None
    assert (made.config.test_share, len(made.corpus.train), made.corpus.test) == (0.2, 100, None)
    for seed in (0, 1):
        config = made.config.replace(seed=seed)
        run, alone = (train(config, tmp_path / f"{seed}{c is None}", corpus=c) for c in (made.corpus, None))
        for file in ("model.safetensors", "predictions.csv", "split.json"):
            assert (run.path / file).read_bytes() == (alone.path / file).read_bytes()
        assert evaluate_run(run.path, device="cpu")["accuracy"] == run.accuracy


# What the data are like


def few_levels(data: Path) -> None:
    for path in data.rglob("*.png"):
        Image.fromarray(np.random.default_rng(0).integers(0, 4096, (20, 20), np.uint16)).save(path)


@pytest.mark.parametrize(
    ("edit", "remark"),
    [
        (lambda data: (data / "cat" / "IMG_1.HEIC").touch(), "! 1 file is ignored (.heic 1), such as "),
        (lambda data: shutil.copytree(data / "cat", data / "test"), "! 'test' is read as a class: if its pictures are"),
        (lambda data: shutil.copytree(data / "cat", data / "Cat "), "! 'Cat ', 'cat' are 2 classes whose names differ"),
        (few_levels, "! nearly black (level "),
    ],
)
def test_remarks_on_the_data_are_those_of_inspect(edit: Any, remark: str, tmp_path: Path) -> None:
    data = pictures(tmp_path / "p", [20] * 10)
    assert "!" not in choose(data).describe()
    edit(data)
    assert remark in choose(data).describe()
    assert remark in describe(inspect(str(data))) + "\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": 3}, "labels is 3: give a multiple of the 2 classes"),
        ({"labels": 20}, "but needs 10: label more, ask"),
        ({"test_share": 0.9}, "but needs 1: label more, ask"),
        ({"image_size": 100_000}, "no backbone takes"),
        (
            {"image_size": 1000, "backbone": "small-wide"},
            "'small-wide' does not take .*; none takes it: set another image_size",
        ),
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
    with pytest.raises(UserError, match="has only one class, 'cat'"):
        choose(data, reading=reading)


def test_a_class_without_a_readable_image_is_named(tmp_path: Path) -> None:
    data = pictures(tmp_path / "p", [20] * 16)
    for file in (data / "dog").iterdir():
        file.write_bytes(b"")
    with pytest.raises(UserError, match=r"^no image of class 'dog', which has 8 images, can be read: replace or"):
        choose(data, changes={"on_bad_image": "skip"})


def test_unlabelled_images_elsewhere_are_counted(tmp_path: Path) -> None:
    data, more = pictures(tmp_path / "pets", [20, 30] * 8), pictures(tmp_path / "more", [20, 30, 40])
    made = choose(data, changes={"unlabelled": more, "steps": 1, "batch": 8, "ratio": 1})
    assert "16 labelled, 3 unlabelled" in made.describe()
    run = train(made.config, tmp_path / "run", corpus=made.corpus)
    # 4 of the 16 labelled are held out; the other 12 and the 3 without labels are learnt from.
    assert (len(run.split.labelled), len(run.split.unlabelled)) == (12, 15)
    recipe = plan(recipes.digits().replace(unlabelled=more, device="cpu"), tmp_path / "other")
    assert "digits: 10 classes, 1,797 labelled, 3 unlabelled" in recipe.describe()


def test_a_run_without_a_test_set_says_what_gives_it_an_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not --test-share, for which there are too few labels."""
    monkeypatch.chdir(tmp_path)
    data = pictures(Path("pets"), [20] * 13)
    for file in sorted((data / "dog").iterdir())[3:]:
        file.unlink()
    assert main(["train", "--data", "pets", *QUICK]) == 0
    remedy = "label at least 5 of each class, or put labelled pictures into test/ beside train/"
    assert f"\nno accuracy: {remedy}; 2 steps in " in capsys.readouterr().out
    assert main(["eval", "runs/pets"]) == 2
    assert remedy in capsys.readouterr().err
    shutil.copytree(data, "more/train")
    shutil.copytree(data, "more/test")
    assert main(["train", "--data", "more", *QUICK]) == 0
    assert "\naccuracy " in capsys.readouterr().out, "the advice can be followed"
    assert main(["train", "--data", "pets", "--resume"]) == 0, "resuming needs only the data's name"


# A time budget


def paced(monkeypatch: pytest.MonkeyPatch, start: float, step: float, evaluation: float) -> None:
    monkeypatch.setattr(fitting, "pace", lambda job: Pace(start, step, evaluation))


def test_a_time_budget_becomes_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paced(monkeypatch, start=10.0, step=0.5, evaluation=1.0)
    made = choose(arrays(tmp_path / "x.npz"), minutes=10)
    # 570 of the 600 seconds, less 10 to start and 32 evaluations, at two steps a second.
    assert (made.config.steps, made.config.epoch) == (1056, 33)
    assert "10 minutes at 2.00 steps/s" in made.describe()
    slow = choose(arrays(tmp_path / "x.npz"), minutes=2)
    assert (slow.config.steps, slow.config.epoch, slow.config.log_every) == (168, 6, 10)
    assert slow.config.evaluate_every == 9, "evaluations may take a fifth of the time"
    assert re.search(r"--evaluate-every +9 +19 evaluations\n", slow.describe())
    recipe = plan(recipes.digits(), tmp_path / "run", automatic=False, minutes=10)
    assert (recipe.config.steps, recipe.config.epoch) == (1100, 110)
    paced(monkeypatch, start=1.0, step=0.01, evaluation=60.0)
    rare = choose(arrays(tmp_path / "x.npz"), minutes=2).config
    assert rare.evaluate_every == rare.steps, "after the last step only"
    assert math.ceil(rare.steps / rare.epoch) == 32, "epochs are the unit of a method's ramps"


def test_a_plan_of_too_few_steps_gets_smaller_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine: the time of a step follows the images in it."""

    def pace(job: Job) -> Pace:
        return Pace(start=1.0, step=0.1 * job.config.batch * (1 + job.config.ratio), evaluation=0.1)

    monkeypatch.setattr(fitting, "pace", pace)
    data = arrays(tmp_path / "x.npz")
    made = choose(data, minutes=3)
    assert (choose(data).config.batch, made.config.batch) == (32, 8)
    assert made.config.steps >= 100
    assert re.search(r"--batch +8 +\d+ steps with \d+ images each would not learn\n", made.describe())


def test_a_plan_that_cannot_learn_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paced(monkeypatch, start=10.0, step=20.0, evaluation=1.0)
    refused = r"minutes is 3: at 0\.05 steps/s.* too few for 100 steps.* --minutes 36"
    with pytest.raises(UserError, match=refused):
        choose(arrays(tmp_path / "x.npz"), minutes=3)
    with pytest.raises(UserError, match=refused):
        plan(recipes.digits(), tmp_path / "run", automatic=False, minutes=3)


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
    paced(monkeypatch, start=0.0, step=0.005, evaluation=0.5)
    made = choose(arrays(tmp_path / "x.npz"), minutes=10, changes=changes)
    # An evaluation after each ten steps and one after the last: 10,354 · 0.005 s + 1,036 · 0.5 s = 569.8 s of 570 s.
    assert (made.config.steps, made.config.epoch) == (10_354, epoch)
    assert said in made.describe()


def test_the_intervals_of_a_recipe_are_scaled_to_its_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paced(monkeypatch, start=1.0, step=0.05, evaluation=0.5)
    config = recipes.digits().replace(steps=96_000, epoch=1000, evaluate_every=4000, checkpoint_every=8000)
    made = plan(config, tmp_path / "run", automatic=False, minutes=2).config
    assert 1500 < made.steps < 2500
    every = {name: getattr(made, name) for name in ("epoch", "evaluate_every", "checkpoint_every")}
    expected = {"epoch": 96, "evaluate_every": 24, "checkpoint_every": 32}
    assert every == {name: math.ceil(made.steps / times) for name, times in expected.items()}
    fixed = config.replace(evaluate_every=30, checkpoint_every=50)
    kept = plan(fixed, tmp_path / "run", automatic=False, minutes=2, fixed={"evaluate_every", "checkpoint_every"})
    assert (kept.config.evaluate_every, kept.config.checkpoint_every) == (30, 50)


def test_the_speed_is_measured_and_its_steps_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Pace] = []

    def pace(job: Job) -> Pace:
        measured.append(measure(job, seconds=0.1))
        return Pace(start=0.0, step=1.0, evaluation=0.1)

    monkeypatch.setattr(fitting, "LEAST_STEPS", 1)
    monkeypatch.setattr(fitting, "pace", pace)
    argv = ["train", "--data", str(arrays(tmp_path / "x.npz")), "--minutes", "0.1", "--out", str(tmp_path / "run")]
    assert main([*argv, "--device", "cpu"]) == 0
    (speed,) = measured
    assert min(speed.start, speed.step, speed.evaluation) > 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 4


@pytest.mark.parametrize(
    ("minutes", "options", "says"),
    [
        (-1.0, {}, "give a number of minutes above 0"),
        (1e300, {}, "give a number of minutes above 0"),
        (float("nan"), {}, "give a number of minutes above 0"),
        (1, {"fixed": {"steps"}}, "give one of them"),
        (1, {"changes": {"steps": 200}}, "give one of them"),
        (1, {"resume": True}, "leave it out"),
    ],
)
def test_wrong_minutes(tmp_path: Path, minutes: float, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        choose(arrays(tmp_path / "x.npz"), minutes=minutes, **options)
