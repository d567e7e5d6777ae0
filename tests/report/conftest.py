"""Finished runs of every kind, each of a second or two."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normatch.config import Config
from normatch.files import read_sealed
from normatch.methods.normatch import NorMatchSettings
from normatch.recipes import own
from normatch.report import numbers_of
from normatch.report.findings import Evidence, Numbers, examine, gather
from normatch.training import train

Runs = dict[str, Path]
Edited = Callable[..., Path]

NASTY = ("<b>&bold</b>", 'quo"ted', "x\n\x1b[2J" + "y" * 40)
"""Names of classes with markup, a newline and an escape sequence."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_config: Config) -> Runs:
    """By name: methods on digits, validation, nothing held out, and feature vectors with nasty class names."""
    folder = tmp_path_factory.mktemp("runs")
    rng, labels = np.random.default_rng(0), np.arange(300) % 3
    x = rng.normal(size=(3, 6)).astype(np.float32)[labels] + rng.normal(size=(300, 6)).astype(np.float32)
    y = np.where(np.arange(300) < 150, labels, -1)
    np.savez(folder / "vectors.npz", x=x, y=y, classes=np.array(NASTY))
    short = {"steps": 12, "epoch": 4, "batch": 8, "ratio": 2, "log_every": 2}
    configs = {
        "normatch": tiny_config,
        "fixmatch": tiny_config.replace(method="fixmatch"),
        "supervised": tiny_config.replace(method="supervised"),
        "validation": tiny_config.replace(validation=0.1),
        "mlp": tiny_config.replace(settings=NorMatchSettings(consensus="mlp")),
        "nothing-held-out": tiny_config.replace(test_share=0.0),
        "vectors": own(str(folder / "vectors.npz")).replace(test_share=0.2, **short),
    }
    return {name: train(config, folder / name).path for name, config in configs.items()}


@pytest.fixture(scope="session")
def numbers(runs: Runs) -> dict[str, Numbers]:
    return {name: numbers_of(path, device="cpu") for name, path in runs.items()}


@pytest.fixture
def edited(runs: Runs, tmp_path: Path) -> Edited:
    """Copies a run, with other fields in its JSON files."""

    def edit(kind: str, name: str, **files: dict[str, object]) -> Path:
        copy = Path(shutil.copytree(runs[kind], tmp_path / name))
        for file, fields in files.items():
            path = copy / f"{file}.json"
            path.write_text(json.dumps(read_sealed(path) | fields))
        return copy

    return edit


@pytest.fixture(scope="session")
def evidence(runs: Runs) -> Evidence:
    return gather(runs["normatch"], device="cpu")


def look(evidence: Evidence, **changes: Any) -> Numbers:
    """Findings of the evidence, with some of it replaced."""
    return examine(dataclasses.replace(evidence, **changes))
