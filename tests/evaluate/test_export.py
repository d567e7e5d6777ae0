"""Exported files, run by other libraries, say what the model says."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import normatch
from normatch.cli import main
from normatch.errors import UserError
from normatch.evaluate import export
from normatch.evaluate.export import Served, export_model, export_run
from normatch.nets.model import HeadSpec, Model, ModelSpec, save_model

CLASSES = ("kat", "caf\udce9", "één vogel", "鱼")
"""The second is that of a folder whose name is no text in UTF-8."""

SHAPES = {"mlp": (5,), "small-wide": (1, 8, 8), "quick-resnet": (3, 8, 8), "resnet-18": (1, 64, 64)}
"""A backbone of each kind, with a small input; the others are the same code, only larger."""


def served(backbone: str, *, flow: bool = True) -> Served:
    """A model with statistics of data, whose predictions are neither all alike nor all certain."""
    torch.manual_seed(0)
    shape = SHAPES[backbone]
    n = shape[0]
    auxiliary = (HeadSpec("nfc", layers=2, hidden=8, means="normal"),) if flow else ()
    spec = ModelSpec(
        backbone, shape, CLASSES, tuple(90.0 + i for i in range(n)), (60.0,) * n, norm_momentum=1.0, auxiliary=auxiliary
    )
    model = Model(spec)
    example = Served(model).example(64)
    with torch.no_grad():
        model.train()(example.permute(0, 3, 1, 2) if len(shape) == 3 else example)
        model.head.weight.mul_(2)  # type: ignore[operator]
        if model.flow:
            model.flow.mixture.means.mul_(0.1)
    model.spec = replace(spec, temperature=1.25)
    return Served(model)


def session(path: Path) -> Any:
    return onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("backbone", SHAPES)
def test_onnx_equals_pytorch(backbone: str, tmp_path: Path) -> None:
    model, path = served(backbone), tmp_path / "model.onnx"
    export_model(model, "onnx", path)
    assert list(tmp_path.iterdir()) == [path]
    runtime = session(path)
    name = "images" if len(SHAPES[backbone]) == 3 else "features"
    (entrance,) = runtime.get_inputs()
    assert (entrance.name, entrance.shape) == (name, ["batch", *model.shape])
    assert entrance.type == ("tensor(uint8)" if name == "images" else "tensor(float)")
    exits = [(exit.name, exit.shape) for exit in runtime.get_outputs()]
    assert exits == [
        ("probabilities", ["batch", 4]),
        ("flow_probabilities", ["batch", 4]),
        ("flow_log_density", ["batch"]),
    ]
    about = runtime.get_modelmeta()
    assert (about.producer_name, about.custom_metadata_map["normatch"]) == ("normatch", normatch.__version__)
    assert json.loads(about.custom_metadata_map["classes"]) == list(CLASSES)
    assert json.loads(about.custom_metadata_map["shape"]) == list(model.shape)
    assert json.loads(about.custom_metadata_map["temperature"]) == 1.25

    # The flow's posterior comes from sums of squares over all features, in float32: for the 512 of ResNet-18 PyTorch's
    # own is 8e-5 from that of float64, and ONNX Runtime's 7e-5 to another side.
    flow_tolerance = 1e-4 if model.model.backbone.features <= 128 else 5e-4
    inputs = model.example(48)
    for start, end in ((0, 1), (1, 8), (8, 48)):
        got = runtime.run(None, {name: inputs[start:end].numpy()})
        with torch.inference_mode():
            expected = model(inputs[start:end])
        np.testing.assert_allclose(got[0], expected[0], atol=1e-4, rtol=0)
        np.testing.assert_allclose(got[1], expected[1], atol=flow_tolerance, rtol=0)
        np.testing.assert_allclose(got[2], expected[2], rtol=1e-4, atol=1e-3)
    assert 0.3 < got[0].max(1).mean() < 0.98
    assert 0.3 < got[1].max(1).mean() < 0.98


@pytest.mark.parametrize("backbone", ["mlp", "small-wide"])
def test_torch_program_equals_pytorch(backbone: str, tmp_path: Path) -> None:
    model, path = served(backbone), tmp_path / "model.pt2"
    export_model(model, "torch", path)
    assert list(tmp_path.iterdir()) == [path]
    extra = {"normatch.json": ""}
    program = torch.export.load(path, extra_files=extra).module()
    assert json.loads(extra["normatch.json"])["classes"] == list(CLASSES)
    for n in (1, 2, 50):
        inputs = model.example(n)
        with torch.inference_mode():
            for mine, other in zip(program(inputs), model(inputs), strict=True):
                torch.testing.assert_close(mine, other)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save_model(served("mlp", flow=False).model, tmp_path)
    return tmp_path


def test_an_existing_file_is_replaced_only_by_force(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "model.pt2"
    path.mkdir()
    assert main(["export", str(run), "--format", "torch"]) == 2
    assert "model.pt2 is a folder: give the name of a file" in capsys.readouterr().err
    path.rmdir()
    path.write_text("mine")
    assert main(["export", str(run), "--format", "torch"]) == 2
    assert "model.pt2 exists already: choose another name, or replace it with --force" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert main(["export", str(run), "--format", "torch", "--force"]) == 0
    said = capsys.readouterr()
    assert f"{path}: 0.2 MB, from features (N, 5) to probabilities; probabilities differ from PyTorch's by" in said.out
    assert said.err == ""
    torch.export.load(path)


@pytest.mark.parametrize("output", ["probabilities", "flow_probabilities", "flow_log_density"])
def test_a_file_that_says_something_else_is_not_written(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, honest = served("mlp"), export._run_torch

    def spoilt(content: bytes, inputs: torch.Tensor) -> list[Any]:
        outputs = honest(content, inputs)
        at = model.outputs.index(output)
        outputs[at] = outputs[at] + 0.01 * (1 + np.abs(outputs[at]).max())
        return outputs

    monkeypatch.setattr(export, "_run_torch", spoilt)
    with pytest.raises(RuntimeError, match=rf"^{output} of the exported model differ .*: nothing was written"):
        export_model(model, "torch", tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_onnx_without_its_libraries(missing: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(run.iterdir())
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=rf"ONNX export needs {missing}: pip install 'normatch\[export\]'"):
        export_run(run)
    assert sorted(run.iterdir()) == before


def test_a_network_that_onnx_cannot_tell_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the flow would be, were its distances not translated."""
    save_model(served("mlp").model, run)
    monkeypatch.setattr(export, "_translations", dict)
    with pytest.raises(
        UserError, match=r"backbone 'mlp' cannot be expressed in ONNX \(.*cdist.*\): export to torch"
    ) as caught:
        export_run(run)
    assert "\n" not in str(caught.value)
    assert not (run / "model.onnx").exists()
