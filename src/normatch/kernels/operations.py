"""The operations of a convolutional network's forward and backward pass, on channels-last batches (N, H, W, C).

Batch normalisation, with the elementwise operations around it, uses the kernels of this package; so do convolutions
over few channels, which are bound by memory reads; others use cuDNN. Nothing here waits for the device or involves
autograd.
"""

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from normatch.kernels import convolution as convolution_kernels
from normatch.kernels import norm as norm_kernels

__all__ = [
    "Aside",
    "Norm",
    "Sums",
    "convolve",
    "input_gradient",
    "norm_gradient",
    "norm_table",
    "normalise",
    "pooled",
    "stem",
    "stem_weight_gradient",
    "weight_gradient",
]

ELEMENTS = 4096
"""Elements per tile of a purely memory-bound kernel."""


class Walk(NamedTuple):
    """Launch parameters of a kernel that iterates over the batch and accumulates sums."""

    elements: int
    """Elements per tile."""
    waves: int
    """Programs for each multiprocessor."""
    warps: int


SUMS = Walk(elements=8192, waves=2, warps=4)
SUMS_GRADIENT = Walk(elements=4096, waves=2, warps=4)

FEW_CHANNELS = 32
"""Up to this many channels, our convolution is faster than cuDNN's on a Hopper GPU (benchmarks/NOTES.md)."""


class Launch(NamedTuple):
    """Launch parameters of a kernel over pairs or quads of pixels."""

    units: int
    """Pairs or quads per tile."""
    waves: int
    """Programs for each multiprocessor."""
    warps: int
    stages: int


CONVOLVE = Launch(units=64, waves=1, warps=4, stages=3)
WEIGHT_GRADIENT = Launch(units=32, waves=1, warps=8, stages=3)


class Sums(NamedTuple):
    """Partial sums (S, 2, C) over the rows of a batch."""

    partial: Tensor
    rows: int


class Norm(NamedTuple):
    """One batch normalisation: its parameters, and the slope of the leaky ReLU after it."""

    weight: Tensor
    bias: Tensor
    eps: float
    slope: float


class Aside:
    """A second stream for weight gradients, for which nothing else in a backward pass waits.

    They use capacity that kernels too small for the whole GPU leave idle. Inputs are kept alive until they have been
    read; at most ``BEHIND`` calls may be outstanding, which bounds the memory.
    """

    BEHIND = 2

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pending: collections.deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = collections.deque()

    def run(self, work: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """``work(*inputs)`` on the second stream; the result may be used after :meth:`join`."""
        if self._stream is None:
            return work(*inputs)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            result = work(*inputs)
            self._pending.append((self._stream.record_event(), inputs))
        if len(self._pending) > self.BEHIND:
            torch.cuda.current_stream().wait_event(self._pending.popleft()[0])
        return result

    def join(self) -> None:
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
            self._pending.clear()


STEM_WAVES = 4
"""Programs per multiprocessor for the kernels of the first convolution."""


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 2  # Triton's interpreter


def _rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


def _walk(x: Tensor, walk: Walk) -> tuple[int, int, int]:
    """(number of programs, rows per program, rows per tile)."""
    rows, channels = _rows(x), x.shape[-1]
    tile = max(walk.elements // channels, 1)
    programs = min(-(-rows // tile), walk.waves * _multiprocessors(x.device))
    chunk = -(-rows // (programs * tile)) * tile
    return -(-rows // chunk), chunk, tile


def _sums(x: Tensor, add: Tensor | None = None) -> tuple[Tensor, Sums]:
    """x, to which ``add`` is added in place if given, and its sums."""
    channels = x.shape[-1]
    programs, chunk, tile = _walk(x, SUMS)
    partial = x.new_empty((programs, 2, channels), dtype=torch.float32)
    norm_kernels.sums[(programs,)](
        x, x if add is None else add, x, partial, _rows(x), chunk,
        C=channels, ROWS=tile, ADDED=add is not None, num_warps=SUMS.warps,
    )  # fmt: skip
    return x, Sums(partial, _rows(x))


def norm_table(sums: Sums, norm: Norm) -> Tensor:
    """(5, C): mean, 1/σ, scale, shift and unbiased variance of a batch normalisation."""
    parts, _, channels = sums.partial.shape
    table = sums.partial.new_empty((5, channels))
    wide = min(16, channels)
    norm_kernels.settle[(channels // wide,)](
        sums.partial, norm.weight, norm.bias, table, sums.rows, parts, norm.eps, C=channels, WIDE=wide, PARTS=256
    )
    return table


def normalise(x: Tensor, table: Tensor, slope: float) -> Tensor:
    """leaky ReLU(batch norm(x))."""
    channels = x.shape[-1]
    out = torch.empty_like(x)
    tile = max(ELEMENTS // channels, 1)
    norm_kernels.normalise[(-(-_rows(x) // tile),)](
        x, table, out, _rows(x), C=channels, ROWS=tile, SLOPE=slope
    )  # fmt: skip
    return out


def pooled(x: Tensor, table: Tensor, slope: float) -> Tensor:
    """(N, C) float32: the mean over pixels of leaky ReLU(batch norm(x))."""
    n, height, width, channels = x.shape
    pixels = height * width
    out = x.new_empty((n, channels), dtype=torch.float32)
    tile = max(ELEMENTS // channels, 1)
    norm_kernels.pool[(n,)](x, table, out, C=channels, PIXELS=pixels, ROWS=tile, SLOPE=slope)
    return out


def norm_gradient(
    g: Tensor, x: Tensor, table: Tensor, norm: Norm, whole: bool, add: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to x (plus ``add``), γ and β, from the gradient ``g`` of the activation's output.

    ``whole``: the statistics are those of x alone, not of a batch of which x is a part. ``g`` has the shape of x (and
    is overwritten by the first result), or is the gradient (N, C) float32 of :func:`pooled`.
    """
    _, height, width, channels = x.shape
    shared = {"C": channels, "SLOPE": norm.slope, "PIXELS": height * width, "POOLED": g.ndim == 2}
    programs, chunk, rows = _walk(x, SUMS_GRADIENT)
    partial = x.new_empty((programs, 4, channels), dtype=torch.float32)
    norm_kernels.sums_gradient[(programs,)](
        g, x, table, partial, _rows(x), chunk,
        ROWS=rows, PARTIAL_BATCH=not whole, num_warps=SUMS_GRADIENT.warps, **shared,
    )  # fmt: skip
    g_weight, g_bias, line = (partial.new_empty(shape) for shape in (channels, channels, (2, channels)))
    wide = min(16, channels)
    norm_kernels.settle_gradient[(channels // wide,)](
        partial, g_bias, g_weight, line, programs, _rows(x), C=channels, WIDE=wide, PARTS=256, PARTIAL_BATCH=not whole
    )
    out = torch.empty_like(x) if g.ndim == 2 else g
    tile = max(ELEMENTS // channels, 1)
    norm_kernels.normalise_gradient[(-(-_rows(x) // tile),)](
        g, x, table, line, x if add is None else add, out, _rows(x), ROWS=tile, ADDED=add is not None, **shared
    )
    return out, g_weight, g_bias


def _few_channels(x: Tensor, weight: Tensor, stride: int) -> bool:
    outputs, inputs, side, _ = weight.shape
    return side == 3 and stride == 1 and max(inputs, outputs) <= FEW_CHANNELS and x.shape[1] % 2 == x.shape[2] % 2 == 0


def _planar(x: Tensor) -> Tensor:
    """A view of (N, H, W, C) memory as torch's (N, C, H, W)."""
    return x.permute(0, 3, 1, 2)


def convolve(x: Tensor, weight: Tensor, stride: int, add: Tensor | None, sums: bool) -> tuple[Tensor, Sums | None]:
    """x ∗ weight (+ add) and, with ``sums``, its sums; ``weight`` is torch's (O, I, k, k)."""
    if _few_channels(x, weight, stride):
        return _convolve_pairs(x, weight, add, sums, reverse=False)
    pad = weight.shape[-1] // 2
    with _without_benchmark():
        y = torch.ops.aten.convolution.default(
            _planar(x), weight, None, [stride, stride], [pad, pad], [1, 1], False, [0, 0], 1
        )
    y = y.permute(0, 2, 3, 1).contiguous()
    if sums:
        return _sums(y, add)
    return y if add is None else y.add_(add), None


def _convolve_pairs(
    x: Tensor, weight: Tensor, add: Tensor | None, sums: bool, reverse: bool
) -> tuple[Tensor, Sums | None]:
    n, height, width, _ = x.shape
    out_step, in_step, _, tap_step = weight.stride()
    outputs, inputs = weight.shape[:2]
    if reverse:
        # Reversed taps: the kernel starts at the ninth tap and steps back.
        weight = weight.as_strided((1,), (1,), weight.storage_offset() + 8 * tap_step)
        tap_step, in_step, out_step, inputs, outputs = -tap_step, out_step, in_step, outputs, inputs
    out = x.new_empty((n, height, width, outputs))
    pairs = n * height * width // 2
    tile, waves, warps, stages = CONVOLVE
    programs = min(-(-pairs // tile), waves * _multiprocessors(x.device))
    partial = x.new_empty((2 * programs, 2, outputs), dtype=torch.float32)
    convolution_kernels.convolve[(programs,)](
        x, weight, x if add is None else add, out, partial, pairs, in_step, out_step, tap_step,
        H=height, W=width, IN=inputs, OUT_C=outputs, PAIRS=tile, ADDED=add is not None, SUMS=sums, STAGES=stages,
        num_warps=warps,
    )  # fmt: skip
    return out, Sums(partial, 2 * pairs) if sums else None


def input_gradient(g: Tensor, x: Tensor, weight: Tensor, stride: int, add: Tensor | None = None) -> Tensor:
    """The gradient with respect to x of x ∗ weight (+ ``add``, another part of the gradient of x)."""
    if _few_channels(g, weight, stride):
        return _convolve_pairs(g, weight, add, sums=False, reverse=True)[0]
    gx = _cudnn_gradient(g, x, weight, stride, [True, False, False])[0].permute(0, 2, 3, 1).contiguous()
    return gx if add is None else gx.add_(add)


def weight_gradient(g: Tensor, x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The gradient with respect to the weight, (O, I, k, k) float32."""
    if not _few_channels(x, weight, stride):
        return _cudnn_gradient(g, x, weight, stride, [False, True, False])[1].float()
    n, height, width, inputs = x.shape
    outputs = g.shape[-1]
    quads = n * height * width // 4
    tile, waves, warps, stages = WEIGHT_GRADIENT
    programs = min(-(-quads // tile), waves * _multiprocessors(x.device))
    chunk = -(-quads // (programs * tile)) * tile
    partial = x.new_empty((programs, 3, 4 * inputs, 2 * outputs), dtype=torch.float32)
    convolution_kernels.weight_gradient[(programs,)](
        x, g, partial, quads, chunk,
        H=height, W=width, IN=inputs, OUT=outputs, QUADS=tile, STAGES=stages, num_warps=warps,
    )  # fmt: skip
    out = partial.new_empty((outputs, 3, 3, inputs))
    block = 32
    convolution_kernels.fold_weight_gradient[(-(-out.numel() // block),)](
        partial, out, programs, IN=inputs, OUT_C=outputs, BLOCK=block, PARTS=128
    )
    return out.permute(0, 3, 1, 2)


def _cudnn_gradient(g: Tensor, x: Tensor, weight: Tensor, stride: int, wanted: list[bool]) -> tuple[Tensor, ...]:
    pad = weight.shape[-1] // 2
    with _without_benchmark():
        gradients: tuple[Tensor, ...] = torch.ops.aten.convolution_backward.default(
            _planar(g), _planar(x), weight, None, [stride, stride], [pad, pad], [1, 1], False, [0, 0], 1, wanted
        )
    return gradients


@contextlib.contextmanager
def _without_benchmark() -> Iterator[None]:
    """Let cuDNN choose kernels by heuristics: benchmarking them needs workspaces beyond a step's peak memory."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def stem(x: Tensor, weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Sums]:
    """The first convolution, from planar images (N, C, H, W) of few channels to (N, H, W, O), and its sums."""
    n, inputs, height, width = x.shape
    outputs = weight.shape[0]
    out_step, in_step, _, tap_step = weight.stride()
    out = x.new_empty((n, height, width, outputs), dtype=dtype)
    pixels = n * height * width
    programs = min(-(-pixels // 128), STEM_WAVES * _multiprocessors(x.device))
    partial = x.new_empty((programs, 2, outputs), dtype=torch.float32)
    convolution_kernels.stem[(programs,)](
        x, weight, out, partial, pixels, in_step, out_step, tap_step,
        H=height, W=width, IN=inputs, OUT_C=outputs, TAPS=_taps(inputs), PIXELS=128,
    )  # fmt: skip
    return out, Sums(partial, pixels)


def stem_weight_gradient(g: Tensor, x: Tensor) -> Tensor:
    """The gradient (O, C, 3, 3) with respect to the stem's weight."""
    n, inputs, height, width = x.shape
    outputs = g.shape[-1]
    pixels = n * height * width
    programs = min(-(-pixels // 128), STEM_WAVES * _multiprocessors(x.device))
    partial = x.new_empty((programs, _taps(inputs), outputs), dtype=torch.float32)
    convolution_kernels.stem_weight_gradient[(programs,)](
        x, g, partial, pixels, H=height, W=width, IN=inputs, OUT_C=outputs, TAPS=_taps(inputs), PIXELS=128
    )
    return partial.sum(0)[: 9 * inputs].view(3, 3, inputs, outputs).permute(3, 2, 0, 1)


def _taps(inputs: int) -> int:
    """9 · inputs, padded to a power of two of at least 16, as a matrix product requires."""
    return max(16, 1 << (9 * inputs - 1).bit_length())
