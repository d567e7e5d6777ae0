"""The training passes of a wide residual network: one operator forward, one backward.

Autograd would save, read and write each activation several times more than needed, in hundreds of kernels; here every
pass over memory is explicit. The reference is :class:`~normatch.nets.wide_resnet.WideResNet`; unlike its layers,
these kernels sum up batch statistics while the values are written. As there, only the first ``learning`` images are
back-propagated, while the statistics are those of all images.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normatch.kernels import operations as op

__all__ = ["Layout", "wide_resnet"]


class Block(NamedTuple):
    """The properties of a residual block of two normalisations and two convolutions."""

    stride: int
    shortcut: bool
    """Whether the shortcut is a convolution."""
    activated: bool
    """Whether the shortcut starts after the first activation."""


Layout = list[int]
"""The blocks of a network as plain numbers, three per block, as the signature of a custom operator requires."""


def _blocks(layout: Layout) -> list[Block]:
    return [Block(layout[i], bool(layout[i + 1]), bool(layout[i + 2])) for i in range(0, len(layout), 3)]


def _norm(parameters: Iterator[Tensor], eps: float, slope: float) -> op.Norm:
    return op.Norm(next(parameters), next(parameters), eps, slope)


@torch.library.custom_op("normatch::wide_resnet", mutates_args=())
def _forward(
    images: Tensor,
    norms: list[Tensor],
    weights: list[Tensor],
    layout: list[int],
    dtype: torch.dtype,
    learning: int,
    eps: float,
    slope: float,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Features (N, D) float32; the tables of all normalisations; activations that the backward pass needs.

    ``norms`` are γ and β in the order of use, ``weights`` those of the convolutions: the stem, then each block's first,
    second and, if it has one, shortcut. ``learning`` affects the gradient only.
    """
    convolutions = iter([weights[0], *_cast(weights[1:], dtype)])
    parameters = iter(norms)
    tables: list[Tensor] = []
    saved: list[Tensor] = []
    x, sums = op.stem(images, next(convolutions), dtype)
    for block in _blocks(layout):
        first, second = _norm(parameters, eps, slope), _norm(parameters, eps, slope)
        table = op.norm_table(sums, first)
        a = op.normalise(x, table, slope)
        y, sums = _with_sums(a, next(convolutions), block.stride, None)
        tables += [table, op.norm_table(sums, second)]
        b = op.normalise(y, tables[-1], slope)
        weight = next(convolutions)
        shortcut = a if block.activated else x
        if block.shortcut:
            shortcut = op.convolve(shortcut, next(convolutions), block.stride, None, False)[0]
        saved += [x, a, y, b]
        x, sums = _with_sums(b, weight, 1, shortcut)
    last = _norm(parameters, eps, slope)
    tables.append(op.norm_table(sums, last))
    saved.append(x)
    return op.pooled(x, tables[-1], slope), tables, saved


def _with_sums(x: Tensor, weight: Tensor, stride: int, add: Tensor | None) -> tuple[Tensor, op.Sums]:
    y, sums = op.convolve(x, weight, stride, add, sums=True)
    assert sums is not None
    return y, sums


def _cast(weights: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    flat = torch.cat([w.permute(0, 2, 3, 1).reshape(-1) for w in weights]).to(dtype)
    pieces = flat.split([w.numel() for w in weights])
    return [
        piece.view(w.shape[0], w.shape[2], w.shape[3], w.shape[1]).permute(0, 3, 1, 2)
        for piece, w in zip(pieces, weights, strict=True)
    ]


@torch.library.custom_op("normatch::wide_resnet_gradient", mutates_args=())
def _gradient(
    g: Tensor,
    images: Tensor,
    norms: list[Tensor],
    weights: list[Tensor],
    tables: list[Tensor],
    saved: list[Tensor],
    layout: list[int],
    learning: int,
    eps: float,
    slope: float,
) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of ``norms`` and ``weights``, from the gradient ``g`` of the first ``learning`` features."""
    dtype = saved[0].dtype
    blocks = _blocks(layout)
    kept = [s[:learning] for s in saved]
    cast_weights = _cast(weights[1:], dtype)
    whole = learning == len(images)

    norm_gradients: list[Tensor] = []
    weight_gradients: list[Tensor] = []
    at_norm, at_weight = len(norms), len(cast_weights)

    def through_norm(g: Tensor, i: int, add: Tensor | None = None) -> Tensor:
        """Back-propagate through the normalisation whose input is saved[i]; to be called in reverse order of use."""
        nonlocal at_norm
        at_norm -= 2
        norm = op.Norm(norms[at_norm], norms[at_norm + 1], eps, slope)
        gx, g_weight, g_bias = op.norm_gradient(g, kept[i], tables[at_norm // 2], norm, whole, add)
        norm_gradients.extend((g_bias, g_weight))
        return gx

    aside = op.Aside(g.device)

    def append_weight_gradient(g: Tensor, x: Tensor, i: int, stride: int) -> None:
        """Compute the weight gradient of the i-th convolution after the stem."""

        def work(g: Tensor, x: Tensor) -> Tensor:
            return _like(op.weight_gradient(g, x, cast_weights[i], stride), weights[i + 1])

        weight_gradients.append(aside.run(work, g, x))

    g = through_norm(g[:learning].contiguous(), len(saved) - 1)
    for k, block in reversed(list(enumerate(blocks))):
        x, a, _, b = kept[4 * k : 4 * k + 4]
        at_weight -= 3 if block.shortcut else 2
        first, second = cast_weights[at_weight : at_weight + 2]
        past = g
        if block.shortcut:
            source = a if block.activated else x
            append_weight_gradient(g, source, at_weight + 2, block.stride)
            past = op.input_gradient(g, source, cast_weights[at_weight + 2], block.stride)
        # The shortcut's gradient is added before (if it starts after it) or after the block's first activation.
        inside, outside = (past, None) if block.activated else (None, past)
        append_weight_gradient(g, b, at_weight + 1, 1)
        gy = through_norm(op.input_gradient(g, b, second, 1), 4 * k + 2)
        append_weight_gradient(gy, a, at_weight, block.stride)
        g = through_norm(op.input_gradient(gy, a, first, block.stride, inside), 4 * k, outside)
    weight_gradients.append(_like(op.stem_weight_gradient(g, images[:learning].contiguous()), weights[0]))
    aside.join()
    return norm_gradients[::-1], weight_gradients[::-1]


def _like(gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient in the memory layout of its weight."""
    return gradient if gradient.stride() == weight.stride() else torch.empty_like(weight).copy_(gradient)


@_forward.register_fake
def _(
    images: Tensor,
    norms: list[Tensor],
    weights: list[Tensor],
    layout: list[int],
    dtype: torch.dtype,
    learning: int,
    eps: float,
    slope: float,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    n, _, height, width = images.shape
    convolutions = iter(weights)
    saved = [images.new_empty((n, height, width, next(convolutions).shape[0]), dtype=dtype)]
    for block in _blocks(layout):
        outputs = next(convolutions).shape[0]
        height, width = -(-height // block.stride), -(-width // block.stride)
        saved.append(torch.empty_like(saved[-1]))
        saved += [images.new_empty((n, height, width, outputs), dtype=dtype) for _ in range(3)]
        next(convolutions)
        if block.shortcut:
            next(convolutions)
    tables = [images.new_empty((5, w.numel()), dtype=torch.float32) for w in norms[::2]]
    return images.new_empty((n, norms[-1].numel()), dtype=torch.float32), tables, saved


@_gradient.register_fake
def _(
    g: Tensor,
    images: Tensor,
    norms: list[Tensor],
    weights: list[Tensor],
    tables: list[Tensor],
    saved: list[Tensor],
    layout: list[int],
    learning: int,
    eps: float,
    slope: float,
) -> tuple[list[Tensor], list[Tensor]]:
    return [torch.empty_like(w) for w in norms], [torch.empty_like(w) for w in weights]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, list[Tensor], list[Tensor]]) -> None:
    images, norms, weights, ctx.layout, _, *ctx.numbers = inputs
    _, tables, saved = output
    ctx.lengths = [len(norms), len(weights), len(tables), len(saved)]
    ctx.save_for_backward(images, *norms, *weights, *tables, *saved)
    ctx.set_materialize_grads(False)  # else zero gradients would be allocated for tables and saved, which have none


def _backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Any, ...]:
    images, *rest = ctx.saved_tensors
    pieces = iter(rest)
    norms, weights, tables, saved = (list(itertools.islice(pieces, n)) for n in ctx.lengths)
    g_norms, g_weights = _gradient(g, images, norms, weights, tables, saved, ctx.layout, *ctx.numbers)
    return None, g_norms, g_weights, None, None, None, None, None


_forward.register_autograd(_backward, setup_context=_remember)


def wide_resnet(
    images: Tensor,
    norms: list[nn.BatchNorm2d],
    weights: list[Tensor],
    layout: Layout,
    dtype: torch.dtype,
    slope: float,
    learning: int | None = None,
) -> Tensor:
    """Features (N, D) of normalised images (N, C, H, W) in training mode; updates the running statistics.

    Arguments:
        images: float32, planar in memory.
        norms: All batch normalisations in the order of use.
        weights: Those of the convolutions: the stem, then each block's first, second and, if it has one, shortcut.
        layout: The blocks.
        dtype: The precision of activations and products; sums are float32.
        slope: The slope of the leaky ReLU after each normalisation.
        learning: Only the first that many images are back-propagated; None is all of them.
    """
    parameters = [p for norm in norms for p in (norm.weight, norm.bias)]
    count = len(images) if learning is None else learning
    features: Tensor
    features, tables, _ = _forward(
        images.float().contiguous(), parameters, weights, layout, dtype, count, norms[0].eps, slope
    )
    with torch.no_grad():
        momentum = norms[0].momentum
        assert momentum is not None
        running: list[Any] = [norm.running_mean for norm in norms] + [norm.running_var for norm in norms]
        torch._foreach_lerp_(running, [t[0] for t in tables] + [t[4] for t in tables], momentum)
    return features
