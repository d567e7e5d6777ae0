"""Triton kernels of batch normalisation followed by a leaky ReLU, forward and backward.

Activations are rows of channels: (P, C) with P = N·H·W, the memory of a channels-last image batch. C is a power of two.
Sums over rows are computed by a fixed number of programs, each of which writes its own row of ``PARTIAL`` (S, 2, C); a
small kernel adds up these rows in a fixed order, so that a step is reproducible bit for bit.
"""

import triton
import triton.language as tl

__all__ = ["normalise", "normalise_gradient", "pool", "settle", "settle_gradient", "sums", "sums_gradient"]


@triton.jit
def _activate(x, scale, shift, SLOPE: tl.constexpr):
    y = x * scale + shift
    return tl.where(y > 0, y, y * SLOPE)


@triton.jit
def _slope(x, scale, shift, SLOPE: tl.constexpr):
    return tl.where(x * scale + shift > 0, 1.0, SLOPE)


@triton.jit
def sums(X, ADD, OUT, PARTIAL, rows, chunk, C: tl.constexpr, ROWS: tl.constexpr, ADDED: tl.constexpr):
    """Σx and Σx² of each channel; with ADDED, x is X + ADD, which is also written to OUT."""
    program = tl.program_id(0)
    channel = tl.arange(0, C)
    # Summed elementwise and reduced once: a reduction in each iteration would take longer than the reads.
    total = tl.zeros((ROWS, C), tl.float32)
    square = tl.zeros((ROWS, C), tl.float32)
    for start in range(0, chunk, ROWS):
        row = program * chunk + start + tl.arange(0, ROWS)
        at = row[:, None] * C + channel[None, :]
        inside = (row < rows)[:, None]
        x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
        if ADDED:
            x = (x + tl.load(ADD + at, mask=inside, other=0.0).to(tl.float32)).to(OUT.dtype.element_ty)
            tl.store(OUT + at, x, mask=inside)
            x = x.to(tl.float32)
        total += x
        square += x * x
    tl.store(PARTIAL + program * 2 * C + channel, tl.sum(total, 0))
    tl.store(PARTIAL + program * 2 * C + C + channel, tl.sum(square, 0))


@triton.jit
def settle(PARTIAL, WEIGHT, BIAS, TABLE, count, parts, eps, C: tl.constexpr, WIDE: tl.constexpr, PARTS: tl.constexpr):
    """Computes TABLE (5, C) from partial sums: mean, 1/σ, scale γ/σ, shift β − mean·γ/σ, unbiased variance."""
    channel = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((PARTS, WIDE), tl.float32)
    square = tl.zeros((PARTS, WIDE), tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        at = part[:, None] * 2 * C + channel[None, :]
        inside = (part < parts)[:, None]
        total += tl.load(PARTIAL + at, mask=inside, other=0.0)
        square += tl.load(PARTIAL + at + C, mask=inside, other=0.0)
    mean = tl.sum(total, 0).to(tl.float64) / count
    variance = tl.maximum(tl.sum(square, 0).to(tl.float64) / count - mean * mean, 0.0).to(tl.float32)
    mean = mean.to(tl.float32)
    inverse = 1.0 / tl.sqrt(variance + eps)
    scale = tl.load(WEIGHT + channel) * inverse
    tl.store(TABLE + channel, mean)
    tl.store(TABLE + C + channel, inverse)
    tl.store(TABLE + 2 * C + channel, scale)
    tl.store(TABLE + 3 * C + channel, tl.load(BIAS + channel) - mean * scale)
    tl.store(TABLE + 4 * C + channel, variance * (count / (count - 1)))


@triton.jit
def normalise(X, TABLE, OUT, rows, C: tl.constexpr, ROWS: tl.constexpr, SLOPE: tl.constexpr):
    """OUT = leaky ReLU(scale · X + shift)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, C)
    at = row[:, None] * C + channel[None, :]
    inside = (row < rows)[:, None]
    x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(TABLE + 2 * C + channel)[None, :]
    shift = tl.load(TABLE + 3 * C + channel)[None, :]
    tl.store(OUT + at, _activate(x, scale, shift, SLOPE).to(OUT.dtype.element_ty), mask=inside)


@triton.jit
def pool(X, TABLE, OUT, C: tl.constexpr, PIXELS: tl.constexpr, ROWS: tl.constexpr, SLOPE: tl.constexpr):
    """The mean over the pixels of one image of leaky ReLU(scale · X + shift), in float32."""
    image = tl.program_id(0)
    channel = tl.arange(0, C)
    scale = tl.load(TABLE + 2 * C + channel)[None, :]
    shift = tl.load(TABLE + 3 * C + channel)[None, :]
    total = tl.zeros((ROWS, C), tl.float32)
    for start in range(0, PIXELS, ROWS):
        pixel = start + tl.arange(0, ROWS)
        inside = (pixel < PIXELS)[:, None]
        x = tl.load(X + (image * PIXELS + pixel[:, None]) * C + channel[None, :], mask=inside, other=0.0)
        total += tl.where(inside, _activate(x.to(tl.float32), scale, shift, SLOPE), 0.0)
    tl.store(OUT + image * C + channel, tl.sum(total, 0) / PIXELS)


@triton.jit
def _incoming(G, at, row, channel, inside, C: tl.constexpr, PIXELS: tl.constexpr, POOLED: tl.constexpr):
    """The gradient of the activation's output; with POOLED, that of an image's mean, spread over its pixels."""
    if POOLED:
        g = tl.load(G + (row // PIXELS)[:, None] * C + channel[None, :], mask=inside, other=0.0).to(tl.float32)
        return g / PIXELS
    return tl.load(G + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def sums_gradient(
    G, X, TABLE, PARTIAL, rows, chunk,
    C: tl.constexpr, ROWS: tl.constexpr, SLOPE: tl.constexpr, PIXELS: tl.constexpr, POOLED: tl.constexpr,
    PARTIAL_BATCH: tl.constexpr,
):  # fmt: skip
    """Σg and Σg·x̂ per channel, with g the gradient of the activation's input; for a partial batch also Σx̂, Σx̂²."""
    program = tl.program_id(0)
    channel = tl.arange(0, C)
    mean = tl.load(TABLE + channel)[None, :]
    inverse = tl.load(TABLE + C + channel)[None, :]
    scale = tl.load(TABLE + 2 * C + channel)[None, :]
    shift = tl.load(TABLE + 3 * C + channel)[None, :]
    total = tl.zeros((ROWS, C), tl.float32)
    along = tl.zeros((ROWS, C), tl.float32)
    own = tl.zeros((ROWS, C), tl.float32)
    square = tl.zeros((ROWS, C), tl.float32)
    for start in range(0, chunk, ROWS):
        row = program * chunk + start + tl.arange(0, ROWS)
        at = row[:, None] * C + channel[None, :]
        inside = (row < rows)[:, None]
        x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
        g = _incoming(G, at, row, channel, inside, C, PIXELS, POOLED) * _slope(x, scale, shift, SLOPE)
        x = (x - mean) * inverse
        total += g
        along += g * x
        if PARTIAL_BATCH:
            x = tl.where(inside, x, 0.0)
            own += x
            square += x * x
    at = PARTIAL + program * 4 * C + channel
    tl.store(at, tl.sum(total, 0))
    tl.store(at + C, tl.sum(along, 0))
    if PARTIAL_BATCH:
        tl.store(at + 2 * C, tl.sum(own, 0))
        tl.store(at + 3 * C, tl.sum(square, 0))


@triton.jit
def settle_gradient(
    PARTIAL, G_BIAS, G_WEIGHT, LINE, parts, count,
    C: tl.constexpr, WIDE: tl.constexpr, PARTS: tl.constexpr, PARTIAL_BATCH: tl.constexpr,
):  # fmt: skip
    """Computes, from partial sums, the gradients of β and γ, and LINE (2, C): a and b of the line a + b·x̂ to subtract
    from g.

    For a whole batch the line is Σg/n + x̂ · Σg·x̂/n. For a partial batch it is the regression of g on the x̂ of that
    part, whose mean is not 0 and whose variance is not 1: so the gradient of the input stays orthogonal to shifting and
    scaling it, as with any batch normalisation.
    """
    channel = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((PARTS, WIDE), tl.float32)
    along = tl.zeros((PARTS, WIDE), tl.float32)
    own = tl.zeros((PARTS, WIDE), tl.float32)
    square = tl.zeros((PARTS, WIDE), tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        at = PARTIAL + part[:, None] * 4 * C + channel[None, :]
        inside = (part < parts)[:, None]
        total += tl.load(at, mask=inside, other=0.0)
        along += tl.load(at + C, mask=inside, other=0.0)
        if PARTIAL_BATCH:
            own += tl.load(at + 2 * C, mask=inside, other=0.0)
            square += tl.load(at + 3 * C, mask=inside, other=0.0)
    g_bias = tl.sum(total, 0)
    g_weight = tl.sum(along, 0)
    tl.store(G_BIAS + channel, g_bias)
    tl.store(G_WEIGHT + channel, g_weight)
    offset = g_bias / count
    slope = g_weight / count
    if PARTIAL_BATCH:
        centre = tl.sum(own, 0) / count
        spread = tl.maximum(tl.sum(square, 0) / count - centre * centre, 1e-12)
        slope = (slope - offset * centre) / spread
        offset -= slope * centre
    tl.store(LINE + channel, offset)
    tl.store(LINE + C + channel, slope)


@triton.jit
def normalise_gradient(
    G, X, TABLE, LINE, ADD, OUT, rows,
    C: tl.constexpr, ROWS: tl.constexpr, SLOPE: tl.constexpr, PIXELS: tl.constexpr, POOLED: tl.constexpr,
    ADDED: tl.constexpr,
):  # fmt: skip
    """OUT = γ/σ · (g − a − b·x̂) (+ ADD), the gradient of the normalisation's input (see :func:`settle_gradient`)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, C)
    at = row[:, None] * C + channel[None, :]
    inside = (row < rows)[:, None]
    mean = tl.load(TABLE + channel)[None, :]
    inverse = tl.load(TABLE + C + channel)[None, :]
    scale = tl.load(TABLE + 2 * C + channel)[None, :]
    shift = tl.load(TABLE + 3 * C + channel)[None, :]
    offset = tl.load(LINE + channel)[None, :]
    slope = tl.load(LINE + C + channel)[None, :]
    x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    g = _incoming(G, at, row, channel, inside, C, PIXELS, POOLED) * _slope(x, scale, shift, SLOPE)
    out = scale * (g - offset - (x - mean) * inverse * slope)
    if ADDED:
        out += tl.load(ADD + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(OUT + at, out.to(OUT.dtype.element_ty), mask=inside)
