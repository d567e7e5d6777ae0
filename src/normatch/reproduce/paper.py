"""The paper's results as data: each table and figure, its numbers, and the run of ours that answers each number."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from normatch.config import Config
from normatch.recipes import recipes

__all__ = ["FIXED_GRID", "OURS", "STUDIES", "Cell", "Measure", "Row", "Score", "Study", "Trial"]

EPOCHS = 300
"""Epochs of the paper's analysis (Section 4.2). A shortened run of any trial is that schedule scaled down."""

EVALUATIONS, BETWEEN_EVALUATIONS = 20, 1024
"""A shortened run has at least 20 evaluations, of which the published code reports the mean, and at most 1,024 steps
between two."""

Measure = Literal["accuracy", "confident", "steps/s"]
"""What a cell measures: accuracy, the share of pseudo-labels above 0.95 (Table 3), or the speed of training."""


@dataclass(frozen=True)
class Score:
    """A number of the paper, in percent."""

    value: float
    spread: float | None = None
    """The number after ±."""


@dataclass(frozen=True)
class Trial:
    """A run of the paper's protocol, except for its seed."""

    name: str
    """A name for what it trains: unique among the trials of a recipe, except for the number of epochs."""
    recipe: str = "cifar10-40"
    epochs: int = EPOCHS
    """Epochs of the whole schedule: the analysis has 300 (Section 4.2), the comparison 1024, Mini-ImageNet 600."""
    method: str = "normatch"
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the recipe's."""
    backbone: str | None = None
    """Another network than the recipe's."""

    def config(self, seed: int, steps: int | None = None) -> Config:
        """The config of the whole schedule, or of one scaled down to ``steps``."""
        base = recipes.get(self.recipe).build().replace(method=self.method, seed=seed)
        whole = base.replace(
            steps=min(base.steps, self.epochs * base.epoch),
            backbone=self.backbone or base.backbone,
            # If the data set has predefined labelled subsets, the seed selects one of them.
            fold=None if base.fold is None else seed,
            settings=dataclasses.replace(base.settings, **self.settings),
        )
        if steps is None or steps >= whole.steps:
            return whole
        analysis = min(whole.steps, EPOCHS * base.epoch)
        return _scaled(whole.replace(steps=analysis) if steps <= analysis else whole, steps)


def _scaled(config: Config, steps: int) -> Config:
    """The schedule of ``config`` in fewer steps: as many epochs, each shorter, and with them all that is counted in
    epochs (ramps, records). Evaluations stay rare enough to cost little."""
    epoch = max(1, round(config.epoch * steps / config.steps))
    every = max(epoch, min(BETWEEN_EVALUATIONS, math.ceil(steps / EVALUATIONS)))
    log_every = min(config.log_every, max(1, steps // 40))
    return config.replace(steps=steps, epoch=epoch, log_every=log_every, evaluate_every=every, checkpoint_every=every)


@dataclass(frozen=True)
class Cell:
    """A cell of a table: the paper's numbers, and the trial that answers it."""

    paper: dict[Measure, Score]
    trial: Trial


@dataclass(frozen=True)
class Row:
    """A line of a table: one cell for each of its columns."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Study:
    """A table or figure."""

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...] = ("",)
    measures: tuple[Measure, ...] = ("accuracy",)

    def trials(self) -> list[Trial]:
        """The trials to train for it, row by row."""
        return [cell.trial for row in self.rows for cell in row.cells]

    @property
    def movable(self) -> bool:
        """Whether another data set can stand in: True if the study is about the method, False if about data sets."""
        return all(trial.recipe == "cifar10-40" for trial in self.trials())

    def on(self, recipe: str) -> "Study":
        """The study with another recipe in the place of its own, and so without the paper's numbers."""

        def moved(cell: Cell) -> Cell:
            return Cell({}, dataclasses.replace(cell.trial, recipe=recipe, backbone=None))

        return dataclasses.replace(
            self,
            title=f"{self.title}, on {recipe}",
            about=f"Trained on {recipe} with its own schedule: no accuracy here is the paper's. {self.about}",
            rows=tuple(Row(row.name, tuple(map(moved, row.cells))) for row in self.rows),
        )


OURS = {
    "FixMatch": "fixmatch",
    "labels alone": "supervised",
    "Pseudo-Label": "pseudo-label",
    "Π-Model": "pi-model",
    "Mean Teacher": "mean-teacher",
    "VAT": "vat",
    "Label Propagation": "label-propagation",
    "MixMatch": "mixmatch",
    "CREPE": "crepe",
    "ReMixMatch": "remixmatch",
    "UDA": "uda",
    "PLCB": "plcb",
    "FlowGMM-cons": "flowgmm",
    "SemCo": "semco",
    "SimPLE": "simple",
    "CoMatch": "comatch",
    "Dash": "dash",
    "FlexMatch": "flexmatch",
    "LaplaceNet": "laplacenet",
    "SimMatch": "simmatch",
    "Adsh": "adsh",
    "AdaMatch": "adamatch",
    "FreeMatch": "freematch",
    "SoftMatch": "softmatch",
    "NorMatch": "normatch",
}
"""The methods of this package by the names that tables give them: FixMatch, then the others by year."""

WITH_CONSENSUS = ("FixMatch", "FlexMatch", "FreeMatch", "SoftMatch", "UDA", "Dash")
"""The methods that are also trained with the flow's consensus; NorMatch is FixMatch with it, without a threshold."""

WITH_LONGER_RAMP = ("MixMatch", "SimPLE")
"""The methods that are also trained with weights that grow over a quarter of the run: in short runs the papers' do so
before the labels are learnt."""

PLAIN: dict[str, Any] = {"pseudo_label": "onehot", "alignment": False}
"""The analysis of Section 4.2 starts from one-hot pseudo-labels without alignment."""


def _plain(name: str, **settings: Any) -> Trial:
    return Trial(name, settings=PLAIN | settings)


FIXMATCH = Trial("fixmatch", method="fixmatch")
NCUE = _plain("ncue", num_weight=0.0)
NCUE_NUM = _plain("ncue-num")
NO_STOP = _plain("no-stop", stop_gradient=False)
ALIGNED = Trial("normatch")
SHARED = Trial("shared", settings={"passes": "shared"})
FAST = Trial("normatch", "cifar10-40-fast", settings={"passes": "shared"})


def _row(name: str, trial: Trial, accuracy: float | None, confident: float | None = None) -> Row:
    """A row of one column."""
    numbers: dict[Measure, float | None] = {"accuracy": accuracy, "confident": confident}
    paper: dict[Measure, Score] = {measure: Score(number) for measure, number in numbers.items() if number is not None}
    return Row(name, (Cell(paper, trial),))


_ANALYSIS = (
    Study(
        "table1",
        "Table 1: ablation",
        "One-hot pseudo-labels without alignment. The variant gives disputed pseudo-labels no weight.",
        (
            _row("FixMatch", FIXMATCH, 87.77),
            _row("FixMatch + NCUE", NCUE, 92.78),
            _row("FixMatch + NCUE variant", _plain("ncue-drop", num_weight=0.0, disagree="drop"), 91.55),
            _row("NorMatch (FixMatch + NCUE + NUM)", NCUE_NUM, 93.41),
        ),
    ),
    Study(
        "table2",
        "Table 2: pairs of classifiers",
        "DC is a discriminative classifier, NFC a normalizing flow classifier. The auxiliary NFC has 46,000 weights; "
        "the paper's 0.08 M count those that its masks silence.",
        (
            _row("DC + NFC", NCUE_NUM, 93.41),
            _row("DC + another DC", _plain("mlp", consensus="mlp"), 92.42),
            _row("NFC + NFC", _plain("nfc-nfc", head="nfc"), 80.81),
        ),
    ),
    Study(
        "table3",
        "Table 3: stopping the flow's gradient before the backbone",
        "Confident is the share of pseudo-labels above 0.95 at the end of training.",
        (
            _row("stopped", NCUE_NUM, 93.41, confident=82.31),
            _row("not stopped", NO_STOP, 29.27, confident=32.82),
        ),
        measures=("accuracy", "confident"),
    ),
    Study(
        "table4",
        "Table 4: pseudo-labels for the flow, one more flow",
        "As in Table 1, one-hot pseudo-labels without alignment.",
        (
            _row("default", NCUE_NUM, 93.41),
            _row("pseudo-labels teach the NFC too", _plain("nfc-taught", auxiliary_pseudo_labels=True), 92.72),
            _row("one more NFC", _plain("two-nfc", consensus="nfc+nfc"), 92.67),
        ),
    ),
    Study(
        "table5",
        "Table 5: distribution alignment",
        "Without alignment pseudo-labels are one-hot, with it they are the recipe's: soft, except on STL-10.",
        (
            _row("without alignment", NCUE_NUM, 93.41),
            _row("with alignment", ALIGNED, 93.71),
            _row("with alignment, 1024 epochs", Trial("normatch", epochs=1024), 94.70),
        ),
    ),
)


def _comparison() -> Study:
    """Table 6, whose methods are rows and whose data sets are columns."""
    columns = {
        "CIFAR-10, 40": "cifar10-40",
        "CIFAR-10, 250": "cifar10-250",
        "CIFAR-10, 4000": "cifar10-4000",
        "CIFAR-100, 400": "cifar100-400",
        "CIFAR-100, 2500": "cifar100-2500",
        "CIFAR-100, 10000": "cifar100-10000",
        "STL-10, 1000": "stl10-1000",
    }
    # One line per method, in the order of the columns.
    numbers = {
        "Π-Model": "– 45.74±3.97 58.99±0.38 – 42.75±0.48 62.12±0.11 –",
        "Mean Teacher": "– 67.68±2.30 90.81±0.19 – 46.09±0.57 64.17±0.24 –",
        "MixMatch": "52.46±11.50 88.95±0.86 93.58±0.10 32.39±1.32 60.06±0.37 71.69±0.33 38.02±8.29",
        "ReMixMatch": "80.90±9.64 94.56±0.05 95.28±0.13 55.72±2.06 72.57±0.31 76.97±0.56 –",
        "FlowGMM-cons": "– – 80.9 – – – –",
        "FixMatch": "86.19±3.37 94.93±0.65 95.74±0.05 51.15±1.75 71.71±0.11 77.40±0.12 65.38±0.42",
        "CoMatch": "93.09±1.39 95.09±0.33 – – – – 79.80±0.38",
        "SemCo": "– 94.88±0.27 96.20±0.08 – 68.07±0.01 75.55±0.12 –",
        "Dash": "86.78±3.75 95.44±0.13 95.92±0.06 55.24±0.96 72.82±0.21 78.03±0.14 –",
        "NorMatch": "94.70±0.16 95.06±0.18 95.89±0.12 59.39±0.39 73.41±0.29 78.55±0.18 81.38±0.12",
    }

    def cell(method: str, recipe: str, number: str) -> Cell:
        name = OURS[method]
        paper: dict[Measure, Score] = {} if number == "–" else {"accuracy": Score(*map(float, number.split("±")))}
        return Cell(paper, Trial(name, recipe, epochs=1024, method=name))

    rows = (
        Row(method, tuple(cell(method, *place) for place in zip(columns.values(), line.split(), strict=True)))
        for method, line in numbers.items()
    )
    return Study(
        "table6",
        "Table 6: the state of the art",
        "The number behind a data set is its labels. WRN-28-2 on CIFAR-10, WRN-28-8 on CIFAR-100, ResNet-18 on STL-10; "
        "1024 epochs.",
        tuple(rows),
        columns=tuple(columns),
    )


def _mini_imagenet() -> Study:
    numbers = {
        "Mean Teacher": 27.49,
        "Label Propagation": 29.71,
        "PLCB": 43.51,
        "MixMatch": 50.21,
        "SimPLE": 49.39,
        "FixMatch": 40.27,
        "NorMatch": 48.36,
    }
    trials = {name: Trial(OURS[name], "mini-imagenet-4000", 600, OURS[name]) for name in numbers}
    return Study(
        "table7",
        "Table 7: Mini-ImageNet with 4000 labels",
        "ResNet-18 on 84×84 pixels, 600 epochs.",
        tuple(_row(name, trials[name], number) for name, number in numbers.items()),
    )


def _sensitivity() -> Study:
    """Figure 5. The text gives the accuracies at λ = 0 and 1e-6 only, and says that larger λ are worse."""
    known = {"0": (NCUE, 92.78), "1e-6": (NCUE_NUM, 93.41)}
    rows = []
    for weight in ("0", "1e-7", "1e-6", "1e-5", "1e-4", "1e-3"):
        trial, number = known.get(weight, (_plain(f"lambda-{weight}", num_weight=float(weight)), None))
        rows.append(_row(f"λ = {weight}", trial, number))
    return Study(
        "figure5",
        "Figure 5: sensitivity to λ",
        "The weight of the unsupervised likelihood. The paper's text gives two of these points, and says that a larger "
        "λ than 1e-6 lowers accuracy.",
        tuple(rows),
    )


def _methods() -> Study:
    """All methods in one engine: FixMatch first, to which the others are compared."""

    def row(name: str, trial: str, method: str, **settings: Any) -> Row:
        digits = Trial(trial, "digits-40", method=method, settings=settings)
        return Row(name, (Cell({}, digits), Cell({}, dataclasses.replace(digits, recipe="cifar10-250", epochs=20))))

    rows = [row(name, method, method) for name, method in OURS.items()]
    rows += [row(f"{name}, ramp ¼", f"{OURS[name]}-ramp", OURS[name], ramp=0.25) for name in WITH_LONGER_RAMP]
    rows += [row(f"{name} + consensus", f"{OURS[name]}-nfc", OURS[name], consensus="nfc") for name in WITH_CONSENSUS]
    return Study(
        "methods",
        "All methods in one engine",
        "Every method with its paper's defaults and the recipe's network, optimiser and batch. CIFAR-10 has 20 of the "
        "paper's 1024 epochs (20,480 steps): a comparison of short runs. “+ consensus” is `--settings.consensus nfc`, "
        "“ramp ¼” is `--settings.ramp 0.25`.",
        tuple(rows),
        columns=("digits, 40", "CIFAR-10, 250, 20 epochs"),
        measures=("accuracy", "steps/s"),
    )


_FIGURE_ROWS = (
    _row("NorMatch, one-hot without alignment", NCUE_NUM, 93.41),
    _row("the same, no gradient through weak views", _plain("shared-ncue-num", passes="shared"), None),
)
"""The analysis has one-hot pseudo-labels without alignment (Section 4.2), and Figures 3 and 4 are part of it."""

_FIGURES = (
    Study(
        "figure3",
        "Figure 3: how many pseudo-labels are trusted",
        "One-hot pseudo-labels without alignment, as in the whole analysis.",
        _FIGURE_ROWS,
    ),
    Study("figure4", "Figure 4: how good the pseudo-labels are", "The run of Figure 3.", _FIGURE_ROWS),
    _sensitivity(),
)

_OPEN_CHOICES = Study(
    "choices",
    "What the paper leaves open",
    "NorMatch with alignment, changed in one thing at a time. The published code starts the mixture's means at random, "
    "has dropout in the flow during the first epoch alone, and never zeroes the mixture's gradients; its network skips "
    "two batch norms.",
    (
        _row("NorMatch as it is here", ALIGNED, 93.71),
        _row("means start at N(0, 1)", Trial("means-normal", settings={"means": "normal"}), None),
        _row("dropout in the first epoch", Trial("dropout-first", settings={"flow_dropout": "first-epoch"}), None),
        _row("dropout always", Trial("dropout-always", settings={"flow_dropout": "always"}), None),
        _row("mixture gradients never zeroed", Trial("accumulated", settings={"accumulate_mixture": True}), None),
        _row(
            "all three as published, in the published network",
            Trial(
                "as-published",
                backbone="wrn-28-2-published",
                settings={"means": "normal", "flow_dropout": "first-epoch", "accumulate_mixture": True},
            ),
            None,
        ),
        _row("no gradient through weak views (`passes` is `shared`)", SHARED, None),
    ),
)


def _controls() -> Study:
    """Controls that the paper lacks. Whether the flow helps is a difference to FixMatch with threshold 0; NorMatch and
    FixMatch compare with alignment equal on both sides."""

    def row(name: str, trial: str, accuracy: float | None, method: str = "normatch", **settings: Any) -> Row:
        few = Trial(trial, "cifar10-250", 60, method, {"passes": "shared"} | settings)
        (cell,) = _row(name, dataclasses.replace(few, recipe="cifar10-40", epochs=EPOCHS), accuracy).cells
        return Row(name, (Cell({}, few), cell))

    return Study(
        "controls",
        "Controls that the paper lacks",
        "All without gradient through weak views (`passes` is `shared`) and with the same label seeds. FixMatch with "
        "threshold 0 gives every pseudo-label the weight 1: what the flow adds is the difference to that row.",
        (
            row("FixMatch", "shared-fixmatch", 87.77, "fixmatch"),
            row("FixMatch + alignment", "shared-fixmatch-aligned", None, "fixmatch", alignment=True),
            row("FixMatch with threshold 0", "shared-fixmatch-threshold-0", None, "fixmatch", threshold=0.0),
            row("NorMatch, one-hot without alignment", "shared-ncue-num", 93.41, **PLAIN),
            row("NorMatch, soft and aligned", SHARED.name, 93.71),
        ),
        columns=("CIFAR-10, 250 labels, 60 epochs", "CIFAR-10, 40 labels, 300 epochs"),
    )


_FAST = Study(
    "fast",
    "Beyond the paper: minutes",
    "CIFAR-10 with 40 random labels by the recipe `cifar10-40-fast`, whose whole schedule has 49,152 steps. "
    "The paper's number is Table 6's, after 1024 epochs of 1,024 steps.",
    (_row("`cifar10-40-fast`", FAST, 94.70),),
)

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (*_ANALYSIS, _comparison(), _mini_imagenet(), *_FIGURES, _controls(), _OPEN_CHOICES, _FAST, _methods())
}
"""All studies by name, in the order of the paper; then controls, what it leaves open, and what goes beyond it."""


def _fixed_grid() -> list[tuple[Trial, int]]:
    trials = STUDIES["controls"].trials()  # of both columns in turn
    at_250, (fixmatch, _, threshold_0, plain, aligned) = trials[::2], trials[1::2]
    return [
        *((trial, seed) for seed in range(3) for trial in at_250),  # block A
        *((FAST, seed) for seed in range(5)),  # block E
        # Blocks B and C; seed 0 of the last arm was trained before the grid was fixed.
        *((trial, 0) for trial in (plain, fixmatch, threshold_0)),
        *((trial, seed) for seed in (1, 2) for trial in (plain, fixmatch, threshold_0, aligned)),
        (NO_STOP, 0),  # block D
    ]


FIXED_GRID = _fixed_grid()
"""Trials with label seeds that settle the main claims, in an order that was fixed before the first was trained."""
