"""docs/results.md from what was measured: python benchmarks/page.py writes it, and its pictures, anew.

The words are those of results.in.md beside this file; each line of the form <!-- name --> is replaced by the table of
that name, which is made of the files in results/.
"""

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import picture

from normatch.files import read_json
from normatch.reproduce.fill import Filled
from normatch.reproduce.page import relative, section
from normatch.reproduce.paper import STUDIES
from normatch.reproduce.pictures import draw
from normatch.reproduce.results import read_results
from normatch.text import markdown

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DOCS = HERE.parent / "docs"

DIGITS = {
    "SelfTraining": "scikit-learn SelfTraining (logistic regression)",
    "supervised": "supervised: the 40 labels alone",
    "LabelSpreading": "scikit-learn LabelSpreading (7 neighbours)",
    "fixmatch": "FixMatch",
    "normatch": "NorMatch",
}
FEATURES = {
    "LogisticRegression": "LogisticRegression, the labels alone",
    "SelfTraining": "SelfTrainingClassifier (logistic regression)",
    "LabelSpreading": "LabelSpreading (20 neighbours)",
    "FixMatch": "FixMatchClassifier",
    "NorMatch": "NorMatchClassifier",
}
TASKS = {
    "digits": "digits, 1,797 × 64, 10 classes",
    "breast cancer": "breast cancer, 569 × 30, 2 classes",
    "wine": "wine, 178 × 13, 3 classes",
    "CIFAR-10 features": "CIFAR-10 features, 5,000 × 128, 5 classes",
}
BIRD, DEER = 2, 4
STAND_IN = "digits-40"
"""What the paper's analysis has been filled with where there is no GPU."""
PASSES = {
    "joint": "`joint`: one pass, as in the paper",
    "split": "`split`: weak views in a separate pass, without gradients",
    "shared": "`shared`: one pass, weak views left out of the backward pass",
    "shared-at-first": "`shared` in its first form: weak views constant in the backward pass",
    "running": "weak views in a separate pass, normalised by the running statistics (removed)",
}
CHOICES = {
    "wrn-28-2": "WRN-28-2, `shared`",
    "wrn-16-4": "WRN-16-4, `shared`",
    "wrn-10-4": "WRN-10-4, `shared`",
    "quick-resnet-64": "`quick-resnet` of twice the width",
    "quick-resnet": "`quick-resnet`",
    "quick-resnet-ratio-3": "`quick-resnet`, 3 unlabelled images for a labelled one",
    "quick-resnet-lr-0.1": "`quick-resnet`, learning rate 0.1",
    "soft": "the same in `shared`, learning rate falls to a fifth",
    "sharp": "in `shared`, pseudo-labels sharpened: p² / Σ p²",
    "onehot": "in `shared`, one-hot pseudo-labels",
    "onehot-lr-0.2": "one-hot, learning rate 0.2",
    "onehot-48": "one-hot, half as wide again",
    "onehot-strong-labels": "one-hot, labelled images strongly augmented",
    "decided": "strongly augmented labels; soft at first, one-hot at the end",
    "adaptive": "one-hot, strongly augmented labels, adaptive weights",
    "adaptive-joint": "the same in `joint`",
    "adaptive-lr-0.05": "adaptive weights, learning rate 0.05",
    "adaptive-decay-1e-3": "adaptive weights, weight decay 0.001",
    "contrast": "SimCLR alone, learning rate 0.2",
    "contrasting": "adaptive weights and SimCLR's loss, weight decay 0.001",
    "started": "adaptive weights from SimCLR's network, learning rate 0.05, weight decay 0.001",
    "soft-then-adaptive": "soft for 60 % of the run, then one-hot with adaptive weights",
}
VARIANTS = {
    "soft-then-adaptive": "the first recipe's choice",
    "decay-1e-3": "weight decay 0.001",
    "decide-0.4": "one-hot after 40 % of the run",
    "taught": "pseudo-labels of the averaged weights",
    "taught-late": "pseudo-labels of the averaged weights from a quarter of the run on",
    "remembered": "pseudo-labels averaged over the visits to an image",
    "cutmix": "half of the strong views mixed by CutMix",
    "mixup": "half of the strong views mixed by mixup",
    "three-ops": "three RandAugment ops instead of two",
    "four-ops": "four RandAugment ops",
    "late-384": "64, 192 and 384 channels instead of 64, 128 and 256",
    "late-512": "64, 256 and 512 channels",
    "late-384-three-ops-decay-1e-3": "64, 192 and 384 channels, three ops, weight decay 0.001",
    "mirrored": "three ops, pseudo-labels averaged over a weak view and its mirror image",
    "together": "three ops, pseudo-labels of network and averaged weights together from half of the run on",
    "wrn-28-2-three-ops": "WRN-28-2, three ops",
    "wrn-144-three-ops": "WRN-28-2 with one block instead of four at 32×32 pixels, three ops",
}
CEILINGS = {
    "all": "`quick-resnet`: 64, 128 and 256 channels",
    "all-decay-1e-3": "the same, weight decay 0.001",
    "all-late-256": "64, 256 and 256 channels",
    "all-late-384": "64, 192 and 384 channels",
    "all-late-384-decay-1e-3": "the same, weight decay 0.001",
    "all-late-384-three-ops-decay-1e-3": "the same, three ops, weight decay 0.001",
    "all-late-384-gelu": "64, 192 and 384 channels, GELU",
    "all-late-384-max": "64, 192 and 384 channels, largest instead of mean features",
    "all-late-512": "64, 256 and 512 channels",
    "all-late-512-decay-1e-3": "the same, weight decay 0.001",
    "all-222": "`quick-resnet` with two residual pairs in each stage",
    "all-331": "`quick-resnet` with three residual pairs in the first two stages",
    "all-wrn-28-2": "WRN-28-2",
    "all-wrn-144": "WRN-28-2 with one block instead of four at 32×32 pixels",
    "all-wrn-244": "WRN-28-2 with two blocks instead of four at 32×32 pixels",
}
DEEPER = {
    "three-ops": "`quick-resnet`",
    "wrn-28-2-three-ops": "WRN-28-2",
    "wrn-28-2-adaptive": "WRN-28-2; one-hot, strongly augmented labels, adaptive weights from the start",
}
SUCCESSION = {
    "three-ops": "the predecessor: `quick-resnet`, the first recipe's choice",
    "successor": "WRN-28-2, told for 40 % of the run, soft until 60 %",
    "successor-adaptive": "WRN-28-2, told for 40 % of the run",
    "successor-adaptive-early": "WRN-28-2, told for 15 % of the run",
    "successor-adaptive-lr-0.2": "WRN-28-2, told for 40 % of the run, learning rate 0.2",
    "successor-adaptive-lr-0.05": "WRN-28-2, told for 40 % of the run, learning rate 0.05",
    "successor-adaptive-lr-0.03": "WRN-28-2, told for 40 % of the run, learning rate 0.03",
    "successor-adaptive-decay-1e-3": "WRN-28-2, told for 40 % of the run, weight decay 0.001",
}
WIDEST = "128, 384 and 512 channels"
RATES = {
    "all": "SGD 0.1",
    "three-ops": "SGD 0.1",
    **{
        f"{first}+optim.muon={rate}": f"Muon {rate}"
        for first in ("all", "three-ops")
        for rate in (0.005, 0.01, 0.03, 0.1)
    },
    "all+optim.muon=0.01+backbone=quick-resnet-128-384-512": f"Muon 0.01; {WIDEST}",
    "three-ops+optim.muon=0.01+backbone=wrn-28-2": "Muon 0.01, WRN-28-2",
    "three-ops+optim.muon=0.01+backbone=quick-resnet-late-512": "Muon 0.01; 64, 256 and 512 channels",
    **{
        f"three-ops+optim.muon={rate}+backbone=quick-resnet-128-384-512": f"Muon {rate}; {WIDEST}"
        for rate in (0.007, 0.01, 0.015, 0.02, 0.03)
    },
    "four-ops+optim.muon=0.01+backbone=quick-resnet-128-384-512": f"Muon 0.01; {WIDEST}, four ops",
    "three-ops+optim.muon=0.01+ratio=3+backbone=quick-resnet-128-384-512": (
        f"Muon 0.01; {WIDEST}, 3 unlabelled images for a labelled one"
    ),
    "three-ops+optim.muon=0.015+backbone=quick-resnet-128-384-512+settings.passes=split": (
        f"Muon 0.015; {WIDEST}, in `split`"
    ),
    "three-ops+optim.muon=0.015+method=normatch-balanced+backbone=quick-resnet-128-384-512": (
        f"Muon 0.015; {WIDEST}, equally frequent pseudo-labels"
    ),
}
"""Optimisers of `quick-resnet`, or of another network, in the order of their table."""
MUON = 0.015
"""Its rate where some labels are suggested."""
WHICH = {
    "each class": "as many of each class, by chance",
    "chance": "of all digits, by chance",
    "kinds": "one of each kind, by pixels",
    "half each class, half chance": "half of each class by chance; then of all, by chance",
    "half each class, half suggested": "half of each class by chance; then by `normatch suggest`",
    "two rounds": "half of each class by chance; then by `--suggested`, of a network of 85 steps",
    "half each class, half disputed": "half of each class by chance; then where head and flow disagree",
}

ASKING = {
    "chance": "as many of each class, by chance",
    "kinds": "one of each kind without a label, as `normatch suggest` asks",
    "finer kinds": "the same of twice as many kinds",
    "covering": "what brings all digits nearest to a labelled one, greedily",
    "covering, in doubt": "the same, each digit counted by its doubt",
    "kinds, twice": "one of each kind, five by a first network and five by a second",
}


def digits() -> str:
    picture.draw(DOCS / "pictures" / "digits-40.svg")
    runs = read_json(RESULTS / "digits-40.json")["runs"]
    rows = [["", "test accuracy (%)", "each seed", "seconds a run"]]
    for method, name in DIGITS.items():
        mine = [run for run in runs if run["method"] == method]
        each = [100 * run["accuracy"] for run in mine]
        seconds = [run["seconds"] for run in mine if "seconds" in run]
        spent = f"{min(seconds):.0f} to {max(seconds):.0f}" if seconds else ""
        rows.append([name, mean_and_spread(each), " ".join(f"{score:.1f}" for score in each), spent])
    return markdown(rows)


def which() -> str:
    """Ways to choose labels, and of how many seeds each class had one."""
    runs = read_json(RESULTS / "digits-which-labels.json")["runs"]
    counts = sorted({run["labels"] for run in runs})
    rows = [["labels", *map(str, counts)]]
    for way, name in WHICH.items():
        cells = []
        for labels in counts:
            mine = [run["accuracy"] for run in runs if (run["way"], run["labels"]) == (way, labels)]
            known = [100 * accuracy for accuracy in mine if accuracy is not None]
            some = f" ({len(known)} of {len(mine)})" if len(known) < len(mine) else ""
            cells.append(f"{mean_and_spread(known) if known else ''}{some}")
        rows.append([name, *cells])
    return markdown(rows)


def asking() -> str:
    """Ways in which a short first network asks for the other half of the labels."""
    runs = read_json(RESULTS / "digits-how-to-ask.json")["runs"]
    rows = [["the other ten labels", "test accuracy (%)"]]
    for way, name in ASKING.items():
        rows.append([name, mean_and_spread([100 * run["accuracy"] for run in runs if run["way"] == way])])
    return markdown(rows)


def features() -> str:
    runs = read_json(RESULTS / "features.json")["runs"]
    rows = [["", *TASKS.values(), "processor seconds a fit"]]
    for estimator, name in FEATURES.items():
        mine = [run for run in runs if run["estimator"] == estimator]
        cells = [mean_and_spread([100 * run["accuracy"] for run in mine if run["task"] == task]) for task in TASKS]
        spent = [run["seconds"] for run in mine]
        rows.append([name, *cells, f"{min(spent):.2f} to {max(spent):.2f}"])
    return markdown(rows)


def passes() -> str:
    """With 40 labels: the last evaluation of each run, and what the paper's way has at the same step."""
    curves = _curves("cifar10-40-passes.json")
    rows = [["how the 960 views go through the backbone", "test accuracy (%)", "at step", "`joint` at that step"]]
    for way, curve in curves.items():
        last = max(curve)
        rows.append([PASSES[way], _percent(curve[last]), f"{last:,}", _percent(curves["joint"].get(last))])
    return markdown(rows)


def ways() -> str:
    """With 250 labels: passes and precisions step by step."""
    runs = read_json(RESULTS / "cifar10-250-ways.json")["runs"]
    steps = (1024, 2048, 4096, 8192, 12288, 16384, 18432, 20480)
    rows = [["test accuracy (%) at step", *(f"{step:,}" for step in steps), "seconds"]]
    for run in runs:
        curve = _curve(run)
        cells = (_percent(curve.get(step)) for step in steps)
        rows.append([f"`{run['passes']}`, {run['precision']}", *cells, f"{run['result']['seconds']:,.0f}"])
    return markdown(rows)


def fast() -> str:
    """The search for a recipe of minutes, in the order of its runs."""
    return _search(CHOICES, lambda run: run["choice"] in CHOICES and not _is_variant(run))


def variants() -> str:
    """Changes of the choice that became the first recipe."""
    return _search(VARIANTS, _is_variant)


def ceilings() -> str:
    """What networks reach with true labels."""
    return _search(CEILINGS, lambda run: run["choice"] in CEILINGS)


def deeper() -> str:
    """The paper's network with 40 labels."""

    def wanted(run: dict[str, Any]) -> bool:
        return run["labels"] == 40 and run["choice"] in DEEPER and not _compares_labels(run)

    return _search(DEEPER, wanted)


def succession() -> str:
    """Fresh networks that are told at first what another is surest of, each after the run that told it."""
    rows = [["row", "choice", "label seed", "steps", "minutes of steps", "held-out accuracy (%)"]]
    for row, run in enumerate(filter(_succeeds, _searched()), 1):
        cells = [str(run["seed"]), f"{run['steps']:,}", f"{_minutes(run):.1f}", f"{100 * run['accuracy']:.1f}"]
        rows.append([str(row), SUCCESSION[run["choice"]], *cells])
    return markdown(rows)


def suggested() -> str:
    """Labels by chance, and half of them suggested by a network that had the other half; each label seed's together."""
    return _chosen_labels(filter(_compares_labels, _searched()))


def advised() -> str:
    """The same with Muon, and its runs with labels by chance, also at other rates."""
    runs = read_json(RESULTS / "cifar10-muon.json")["runs"]
    rates = {f"three-ops+optim.muon={rate}+backbone=quick-resnet-128-384-512" for rate in (0.01, MUON, 0.02)}
    return _chosen_labels(run for run in runs if run["labels"] <= 40 and run["choice"] in rates)


def _chosen_labels(runs: Iterable[dict[str, Any]]) -> str:
    rows = [["label seed", "labels", "steps", "minutes of steps", "held-out accuracy (%)", "birds taken for deer"]]
    for run in sorted(runs, key=lambda run: (run["seed"], run["labels"], "suggested by" in run)):
        labels = "20 by chance, 20 suggested" if "suggested by" in run else f"{run['labels']} by chance"
        if (rate := run["changes"].get("optim.muon", MUON)) != MUON:
            labels += f", rate {rate}"
        cells = [f"{run['steps']:,}", f"{_minutes(run):.1f}", f"{100 * run['accuracy']:.1f}"]
        rows.append([str(run["seed"]), labels, *cells, str(run["confusion: rows are the truth"][BIRD][DEER])])
    return markdown(rows)


def optimisers() -> str:
    """Muon in the place of SGD: with all labels, 250 and 40."""
    rows = [["labels", "optimiser, network", "label seed", "steps", "minutes of steps", "held-out accuracy (%)"]]
    names, runs = list(RATES), read_json(RESULTS / "cifar10-muon.json")["runs"]
    by_chance = [run for run in runs if run["labels"] != 20 and "suggested by" not in run]
    for run in sorted(by_chance, key=lambda run: (-run["labels"], names.index(run["choice"]), run["seed"])):
        cells = [f"{run['steps']:,}", f"{_minutes(run):.1f}", f"{100 * run['accuracy']:.1f}"]
        rows.append([f"{run['labels']:,}", RATES[run["choice"]], str(run["seed"]), *cells])
    return markdown(rows)


def small() -> str:
    """Somebody's small photographs on a CPU: by SGD alone, with Muon, and that in `split`."""
    runs = read_json(RESULTS / "small-pictures.json")["runs"]
    rows = [["labels", "steps", "seconds a run", "SGD", "with Muon", "Muon in `split`", "each seed"]]
    for labels, steps in sorted({(run["labels"], run["steps"]) for run in runs}):
        mine = [run for run in runs if (run["labels"], run["steps"]) == (labels, steps)]
        ways = [[run for run in mine if run["way"] == way] for way in ("sgd", "muon", "split")]
        spent = [run["seconds"] for run in mine]
        means = [mean_and_spread([100 * run["accuracy"] for run in way]) for way in ways]
        each = (" → ".join(f"{100 * run['accuracy']:.1f}" for run in of_seed) for of_seed in zip(*ways, strict=True))
        seconds = f"{min(spent):.0f} to {max(spent):.0f}"
        rows.append([str(labels), f"{steps:,}", seconds, *means, ", ".join(each)])
    return markdown(rows)


def asked() -> str:
    """Such photographs with labels by chance, and half of them suggested by a first network."""
    runs = read_json(RESULTS / "chosen-pictures.json")["runs"]
    rows = [["labels", "by chance", "half suggested", "each seed"]]
    for labels in sorted({run["labels"] for run in runs}):
        ways = [
            [100 * run["accuracy"] for run in runs if (run["labels"], run["way"]) == (labels, way)]
            for way in ("chance", "suggested")
        ]
        each = (f"{before:.1f} → {after:.1f}" for before, after in zip(*ways, strict=True))
        rows.append([str(labels), *map(mean_and_spread, ways), ", ".join(each)])
    return markdown(rows)


def _searched() -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = read_json(RESULTS / "cifar10-fast-choices.json")["runs"]
    return runs


def _succeeds(run: dict[str, Any]) -> bool:
    """Whether a run has a predecessor, or could be one and is of a label seed that has a successor."""
    return run["choice"] in SUCCESSION and (run["choice"] != "three-ops" or (_is_a_start(run) and run["seed"] < 102))


def _compares_labels(run: dict[str, Any]) -> bool:
    return run["choice"] == "three-ops" and ("suggested by" in run or run["labels"] == 20 or _is_a_start(run))


def _is_a_start(run: dict[str, Any]) -> bool:
    """Whether it has labels by chance, and the steps that only predecessors have."""
    return run["steps"] == 40_960 and "suggested by" not in run


def _minutes(run: dict[str, Any]) -> float:
    minutes: float = run["steps"] / run["steps_per_second"] / 60
    return minutes


def _is_variant(run: dict[str, Any]) -> bool:
    return run["labels"] == 250 and run["choice"] in VARIANTS


def _search(names: dict[str, str], wanted: Callable[[dict[str, Any]], bool]) -> str:
    rows = [["row", "choice", "labels", "steps", "steps/s", "minutes of steps", "held-out accuracy (%)"]]
    for row, run in enumerate(filter(wanted, _searched()), 1):
        cells = [f"{run['labels']:,}", f"{run['steps']:,}", f"{run['steps_per_second']:.0f}", f"{_minutes(run):.1f}"]
        rows.append([str(row), names[run["choice"]], *cells, f"{100 * run['accuracy']:.1f}"])
    return markdown(rows)


def _curves(file: str) -> dict[str, dict[int, float]]:
    """The test accuracy at each step of each way through the backbone."""
    return {run["passes"]: _curve(run) for run in read_json(RESULTS / file)["runs"]}


def _curve(run: dict[str, Any]) -> dict[int, float]:
    return {evaluation["step"]: evaluation["test/accuracy"] for evaluation in run["evaluations"]}


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def speed() -> str:
    head = "case, backbone, images, steps/s, ms a step, augmentation, memory floor, peak GPU memory, ready after"
    rows = [head.split(", ")]
    for case in read_json(RESULTS / "speed-h200.json")["cases"]:
        milliseconds = 1000 / case["steps_per_second"]
        side = case["shape"][-1]
        rows.append(
            [
                f"`{case['case']}`",
                case["backbone"],
                f"{side}×{side}",
                f"{case['steps_per_second']:.1f}",
                f"{milliseconds:.2f}",
                f"{case['parts_ms']['augmentation']:.2f} ms",
                f"{case['floor']['ms']:.2f} ms, {100 * case['floor']['share']:.0f} %",
                f"{case['peak_memory_bytes'] / 1e9:.2f} GB",
                f"{case['start_seconds']:.0f} s",
            ]
        )
    return markdown(rows)


def views() -> str:
    found = read_json(RESULTS / "augment-h200.json")
    rows = [["strong views", "images", "images a second", "least and most"]]
    for row in found["strong"]:
        low, high = min(row["repeats"]), max(row["repeats"])
        side = row["side"]
        rows.append([row["who"], f"{side}×{side}", f"{row['images_per_second']:,.0f}", f"{low:,.0f} to {high:,.0f}"])
    return markdown(rows)


def paper() -> str:
    """Every table and figure, and those of the analysis again with a stand-in."""
    folder = RESULTS / "reproduce"
    results = read_results(folder)
    link = relative("../benchmarks/results/reproduce")
    parts = []
    for stand_in in (None, STAND_IN):
        for study in STUDIES.values():
            filled = Filled(study, results, stand_in)
            if stand_in is None or study.movable:
                parts.append(section(filled, link, draw(filled, DOCS / "pictures", "pictures")))
    return "\n".join(parts).rstrip("\n")


OF_THE_SEARCH = (fast, variants, ceilings, deeper, succession, suggested, optimisers, advised)
TABLES: dict[str, Callable[[], str]] = {
    table.__name__: table
    for table in (digits, which, asking, features, passes, ways, *OF_THE_SEARCH, small, asked, speed, views, paper)
}


def page() -> str:
    """The whole text; pictures are drawn on the way."""

    def table(place: re.Match[str]) -> str:
        return TABLES[place[1]]()

    return re.sub(r"^<!-- ([a-z]+) -->$", table, (HERE / "results.in.md").read_text(encoding="utf-8"), flags=re.M)


def mean_and_spread(scores: Sequence[float]) -> str:
    return f"{statistics.mean(scores):.1f} ± {statistics.stdev(scores):.1f}"


def main() -> None:
    (DOCS / "results.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
