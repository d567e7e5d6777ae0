"""A model on disk: the weights in ``model.safetensors``, its :class:`ModelSpec` in ``model.json``."""

import typing
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, contiguous_format

import normatch
from normatch.annotations import fits, remedy
from normatch.config import from_json, to_json
from normatch.errors import UserError, reason, resume_command
from normatch.files import read_object, replacing, write_json
from normatch.nets.model import HeadSpec, Model, ModelSpec

__all__ = ["load_model", "read_spec", "save_model"]

FORMAT = 1
"""Version of the format of ``model.json``: incremented when older versions could not read it."""


def save_model(model: Model, folder: Path) -> None:
    write_json(folder / "model.json", {"format": FORMAT, "normatch": normatch.__version__} | to_json(model.spec))
    with replacing(folder / "model.safetensors") as part:
        # Copies, because safetensors refuses tensors that share memory, as a backbone's tied weights do.
        copies = {name: value.clone(memory_format=contiguous_format) for name, value in model.state_dict().items()}
        part.write_bytes(save(copies))


def load_model(folder: Path) -> Model:
    """The model in evaluation mode, on the CPU."""
    for name in ("model.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise UserError(_missing(folder, name))
    model = Model(read_spec(folder / "model.json"))
    path = folder / "model.safetensors"
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} cannot be read ({reason(error)}): restore it or train again") from error
    if unfit := _first_difference(weights, model.state_dict()):
        raise UserError(f"{path} does not fit model.json ({unfit}): restore it or train again")
    model.load_state_dict(weights)
    return model.eval()


def _first_difference(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> str | None:
    """What is wrong with the first tensor that is not as wanted; None if all are."""
    for name in [*wanted, *found]:
        if name not in found:
            return f"it has no {name}"
        if name not in wanted:
            return f"it also has {name}"
        if found[name].shape != wanted[name].shape:
            return f"{name} is {tuple(found[name].shape)}, not {tuple(wanted[name].shape)}"
    return None


def _missing(folder: Path, name: str) -> str:
    if (folder / "result.json").is_file():
        return f"{folder} is finished, but has no {name}: restore it or train again"
    if (folder / "config.json").is_file():
        return f"{folder} is not finished (it has no {name}): continue it with {resume_command(folder)}"
    return f"{folder} has no {name}: give the folder of a finished run"


def read_spec(path: Path) -> ModelSpec:
    """The content of a ``model.json``."""
    try:
        content = read_object(path)
    except ValueError as error:
        raise UserError(f"{path} cannot be read ({reason(error)}): restore it or train again") from error
    written, by = content.pop("format", FORMAT), content.pop("normatch", "another version")
    if written != FORMAT:
        raise UserError(
            f"{path} is of format {written}, written by normatch {by}: normatch {normatch.__version__} reads format "
            f"{FORMAT} only, install the version that wrote it"
        )
    try:
        spec = from_json(ModelSpec, content)
        _must_fit(spec)
        for head in (spec.head, *spec.auxiliary):
            _must_fit(head)
    except (AttributeError, TypeError, UserError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)}): restore it or train again") from error
    return spec


def _must_fit(spec: ModelSpec | HeadSpec) -> None:
    for name, hint in typing.get_type_hints(type(spec)).items():
        if not fits(getattr(spec, name), hint):
            raise UserError(f"{name} is {getattr(spec, name)!r}: {remedy(hint)}")
