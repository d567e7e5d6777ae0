"""A finished run scored anew on the samples that it held out, and only on its own data."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from normatch.cli import main
from normatch.config import Config
from normatch.data import Dataset
from normatch.errors import UserError
from normatch.evaluate.held_out import describe, evaluate_run, read_held_out
from normatch.evaluate.predict import load
from normatch.metrics import fit_temperature
from normatch.nets.model import read_spec
from normatch.recipes import own
from normatch.training import train
from normatch.training.job import open_corpus, with_test_set
from normatch.training.predictions import write_predictions
from normatch.training.run import Moved
from tests.data.original_formats import save_png

QUICK = {"steps": 3, "epoch": 1, "batch": 6, "ratio": 2, "device": "cpu"}
LABELS = np.arange(200) % 3
X = np.random.default_rng(0).normal(size=(200, 4)) + LABELS[:, None]


def npz(folder: Path, n: int = 60, name: str = "data", **more: object) -> Config:
    np.savez(folder / f"{name}.npz", x=X[:n], y=LABELS[:n], **more)  # type: ignore[arg-type]
    return own(str(folder / f"{name}.npz")).replace(**QUICK)


def test_samples_without_a_label_are_not_scored(tmp_path: Path) -> None:
    known = np.where(np.arange(50) % 2, LABELS[:50], -1)
    run = train(npz(tmp_path, test_x=X[60:110], test_y=known), tmp_path / "run")
    scored = evaluate_run(run.path, device="cpu")
    assert (scored["evaluated_on"], scored["n"]) == ("test", 25)
    stored = read_held_out(run, ("0", "1", "2"))
    assert stored is not None
    assert stored.samples.tolist() == list(range(1, 50, 2))
    assert stored.labels.tolist() == known[1::2].tolist()
    assert stored.correct.mean() == run.result["accuracy"] == scored["accuracy"]
    assert (run.result["n"], run.accuracy) == (25, scored["accuracy"])
    assert list(run.metrics())[-1]["test/accuracy"] == run.accuracy
    assert len((run.path / "predictions.csv").read_text().splitlines()) == 51, "all are predicted"
    with pytest.raises(UserError, match="has no validation samples: train with --validation"):
        evaluate_run(run.path, on="validation", device="cpu")


def test_stored_predictions_are_complete_or_an_error(tmp_path: Path) -> None:
    run = train(npz(tmp_path, test_x=X[60:80], test_y=LABELS[60:80]), tmp_path / "run")
    test = Dataset(X[60:79].astype(np.float32), LABELS[60:79], ("0", "1", "2"))
    write_predictions(run.path / "predictions.csv", test, torch.eye(3)[torch.arange(19) % 3])
    with pytest.raises(UserError, match=r"has 19 test samples whose class is known, but result\.json counts 20"):
        read_held_out(run, test.classes)


def test_without_a_test_set_validation_samples_are_scored(tmp_path: Path) -> None:
    run = train(npz(tmp_path).replace(test_share=0.0, validation=0.2), tmp_path / "run")
    scored = evaluate_run(run.path, device="cpu")
    assert (scored["evaluated_on"], scored["n"], scored["accuracy"]) == ("validation", 12, run.accuracy)
    with pytest.raises(UserError, match="has no labelled test samples, and so no accuracy"):
        evaluate_run(run.path, on="test", device="cpu")
    assert read_spec(run.path / "model.json").temperature is None, "12 samples do not determine one"


def test_the_temperature_is_fitted_on_validation_samples_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = npz(tmp_path, 200).replace(test_share=0.2, validation=0.2)
    run = train(config, tmp_path / "run")
    corpus = with_test_set(config, open_corpus(config), run)
    validation = corpus.train.view(run.split.validation)
    assert len(validation) == 32
    logits = np.log(load(run.path, calibrated=False).predict_proba(np.asarray(validation.inputs)).astype(np.float64))
    found = read_spec(run.path / "model.json").temperature
    assert found is not None
    assert found == pytest.approx(fit_temperature(logits, validation.labels), rel=1e-4)
    # eval is of the model as trained.
    assert corpus.test is not None
    p = load(run.path, calibrated=False).predict_proba(np.asarray(corpus.test.inputs))
    loss = -np.log(p[np.arange(len(p)), corpus.test.labels]).mean()
    assert evaluate_run(run.path, device="cpu")["log_loss"] == pytest.approx(float(loss), rel=1e-5)
    assert main(["eval", str(run.path), "--on", "validation", "--device", "cpu", "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert (scored["evaluated_on"], scored["n"]) == ("validation", 32)
    assert scored["accuracy"] == pytest.approx((logits.argmax(1) == validation.labels).mean())


def test_the_predictor_has_the_averaged_weights(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    run = train(npz(tmp_path), tmp_path / "run")
    (saved,) = (run.path / "checkpoint").glob("*.safetensors")
    state, model = load_file(saved), load(run.path).model.state_dict()
    assert all(torch.equal(state[f"average/{name}"], value) for name, value in model.items())
    assert any(not torch.equal(state[f"method/model.{name}"], value) for name, value in model.items())


def test_only_the_run_s_own_data_is_scored_wherever_it_is(tmp_path: Path) -> None:
    run = train(npz(tmp_path).replace(test_share=0.2), tmp_path / "run")
    (tmp_path / "data.npz").rename(tmp_path / "new.npz")
    with pytest.raises(UserError, match=r"data\.npz': no such folder or file; check the path or, if it has moved"):
        evaluate_run(run.path, device="cpu")
    moved = Moved(str(tmp_path / "new.npz"))
    assert evaluate_run(run.path, moved=moved, device="cpu")["accuracy"] == run.accuracy
    npz(tmp_path, 59, "other")
    with pytest.raises(UserError, match=r"data has changed since .*run was started: samples of .*other\.npz or"):
        evaluate_run(run.path, moved=Moved(str(tmp_path / "other.npz")), device="cpu")


def test_an_image_that_lost_its_label_is_not_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    for i in range(24):
        save_png(data / ("ape", "bee")[i % 2] / f"{i:02}.png", np.full((8, 8, 3), i, np.uint8))
    run = train(own(str(data)).replace(**QUICK | {"test_share": 0.25}), tmp_path / "run")
    assert main(["eval", str(run.path), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "on 6 test samples (" in said
    assert "\nmacro-F1 " in said
    lost = run.files["test"][0]
    (data / "unlabeled").mkdir()
    (data / lost).rename(data / "unlabeled" / Path(lost).name)
    assert main(["eval", str(run.path), "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert "the data has changed since" in said
    assert said.count("\n") == 1


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
    for command in (["report", run, "--device", "cpu"], ["eval", run]):
        capsys.readouterr()
        assert main(command) == 2
        assert "cannot write decoded images" in capsys.readouterr().err
        assert main([*command, "--no-cache"]) == 0
        assert "could not be read" not in capsys.readouterr().out


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
