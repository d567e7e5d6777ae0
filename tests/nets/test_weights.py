"""Wrong and hostile files of weights and networks: one line, exit code 2, nothing executed, nothing left behind."""

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from torch import Tensor

from normatch.cli import main
from normatch.nets import create_backbone

Content = dict[str, Tensor]


class Bomb:
    """Unpickled, it writes a file."""

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (Path("executed"),)


def saved(change: Callable[[Content], object]) -> Callable[[Path], object]:
    """A .pth of the right weights, of which ``change`` makes something else."""

    def make(path: Path) -> None:
        good = create_backbone("small-wide", (3, 16, 16)).state_dict()
        torch.save(change(good), path)

    return make


def cut(path: Path) -> None:
    good = create_backbone("small-wide", (3, 16, 16)).state_dict()
    path.write_bytes(safetensors.torch.save(good))
    if path.suffix == ".pth":
        torch.save(good, path)
    os.truncate(path, path.stat().st_size // 2)


def compressed(path: Path) -> None:
    """Ten megabytes more than the file has bytes."""
    saved(dict)(path)
    with zipfile.ZipFile(path) as whole:
        parts = {entry.filename: whole.read(entry) for entry in whole.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content + bytes(10**7 if name.endswith("data/0") else 0))


def first(good: Content, value: Tensor) -> Content:
    return good | {next(iter(good)): value}


def network(
    *sizes: str | int, kind: int = TensorProto.FLOAT, location: str = "", value: float = 1.0
) -> onnx.ModelProto:
    """It multiplies images by one number and takes their mean."""
    weight = numpy_helper.from_array(np.array(value, np.float32), "w")
    if location:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, text in (("location", location), ("length", "4")):
            entry = weight.external_data.add()
            entry.key, entry.value = key, text
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "w"], ["y"]),
        helper.make_node("GlobalAveragePool", ["y"], ["z"]),
    ]
    x = helper.make_tensor_value_info("x", kind, [*(sizes or ("n", 3, 16, 16))])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", [x], [z], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def stored(model: onnx.ModelProto, size: int | None = None, **metadata: str) -> Callable[[Path], object]:
    helper.set_model_props(model, metadata)
    return lambda path: path.write_bytes(model.SerializeToString()[:size])


FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "absent.pth": ("there is no such file", lambda path: None),
    "folder.pth": ("there is no such file", Path.mkdir),
    "pipe.pth": ("there is no such file", os.mkfifo),
    "pipe.safetensors": ("there is no such file", os.mkfifo),
    "empty.pth": ("or are damaged", Path.touch),
    "empty.safetensors": ("or are damaged", Path.touch),
    "cut.pth": ("or are damaged", cut),
    "cut.safetensors": ("or are damaged", cut),
    "bomb.pth": ("hold something else than tensors", saved(lambda good: Bomb())),
    "pickle.pth": ("hold something else than tensors", lambda p: p.write_bytes(pickle.dumps(Bomb(), protocol=2))),
    "zip.pth": ("or are damaged", compressed),
    "list.pth": ("are no state dict", saved(lambda good: list(good.values()))),
    "numbers.pth": ("are no state dict", saved(lambda good: dict(enumerate(good.values())))),
    "meta.pth": ("are no state dict", saved(lambda good: {name: value.to("meta") for name, value in good.items()})),
    "missing.pth": ("missing stem.weight", saved(lambda good: dict([*good.items()][1:]))),
    "more.pth": ("unexpected extra", saved(lambda good: good | {"extra": torch.zeros(1)})),
    "shape.pth": ("of another shape stem.weight", saved(lambda good: first(good, torch.zeros(3)))),
    "huge.pth": ("of another shape stem.weight", saved(lambda good: first(good, torch.zeros(1).expand(10**12)))),
    "nan.pth": (
        "not finite (stem.weight)",
        saved(lambda good: first(good, torch.full_like(good["stem.weight"], torch.nan))),
    ),
    "absent.onnx": ("there is no such file", lambda path: None),
    "folder.onnx": ("there is no such file", Path.mkdir),
    "pipe.onnx": ("there is no such file", os.mkfifo),
    "empty.onnx": ("is no ONNX network that can be used", Path.touch),
    "text.onnx": ("is no ONNX network that can be used", lambda path: path.write_text("hello, world")),
    "pickle.onnx": ("is no ONNX network that can be used", lambda p: p.write_bytes(pickle.dumps(Bomb()))),
    "cut.onnx": ("is no ONNX network that can be used", stored(network(), 60)),
    "nan.onnx": ("give features that are not finite", stored(network(value=float("nan")))),
    "size.onnx": ("backbone 'onnx:size.onnx' does not take", stored(network("n", 3, 32, 32))),
    "vectors.onnx": ("takes x tensor(float) ['n', 3]", stored(network("n", 3))),
    "bytes.onnx": ("takes x tensor(uint8) ['n', 3, 16, 16]", stored(network(kind=TensorProto.UINT8))),
    "oblong.onnx": ("takes x tensor(float) ['n', 3, 16, 8]", stored(network("n", 3, 16, 8))),
    "mean.onnx": ("metadata mean of mean.onnx is '[1, 2]': give three numbers", stored(network(), mean="[1, 2]")),
    "std.onnx": ("metadata std of std.onnx is '[1, 0, 1]': give three", stored(network(), std="[1, 0, 1]")),
    "gone.onnx": ("is no ONNX network that can be used", stored(network(location="gone"))),
    "parent.onnx": ("is no ONNX network that can be used", stored(network(location="../pets/cat/0.png"))),
    "root.onnx": ("is no ONNX network that can be used", stored(network(location="/etc/passwd"))),
    "link.onnx": ("is no ONNX network that can be used", stored(network(location="link"))),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_file_is_one_line_and_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for i in range(20):
        path = tmp_path / "pets" / ("cat", "dog")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (16, 16, 3), np.uint8)).save(path)
    (tmp_path / "link").symlink_to("/etc/passwd")
    says, make = FILES[name]
    make(Path(name))
    before = sorted(tmp_path.rglob("*"))
    start = (
        ["--backbone", f"onnx:{name}"] if name.endswith(".onnx") else ["--backbone", "small-wide", "--weights", name]
    )
    argv = ["train", "--data", "pets", "--freeze", *start, "--image-size", "16", "--device", "cpu", "--no-cache"]
    assert main([*argv, "--out", "run"]) == 2
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1].startswith("normatch: ")
    assert sum(line.startswith("normatch: ") for line in shown.err.splitlines()) == 1
    assert says in shown.err
    assert sorted(tmp_path.rglob("*")) == before
