"""What tests share: the real CIFAR-10 files, where they are available, and small problems."""

import copy
import os
import signal
from collections.abc import Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from normatch.config import Config
from normatch.methods import Batch, Method, Task, methods
from normatch.nets.model import Model, ModelSpec

# A busy machine is not an error; and where a change is judged, the same change gets the same verdict.
hypothesis.settings.register_profile(
    "here",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("here")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tests run in parallel processes: more threads than cores only make them slower."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard() -> None:
    """A shell starts its background jobs with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Decoded images of tests are not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NORMATCH_CACHE", str(tmp_path_factory.mktemp("decoded")))
        yield


@pytest.fixture(scope="session")
def tiny_config() -> Config:
    """A run of seconds: digits, a few steps of a few images."""
    from normatch import recipes

    return recipes.digits().replace(
        steps=12, epoch=4, batch=8, ratio=2, log_every=2, evaluate_every=4, checkpoint_every=3
    )


def make_method(name: str, *, shape: Any = (1, 8, 8), backbone: Any = None, **choices: object) -> Method:
    """A method on a small network of 8×8 grey images, or vectors, and three classes; ``choices`` are its settings."""
    kind = methods.get(name)
    settings = kind.Settings(**choices)
    head, auxiliary = kind.heads(settings)
    images = len(shape) == 3
    spec = ModelSpec(
        backbone=backbone or ("small-wide" if images else "mlp"),
        shape=shape,
        classes=("bird", "cat", "dog"),
        mean=(100.0,) if images else (0.0,) * shape[0],
        std=(50.0,) if images else (1.0,) * shape[0],
        head=head,
        auxiliary=auxiliary,
    )
    task = Task(prior=(0.3, 0.5, 0.2), labelled=6, unlabelled=30, epoch=10, steps=100)
    return kind(Model(spec), task, settings)


def logits_of(model: torch.nn.Module, samples: torch.Tensor) -> NDArray[np.float64]:
    """(N, K) what a model says of samples, for NumPy."""
    with torch.no_grad():
        logits: NDArray[np.float64] = model(samples).double().numpy()
    return logits


def same_with_gradients(method: Method, found: torch.Tensor, expected: torch.Tensor) -> None:
    """The loss, and what of it reaches the head: a target that should be a constant moves it otherwise."""
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=1e-3, atol=1e-6)
    weights = method.model.get_parameter("head.weight")
    gradients = [torch.autograd.grad(loss, weights, retain_graph=True)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-2 * gradients[1].abs().max().item())


def make_batch(method: Method, step: int = 50, labelled: int = 6, unlabelled: int = 14) -> Batch:
    generator = torch.Generator().manual_seed(1)
    shape = method.model.spec.shape

    def samples(n: int) -> torch.Tensor:
        if len(shape) == 1:
            return torch.randn(n, *shape, generator=generator)
        return torch.randint(0, 256, (n, *shape), generator=generator, dtype=torch.uint8)

    heads = torch.nn.ModuleDict({name: getattr(method, name) for name in method.averaged})
    return Batch(
        labelled=tuple(samples(labelled) for _ in method.views.labelled),
        labels=torch.arange(labelled) % method.task.classes,
        labelled_positions=torch.arange(labelled) % method.task.labelled,
        unlabelled=tuple(samples(unlabelled) for _ in method.views.unlabelled),
        positions=torch.arange(unlabelled),
        step=torch.tensor(step),
        teacher=copy.deepcopy(method.model).train(method.teacher_trains).requires_grad_(False),
        teacher_heads=copy.deepcopy(heads).eval().requires_grad_(False),
    )
