"""The page of results is what its files say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page", PROJECT / "benchmarks" / "page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_made_of_the_files(generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    made = generator.page()
    assert made == (PROJECT / "docs" / "results.md").read_text(encoding="utf-8"), "run python benchmarks/page.py"
    assert "<!--" not in made
    for picture in tmp_path.rglob("*.svg"):
        kept = PROJECT / "docs" / picture.relative_to(tmp_path)
        assert picture.read_bytes() == kept.read_bytes()


def test_every_file_of_a_run_is_linked(generator: ModuleType) -> None:
    page = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8")
    for file in (PROJECT / "benchmarks" / "results" / "reproduce").glob("*.json"):
        assert f"](../benchmarks/results/reproduce/{file.name})" in page
