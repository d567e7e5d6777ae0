"""Inspect a data set: counts, sizes, ignored and unreadable files, duplicates, leaks, label conflicts."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normatch.data.alike import LIKE, NEAR, alike, groups, looks_of, thumbnails
from normatch.data.dataset import MISSING, UNKNOWN, Corpus
from normatch.data.folder import folder_of, say_ignored
from normatch.data.images import DEEP, DEFAULT, FACTS, Reading
from normatch.data.load import find_listings, load_corpus, passed_over
from normatch.data.sheet import ACROSS, must_be_drawable, write_sheet
from normatch.data.source import sources
from normatch.data.split import describe_skew, too_few
from normatch.errors import UserError
from normatch.text import counted, on_one_line

__all__ = ["describe", "describe_dark", "doubtful_names", "inspect"]

SETS = ("test", "val", "valid", "validation")
"""Usual names of a set of pictures to test on, which a class hardly has."""

NOTHING = (*MISSING, "none", "unknown", "?")
"""Names that a class may have, but that more often say that the class is not known."""

DARK, EXAMINED = 64, 200
"""Of 16-bit images so many are examined. If their thumbnails stay below this level of 256, they use at most 14 bits."""

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
class _Sample:
    sample: str
    """Its file, or its position."""
    label: str | None
    set: str
    """``train`` or ``test``."""


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

    Two images are duplicates if their pixels are equal as training would read them, and near duplicates if they look
    alike (:func:`normatch.data.alike.alike`). Nothing is changed, except that ``force`` replaces a sheet that exists,
    and unreadable files are only listed.
    """
    if sheet is not None:
        must_be_drawable(sheet, force=force)
    ignored = passed_over(find_listings(data, "skip", unlabelled), unlabelled)
    corpus = load_corpus(data, root, unlabelled=unlabelled, on_bad="skip", reading=reading)
    samples = _samples(corpus)
    if sheet is not None:
        if not corpus.train.is_images:
            raise UserError(f"sheet is {str(sheet)!r}, but {data} holds feature vectors: leave it out")
        write_sheet(sheet, _rows(corpus, samples))
    report = {"data": data} | _report(corpus, samples) | {"ignored": ignored}
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


def doubtful_names(classes: Iterable[str]) -> list[str]:
    """Remarks on names that are most likely a mistake: classes that differ only in case or blanks and may be one,
    classes named like a set of pictures, and classes named as if they were none.

    >>> doubtful_names(["Cat", "dog", "CAT "])
    ["'CAT ', 'Cat' are 2 classes whose names differ only in case or blanks: rename them if they are one"]
    >>> doubtful_names(["cat", "dog", "Val"])
    ["'Val' is read as a class: if its pictures are to test on, sort them into test/<class> beside train/<class>"]
    >>> doubtful_names(["cat", "dog", "Unknown"])
    ["'Unknown' is read as a class: if it says that the class is not known, leave these samples without a label"]
    """
    spelt: dict[str, list[str]] = {}
    for name in sorted(classes):
        spelt.setdefault("".join(name.split()).casefold(), []).append(name)
    remarks = [
        f"{', '.join(map(repr, names))} are {len(names)} classes whose names differ only in case or blanks: "
        "rename them if they are one"
        for names in spelt.values()
        if len(names) > 1
    ]
    for meant, remedy in (
        (SETS, "if its pictures are to test on, sort them into test/<class> beside train/<class>"),
        (NOTHING, "if it says that the class is not known, leave these samples without a label"),
    ):
        remarks += [f"{name!r} is read as a class: {remedy}" for key in meant for name in spelt.get(key, ())]
    return remarks


def describe_dark(corpus: Corpus) -> str | None:
    """A remark on deep grey images that use only the darkest of their levels, as cameras of 10, 12 or 14 bits write
    them; None if there are none."""
    if corpus.facts is None:
        return None
    deep = np.flatnonzero(np.isin(corpus.facts["mode"][: len(corpus.train)], list(DEEP)))
    brightest = int(thumbnails(corpus.train.inputs[deep[:: len(deep) // EXAMINED + 1]]).max(initial=0))
    if not len(deep) or brightest >= DARK:
        return None
    return (
        f"nearly black (level {brightest} of 255 at most): {counted(len(deep), 'picture')} of 16 or 32 bits; if fewer "
        "bits are in use, scale the values up to 65,535"
    )


def _next(report: dict[str, Any], unlabelled: Path | None) -> str:
    """The command to run next."""
    if report["data"] in sources:
        return "normatch list recipes"
    if sum(entry["train"] > 0 for entry in report["classes"]) < 2:
        again = ["normatch", "data", "inspect", report["data"]]
        return f"label images of two classes or more, then {shlex.join(again)}"
    words = ["normatch", "train", "--data", report["data"]]
    words += ["--unlabelled", str(unlabelled)] if unlabelled else []
    return shlex.join([*words, *(["--on-bad-image", "skip"] if report["unreadable"] else [])])


def _samples(corpus: Corpus) -> list[_Sample]:
    """Those to train on first, then those to test on."""
    classes, folder = corpus.train.classes, folder_of(corpus.name)
    return [
        _Sample(
            f"{name}[{i}]" if part.files is None else os.path.join(folder, part.files[i]),
            None if label == UNKNOWN else classes[label],
            name,
        )
        for name, part in corpus.parts.items()
        for i, label in enumerate(part.labels.tolist())
    ]


def _report(corpus: Corpus, samples: Sequence[_Sample]) -> dict[str, Any]:
    train, test = (Counter(sample.label for sample in samples if sample.set == name) for name in ("train", "test"))
    unlabelled = train.pop(None, 0)
    inputs = [np.asarray(part.inputs) for part in corpus.parts.values()]
    images, facts = corpus.train.is_images, corpus.facts
    if facts is None and images:
        facts = np.concatenate([_facts(part) for part in inputs])
    report: dict[str, Any] = {
        "samples": len(samples),
        "labelled": sum(train.values()),
        "unlabelled": unlabelled,
        "test": sum(test.values()),
        "classes": [{"name": c, "train": train[c], "test": test[c]} for c in sorted(corpus.train.classes)],
        "sizes": _sizes(facts) if facts is not None and len(facts) else None,
        "modes": {} if facts is None else {m.decode(): n for m, n in Counter(facts["mode"].tolist()).most_common()},
        "unreadable": list(corpus.skipped),
        "imbalance": max(train.values()) / min(train.values()) if train else None,
        "near": {"bits": NEAR, "correlation": LIKE},
    }
    pixels = [hash(sample.tobytes()) for part in inputs for sample in part]
    small = np.concatenate([thumbnails(part) for part in inputs]) if images else np.zeros((0, 8, 9), np.uint8)
    # Copies of one image alone are among those of the same pixels.
    near = [group for group in alike(looks_of(small), small) if len({pixels[i] for i in group}) > 1]
    for prefix, found in (("", groups(pixels)), ("near_", near)):
        members = [[samples[i] for i in group] for group in found]
        chosen = {
            "duplicates": members,
            "label_conflicts": [group for group in members if len({one.label for one in group} - {None}) > 1],
            "leaks": [group for group in members if len({one.set for one in group}) > 1],
        }
        for kind, some in chosen.items():
            report[f"{prefix}{kind}"] = [[vars(sample) for sample in group] for group in some]
    dark = describe_dark(corpus)
    return report | {"remarks": [*_remarks(report), *([dark] if dark else [])]}


def _facts(images: NDArray[np.uint8]) -> NDArray[Any]:
    return np.array([(*images.shape[2:0:-1], "L" if images.shape[3] == 1 else "RGB")] * len(images), FACTS)


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


def _rows(corpus: Corpus, samples: Sequence[_Sample]) -> list[tuple[str, NDArray[np.uint8]]]:
    """Rows of a contact sheet: evenly spaced training images of each class; then unlabelled ones."""
    members: dict[str | None, list[int]] = {}
    for i, sample in enumerate(samples[: len(corpus.train)]):
        members.setdefault(sample.label, []).append(i)
    rows = []
    for name, at in sorted(members.items(), key=lambda member: (member[0] is None, member[0])):
        chosen = np.array(at)[np.unique(np.linspace(0, len(at) - 1, ACROSS).round().astype(int))]
        rows.append((f"{'unlabelled' if name is None else name}  ({len(at):,})", corpus.train.inputs[chosen]))
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
