"""Any ONNX network as a frozen embedder, by onnxruntime on the CPU: ``onnx:clip.onnx``.

A saved model has the whole file among its weights, and names it ``onnx:512:clip.onnx``: 512 is the number of features.
"""

import functools
import importlib
import json
import re
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normatch.errors import UserError, reason
from normatch.nets.backbone import Backbone, BackboneSpec, families

__all__ = ["FAMILY", "OnnxNetwork"]

FAMILY = "onnx"

FREE = (16, 4096)
"""The sides of images where the network does not fix one."""

STATISTICS = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
"""Of ImageNet, on the scale 0 … 1: what a network expects whose file has no such metadata."""

TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class OnnxNetwork(Backbone):
    """The first output of shape (N, D) or, if there is none, the first output's mean over tokens (N, T, D) or pixels
    (N, D, h, w).

    The file's content is its state, so that a model is saved with it and loaded as any other. Without ``content`` it
    waits for that.
    """

    def __init__(self, features: int, name: str, content: bytes = b"") -> None:
        super().__init__(features)
        self.saved_as = f"{FAMILY}:{features}:{name}"
        self.content = content
        self.sessions: dict[int, Any] = {}
        """By their number of threads, which cannot be changed."""

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) to features (N, features)."""
        threads = torch.get_num_threads()
        if threads not in self.sessions:
            self.sessions[threads] = _session(self.content, threads)
        return torch.from_numpy(_embed(self.sessions[threads], x.cpu().numpy())).to(x.device)

    @property
    def output(self) -> str:
        """The name of the output that is taken."""
        return _output_of(_session(self.content, 1))

    def get_extra_state(self) -> Tensor:
        return torch.from_numpy(np.frombuffer(self.content, np.uint8).copy())

    def set_extra_state(self, state: Tensor) -> None:
        self.content, self.sessions = state.cpu().numpy().tobytes(), {}

    def __getstate__(self) -> dict[str, Any]:
        """For copies, which make their own sessions."""
        return self.__dict__ | {"sessions": {}}


def _embed(session: Any, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """(N, D) of images (N, C, H, W); grey ones are repeated for a network of colours."""
    (given,) = session.get_inputs()
    if images.shape[1] == 1 and given.shape[1] == 3:
        images = images.repeat(3, axis=1)
    n = len(images)
    size = given.shape[0] if isinstance(given.shape[0], int) else n
    # A network of batches of one size gets whole ones, the last of them filled up.
    images = np.concatenate([images, np.zeros((-n % size, *images.shape[1:]), np.float32)])
    images = np.ascontiguousarray(images, TYPES[given.type])
    name = _output_of(session)
    parts = [session.run([name], {given.name: images[at : at + size]})[0] for at in range(0, len(images), size)]
    z: NDArray[np.float32] = np.concatenate(parts)[:n].astype(np.float32)
    if len(z) != n or z.ndim not in (2, 3, 4):
        raise ValueError(f"its output {name} has shape {z.shape} for {n} images")
    pooled: NDArray[np.float32] = z.mean(1) if z.ndim == 3 else z.reshape(*z.shape[:2], -1).mean(2)
    return pooled


def _output_of(session: Any) -> str:
    """The name of the output that is taken."""
    outputs = session.get_outputs()
    name: str = next((output.name for output in outputs if len(output.shape or ()) == 2), outputs[0].name)
    return name


def _session(content: bytes, threads: int) -> Any:
    """An inference session; onnxruntime's error if the content is no network."""
    runtime = _library("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # what it would print comes as an error
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _spec(name: str) -> BackboneSpec:
    if saved := re.fullmatch(r"(\d+):(.+)", name):
        return BackboneSpec(f"{FAMILY}:{name}", "an ONNX network", FREE, partial(_waiting, int(saved[1]), saved[2]))
    path = Path(name).expanduser()
    if not path.is_file():  # nor a pipe, which might never end
        raise UserError(f"backbone is {f'{FAMILY}:{name}'!r}: there is no such file; check the path")
    found = path.stat()
    content, session = _read(path, (found.st_size, found.st_mtime_ns))
    (given,), about = session.get_inputs(), session.get_modelmeta().custom_metadata_map
    fixed = [side for side in given.shape[2:] if isinstance(side, int)]
    return BackboneSpec(
        name=f"{FAMILY}:{name}",
        summary="an ONNX network",
        sides=(fixed[0], fixed[0]) if fixed else FREE,
        build=partial(_build, path, content, session),
        statistics=partial(_statistics, {what: _numbers(path, what, about.get(what)) for what in STATISTICS}),
    )


@functools.lru_cache(1)
def _read(path: Path, state: tuple[int, int]) -> tuple[bytes, Any]:
    """The content of an ONNX file, with the data that it keeps in others beside it, and a session to ask and try it."""
    onnx = _library("onnx")
    try:
        content: bytes = onnx.load(path).SerializeToString()  # refuses data in other folders and behind links
        session = _session(content, torch.get_num_threads())
    except UserError:
        raise
    except Exception as error:  # of protobuf, onnx or onnxruntime, each with their own
        raise UserError(
            f"{path} is no ONNX network that can be used ({reason(error)}): export it again, or put its data beside it"
        ) from error
    inputs = session.get_inputs()
    shape = inputs[0].shape if len(inputs) == 1 and inputs[0].type in TYPES else []
    channels, sides = ([size for size in part if isinstance(size, int)] for part in (shape[1:2], shape[2:]))
    if len(shape) != 4 or not {*channels} <= {1, 3} or len({*sides}) > 1:
        takes = ", ".join(f"{given.name} {given.type} {given.shape}" for given in inputs)
        raise UserError(
            f"{path} takes {takes or 'nothing'}: export the image encoder alone, from float32 (N, 3, H, W), square"
        )
    return content, session


def _build(path: Path, content: bytes, session: Any, shape: tuple[int, ...], norm_momentum: float) -> OnnxNetwork:
    """Its number of features is found by trying it."""
    try:
        z = _embed(session, np.zeros((2, *shape), np.float32))
    except Exception as error:
        raise UserError(f"{path} does not take images of shape {shape} ({reason(error)}): set image_size") from error
    return OnnxNetwork(z.shape[1], path.name, content)


def _waiting(features: int, name: str, shape: tuple[int, ...], norm_momentum: float) -> OnnxNetwork:
    return OnnxNetwork(features, name)


def _numbers(path: Path, what: str, text: str | None) -> tuple[float, ...]:
    """The three numbers of the file's metadata ``mean`` or ``std``."""
    try:
        found = STATISTICS[what] if text is None else tuple(map(float, json.loads(text)))
    except (TypeError, ValueError):
        found = ()
    if len(found) != 3 or not np.isfinite(found).all() or (what == "std" and min(found) <= 0):
        raise UserError(f"the metadata {what} of {path} is {text!r}: give three numbers, such as {[*STATISTICS[what]]}")
    return found


def _statistics(
    of: dict[str, tuple[float, ...]], shape: tuple[int, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """On the scale 0 … 255; for grey images averaged over the colours."""
    mean, std = (tuple(255 * value for value in of[what]) for what in STATISTICS)
    return (mean, std) if shape[0] == 3 else ((sum(mean) / 3,), (sum(std) / 3,))


def _library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"an ONNX network needs {error.name}: pip install 'normatch[export]'") from error


families.add(FAMILY, _spec)
