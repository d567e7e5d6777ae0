"""Training on the features of a frozen backbone: one model from pixels to classes, repeated and resumed bit for bit."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file

import normatch
from normatch.augment import AugmentConfig, Views
from normatch.config import Config
from normatch.data import Reading
from normatch.data.cache import Cache
from normatch.errors import UserError
from normatch.evaluate.export import export_run
from normatch.evaluate.held_out import evaluate_run
from normatch.evaluate.suggest import suggest
from normatch.nets import create_backbone
from normatch.nets.weights import read_weights
from normatch.training import Run, bank, open_corpus, prepare, train
from normatch.training.job import frozen_features
from normatch.training.progress import Progress
from tests.training.conftest import stopped_before


def model_of(run: Run) -> bytes:
    return (run.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("copies", [0, 1])
def test_features_are_cached_and_give_the_same_run_without(
    copies: int, frozen: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    config, calls = frozen.replace(copies=copies), []
    embed = bank.embed

    def counted(*args: Any, **options: Any) -> bank.Bank:
        calls.append(0)
        return embed(*args, **options)

    monkeypatch.setattr(bank, "embed", counted)
    without = train(config, tmp_path / "without", reading=Reading(cache=False))
    assert (len(calls), Cache().entries()) == (1, [])
    runs = [train(config, tmp_path / name) for name in ("made", "cached")]
    assert len(calls) == 2
    seconds = [run.result["embedding_seconds"] for run in runs]
    assert 0 < min(seconds) < max(seconds) < 60
    assert {model_of(run) for run in runs} == {model_of(without)}


def test_the_saved_model_takes_images_and_predicts_as_training_did(frozen: Config, tmp_path: Path) -> None:
    run = train(frozen, tmp_path / "run")
    spec = normatch.load(run.path).model.spec
    assert (spec.backbone, spec.shape) == ("frozen:small-wide", (1, 8, 8))
    assert run.config.backbone == "small-wide"
    assert evaluate_run(run.path, device="cpu")["accuracy"] == run.accuracy
    assert len(suggest(run.path, 3, device="cpu").rows) == 3
    job = prepare(frozen)
    assert job.frozen is not None
    before, after = (model.backbone.state_dict() for model in (job.frozen, normatch.load(run.path).model))
    assert all(torch.equal(value, after[name]) for name, value in before.items() if name.startswith("embedder."))


def test_features_that_take_long_are_not_taken_for_abandoned(
    frozen: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path))
    embed = bank.embed

    def slow(*args: Any) -> bank.Bank:
        (pixels,) = tmp_path.glob(".part-*/pixels")
        os.utime(pixels, (0, 0))
        found = embed(*args)
        Cache().keep(8)  # as another process does, before it writes
        return found

    monkeypatch.setattr(bank, "embed", slow)
    prepare(frozen)
    assert len(Cache().entries()) == 1


def test_features_to_choose_by_are_those_that_a_run_learns_from(frozen: Config) -> None:
    job = prepare(frozen)
    found = frozen_features(frozen, job.corpus.train)
    np.testing.assert_allclose(found, np.asarray(job.samples.train.inputs), atol=1e-5)


@pytest.mark.parametrize("copies", [0, 2])
def test_stopped_and_resumed_equals_left_alone(copies: int, frozen: Config, tmp_path: Path) -> None:
    config = frozen.replace(copies=copies)
    whole = train(config, tmp_path / "whole")
    with stopped_before(7):
        train(config, tmp_path / "run")
    other = tmp_path / "other.safetensors"
    save_file({name: value + 1 for name, value in create_backbone("small-wide", (1, 8, 8)).state_dict().items()}, other)
    with pytest.raises(UserError, match="not those that the run was started with"):
        train(config.replace(weights=other), tmp_path / "run", resume=True)
    again = train(config, tmp_path / "run", resume=True)
    assert model_of(again) == model_of(whole)
    assert (again.path / "predictions.csv").read_bytes() == (whole.path / "predictions.csv").read_bytes()


def test_features_are_float32_whatever_the_precision_of_the_steps(frozen: Config) -> None:
    exact, rounded = (prepare(frozen.replace(precision=kind)).samples.train.inputs for kind in ("float32", "bfloat16"))
    np.testing.assert_array_equal(exact, rounded)


def test_views_are_drawn_by_the_seed(frozen: Config) -> None:
    job = prepare(frozen)
    assert job.frozen is not None
    images, views = job.corpus.train.view(np.arange(4)), Views(job.corpus.train.shape, frozen.augment)
    first, again, other = (bank.embed(job.frozen, images, views, 2, seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    same = [np.array_equal(first[:, i], other[:, i]) for i in range(5)]
    assert same == [True, False, False, False, False], "only the plain image has no view"
    alike = bank.embed(job.frozen, images.view(np.zeros(64, np.int64)), views, 1, 0)
    assert not np.array_equal(alike[:32, 1], alike[32:, 1]), "each batch draws anew"


def test_weak_views_come_before_strong_ones(frozen: Config) -> None:
    job = prepare(frozen)
    assert job.frozen is not None
    plain_when_weak = Views(job.corpus.train.shape, AugmentConfig(flip=False, pad=0))
    found = bank.embed(job.frozen, job.corpus.train.view(np.arange(4)), plain_when_weak, 2, 0)
    assert [np.array_equal(found[:, 0], found[:, i]) for i in range(1, 5)] == [True, True, False, False]


def test_embedding_is_shown_up_to_its_end(frozen: Config) -> None:
    class Counts(Progress):
        def __init__(self) -> None:
            self.seen: list[tuple[int, int]] = []

        def count(self, what: str, done: int, total: int) -> None:
            self.seen.append((done, total))

    corpus, counts = open_corpus(frozen), Counts()
    prepare(frozen, corpus, reading=Reading(cache=False), progress=counts)
    assert counts.seen[-1] == (len(corpus.train), len(corpus.train))
    assert counts.seen == sorted(counts.seen)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights": None}, "backbone 'small-wide' has no pretrained weights: give them with --weights FILE"),
        ({"freeze": False, "copies": 2}, "copies is 2: give 0, or freeze as well"),
        ({"copies": 33}, "copies is 33: give a whole number from 0 to 32"),
        ({"backbone": "frozen:small-wide"}, "backbone is 'frozen:small-wide': give 'small-wide', and freeze"),
        ({"weights": Path("none.pth")}, r"weights none.pth cannot be read \(there is no such file"),
        ({"backbone": "wrn-28-2"}, "are not this backbone's|does not take samples"),
    ],
)
def test_what_cannot_be_frozen_is_refused(changes: dict[str, Any], said: str, frozen: Config) -> None:
    with pytest.raises(UserError, match=said):
        prepare(frozen.replace(**changes))


def test_vectors_have_nothing_to_freeze(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(20, 4)), y=np.arange(20) % 2)
    with pytest.raises(UserError, match="freeze is on, but the data are feature vectors already"):
        prepare(Config(data=str(tmp_path / "x.npz"), labels=None, freeze=True))


def test_weights_are_a_start_for_a_network_that_is_trained(frozen: Config) -> None:
    job = prepare(frozen.replace(freeze=False))
    assert frozen.weights is not None
    given = read_weights(frozen.weights)
    assert all(torch.equal(value, given[name]) for name, value in job.method.model.backbone.state_dict().items())


def test_real_weights_learn_at_once_and_onnx_equals_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 images, preprocessing inside."""
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (200, 48, 48, 3), np.uint8)
    labels = np.arange(200) % 2
    images[labels == 1, :, ::4] = 255  # stripes
    np.savez(tmp_path / "x.npz", images=images, labels=np.where(np.arange(200) < 100, labels, -1))
    config = Config(
        data=str(tmp_path / "x.npz"), labels=None, test_share=0.2, backbone="auto", freeze=True, device="cpu"
    ).replace(steps=20, epoch=10, batch=8, ratio=2, ema=0.9, ema_ramp=True, norm_momentum=0.1)
    run = train(config, tmp_path / "run")
    assert run.config.backbone == "efficientnet-lite0"
    assert run.accuracy is not None
    assert run.accuracy >= 0.9
    prepare(run.config.replace(seed=1, method="fixmatch"))
    assert len(Cache().entries()) == 1, "features serve runs of any seed"
    export_run(run.path)
    session = onnxruntime.InferenceSession(run.path / "model.onnx", providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], {"images": images})[0]
    np.testing.assert_allclose(found, normatch.load(run.path).predict_proba(images), atol=1e-4)
