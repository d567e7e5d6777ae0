"""A model on disk: two files are enough, and what is wrong with them is said."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import normatch
from normatch.cli import main
from normatch.config import Config
from normatch.errors import UserError
from normatch.nets.model import Model, ModelSpec
from normatch.nets.weights import load_model, save_model
from normatch.training import Run, prepare, train


@pytest.fixture(scope="module")
def run(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny_config.replace(steps=2), tmp_path_factory.mktemp("weights") / "run").path


def test_two_files_are_a_model(run: Path, tmp_path: Path) -> None:
    for name in ("model.safetensors", "model.json"):
        shutil.copy(run / name, tmp_path)
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 8), dtype=np.uint8)
    model = normatch.load(tmp_path)
    np.testing.assert_array_equal(model.predict_proba(images), normatch.load(run).predict_proba(images))
    assert model.classes == tuple("0123456789")


def test_tied_weights_are_saved(tmp_path: Path) -> None:
    model = Model(ModelSpec("mlp", (6,), ("a", "b"), (0.0,) * 6, (1.0,) * 6))
    norm = next(module for module in model.backbone.modules() if isinstance(module, nn.BatchNorm1d))
    norm.bias = norm.weight
    save_model(model, tmp_path)
    loaded = load_model(tmp_path).state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())


def test_a_model_of_another_format_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    content = json.loads((run / "model.json").read_text())
    assert (content["format"], content["normatch"]) == (1, normatch.__version__)
    (copy / "model.json").write_text(json.dumps(content | {"format": 2, "normatch": "9.9"}))
    for verb in (["predict", str(copy), "x.png"], ["export", str(copy)]):
        assert main(verb) == 2
        said = capsys.readouterr().err
        assert "model.json is of format 2, written by normatch 9.9" in said
        assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda weights: weights.pop("head.bias"), "it has no head.bias"),
        (lambda weights: weights.update(more=torch.zeros(1)), "it also has more"),
        (lambda weights: weights.update({"head.bias": torch.zeros(3)}), r"head.bias is \(3,\), not \(10,\)"),
    ],
)
def test_the_weight_that_does_not_fit_is_named(
    change: Callable[[dict[str, Tensor]], object], said: str, run: Path, tmp_path: Path
) -> None:
    shutil.copy(run / "model.json", tmp_path)
    weights = load_file(run / "model.safetensors")
    change(weights)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=rf"does not fit model.json \({said}\): restore it or train again"):
        load_model(tmp_path)


@pytest.mark.parametrize("content", ["", "[1]", "{}", '"text"', "null", '{"shape": 3', "\x80"])
def test_a_damaged_description_is_named(content: str, run: Path, tmp_path: Path) -> None:
    shutil.copy(run / "model.safetensors", tmp_path)
    (tmp_path / "model.json").write_bytes(content.encode("latin1"))
    with pytest.raises(UserError, match=r"model\.json cannot be read") as caught:
        normatch.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shape", [1, 8, "x"]),
        ("classes", [1, 2]),
        ("mean", ["a"]),
        ("backbone", 4),
        ("head", None),
        ("head", {"kind": "tree"}),
        ("auxiliary", [{"layers": 1.5}]),
    ],
)
def test_a_description_of_other_types_is_named(field: str, value: object, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    content = json.loads((run / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(content | {field: value}))
    with pytest.raises(UserError, match=r"model\.json cannot be read \(\w+ is .*\): restore it or train again"):
        normatch.load(tmp_path)


def test_a_finished_run_that_has_lost_its_model_is_not_to_be_continued(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"is finished, but has no model\.safetensors: restore it or train again$"):
        normatch.load(tmp_path)


def test_an_unfinished_run_is_named(tiny_config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unfinished = Run.create(tmp_path / "run", tiny_config, prepare(tiny_config).split).path
    for verb in (["predict", str(unfinished), "x.png"], ["export", str(unfinished)]):
        assert main(verb) == 2
        assert "is not finished (it has no model.json): continue it with normatch train" in capsys.readouterr().err
