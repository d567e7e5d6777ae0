"""Training by several processes: each takes its share of every batch through the backbone.

All processes draw the same batch and the same views, and compute heads, losses and a method's state on all of it, from
features that they exchange. So whatever a method keeps between steps is that of one process, and it need not know of
others. Only the backbone, the heavy part, sees a share; so does each process's memory of the images.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from normatch.config import Config
from normatch.data import Dataset, HostPool, Pool
from normatch.data.pool import Indices
from normatch.errors import UserError
from normatch.nets.model import Model
from normatch.nets.norm import synchronise

__all__ = ["ALONE", "Part", "PoolOf", "World"]

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among those that train together: number ``rank`` of ``size``. It is the share of a batch (see
    :class:`normatch.nets.norm.Share`): the samples ``rank``, ``rank + size``, and so on."""

    rank: int = 0
    size: int = 1
    joined: bool = False
    """Whether torch.distributed connects the processes, perhaps only this one."""

    @property
    def first(self) -> bool:
        """Whether it is the one that writes files and speaks to the user."""
        return self.rank == 0

    def must_share(self, config: Config) -> None:
        """Raise UserError unless a batch can be shared evenly."""
        if rest := config.batch % self.size:
            less = config.batch - rest
            raise UserError(
                f"batch is {config.batch}, which {self.size} processes cannot share evenly: give --batch "
                f"{f'{less} or ' if less else ''}{less + self.size}"
            )

    def share(self, model: Model) -> None:
        """Let the model take this process's samples through its backbone; by itself, it takes all."""
        if self.size > 1:
            model.share = self
            model.backbone.plain = True  # the fused kernels sum up the statistics of their own samples
            synchronise(model.backbone, self)

    def take(self, x: Tensor) -> Tensor:
        return _apply(_Take, x, self.rank, self.size)

    def gather(self, z: Tensor) -> Tensor:
        return _apply(_Gather, z, self.rank, self.size)

    def each(self, x: Tensor) -> Tensor:
        return _apply(_Each, x, self.rank, self.size)

    def average_gradients(self, params: Iterable[nn.Parameter]) -> None:
        """The mean over the processes of each gradient. Of heads all have the same, unless rounded differently: so the
        copies never drift apart. Of the backbone each has its share, ``size`` times: see :class:`_Gather`."""
        if not self.joined:
            return
        trained = [(p, p.grad) for p in params if p.grad is not None]
        # In the order of memory, which need not be that of a layout, so that concatenating is the only copy.
        flat = torch.cat([g.as_strided((g.numel(),), (1,)) for _, g in trained])
        dist.all_reduce(flat)
        if self.size > 1:
            flat /= self.size
        parts = flat.split([g.numel() for _, g in trained])
        for (p, g), part in zip(trained, parts, strict=True):
            p.grad = part.as_strided(g.shape, g.stride())

    def copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Give all processes the tensors of the first, in place: on a GPU sums may be rounded differently, and what
        methods keep could drift apart."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor, 0)

    def total(self, x: Tensor) -> Tensor:
        """The sum over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(x)
        return x

    def any(self, flag: bool) -> bool:
        """Whether ``flag`` holds in any process."""
        return self.largest(float(flag)) > 0

    def least(self, value: float) -> float:
        """The least ``value`` of all processes, such as the free memory of their GPUs."""
        return -self.largest(-value)

    def largest(self, value: float) -> float:
        """The largest ``value`` of all processes, such as the time of the slowest."""
        if self.size == 1:
            return value
        found = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return float(found)

    def led(self, action: Callable[[], T]) -> T:
        """What ``action`` returns in the first process, which alone calls it; all raise its UserError."""
        if self.size == 1:
            return action()
        answer: list[Any] = [None, None]
        if self.first:
            try:
                answer[0] = action()
            except UserError as error:
                answer[1] = str(error)
        dist.broadcast_object_list(answer, 0, device=torch.device("cpu"))
        if answer[1] is not None:
            raise UserError(answer[1])
        found: T = answer[0]
        return found


ALONE = World()

# What the model does with a batch. Tensors that all processes have, such as features and losses, have their true
# gradients; those of a share, `size` times theirs, so that the mean over processes is the gradient of a parameter.
# The two communicating operators are opaque to torch's compiler, which neither moves nor repeats them.

_gather_into = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name until torch 2.12


@torch.library.custom_op("normatch::all_gather", mutates_args=())
def _all_gather(x: Tensor, size: int) -> Tensor:
    out = x.new_empty(size * x.numel())
    _gather_into(out, x.reshape(-1))
    return out.view(size, *x.shape)


@torch.library.custom_op("normatch::all_reduce", mutates_args=())
def _all_reduce(x: Tensor) -> Tensor:
    out = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(out)
    return out


@_all_gather.register_fake
def _(x: Tensor, size: int) -> Tensor:
    return x.new_empty(size, *x.shape)


@_all_reduce.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _apply(function: Any, x: Tensor, rank: int, size: int) -> Tensor:
    found: Tensor = function.apply(x, rank, size)
    return found


class _Function(torch.autograd.Function):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.rank, ctx.size = inputs


class _Take(_Function):
    # Where torch compiles a torch.func.grad, as VAT's, it takes the gradient of forward instead: that of this process's
    # samples, `size` times. It is all that VAT needs, which has a direction for each sample, of a length of its own.
    @staticmethod
    def forward(x: Tensor, rank: int, size: int) -> Tensor:
        return x[rank::size].clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _apply(_Gather, g, ctx.rank, ctx.size) / ctx.size, None, None


class _Gather(_Function):
    @staticmethod
    def forward(z: Tensor, rank: int, size: int) -> Tensor:
        everyone: Tensor = _all_gather(z, size)
        return everyone.transpose(0, 1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _apply(_Take, g, ctx.rank, ctx.size) * ctx.size, None, None


class _Each(_Function):
    @staticmethod
    def forward(x: Tensor, rank: int, size: int) -> Tensor:
        everyone: Tensor = _all_gather(x, size)
        return everyone

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _apply(_Sum, g, ctx.rank, ctx.size)[ctx.rank], None, None


class _Sum(_Function):
    @staticmethod
    def forward(x: Tensor, rank: int, size: int) -> Tensor:
        total: Tensor = _all_reduce(x)
        return total

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _apply(_Sum, g, ctx.rank, ctx.size), None, None


PoolOf = Callable[[Dataset, slice], Pool | HostPool]
"""Makes a pool of a part of a data set, given the rows that it is."""


class Part:
    """A pool of which each process holds every size-th sample; ``labels`` (N,) are those of all."""

    def __init__(self, pool_of: PoolOf, dataset: Dataset, world: World) -> None:
        self.world = world
        own = slice(world.rank, None, world.size)
        self.own = pool_of(dataset.view(np.arange(len(dataset))[own]), own)
        """The samples of this process."""
        self.labels = torch.from_numpy(dataset.labels.copy()).to(self.own.device)
        self._row = torch.full_like(self.labels, -1)
        self._row[own] = torch.arange(len(self.own), device=self.own.device)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def gather(self, index: Tensor) -> Tensor:
        """The inputs at the positions ``index`` (B,), in all processes: a sum of which all but one have zeros."""
        assert isinstance(self.own, Pool)
        row = self._row[index]
        inputs = self.own.gather(row.clamp_min(0))
        inputs = inputs.masked_fill((row < 0).view(-1, *[1] * (inputs.ndim - 1)), 0)
        return self.world.total(inputs)

    @property
    def rows(self) -> NDArray[np.int64]:
        """(N,) the row of each sample in ``own``; −1 of those of other processes."""
        rows: NDArray[np.int64] = self._row.cpu().numpy()
        return rows

    def subset(self, indices: Indices) -> "Part":
        """A pool of the samples at ``indices``, in that order."""
        index = torch.as_tensor(indices, dtype=torch.int64).to(self.device)
        part, row = copy.copy(self), self._row[index]
        own = row >= 0
        part.own, part.labels = self.own.subset(row[own]), self.labels[index]
        part._row = torch.where(own, own.cumsum(0) - 1, -1)
        return part

    def of_all(self, own: Tensor) -> Tensor:
        """(N, …) for all samples, in order, from what each process has of its own."""
        found = own.new_zeros(len(self), *own.shape[1:])
        found[self._row >= 0] = own
        return self.world.total(found)
