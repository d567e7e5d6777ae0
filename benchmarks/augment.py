"""How fast views are made: the 960 of one step, and strong views a second beside Pillow's and torchvision's.

python benchmarks/augment.py --out FILE measures on the machine it runs on, prints a table and writes FILE.
"""

import argparse
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from normatch.augment import Views
from normatch.data import Dataset, Pool
from normatch.device import circumstances
from normatch.files import write_json
from normatch.training.runtime import capture

LABELLED, BATCH = 64, 448
"""Labelled and unlabelled images of a CIFAR-10 step."""

POOL = 50_000
SIDES = (32, 96, 224)
CHUNK = 64
"""Images that a process makes and hands over at once."""

Picture = Image.Image


# Pillow: FixMatch's policy as its PyTorch version has it, one image at a time.


def _affine(image: Picture, *matrix: float) -> Picture:
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


def _enhancer(kind: Callable[[Picture], ImageEnhance._Enhance]) -> Callable[[Picture, int], Picture]:
    return lambda image, strength: kind(image).enhance(strength * 0.9 / 10 + 0.05)


def _share(strength: int) -> float:
    """Up to 0.3, to either side."""
    return random.choice((1, -1)) * strength * 0.3 / 10


OPS: tuple[Callable[[Picture, int], Picture], ...] = (
    lambda image, strength: ImageOps.autocontrast(image),
    _enhancer(ImageEnhance.Brightness),
    _enhancer(ImageEnhance.Color),
    _enhancer(ImageEnhance.Contrast),
    lambda image, strength: ImageOps.equalize(image),
    lambda image, strength: image,
    lambda image, strength: ImageOps.posterize(image, int(strength * 4 / 10) + 4),
    lambda image, strength: image.rotate(random.choice((1, -1)) * int(strength * 30 / 10)),
    _enhancer(ImageEnhance.Sharpness),
    lambda image, strength: _affine(image, 1, _share(strength), 0, 0, 1, 0),
    lambda image, strength: _affine(image, 1, 0, 0, _share(strength), 1, 0),
    lambda image, strength: ImageOps.solarize(image, 256 - int(strength * 256 / 10)),
    lambda image, strength: _affine(image, 1, 0, int(_share(strength) * image.width), 0, 1, 0),
    lambda image, strength: _affine(image, 1, 0, 0, 0, 1, int(_share(strength) * image.height)),
)


def pillow_strong(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Flip, crop of the reflected border, two of 14 ops with p = ½, a grey hole of half the side."""
    side = image.shape[0]
    pad, hole = side // 8, side // 2
    if random.random() < 0.5:
        image = image[:, ::-1]
    top, left = random.randint(0, 2 * pad), random.randint(0, 2 * pad)
    padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
    picture = Image.fromarray(np.ascontiguousarray(padded[top : top + side, left : left + side]))
    for op in random.choices(OPS, k=2):
        strength = random.randrange(1, 10)
        if random.random() < 0.5:
            picture = op(picture, strength)
    result = np.array(picture)
    y, x = random.randrange(side) - hole // 2, random.randrange(side) - hole // 2
    result[max(0, y) : y + hole, max(0, x) : x + hole] = 127
    return result


def pillow_chunk(seed: int) -> NDArray[np.uint8]:
    return np.stack([pillow_strong(image) for image in _noise(CHUNK, 32, seed)])


# torchvision: its own RandAugment, which draws other ops and strengths, with the same crop, flip and hole.


def _torchvision_version() -> str | None:
    """None where it cannot be used; the reason is printed."""
    try:
        import torchvision
    except (ImportError, RuntimeError) as error:  # RuntimeError: it was built for another torch
        print(f"without torchvision ({error})")
        return None
    return str(torchvision.__version__)


def _torchvision_strong() -> Callable[[Tensor], Tensor]:
    from torchvision.transforms import v2

    transform: Callable[[Tensor], Tensor] = v2.Compose(
        [
            v2.RandomHorizontalFlip(),
            v2.RandomCrop(32, padding=4, padding_mode="reflect"),
            v2.RandAugment(num_ops=2, magnitude=9),
            v2.RandomErasing(p=1.0, scale=(0.25, 0.25), ratio=(1.0, 1.0), value=127),
        ]
    )
    return transform


def torchvision_chunk(seed: int) -> NDArray[np.uint8]:
    torch.set_num_threads(1)
    strong = _torchvision_strong()
    images = torch.from_numpy(_noise(CHUNK, 32, seed)).permute(0, 3, 1, 2).contiguous()
    return torch.stack([strong(image) for image in images]).numpy()


# The measurements.


def in_processes(work: Callable[[int], NDArray[np.uint8]], processes: int, repeats: int, seconds: float) -> list[float]:
    """Images a second that a pool of processes makes and hands over to this one, as a data loader does."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        chunks = 4 * processes
        pool.map(work, range(chunks))  # Each process imports what it needs.
        start = time.perf_counter()
        pool.map(work, range(chunks))
        chunks = max(chunks, round(chunks * seconds / (time.perf_counter() - start)))
        rates = []
        for _ in range(repeats):
            start = time.perf_counter()
            for _made in pool.imap_unordered(work, range(chunks)):
                pass
            rates.append(chunks * CHUNK / (time.perf_counter() - start))
    return rates


def on_device(work: Callable[[], object], device: torch.device, repeats: int, seconds: float) -> list[float]:
    """Seconds of one call, captured on a GPU."""
    for _ in range(3 if device.type == "cuda" else 1):
        work()
    action = capture(work).replay if device.type == "cuda" else work
    count = max(1, round(seconds / _seconds(action, 1, device)))
    return [_seconds(action, count, device) for _ in range(repeats)]


def _seconds(action: Callable[[], object], count: int, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        action()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def step_views(device: torch.device, repeats: int, seconds: float) -> dict[str, Any]:
    """Milliseconds of one cifar10-40 step's views: 64 weak, and 448 weak and strong, gathered from all images."""
    pool = Pool(Dataset(_noise(POOL, 32, 0), np.arange(POOL) % 10, tuple(map(str, range(10)))), device)
    view = _maker(Views((3, 32, 32)), device)

    def work() -> list[Tensor]:
        at = torch.randint(POOL, (LABELLED + BATCH,), device=device)
        labelled, unlabelled = pool.gather(at[:LABELLED]), pool.gather(at[LABELLED:])
        return [view("weak", labelled), view("weak", unlabelled), view("strong", unlabelled)]

    times = [1000 * s for s in on_device(work, device, repeats, seconds)]
    return {"views": LABELLED + 2 * BATCH, "pool": POOL, "ms": statistics.median(times), "repeats": times}


def _maker(views: Views, device: torch.device) -> Callable[[str, Tensor], Tensor]:
    """Makes a view as the training step does: numbers drawn from the device's own generator, then compiled code."""
    cuda = device.type == "cuda"
    generator = torch.cuda.default_generators[torch.cuda.current_device()] if cuda else torch.default_generator

    make = torch.compile(views.make, dynamic=False) if cuda else views.make
    return lambda kind, images: make(images, views.numbers(kind, len(images), generator, device))


def ours(side: int, batch: int, device: torch.device, repeats: int, seconds: float) -> list[float]:
    view = _maker(Views((3, side, side)), device)
    images = torch.from_numpy(_noise(batch, side, 0)).permute(0, 3, 1, 2).contiguous().to(device)
    return [batch / s for s in on_device(lambda: view("strong", images), device, repeats, seconds)]


def torchvision_batch(batch: int, device: torch.device, repeats: int, seconds: float) -> list[float]:
    strong = _torchvision_strong()
    images = torch.from_numpy(_noise(batch, 32, 0)).permute(0, 3, 1, 2).contiguous().to(device)
    once = _seconds(lambda: strong(images), 5, device)
    count = max(20, round(seconds / once))  # Enough draws that slow and quick ops both come up.
    return [batch / _seconds(lambda: strong(images), count, device) for _ in range(repeats)]


def _noise(n: int, side: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--processes", type=int, default=16, help="of Pillow and of torchvision image by image")
    parser.add_argument("--batch", type=int, default=BATCH, help="images that are made at once")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a timing, about")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []

    def add(who: str, side: int, rates: list[float]) -> None:
        rows.append({"who": who, "side": side, "images_per_second": statistics.median(rates), "repeats": rates})
        print(f"{who:<58} {side:>3}² {statistics.median(rates):>14,.0f} images/s", flush=True)

    limits = {"repeats": given.repeats, "seconds": given.seconds}
    # Processes first, while nothing else of this process runs.
    add(f"Pillow, {given.processes} processes", 32, in_processes(pillow_chunk, given.processes, **limits))
    torchvision = _torchvision_version()
    if torchvision:
        rates = in_processes(torchvision_chunk, given.processes, **limits)
        add(f"torchvision v2 image by image, {given.processes} processes", 32, rates)
    kind = given.device if given.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(kind)
    if torchvision:
        rates = torchvision_batch(given.batch, device, **limits)
        add(f"torchvision v2 on {kind}, one draw for a batch of {given.batch}", 32, rates)
    for side in SIDES:
        add(
            f"normatch on {kind}, a draw for each of a batch of {given.batch}",
            side,
            ours(side, given.batch, device, **limits),
        )
    step = step_views(device, **limits)
    print(f"the {step['views']} views of a cifar10-40 step, from {POOL:,} images: {step['ms']:.3f} ms")
    if given.out:
        head = circumstances()
        head["versions"] |= {"pillow": PIL.__version__} | ({"torchvision": torchvision} if torchvision else {})
        what = "strong views (weak view, RandAugment, cutout) a second of noise; a step's views in milliseconds"
        write_json(given.out, {"what": what, **head, "step": step, "strong": rows})


if __name__ == "__main__":
    main()
