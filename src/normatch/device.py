"""The device that the user means."""

from typing import Literal

import torch

from normatch.errors import UserError

__all__ = ["Device", "device_of"]

Device = Literal["auto", "cpu", "cuda"]
"""What a user may say; in Python a predictor takes torch's own names too."""


def device_of(choice: str) -> torch.device:
    """The device that ``choice`` (auto, cpu, cuda, cuda:1, …) means here; auto is the GPU where there is one."""
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
