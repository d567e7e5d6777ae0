"""Weights of a backbone from a file: safetensors, or PyTorch's format with nothing but tensors in it."""

import warnings
import zipfile
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from normatch.errors import UserError, reason
from normatch.nets.backbone import Backbone

__all__ = ["load_weights", "read_weights"]

SHOWN = 3
"""Names of an error's missing or unexpected weights that are printed."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` or ``.pth`` file by name; nothing in the file is executed."""
    if not path.is_file():  # nor a pipe, which might never end
        raise UserError(f"weights {path} cannot be read (there is no such file): check the path")
    try:
        if path.suffix == ".safetensors":
            found = safetensors.torch.load_file(path)
        else:
            _must_not_expand(path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is odd is an error, too
                found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"weights {path} cannot be read ({reason(error)}): check the path") from error
    except Exception as error:  # nearly anything if it is damaged
        raise UserError(
            f"weights {path} hold something else than tensors, or are damaged: give a .safetensors file, or a .pth "
            "with a state dict"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(n, str) and _is_plain(value) for n, value in found.items()):
        raise UserError(f"weights {path} are no state dict of tensors: save model.state_dict()")
    return found


def _is_plain(value: object) -> bool:
    """Whether it is a tensor with all its numbers: a sparse one or one of the device "meta" is not."""
    return isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"


def _must_not_expand(path: Path) -> None:
    """Raise ValueError for an archive that would take more memory than it has bytes: torch compresses nothing."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
                raise ValueError("it is compressed")


def load_weights(backbone: Backbone, path: Path) -> None:
    """Load the backbone's weights from ``path``, all of them; UserError names what is missing or does not fit.

    A run's own model.safetensors serves too: its weights of the backbone are taken.
    """
    given = read_weights(path)
    own = {name.removeprefix("backbone."): value for name, value in given.items() if name.startswith("backbone.")}
    weights, wanted = backbone.translate(own or given), backbone.state_dict()
    problems = {
        "missing": [name for name in wanted if name not in weights],
        "unexpected": [name for name in weights if name not in wanted],
        "of another shape": [n for n in wanted if n in weights and weights[n].shape != wanted[n].shape],
    }
    wrong = [f"{what} {_some(names)}" for what, names in problems.items() if names]
    if wrong:
        raise UserError(f"weights {path} are not this backbone's ({'; '.join(wrong)}): choose the one that they are of")
    if damaged := [name for name, value in weights.items() if not value.isfinite().all()]:
        raise UserError(f"weights {path} are not finite ({_some(damaged)}): give others")
    backbone.load_state_dict(weights)


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(name.removeprefix("embedder.") for name in names[:SHOWN]) + rest
