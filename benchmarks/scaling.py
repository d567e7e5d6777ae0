"""What a run of many images takes on the host, measured; the tables of docs/scaling.md and docs/large-data.md.

python benchmarks/scaling.py prints the tables, computed from benchmarks/results; with a folder for 6 GB of images it
measures first.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from normatch import recipes
from normatch.data import Corpus, Dataset, HostPool, Split, Stream, digest, draw_split, pool
from normatch.data.dataset import LARGE
from normatch.device import circumstances
from normatch.files import read_json, write_json
from normatch.text import markdown
from normatch.training import prepare
from normatch.training.feed import HostFeed
from normatch.training.job import _statistics
from normatch.training.loop import Loop

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "scaling.json"
BATCH, UNLABELLED, VIEWS = 512, 448, 960
"""Images and views of a step of the paper's: 64 labelled, twice 448 unlabelled."""

IMAGE, TINY = (32, 32, 3), (8, 8, 1)


def spent(work: Callable[[], object]) -> float:
    """CPU seconds, since the machine may be busy."""
    start = time.process_time()
    work()
    return time.process_time() - start


def of_order(n: int) -> dict[str, float]:
    """CPU seconds to begin an epoch, and per step after that."""
    stream = Stream(n, BATCH, 0, "unlabelled")
    first = spent(lambda: stream.rows(0, 1))
    return {"images": n, "begin": first, "step": spent(lambda: [stream.rows(i, 1) for i in range(1, 257)]) / 256}


def of_split(n: int, classes: int) -> dict[str, float]:
    labels = np.arange(n) * classes // n
    names = tuple(map(str, range(classes)))
    data = Corpus("noise", Dataset(np.zeros((n, 0), np.float32), labels, names))
    drawn: list[Split] = []
    seconds = spent(lambda: drawn.append(draw_split(data, 4 * classes, 0)))
    return {"images": n, "classes": classes, "draw": seconds, "store": spent(lambda: drawn[0].to_json())}


def write_images(path: Path, n: int, shape: tuple[int, ...]) -> None:
    """A file of noise that the system has not kept in memory."""
    noise = np.random.default_rng(0).integers(0, 256, (2**14, *shape), dtype=np.uint8)
    with path.open("wb") as file:
        for start in range(0, n, len(noise)):
            noise[: n - start].tofile(file)
        os.fsync(file.fileno())


def mapped(path: Path, n: int, shape: tuple[int, ...], *, cold: bool = False) -> Corpus:
    """The images of a file, sorted by class; if ``cold``, the system drops what it has of the file in memory."""
    if cold:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    images = np.asarray(np.memmap(path, np.uint8, mode="c", shape=(n, *shape)))
    return Corpus("noise", Dataset(images, np.arange(n) * 10 // n, tuple("abcdefghij")))


def of_feed(path: Path, n: int, order: str, steps: tuple[int, int], *, cold: bool) -> dict[str, Any]:
    """Images a second that a feed reads from the file, and what that reads of the disk."""
    vars(pool)["LARGE"] = 0 if order == "blocks" else 2**62
    data = mapped(path, n, IMAGE, cold=cold).train
    feed = HostFeed(HostPool(data), [(Stream(n, BATCH, 0, "unlabelled"), np.arange(n))])
    for step in range(steps[0]):
        feed.prepare(step)
    begin, read = time.perf_counter(), from_disk()
    for step in range(*steps):
        feed.prepare(step)
    images = BATCH * (steps[1] - steps[0])
    rate, read = images / (time.perf_counter() - begin), (from_disk() - read) // images
    feed.close()
    vars(pool)["LARGE"] = LARGE
    found = {"order": order, "from": "disk" if cold else "memory", "images": n}
    return found | {"images_per_second": rate, "disk_bytes_per_image": read}


def from_disk() -> int:
    """Bytes that this process has read from disks."""
    return int(Path("/proc/self/io").read_text().partition("read_bytes:")[2].split()[0])


def own_memory() -> int:
    """Bytes of this process that are no file's."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


def of_memory(path: Path, n: int, method: str) -> dict[str, Any]:
    """Bytes an image of a run whose images are mapped, on the CPU, which has what a GPU would have."""
    config = recipes.digits(labels=40).replace(method=method, test_share=0.0, pool="host")
    before = own_memory()
    corpus = mapped(path, n, TINY)
    loop = Loop(prepare(config, corpus))
    loop.step._prepare()
    loop.step.close()
    return {"method": method, "images": n, "bytes": (own_memory() - before) / n}


def measure(folder: Path) -> None:
    torch.set_num_threads(1)
    tiny, images = folder / "tiny", folder / "images"
    write_images(tiny, 20_000_000, TINY)
    write_images(images, 1_300_000, IMAGE)
    data = mapped(tiny, 20_000_000, TINY)
    report: dict[str, Any] = {
        "what": "the host's part of runs of many images; CPU seconds, but images a second by the clock; a busy machine",
        **circumstances(),
        "order": [of_order(n) for n in (50_000, 1_000_000, LARGE, 100_000_000)],
        "split": [of_split(n, classes) for n, classes in ((1_000_000, 10), (20_000_000, 10), (20_000_000, 1000))],
        "bytes_a_second": {
            "digest": data.train.inputs.nbytes / spent(lambda: digest(data)),
            "statistics": data.train.inputs.nbytes / (20_000_000 // LARGE) / spent(lambda: _statistics(data.train)),
        },
        "memory": [of_memory(tiny, 20_000_000, method) for method in ("fixmatch", "flexmatch")],
        # In the order of a full shuffle as long as little of the file is in memory; by blocks once all lanes have one.
        "feed": [
            of_feed(images, 1_300_000, "full", (0, 16), cold=True),
            of_feed(images, 1_300_000, "blocks", (16, 216), cold=True),
            of_feed(images, 20_000, "blocks", (0, 1000), cold=False),
        ],
        "shuffle": [of_shuffle(order, classes) for classes in (10, 1000) for order in ("full", "blocks")],
    }
    for path in (tiny, images):
        path.unlink()
    write_json(RESULTS, report)


def of_shuffle(order: str, classes: int) -> dict[str, Any]:
    """Data sorted by class: the deviation of a class's share of one batch, and of the mean of 100."""
    n, steps = LARGE + 1, (LARGE + 1) // BATCH // 100 * 100
    drawn = Stream(n, BATCH, 0, "unlabelled").rows(0, steps).numpy()
    if order == "full":
        drawn = np.random.default_rng(0).permutation(n)[: drawn.size].reshape(drawn.shape)
    share = np.stack([(drawn * classes // n == c).mean(1) for c in range(0, classes, classes // 10)])
    of_100 = share.reshape(len(share), -1, 100).mean(2)
    return {"order": order, "classes": classes, "batch": float(share.std()), "of_100": float(of_100.std())}


# The tables


@dataclass(frozen=True)
class Case:
    """A network whose speed on one H200 is known, and what it takes."""

    side: int
    fused: float
    """Measured steps/s of one process."""
    plain: float
    """Those of one process on the plain layers that several processes have."""
    alike: float
    """Milliseconds of a step that all processes spend alike: views, flow, optimisers, average."""
    parameters: int
    features: int
    channels: int
    """Of all batch norms."""

    @property
    def image(self) -> int:
        return 3 * self.side**2

    def steps(self, processes: int) -> float:
        if processes == 1:
            return self.fused
        return 1000 / (self.alike + (1000 / self.plain - self.alike) / processes)

    def traffic(self, processes: int) -> float:
        """Bytes that a process receives in a step."""
        ring = 2 * (processes - 1) / processes
        reduced = 4 * self.parameters + BATCH * self.image
        gathered = 4 * VIEWS * self.features / 2
        norms = 24 * self.channels * (processes - 1)
        return float(ring * (reduced + gathered) + norms)


FREE = 140e9
"""Bytes of an H200."""


def cases() -> tuple[Case, Case]:
    """WRN-28-2 at 32×32, and ResNet-18 at 224×224, computed from its speed at 84×84 by the pixels."""
    found = {case["case"]: case for case in read_json(HERE / "results" / "speed-h200.json")["cases"]}
    small, large = found["cifar10-40-normatch-joint"], found["mini-imagenet-normatch"]
    flow = 1000 / small["steps_per_second"] - 1000 / found["cifar10-40-fixmatch-joint"]["steps_per_second"]

    def alike(case: dict[str, Any], views: float) -> float:
        return float(flow + views + case["parts_ms"]["optimisers"] + case["parts_ms"]["average of weights"])

    views = 1000 * UNLABELLED / 146_767  # benchmarks/results/augment-h200.json
    speed = large["steps_per_second"] * (84 / 224) ** 2
    first = Case(32, small["steps_per_second"], PLAIN, alike(small, small["parts_ms"]["augmentation"]), *WRN)
    return first, Case(224, speed, speed, alike(large, views), *RESNET)


PLAIN = 93.5
"""Steps/s of the first case, compiled and captured on plain layers (NOTES.md)."""

WRN, RESNET = (1_513_454, 128, 1808), (11_345_374, 512, 4800)
"""Parameters of NorMatch with 10 classes, features, channels of all batch norms."""


def rounded(value: float, units: dict[str, float]) -> str:
    """In the largest unit of which there is one at least.

    >>> rounded(1_234_567, BYTES), rounded(5400, TIMES)
    ('1.2 MB', '1.5 h')
    """
    unit, length = next(((u, n) for u, n in reversed(units.items()) if value >= n), next(iter(units.items())))
    return f"{value / length:.{1 if value < 9.95 * length else 0}f} {unit}"


BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
TIMES = {"s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}


def size(n: float) -> str:
    return rounded(n, BYTES)


def row(case: Case, n: int, processes: int, report: dict[str, Any]) -> list[str]:
    part, several = n * case.image / processes, processes > 1
    on_gpu = part <= FREE / 2
    read = report["bytes_a_second"]
    start = n * case.image / read["digest"] + min(n, 2 * LARGE) * case.image / read["statistics"]
    return [
        f"{n:,}",
        f"{processes}",
        size(part) if on_gpu else size(5 * BATCH * case.image),
        "–" if on_gpu else size(min(pool.LANES * pool.BLOCK, n) * case.image),
        size((24 + 8 / processes if several else 16) * n),
        size((16 if on_gpu else (24 if several else 16) + 8 / processes) * n),
        size(8 * (n if n <= LARGE else n / pool.BLOCK)),
        rounded(start, TIMES),
        f"{case.steps(processes):.0f}",
        rounded(n / UNLABELLED / case.steps(processes), TIMES),
        size(case.traffic(processes)) if several else "–",
    ]


def table(report: dict[str, Any]) -> str:
    small, large = cases()
    head = ["images", "GPUs", "images, each GPU", "page cache", "numbers, GPU", "numbers, host", "order", "to read all"]
    rows = [[*head, "steps/s", "epoch", "traffic"]]
    rows += [row(small, n, processes, report) for n in (50_000, 1_000_000, 100_000_000) for processes in (1, 8, 64)]
    last = row(large, 100_000_000, 64, report)
    return markdown([*rows, [f"{last[0]}, 224×224", *last[1:]]])


def shuffles(report: dict[str, Any]) -> str:
    rows = [["data sorted by class", "one batch", "mean of 100 batches"]]
    for found in report["shuffle"]:
        of = [f"{100 * found[key]:.3f}" for key in ("batch", "of_100")]
        rows.append([f"{found['classes']:,} classes, {found['order']}", *of])
    return markdown(rows)


def tables() -> list[str]:
    report = read_json(RESULTS)
    return [table(report), shuffles(report)]


def main() -> None:
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]))
    print(*tables(), sep="\n\n")


if __name__ == "__main__":
    main()
