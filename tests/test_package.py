"""The package as a whole: light to import, complete."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import normatch

SOURCES = sorted((Path(normatch.__file__).parent).rglob("*.py"))


@pytest.mark.parametrize(
    ("statement", "late"),
    [
        ("import normatch", {"torch", "numpy"}),
        ("from normatch.cli import main; main(['--help'])", {"torch", "numpy"}),
        (
            "import normatch; normatch.train, normatch.load, normatch.NormalizingFlowClassifier(8, 3)",
            {"torchvision", "timm", "sklearn", "scipy", "PIL", "tensorboard", "tyro", "sympy"},
        ),
    ],
)
def test_heavy_things_are_imported_when_they_are_needed(statement: str, late: set[str]) -> None:
    """sympy comes with torch's compiler, which takes most of a second."""
    code = f"import sys; {statement}; print('loaded', {late!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded set()"


def test_every_module_says_what_it_is_and_none_imports_torchvision() -> None:
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        assert not any(name.split(".")[0] == "torchvision" for name in imported), path


def test_public_names_are_there() -> None:
    for name in normatch.__all__:
        assert getattr(normatch, name) is not None
    assert set(dir(normatch)) == set(normatch.__all__)


def test_the_wheel_has_every_file_that_is_not_python() -> None:
    """Templates and style sheets are found by tests that run from the source tree, listed or not."""
    package = Path(normatch.__file__).parent
    listed = tomllib.loads((package.parents[1] / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    files = (p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file())
    assert {file for file in files if not file.endswith((".py", ".pyc"))} == set(listed["normatch"])
