"""The flow classifier's training path as one operator: on a GPU, one kernel forward and two backward.

The couplings are dozens of small matrix products, and launching them takes a GPU longer than computing them. Here one
Triton kernel takes each block of rows through all of them. The plain modules of this package define the result, which
these kernels match up to rounding, in float32. :func:`torch.compile` sees an opaque operator with known shapes.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from normatch.flow.coupling import AffineCoupling
from normatch.flow.mixture import SCALE_FLOOR

if TYPE_CHECKING:
    from normatch.flow.classifier import NormalizingFlowClassifier

__all__ = ["applies", "flatten", "log_joint"]

_HAS_TRITON = find_spec("triton") is not None

# Limits of what one program can hold: larger flows are computed by the plain modules.
MOST_UNITS = 64
MOST_DIM = 512
MOST_CLASSES = 1024

ROWS = 16  # rows per program: the fewest that tl.dot takes, to have many short programs
SUMMED_ROWS = 2048  # rows of one backward launch: bounds the memory of the partial gradients


def applies(flow: "NormalizingFlowClassifier", z: Tensor) -> bool:
    """Whether the kernels can replace the plain modules. The caller must check that there is no dropout."""
    return (
        _HAS_TRITON
        and not flow.plain
        and z.is_cuda
        and flow.mixture.means.dtype == torch.float32
        and flow.couplings.hidden <= MOST_UNITS
        and flow.dim <= MOST_DIM
        and flow.classes <= MOST_CLASSES
    )


def log_joint(flow: "NormalizingFlowClassifier", z: Tensor) -> tuple[Tensor, Tensor]:
    """log p(f(z), y) (N, K) and the log-determinants (N,), without dropout."""
    flat = flatten(flow)
    keep = torch.is_grad_enabled() and (z.requires_grad or flat.requires_grad)
    logits, log_det, _ = _forward(z, flat, flow.classes, len(flow.couplings.layers), flow.couplings.hidden, keep)
    return logits, log_det


def flatten(flow: "NormalizingFlowClassifier") -> Tensor:
    """All parameters in one vector: layer by layer, then the mixture's scales, weights and means."""
    parts: list[Tensor] = []
    for layer in flow.couplings.layers:
        assert isinstance(layer, AffineCoupling)  # ModuleList forgets the type of its items
        for linear in (layer.input, layer.middle, layer.output):
            parts += [linear.weight.reshape(-1), linear.bias]
        parts.append(layer.gain)
    mixture = flow.mixture
    return torch.cat([*parts, mixture.raw_scales, mixture.weight_logits, mixture.means.reshape(-1)])


@dataclass(frozen=True)
class _Sizes:
    """The sizes of a flow, and those that the kernels round them up to."""

    dim: int
    classes: int
    layers: int
    hidden: int

    @property
    def columns(self) -> int:
        """The number of columns of half a vector that are processed at once."""
        return min(64, max(16, _power_of_two(self.dim - self.dim // 2)))

    @property
    def width(self) -> int:
        """The padded number of columns of half a vector in memory: a multiple of ``columns``."""
        return _multiple(self.dim - self.dim // 2, self.columns)

    @property
    def units(self) -> int:
        return max(16, _power_of_two(self.hidden))

    @property
    def class_span(self) -> int:
        return max(16, _power_of_two(self.classes))

    @cached_property
    def mixture(self) -> int:
        """The offset of the mixture's parameters in the flat vector."""
        halves = (self.dim // 2, self.dim - self.dim // 2)
        total = 0
        for layer in range(self.layers):
            context, free = halves[layer % 2], halves[1 - layer % 2]
            total += self.hidden * (context + self.hidden + 2) + (2 * self.hidden + 3) * free
        return total

    @property
    def shared(self) -> int:
        """The number of parameters whose gradient is summed over per-block partial gradients: all but the means."""
        return self.mixture + 2 * self.classes

    def pitch(self, keep: bool) -> int:
        """The count of numbers stored per row: with ``keep`` for both passes, else for the forward pass only."""
        if not keep:
            return 3 * self.width
        return (self.layers + 2) * self.width + self.layers * (self.width + 2 * self.units) + self.class_span

    def constants(self, keep: bool = True) -> dict[str, Any]:
        """The compile-time constants common to all kernels."""
        return {
            "DIM": self.dim,
            "CLASSES": self.classes,
            "LAYERS": self.layers,
            "MIXTURE": self.mixture,
            "FLOOR": SCALE_FLOOR,
            "COLUMNS": self.columns,
            "WIDTH": self.width,
            "PITCH": self.pitch(keep),
            # No pipelining: loads must not be moved ahead of the barriers inside the loops.
            "num_stages": 1,
            "num_warps": 4,
        }


@torch.library.custom_op("normatch::flow_forward", mutates_args=())
def _forward(
    z: Tensor, flat: Tensor, classes: int, layers: int, hidden: int, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Class logits, log-determinants, and memory: what the backward pass needs or, unless ``keep``, just scratch."""
    from normatch.kernels import coupling as kernels

    sizes = _Sizes(z.shape[1], classes, layers, hidden)
    logits, log_det, memory = _outputs(z, flat, classes, layers, hidden, keep)
    if len(z):
        with torch.cuda.device_of(z):
            kernels.forward[(len(memory) // ROWS,)](
                z,
                z.stride(0),
                z.stride(1),
                flat,
                logits,
                log_det,
                memory,
                len(z),
                HIDDEN=hidden,
                HALF_LOG_TAU=0.5 * math.log(2 * math.pi),
                ROWS=ROWS,
                UNITS=sizes.units,
                CLASS_SPAN=sizes.class_span,
                KEEP=keep,
                **sizes.constants(keep),
            )
    return logits, log_det, memory


@_forward.register_fake
def _outputs(
    z: Tensor, flat: Tensor, classes: int, layers: int, hidden: int, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    n = z.shape[0]
    pitch = _Sizes(z.shape[1], classes, layers, hidden).pitch(keep)
    return flat.new_empty(n, classes), flat.new_empty(n), flat.new_empty(_multiple(n, ROWS), pitch)


@torch.library.custom_op("normatch::flow_backward", mutates_args=())
def _backward(
    grad_logits: Tensor,
    grad_log_det: Tensor,
    flat: Tensor,
    memory: Tensor,
    dim: int,
    layers: int,
    hidden: int,
    z_dtype: torch.dtype,
    want_z: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients of the flat parameters and, if ``want_z``, of z (else empty)."""
    n, classes = grad_logits.shape
    z_grad = _like_z(grad_logits, dim, z_dtype, want_z)
    if n == 0:
        return torch.zeros_like(flat), z_grad
    sizes = _Sizes(dim, classes, layers, hidden)
    flat_grad = _backward_rows(grad_logits, grad_log_det, flat, memory, z_grad, sizes, 0, min(n, SUMMED_ROWS))
    for first in range(SUMMED_ROWS, n, SUMMED_ROWS):
        last = min(n, first + SUMMED_ROWS)
        flat_grad += _backward_rows(grad_logits, grad_log_det, flat, memory, z_grad, sizes, first, last)
    return flat_grad, z_grad


@_backward.register_fake
def _gradients(
    grad_logits: Tensor,
    grad_log_det: Tensor,
    flat: Tensor,
    memory: Tensor,
    dim: int,
    layers: int,
    hidden: int,
    z_dtype: torch.dtype,
    want_z: bool,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(flat), _like_z(grad_logits, dim, z_dtype, want_z)


def _backward_rows(
    grad_logits: Tensor,
    grad_log_det: Tensor,
    flat: Tensor,
    memory: Tensor,
    z_grad: Tensor,
    sizes: _Sizes,
    first: int,
    last: int,
) -> Tensor:
    """The flat gradient from rows ``first`` to ``last``; also fills in these rows of ``z_grad``."""
    from normatch.kernels import coupling as kernels

    programs = _multiple(last - first, ROWS) // ROWS
    scratch = flat.new_empty(programs * ROWS, 6 * sizes.width)
    partials = flat.new_empty(programs, sizes.shared)
    flat_grad = torch.empty_like(flat)
    constants = sizes.constants()
    span = 128
    adding = _multiple(sizes.shared, span) // span
    with torch.cuda.device_of(flat):
        kernels.backward[(programs,)](
            flat,
            memory,
            grad_logits,
            grad_logits.stride(0),
            grad_logits.stride(1),
            grad_log_det,
            grad_log_det.stride(0),
            scratch,
            partials,
            z_grad,
            first,
            last,
            HIDDEN=sizes.hidden,
            ROWS=ROWS,
            UNITS=sizes.units,
            CLASS_SPAN=sizes.class_span,
            CLASS_BLOCK=min(128, sizes.class_span),
            WANT_Z=len(z_grad) > 0,
            **constants,
        )
        kernels.gather[(adding + sizes.classes * 2 * sizes.width // sizes.columns,)](
            flat,
            memory,
            grad_logits,
            grad_logits.stride(0),
            grad_logits.stride(1),
            partials,
            programs,
            flat_grad,
            first,
            last,
            SPAN=span,
            TALL=32,
            **constants,
        )
    return flat_grad


def _like_z(grad_logits: Tensor, dim: int, dtype: torch.dtype, wanted: bool) -> Tensor:
    return grad_logits.new_empty(grad_logits.shape[0] if wanted else 0, dim, dtype=dtype)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    z, flat, ctx.classes, ctx.layers, ctx.hidden, _ = inputs
    ctx.rows, ctx.dim, ctx.z_dtype = z.shape[0], z.shape[1], z.dtype
    ctx.save_for_backward(flat, output[2])
    ctx.set_materialize_grads(False)  # else a zero gradient as large as memory, which has none, would be allocated


def _differentiate(
    ctx: Any, grad_logits: Tensor | None, grad_log_det: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    flat, memory = ctx.saved_tensors
    if grad_logits is None:
        grad_logits = flat.new_zeros(ctx.rows, ctx.classes)
    if grad_log_det is None:
        grad_log_det = flat.new_zeros(ctx.rows)
    want_z = ctx.needs_input_grad[0]
    flat_grad, z_grad = _backward(
        grad_logits, grad_log_det, flat, memory, ctx.dim, ctx.layers, ctx.hidden, ctx.z_dtype, want_z
    )
    return z_grad if want_z else None, flat_grad, None, None, None, None


_forward.register_autograd(_differentiate, setup_context=_remember)


def _power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def _multiple(n: int, of: int) -> int:
    """The smallest multiple of ``of`` that is at least n."""
    return -(-n // of) * of
