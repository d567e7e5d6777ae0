"""Inspect a data set: counts, sizes, ignored and unreadable files, duplicates, leaks, label conflicts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.balance import describe_skew, too_few
from normatch.data.dataset import UNKNOWN, Corpus, Dataset, doubtful_names
from normatch.data.folder import Listings
from normatch.data.ignored import Ignored, say_ignored
from normatch.data.images import FACTS, decode_all, describe_dark, facts_of
from normatch.data.images.likeness import LIKE, NEAR, alike, groups
from normatch.data.images.sheet import ACROSS, must_be_drawable, write_sheet
from normatch.data.load import find_listings, load_corpus, passed_over
from normatch.data.reading import DEFAULT, Reading
from normatch.errors import UserError
from normatch.text import counted, on_one_line

__all__ = ["describe", "inspect"]

SHOWN = 5
"""Number of groups or files of each kind that the text names; the JSON names all."""

Groups = list[NDArray[np.int64]]


@dataclass(frozen=True)
class _Items:
    """All items that could be read: training items first, then test items."""

    places: Sequence[str]
    labels: Sequence[str | None]
    testing: NDArray[np.bool_]
    inputs: NDArray[Any]
    """Those of the training items; of files, of the others too."""
    facts: NDArray[Any]
    bad: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    """All classes that a run would have, also those of which no item is there."""

    def at(self, group: NDArray[np.int64]) -> list[dict[str, Any]]:
        return [
            {"item": self.places[i], "label": self.labels[i], "set": "test" if self.testing[i] else "train"}
            for i in group.tolist()
        ]


def inspect(
    data: str,
    root: Path | None = None,
    *,
    unlabelled: Path | None = None,
    sheet: Path | None = None,
    force: bool = False,
    reading: Reading = DEFAULT,
) -> dict[str, Any]:
    """Report on a folder, a CSV manifest, an ``.npz`` or a named data set; ``sheet`` is a contact sheet to write.

    Two items are duplicates if their pixels are equal, and near duplicates if they look alike
    (:mod:`normatch.data.images.likeness`). Nothing is changed, except that ``force`` replaces a sheet that exists, and
    unreadable files are only listed.
    """
    if sheet is not None:
        must_be_drawable(sheet, force=force)
    listings = find_listings(data, "skip", unlabelled)
    if listings is None:
        items = _from_corpus(load_corpus(data, root, unlabelled=unlabelled, on_bad="skip", reading=reading))
    else:
        items = _from_files(listings, reading)
    if sheet is not None:
        if items.inputs.ndim != 4:
            raise UserError(f"sheet is {str(sheet)!r}, but {data} holds feature vectors: leave it out")
        write_sheet(sheet, _rows(items))
    return {"data": data} | _report(items) | {"ignored": asdict(passed_over(listings, unlabelled))}


def describe(report: dict[str, Any]) -> str:
    """The report as text: what there is, then what may be wrong."""
    lines = [
        f"{report['data']}: {counted(report['items'], 'item')}, {report['labelled']:,} labelled in "
        f"{counted(len(report['classes']), 'class', 'classes')}, {report['unlabelled']:,} unlabelled, "
        f"{report['test']:,} test"
    ]
    if report["sizes"]:
        sizes, modes = report["sizes"], report["modes"]
        small, large = ("×".join(map(str, sizes[which])) for which in ("smallest", "largest"))
        lines.append(f"  sizes   {small} to {large}, median of the shorter side {sizes['median_side']:g}")
        lines.append(f"  modes   {', '.join(f'{mode} {n:,}' for mode, n in modes.items())}")
    names = [on_one_line(entry["name"]) for entry in report["classes"]]
    width = max(map(len, names), default=0)
    lines += [
        f"  {name:<{width}}  train {entry['train']:>6,}  test {entry['test']:>6,}"
        for name, entry in zip(names, report["classes"], strict=True)
    ]
    lines += [f"! {line}" for line in report["remarks"]]
    lines += _named("unreadable, and left out of training with --on-bad-image skip", report["unreadable"])
    lines += [f"! {line}" for line in say_ignored(Ignored(**report["ignored"]))]
    near = f"look alike (hashes at most {NEAR} of 64 bits apart, thumbnails correlated {LIKE} or more)"
    for kind, title in (
        ("label_conflicts", "same pixels under two labels"),
        ("near_label_conflicts", f"two labels, and {near}"),
        ("leaks", "same pixels in train and test"),
        ("near_leaks", f"in train and test, and {near}"),
        ("duplicates", "same pixels"),
        ("near_duplicates", near),
    ):
        lines += _named(title, [_members(group) for group in report[kind]])
    return "\n".join(lines)


def _from_files(listings: Listings, reading: Reading) -> _Items:
    everything = listings.everything
    decoded = decode_all(everything.paths, on_bad="skip", cache=reading.open_cache(), progress=reading.progress)
    kept = decoded.kept.tolist()
    return _Items(
        [str(everything.paths[i]) for i in kept],
        [everything.names[i] for i in kept],
        decoded.kept >= len(listings.train.paths),
        decoded.images,
        decoded.facts,
        decoded.bad,
    )


def _from_corpus(corpus: Corpus) -> _Items:
    parts: list[tuple[str, Dataset]] = [("train", corpus.train)]
    if corpus.test is not None:
        parts.append(("test", corpus.test))
    classes = corpus.train.classes
    return _Items(
        [f"{name}[{i}]" for name, part in parts for i in range(len(part))],
        [None if label == UNKNOWN else classes[label] for _, part in parts for label in part.labels.tolist()],
        np.concatenate([np.full(len(part), name == "test") for name, part in parts]),
        np.asarray(corpus.train.inputs),
        np.concatenate([_facts(np.asarray(part.inputs)) for _, part in parts]),
        corpus.skipped,
        classes,
    )


def _facts(inputs: NDArray[Any]) -> NDArray[Any]:
    """Facts of items in arrays; of feature vectors only a hash of the values, as ``pixels``."""
    if inputs.ndim == 2:
        facts = np.zeros(len(inputs), FACTS)
        facts["pixels"] = [hash(row.tobytes()) & (1 << 64) - 1 for row in inputs]
        return facts
    from PIL import Image

    mode = "L" if inputs.shape[3] == 1 else "RGB"
    flat = inputs[..., 0] if mode == "L" else inputs
    header = inputs.shape[2], inputs.shape[1], mode
    return np.array([facts_of(Image.fromarray(image), header) for image in flat], FACTS)


def _report(items: _Items) -> dict[str, Any]:
    train = Counter(label for label, test in zip(items.labels, items.testing, strict=True) if not test)
    test = Counter(label for label, test in zip(items.labels, items.testing, strict=True) if test)
    unlabelled = train.pop(None, 0)
    names = sorted(name for name in {*train, *test, *items.classes} if name is not None)
    same = groups(items.facts["pixels"].astype(np.uint64))
    near = _not_copies(alike(items.facts["look"].astype(np.uint64), items.facts["thumbnail"]), items.facts["pixels"])
    images = items.inputs.ndim == 4
    report: dict[str, Any] = {
        "items": len(items.places),
        "labelled": sum(train.values()),
        "unlabelled": unlabelled,
        "test": sum(test.values()),
        "classes": [{"name": name, "train": train[name], "test": test[name]} for name in names],
        "sizes": _sizes(items.facts) if images and len(items.facts) else None,
        "modes": _modes(items.facts) if images else {},
        "unreadable": list(items.bad),
        "imbalance": max(train.values()) / min(train.values()) if train else None,
        "duplicates": [items.at(group) for group in same],
        "near": {"bits": NEAR, "correlation": LIKE},
        "near_duplicates": [items.at(group) for group in near],
        "label_conflicts": [items.at(group) for group in same if _labels(items, group) > 1],
        "near_label_conflicts": [items.at(group) for group in near if _labels(items, group) > 1],
        "leaks": [items.at(group) for group in same if _leaks(items, group)],
        "near_leaks": [items.at(group) for group in near if _leaks(items, group)],
    }
    dark = describe_dark(items.facts)
    return report | {"remarks": [*_remarks(report), *([dark] if dark else [])]}


def _not_copies(found: Groups, pixels: NDArray[Any]) -> Groups:
    """The groups that contain more than exact copies of one image."""
    return [group for group in found if len(np.unique(pixels[group])) > 1]


def _labels(items: _Items, group: NDArray[np.int64]) -> int:
    return len({items.labels[i] for i in group.tolist()} - {None})


def _leaks(items: _Items, group: NDArray[np.int64]) -> bool:
    testing = items.testing[group]
    return bool(testing.any() and not testing.all())


def _sizes(facts: NDArray[Any]) -> dict[str, Any]:
    area = facts["width"].astype(np.int64) * facts["height"]
    small, large = facts[area.argmin()], facts[area.argmax()]
    return {
        "smallest": [int(small["width"]), int(small["height"])],
        "largest": [int(large["width"]), int(large["height"])],
        "median_side": float(np.median(np.minimum(facts["width"], facts["height"]))),
    }


def _modes(facts: NDArray[Any]) -> dict[str, int]:
    return {mode.decode(): n for mode, n in Counter(facts["mode"].tolist()).most_common()}


def _remarks(report: dict[str, Any]) -> list[str]:
    remarks = doubtful_names(entry["name"] for entry in report["classes"])
    trained = {entry["name"]: entry["train"] for entry in report["classes"] if entry["train"]}
    if len(trained) < 2:
        remarks.append("training needs labelled items of at least two classes")
    else:
        testable = any(entry["test"] for entry in report["classes"])
        found = [describe_skew(trained), None if testable else too_few(trained)]
        remarks += [remark for remark in found if remark]
    if not report["unlabelled"] and report["labelled"]:
        remarks.append("no unlabelled items: with --labels N, training takes N labels and all else as unlabelled")
    untrained = [entry for entry in report["classes"] if not entry["train"]]
    tested = [entry["name"] for entry in untrained if entry["test"]]
    if tested:
        remarks.append(f"only in the test set: {', '.join(tested[:SHOWN])}")
    unseen = [entry["name"] for entry in report["classes"] if entry["train"] and not entry["test"]]
    if unseen and any(entry["test"] for entry in report["classes"]):
        remarks.append(f"not in the test set: {', '.join(unseen[:SHOWN])}")
    absent = [entry["name"] for entry in untrained if not entry["test"]]
    if absent:
        remarks.append(f"no item is labelled {', '.join(absent[:SHOWN])}: training needs labelled items of each class")
    return remarks


def _rows(items: _Items) -> list[tuple[str, NDArray[np.uint8]]]:
    """Rows of a contact sheet: evenly spaced training items of each class; then unlabelled ones."""
    members: dict[str | None, list[int]] = {}
    for i, (label, test) in enumerate(zip(items.labels, items.testing, strict=True)):
        if not test:
            members.setdefault(label, []).append(i)
    unlabelled = members.pop(None, [])
    named: list[tuple[str, list[int]]] = sorted((name, at) for name, at in members.items() if name is not None)
    if unlabelled:
        named.append(("unlabelled", unlabelled))
    rows = []
    for name, at in named:
        chosen = np.array(at)[np.unique(np.linspace(0, len(at) - 1, ACROSS).round().astype(int))]
        rows.append((f"{name}  ({len(at):,})", items.inputs[chosen]))
    return rows


def _named(title: str, entries: Sequence[str]) -> list[str]:
    """A heading with the number of entries, then the first few of them."""
    if not entries:
        return []
    more = [f"    … and {len(entries) - SHOWN:,} more (--json lists all)"] if len(entries) > SHOWN else []
    return [f"! {len(entries):,} × {title}", *(f"    {entry}" for entry in entries[:SHOWN]), *more]


def _members(group: list[dict[str, Any]]) -> str:
    named = ", ".join(f"{member['item']} ({member['label'] or 'unlabelled'})" for member in group[:SHOWN])
    return named + (f" and {len(group) - SHOWN:,} more" if len(group) > SHOWN else "")
