"""How fast views are made: the 960 of one step, and strong views a second beside Pillow's and torchvision's.

python benchmarks/augment.py --out FILE measures on the machine it runs on, prints a table and writes FILE.
"""

import argparse
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor
from torch.utils.benchmark import Timer

from normatch.augment import Views
from normatch.data import Dataset, Pool
from normatch.device import circumstances
from normatch.files import write_json
from normatch.training.runtime import capture

LABELLED, BATCH = 64, 448
"""Labelled and unlabelled images of a CIFAR-10 step."""

POOL = 50_000
CHUNK = 64
"""Images that a process makes and hands over at once."""
REPEATS = 5

Picture = Image.Image


def noise(n: int, side: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def tensor(n: int, side: int, seed: int) -> Tensor:
    return torch.from_numpy(noise(n, side, seed)).permute(0, 3, 1, 2).contiguous()


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
    return np.stack([pillow_strong(image) for image in noise(CHUNK, 32, seed)])


# torchvision: its own RandAugment, which draws other ops and strengths, with the same crop, flip and hole.


def torchvision_strong() -> Callable[[Tensor], Tensor]:
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
    strong = torchvision_strong()
    return torch.stack([strong(image) for image in tensor(CHUNK, 32, seed)]).numpy()


# The measurements.


def in_processes(work: Callable[[int], NDArray[np.uint8]], processes: int) -> list[float]:
    """Images a second that a pool of processes makes and hands over to this one, as a data loader does."""
    chunks, rates = 32 * processes, []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.map(work, range(processes))  # Each process imports what it needs.
        for _ in range(REPEATS):
            start = time.perf_counter()
            for _made in pool.imap_unordered(work, range(chunks)):
                pass
            rates.append(chunks * CHUNK / (time.perf_counter() - start))
    return rates


def seconds(work: Callable[[], object], device: torch.device, *, captured: bool = True) -> list[float]:
    """Seconds of one call, captured on a GPU."""
    for _ in range(3):
        work()
    action = capture(work).replay if device.type == "cuda" and captured else work
    timer = Timer("action()", globals={"action": action}, num_threads=torch.get_num_threads())
    return [timer.blocked_autorange(min_run_time=1.0).median for _ in range(REPEATS)]


def maker(views: Views, device: torch.device) -> Callable[[str, Tensor], Tensor]:
    """Makes a view as the training step does: numbers drawn from the device's own generator, then compiled code."""
    cuda = device.type == "cuda"
    generator = torch.cuda.default_generators[torch.cuda.current_device()] if cuda else torch.default_generator
    make = torch.compile(views.make, dynamic=False) if cuda else views.make
    return lambda kind, images: make(images, views.numbers(kind, len(images), generator, device))


def step_views(device: torch.device) -> dict[str, Any]:
    """Milliseconds of one cifar10-40 step's views: 64 weak, and 448 weak and strong, gathered from all images."""
    pool = Pool(Dataset(noise(POOL, 32, 0), np.arange(POOL) % 10, tuple(map(str, range(10)))), device)
    view = maker(Views((3, 32, 32)), device)

    def work() -> list[Tensor]:
        at = torch.randint(POOL, (LABELLED + BATCH,), device=device)
        labelled, unlabelled = pool.gather(at[:LABELLED]), pool.gather(at[LABELLED:])
        return [view("weak", labelled), view("weak", unlabelled), view("strong", unlabelled)]

    times = [1000 * s for s in seconds(work, device)]
    return {"views": LABELLED + 2 * BATCH, "pool": POOL, "ms": statistics.median(times), "repeats": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--processes", type=int, default=16, help="of Pillow and of torchvision image by image")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[dict[str, Any]] = []

    def add(who: str, side: int, rates: list[float]) -> None:
        rows.append({"who": who, "side": side, "images_per_second": statistics.median(rates), "repeats": rates})
        print(f"{who:<58} {side:>3}² {statistics.median(rates):>14,.0f} images/s", flush=True)

    head = circumstances()
    head["versions"]["pillow"] = PIL.__version__
    add(f"Pillow, {given.processes} processes", 32, in_processes(pillow_chunk, given.processes))
    try:
        import torchvision
    except (ImportError, RuntimeError) as error:  # RuntimeError: it was built for another torch
        print(f"without torchvision ({error})")
    else:
        head["versions"]["torchvision"] = torchvision.__version__
        rates = in_processes(torchvision_chunk, given.processes)
        add(f"torchvision v2 image by image, {given.processes} processes", 32, rates)
        strong, batch = torchvision_strong(), tensor(BATCH, 32, 0).to(device)
        rates = [BATCH / s for s in seconds(lambda: strong(batch), device, captured=False)]
        add(f"torchvision v2 on {device}, one draw for a batch of {BATCH}", 32, rates)
    for side in (32, 96, 224):
        view, images = maker(Views((3, side, side)), device), tensor(BATCH, side, 0).to(device)
        rates = [BATCH / s for s in seconds(partial(view, "strong", images), device)]
        add(f"normatch on {device}, a draw for each of a batch of {BATCH}", side, rates)
    step = step_views(device)
    print(f"the {step['views']} views of a cifar10-40 step, from {POOL:,} images: {step['ms']:.3f} ms")
    what = "strong views (weak view, RandAugment, cutout) a second of noise; a step's views in milliseconds"
    write_json(given.out, {"what": what, **head, "step": step, "strong": rows})


if __name__ == "__main__":
    main()
