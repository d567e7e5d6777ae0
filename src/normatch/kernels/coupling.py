"""The Triton kernels of :mod:`normatch.kernels.flow`; imported only if Triton is installed.

One program takes a block of ROWS rows through all couplings and the mixture, in float32. Layers pass their results on
through memory, because Triton cannot index registers; programs share no rows, so barriers within the program suffice.
There are no atomics: the same input gives the same bits.

A row of ``memory`` holds SLOTS states of WIDTH columns and, if a backward pass will follow (KEEP), for each layer the
tanh of the raw log-scales (WIDTH) and both hidden layers (2 · UNITS), and the squared distance to each class. State 0
is the second half of z, state 1 the first; layer i reads its context from state i + 1, its free half from state i, and
writes state i + 2. Without KEEP, and for the gradients of the states, three states in rotation are enough. Padding of
rows and columns is zero or finite throughout, and gets no gradient.

``flat`` holds the parameters in the order of :func:`normatch.kernels.flow.flatten`.
"""

import triton
import triton.language as tl

__all__ = ["backward", "forward", "gather"]


@triton.jit
def _tanh(x):
    """tanh to float32 precision (Cephes): a polynomial near 0, where the quotient would suffer cancellation."""
    size = tl.abs(x)
    near = tl.where(size < 0.625, x, 0.0)
    square = near * near
    series = -5.70498872745e-3 * square + 2.06390887954e-2
    series = series * square - 5.37397155531e-2
    series = series * square + 1.33314422036e-1
    series = series * square - 3.33332819422e-1
    shrunk = tl.exp(-2.0 * size)
    quotient = (1.0 - shrunk) / (1.0 + shrunk)
    return tl.where(size < 0.625, near + near * square * series, tl.where(x < 0, -quotient, quotient))


@triton.jit
def _scale(raw, FLOOR: tl.constexpr):
    """softplus(raw) + FLOOR, with log(1 + e) from the series of atanh, accurate for small e too."""
    e = tl.exp(-tl.abs(raw))
    t = e / (2.0 + e)
    square = t * t
    series = square * (1.0 / 17) + 1.0 / 15
    series = series * square + 1.0 / 13
    series = series * square + 1.0 / 11
    series = series * square + 1.0 / 9
    series = series * square + 1.0 / 7
    series = series * square + 1.0 / 5
    series = series * square + 1.0 / 3
    series = series * square + 1.0
    return tl.maximum(raw, 0.0) + 2.0 * t * series + FLOOR


@triton.jit
def _dot(a, b, start):
    return tl.dot(a, b, start, input_precision="ieee", out_dtype=tl.float32)


@triton.jit
def _layer(layer, DIM: tl.constexpr, HIDDEN: tl.constexpr):
    """The offset of a layer's parameters in ``flat``, and the sizes of its context and its free half."""
    FIRST: tl.constexpr = DIM // 2
    SECOND: tl.constexpr = DIM - DIM // 2
    SHARED: tl.constexpr = HIDDEN * HIDDEN + 2 * HIDDEN
    EVEN: tl.constexpr = SHARED + HIDDEN * FIRST + (2 * HIDDEN + 3) * SECOND
    ODD: tl.constexpr = SHARED + HIDDEN * SECOND + (2 * HIDDEN + 3) * FIRST
    odd = layer % 2
    begin = (layer // 2) * (EVEN + ODD) + odd * EVEN
    context = FIRST + odd * (SECOND - FIRST)
    return begin, context, DIM - context


@triton.jit
def _log_weights_sum(weights, CLASSES: tl.constexpr, CLASS_SPAN: tl.constexpr):
    """log Σ exp of the mixture's weight logits."""
    index = tl.arange(0, CLASS_SPAN)
    logits = tl.load(weights + index, mask=index < CLASSES, other=float("-inf"))
    largest = tl.max(logits, axis=0)
    return largest + tl.log(tl.sum(tl.exp(logits - largest), axis=0))


@triton.jit
def forward(
    z,
    z_row,
    z_column,
    flat,
    logits,
    log_det,
    memory,
    rows,
    DIM: tl.constexpr,
    CLASSES: tl.constexpr,
    LAYERS: tl.constexpr,
    HIDDEN: tl.constexpr,
    MIXTURE: tl.constexpr,
    FLOOR: tl.constexpr,
    HALF_LOG_TAU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    UNITS: tl.constexpr,
    CLASS_SPAN: tl.constexpr,
    PITCH: tl.constexpr,
    KEEP: tl.constexpr,
):
    """log p(f(z), y) and the log-determinants of one block of rows."""
    FIRST: tl.constexpr = DIM // 2
    SLOTS: tl.constexpr = LAYERS + 2 if KEEP else 3
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = row < rows
    mine = memory + row[:, None] * PITCH
    column = tl.arange(0, COLUMNS)
    unit = tl.arange(0, UNITS)
    real = unit < HIDDEN

    for block in range(WIDTH // COLUMNS):
        here = block * COLUMNS + column
        source = z + row[:, None] * z_row + here[None, :] * z_column
        first = tl.load(source, mask=inside[:, None] & (here < FIRST)[None, :], other=0.0)
        second = tl.load(source + FIRST * z_column, mask=inside[:, None] & (here < DIM - FIRST)[None, :], other=0.0)
        tl.store(mine + here[None, :], second.to(tl.float32))
        tl.store(mine + WIDTH + here[None, :], first.to(tl.float32))
    tl.debug_barrier()

    sums = tl.zeros((ROWS,), tl.float32)
    for layer in range(LAYERS):
        begin, context, free = _layer(layer, DIM, HIDDEN)
        weight = flat + begin
        hidden = tl.zeros((ROWS, UNITS), tl.float32)
        for block in range(WIDTH // COLUMNS):
            here = block * COLUMNS + column
            known = tl.load(mine + ((layer + 1) % SLOTS) * WIDTH + here[None, :])
            product = tl.load(
                weight + unit[None, :] * context + here[:, None],
                mask=real[None, :] & (here < context)[:, None],
                other=0.0,
            )
            hidden = _dot(known, product, hidden)
        weight += HIDDEN * context
        hidden = tl.maximum(hidden + tl.load(weight + unit, mask=real, other=0.0)[None, :], 0.0)
        weight += HIDDEN
        middle = tl.load(weight + unit[None, :] * HIDDEN + unit[:, None], mask=real[None, :] & real[:, None], other=0.0)
        weight += HIDDEN * HIDDEN
        bias = tl.load(weight + unit, mask=real, other=0.0)
        weight += HIDDEN
        second_hidden = tl.maximum(_dot(hidden, middle, tl.zeros((ROWS, UNITS), tl.float32)) + bias[None, :], 0.0)
        if KEEP:
            inner = mine + SLOTS * WIDTH + LAYERS * WIDTH + layer * (2 * UNITS) + unit[None, :]
            tl.store(inner, hidden)
            tl.store(inner + UNITS, second_hidden)
        for block in range(WIDTH // COLUMNS):
            here = block * COLUMNS + column
            used = here < free
            at = weight + here[None, :] * HIDDEN + unit[:, None]
            both = used[None, :] & real[:, None]
            biases = weight + 2 * HIDDEN * free + here
            shift = _dot(second_hidden, tl.load(at, mask=both, other=0.0), tl.zeros((ROWS, COLUMNS), tl.float32))
            shift += tl.load(biases, mask=used, other=0.0)[None, :]
            product = tl.load(at + HIDDEN * free, mask=both, other=0.0)
            raw = _dot(second_hidden, product, tl.zeros((ROWS, COLUMNS), tl.float32))
            raw += tl.load(biases + free, mask=used, other=0.0)[None, :]
            bent = _tanh(raw)
            log_scale = tl.load(biases + 2 * free, mask=used, other=0.0)[None, :] * bent
            moved = (tl.load(mine + (layer % SLOTS) * WIDTH + here[None, :]) + shift) * tl.exp(log_scale)
            tl.store(mine + ((layer + 2) % SLOTS) * WIDTH + here[None, :], moved)
            sums += tl.sum(log_scale, axis=1)
            if KEEP:
                tl.store(mine + SLOTS * WIDTH + layer * WIDTH + here[None, :], bent)
        tl.debug_barrier()
    tl.store(log_det + row, sums, mask=inside)

    # The distance is summed from differences, for the accuracy explained in normatch.flow.mixture.
    raw_scales = flat + MIXTURE
    weights = raw_scales + CLASSES
    means = weights + CLASSES
    log_sum = _log_weights_sum(weights, CLASSES, CLASS_SPAN)
    UNROLL: tl.constexpr = 4 if WIDTH // COLUMNS <= 2 else 2
    for begin in range(0, CLASSES, UNROLL):
        for offset in tl.static_range(UNROLL):
            label = tl.full((), begin + offset, tl.int32)
            exists = label < CLASSES
            squares = tl.zeros((ROWS, COLUMNS), tl.float32)
            for half in tl.static_range(2):
                # The first half is in the odd states, the second in the even ones.
                slot = (LAYERS + (LAYERS + 1 + half) % 2) % SLOTS
                for part in tl.static_range(WIDTH // COLUMNS):
                    here = part * COLUMNS + column
                    used = here < tl.where(exists, FIRST + half * (DIM - 2 * FIRST), 0)
                    mean = tl.load(means + label * DIM + half * FIRST + here, mask=used, other=0.0)
                    difference = tl.load(mine + slot * WIDTH + here[None, :]) - mean[None, :]
                    squares += difference * difference
            distance = tl.sum(squares, axis=1)
            scale = _scale(tl.load(raw_scales + label, mask=exists, other=0.0), FLOOR)
            log_weight = tl.load(weights + label, mask=exists, other=0.0) - log_sum
            joint = -0.5 * distance / (scale * scale) - DIM * (tl.log(scale) + HALF_LOG_TAU) + log_weight
            written = row < tl.where(exists, rows, 0)
            tl.store(logits + row * CLASSES + label, joint, mask=written)
            if KEEP:
                at = memory + row * PITCH + SLOTS * WIDTH + LAYERS * (WIDTH + 2 * UNITS) + label
                tl.store(at, distance, mask=written)


@triton.jit
def backward(
    flat,
    memory,
    grad_logits,
    logits_row,
    logits_column,
    grad_log_det,
    log_det_row,
    scratch,
    partials,
    z_grad,
    first_row,
    rows,
    DIM: tl.constexpr,
    CLASSES: tl.constexpr,
    LAYERS: tl.constexpr,
    HIDDEN: tl.constexpr,
    MIXTURE: tl.constexpr,
    FLOOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    UNITS: tl.constexpr,
    CLASS_SPAN: tl.constexpr,
    CLASS_BLOCK: tl.constexpr,
    PITCH: tl.constexpr,
    WANT_Z: tl.constexpr,
):
    """One block's part of the gradients of all parameters but the means, and the gradient of its rows of z.

    A row of ``scratch`` holds the gradients of three states through the moved halves, and three through the contexts.
    """
    FIRST: tl.constexpr = DIM // 2
    SLOTS: tl.constexpr = LAYERS + 2
    BENT: tl.constexpr = SLOTS * WIDTH
    INNER: tl.constexpr = BENT + LAYERS * WIDTH
    DISTANCES: tl.constexpr = INNER + LAYERS * 2 * UNITS
    program = tl.program_id(0)
    local = (program * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    row = first_row + local
    inside = row < rows
    mine = memory + row[:, None] * PITCH
    direct = scratch + local[:, None] * (6 * WIDTH)
    through = direct + 3 * WIDTH
    share = partials + program.to(tl.int64) * (MIXTURE + 2 * CLASSES)
    column = tl.arange(0, COLUMNS)
    unit = tl.arange(0, UNITS)
    real = unit < HIDDEN
    raw_scales = flat + MIXTURE
    weights = raw_scales + CLASSES
    means = weights + CLASSES
    log_det_grad = tl.load(grad_log_det + row * log_det_row, mask=inside, other=0.0)

    # The mixture's scales and weights.
    log_sum = _log_weights_sum(weights, CLASSES, CLASS_SPAN)
    label = tl.arange(0, CLASS_BLOCK)
    each = tl.zeros((ROWS, CLASS_BLOCK), tl.float32)
    for begin in range(0, CLASSES, CLASS_BLOCK):
        here = begin + label
        at = grad_logits + row[:, None] * logits_row + here[None, :] * logits_column
        each += tl.load(at, mask=inside[:, None] & (here < CLASSES)[None, :], other=0.0)
    total = tl.sum(tl.sum(each, axis=1), axis=0)
    for begin in range(0, CLASSES, CLASS_BLOCK):
        here = begin + label
        known = here < CLASSES
        at = grad_logits + row[:, None] * logits_row + here[None, :] * logits_column
        grad = tl.load(at, mask=inside[:, None] & known[None, :], other=0.0)
        sums = tl.sum(grad, axis=0)
        distance = tl.load(mine + DISTANCES + here[None, :], mask=inside[:, None] & known[None, :], other=0.0)
        raw = tl.load(raw_scales + here, mask=known, other=0.0)
        scale = _scale(raw, FLOOR)
        slope = 1.0 / (1.0 + tl.exp(-raw))
        pulled = tl.sum(grad * distance, axis=0) / (scale * scale * scale)
        tl.store(share + MIXTURE + here, (pulled - DIM * sums / scale) * slope, mask=known)
        portion = tl.exp(tl.load(weights + here, mask=known, other=0.0) - log_sum)
        tl.store(share + MIXTURE + CLASSES + here, sums - portion * total, mask=known)

    # The latents.
    for half in tl.static_range(2):
        slot = LAYERS + (LAYERS + 1 + half) % 2
        for part in tl.static_range(WIDTH // COLUMNS):
            here = part * COLUMNS + column
            latent = tl.load(mine + slot * WIDTH + here[None, :])
            grad = tl.zeros((ROWS, COLUMNS), tl.float32)
            for begin in range(0, CLASSES, 4):
                for offset in tl.static_range(4):
                    one = tl.full((), begin + offset, tl.int32)
                    exists = one < CLASSES
                    scale = _scale(tl.load(raw_scales + one, mask=exists, other=0.0), FLOOR)
                    at = grad_logits + row * logits_row + one * logits_column
                    pull = tl.load(at, mask=row < tl.where(exists, rows, 0), other=0.0) / (scale * scale)
                    used = here < tl.where(exists, FIRST + half * (DIM - 2 * FIRST), 0)
                    mean = tl.load(means + one * DIM + half * FIRST + here, mask=used, other=0.0)
                    grad -= pull[:, None] * (latent - mean[None, :])
            tl.store(direct + (slot % 3) * WIDTH + here[None, :], grad)
            tl.store(through + ((LAYERS + 1) % 3) * WIDTH + here[None, :], tl.zeros((ROWS, COLUMNS), tl.float32))
    tl.debug_barrier()

    for step in range(LAYERS):
        layer = LAYERS - 1 - step
        begin, context, free = _layer(layer, DIM, HIDDEN)
        middle = begin + HIDDEN * context + HIDDEN
        output = middle + HIDDEN * HIDDEN + HIDDEN
        inner = mine + INNER + layer * (2 * UNITS) + unit[None, :]
        second_hidden = tl.load(inner + UNITS)
        second_grad = tl.zeros((ROWS, UNITS), tl.float32)
        for block in range(WIDTH // COLUMNS):
            here = block * COLUMNS + column
            used = here < free
            state = ((layer + 2) % 3) * WIDTH + here[None, :]
            grad = tl.load(direct + state) + tl.load(through + state)
            moved = tl.load(mine + (layer + 2) * WIDTH + here[None, :])
            bent = tl.load(mine + BENT + layer * WIDTH + here[None, :])
            biases = output + 2 * HIDDEN * free + here
            gain = tl.load(flat + biases + 2 * free, mask=used, other=0.0)[None, :]
            # The gradient of the log-determinant is per row, so padding columns must be masked out.
            scale_grad = tl.where(used[None, :], grad * moved + log_det_grad[:, None], 0.0)
            shift_grad = grad * tl.exp(gain * bent)
            raw_grad = scale_grad * gain * (1.0 - bent * bent)
            tl.store(direct + (layer % 3) * WIDTH + here[None, :], shift_grad)
            tl.store(share + biases, tl.sum(shift_grad, axis=0), mask=used)
            tl.store(share + biases + free, tl.sum(raw_grad, axis=0), mask=used)
            tl.store(share + biases + 2 * free, tl.sum(scale_grad * bent, axis=0), mask=used)
            at = output + here[:, None] * HIDDEN + unit[None, :]
            both = used[:, None] & real[None, :]
            second_grad = _dot(shift_grad, tl.load(flat + at, mask=both, other=0.0), second_grad)
            second_grad = _dot(raw_grad, tl.load(flat + at + HIDDEN * free, mask=both, other=0.0), second_grad)
            nothing = tl.zeros((COLUMNS, UNITS), tl.float32)
            tl.store(share + at, _dot(tl.trans(shift_grad), second_hidden, nothing), mask=both)
            tl.store(share + at + HIDDEN * free, _dot(tl.trans(raw_grad), second_hidden, nothing), mask=both)
        second_grad = tl.where(second_hidden > 0, second_grad, 0.0)
        hidden = tl.load(inner)
        square = unit[:, None] * HIDDEN + unit[None, :]
        inner_mask = real[:, None] & real[None, :]
        weight = tl.load(flat + middle + square, mask=inner_mask, other=0.0)
        hidden_grad = _dot(second_grad, weight, tl.zeros((ROWS, UNITS), tl.float32))
        hidden_grad = tl.where(hidden > 0, hidden_grad, 0.0)
        weight_grad = _dot(tl.trans(second_grad), hidden, tl.zeros((UNITS, UNITS), tl.float32))
        tl.store(share + middle + square, weight_grad, mask=inner_mask)
        tl.store(share + middle + HIDDEN * HIDDEN + unit, tl.sum(second_grad, axis=0), mask=real)
        tl.store(share + begin + HIDDEN * context + unit, tl.sum(hidden_grad, axis=0), mask=real)
        for block in range(WIDTH // COLUMNS):
            here = block * COLUMNS + column
            at = begin + unit[:, None] * context + here[None, :]
            both = real[:, None] & (here < context)[None, :]
            known = tl.load(mine + (layer + 1) * WIDTH + here[None, :])
            outer = _dot(tl.trans(hidden_grad), known, tl.zeros((UNITS, COLUMNS), tl.float32))
            tl.store(share + at, outer, mask=both)
            product = tl.load(flat + at, mask=both, other=0.0)
            grad = _dot(hidden_grad, product, tl.zeros((ROWS, COLUMNS), tl.float32))
            tl.store(through + ((layer + 1) % 3) * WIDTH + here[None, :], grad)
        tl.debug_barrier()

    if WANT_Z:
        for block in range(WIDTH // COLUMNS):
            here = block * COLUMNS + column
            first = tl.load(direct + WIDTH + here[None, :]) + tl.load(through + WIDTH + here[None, :])
            second = tl.load(direct + here[None, :])
            at = z_grad + row[:, None] * DIM + here[None, :]
            kind = z_grad.dtype.element_ty
            tl.store(at, first.to(kind), mask=inside[:, None] & (here < FIRST)[None, :])
            tl.store(at + FIRST, second.to(kind), mask=inside[:, None] & (here < DIM - FIRST)[None, :])


@triton.jit
def _add_shares(program, partials, programs, flat_grad, SHARED: tl.constexpr, SPAN: tl.constexpr, TALL: tl.constexpr):
    here = program * SPAN + tl.arange(0, SPAN)
    used = here < SHARED
    sums = tl.zeros((TALL, SPAN), tl.float32)
    for begin in range(0, programs, TALL):
        index = (begin + tl.arange(0, TALL)).to(tl.int64)
        at = partials + index[:, None] * SHARED + here[None, :]
        sums += tl.load(at, mask=(index < programs)[:, None] & used[None, :], other=0.0)
    tl.store(flat_grad + here, tl.sum(sums, axis=0), mask=used)


@triton.jit
def _mean_gradient(
    task,
    flat,
    memory,
    grad_logits,
    logits_row,
    logits_column,
    flat_grad,
    first_row,
    rows,
    DIM: tl.constexpr,
    CLASSES: tl.constexpr,
    LAYERS: tl.constexpr,
    MIXTURE: tl.constexpr,
    FLOOR: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    PITCH: tl.constexpr,
    TALL: tl.constexpr,
):
    BLOCKS: tl.constexpr = WIDTH // COLUMNS
    FIRST: tl.constexpr = DIM // 2
    label = task // (2 * BLOCKS)
    half = (task // BLOCKS) % 2
    here = (task % BLOCKS) * COLUMNS + tl.arange(0, COLUMNS)
    used = here < FIRST + half * (DIM - 2 * FIRST)
    place = MIXTURE + 2 * CLASSES + label * DIM + half * FIRST + here
    scale = _scale(tl.load(flat + MIXTURE + label), FLOOR)
    mean = tl.load(flat + place, mask=used, other=0.0)
    slot = LAYERS + (LAYERS + 1 + half) % 2
    grad = tl.zeros((TALL, COLUMNS), tl.float32)
    for begin in range(first_row, rows, TALL):
        row = (begin + tl.arange(0, TALL)).to(tl.int64)
        inside = row < rows
        pull = tl.load(grad_logits + row * logits_row + label * logits_column, mask=inside, other=0.0)
        at = memory + row[:, None] * PITCH + slot * WIDTH + here[None, :]
        latent = tl.load(at, mask=inside[:, None], other=0.0)
        grad += (pull / (scale * scale))[:, None] * (latent - mean[None, :])
    tl.store(flat_grad + place, tl.sum(grad, axis=0), mask=used)


@triton.jit
def gather(
    flat,
    memory,
    grad_logits,
    logits_row,
    logits_column,
    partials,
    programs,
    flat_grad,
    first_row,
    rows,
    DIM: tl.constexpr,
    CLASSES: tl.constexpr,
    LAYERS: tl.constexpr,
    MIXTURE: tl.constexpr,
    FLOOR: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    PITCH: tl.constexpr,
    SPAN: tl.constexpr,
    TALL: tl.constexpr,
):
    """The gradient of the parameters: the sum of the blocks' parts, and that of the means directly from the latents.

    The first programs sum SPAN columns each; each of the others computes COLUMNS columns of one class's mean.
    """
    SHARED: tl.constexpr = MIXTURE + 2 * CLASSES
    ADDING: tl.constexpr = (SHARED + SPAN - 1) // SPAN
    program = tl.program_id(0)
    if program < ADDING:
        _add_shares(program, partials, programs, flat_grad, SHARED, SPAN, TALL)
    else:
        _mean_gradient(
            program - ADDING,
            flat,
            memory,
            grad_logits,
            logits_row,
            logits_column,
            flat_grad,
            first_row,
            rows,
            DIM,
            CLASSES,
            LAYERS,
            MIXTURE,
            FLOOR,
            COLUMNS,
            WIDTH,
            PITCH,
            TALL,
        )
