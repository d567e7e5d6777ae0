"""Any ONNX network as a frozen embedder: its features are torch's, and a run with it needs no other file."""

import copy
import sys
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

import normatch
from normatch.cli import main
from normatch.config import Config
from normatch.data.cache import Cache
from normatch.errors import UserError
from normatch.evaluate.export import export_run
from normatch.evaluate.held_out import evaluate_run
from normatch.evaluate.suggest import suggest
from normatch.nets import create_backbone, find_backbone
from normatch.report import write_report
from normatch.training import prepare, train

Kind = Literal["vectors", "tokens", "maps"]

SHORT: dict[str, Any] = {"steps": 12, "epoch": 4, "batch": 8, "ratio": 2, "log_every": 4, "labels": None}


class Net(nn.Module):
    """A convolution, of which the outputs are (N, D), (N, T, D) or (N, D, h, w)."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.kind = nn.Conv2d(3, 12, 4, stride=4), kind

    def forward(self, images: Tensor) -> Tensor:
        z = torch.relu(self.conv(images))
        if self.kind == "vectors":
            return z.mean((2, 3))
        return z if self.kind == "maps" else z.flatten(2).transpose(1, 2)


def exported(path: Path, kind: Kind = "vectors", side: int | None = 16, batch: int | None = None) -> Net:
    """The network in a file, for images of a fixed side and batches of a fixed size or of any."""
    net = Net(kind).eval()
    free = {0: "n"} if batch is None else {}
    free |= {2: "h", 3: "w"} if side is None else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = torch.zeros(batch or 2, 3, side or 16, side or 16)
        sizes = (dict.fromkeys(free, torch.export.Dim.DYNAMIC),)
        torch.onnx.export(net, (example,), path, dynamic_shapes=sizes, external_data=side is None, verbose=False)
    return net


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "net.onnx"
    exported(path)
    return path


@pytest.mark.parametrize(
    ("kind", "side", "batch"), [("vectors", 16, None), ("tokens", None, None), ("maps", 16, 1), ("maps", 16, 3)]
)
def test_features_are_torch_s(kind: Kind, side: int | None, batch: int | None, tmp_path: Path) -> None:
    net = exported(tmp_path / "net.onnx", kind, side, batch)
    assert find_backbone(f"onnx:{tmp_path}/net.onnx").sides == ((16, 16) if side else (16, 4096))
    images = torch.randn(5, 3, side or 24, side or 24)
    embedder = create_backbone(f"onnx:{tmp_path}/net.onnx", tuple(images.shape[1:]))
    with torch.no_grad():
        expected = net.conv(images).relu().mean((2, 3))
    torch.testing.assert_close(embedder(images), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(copy.deepcopy(embedder)(images), embedder(images), atol=0, rtol=0)


def made(path: Path, opset: int = 13, **metadata: str) -> Path:
    """As some programs write CLIP: an older opset, tokens first, and then an average over them by an old operator."""
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(6, 3, 8, 8)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["pixels", "w"], ["c"], strides=[8, 8]),
        helper.make_node("Reshape", ["c", "s"], ["t"]),
        helper.make_node("Transpose", ["t"], ["tokens"], perm=[0, 2, 1]),
        helper.make_node("ReduceMean", ["tokens"], ["embedding"], axes=[1], keepdims=0),
        helper.make_node("Tanh", ["embedding"], ["squashed"]),
    ]
    outputs = [
        helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["n", 4, 6]),
        helper.make_tensor_value_info("squashed", TensorProto.FLOAT, ["n", 6]),
    ]
    inputs = [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, 16, 16])]
    shape = numpy_helper.from_array(np.array([0, 6, 4]), "s")
    graph = helper.make_graph(nodes, "net", inputs, outputs, [weight, shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    helper.set_model_props(model, metadata)
    onnx.save(model, path)
    return path


def test_vectors_are_taken_where_there_are_tokens_too(tmp_path: Path) -> None:
    embedder = create_backbone(f"onnx:{made(tmp_path / 'net.onnx')}", (3, 16, 16))
    assert embedder.features == 6
    assert embedder(torch.randn(2, 3, 16, 16)).abs().max() <= 1, "squashed"


def test_grey_images_are_repeated(file: Path) -> None:
    grey, colours = (create_backbone(f"onnx:{file}", (channels, 16, 16)) for channels in (1, 3))
    x = torch.randn(2, 1, 16, 16)
    torch.testing.assert_close(grey(x), colours(x.expand(-1, 3, -1, -1)))


def test_the_file_says_what_pixels_it_expects(file: Path, tmp_path: Path) -> None:
    def statistics(path: Path, channels: int = 3) -> list[tuple[float, ...]]:
        found = find_backbone(f"onnx:{path}").statistics
        assert found is not None
        return [tuple(round(value, 3) for value in values) for values in found((channels, 16, 16))]

    own = made(tmp_path / "net.onnx", mean="[0.5, 0.4, 0.3]", std="[0.2, 0.2, 0.1]")
    assert statistics(file) == [(123.675, 116.28, 103.53), (58.395, 57.12, 57.375)], "ImageNet's"
    assert statistics(own) == [(127.5, 102.0, 76.5), (51.0, 51.0, 25.5)]
    assert statistics(own, channels=1) == [(102.0,), (42.5,)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Bright and dark images of 16 × 16, some of them labelled."""
    path = tmp_path_factory.mktemp("data") / "x.npz"
    rng, y = np.random.default_rng(0), np.arange(200) % 2
    images = np.clip(80 + 60 * y[:, None, None, None] + rng.normal(0, 40, (200, 16, 16, 3)), 0, 255).astype(np.uint8)
    np.savez(path, images=images, labels=np.where(np.arange(200) < 100, y, -1))
    return Config(data=str(path), test_share=0.2, freeze=True, device="cpu", norm_momentum=0.1, **SHORT)


@pytest.mark.parametrize(("kind", "method"), [("tokens", "normatch"), ("maps", "fixmatch"), ("old", "fixmatch")])
def test_a_run_needs_its_own_folder_alone(kind: Any, method: str, config: Config, tmp_path: Path) -> None:
    """Its model has the network in it, from which one graph comes that equals PyTorch and onnxruntime on 200 images."""
    path = tmp_path / "net.onnx"
    made(path) if kind == "old" else exported(path, kind)
    run = train(config.replace(backbone=f"onnx:{path}", method=method), tmp_path / "run")
    path.unlink()
    predictor, images = normatch.load(run.path), np.load(config.data)["images"]
    assert predictor.model.spec.backbone == f"frozen:onnx:{6 if kind == 'old' else 12}:net.onnx"
    assert evaluate_run(run.path, device="cpu")["accuracy"] == run.accuracy
    assert len(suggest(run.path, 3, device="cpu").rows) == 3
    assert "features of net.onnx" in write_report(run.path, device="cpu").read_text()
    assert len(normatch.load(run.path, using="baseline").predict(images)) == 200
    export_run(run.path)
    session = onnxruntime.InferenceSession(run.path / "model.onnx", providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], {"images": images})[0]
    np.testing.assert_allclose(found, predictor.predict_proba(images), atol=1e-4)
    with pytest.raises(UserError, match="which cannot be trained"):
        prepare(config.replace(freeze=False, backbone="auto", method=method, start=run.path))
    with pytest.raises(UserError, match="is an ONNX network, which a torch program cannot have: export to onnx"):
        export_run(run.path, "torch")


def test_grey_images_and_batches_of_one_size_are_exported_or_refused(config: Config, tmp_path: Path) -> None:
    data = dict(np.load(config.data))
    np.savez(tmp_path / "grey.npz", images=data["images"][..., 0], labels=data["labels"])
    grey = config.replace(data=str(tmp_path / "grey.npz"), method="fixmatch")
    exported(tmp_path / "any.onnx")
    exported(tmp_path / "one.onnx", batch=1)
    run = train(grey.replace(backbone=f"onnx:{tmp_path}/any.onnx"), tmp_path / "any")
    assert "from images (N, 16, 16, 1)" in export_run(run.path)
    run = train(grey.replace(backbone=f"onnx:{tmp_path}/one.onnx"), tmp_path / "one")
    with pytest.raises(UserError, match="takes batches of exactly 1"):
        export_run(run.path)
    assert not (run.path / "model.onnx").exists()


def test_features_are_cached_by_content(
    config: Config, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "net.onnx"
    entries = []
    for content in (file, file, made(tmp_path / "other.onnx")):
        path.write_bytes(content.read_bytes())
        prepare(config.replace(backbone=f"onnx:{path}"))
        entries.append(len(Cache().entries()))
    assert entries == [1, 1, 2]


def test_a_run_resumes_from_its_config(
    config: Config, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has the absolute path."""
    monkeypatch.chdir(file.parent)
    run = train(config.replace(backbone="onnx:net.onnx"), tmp_path / "run")
    assert run.config.backbone == f"onnx:{file}"
    whole = (run.path / "model.safetensors").read_bytes()
    (run.path / "result.json").unlink()
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--out", "run", "--resume"]) == 0
    assert (run.path / "model.safetensors").read_bytes() == whole


def test_what_an_onnx_network_cannot_do_is_one_line(
    config: Config, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["train", "--data", config.data, "--backbone", f"onnx:{file}", "--out", str(tmp_path / "run")]
    for more, says in (
        ([], "give freeze as well: an ONNX network cannot be trained"),
        (["--freeze", "--weights", "x.pth"], "weights is x.pth: give none: onnx:"),
        (["--freeze", "--image-size", "32"], "does not take"),
        (["--freeze", "--finetune"], "finetune is on, but backbone 'onnx:"),
    ):
        assert main([*argv, *more]) == 2
        shown = capsys.readouterr().err
        assert says in shown
        assert shown.count("\n") == 1
    other = tmp_path / "other.onnx"  # the first is read already
    other.write_bytes(file.read_bytes())
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main([*argv, "--freeze", "--backbone", f"onnx:{other}"]) == 2
    assert capsys.readouterr().err == "normatch: an ONNX network needs onnx: pip install 'normatch[export]'\n"
    assert not (tmp_path / "run").exists()
