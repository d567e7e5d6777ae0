"""Triton kernels of 3×3 convolutions over few channels, where cuDNN's are limited by the second-level cache.

Images are (N, H, W, C) in memory. Each output pixel reads nine inputs; at 32 channels these reads, nine times the
image, take most of the time. Here two neighbouring pixels of a row are one output of 2·C channels: they read the same
four pixels, contiguous in memory, in each of three rows, so that each output reads six inputs instead of nine, at the
price of a third more multiplications (by zeros), for which tensor cores have capacity. The gradient of the weights
takes two rows at once, which share two of the four rows that they read: four inputs for each output.
"""

import triton
import triton.language as tl

__all__ = ["convolve", "fold_weight_gradient", "stem", "stem_weight_gradient", "weight_gradient"]


@triton.jit
def _quads(quad, H: tl.constexpr, W: tl.constexpr):
    """The number, row and column of the first pixel of each quad (2×2 pixels), numbered image by image."""
    column = quad % (W // 2) * 2
    row = quad // (W // 2) % (H // 2) * 2
    image = quad // (W // 2 * (H // 2))
    return (image * H + row) * W + column, row, column


@triton.jit
def _four(X, pixel, row, column, inside, DOWN: tl.constexpr, H: tl.constexpr, W: tl.constexpr, IN: tl.constexpr):
    """The four pixels around a pair of columns, DOWN rows below, (pairs, 4·IN); zeros outside the image."""
    k = tl.arange(0, 4 * IN)
    seen = column[:, None] + (k // IN)[None, :] - 1
    here = (seen >= 0) & (seen < W) & (inside & (row + DOWN >= 0) & (row + DOWN < H))[:, None]
    return tl.load(X + (pixel + DOWN * W - 1)[:, None] * IN + k[None, :], mask=here, other=0.0)


@triton.jit
def _pair_weights(W, tap_row, IN: tl.constexpr, OUT: tl.constexpr, in_step, out_step, tap_step):
    """The (4·IN, 2·OUT) matrix of one row of taps for a pair of outputs: input j and output o have tap j − o if that is
    0, 1 or 2, else 0."""
    k = tl.arange(0, 4 * IN)
    n = tl.arange(0, 2 * OUT)
    tap = (k // IN)[:, None] - (n // OUT)[None, :]
    at = (tap_row * 3 + tap) * tap_step + (k % IN)[:, None] * in_step + (n % OUT)[None, :] * out_step
    return tl.load(W + at, mask=(tap >= 0) & (tap < 3), other=0.0)


@triton.jit
def convolve(
    X, WEIGHT, ADD, OUT, PARTIAL, pairs, in_step, out_step, tap_step,
    H: tl.constexpr, W: tl.constexpr, IN: tl.constexpr, OUT_C: tl.constexpr, PAIRS: tl.constexpr,
    ADDED: tl.constexpr, SUMS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """OUT = X ∗ WEIGHT (+ ADD); with SUMS also Σ and Σ² of each channel of OUT, in two rows of PARTIAL per program.

    The gradient with respect to X is the same with inputs and outputs exchanged and the taps reversed, which the three
    strides of WEIGHT (in_step, out_step, tap_step) express.
    """
    program = tl.program_id(0)
    wide = tl.arange(0, 2 * OUT_C)
    dtype = X.dtype.element_ty
    upper = _pair_weights(WEIGHT, 0, IN, OUT_C, in_step, out_step, tap_step).to(dtype)
    centre = _pair_weights(WEIGHT, 1, IN, OUT_C, in_step, out_step, tap_step).to(dtype)
    lower = _pair_weights(WEIGHT, 2, IN, OUT_C, in_step, out_step, tap_step).to(dtype)
    # Summed elementwise and reduced once: a reduction in each iteration would take longer than the products.
    total = tl.zeros((PAIRS, 2 * OUT_C), tl.float32)
    square = tl.zeros((PAIRS, 2 * OUT_C), tl.float32)
    for tile in tl.range(program, tl.cdiv(pairs, PAIRS), tl.num_programs(0), num_stages=STAGES):
        pair = tile * PAIRS + tl.arange(0, PAIRS)
        column = pair % (W // 2) * 2
        row = pair // (W // 2) % H
        y = tl.dot(_four(X, 2 * pair, row, column, pair < pairs, -1, H, W, IN), upper)
        y = tl.dot(_four(X, 2 * pair, row, column, pair < pairs, 0, H, W, IN), centre, y)
        y = tl.dot(_four(X, 2 * pair, row, column, pair < pairs, 1, H, W, IN), lower, y)
        at = pair[:, None] * (2 * OUT_C) + wide[None, :]
        inside = (pair < pairs)[:, None]
        if ADDED:
            y += tl.load(ADD + at, mask=inside, other=0.0).to(tl.float32)
        rounded = y.to(dtype)
        tl.store(OUT + at, rounded, mask=inside)
        if SUMS:
            y = rounded.to(tl.float32)
            total += y
            square += y * y
    if SUMS:
        at = (program * 2 + wide // OUT_C) * 2 * OUT_C + wide % OUT_C
        tl.store(PARTIAL + at, tl.sum(total, 0))
        tl.store(PARTIAL + at + OUT_C, tl.sum(square, 0))


@triton.jit
def weight_gradient(
    X, G, PARTIAL, quads, chunk,
    H: tl.constexpr, W: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, QUADS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Σ over quads of inputsᵀ · gradients: (3, 4·IN, 2·OUT) per program; six of the eight (IN, OUT) blocks are used."""
    program = tl.program_id(0)
    wide = tl.arange(0, 2 * OUT)
    upper = tl.zeros((4 * IN, 2 * OUT), tl.float32)
    centre = tl.zeros((4 * IN, 2 * OUT), tl.float32)
    lower = tl.zeros((4 * IN, 2 * OUT), tl.float32)
    for start in tl.range(0, chunk, QUADS, num_stages=STAGES):
        quad = program * chunk + start + tl.arange(0, QUADS)
        pixel, row, column = _quads(quad, H, W)
        at = pixel[:, None] * OUT + wide[None, :]
        inside = (quad < quads)[:, None]
        first = tl.load(G + at, mask=inside, other=0.0)
        second = tl.load(G + at + W * OUT, mask=inside, other=0.0)
        above = tl.trans(_four(X, pixel, row, column, quad < quads, -1, H, W, IN))
        upper = tl.dot(above, first, upper)
        one = tl.trans(_four(X, pixel, row, column, quad < quads, 0, H, W, IN))
        centre = tl.dot(one, first, centre)
        upper = tl.dot(one, second, upper)
        two = tl.trans(_four(X, pixel, row, column, quad < quads, 1, H, W, IN))
        lower = tl.dot(two, first, lower)
        centre = tl.dot(two, second, centre)
        below = tl.trans(_four(X, pixel, row, column, quad < quads, 2, H, W, IN))
        lower = tl.dot(below, second, lower)
    at = program * 3 * 8 * IN * OUT + tl.arange(0, 4 * IN)[:, None] * (2 * OUT) + wide[None, :]
    tl.store(PARTIAL + at, upper)
    tl.store(PARTIAL + at + 8 * IN * OUT, centre)
    tl.store(PARTIAL + at + 16 * IN * OUT, lower)


@triton.jit
def fold_weight_gradient(
    PARTIAL, OUT, parts, IN: tl.constexpr, OUT_C: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """The partial sums of :func:`weight_gradient` added up to OUT (OUT_C, 3, 3, IN)."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c_out = i % OUT_C
    c_in = i // OUT_C % IN
    column = i // (OUT_C * IN) % 3
    row = i // (OUT_C * IN * 3)
    at = row * (8 * IN * OUT_C) + (column * IN + c_in) * (2 * OUT_C) + c_out
    total = tl.zeros((PARTS, BLOCK), tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        inside = (i < 9 * IN * OUT_C)[None, :] & (part < parts)[:, None]
        here = PARTIAL + part[:, None] * (24 * IN * OUT_C) + at[None, :]
        total += tl.load(here, mask=inside, other=0.0)
        # The same tap for the pair's second pixel: one input further, in the second half of the outputs.
        total += tl.load(here + IN * 2 * OUT_C + OUT_C, mask=inside, other=0.0)
    target = OUT + c_out * (9 * IN) + (row * 3 + column) * IN + c_in
    tl.store(target, tl.sum(total, 0), mask=i < 9 * IN * OUT_C)


@triton.jit
def _patches(X, pixel, pixels, H: tl.constexpr, W: tl.constexpr, IN: tl.constexpr, TAPS: tl.constexpr):
    """(pixels, TAPS) the 3×3 neighbourhoods of pixels of planar images (N, IN, H, W), tap by tap, zeros outside."""
    k = tl.arange(0, TAPS)
    tap = k // IN
    channel = k % IN
    column = (pixel % W)[:, None] + (tap % 3)[None, :] - 1
    row = ((pixel // W) % H)[:, None] + (tap // 3)[None, :] - 1
    inside = (column >= 0) & (column < W) & (row >= 0) & (row < H)
    inside = inside & (k < 9 * IN)[None, :] & (pixel < pixels)[:, None]
    at = ((pixel // (H * W))[:, None] * IN + channel[None, :]) * (H * W) + row * W + column
    return tl.load(X + at, mask=inside, other=0.0)


@triton.jit
def stem(
    X, WEIGHT, OUT, PARTIAL, pixels, in_step, out_step, tap_step,
    H: tl.constexpr, W: tl.constexpr, IN: tl.constexpr, OUT_C: tl.constexpr, TAPS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """The first convolution, from planar images of a few channels, with Σ and Σ² of its outputs."""
    program = tl.program_id(0)
    k = tl.arange(0, TAPS)
    wide = tl.arange(0, OUT_C)
    dtype = OUT.dtype.element_ty
    at = (k // IN * tap_step + k % IN * in_step)[:, None] + wide[None, :] * out_step
    weight = tl.load(WEIGHT + at, mask=(k < 9 * IN)[:, None], other=0.0).to(dtype)
    total = tl.zeros((PIXELS, OUT_C), tl.float32)
    square = tl.zeros((PIXELS, OUT_C), tl.float32)
    for tile in range(program, tl.cdiv(pixels, PIXELS), tl.num_programs(0)):
        pixel = tile * PIXELS + tl.arange(0, PIXELS)
        y = tl.dot(_patches(X, pixel, pixels, H, W, IN, TAPS).to(dtype), weight).to(dtype)
        tl.store(OUT + pixel[:, None] * OUT_C + wide[None, :], y, mask=(pixel < pixels)[:, None])
        y = y.to(tl.float32)
        total += y
        square += y * y
    tl.store(PARTIAL + program * 2 * OUT_C + wide, tl.sum(total, 0))
    tl.store(PARTIAL + program * 2 * OUT_C + OUT_C + wide, tl.sum(square, 0))


@triton.jit
def stem_weight_gradient(
    X, G, PARTIAL, pixels,
    H: tl.constexpr, W: tl.constexpr, IN: tl.constexpr, OUT_C: tl.constexpr, TAPS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Σ over pixels of neighbourhoodsᵀ · gradients: (TAPS, OUT_C) per program."""
    program = tl.program_id(0)
    wide = tl.arange(0, OUT_C)
    total = tl.zeros((TAPS, OUT_C), tl.float32)
    for tile in range(program, tl.cdiv(pixels, PIXELS), tl.num_programs(0)):
        pixel = tile * PIXELS + tl.arange(0, PIXELS)
        at = pixel[:, None] * OUT_C + wide[None, :]
        g = tl.load(G + at, mask=(pixel < pixels)[:, None], other=0.0)
        total = tl.dot(tl.trans(_patches(X, pixel, pixels, H, W, IN, TAPS).to(g.dtype)), g, total)
    at = program * TAPS * OUT_C + tl.arange(0, TAPS)[:, None] * OUT_C + wide[None, :]
    tl.store(PARTIAL + at, total)
