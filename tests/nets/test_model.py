"""The model: how its layers start, what it takes, that its files are checked, and that batches change no bit."""

import hashlib
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

import normatch
from normatch.cli import main
from normatch.config import Config
from normatch.errors import UserError
from normatch.evaluate import Predictor
from normatch.files import read_sealed, write_sealed
from normatch.nets.model import HeadSpec, Model, ModelSpec, contiguous, features, load_model, logits, save_model
from normatch.training import Run, prepare, train


def small(channels: int = 1, side: int = 8) -> Model:
    torch.manual_seed(0)
    return Model(
        ModelSpec("small-wide", (channels, side, side), ("a", "b"), (100.0,) * channels, (50.0,) * channels)
    ).eval()


@pytest.mark.parametrize("kind", ["softmax", "mlp"])
def test_the_last_layer_starts_with_glorot_s_normal_weights(kind: Literal["softmax", "mlp"]) -> None:
    """Their variance is 2 / (features + classes), and biases are 0. PyTorch's own start has 1 / (3 · features)."""
    torch.manual_seed(0)
    last = [m for m in HeadSpec(kind).build(256, 100).modules() if isinstance(m, nn.Linear)][-1]
    assert last.weight.shape == (100, 256)
    assert float(last.weight.detach().std()) == pytest.approx(math.sqrt(2 / (256 + 100)), rel=0.02)
    assert float(last.weight.detach().abs().max()) > 3 * math.sqrt(2 / (256 + 100)), "a normal distribution has tails"
    assert not last.bias.any()


@pytest.mark.parametrize("channels", [1, 3])
def test_results_do_not_depend_on_the_layout_of_images(channels: int) -> None:
    model = small(channels)
    last = torch.randint(0, 256, (23, 8, 8, channels), dtype=torch.uint8).permute(0, 3, 1, 2)
    first = last.clone(memory_format=torch.contiguous_format)
    assert first.stride() != last.stride()
    assert contiguous(last).stride() == contiguous(first).stride() == (64 * channels, 64, 8, 1)
    assert contiguous(first).data_ptr() == first.data_ptr()
    for run in (logits, features):
        assert torch.equal(run(model, last), run(model, first))
    assert torch.equal(model(first), model(first.float())), "so that a method can mix them"


@pytest.mark.parametrize(("side", "at_once", "predicted"), [(8, 500, 256), (96, 113, 113)])
def test_fewer_large_images_go_through_a_network_at_once(
    side: int, at_once: int, predicted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = "small-wide" if side <= 64 else "resnet-18"
    model = Model(ModelSpec(backbone, (1, side, side), ("a", "b"), (100.0,), (50.0,))).eval()
    sizes: set[int] = set()

    def noted(x: Tensor) -> Tensor:
        sizes.add(len(x))
        return torch.zeros(len(x), model.backbone.features)

    monkeypatch.setattr(model.backbone, "forward", noted)
    images = torch.zeros(501, 1, 1, 1, dtype=torch.uint8).expand(-1, 1, side, side)
    logits(model, images), features(model, images)
    assert sizes == {at_once, 501 % at_once}
    sizes.clear()
    Predictor(model).predict_proba(images.permute(0, 2, 3, 1).numpy())
    assert sizes == {predicted, 501 % predicted}


@pytest.fixture(scope="module")
def run(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny_config.replace(steps=2), tmp_path_factory.mktemp("model") / "run").path


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """Nothing but the two files of a model."""
    for name in ("model.safetensors", "model.json"):
        shutil.copy(run / name, tmp_path)
    return tmp_path


def change(folder: Path, **fields: object) -> None:
    write_sealed(folder / "model.json", read_sealed(folder / "model.json") | fields)


def test_two_files_are_a_model(run: Path, copy: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 8), dtype=np.uint8)
    model = normatch.load(copy)
    np.testing.assert_array_equal(model.predict_proba(images), normatch.load(run).predict_proba(images))
    assert model.classes == tuple("0123456789")


def test_tied_weights_are_saved(tmp_path: Path) -> None:
    model = Model(ModelSpec("mlp", (6,), ("a", "b"), (0.0,) * 6, (1.0,) * 6))
    norm = next(module for module in model.backbone.modules() if isinstance(module, nn.BatchNorm1d))
    norm.bias = norm.weight
    save_model(model, tmp_path, temperature=1.5)
    loaded = load_model(tmp_path)
    assert loaded.spec.temperature == 1.5
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())


def test_one_flipped_bit_is_noticed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    for verb in (["predict", str(copy), "x.png"], ["export", str(copy)]):
        assert main(verb) == 2
        said = capsys.readouterr().err
        assert "model.safetensors is damaged (its SHA-256 is not that in model.json): restore it or train" in said
        assert said.count("\n") == 1
    change(copy, weights_sha256=None)
    with pytest.raises(UserError, match="is damaged"):
        load_model(copy)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda weights: weights.pop("head.bias"), r"does not fit model.json \(.*head\.bias"),
        (lambda weights: weights.update(more=torch.zeros(1)), r'does not fit model.json \(.*"more"'),
        (lambda weights: weights.update({"head.bias": torch.zeros(3)}), r"does not fit model.json \(.*head\.bias"),
        (lambda weights: weights["head.bias"].fill_(math.nan), r"weights that are not finite \(head\.bias\)"),
    ],
)
def test_weights_that_cannot_be_used_are_named(
    damage: Callable[[dict[str, Tensor]], object], said: str, copy: Path
) -> None:
    weights = load_file(copy / "model.safetensors")
    damage(weights)
    content = save(weights)
    (copy / "model.safetensors").write_bytes(content)
    change(copy, weights_sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(UserError, match=said) as caught:
        load_model(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[1]", '{"format": 2}', '{"shape": 3', "\x80", "[" * 100_000])
def test_a_damaged_description_is_named(content: str, copy: Path) -> None:
    change(copy, format=9, normatch="9.9")
    with pytest.raises(UserError, match=r"model\.json is of format 9, written by normatch 9\.9"):
        load_model(copy)
    (copy / "model.json").write_bytes(content.encode("latin1"))
    with pytest.raises(UserError, match=r"model\.json cannot be read") as caught:
        normatch.load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shape", [1, 8, "x"]),
        ("head", {"kind": "tree"}),
        ("auxiliary", [{"layers": 1.5}]),
        ("temperature", 0),
        ("x", 1),
    ],
)
def test_a_description_of_other_types_is_named(field: str, value: object, copy: Path) -> None:
    change(copy, **{field: value})
    with pytest.raises(UserError, match=r"model\.json cannot be read \(.*\): restore it or train again"):
        normatch.load(copy)


def test_a_run_without_a_model_is_named(
    run: Path, tiny_config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, tmp_path / "finished")
    (tmp_path / "finished" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"is finished, but has no model\.safetensors: restore it or train again$"):
        normatch.load(tmp_path / "finished")
    job = prepare(tiny_config)
    unfinished = Run.create(tmp_path / "run", tiny_config, job.split, job.corpus).path
    for verb in (["predict", str(unfinished), "x.png"], ["export", str(unfinished)]):
        assert main(verb) == 2
        assert "is not finished (it has no model.json): continue it with normatch train" in capsys.readouterr().err
