"""A model on disk: ``model.safetensors`` with the weights, ``model.json`` with how to build it."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from normatch.config import from_json, to_json
from normatch.errors import UserError, reason
from normatch.files import read_json, replacing, write_json
from normatch.model import Model, ModelSpec

__all__ = ["load_model", "save_model"]


def save_model(model: Model, folder: Path) -> None:
    write_json(folder / "model.json", to_json(model.spec))
    with replacing(folder / "model.safetensors") as part:
        part.write_bytes(save({name: tensor.contiguous() for name, tensor in model.state_dict().items()}))


def load_model(folder: Path) -> Model:
    """The model in evaluation mode, on the CPU."""
    for name in ("model.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise UserError(f"{folder} has no {name}: give the folder of a finished run")
    try:
        model = Model(from_json(ModelSpec, read_json(folder / "model.json")))
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except UserError as error:
        raise UserError(f"{folder / 'model.json'}: {error}; restore it or train again") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder / 'model.json'} cannot be read ({reason(error)}): restore it or train again"
        ) from error
    except (SafetensorError, RuntimeError) as error:
        raise UserError(
            f"{folder / 'model.safetensors'} does not fit model.json ({reason(error)}): restore it or train again"
        ) from error
    return model.eval()
