"""A CSV file that lists images: ``path,label``, with an empty label where the class is not known, or only ``path``.

A column ``split`` says which images are to test on.
"""

import csv
import os
import re
from collections.abc import Sequence
from pathlib import Path

from normatch.data.dataset import MISSING
from normatch.data.folder import UNLABELLED, Listings
from normatch.data.images import OnBad
from normatch.errors import UserError, reason
from normatch.text import read_cell

__all__ = ["NO_CLASS", "is_manifest", "list_manifest", "list_paths"]

NO_CLASS = frozenset({"-1", "-1.0", "<na>", *MISSING, *UNLABELLED})
"""Ways in which arrays, data frames, other programs and folders mark an unknown label; refused as ambiguous with a
class name."""

PARTS = ("train", "test")
"""The values of the column ``split``; if it is empty or absent, the first."""

SPLITS = frozenset({"set", "subset", "fold", "partition"})
"""Columns that may say, in other programs, which rows are for testing; refused, since they would be trained on."""

SURPLUS = "\n"
"""The key of values beyond the last column, which no column is called: an unnamed one is pandas' index."""

Row = tuple[Path, str | None, str]
"""The path, the label and the part of an image."""


def is_manifest(path: Path) -> bool:
    """Whether ``path`` is a table of files, though perhaps none that can be read."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            columns = [name.strip(' "').lower() for name in re.split("[,;\t]", file.readline().strip())]
    except OSError:
        return False
    return "path" in columns


def list_manifest(path: Path, on_bad: OnBad = "stop") -> Listings:
    """The images and labels that ``path`` lists; paths in it are relative to its folder."""
    rows = _read(path, ("path", "label"), on_bad)
    train, test = ([(image, label) for image, label, part in rows if part == wanted] for wanted in PARTS)
    return Listings(str(path), path.parent, train, test)


def list_paths(path: Path, on_bad: OnBad = "stop") -> list[Path]:
    """The images that ``path`` lists, without labels, which the file need not have."""
    return [image for image, _, _ in _read(path, ("path",), on_bad)]


def _read(path: Path, wanted: Sequence[str], on_bad: OnBad) -> list[Row]:
    """The rows of the file, which must have the columns ``wanted``."""
    found: dict[str, tuple[int, Row]] = {}
    """By the absolute path of each image: the line that lists it, and its row."""
    begins = 1
    try:
        # utf-8-sig, because spreadsheets often write a byte-order mark.
        with path.open(newline="", encoding="utf-8-sig") as file:
            # A blank before a quote would make the quotes part of the value.
            lines = csv.DictReader(file, strict=True, skipinitialspace=True, restkey=SURPLUS, restval="")
            lines.fieldnames = _columns(lines.fieldnames or (), wanted)
            for line in lines:
                surplus = "".join(line.pop(SURPLUS, ())).strip()
                values = {name: read_cell(value.strip()) for name, value in line.items()}
                if surplus:
                    raise UserError('there are more values than columns; quote commas, as in "1, 2.png",cat')
                if any(values.values()):  # spreadsheets write empty lines below a table
                    row = _row(path.parent, values, labelled="label" in wanted, must_exist=on_bad == "stop")
                    before, _ = found.setdefault(os.path.abspath(row[0]), (lines.line_num, row))
                    if before != lines.line_num:
                        raise UserError(f"{row[0]} is listed already on line {before}; delete one of the two")
                begins = lines.line_num + 1
    except UserError as error:
        raise UserError(f"{path}, line {max(1, lines.line_num)}: {error}") from None
    except csv.Error as error:
        # Not the line where the parser gave up: after a quote that is never closed, that is the file's last.
        raise UserError(
            f"{path}, line {begins}: {reason(error)}; check the quotes from there on, and double one inside a value"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {reason(error)}; give a CSV file in UTF-8") from error
    if not found:
        raise UserError(f"{path} lists no images: add lines such as cats/1.png{',cat' if 'label' in wanted else ''}")
    return [row for _, row in found.values()]


def _row(folder: Path, values: dict[str, str], *, labelled: bool, must_exist: bool) -> Row:
    if not values["path"]:
        raise UserError("the path is empty; give one or delete the line")
    if "\0" in values["path"]:
        raise UserError(f"the path is {values['path']!r}, with a null character; correct it or delete the line")
    image = folder / values["path"]
    if must_exist and not image.is_file():
        remedy = "write / where it has \\" if "\\" in image.name else "paths are relative to the CSV's folder"
        raise UserError(f"no such file: {image}; {remedy}")
    if not labelled:
        return image, None, PARTS[0]
    label, part = values["label"], values.get("split", "").lower() or PARTS[0]
    if label.lower() in NO_CLASS:
        raise UserError(
            f"the label is {label!r}; leave it empty if the class is not known, or give the class another name"
        )
    if part not in PARTS:
        raise UserError(f"the split is {values['split']!r}; give train or test, or leave it empty to train on")
    return image, label or None, part


def _columns(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The column names, stripped of blanks; UserError unless they include each of ``wanted`` once or if, with labels,
    one of them may divide the rows."""
    columns = ["split" if name.strip().lower() == "split" else name.strip() for name in names]
    for name in (*wanted, "split"):
        if columns.count(name) > 1:
            raise UserError(f"there are {columns.count(name)} columns {name!r}; keep one of them")
        if name in wanted and name not in columns:
            raise UserError(
                f"no column {name!r}; the first line is {','.join(names)[:60]!r} and must be {','.join(wanted)}, with "
                "commas"
            )
    split = next((name for name in columns if "label" in wanted and name.lower() in SPLITS), None)
    if split is not None:
        raise UserError(
            f"the column {split!r} is not read; call it 'split' if it says train or test, else delete or rename it"
        )
    return columns
