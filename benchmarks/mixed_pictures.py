"""A folder of pictures as people have them: of many sizes and modes, few with labels, some broken, some there twice.

python benchmarks/mixed_pictures.py FOLDER [COUNT] makes it from scikit-learn's handwritten digits, always the same.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LABELLED, TEST = 10, 20
"""Labelled and test pictures of each class."""


def draw(digit: np.ndarray[tuple[int, int], np.dtype[np.float64]], rng: np.random.Generator) -> Image.Image:
    """The digit, a little turned, on a dark ground of any size."""
    height = int(rng.integers(24, 160))
    width = int(height * rng.uniform(0.8, 1.25))
    side = int(min(width, height) * rng.uniform(0.8, 1.0))
    picture = Image.fromarray((digit * 15.9).astype(np.uint8)).resize((side, side), Image.Resampling.BICUBIC)
    ground = Image.new("L", (width, height))
    turned = picture.rotate(rng.uniform(-8, 8), Image.Resampling.BILINEAR)
    ground.paste(turned, ((width - side) // 2, (height - side) // 2))
    return ground


def save(picture: Image.Image, stem: Path, kind: int) -> Path:
    """One of eight ways to store it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    deep = Image.fromarray(np.asarray(picture).astype(np.uint16) * 257)
    turned = picture.transpose(Image.Transpose.ROTATE_90).convert("RGB")
    path = stem.with_suffix((".png", ".jpg", ".png", ".png", ".gif", ".tif", ".png", ".jpg")[kind])
    if kind == 7:
        turned.save(path, exif=exif)
    else:
        (
            picture,
            picture.convert("RGB"),
            picture.convert("RGBA"),
            picture.convert("LA"),
            picture.convert("P"),
            picture.convert("CMYK"),
            deep,
        )[kind].save(path)
    return path


def write_pictures(folder: Path, count: int = 3000) -> None:
    digits, rng = load_digits(), np.random.default_rng(0)
    n, seen = len(digits.target), [0] * 10
    # From the second round on only digits without a label come again: none is in train and test.
    again = [i for i in range(n) if (digits.target[:i] == digits.target[i]).sum() >= LABELLED + TEST]
    for i, at in enumerate([*range(n), *again, *again][:count]):
        label = int(digits.target[at])
        seen[label] += 1
        place = "train/unlabeled"
        if seen[label] <= LABELLED + TEST:
            place = f"{'train' if seen[label] <= LABELLED else 'test'}/{NAMES[label]}"
        (folder / place).mkdir(parents=True, exist_ok=True)
        save(draw(digits.images[at], rng), folder / place / f"{i:04}", i % 8)
    unlabelled = folder / "train" / "unlabeled"
    (unlabelled / "empty.jpg").write_bytes(b"")
    (unlabelled / "not-found.jpg").write_text("<html>404 Not Found</html>")
    whole = next(path for path in sorted(unlabelled.glob("*.jpg")) if path.stat().st_size > 1000).read_bytes()
    (unlabelled / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    one, leak = (sorted((folder / place).iterdir())[0] for place in ("train/one", "train/two"))
    (folder / "train/seven" / f"copy{one.suffix}").write_bytes(one.read_bytes())
    (folder / "test/two" / f"copy{leak.suffix}").write_bytes(leak.read_bytes())


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3000)
