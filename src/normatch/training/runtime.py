"""How a run is computed: its device, precision and torch settings, and the capture of its step as a CUDA graph."""

import contextlib
import ctypes
import dataclasses
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from normatch.config import Config
from normatch.device import device_of
from normatch.errors import UserError
from normatch.methods import methods
from normatch.text import counted
from normatch.training.distributed import ALONE, World
from normatch.training.torchrun import world

__all__ = ["Runtime", "capture", "compiling"]

LEAST_CAPABILITY = (7, 0)
"""Least compute capability of a GPU for Triton and hence for torch's compiler."""

COMPILED = Path("~/.cache/normatch/compiled")
"""Folder for compiled code, so that later starts are faster than the first."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's ``mallopt``."""

LARGEST_BLOCK = 32 * 1024**2
"""The largest threshold that every glibc accepts; larger tensors are still mapped anew each time. glibc's own, which
grows with the blocks that are freed as long as none is set, ends there too."""

LEAST_WORK = 1e10
"""Least work of a step (images × weights of the backbone × pixels) that is shared by several threads. A step of
digits-40 has 2e9, and a second thread gained 6 % on a quiet machine; one of small-wide on 32 × 32 pixels has 3e10."""


@dataclass(frozen=True)
class Runtime:
    """The resolved values of a config's ``device``, ``precision`` and ``compile``."""

    device: torch.device
    bfloat16: bool
    capture: bool
    """Compile the step and capture it as one CUDA graph."""
    deterministic: bool
    eager_because: str | None = None
    """Why steps are not captured on this GPU although the config allows it; else None."""
    threads: int | None = None
    """Threads on a CPU; None leaves them as they are."""
    world: World = ALONE
    """The processes that train together."""

    @classmethod
    def of(cls, config: Config) -> "Runtime":
        device = device_of(config.device)
        on_gpu = device.type == "cuda"
        bfloat16 = config.precision == "bfloat16"
        if config.precision == "auto":
            bfloat16 = on_gpu and torch.cuda.is_bf16_supported()
        because = _obstacle(config.method) if on_gpu else "steps are captured on a GPU only"
        if because and config.compile == "on":
            raise UserError(f"compile is 'on', but {because}: choose 'auto' or 'off'")
        capture = config.compile != "off" and because is None
        eager_because = because if on_gpu and config.compile != "off" else None
        return cls(device, bfloat16, capture, config.deterministic, eager_because, config.threads, world())

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def describe(self) -> str:
        """The device as far as it decides results: torch has other kernels for other vector instructions."""
        vectors = torch.backends.cpu.get_cpu_capability()
        cpu = f"CPU{'' if vectors == 'DEFAULT' else f' with {vectors}'}"
        threads = counted(self.threads or torch.get_num_threads(), "thread")
        name = torch.cuda.get_device_name() if self.on_gpu else f"{cpu}, {threads}"
        described = f"{name}, {'bfloat16' if self.bfloat16 else 'float32'}{', captured' if self.capture else ''}"
        return described if self.world.size == 1 else f"{described}, {self.world.size} processes with plain layers"

    @property
    def generator(self) -> torch.Generator:
        """The device's default generator: captured graphs follow its seed, and dropout in any backbone uses it."""
        return torch.cuda.default_generators[torch.cuda.current_device()] if self.on_gpu else torch.default_generator

    def seed(self, seed: int) -> None:
        """Seed torch's generators for work outside the steps, which may draw on the host as well as on the device."""
        torch.default_generator.manual_seed(seed)
        self.generator.manual_seed(seed)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16)

    def with_threads(self, work: float) -> "Runtime":
        """The runtime with a number of threads for the ``work`` of a step, unless that is given or it has a GPU.

        Threads of a small network wait for each other most of the time, so it has one. OMP_NUM_THREADS decides if it
        is set, torch otherwise: it takes all cores.
        """
        if self.on_gpu or self.threads is not None:
            return self
        several = work >= LEAST_WORK or "OMP_NUM_THREADS" in os.environ
        return dataclasses.replace(self, threads=torch.get_num_threads() if several else 1)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """A context with torch's settings for this run, whatever the caller's; on exit they are as before."""
        cudnn, device = torch.backends.cudnn, self.device.type
        with contextlib.ExitStack() as undo:
            if not self.on_gpu:
                undo.enter_context(_kept_memory())
            undo.enter_context(torch.random.fork_rng([torch.cuda.current_device()] if self.on_gpu else []))
            undo.enter_context(torch.enable_grad())
            for name, value in self._environment().items():
                if name not in os.environ:
                    os.environ[name] = value
                    undo.callback(os.environ.pop, name, None)
            _compute_exact_products(undo)
            undo.callback(
                torch.use_deterministic_algorithms,
                torch.are_deterministic_algorithms_enabled(),
                warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
            )
            torch.use_deterministic_algorithms(self.deterministic)
            # Off, not an autocast of its own, within which torch would keep weights that the run's has rounded.
            undo.callback(torch.set_autocast_enabled, device, torch.is_autocast_enabled(device))
            torch.set_autocast_enabled(device, False)
            undo.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(self.threads or torch.get_num_threads())
            undo.callback(setattr, cudnn, "benchmark", cudnn.benchmark)
            undo.callback(setattr, cudnn, "allow_tf32", cudnn.allow_tf32)
            cudnn.benchmark, cudnn.allow_tf32 = self.on_gpu and not self.deterministic, False
            yield

    def _environment(self) -> dict[str, str]:
        """The environment variables of the run, where the user has set no others."""
        new = {}
        if self.capture:
            folder = COMPILED.expanduser()
            with contextlib.suppress(OSError):  # else torch's own choice stands, a temporary folder
                folder.mkdir(parents=True, exist_ok=True)
                new["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
        if self.on_gpu and self.deterministic:
            # cuBLAS reads this when it starts; without it torch refuses matrix products in deterministic mode.
            new["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        return new


def _obstacle(method: str) -> str | None:
    """Why steps cannot be compiled and captured, as far as is known beforehand; None if nothing is."""
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) < LEAST_CAPABILITY:
        return f"this GPU's compute capability {major}.{minor} is below {'.'.join(map(str, LEAST_CAPABILITY))}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if not methods.get(method).capturable:
        return f"method {method!r} cannot be captured"
    return None


def _compute_exact_products(undo: contextlib.ExitStack) -> None:
    """Compute matrix products of float32 in float32."""
    # From torch 2.9 on, each library has a switch too; once they differ, torch refuses to read the common one.
    backends: tuple[Any, ...] = (torch.backends.cuda, torch.backends.mkldnn)
    for library in [backend.matmul for backend in backends if hasattr(backend, "matmul")]:
        if hasattr(library, "fp32_precision"):
            undo.callback(setattr, library, "fp32_precision", library.fp32_precision)
    common = "highest"
    with contextlib.suppress(RuntimeError):
        common = torch.get_float32_matmul_precision()
    undo.callback(torch.set_float32_matmul_precision, common)
    torch.set_float32_matmul_precision("highest")


@contextlib.contextmanager
def _kept_memory() -> Iterator[None]:
    """A context in which freed memory stays with the process; on exit, free memory is returned to the system.

    The activations of a step are tensors of several MB. By default glibc returns their memory when they are freed, and
    the next step waits while the system maps and zeroes the same pages again. Without glibc this has no effect.
    """
    libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(MMAP_THRESHOLD, LARGEST_BLOCK)
    libc.mallopt(TRIM_THRESHOLD, 2**30)
    try:
        yield
    finally:
        # Not the value that glibc starts with: once set, it would stay so low.
        libc.mallopt(TRIM_THRESHOLD, 2 * LARGEST_BLOCK)
        libc.malloc_trim(0)


@contextlib.contextmanager
def compiling() -> Iterator[list[str]]:
    """A list that holds, after the block, why code that it compiled is in pieces: torch's reason for each break.

    Within the block torch compiles a step as often as one differs from those before it in this process, instead of
    eight times, after which it would leave the code as it is.
    """
    # Imported where something is compiled: it takes a second.
    from torch._dynamo import config
    from torch._dynamo.utils import counters

    before = Counter(counters["graph_break"])
    reasons: list[str] = []
    with config.patch(recompile_limit=config.accumulated_recompile_limit):
        yield reasons
    reasons += [reason.splitlines()[0] for reason in Counter(counters["graph_break"]) - before]


def capture(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Record one call of ``work`` as a graph, without executing it; ``work`` must have run before.

    If it cannot be recorded, its error is raised, and torch's state is as before the attempt.
    """
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        # thread_local: the background thread of a feed may synchronise meanwhile, which must not break the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
    except Exception as error:
        # A failed capture leaves its stream current and, in some versions of torch, the generator in capturing state,
        # which a successful capture ends.
        torch.cuda.set_stream(stream)
        torch.cuda.synchronize()
        one = torch.zeros(1, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            one.add_(1)
        # Ending a failed capture raises another error, which hides the first.
        raise error.__context__ or error from None
    return graph
