"""Devices, precision and repeatability: what of the machine a run uses, and the settings of torch it needs."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from normatch.config import Config
from normatch.engine.memory import kept_memory
from normatch.errors import UserError

__all__ = ["Runtime"]


@dataclass(frozen=True)
class Runtime:
    """The resolved answers to ``device``, ``precision`` and ``compile``."""

    device: torch.device
    bfloat16: bool
    capture: bool
    """Compile the step and capture it as one CUDA graph."""
    deterministic: bool

    @classmethod
    def of(cls, config: Config) -> "Runtime":
        has_cuda = torch.cuda.is_available()
        if config.device == "cuda" and not has_cuda:
            raise UserError("device is 'cuda', but torch sees no GPU here: choose 'cpu' or 'auto'")
        device = torch.device("cuda" if has_cuda and config.device != "cpu" else "cpu")
        on_gpu = device.type == "cuda"
        if config.compile == "on" and not on_gpu:
            raise UserError("compile is 'on', but steps are captured on a GPU only: choose 'auto' or 'off'")
        bfloat16 = config.precision == "bfloat16"
        if config.precision == "auto":
            bfloat16 = on_gpu and torch.cuda.is_bf16_supported()
        return cls(device, bfloat16, on_gpu and config.compile != "off", config.deterministic)

    def describe(self) -> str:
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
        return f"{name}, {'bfloat16' if self.bfloat16 else 'float32'}{', captured' if self.capture else ''}"

    @property
    def generator(self) -> torch.Generator:
        """The device's own generator: a captured graph follows its seed, and dropout in any backbone draws from it."""
        return torch.cuda.default_generators[torch.cuda.current_device()] if self._cuda else torch.default_generator

    @property
    def _cuda(self) -> bool:
        return self.device.type == "cuda"

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """torch's global switches as this run needs them; the caller's switches and random state are put back."""
        before = (
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.allow_tf32,
        )
        devices = [torch.cuda.current_device()] if self._cuda else []
        memory = contextlib.nullcontext() if self._cuda else kept_memory()
        with memory, torch.random.fork_rng(devices):
            if self._cuda and self.deterministic:
                # cuBLAS reads it when it starts; without it torch refuses matrix products in this mode.
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(self.deterministic)
            torch.backends.cudnn.benchmark = self._cuda and not self.deterministic
            torch.backends.cudnn.allow_tf32 = False
            try:
                yield
            finally:
                torch.use_deterministic_algorithms(before[0])
                torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = before[1:]
