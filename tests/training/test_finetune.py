"""Fine-tuning: all of a network is trained from the end of another run, and what is better of start and end is kept."""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import normatch
from normatch.config import Config
from normatch.data import Corpus
from normatch.errors import UserError
from normatch.evaluate.export import export_run
from normatch.evaluate.held_out import evaluate_run
from normatch.evaluate.suggest import suggest
from normatch.methods import methods
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.methods.parts.weak_to_strong import WeakToStrongSettings
from normatch.nets.model import logits
from normatch.report import compare, describe, write_report
from normatch.training import Loop, Run, prepare, train
from normatch.training.job import untrained_start
from normatch.training.step import Step
from tests.training.conftest import stopped_before

GENTLE = OptimConfig(lr=0.003, backbone_lr=1e-4, weight_decay=0.0)

HARSH = OptimConfig(lr=0.003, backbone_lr=0.003)


@pytest.fixture(scope="module")
def tuned(frozen: Config) -> Config:
    """What follows it."""
    return frozen.replace(freeze=False, weights=None, norm_momentum=0.0, optim=GENTLE)


@pytest.fixture(scope="module")
def begun(frozen: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(frozen, tmp_path_factory.mktemp("begun") / "run")


@pytest.fixture(scope="module")
def both(tuned: Config, frozen: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Both stages in one call."""
    return train(tuned, tmp_path_factory.mktemp("both") / "run", first=frozen)


def weights_of(run: Run) -> dict[str, torch.Tensor]:
    return normatch.load(run.path).model.state_dict()


def test_it_begins_with_the_predictions_of_its_start(begun: Run, tuned: Config, digits: Corpus) -> None:
    job = prepare(tuned.replace(start=begun.path), digits)
    assert job.method.model.spec.backbone == "tuned:small-wide"
    assert job.backbone == "small-wide"
    assert job.corpus.test is not None
    images = torch.from_numpy(np.asarray(job.corpus.test.inputs)).permute(0, 3, 1, 2)
    ours, theirs = (logits(model.eval(), images) for model in (job.method.model, normatch.load(begun.path).model))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    flows = (model.auxiliary.state_dict() for model in (job.method.model, normatch.load(begun.path).model))
    first, second = flows
    assert all(torch.equal(value, second[name]) for name, value in first.items()), "the consensus has a meaning at once"


@pytest.mark.parametrize("momentum", [0.0, 0.1])
def test_all_weights_learn_and_statistics_only_with_a_momentum(
    momentum: float, begun: Run, tuned: Config, digits: Corpus, tmp_path: Path
) -> None:
    config = tuned.replace(start=begun.path, norm_momentum=momentum, validation=0.0)
    run = train(config, tmp_path / "run", corpus=digits)
    before, after = weights_of(begun), weights_of(run)
    assert run.result["start"]["kept"] == "end"
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    trained = {name for name, _ in normatch.load(run.path).model.named_parameters()}
    assert trained - moved <= {"auxiliary.0.mixture.weight_logits"}
    statistics = {name for name in after if "running_" in name or name.endswith("num_batches_tracked")}
    assert (moved & statistics == set()) is (momentum == 0)


@pytest.mark.parametrize(
    ("rates", "kept"),
    [(OptimConfig(lr=1e-7, backbone_lr=1e-9), "end"), (HARSH, "start")],
)
def test_validation_samples_choose_between_start_and_end(
    rates: OptimConfig, kept: str, begun: Run, tuned: Config, digits: Corpus, tmp_path: Path
) -> None:
    run = train(tuned.replace(start=begun.path, optim=rates, ema=0.1), tmp_path / "run", corpus=digits)
    assert run.result["start"]["kept"] == kept
    assert "of 144 validation samples the end has" in run.result["start"]["why"]
    assert any(f"kept the {kept} of fine-tuning: of 144" in line for line in run.describe_baselines())
    if kept == "start":
        assert run.accuracy == begun.accuracy
        files = ("model.safetensors", "predictions.csv")
        assert all((run.path / name).read_bytes() == (begun.path / name).read_bytes() for name in files)
    assert evaluate_run(run.path, device="cpu")["accuracy"] == run.accuracy


def test_without_validation_samples_the_end_is_kept_and_a_fall_is_said(
    frozen: Config, tuned: Config, digits: Corpus, tmp_path: Path
) -> None:
    begun = train(frozen.replace(validation=0.0), tmp_path / "begun", corpus=digits)
    config = tuned.replace(validation=0.0, start=begun.path, optim=HARSH, ema=0.1)
    run = train(config, tmp_path / "run", corpus=digits)
    assert run.result["start"] == {
        "kept": "end",
        "why": "there are no validation samples to choose by (--validation 0.2)",
    }
    (warning,) = (w for w in run.warnings if w["name"] == "below-start")
    assert f"its start on {begun.path} has" in warning["message"]
    (score,) = run.result["baselines"]
    assert (score["accuracy"], score["accuracy_of_run"]) == (begun.accuracy, run.accuracy)
    assert "its start" in write_report(run.path).read_text()


@pytest.mark.parametrize("stopped_in", ["first", "second"])
def test_stopped_and_resumed_equals_left_alone(
    stopped_in: str, frozen: Config, tuned: Config, both: Run, tmp_path: Path
) -> None:
    def is_it(step: Step) -> bool:
        return (step.method.model.spec.backbone == "mlp") is (stopped_in == "first")

    with stopped_before(7, is_it, f"continue with normatch train --out {tmp_path / 'run'} --resume"):
        train(tuned, tmp_path / "run", first=frozen)
    assert not (tmp_path / "run" / "result.json").exists()
    (tmp_path / "run").rename(tmp_path / "moved")
    again = train(Run(tmp_path / "moved").config, tmp_path / "moved", resume=True)
    for name in ("model.safetensors", "predictions.csv", "start/model.safetensors", "warnings.json"):
        assert (again.path / name).read_bytes() == (both.path / name).read_bytes()
    assert train(again.config, again.path, resume=True).accuracy == both.accuracy, "finished already"


def test_one_call_equals_two(frozen: Config, tuned: Config, begun: Run, both: Run, tmp_path: Path) -> None:
    assert both.first is not None
    assert weights_of(both.first).keys() == weights_of(begun).keys()
    assert (both.first.path / "model.safetensors").read_bytes() == (begun.path / "model.safetensors").read_bytes()
    alone = train(tuned.replace(start=begun.path), tmp_path / "run")
    assert (alone.path / "model.safetensors").read_bytes() == (both.path / "model.safetensors").read_bytes()
    assert alone.first is None


def test_what_is_wrong_with_the_second_stage_is_said_before_the_first(
    frozen: Config, tuned: Config, tmp_path: Path
) -> None:
    wrong = tuned.replace(augment=tuned.augment.__class__(mix=0.5))
    with pytest.raises(UserError, match=r"augment.mix is 0.5, which is for feature vectors, but these are images"):
        train(wrong, tmp_path / "run", first=frozen)
    assert not (tmp_path / "run").exists()


def test_every_verb_takes_a_fine_tuned_run(begun: Run, both: Run, tmp_path: Path) -> None:
    assert evaluate_run(both.path, device="cpu")["accuracy"] == both.accuracy
    assert len(suggest(both.path, 3, device="cpu").rows) == 3
    assert "probabilities differ from PyTorch's by" in export_run(both.path, "torch", tmp_path / "model.pt2")
    assert write_report(both.path, tmp_path / "report.html").is_file()
    assert "norm_momentum" in describe(compare([begun.path, both.path]))
    json.dumps(both.result)


@pytest.mark.parametrize("changes", [{"method": "fixmatch"}, {"settings": NorMatchSettings(flow_layers=2)}])
def test_other_auxiliary_classifiers_than_those_of_the_start_are_new(
    changes: dict[str, Any], begun: Run, tuned: Config, digits: Corpus
) -> None:
    config = tuned.replace(start=begun.path, **changes)
    model, given = prepare(config, digits).method.model, weights_of(begun)
    assert model.spec.auxiliary == methods.get(config.method).heads(config.settings)[1]
    assert all(torch.equal(v, given[n]) for n, v in model.state_dict().items() if not n.startswith("auxiliary."))


def test_a_run_from_random_weights_can_be_continued(tiny_config: Config, digits: Corpus, tmp_path: Path) -> None:
    begun = train(tiny_config, tmp_path / "begun", corpus=digits)
    job = prepare(tiny_config.replace(start=begun.path, backbone="auto"), digits)
    assert job.method.model.spec.backbone == "small-wide"
    given = weights_of(begun)
    assert all(torch.equal(value, given[name]) for name, value in job.method.model.state_dict().items())


@pytest.mark.parametrize("name", methods.names())
def test_every_method_can_be_fine_tuned(name: str, frozen: Config, tuned: Config, digits: Corpus) -> None:
    """One step changes all of the pretrained network, and shared passes change it, too, where the method has them."""
    config = tuned.replace(method=name)
    if isinstance(config.settings, WeakToStrongSettings):
        with contextlib.suppress(UserError):  # methods that mix images have no such passes
            config = config.replace(settings=dataclasses.replace(config.settings, passes="shared"))
    job = prepare(config, digits, start=untrained_start(frozen.replace(method=name), digits.train))
    with job.runtime.scope():
        step = Loop(job).step
        job.method.train()
        before = {n: p.clone() for n, p in job.method.model.backbone.body.named_parameters()}
        step()
    after = dict(job.method.model.backbone.body.named_parameters())
    assert all(not torch.equal(value, after[n]) for n, value in before.items())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"start": Path("nowhere")}, "nowhere is no run"),
        ({"freeze": True}, "start is .*: give either it or freeze"),
        ({"weights": Path("a.pth")}, "start is .*: give either it or weights"),
        ({"backbone": "wrn-28-2"}, "whose backbone is 'small-wide': leave out --backbone wrn-28-2"),
        ({"settings": NorMatchSettings(head="nfc")}, "of the head .*: choose its --method"),
        ({"image_size": 16}, r"of samples of shape \(1, 8, 8\), not \(1, 16, 16\): start from a run on this data"),
        ({"seed": 1, "validation": 0.0}, "which had other test samples, .*: give --seed 0 and --test-share 0.2"),
        ({"validation": 0.3}, "which has learnt labels that are held out here: give --seed 0 and --validation 0.1"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(changes: dict[str, Any], said: str, begun: Run, tuned: Config) -> None:
    with pytest.raises(UserError, match=said):
        prepare(tuned.replace(**{"start": begun.path} | changes))


def test_the_classes_must_be_those_of_the_start(begun: Run, tuned: Config, tmp_path: Path) -> None:
    images = np.zeros((40, 8, 8), np.uint8)
    np.savez(tmp_path / "x.npz", images=images, labels=np.arange(40) % 2)
    config = tuned.replace(data=str(tmp_path / "x.npz"), labels=None, start=begun.path, test_share=0.0, validation=0.0)
    with pytest.raises(UserError, match=r"of the classes .*: start from a run on this data"):
        prepare(config)


def test_an_unfinished_start_is_refused(frozen: Config, tuned: Config, tmp_path: Path) -> None:
    with stopped_before(0):
        train(frozen, tmp_path / "begun")
    with pytest.raises(UserError, match=r"is not finished \(it has no model.json\): continue it with normatch train"):
        prepare(tuned.replace(start=tmp_path / "begun"))


def test_statistics_of_random_weights_are_not_kept(tiny_config: Config) -> None:
    with pytest.raises(UserError, match="norm_momentum is 0, which keeps statistics, but backbone 'small-wide' has no"):
        prepare(tiny_config.replace(norm_momentum=0.0))
