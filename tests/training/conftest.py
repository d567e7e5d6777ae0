"""A finished run that tests of this room share, and may copy but not change."""

import pytest

from normatch.config import Config
from normatch.training import Run, train


@pytest.fixture(scope="session")
def finished(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_config.replace(validation=0.1), tmp_path_factory.mktemp("runs") / "run")
