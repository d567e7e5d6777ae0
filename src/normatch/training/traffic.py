"""A lower bound for a step's time: the memory traffic that it needs, and the machine's measured bandwidth."""

import copy
import statistics
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from normatch.methods import Batch
from normatch.training.step import Step

__all__ = ["bandwidth", "step_bytes"]

COUNTED: dict[Any, str] = {
    F.conv1d: "convolutions",
    F.conv2d: "convolutions",
    F.conv3d: "convolutions",
    F.batch_norm: "normalisation",
    F.linear: "linear layers",
}
"""Functions whose outputs are counted, with the name to count them under."""

FORWARD, BACKWARD = 2, 3
"""How often an activation is moved: forward it is written and read; backward it is read again, and its gradient is
written and read."""

COPIED = 2**28
"""Bytes of the buffer that is copied to measure bandwidth: much larger than any cache."""


def step_bytes(step: Step, batch: Batch, bfloat16: bool) -> dict[str, int]:
    """The least number of bytes that one step moves, by purpose.

    The output of every convolution, batch norm and linear layer is written and read once in the forward pass; if
    gradients flow through it, the backward pass reads it again, and writes and reads its gradient. It counts in its
    precision under autocast. Activation functions, sums and losses are free, since they can be fused with the layers
    around them. A view is read from the pool, written, and read by the network. A parameter is read by the forward
    pass, its gradient is written and read, parameter and optimiser state are read and written; the average reads the
    parameter and is read and written itself.

    So it is a floor for kernels that store each of these outputs. Kernels that apply batch norm while a convolution
    reads or writes do not, and may be faster; therefore each kind of layer is counted separately.
    """
    parameters = _bytes(list(step.method.parameters()))
    averaged = _bytes(list(step.ema.model.parameters()))
    return {
        **_activations(step, batch, bfloat16),
        "views": 3 * _bytes([*batch.labelled, *batch.unlabelled]),
        "parameters": 5 * parameters + 3 * averaged,
        "optimiser state": 2 * _bytes(list(step.optimisers.state().values())),
    }


def _activations(step: Step, batch: Batch, bfloat16: bool) -> dict[str, int]:
    """The bytes of activations, counted on fake tensors: nothing is computed or changed, and no layers are fused."""
    mode, counter = FakeTensorMode(allow_non_fake_inputs=True), _Counter()
    method, teacher = copy.deepcopy(step.method).cpu(), copy.deepcopy(step.ema.model).cpu()
    method.model.backbone.plain = True
    empty: Batch = tree_map(lambda x: mode.from_tensor(x.cpu()) if isinstance(x, Tensor) else x, batch)
    with mode, torch.autocast("cpu", torch.bfloat16, enabled=bfloat16), counter:
        method(empty._replace(teacher=teacher))
    return counter.totals


class _Counter(TorchFunctionMode):
    """Adds up the bytes moved for the outputs of the counted functions."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: dict[str, int] = dict.fromkeys(COUNTED.values(), 0)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func in COUNTED:
            self.totals[COUNTED[func]] += FORWARD * _bytes([output])
            if output.requires_grad:
                self.totals[COUNTED[func]] += BACKWARD * _bytes([output])
        return output


def _bytes(tensors: list[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def bandwidth(device: torch.device, copies: int = 5) -> float:
    """Bytes per second, reads plus writes, as the median of several large copies within the device's memory."""
    source = torch.zeros(COPIED, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    timed = _timed_on_gpu if device.type == "cuda" else _timed
    timed(source, target)
    return 2 * COPIED / statistics.median(timed(source, target) for _ in range(copies))


def _timed(source: Tensor, target: Tensor) -> float:
    start = time.perf_counter()
    target.copy_(source)
    return time.perf_counter() - start


def _timed_on_gpu(source: Tensor, target: Tensor) -> float:
    """Seconds of a copy, measured by events on the device to exclude the host's overhead."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    target.copy_(source)
    end.record()
    end.synchronize()
    milliseconds: float = start.elapsed_time(end)
    return milliseconds / 1000
