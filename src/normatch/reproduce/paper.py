"""The paper's results as data: each table and figure, its numbers, and the run of ours that answers each number."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from normatch.config import Config
from normatch.errors import UserError
from normatch.recipes import recipes

__all__ = ["ANALYSED", "ANALYSIS", "STUDIES", "Cell", "Measure", "Row", "Score", "Study", "Trial", "find_studies"]

ANALYSED = "cifar10-40"
"""The recipe of the paper's analysis (Section 4.2)."""

ANALYSIS = "CIFAR-10 with 40 labels, 300 epochs"
"""The protocol of that analysis in words, which holds unless another data set stands in."""

Measure = Literal["accuracy", "confident", "weights", "products"]
"""What a cell measures: accuracy; the share of pseudo-labels above 0.95 (Table 3); the weights of the auxiliary
classifiers, and their multiply-adds for one item (Table 2)."""


@dataclass(frozen=True)
class Score:
    """A number of the paper: percent for shares, millions for weights and products."""

    value: float
    spread: float | None = None
    """The number after ±."""


@dataclass(frozen=True)
class Trial:
    """A run of the paper's protocol, except for its seed."""

    name: str
    """A name for what it trains: unique among the trials of a recipe, except for the number of epochs."""
    recipe: str = ANALYSED
    epochs: int = 300
    """Epochs of the whole schedule: the analysis has 300 (Section 4.2), the comparison 1024, Mini-ImageNet 600."""
    method: str = "normatch"
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the recipe's."""

    def config(self, seed: int, stand_in: str | None = None, most_epochs: int | None = None) -> Config:
        """The config of the trial's whole schedule, or of a complete schedule of at most ``most_epochs``.

        ``stand_in`` is another recipe to use, whose whole schedule may be shorter.
        """
        base = recipes.get(stand_in or self.recipe).build().replace(method=self.method, seed=seed)
        steps = min(base.steps, min(self.epochs, most_epochs or self.epochs) * base.epoch)
        return base.replace(
            steps=steps,
            # If the data set has predefined labelled subsets, the seed selects one of them.
            fold=None if base.fold is None else seed,
            settings=dataclasses.replace(base.settings, **self.settings),
        )


@dataclass(frozen=True)
class Cell:
    """A cell of a table: the paper's numbers, and the trial that answers it, if this package has one."""

    paper: dict[Measure, Score]
    trial: Trial | None = None


@dataclass(frozen=True)
class Row:
    """A line of a table: one cell for each of its columns."""

    name: str
    cells: tuple[Cell, ...]
    elsewhere: bool = False
    """Whether its runs belong to another study: they are shown here if there are any, and not trained for this one."""
    borrowed: bool = False
    """Whether the paper's number is another row's, and here for comparison alone."""


@dataclass(frozen=True)
class Study:
    """A table or figure."""

    name: str
    title: str
    about: str
    """What its rows are, whatever they are trained on."""
    rows: tuple[Row, ...]
    columns: tuple[str, ...] = ("",)
    measures: tuple[Measure, ...] = ("accuracy",)
    of_paper: str = ""
    """What to know about the paper's numbers."""
    movable: bool = True
    """Whether another data set can stand in: True if the study is about the method, False if about data sets."""

    def trials(self) -> list[Trial]:
        """The trials to train for it, row by row."""
        return [cell.trial for row in self.rows if not row.elsewhere for cell in row.cells if cell.trial is not None]


def find_studies(name: str) -> tuple[Study, ...]:
    """The study of that name, or all studies for ``all``."""
    if name == "all":
        return tuple(STUDIES.values())
    if name not in STUDIES:
        raise UserError(f"unknown table or figure {name!r}: choose from all, {', '.join(STUDIES)}")
    return (STUDIES[name],)


PLAIN: dict[str, Any] = {"pseudo_label": "onehot", "alignment": False}
"""The analysis of Section 4.2 starts from one-hot pseudo-labels without alignment."""


def _plain(name: str, **settings: Any) -> Trial:
    return Trial(name, settings=PLAIN | settings)


FIXMATCH = Trial("fixmatch", method="fixmatch")
NCUE = _plain("ncue", num_weight=0.0)
NCUE_NUM = _plain("ncue-num")
ALIGNED = Trial("normatch")
SHARED = Trial("shared", settings={"passes": "shared"})


def _row(name: str, trial: Trial | None, accuracy: float | None, **others: float) -> Row:
    """A row of one column."""
    paper: dict[Measure, Score] = {} if accuracy is None else {"accuracy": Score(accuracy)}
    measures: tuple[Measure, ...] = ("confident", "weights", "products")
    paper |= {measure: Score(others[measure]) for measure in measures if measure in others}
    return Row(name, (Cell(paper, trial),))


_ANALYSIS = (
    Study(
        "table1",
        "Table 1: ablation",
        "One-hot pseudo-labels without alignment. The variant gives disputed pseudo-labels no weight.",
        (
            _row("FixMatch", FIXMATCH, 87.77),
            _row("FixMatch + NCUE", NCUE, 92.78),
            _row("FixMatch + NCUE variant", _plain("ncue-drop", num_weight=0.0, consensus="drop"), 91.55),
            _row("NorMatch (FixMatch + NCUE + NUM)", NCUE_NUM, 93.41),
        ),
    ),
    Study(
        "table2",
        "Table 2: pairs of classifiers",
        "DC is a discriminative classifier, NFC a normalizing flow classifier. Weights and multiply-adds, in millions, "
        "are those of the auxiliary one.",
        (
            _row("DC + NFC", NCUE_NUM, 93.41, weights=0.08, products=0.08),
            _row("DC + another DC", _plain("mlp", auxiliary="mlp"), 92.42, weights=0.09, products=0.09),
            _row("NFC + NFC", _plain("nfc-nfc", head="nfc"), 80.81, weights=0.08, products=0.08),
        ),
        measures=("accuracy", "weights", "products"),
        of_paper="The paper counts the weights that its masks silence; ours are cut out.",
    ),
    Study(
        "table3",
        "Table 3: stopping the flow's gradient before the backbone",
        "Confident is the share of pseudo-labels above 0.95 at the end of training.",
        (
            _row("stopped", NCUE_NUM, 93.41, confident=82.31),
            _row("not stopped", _plain("no-stop", stop_gradient=False), 29.27, confident=32.82),
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
            _row("one more NFC", _plain("two-nfc", auxiliary="nfc+nfc"), 92.67),
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
    ours = {"FixMatch": "fixmatch", "NorMatch": "normatch"}

    def cell(method: str, recipe: str, number: str) -> Cell:
        trial = Trial(ours[method], recipe, epochs=1024, method=ours[method]) if method in ours else None
        return Cell({} if number == "–" else {"accuracy": Score(*map(float, number.split("±")))}, trial)

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
        movable=False,
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
    trials = {
        named: Trial(method, "mini-imagenet-4000", epochs=600, method=method)
        for named, method in (("FixMatch", "fixmatch"), ("NorMatch", "normatch"))
    }
    rows = (_row(name, trials.get(name), number) for name, number in numbers.items())
    return Study(
        "table7",
        "Table 7: Mini-ImageNet with 4000 labels",
        "ResNet-18 on 84×84 pixels, 600 epochs.",
        tuple(rows),
        movable=False,
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
        "The weight of the unsupervised likelihood.",
        tuple(rows),
        of_paper="The paper draws its curve; in words it gives two of these points, and says that a λ above 1e-6 "
        "lowers accuracy.",
    )


NO_GRADIENT = "no gradient through weak views (`passes` is `shared`)"
_FIGURE_ROWS = (
    _row("NorMatch", ALIGNED, 93.71),
    dataclasses.replace(_row(f"NorMatch, {NO_GRADIENT}", SHARED, None), elsewhere=True),
)

_FIGURES = (
    Study(
        "figure3",
        "Figure 3: how many pseudo-labels are trusted",
        "NorMatch with alignment.",
        _FIGURE_ROWS,
        of_paper="The paper does not give the accuracy of this run, nor say whether it had alignment; 93.71 is Table "
        "5's.",
    ),
    Study(
        "figure4",
        "Figure 4: how good the pseudo-labels are",
        "The runs of Figure 3.",
        _FIGURE_ROWS,
    ),
    _sensitivity(),
)

_DOUBTFUL = Study(
    "choices",
    "What the paper leaves open",
    "NorMatch with alignment, changed in one thing at a time. The published code starts the mixture's means at random, "
    "has dropout in the flow during the first epoch alone, and never zeroes the mixture's gradients.",
    (
        _row("NorMatch as it is here", ALIGNED, 93.71),
        _row("means start at N(0, 1)", Trial("means-normal", settings={"means": "normal"}), None),
        _row("dropout in the first epoch", Trial("dropout-first", settings={"flow_dropout": "first-epoch"}), None),
        _row("dropout always", Trial("dropout-always", settings={"flow_dropout": "always"}), None),
        _row("mixture gradients never zeroed", Trial("accumulated", settings={"accumulate_mixture": True}), None),
        _row(
            "all three as published",
            Trial(
                "as-published",
                settings={"means": "normal", "flow_dropout": "first-epoch", "accumulate_mixture": True},
            ),
            None,
        ),
        _row(NO_GRADIENT, SHARED, None),
    ),
)

IN_MINUTES = Trial("normatch", "cifar10-40-fast", epochs=96)
_FAST = Study(
    "fast",
    "Beyond the paper: minutes",
    "CIFAR-10 with 40 labels by the recipe `cifar10-40-fast`, whose whole schedule has 49,152 steps. "
    "The paper's number is Table 6's, after 1024 epochs of 1,024 steps.",
    (dataclasses.replace(_row("`cifar10-40-fast`", IN_MINUTES, 94.70), borrowed=True),),
    movable=False,
)

STUDIES: dict[str, Study] = {
    study.name: study for study in (*_ANALYSIS, _comparison(), _mini_imagenet(), *_FIGURES, _DOUBTFUL, _FAST)
}
"""All studies by name, in the order of the paper; then what it leaves open, and what goes beyond it."""
