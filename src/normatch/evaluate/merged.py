"""One ONNX graph of a frozen ONNX network and what was trained above it, from raw images on."""

from dataclasses import replace
from typing import Any

import numpy as np

from normatch.errors import UserError, reason
from normatch.nets.frozen import Frozen
from normatch.nets.model import Model
from normatch.nets.onnx import OnnxNetwork

__all__ = ["above", "embedder_of", "put_below"]

PREFIX = "embedder/"
"""Of all names in the lower graph, none of which the upper one may have."""


def embedder_of(model: Model) -> OnnxNetwork | None:
    """The ONNX network in a model, which torch cannot export; None if it has none."""
    embedder = model.backbone.embedder if isinstance(model.backbone, Frozen) else model.backbone
    return embedder if isinstance(embedder, OnnxNetwork) else None


def above(model: Model) -> Model:
    """The model of the embedder's features that is the rest of a frozen ``model``: the inverse of ``bank.joined``."""
    frozen, spec = model.backbone, model.spec
    assert isinstance(frozen, Frozen)
    mean, std = tuple(frozen.mean.tolist()), tuple(frozen.std.tolist())
    found = Model(replace(spec, backbone="mlp", shape=(len(mean),), mean=mean, std=std))
    found.backbone.load_state_dict(frozen.trunk.state_dict())
    found.head.load_state_dict(model.head.state_dict())
    found.auxiliary.load_state_dict(model.auxiliary.state_dict())
    return found


def put_below(upper: bytes, embedder: OnnxNetwork, model: Model, given: str) -> bytes:
    """The graph ``upper`` from the embedder's features on, below it the embedder's, from raw images ``given``."""
    import onnx

    top, graph = onnx.load_from_string(upper), onnx.load_from_string(embedder.content)
    try:
        opset = max(map(_opset, (top, graph)))
        top, graph = (_converted(one, opset) for one in (top, graph))
        graph = onnx.compose.add_prefix(graph, PREFIX)
        _start_from_images(graph, model, given)
        output = _end_in_vectors(graph, PREFIX + embedder.output)
        top.ir_version = graph.ir_version = max(top.ir_version, graph.ir_version)
        del graph.metadata_props[:]
        whole = onnx.compose.merge_models(graph, top, [(output, top.graph.input[0].name)])
        content: bytes = whole.SerializeToString()
    except Exception as error:  # of onnx or protobuf, which have their own
        raise UserError(
            f"the ONNX network of backbone {model.spec.backbone!r} cannot be merged with what was trained above it "
            f"({reason(error)}): predict with normatch, or export that network again, of a newer opset"
        ) from error
    return content


def _opset(model: Any) -> int:
    return max(int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


def _converted(model: Any, opset: int) -> Any:
    from onnx import version_converter

    return model if _opset(model) == opset else version_converter.convert_version(model, opset)


def _start_from_images(graph: Any, model: Model, given: str) -> None:
    """Put before the first node what turns uint8 images (N, H, W, C) into the normalised ones that it takes."""
    from onnx import TensorProto, helper, numpy_helper

    known = {one.name for one in graph.graph.initializer}
    (old,) = (one for one in graph.graph.input if one.name not in known)
    kind = old.type.tensor_type
    if kind.shape.dim[0].HasField("dim_value"):
        raise ValueError(f"it takes batches of exactly {kind.shape.dim[0].dim_value}")
    channels, height, width = model.spec.shape
    colours = kind.shape.dim[1].dim_value or channels
    for name in ("mean", "std"):
        values = np.array(getattr(model.spec, name), np.float32).reshape(1, -1, 1, 1)
        graph.graph.initializer.append(numpy_helper.from_array(values, f"{given}/{name}"))
    nodes = [
        helper.make_node("Transpose", [given], [f"{given}/first"], perm=[0, 3, 1, 2]),
        helper.make_node("Cast", [f"{given}/first"], [f"{given}/float"], to=TensorProto.FLOAT),
        helper.make_node("Sub", [f"{given}/float", f"{given}/mean"], [f"{given}/centred"]),
        helper.make_node("Div", [f"{given}/centred", f"{given}/std"], [f"{given}/scaled"]),
        helper.make_node("Concat", [f"{given}/scaled"] * (colours // channels), [f"{given}/colours"], axis=1),
        helper.make_node("Cast", [f"{given}/colours"], [old.name], to=kind.elem_type),
    ]
    rest = [*nodes, *graph.graph.node]
    del graph.graph.node[:]
    graph.graph.node.extend(rest)
    new = helper.make_tensor_value_info(given, TensorProto.UINT8, ["batch", height, width, channels])
    others = [one for one in graph.graph.input if one.name in known]
    del graph.graph.input[:]
    graph.graph.input.extend([new, *others])


def _end_in_vectors(graph: Any, name: str) -> str:
    """Put behind the output ``name`` what makes vectors (N, D) of it, and drop other outputs."""
    from onnx import TensorProto, helper, numpy_helper

    found = next(one for one in graph.graph.output if one.name == name)
    rank = len(found.type.tensor_type.shape.dim)
    cast, pooled = f"{PREFIX}cast", f"{PREFIX}pooled"
    nodes = [helper.make_node("Cast", [name], [cast], to=TensorProto.FLOAT)]
    axes = {3: [1], 4: [2, 3]}.get(rank)
    if axes is None:
        nodes.append(helper.make_node("Identity", [cast], [pooled]))
    else:
        graph.graph.initializer.append(numpy_helper.from_array(np.array(axes), f"{PREFIX}axes"))
        nodes.append(helper.make_node("ReduceMean", [cast, f"{PREFIX}axes"], [pooled], keepdims=0))
    graph.graph.node.extend(nodes)
    del graph.graph.output[:]
    graph.graph.output.append(helper.make_tensor_value_info(pooled, TensorProto.FLOAT, ["batch", None]))
    return pooled
