"""Finished runs of every kind, each of a second or two."""

from pathlib import Path

import numpy as np
import pytest

from normatch.config import Config
from normatch.methods.normatch import NorMatchSettings
from normatch.recipes import own
from normatch.training import train


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_config: Config) -> dict[str, Path]:
    """By name: methods on digits, validation items, no held-out items, and feature vectors with awkward class names."""
    folder = tmp_path_factory.mktemp("runs")
    vectors = folder / "vectors.npz"
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    centres = rng.normal(size=(3, 6)).astype(np.float32)
    np.savez(
        vectors,
        x=centres[labels] + rng.normal(size=(300, 6)).astype(np.float32),
        y=np.where(np.arange(300) < 150, labels, -1),
        classes=np.array(["<b>&bold</b>", 'quo"ted', "x" * 40]),
    )
    short = {"steps": 12, "epoch": 4, "batch": 8, "ratio": 2, "log_every": 2}
    configs = {
        "normatch": tiny_config,
        "fixmatch": tiny_config.replace(method="fixmatch"),
        "supervised": tiny_config.replace(method="supervised"),
        "validation": tiny_config.replace(validation=0.1),
        "mlp": tiny_config.replace(settings=NorMatchSettings(auxiliary="mlp")),
        "nothing-held-out": tiny_config.replace(test_share=0.0),
        "vectors": own(str(vectors)).replace(test_share=0.2, **short),
    }
    return {name: train(config, folder / name).path for name, config in configs.items()}
