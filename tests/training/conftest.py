"""What tests of this room share: a finished run, which they may copy but not change, its data, and a frozen network."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch
from safetensors.torch import save_file

from normatch.config import Config
from normatch.data import Corpus
from normatch.nets import create_backbone
from normatch.training import Run, open_corpus, train
from normatch.training.step import Step


@pytest.fixture(scope="session")
def digits(tiny_config: Config) -> Corpus:
    return open_corpus(tiny_config)


@pytest.fixture(scope="session")
def finished(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_config.replace(validation=0.1), tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session")
def frozen(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Digits below a network of random weights, which a file has."""
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    torch.manual_seed(0)
    save_file(create_backbone("small-wide", (1, 8, 8)).state_dict(), path)
    return tiny_config.replace(freeze=True, weights=path, validation=0.1, device="cpu")


@contextlib.contextmanager
def stopped_before(
    at: int, when: Callable[[Step], bool] = lambda step: True, match: str | None = None
) -> Iterator[None]:
    """The run in the block is stopped before that step, which says ``match``."""
    call = Step.__call__

    def stopping(self: Step) -> None:
        if self.done == at and when(self):
            raise KeyboardInterrupt
        call(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__call__", stopping)
        with pytest.raises(KeyboardInterrupt, match=match):
            yield
