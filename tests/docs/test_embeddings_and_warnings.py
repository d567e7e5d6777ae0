"""The pages of docs/ say what is so: their code runs, and their tables are complete."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from normatch.cli import main
from normatch.config import Config
from normatch.training import diagnosis, train

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, code) of a page's blocks of code, in order."""
    return re.findall(r"```(\w+)\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
def test_the_code_of_embeddings_runs(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for language, code in blocks("embeddings.md"):
        if language == "python":
            exec(code, names)
        else:
            for line in code.splitlines():
                program, *words = shlex.split(line)
                assert program == "normatch"
                assert main(words) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    for share in (r"(\d+)% of the digits", r"(\d+)\.\d% of the 40 labels"):
        right = re.search(share, said)
        assert right is not None
        assert int(right[1]) > 70
    for learnt, asked in names["folds"]:
        assert set(names["unlabelled"]) < set(learnt)
        assert (names["y"][asked] != -1).all()
        assert not set(learnt) & set(asked)
    run = train(tiny_config.replace(steps=2), tmp_path / "images")
    images = np.rint(load_digits().images[:3, ..., None] * (255 / 16)).astype(np.uint8)
    assert names["embed"](str(run.path), images).shape == (3, 128)


def test_every_warning_is_explained() -> None:
    rules = diagnosis.START | diagnosis.ALWAYS_JUDGED | diagnosis.ONCE_SETTLED
    explained = re.findall(r"^\| `([a-z-]+)` \|", (DOCS / "warnings.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(explained) == sorted(rules)
