"""A CSV file that lists images: ``path,label``, with an empty label where the class is not known, or only ``path``.

A column ``split`` says which images are to test on.
"""

import csv
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from normatch.data.dataset import MISSING
from normatch.data.folder import UNLABELLED, Listing, Listings
from normatch.data.images import OnBad
from normatch.errors import UserError, reason
from normatch.text import read_cell

__all__ = ["NO_CLASS", "is_manifest", "list_manifest", "list_paths"]

EXAMPLE = ("cats/1.png", "cat")

Row = dict[Any, Any]
"""A row of the CSV file by column; the key None holds surplus values, and a missing value is None."""

Values = tuple[str | None, ...]
"""The values of a row that count, without its path."""

NO_CLASS = frozenset({"-1", "-1.0", "<na>", *MISSING, *UNLABELLED})
"""Ways in which arrays, data frames, other programs and folders mark an unknown label; refused as ambiguous with a
class name."""

PARTS = ("train", "test")
"""The values of the column ``split``; if it is empty or absent, the first."""

SPLITS = frozenset({"set", "subset", "fold", "partition"})
"""Columns that may say, in other programs, which rows are for testing; refused, since they would be trained on."""


def is_manifest(path: Path) -> bool:
    """Whether ``path`` is a table of files, though perhaps none that can be read, and not of positions (``item``)."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            columns = [name.strip(' "').lower() for name in re.split("[,;\t]", file.readline().strip())]
    except OSError:
        return False
    return "path" in columns and "item" not in columns


def list_manifest(path: Path, on_bad: OnBad = "stop") -> Listings:
    """The images and labels that ``path`` lists; paths in it are relative to its folder."""
    rows = _listed(path, ("path", "label"), on_bad, lambda row: (_label(row), _part(row)))
    parts = [{image: label for image, (label, part) in rows.items() if part == wanted} for wanted in PARTS]
    train, test = (Listing(tuple(part), tuple(part.values())) for part in parts)
    return Listings(str(path), path.parent, train, test if test.paths else None)


def list_paths(path: Path, on_bad: OnBad = "stop") -> list[Path]:
    """The images that ``path`` lists, without labels, which the file need not have."""
    return list(_listed(path, ("path",), on_bad, lambda row: ()))


def _listed(path: Path, columns: Sequence[str], on_bad: OnBad, read: Callable[[Row], Values]) -> dict[Path, Values]:
    """The images that ``path`` lists, each with what ``read`` returns for its row."""
    found: dict[Path, Values] = {}
    lines: dict[str, tuple[int, Path]] = {}
    """Of each file, by its absolute path, the line that lists it and its path there."""
    begins = 1
    try:
        # utf-8-sig, because spreadsheets often write a byte-order mark.
        with path.open(newline="", encoding="utf-8-sig") as file:
            # A blank before a quote would make the quotes part of the value.
            rows = csv.DictReader(file, strict=True, skipinitialspace=True)
            rows.fieldnames = _columns(path, rows.fieldnames or (), columns)
            for row in rows:
                if _is_blank(row):  # as spreadsheets write below a table
                    continue
                try:
                    image, values = _image(path.parent, row, must_exist=on_bad == "stop"), read(row)
                    place = os.path.abspath(image)
                    if place in lines:
                        line, before = lines[place]
                        pairs = zip(found[before], values, strict=True)
                        was = "".join(f" {_said(then)}, now {_said(now)}" for then, now in pairs if then != now)
                        raise UserError(f"{image} is listed already on line {line}{was}; delete one of the two")
                except UserError as error:
                    raise UserError(f"{path}, line {rows.line_num}: {error}") from None
                found[image], lines[place] = values, (rows.line_num, image)
                begins = rows.line_num + 1
    except csv.Error as error:
        # Not the line where the parser gave up: after a quote that is never closed, that is the file's last.
        raise UserError(
            f"{path}, line {begins}: {reason(error)}; check the quotes from there on, and double one inside a value"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {reason(error)}; give a CSV file in UTF-8") from error
    if not found:
        raise UserError(f"{path} lists no images: add lines such as {','.join(EXAMPLE[: len(columns)])}")
    return found


def _said(value: object) -> str:
    return "without a label" if value is None else f"as {value!r}"


def _is_blank(row: Row) -> bool:
    values = [value for name, value in row.items() if name is not None] + list(row.get(None, ()))
    return not any(value and value.strip() for value in values)


def _image(folder: Path, row: Row, *, must_exist: bool) -> Path:
    """The image that a row names."""
    if any(value.strip() for value in row.get(None, ())):
        raise UserError(
            f"there are more values than the {len(row) - 1} columns; "
            'put quotes around what has a comma in it, as in "1, 2.png",cat'
        )
    name = read_cell((row["path"] or "").strip())
    if not name:
        raise UserError("the path is empty; give one or delete the line")
    for column, value in row.items():
        if column is not None and value and "\0" in value:
            raise UserError(f"the {column} {value!r} has a zero byte in it; save the file as UTF-8 text")
    image = folder / name
    if must_exist and image.is_dir():
        raise UserError(f"{image} is a folder; give an image, or the folder instead of this file")
    if must_exist and not image.is_file():
        relative = "paths are relative to the CSV's folder"
        remedy = "write / where it has \\" if "\\" in image.name else relative
        raise UserError(f"no such file: {image}; {remedy}")
    return image


def _label(row: Row) -> str | None:
    """The class that a row names, None if its label is empty."""
    label = read_cell((row["label"] or "").strip())
    if label.lower() in NO_CLASS:
        raise UserError(
            f"the label is {label!r}; leave it empty if the class is not known, or give the class another name"
        )
    return label or None


def _part(row: Row) -> str:
    """The part of the data to which a row belongs: train or test."""
    part = (row.get("split") or "").strip()
    if part.lower() not in ("", *PARTS):
        raise UserError(f"the split is {part!r}; give train or test, or leave it empty to train on")
    return part.lower() or PARTS[0]


def _columns(path: Path, names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The column names, stripped of blanks; UserError unless they include each of ``wanted`` once or if, with labels,
    one of them may divide the rows."""
    columns = ["split" if name.strip().lower() == "split" else name.strip() for name in names]
    twice = next((name for name in (*wanted, "split") if columns.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path} has {columns.count(twice)} columns {twice!r}: keep one of them")
    missing = next((name for name in wanted if name not in columns), None)
    if missing is not None:
        has = ",".join(names)
        separator = next((word for mark, word in ((";", "semicolons"), ("\t", "tabs")) if mark in has), None)
        remedy = f"; save it with commas, not {separator}" if separator else ""
        raise UserError(
            f"{path} has no column {missing!r}: its first line is {has[:60]!r} and must be {','.join(wanted)}{remedy}"
        )
    split = next((name for name in columns if "label" in wanted and name.lower() in SPLITS), None)
    if split is not None:
        raise UserError(
            f"{path} has a column {split!r}, which is not read: call it 'split' if it says train or test, else delete "
            "or rename it"
        )
    return columns
