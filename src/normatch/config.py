"""The configuration of a run: everything that decides its result, validated, and stored in ``config.json``."""

import dataclasses
import json
import re
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from normatch.annotations import MOST, flat, from_json, must_fit, to_json
from normatch.augment import AugmentConfig
from normatch.device import Device
from normatch.errors import UserError, reason
from normatch.files import read_sealed
from normatch.methods import Settings, methods
from normatch.methods.parts.groups import OptimConfig

__all__ = ["Config", "flat", "must_be_config", "read_config", "to_json"]

COPIES = 32
"""The most weak views, and strong ones, of an image whose features are kept."""


@dataclass(frozen=True)
class Config:
    """Complete settings of a run: equal configs give equal runs. Defaults: the paper's for CIFAR-10 (Section 4.1)."""

    name: str = "run"
    """What the run is called; its folder is runs/NAME unless --out says otherwise."""

    data: str = "cifar10"
    """A data set's name, or the path of a folder of images, a CSV manifest or an .npz file."""
    unlabelled: Path | None = None
    """Another folder of images, at any depth, all of them unlabelled."""
    data_root: Path | None = None
    """Folder that holds the data sets' files; by default $NORMATCH_DATA or ~/.cache/normatch."""
    image_size: int | None = None
    """Side to which images are resized when they are read; by default they keep their size."""
    on_bad_image: Literal["stop", "skip"] = "stop"
    """On an unreadable file in your own folder or manifest, stop before training, or skip it and list it."""
    test_share: float = 0.0
    """Share of the labelled samples held out for testing, drawn by seed: for data without a test set."""
    labels: int | None = 40
    """Total number of labels used, equally many of each class. None uses every label there is."""
    fold: int | None = None
    """Index of a predefined labelled subset (STL-10, Mini-ImageNet), less what is held out, in place of a draw."""
    labelled: tuple[Path, ...] = ()
    """What names the samples whose labels are used, less what is set aside, in place of a draw: folders of earlier
    runs, tables of normatch suggest (those of files with labels filled in, which are used), files of positions among
    the training samples (text or .npy); all of them together. Tables of files alone add to the labels of the data."""
    validation: float = 0.0
    """Share of the labelled samples set aside for choosing settings; the test set is never used for that."""
    include_labelled: bool = True
    """Whether the unlabelled set also contains the labelled images, as in FixMatch."""

    method: str = "normatch"
    """The method's name."""
    settings: Settings = field(default_factory=Settings)
    """The settings of the method."""
    backbone: str = "wrn-28-2"
    """The network's name; auto picks one that suits the shape of the data, timm:NAME is a pretrained timm network,
    onnx:FILE any ONNX network (with freeze)."""
    weights: Path | None = None
    """File with the weights of the backbone to start from, .safetensors or .pth; by default its own pretrained ones, if
    it has any."""
    freeze: bool = False
    """Keep the backbone's pretrained weights: its features of all images are computed once, and a small network is
    trained on them, which takes seconds."""
    start: Path | None = None
    """A finished run from whose model training starts, heads included; of one with a frozen backbone, all of it is then
    trained."""
    copies: int = 0
    """With freeze: features of so many weak and as many strong views of every image, of which steps draw theirs; 0 is
    the plain image alone, and views are made of its features."""
    norm_momentum: float | None = None
    """Momentum of batch norm's running statistics; None is the backbone's default (0.001 for wide ResNets). 0 keeps
    those of the weights to start from, and normalises by them."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    """Weak and strong views."""

    steps: int = 2**20
    """Training steps."""
    epoch: int = 1024
    """Steps that count as an epoch, the unit of ramps and evaluations."""
    batch: int = 64
    """Labelled images in a step, B."""
    ratio: int = 7
    """Unlabelled images for each labelled one in a step, μ."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """The backbone's optimiser."""
    ema: float = 0.999
    """Decay of the running average of the weights; the averaged model is what is evaluated and saved."""
    ema_ramp: bool = False
    """Let the decay grow as (1 + step) / (10 + step) up to its value, for short runs."""
    seed: int = 0
    """Determines which labels are drawn, the initial weights, the batches and the views."""

    device: Device = "auto"
    """Where to train."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the backbone: bfloat16 on a GPU that has it, else float32."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the step and capture it as a CUDA graph: on a GPU by default."""
    threads: int | None = None
    """Threads on a CPU, on which the last bits depend; None is one for small networks, else OMP_NUM_THREADS or all
    cores. The number is stored with the run."""
    deterministic: bool = False
    """Make runs bit-exact on a GPU too, at some cost in speed. On a CPU they are, with the same number of threads
    and the same kind of processor."""
    pool: Literal["auto", "device", "host"] = "auto"
    """Where all images are kept: on the GPU, or in host memory, from which those of the next steps are sent ahead; the
    results are the same. auto keeps them on the GPU if they take no more than half of its free memory."""

    log_every: int = 64
    """Steps between lines of metrics.jsonl."""
    evaluate_every: int | None = None
    """Steps between evaluations; None is once an epoch."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None is once an epoch."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            object.__setattr__(self, f.name, _without_numpy(getattr(self, f.name)))
        # Places may be given as text or as paths, as in train(out=...) and load(run).
        for name in ("data", "unlabelled", "data_root", "weights", "start"):
            kind = str if name == "data" else Path
            if isinstance(given := getattr(self, name), str | Path):
                object.__setattr__(self, name, kind(given))
        named: Any = self.labelled
        named = (named,) if isinstance(named, str | Path) else named
        if isinstance(named, tuple | list) and all(isinstance(place, str | Path) for place in named):
            object.__setattr__(self, "labelled", tuple(map(Path, named)))
        # A config made in Python without settings gets the method's default settings.
        wanted = methods.get(self.method).Settings
        _must_be_settings(wanted, self.method)
        if type(self.settings) is Settings:
            object.__setattr__(self, "settings", wanted())
        if type(self.settings) is not wanted:
            raise UserError(
                f"settings are {type(self.settings).__name__}: method {self.method!r} takes {wanted.__name__}"
            )
        self.check()

    def check(self) -> None:
        """Raise UserError, naming the field, its value and what is allowed, if a value is invalid."""
        must_fit(self)
        self.settings.check()
        self.augment.check()
        name, optim, momentum = self.name, self.optim, self.norm_momentum
        inside = not set("/\\") & set(name) and name.strip() not in ("", ".", "..") and name.isprintable()
        _must("name", repr(name), inside, "a name without slashes and control characters; the place is --out")
        for name, value in vars(self).items():  # the only whole numbers that may be 0 are these
            counts = type(value) is int and name not in ("seed", "fold", "copies", "norm_momentum")
            _must(name, value, not counts or 1 <= value <= MOST, f"a whole number from 1 to {MOST:,}")
        _must("seed", self.seed, 0 <= self.seed < 2**63, "a whole number from 0 to 2^63 - 1")
        for name, share in (("test_share", self.test_share), ("validation", self.validation)):
            _must(name, share, 0 <= share < 1, "a share from 0 up to, but not including, 1")
        for name, share in (("ema", self.ema), ("optim.momentum", optim.momentum)):
            _must(name, share, 0 <= share < 1, "a number from 0 up to, but not including, 1")
        _must("optim.lr", optim.lr, optim.lr > 0, "a positive number")
        _must("optim.muon", optim.muon, 0 <= optim.muon < 1, "a share from 0 (no Muon) to below 1")
        _must("optim.weight_decay", optim.weight_decay, optim.weight_decay >= 0, "a number that is not negative")
        _must("optim.cosine", optim.cosine, 0 <= optim.cosine <= 0.5, "a number from 0 (constant) to 0.5 (ends at 0)")
        _must("norm_momentum", momentum, momentum is None or 0 <= momentum <= 1, "a number from 0 to 1")
        rate = optim.backbone_lr
        _must("optim.backbone_lr", rate, rate is None or rate > 0, "a positive number")
        _must("optim.backbone_lr", rate, rate is None or not optim.muon, "either it or optim.muon")
        alone = self.fold is None or not self.labelled
        _must("fold", self.fold, alone, "either it or labelled: both say which labels are used")
        _must("copies", self.copies, 0 <= self.copies <= COPIES, f"a whole number from 0 to {COPIES}")
        _must("copies", self.copies, self.freeze or not self.copies, "0, or freeze as well: they are views to embed")
        named = self.backbone.startswith(("frozen:", "tuned:"))
        plain = self.backbone.partition(":")[2]
        _must("backbone", repr(self.backbone), not named, f"{plain!r}, and freeze, or a run to start from")
        for other in ("freeze", "weights"):
            alone = self.start is None or not getattr(self, other)
            _must("start", self.start, alone, f"either it or {other}: both say what training starts from")
        if self.backbone.startswith("onnx:"):
            _must("backbone", repr(self.backbone), self.freeze, "freeze as well: an ONNX network cannot be trained")
            _must("weights", self.weights, self.weights is None, f"none: {self.backbone} has its own")

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Config":
        """The config that ``to_json`` wrote: its method says of which class its settings are."""
        kind = methods.get(fields.get("method", cls.method)).Settings
        return from_json(cls, fields | {"settings": from_json(kind, fields.get("settings", {}), "settings.")})

    def replace(self, **changes: Any) -> "Config":
        """A copy with some fields changed.

        With a new method come its default settings, except that a setting which both methods may have and which differs
        from the old method's default is carried over: a recipe's choice holds for all methods compared on it. So do its
        strong views, unless the new method has none.
        """
        if changes.get("method", self.method) != self.method:
            kind, default = methods.get(changes["method"]), type(self.settings)()
            names = {f.name for f in dataclasses.fields(kind.Settings)}
            kept = {name: v for name, v in vars(self.settings).items() if name in names and v != getattr(default, name)}
            if not _allowed(kind.Settings, kept):
                kept = {name: v for name, v in kept.items() if _allowed(kind.Settings, {name: v})}
            views = {*kind.views.labelled, *kind.views.unlabelled}
            changes = {"settings": kind.Settings(**kept), "augment": self.augment.for_views(views)} | changes
        return dataclasses.replace(self, **changes)


def must_be_config(config: Any) -> None:
    """Raise UserError unless it is a Config: the place of some data is what one would like to give."""
    if not isinstance(config, Config):
        raise UserError(f"config is {config!r}: give a Config, such as normatch.recipes.own(FOLDER)")


def read_config(file: Path) -> Config:
    """The config in a run's ``config.json``; UserError if it cannot be read, or a newer version wrote it."""
    from normatch import __version__

    try:
        fields = read_sealed(file)
        written_by = str(fields.pop("normatch", __version__))
        written, ours = (tuple(map(int, re.findall(r"\d+", version))) for version in (written_by, __version__))
        if written > ours:
            raise UserError(f"it was written by normatch {written_by}, this is {__version__}: upgrade to read it")
        return Config.from_json(fields)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except (AttributeError, OSError, TypeError, ValueError) as error:
        why = "it is no JSON" if isinstance(error, json.JSONDecodeError) else reason(error)
        raise UserError(f"{file} cannot be read ({why}): give the config.json of a run") from error


def _must(name: str, value: object, allowed: bool, remedy: str) -> None:
    if not allowed:
        raise UserError(f"{name} is {value}: give {remedy}")


def _allowed(kind: type[Settings], values: dict[str, Any]) -> bool:
    """Whether settings of this kind may have these values."""
    try:
        kind(**values).check()
    except UserError:
        return False
    return True


def _must_be_settings(kind: type[Settings], method: str) -> None:
    """Raise UserError for what looks like a setting of a plug-in's method, but would not be stored."""
    hints = {name for name, hint in typing.get_type_hints(kind).items() if typing.get_origin(hint) is not ClassVar}
    for name in sorted(hints - {f.name for f in dataclasses.fields(kind)}):
        raise UserError(
            f"{kind.__name__}.{name} is no setting of method {method!r}: write @dataclass(frozen=True) above the class"
        )


def _without_numpy(value: Any) -> Any:
    """Python's own value for a NumPy scalar, which JSON does not take, also in a tuple, a list or a dataclass."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (tuple, list):
        return type(value)(map(_without_numpy, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{name: _without_numpy(v) for name, v in vars(value).items()})
    return value
