"""The search for settings that make NorMatch accurate within minutes: network, learning rate, schedule, targets.

python benchmarks/fast.py quick-resnet quick-resnet-lr-0.1 --steps 18944 --labels 250 --data-root data
trains each choice and adds what it reached to benchmarks/results/cifar10-fast-choices.json. 5,000 training images,
drawn once and taken out of training, judge; the test images have no part in it. Started several times, the runs get
ready side by side and train one after the other.
"""

import argparse
import ast
import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import contrast
import numpy as np
import succession
from numpy.typing import NDArray
from tried import add_what_was_tried

from normatch import recipes
from normatch.config import Config
from normatch.data import Corpus
from normatch.evaluate import Predictor, confusion, load
from normatch.evaluate.answers import read_answers
from normatch.files import read_json, write_json
from normatch.reproduce.turns import turn
from normatch.training import train
from normatch.training.job import open_corpus
from normatch.training.kinds import of_new_kinds
from normatch.training.progress import Lines
from normatch.training.run import Run

RESULTS = Path(__file__).parent / "results" / "cifar10-fast-choices.json"
WHAT = (
    "NorMatch on CIFAR-10: accuracy of the last averaged weights on 5,000 training images that were taken out of "
    "training, 500 a class"
)
HELD_OUT = 500
"""Images a class."""
KEPT = 100
"""Most points of a curve."""

Changes = dict[str, Any]
"""What a choice changes in the recipe of the paper: config fields, and those of its settings and optimiser."""

SHARED: Changes = {"settings.passes": "shared"}
QUICK_ALONE: Changes = {"backbone": "quick-resnet"}
QUICK: Changes = QUICK_ALONE | {"settings.passes": "joint"}
TO_ZERO: Changes = {"optim.cosine": 0.5}
LARGE_STEPS: Changes = QUICK_ALONE | SHARED | {"optim.lr": 0.1}
ONEHOT: Changes = LARGE_STEPS | TO_ZERO | {"settings.pseudo_label": "onehot"}
STRONG: Changes = {"settings.labelled_view": "strong"}
ADAPTIVE: Changes = ONEHOT | STRONG | {"settings.adaptive": True}
MORE_DECAY: Changes = {"optim.weight_decay": 1e-3}
THEN: Changes = LARGE_STEPS | TO_ZERO | {"settings.decide_after": 0.6, "settings.adaptive": True}
THREE_OPS: Changes = {"augment.ops": 3}
DEEP_SUCCESSOR: Changes = THREE_OPS | {"backbone": "wrn-28-2", "method": "normatch-successor"}
ADAPTIVE_SUCCESSOR: Changes = ONEHOT | DEEP_SUCCESSOR | {"settings.adaptive": True}
LATE_384: Changes = {"backbone": "quick-resnet-late-384"}
LATE_512: Changes = {"backbone": "quick-resnet-late-512"}
ALL: Changes = QUICK_ALONE | TO_ZERO | {"optim.lr": 0.1, "method": "all-labels", "batch": 256}
CHOICES: dict[str, Changes] = {
    "wrn-28-2": SHARED | TO_ZERO,
    "wrn-16-4": SHARED | TO_ZERO | {"backbone": "wrn-16-4"},
    "wrn-10-4": SHARED | TO_ZERO | {"backbone": "wrn-10-4"},
    "quick-resnet-64": QUICK | TO_ZERO | {"backbone": "quick-resnet-64"},
    "quick-resnet": QUICK | TO_ZERO,
    "quick-resnet-ratio-3": QUICK | TO_ZERO | {"ratio": 3},
    "quick-resnet-lr-0.1": QUICK | TO_ZERO | {"optim.lr": 0.1},
    "soft": LARGE_STEPS,
    "sharp": LARGE_STEPS | TO_ZERO | {"method": "normatch-sharp"},
    "onehot": ONEHOT,
    "onehot-lr-0.2": ONEHOT | {"optim.lr": 0.2},
    "onehot-48": ONEHOT | {"backbone": "quick-resnet-48"},
    "onehot-strong-labels": ONEHOT | STRONG,
    "decided": LARGE_STEPS | TO_ZERO | STRONG | {"method": "normatch-decided"},
    "adaptive": ADAPTIVE,
    "adaptive-joint": ADAPTIVE | {"settings.passes": "joint"},
    "adaptive-lr-0.05": ADAPTIVE | {"optim.lr": 0.05},
    "adaptive-decay-1e-3": ADAPTIVE | MORE_DECAY,
    "soft-then-adaptive": THEN,
    "decay-1e-3": THEN | MORE_DECAY,
    "decide-0.4": THEN | {"settings.decide_after": 0.4},
    "taught": THEN | {"method": "normatch-taught"},
    "taught-late": THEN | {"method": "normatch-taught-late"},
    "remembered": THEN | {"method": "normatch-remembered"},
    "cutmix": THEN | {"method": "normatch-cutmix"},
    "mixup": THEN | {"method": "normatch-mixup"},
    "three-ops": THEN | THREE_OPS,
    "four-ops": THEN | {"augment.ops": 4},
    "late-384": THEN | LATE_384,
    "late-512": THEN | LATE_512,
    "late-384-three-ops-decay-1e-3": THEN | LATE_384 | THREE_OPS | MORE_DECAY,
    "wrn-28-2-three-ops": THEN | THREE_OPS | {"backbone": "wrn-28-2"},
    "wrn-144-three-ops": THEN | THREE_OPS | {"backbone": "wrn-144"},
    "wrn-28-2-adaptive": ADAPTIVE | THREE_OPS | {"backbone": "wrn-28-2"},
    "successor": THEN | DEEP_SUCCESSOR,
    "successor-adaptive": ADAPTIVE_SUCCESSOR,
    "successor-adaptive-lr-0.2": ADAPTIVE_SUCCESSOR | {"optim.lr": 0.2},
    "successor-adaptive-lr-0.05": ADAPTIVE_SUCCESSOR | {"optim.lr": 0.05},
    "successor-adaptive-lr-0.03": ADAPTIVE_SUCCESSOR | {"optim.lr": 0.03},
    "successor-adaptive-decay-1e-3": ADAPTIVE_SUCCESSOR | MORE_DECAY,
    "successor-adaptive-early": ADAPTIVE_SUCCESSOR | {"method": "normatch-successor-early"},
    "mirrored": THEN | THREE_OPS | {"method": "normatch-mirrored"},
    "together": THEN | THREE_OPS | {"method": "normatch-together"},
    "all": ALL,
    "all-decay-1e-3": ALL | MORE_DECAY,
    "all-late-256": ALL | {"backbone": "quick-resnet-late-256"},
    "all-late-384": ALL | LATE_384,
    "all-late-384-decay-1e-3": ALL | LATE_384 | MORE_DECAY,
    "all-late-384-three-ops-decay-1e-3": ALL | LATE_384 | THREE_OPS | MORE_DECAY,
    "all-late-384-max": ALL | {"backbone": "quick-resnet-late-384-max"},
    "all-late-384-gelu": ALL | {"backbone": "quick-resnet-late-384-gelu"},
    "all-late-512": ALL | LATE_512,
    "all-late-512-decay-1e-3": ALL | LATE_512 | MORE_DECAY,
    "all-222": ALL | {"backbone": "quick-resnet-222"},
    "all-331": ALL | {"backbone": "quick-resnet-331"},
    "all-wrn-144": ALL | {"backbone": "wrn-144"},
    "all-wrn-244": ALL | {"backbone": "wrn-244"},
    "all-wrn-28-2": ALL | {"backbone": "wrn-28-2"},
    "contrast": QUICK_ALONE | TO_ZERO | {"method": "contrast", "optim.lr": 0.2},
    "contrasting": ADAPTIVE | MORE_DECAY | {"method": "normatch-contrasting"},
    "started": ADAPTIVE | MORE_DECAY | {"method": "normatch-started", "optim.lr": 0.05},
}


def changes_of(choice: str) -> Changes:
    """Those of a choice, which may have more behind its name: three-ops+optim.muon=0.03."""
    name, *more = choice.split("+")
    return CHOICES[name] | {field: _value(text) for field, _, text in (one.partition("=") for one in more)}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def config_of(choice: str, labels: int, seed: int, steps: int, evaluations: int = 12) -> Config:
    """The paper's recipe with the choice's changes, its epoch a hundredth of the run."""
    config = recipes.cifar10(labels, seed).replace(
        name=f"{choice}-{labels}-{steps}-seed{seed}",
        steps=steps,
        epoch=max(1, steps // 100),
        evaluate_every=max(1, steps // evaluations),
        log_every=64,
    )
    for name, value in changes_of(choice).items():
        part, dot, field = name.rpartition(".")
        change = {part: dataclasses.replace(getattr(config, part), **{field: value})} if dot else {field: value}
        config = config.replace(**change)
    return config


def held_out(corpus: Corpus) -> Corpus:
    """The corpus with HELD_OUT training images of each class in the place of the test images, always the same."""
    labels, rng = corpus.train.labels, np.random.default_rng(2026)
    of_classes = (np.flatnonzero(labels == label) for label in range(10))
    judges = np.sort(np.concatenate([rng.permutation(items)[:HELD_OUT] for items in of_classes]))
    rest = np.setdiff1d(np.arange(len(labels)), judges)
    return Corpus(corpus.name, corpus.train.subset(rest), corpus.train.subset(judges))


def suggested(
    corpus: Corpus, model: Predictor, labelled: NDArray[np.int64], count: int, seed: int
) -> tuple[NDArray[np.int64], list[list[int]]]:
    """Positions of so many suggestions; of each its class, the network's guess, and how many are alike."""
    train = corpus.train
    free = np.setdiff1d(np.arange(len(train)), labelled)
    chosen, sizes, _ = of_new_kinds(model.model, train.inputs, labelled, free, count, seed)
    guesses = model.predict_proba(train.inputs[chosen]).argmax(1)
    rows = zip(train.labels[chosen].tolist(), guesses.tolist(), sizes, strict=True)
    return chosen, [list(row) for row in rows]


def with_more_labels(corpus: Corpus, first: Run, labels: int, seed: int) -> tuple[Corpus, dict[str, Any]]:
    """The corpus with one fold: the labels of an earlier run, and as many suggestions of its network as are missing.

    Also what is noted of them.
    """
    labelled = first.split.labelled
    more, rows = suggested(corpus, load(first.path, "auto"), labelled, labels - len(labelled), seed)
    noted = {
        "suggested by": first.path.name,
        "suggestions: class, guess, and how many are alike": rows,
        "suggestions: positions": np.sort(more).tolist(),
    }
    return dataclasses.replace(corpus, folds=(np.union1d(labelled, more),)), noted


def table(run: Run, classes: tuple[str, ...]) -> list[list[int]]:
    """How many test images of each class are taken for each."""
    answers = read_answers(run, classes)
    assert answers is not None  # they have classes
    counts: list[list[int]] = confusion(answers.labels, answers.guess, len(classes)).tolist()
    return counts


def outcome(choice: str, run: Run, classes: tuple[str, ...]) -> dict[str, Any]:
    """What is kept of a run: the steps a second include evaluations, but not the start."""
    result, metrics = run.result, list(run.metrics())
    first, last = metrics[0], metrics[-1]
    return {
        "choice": choice,
        "changes": changes_of(choice),
        **{name: result[name] for name in ("labels", "seed", "steps", "accuracy", "seconds", "hardware", "date")},
        "steps_per_second": (last["step"] - first["step"]) / (last["seconds"] - first["seconds"]),
        "evaluations": [[line["step"], line["test/accuracy"]] for line in metrics if "test/accuracy" in line],
        "pseudo-labels right, and above 0.95": [
            [line["step"], line["pseudo/correct"], line["pseudo/confident"]]
            for line in metrics[:: -(-len(metrics) // KEPT)]
            if "pseudo/correct" in line
        ],
        "confusion: rows are the truth": table(run, classes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "choices",
        nargs="+",
        metavar="CHOICE",
        help=f"{', '.join(CHOICES)}; each may have further changes, as in three-ops+optim.muon=0.03",
    )
    parser.add_argument("--data-root", type=Path, required=True, help="the folder of CIFAR-10")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--labels", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100, help="those below 100 are left to the test images")
    parser.add_argument("--evaluations", type=int, default=12)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder, for --start and --more")
    parser.add_argument("--start", type=Path, help="the folder of the kept run that is continued")
    parser.add_argument(
        "--more", type=Path, help="the folder of the kept run, with fewer labels, that suggests the rest"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file that outcomes are added to")
    given = parser.parse_args()
    unknown = [choice for choice in given.choices if choice.partition("+")[0] not in CHOICES]
    if unknown:
        parser.error(f"unknown choice {unknown[0]!r}: choose from {', '.join(CHOICES)}")
    continued = [choice for choice in given.choices if choice == "started" or choice.startswith("successor")]
    if continued and given.start is None:
        parser.error(f"the choice {continued[0]!r} needs --start, the folder of an earlier run made with --keep")
    contrast.Started.start = given.start
    add_what_was_tried()
    corpus = held_out(open_corpus(recipes.cifar10().replace(data_root=given.data_root)))
    predecessor = None if given.start is None else succession.Predecessor(given.start, corpus.train)
    succession.Successor.before = predecessor
    noted: dict[str, Any] = {}
    if given.more is not None:
        corpus, noted = with_more_labels(corpus, Run.open(given.more), given.labels, given.seed)
    for choice in given.choices:
        config = config_of(choice, given.labels, given.seed, given.steps, given.evaluations)
        config = config.replace(data_root=given.data_root, device=given.device, fold=0 if corpus.folds else None)
        with contextlib.nullcontext(given.keep) if given.keep else tempfile.TemporaryDirectory() as folder:
            run = train(config, Path(folder) / config.name, progress=Lines(config.name), corpus=corpus, turns=in_turn)
            found = outcome(choice, run, corpus.train.classes)
        found |= noted
        if predecessor is not None and choice.startswith("successor"):
            found |= predecessor.facts
        with in_turn("writing"):
            before = read_json(given.out) if given.out.exists() else {"what": WHAT, "runs": []}
            write_json(given.out, before | {"runs": [*before["runs"], found]})
        print(f"{config.name}: {100 * found['accuracy']:.2f} % after {found['seconds']:.0f} s", flush=True)


def in_turn(name: str = "training") -> contextlib.AbstractContextManager[None]:
    folder = Path(tempfile.gettempdir()) / "normatch-fast"
    folder.mkdir(exist_ok=True)
    return turn(folder, 1, name)


if __name__ == "__main__":
    main()
