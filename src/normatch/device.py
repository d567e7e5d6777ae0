"""The torch device for a user's choice."""

from typing import Literal

import torch

from normatch.errors import UserError

__all__ = ["Device", "device_of"]

Device = Literal["auto", "cpu", "cuda"]
"""The choices in a config or on the command line; :func:`device_of` also takes torch's names."""


def device_of(choice: str) -> torch.device:
    """The torch device for ``choice`` (auto, cpu, cuda, cuda:1, …); auto is the GPU if there is one, else the CPU."""
    has_cuda = torch.cuda.is_available()
    if choice == "auto":
        return torch.device("cuda" if has_cuda else "cpu")
    try:
        device = torch.device(choice)
    except RuntimeError:
        raise UserError(f"device is {choice!r}: choose 'auto', 'cpu' or 'cuda'") from None
    if device.type == "cuda" and not has_cuda:
        raise UserError(f"device is {choice!r}, but torch sees no GPU here: choose 'cpu' or 'auto'")
    return device
