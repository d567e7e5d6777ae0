"""The model: normalisation, backbone, the head that predicts and auxiliary classifiers; saving, loading, applying it.

On disk it is two files: the weights in ``model.safetensors``, all else in ``model.json``.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

import normatch
from normatch.annotations import from_json, must_fit, to_json
from normatch.errors import UserError, reason, resume_command
from normatch.files import read_sealed, replacing, write_sealed
from normatch.flow import NormalizingFlowClassifier
from normatch.nets import create_backbone
from normatch.nets.norm import Share

__all__ = [
    "HeadSpec",
    "Model",
    "ModelSpec",
    "Splittable",
    "features",
    "load_model",
    "logits",
    "read_spec",
    "save_model",
]

FORMAT = 2
"""Version of the format of ``model.json``: incremented when older versions could not read it."""

MOST, PIXELS = 500, 2**20
"""The most inputs and the most pixels that go through a network at once."""


@dataclass(frozen=True)
class HeadSpec:
    """A classifier on features: a linear softmax layer, a softmax MLP, or a normalizing-flow classifier.

    ``mlp`` is the second discriminative classifier of Table 2: ``layers`` fully connected layers, each but the last
    followed by ReLU and batch normalisation, as wide as the features: 0.09 M weights for 128, the paper's number.
    """

    kind: Literal["softmax", "mlp", "nfc"] = "softmax"
    layers: int = 6
    hidden: int = 32
    means: Literal["zero", "normal"] = "zero"
    dropout: bool = False

    def build(self, dim: int, classes: int) -> nn.Module:
        if self.kind == "nfc":
            return NormalizingFlowClassifier(dim, classes, self.layers, self.hidden, self.means, self.dropout)
        if self.kind == "mlp":
            hidden = [m for _ in range(self.layers - 1) for m in (nn.Linear(dim, dim), nn.ReLU(), nn.BatchNorm1d(dim))]
            return nn.Sequential(*hidden, LinearHead(dim, classes))
        return LinearHead(dim, classes)


@dataclass(frozen=True)
class ModelSpec:
    """All that is needed to rebuild the model (without its weights): the content of ``model.json``."""

    backbone: str
    shape: tuple[int, ...]
    """(C, H, W) of an image, or (D,) of a feature vector."""
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    """Per channel (or feature), on the scale of the inputs: 0 … 255 for images."""
    std: tuple[float, ...]
    norm_momentum: float | None = None
    head: HeadSpec = HeadSpec()
    auxiliary: tuple[HeadSpec, ...] = ()
    temperature: float | None = None
    """Divides the head's logits before the softmax, fitted on validation samples; None if there were too few."""

    def __post_init__(self) -> None:
        if self.temperature is not None and self.temperature <= 0:
            raise UserError(f"temperature is {self.temperature}: give a positive number")


class Normalise(nn.Module):
    """(x − mean) / std per channel; takes any number type, returns float32."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], dims: int) -> None:
        super().__init__()
        shape = (1, -1) + (1,) * (dims - 1)
        self.register_buffer("mean", torch.tensor(mean).view(shape))
        self.register_buffer("std", torch.tensor(std).view(shape))

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() - self.mean) / self.std


class Outputs(NamedTuple):
    """What a model says of N inputs: the probabilities of its head and, if it has one, what its flow says."""

    probabilities: Tensor
    """(N, K) of the head."""
    flow_probabilities: Tensor | None
    """(N, K), the posterior of a flow beside the head, Eq. (1)."""
    flow_log_density: Tensor | None
    """(N,), log p(z) of the features, Eq. (5): low if an input is unlike the data that the flow has learnt."""


class Model(nn.Module):
    """Inputs on their original scale → features → class logits.

    Images may be uint8 or, if a method mixes them, float on the same 0 … 255 scale: the normalisation is linear, so
    mixing before or after it is the same.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.normalise = Normalise(spec.mean, spec.std, len(spec.shape))
        self.backbone = create_backbone(spec.backbone, spec.shape, spec.norm_momentum)
        self.head = spec.head.build(self.backbone.features, len(spec.classes))
        self.auxiliary = nn.ModuleList(a.build(self.backbone.features, len(spec.classes)) for a in spec.auxiliary)
        self.share: Share | None = None
        """If set, several processes share each batch: this one takes its part through the backbone."""

    def train(self, mode: bool = True) -> "Model":
        """With a momentum of 0, batch norm keeps its running statistics, and normalises by them in training too."""
        super().train(mode)
        if self.spec.norm_momentum == 0:
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def features(self, x: Tensor, learning: int | None = None) -> Tensor:
        """Features (N, D); only the first ``learning`` samples are back-propagated, if given (BackboneSpec.partial)."""
        if (share := self.share) is not None:
            x, learning = share.take(x), learning and learning // share.size
        x = self.normalise(x)
        z: Tensor = self.backbone(x) if learning is None else self.backbone(x, learning)
        return z if share is None else share.gather(z)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits

    @property
    def flow(self) -> NormalizingFlowClassifier | None:
        """The first flow among the auxiliary classifiers and the head; None if there is none."""
        classifiers = (*self.auxiliary, self.head)
        return next((c for c in classifiers if isinstance(c, NormalizingFlowClassifier)), None)

    @property
    def has_auxiliary_flow(self) -> bool:
        """Whether there is a flow beside the head."""
        return self.flow not in (None, self.head)

    def probabilities(self, z: Tensor) -> Tensor:
        """softmax(logits / T) (N, K) of features (N, D), in float32; T is 1 if no temperature was fitted."""
        scores: Tensor = self.head(z).float()
        return (scores if self.spec.temperature is None else scores / self.spec.temperature).softmax(1)

    def outputs(self, x: Tensor) -> Outputs:
        """The predictions of head and flow, from one pass through the backbone."""
        z = self.features(x)
        p = self.probabilities(z)
        if self.flow is None:
            return Outputs(p, None, None)
        logits, log_density = self.flow.evaluate(z)
        return Outputs(p, logits.float().softmax(1) if self.has_auxiliary_flow else None, log_density)


class LinearHead(nn.Linear):
    """Class logits in the precision of the weights, also under autocast: rounded to bfloat16, about one prediction in a
    hundred would have two equal largest logits."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__(dim, classes)
        nn.init.xavier_normal_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, z: Tensor) -> Tensor:
        with torch.autocast(z.device.type, enabled=False):
            return super().forward(z.to(self.weight.dtype))


class Splittable(Protocol):
    """Inputs that can be split into batches: a tensor (N, …), or inputs read from host memory as needed."""

    def split(self, size: int, /) -> Iterable[Tensor]: ...


def contiguous(x: Tensor) -> Tensor:
    """``x`` in the layout that its shape describes, with the strides of that layout.

    To torch, images of one channel are contiguous whether their channels come first or last, but it takes the strides
    for which layout they have, and chooses convolutions by it. Flattened and put in shape again, they have one answer.
    """
    return x.contiguous().flatten().view(x.shape)


def batch_for(shape: Sequence[int], most: int = MOST, pixels: int = PIXELS) -> int:
    """How many inputs of this shape go through a network at once: ``most``, or fewer if they are large images, whose
    activations would take gigabytes: at most ``pixels`` in all.

    >>> batch_for((3, 32, 32)), batch_for((3, 224, 224)), batch_for((512,))
    (500, 20, 500)
    """
    return max(1, min(most, pixels // math.prod(shape[1:])))


def logits(model: Model, inputs: Splittable) -> Tensor:
    """Class logits (N, K) in float32 of inputs (N, …), computed and returned on the model's device."""
    return _in_batches(model, model, inputs, len(model.spec.classes))


def features(model: Model, inputs: Splittable) -> Tensor:
    """The backbone's features (N, D) in float32 of inputs (N, …)."""
    return _in_batches(model, model.features, inputs, model.backbone.features)


@torch.no_grad()
def _in_batches(model: Model, apply: Callable[[Tensor], Tensor], inputs: Splittable, width: int) -> Tensor:
    """(N, width) of inputs in batches, always contiguous: the memory layout affects results in the last bits."""
    none = model.normalise.mean.new_zeros(0, width)
    parts = (part.to(none.device, non_blocking=True) for part in inputs.split(batch_for(model.spec.shape)))
    return torch.cat([none, *(apply(contiguous(part)).float() for part in parts)])


def save_model(model: Model, folder: Path, temperature: float | None = None, name: str = "model") -> None:
    """Write ``model.safetensors`` and then ``model.json``, which has its digest; or files of another ``name``."""
    # Copies, because safetensors refuses tensors that share memory, as a backbone's tied weights do.
    state = model.state_dict().items()
    content = safetensors.torch.save({n: v.clone(memory_format=torch.contiguous_format) for n, v in state})
    with replacing(folder / f"{name}.safetensors") as part:
        part.write_bytes(content)
    about = {"format": FORMAT, "normatch": normatch.__version__, "weights_sha256": hashlib.sha256(content).hexdigest()}
    spec = dataclasses.replace(model.spec, temperature=temperature)
    write_sealed(folder / f"{name}.json", about | to_json(spec))


def load_model(folder: Path, name: str = "model") -> Model:
    """The model in evaluation mode, on the CPU; UserError if its files are missing, damaged or not finite."""
    path, about = folder / f"{name}.safetensors", folder / f"{name}.json"
    for file in (about, path):
        if not file.is_file():
            raise UserError(_missing(folder, file.name))
    model = Model(read_spec(about))
    content = path.read_bytes()
    if read_sealed(about).get("weights_sha256") != hashlib.sha256(content).hexdigest():
        raise UserError(f"{path} is damaged (its SHA-256 is not that in {about.name}): restore it or train again")
    try:
        model.load_state_dict(safetensors.torch.load(content))
    except (SafetensorError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise UserError(f"{path} does not fit {about.name} ({why}): restore it or train again") from error
    for part, weights in model.state_dict().items():
        if not weights.isfinite().all():
            raise UserError(f"{path} has weights that are not finite ({part}): train again with a lower --optim.lr")
    return model.eval()


def _missing(folder: Path, name: str) -> str:
    if (folder / "result.json").is_file():
        return f"{folder} is finished, but has no {name}: restore it or train again"
    if (folder / "config.json").is_file():
        return f"{folder} is not finished (it has no {name}): continue it with {resume_command(folder)}"
    return f"{folder} has no {name}: give the folder of a finished run"


def read_spec(path: Path) -> ModelSpec:
    """The content of a ``model.json``."""
    try:
        content = read_sealed(path)
        written, by, _ = (content.pop(name, None) for name in ("format", "normatch", "weights_sha256"))
        if written == FORMAT:
            spec = from_json(ModelSpec, content)
            must_fit(spec)
            return spec
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)}): restore it or train again") from error
    raise UserError(
        f"{path} is of format {written}, written by normatch {by}: normatch {normatch.__version__} reads format "
        f"{FORMAT}, install the version that wrote it"
    )
