"""Export a trained model to one file that runs without normatch: ONNX, or a ``torch.export`` program.

Both take raw inputs (uint8 images or float vectors, normalised inside) in batches of any size, and return
probabilities and, if the model has a flow, the flow's predictions.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import ExportedProgram

import normatch
from normatch.errors import UserError, reason
from normatch.evaluate.merged import above, embedder_of, put_below
from normatch.files import must_be_free, replacing
from normatch.nets.model import Model, load_model

__all__ = ["Format", "Served", "export_model", "export_run"]

Format = Literal["onnx", "torch"]

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}

TOLERANCES = {"probabilities": 1e-4, "flow_probabilities": 1e-3, "flow_log_density": 1e-3}
"""Largest allowed difference of each output from the model's, relative to max(1, its largest absolute value)."""

CHECKED = 16
"""Number of inputs on which the exported file is compared with the model."""


class Served(nn.Module):
    """The model as it is exported: from images (N, H, W, C) or vectors (N, D) to named outputs."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model.eval()
        spec = model.spec
        self.images = len(spec.shape) == 3
        self.input = "images" if self.images else "features"
        self.shape = (*spec.shape[1:], *spec.shape[:1])
        """Shape of one input: (H, W, C) or (D,)."""
        second = ("flow_probabilities",) if model.has_auxiliary_flow else ()
        self.outputs = ("probabilities", *second, *(("flow_log_density",) if model.flow is not None else ()))
        self.about = {
            "classes": list(spec.classes),
            "shape": list(self.shape),
            "backbone": spec.backbone,
            "temperature": spec.temperature,
            "normatch": normatch.__version__,
        }
        """The metadata stored in the file."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = self.model.outputs(inputs.permute(0, 3, 1, 2) if self.images else inputs)
        return tuple(part for part in outputs if part is not None)

    def example(self, n: int) -> Tensor:
        """Random inputs with the mean and deviation of the training data, from a fixed seed."""
        mean, std = torch.tensor(self.model.spec.mean), torch.tensor(self.model.spec.std)
        x = mean + std * torch.randn(n, *self.shape, generator=torch.Generator().manual_seed(0))
        return x.round().clamp(0, 255).to(torch.uint8) if self.images else x


def export_run(run: Path, format: Format = "onnx", out: Path | None = None, *, force: bool = False) -> str:
    """Write the model of a run to ``out`` (default: ``model.onnx`` or ``model.pt2`` in its folder); return a line."""
    out = out or run / f"model{SUFFIXES[format]}"
    if out.suffix != SUFFIXES[format]:
        raise UserError(f"out is {out}: the name of a file of format {format} ends in {SUFFIXES[format]}")
    served = Served(load_model(run))
    if format == "torch" and embedder_of(served.model) is not None:
        raise UserError(f"the backbone of {run} is an ONNX network, which a torch program cannot have: export to onnx")
    must_be_free(out, force=force)
    difference = export_model(served, format, out)
    shape = ", ".join(map(str, ("N", *served.shape)))
    return (
        f"{out}: {out.stat().st_size / 1e6:.1f} MB, from {served.input} ({shape}) to {', '.join(served.outputs)}; "
        f"probabilities differ from PyTorch's by {difference:.0e} at most on {CHECKED} inputs"
    )


def export_model(served: Served, format: Format, out: Path) -> float:
    """Write the file and return how much its probabilities differ from the model's; raise if by too much."""
    write, run = (_onnx_file, _run_onnx) if format == "onnx" else (_torch_file, _run_torch)
    with replacing(out) as part, _quiet():
        embedder = embedder_of(served.model)
        traced = served if embedder is None else Served(above(served.model))
        # Two inputs, because torch.export would specialise a batch of one to that size.
        shapes = ({0: torch.export.Dim("batch")},)
        program = torch.export.export(traced, (traced.example(2),), dynamic_shapes=shapes)
        traced.about = served.about
        content = write(traced, program)
        part.write_bytes(content if embedder is None else put_below(content, embedder, served.model, served.input))
        inputs, differences = served.example(CHECKED), {}
        with torch.inference_mode():
            for name, mine, own in zip(served.outputs, run(part.read_bytes(), inputs), served(inputs), strict=True):
                differences[name] = float(np.abs(mine - own.numpy()).max() / max(1.0, own.abs().max()))
                if not differences[name] <= TOLERANCES[name]:
                    raise RuntimeError(
                        f"{name} of the exported model differ from the trained one's by {differences[name]}: "
                        "nothing was written"
                    )
    return differences["probabilities"]


def _torch_file(served: Served, program: ExportedProgram) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"normatch.json": json.dumps(served.about)})
    return buffer.getvalue()


def _run_torch(content: bytes, inputs: Tensor) -> list[NDArray[Any]]:
    return [output.numpy() for output in torch.export.load(io.BytesIO(content)).module()(inputs)]


def _onnx_file(served: Served, program: ExportedProgram) -> bytes:
    translations = _translations()
    try:
        exported = torch.onnx.export(
            program,
            dynamo=True,
            input_names=[served.input],
            output_names=served.outputs,
            dynamic_shapes={"inputs": {0: "batch"}},
            custom_translation_table=translations,
            verbose=False,
        )
    except torch.onnx.errors.OnnxExporterError as error:
        why: BaseException = error
        while why.__cause__ is not None:
            why = why.__cause__
        raise UserError(
            f"backbone {served.model.spec.backbone!r} cannot be expressed in ONNX ({reason(why)}): export to torch"
        ) from error
    assert exported is not None
    exported.model.producer_name, exported.model.producer_version = "normatch", normatch.__version__
    for name, value in served.about.items():
        # ONNX takes text only. Names that are not valid text become escapes, which JSON reads back unchanged.
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        exported.model.metadata_props[name] = text.encode(errors="backslashreplace").decode()
    content: bytes = exported.model_proto.SerializeToString()
    return content


def _run_onnx(content: bytes, inputs: Tensor) -> list[NDArray[Any]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    outputs: list[NDArray[Any]] = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    return outputs


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """A translation of ``torch.cdist``, used by the flow, which torch's ONNX exporter lacks."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript
    except ImportError as error:
        raise UserError(f"ONNX export needs {error.name}: pip install 'normatch[export]'") from error
    op: Any = onnxscript.opset18

    def distances(x1: Any, x2: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
        differences = op.Sub(op.Unsqueeze(x1, op.Constant(value_ints=[-2])), x2)
        return op.ReduceL2(differences, op.Constant(value_ints=[-1]), keepdims=0)

    return {torch.ops.aten.cdist.default: distances}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's messages about its own internals: its use of deprecated parts, and missing torchvision."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            yield
    finally:
        log.setLevel(level)
