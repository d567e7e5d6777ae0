"""Baselines beside a run on one's own data: which are there, what they say, and that they change nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from normatch import load
from normatch.cli import main
from normatch.config import Config
from normatch.errors import UserError
from normatch.methods.parts.groups import OptimConfig
from normatch.nets import create_backbone
from normatch.nets.model import Model, ModelSpec, load_model
from normatch.recipes import own
from normatch.report import numbers_of, write_report
from normatch.training import Run, baselines, train

SHORT: dict[str, Any] = {"steps": 8, "epoch": 4, "batch": 8, "ratio": 2, "log_every": 2, "labels": None}


def vectors(folder: Path, labelled: int = 300, spread: float = 0.5) -> str:
    """Three clusters of 600 vectors, the first of them labelled."""
    rng, y = np.random.default_rng(0), np.arange(600) % 3
    x = 4 * np.eye(3, 6)[y] + spread * rng.normal(size=(600, 6))
    np.savez(folder / "vectors.npz", x=x.astype(np.float32), y=np.where(np.arange(600) < labelled, y, -1))
    return str(folder / "vectors.npz")


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of some steps with next to no learning rate, on data that logistic regression solves."""
    folder = tmp_path_factory.mktemp("losing")
    config = own(vectors(folder)).replace(test_share=0.4, **SHORT)
    return train(config.replace(optim=OptimConfig(lr=1e-6)), folder / "run")


def test_a_baseline_that_wins_is_reported_and_predicts(losing: Run, capsys: pytest.CaptureFixture[str]) -> None:
    linear, spreading = losing.result["baselines"]
    assert (linear["name"], linear["features"], linear["stored"]) == ("logistic regression", "the vectors", True)
    assert (spreading["name"], spreading["stored"]) == ("label spreading", False)
    assert linear["n"] == losing.result["n"] == 120
    assert linear["accuracy"] > 0.95 > linear["accuracy_of_run"] == losing.accuracy
    assert linear["p"] < 0.05
    (warning,) = (w for w in losing.warnings if w["name"] == "baseline-better")
    assert "logistic regression on the vectors has" in warning["message"]
    assert "--with baseline" in warning["remedy"]
    assert any("logistic regression on the vectors: " in line for line in losing.describe_baselines())
    assert numbers_of(losing.path, device="cpu")["baselines"] == losing.result["baselines"]
    assert "logistic regression on the vectors" in write_report(losing.path, device="cpu").read_text().split("<nav")[0]
    data = np.load(losing.config.data)
    np.save(losing.path / "new.npy", data["x"][300:])
    out = losing.path / "labels.csv"
    words = ["predict", str(losing.path), str(losing.path / "new.npy"), "--with", "baseline", "--out", str(out)]
    assert main(words) == 0
    assert "300 predictions of the baseline" in capsys.readouterr().out
    found = [line.split(",")[1] for line in out.read_text().splitlines()[1:]]
    assert np.mean(np.array(found) == (np.arange(300, 600) % 3).astype(str)) > 0.95


def test_a_baseline_that_does_not_win_gives_no_warning(tmp_path: Path) -> None:
    """Labels that are noise: nobody is better by more than chance."""
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "noise.npz", x=rng.normal(size=(200, 4)).astype(np.float32), y=rng.integers(0, 2, 200))
    run = train(own(str(tmp_path / "noise.npz")).replace(test_share=0.2, **SHORT), tmp_path / "run")
    (linear,) = run.result["baselines"]
    assert linear["p"] >= 0.05, "without unlabelled samples nothing spreads"
    assert "baseline-better" not in [w["name"] for w in run.warnings]


def test_without_held_out_samples_cross_validation_over_the_labels_scores(tmp_path: Path) -> None:
    run = train(own(vectors(tmp_path, labelled=30)).replace(test_share=0.0, **SHORT), tmp_path / "run")
    for baseline in run.result["baselines"]:
        assert (baseline["n"], baseline["p"], baseline["accuracy_of_run"]) == (30, None, None)
        assert baseline["accuracy"] > 0.9
    assert "in cross-validation over the 30 labels, a number that the run does not have" in run.describe_baselines()[0]
    assert "scored by cross-validation" in write_report(run.path, device="cpu").read_text()
    few = train(own(vectors(tmp_path, labelled=3)).replace(test_share=0.0, **SHORT), tmp_path / "few")
    assert few.result["baselines"][0]["accuracy"] is None
    assert "too few labels" in few.describe_baselines()[0]
    assert len(load(few.path, using="baseline").predict(np.zeros((2, 6), np.float32))) == 2


def test_images_have_hog_and_pixels_and_the_labels_choose_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, y = np.random.default_rng(0), np.arange(120) % 2
    images = np.clip(100 + 40 * y[:, None, None] + rng.normal(0, 30, (120, 12, 12)), 0, 255).astype(np.uint8)
    np.savez(tmp_path / "grey.npz", images=images, labels=y)
    run = train(
        own(str(tmp_path / "grey.npz")).replace(test_share=0.3, backbone="small-wide", **SHORT), tmp_path / "run"
    )
    by = {b["features"]: b for b in run.result["baselines"] if b["name"] == "logistic regression"}
    assert list(by) == ["HOG", "pixels"]
    assert by["pixels"]["stored"], "brightness tells the classes apart, gradients do not"
    model = load(run.path, using="baseline")
    assert model.model.spec.backbone == "identity"
    held = [int(line.split(",")[0]) for line in (run.path / "predictions.csv").read_text().splitlines()[1:]]
    assert len(held) == by["pixels"]["n"]

    # Of images whose features a run learns from, HOG is that of the images still.
    weights = tmp_path / "weights.pth"
    torch.save(create_backbone("small-wide", (1, 12, 12)).state_dict(), weights)
    frozen = train(run.config.replace(freeze=True, weights=weights), tmp_path / "frozen").result["baselines"]
    assert [b["accuracy"] for b in frozen if b["features"] == "HOG"] == [by["HOG"]["accuracy"]]

    class BestOnMostFeatures(baselines._LogisticRegression):
        validated = property(lambda self: self.mean.size / 1e6, lambda self, value: None)

    monkeypatch.setattr(baselines, "_LogisticRegression", BestOnMostFeatures)
    other = train(run.config, tmp_path / "other").result["baselines"]
    (stored,) = (b for b in other if b["stored"])
    assert (stored["features"], stored["accuracy"]) == ("HOG", by["HOG"]["accuracy"]), "not the best on test images"


def test_labels_that_the_run_does_not_use_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def classify(labels: np.ndarray, held_out: np.ndarray) -> Any:
        seen.append(int((labels != -1).sum()))
        return np.zeros(len(held_out), np.int64)

    monkeypatch.setattr(baselines, "_spreading_on", lambda train: classify)
    config = own(vectors(tmp_path)).replace(test_share=0.2, **SHORT | {"labels": 6})
    run = train(config, tmp_path / "run")
    assert [b["name"] for b in run.result["baselines"]] == ["logistic regression", "label spreading"]
    assert seen == [6]


def test_cross_validation_hides_the_labels_that_it_asks_for() -> None:
    labels: Any = np.append(np.arange(16) % 2, [-1] * 4)
    rows = np.arange(20, dtype=np.float32)[:, None]

    def classify(known: np.ndarray, held_out: np.ndarray) -> Any:
        asked = held_out[:, 0].astype(int)
        assert (known[asked] == -1).all()
        assert (known != -1).sum() == 16 - len(asked)
        return labels[asked]

    assert baselines._cross_validated(rows, labels, 0, classify).tolist() == labels[:16].tolist()


@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 2)])
def test_logistic_regression_is_scikit_learns_on_standardised_features(classes: tuple[int, ...]) -> None:
    """A class without labels is never predicted."""
    rng = np.random.default_rng(0)
    z, y = rng.normal(3, 2, (30, 50)).astype(np.float32), np.array(classes)[np.arange(30) % len(classes)]
    found = baselines._LogisticRegression(z, y, seed=0)
    scaled = (z - z.mean(0)) / z.std(0)
    expected = LogisticRegression(C=found.strength, max_iter=1000).fit(scaled, y)
    model = found.head_of(Model(ModelSpec("identity", (50,), ("a", "b", "c"), (0.0,) * 50, (1.0,) * 50)))
    p = model(torch.from_numpy(z)).softmax(1).detach().numpy()
    np.testing.assert_allclose(p[:, expected.classes_], expected.predict_proba(scaled), atol=2e-3)
    np.testing.assert_allclose(p.sum(1), p[:, expected.classes_].sum(1), atol=1e-6)


def test_a_frozen_network_gives_its_own_features_and_hog() -> None:
    spec = ModelSpec("frozen:with-hog:small-wide", (3, 16, 16), ("a", "b"), (100.0,) * 3, (50.0,) * 3)
    model = Model(spec).eval()
    found = baselines.plain_models(model)
    assert list(found) == ["features of small-wide with HOG", "HOG"]
    plain = found["features of small-wide with HOG"]
    assert plain.spec.backbone == "with-hog:small-wide"
    x = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    torch.testing.assert_close(plain.features(x), model.backbone.embedder(model.normalise(x)))  # type: ignore[operator]


def test_the_baselines_never_make_a_run_fail_or_change_it(
    losing: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "same").mkdir()
    same = train(losing.config, tmp_path / "same" / "run")
    shutil.copytree(same.path, tmp_path / "ends")
    (tmp_path / "ends" / "result.json").unlink()  # killed while it was finishing
    again = train(losing.config, tmp_path / "ends", resume=True)

    def without_time(run: Run) -> list[dict[str, Any]]:
        return [{name: v for name, v in b.items() if name != "seconds"} for b in run.result["baselines"]]

    assert without_time(same) == without_time(again) == without_time(losing)
    assert same.warnings == again.warnings
    for name in ("baseline", "model"):
        assert (same.path / f"{name}.safetensors").read_bytes() == (again.path / f"{name}.safetensors").read_bytes()

    def fails(*_: object) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(baselines, "plain_features", fails)
    without = train(losing.config, tmp_path / "without")
    assert without.result["baselines"] == []
    assert (without.path / "model.safetensors").read_bytes() == (same.path / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match="has no baseline, which only runs on your own data have"):
        load(without.path, using="baseline")


def test_a_damaged_baseline_is_refused(losing: Run, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(losing.path, tmp_path / "run"))
    content = bytearray((copy / "baseline.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "baseline.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"baseline\.safetensors is damaged"):
        load_model(copy, "baseline")
    result = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps(result | {"baselines": [{"name": 1}]}))
    with pytest.raises(UserError, match=r"result\.json cannot be read"):
        _ = Run.open(copy).result


def test_a_named_data_set_has_none(tiny_config: Config, tmp_path: Path) -> None:
    run = train(tiny_config, tmp_path / "run")
    assert run.result["baselines"] == []
    assert not (run.path / "baseline.json").exists()
