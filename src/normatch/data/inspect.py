"""Inspect a data set: counts, sizes, ignored and unreadable files, duplicates, leaks, label conflicts."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.dataset import UNKNOWN, Corpus, doubtful_names
from normatch.data.folder import Listings, say_ignored
from normatch.data.images import DEFAULT, FACTS, Reading, decode_all, describe_dark, facts_of
from normatch.data.images.facts import LIKE, NEAR, alike, groups
from normatch.data.images.sheet import ACROSS, must_be_drawable, write_sheet
from normatch.data.load import find_listings, load_corpus, passed_over
from normatch.data.source import sources
from normatch.data.split import describe_skew, too_few
from normatch.errors import UserError
from normatch.text import counted, on_one_line

__all__ = ["describe", "inspect"]

SHOWN = 5
"""Number of groups or files of each kind that the text names; the JSON names all."""

LOOK = f"look alike (hashes at most {NEAR} of 64 bits apart, thumbnails correlated {LIKE} or more)"
GROUPS = {
    "label_conflicts": "same pixels under two labels",
    "near_label_conflicts": f"two labels, and {LOOK}",
    "leaks": "same pixels in train and test",
    "near_leaks": f"in train and test, and {LOOK}",
    "duplicates": "same pixels",
    "near_duplicates": LOOK,
}
"""The groups in a report, with their headings in the text."""


@dataclass(frozen=True)
class _Samples:
    """All samples that could be read: those to train on first, then those to test on."""

    places: Sequence[str]
    labels: Sequence[str | None]
    testing: NDArray[np.bool_]
    inputs: NDArray[Any]
    """Those of the training samples; of files, of the others too."""
    facts: NDArray[Any]
    bad: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    """All classes that a run would have, also those of which no sample is there."""

    def at(self, group: list[int]) -> list[dict[str, Any]]:
        return [
            {"sample": self.places[i], "label": self.labels[i], "set": "test" if self.testing[i] else "train"}
            for i in group
        ]

    def conflict(self, group: list[int]) -> bool:
        """Whether the group has two labels."""
        return len({self.labels[i] for i in group} - {None}) > 1

    def leak(self, group: list[int]) -> bool:
        """Whether the group has samples to train on and to test on."""
        return len(set(self.testing[group].tolist())) > 1


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

    Two images are duplicates if their pixels are equal, and near duplicates if they look alike
    (:func:`normatch.data.images.facts.alike`). Nothing is changed, except that ``force`` replaces a sheet that exists,
    and unreadable files are only listed.
    """
    if sheet is not None:
        must_be_drawable(sheet, force=force)
    listings = find_listings(data, "skip", unlabelled)
    if listings is None:
        samples = _from_corpus(load_corpus(data, root, unlabelled=unlabelled, on_bad="skip", reading=reading))
    else:
        samples = _from_files(listings, reading)
    if sheet is not None:
        if samples.inputs.ndim != 4:
            raise UserError(f"sheet is {str(sheet)!r}, but {data} holds feature vectors: leave it out")
        write_sheet(sheet, _rows(samples))
    report = {"data": data} | _report(samples) | {"ignored": passed_over(listings, unlabelled)}
    return report | {"next": _next(report, unlabelled)}


def describe(report: dict[str, Any]) -> str:
    """The report as text: what there is, what may be wrong, and the next command."""
    lines = [
        f"{report['data']}: {counted(report['samples'], 'sample')}, {report['labelled']:,} labelled in "
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
    lines += [f"! {line}" for line in say_ignored(report["ignored"])]
    for name, title in GROUPS.items():
        lines += _named(title, [_members(group) for group in report[name]])
    # Names of files and classes may have control characters, which a terminal would obey.
    return "\n".join(map(on_one_line, [*lines, f"next: {report['next']}"]))


def _next(report: dict[str, Any], unlabelled: Path | None) -> str:
    """The command to run next."""
    if report["data"] in sources:
        return "normatch list recipes"
    if sum(entry["train"] > 0 for entry in report["classes"]) < 2:
        again = ["normatch", "data", "inspect", report["data"]]
        return f"label images of two classes or more, then {shlex.join(again)}"
    words = ["normatch", "train", "--data", report["data"]]
    words += ["--unlabeled", str(unlabelled)] if unlabelled else []
    return shlex.join([*words, *(["--on-bad-image", "skip"] if report["unreadable"] else [])])


def _from_files(listings: Listings, reading: Reading) -> _Samples:
    listed = listings.train + listings.test
    decoded = decode_all(listings.paths, on_bad="skip", cache=reading.open_cache(), progress=reading.progress)
    kept = decoded.kept.tolist()
    return _Samples(
        [str(listed[i][0]) for i in kept],
        [listed[i][1] for i in kept],
        decoded.kept >= len(listings.train),
        decoded.images,
        decoded.facts,
        decoded.bad,
    )


def _from_corpus(corpus: Corpus) -> _Samples:
    parts = {"train": corpus.train} | ({"test": corpus.test} if corpus.test is not None else {})
    classes = corpus.train.classes
    return _Samples(
        [f"{name}[{i}]" for name, part in parts.items() for i in range(len(part))],
        [None if label == UNKNOWN else classes[label] for part in parts.values() for label in part.labels.tolist()],
        np.concatenate([np.full(len(part), name == "test") for name, part in parts.items()]),
        np.asarray(corpus.train.inputs),
        np.concatenate([_facts(np.asarray(part.inputs)) for part in parts.values()]),
        corpus.skipped,
        classes,
    )


def _facts(inputs: NDArray[Any]) -> NDArray[Any]:
    """Facts of samples in arrays; of feature vectors only a hash of the values, as ``pixels``."""
    if inputs.ndim == 2:
        facts = np.zeros(len(inputs), FACTS)
        facts["pixels"] = [hash(row.tobytes()) & (1 << 64) - 1 for row in inputs]
        return facts
    from PIL import Image

    mode = "L" if inputs.shape[3] == 1 else "RGB"
    flat = inputs[..., 0] if mode == "L" else inputs
    header = inputs.shape[2], inputs.shape[1], mode
    return np.array([facts_of(Image.fromarray(image), header) for image in flat], FACTS)


def _report(samples: _Samples) -> dict[str, Any]:
    train = Counter(label for label, test in zip(samples.labels, samples.testing, strict=True) if not test)
    test = Counter(label for label, test in zip(samples.labels, samples.testing, strict=True) if test)
    unlabelled = train.pop(None, 0)
    names = sorted(name for name in {*train, *test, *samples.classes} if name is not None)
    facts = samples.facts
    same = groups(facts["pixels"])
    # Copies of one image alone are in ``same``.
    near = [
        group for group in alike(facts["look"], facts["thumbnail"]) if len(set(facts["pixels"][group].tolist())) > 1
    ]
    images = samples.inputs.ndim == 4
    report: dict[str, Any] = {
        "samples": len(samples.places),
        "labelled": sum(train.values()),
        "unlabelled": unlabelled,
        "test": sum(test.values()),
        "classes": [{"name": name, "train": train[name], "test": test[name]} for name in names],
        "sizes": _sizes(facts) if images and len(facts) else None,
        "modes": {mode.decode(): n for mode, n in Counter(facts["mode"].tolist()).most_common()} if images else {},
        "unreadable": list(samples.bad),
        "imbalance": max(train.values()) / min(train.values()) if train else None,
        "near": {"bits": NEAR, "correlation": LIKE},
    }
    for prefix, found in (("", same), ("near_", near)):
        report |= {
            f"{prefix}duplicates": [samples.at(group) for group in found],
            f"{prefix}label_conflicts": [samples.at(group) for group in found if samples.conflict(group)],
            f"{prefix}leaks": [samples.at(group) for group in found if samples.leak(group)],
        }
    dark = describe_dark(facts)
    return report | {"remarks": [*_remarks(report), *([dark] if dark else [])]}


def _sizes(facts: NDArray[Any]) -> dict[str, Any]:
    area = facts["width"].astype(np.int64) * facts["height"]
    small, large = facts[area.argmin()], facts[area.argmax()]
    return {
        "smallest": [int(small["width"]), int(small["height"])],
        "largest": [int(large["width"]), int(large["height"])],
        "median_side": float(np.median(np.minimum(facts["width"], facts["height"]))),
    }


def _remarks(report: dict[str, Any]) -> list[str]:
    classes = report["classes"]
    testable = any(entry["test"] for entry in classes)
    trained = {entry["name"]: entry["train"] for entry in classes if entry["train"]}
    remarks: list[str | None] = [*doubtful_names(entry["name"] for entry in classes)]
    if len(trained) < 2:
        remarks.append("training needs labelled samples of at least two classes")
    else:
        remarks += [describe_skew(trained), None if testable else too_few(trained)]
    if not report["unlabelled"] and report["labelled"]:
        remarks.append("no unlabelled samples: with --labels N, training takes N labels and all else as unlabelled")
    lists = {
        "only in the test set: {}": [entry for entry in classes if entry["test"] and not entry["train"]],
        "not in the test set: {}": [entry for entry in classes if entry["train"] and not entry["test"] and testable],
        "no sample is labelled {}: training needs labelled samples of each class": [
            entry for entry in classes if not entry["train"] and not entry["test"]
        ],
    }
    remarks += [
        said.format(", ".join(entry["name"] for entry in found[:SHOWN])) for said, found in lists.items() if found
    ]
    return [remark for remark in remarks if remark]


def _rows(samples: _Samples) -> list[tuple[str, NDArray[np.uint8]]]:
    """Rows of a contact sheet: evenly spaced training images of each class; then unlabelled ones."""
    members: dict[str | None, list[int]] = {}
    for i, (label, test) in enumerate(zip(samples.labels, samples.testing, strict=True)):
        if not test:
            members.setdefault(label, []).append(i)
    rows = []
    for name, at in sorted(members.items(), key=lambda member: (member[0] is None, member[0])):
        chosen = np.array(at)[np.unique(np.linspace(0, len(at) - 1, ACROSS).round().astype(int))]
        rows.append((f"{'unlabelled' if name is None else name}  ({len(at):,})", samples.inputs[chosen]))
    return rows


def _named(title: str, entries: Sequence[str]) -> list[str]:
    """A heading with the number of entries, then the first few of them."""
    if not entries:
        return []
    more = [f"    … and {len(entries) - SHOWN:,} more (--json lists all)"] if len(entries) > SHOWN else []
    return [f"! {len(entries):,} × {title}", *(f"    {entry}" for entry in entries[:SHOWN]), *more]


def _members(group: list[dict[str, Any]]) -> str:
    named = ", ".join(f"{member['sample']} ({member['label'] or 'unlabelled'})" for member in group[:SHOWN])
    return named + (f" and {len(group) - SHOWN:,} more" if len(group) > SHOWN else "")
