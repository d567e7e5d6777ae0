"""Mini-ImageNet for semi-supervised learning: 50,000 + 10,000 images of 100 classes, 84×84 (Iscen et al., 2019).

The images lie in ``train/<class>/`` and ``test/<class>/``. The authors' labelled subsets are text files such as
``4000_balanced_labels/10.txt`` with lines ``image_10508.JPEG n01532829``, at any depth: in the authors' repository they
are in ``labels/miniimagenet``.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normatch.data.folder import Listings, list_folder
from normatch.data.source import MissingFiles, Source, sources
from normatch.errors import UserError

__all__: list[str] = []

SIDE = 84


def _read(where: Path) -> Listings:
    """List the images; the labelled subsets become folds, ordered by number of labels, then by file name."""
    if missing := [f"{part}/<class>/" for part in ("train", "test") if not (where / part).is_dir()]:
        raise MissingFiles(where, missing)
    train = list_folder(where / "train")
    positions = {(path.name, name): i for i, (path, name) in enumerate(train)}
    # By length first: 4000 before 10000.
    files = sorted(where.rglob("*_balanced_labels/*.txt"), key=lambda file: (len(file.parent.name), file))
    folds = tuple(_fold(file, positions) for file in files)
    return Listings("mini-imagenet", where, train, list_folder(where / "test"), folds, form=(SIDE, SIDE, 3))


def _fold(file: Path, positions: dict[tuple[str, str | None], int]) -> NDArray[np.int64]:
    fold = []
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        image, _, name = line.strip().partition(" ")
        if (image, name) not in positions:
            raise UserError(f"{file}, line {number}: no image train/{name}/{image}: put it there or remove the file")
        fold.append(positions[image, name])
    return np.array(fold, np.int64)


sources.add(
    "mini-imagenet",
    Source(
        summary="50,000 + 10,000 colour photographs in 100 classes, with predefined folds; from your own files",
        classes=100,
        shape=(3, SIDE, SIDE),
        read=_read,
        home="https://github.com/ahmetius/LP-DeepSSL",
    ),
)
