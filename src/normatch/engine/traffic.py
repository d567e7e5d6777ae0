"""The memory traffic that a step cannot do without, and how fast this machine moves it: a floor for a step's time."""

import copy
import statistics
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from normatch.engine.step import Step
from normatch.methods import Batch

__all__ = ["bandwidth", "step_bytes"]

COUNTED: dict[Any, str] = {
    F.conv1d: "convolutions",
    F.conv2d: "convolutions",
    F.conv3d: "convolutions",
    F.batch_norm: "normalisation",
    F.linear: "linear layers",
}
"""Functions whose outputs are counted, and under which name."""

FORWARD, BACKWARD = 2, 3
"""Times an activation is moved: written and read; read again, its gradient written and read."""

COPIED = 2**28
"""Bytes of the buffer that is copied to measure bandwidth: far beyond any cache."""


def step_bytes(step: Step, batch: Batch, bfloat16: bool) -> dict[str, int]:
    """Bytes that one step moves at least, by what they are for.

    The rule: the output of every convolution, batch norm and linear layer is written and read once in the forward pass;
    where gradients flow through it, the backward pass reads it again, and writes and reads its gradient. It counts in
    the precision that autocasting gives it. Activation functions, sums and losses are free: they can be done while
    their inputs are at hand. A view is read from the pool, written, and read by the network. A parameter is read by the
    forward pass, its gradient written and read, parameter and optimiser state read and written; the average reads the
    parameter and is read and written itself.

    So it is the floor of kernels that store each of these outputs. Kernels that apply batch norm while a convolution
    reads or writes do not, and may go below it: each kind is counted apart.
    """
    parameters = _bytes(list(step.method.parameters()))
    averaged = _bytes(list(step.average.model.parameters()))
    return {
        **_activations(step, batch, bfloat16),
        "views": 3 * _bytes([*batch.labelled, *batch.unlabelled]),
        "parameters": 5 * parameters + 3 * averaged,
        "optimiser state": 2 * _bytes(list(step.optimisers.state().values())),
    }


def _activations(step: Step, batch: Batch, bfloat16: bool) -> dict[str, int]:
    """Counted on tensors without values: nothing is computed, no state changes, and no fused kernel hides a layer."""
    mode, counter = FakeTensorMode(allow_non_fake_inputs=True), _Counter()
    method, teacher = copy.deepcopy(step.method).cpu(), copy.deepcopy(step.average.model).cpu()
    method.model.backbone.plain = True
    method.model.backbone.register_forward_pre_hook(counter.enter)
    method.model.backbone.register_forward_hook(counter.leave)
    empty: Batch = tree_map(lambda x: mode.from_tensor(x.cpu()) if isinstance(x, Tensor) else x, batch)
    with mode, torch.autocast("cpu", torch.bfloat16, enabled=bfloat16), counter:
        method(empty._replace(teacher=teacher))
    return counter.totals


class _Counter(TorchFunctionMode):
    """Adds up the bytes that the counted functions' outputs move."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: dict[str, int] = dict.fromkeys(COUNTED.values(), 0)
        self._learning: int | None = None

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """A pass through the backbone, of which the first ``learning`` items may be all that is back-propagated."""
        _, self._learning = args if len(args) == 2 else (*args, None)

    def leave(self, *_: Any) -> None:
        self._learning = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func in COUNTED:
            self.totals[COUNTED[func]] += FORWARD * _bytes([output])
            if output.requires_grad:
                self.totals[COUNTED[func]] += BACKWARD * _bytes([output[: self._learning]])
        return output


def _bytes(tensors: list[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def bandwidth(device: torch.device, copies: int = 5) -> float:
    """Bytes a second, read and written, in the median of several large copies within the device's memory."""
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
    """By events on the device, so that the host's share of a call does not count."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    target.copy_(source)
    end.record()
    end.synchronize()
    milliseconds: float = start.elapsed_time(end)
    return milliseconds / 1000
