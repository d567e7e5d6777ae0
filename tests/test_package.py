"""The package as a whole: quick to import, light, complete."""

import ast
import subprocess
import sys
from pathlib import Path

import normatch

SOURCES = sorted((Path(normatch.__file__).parent).rglob("*.py"))


def timed_import(statement: str) -> float:
    code = f"import torch, time\nt = time.perf_counter()\n{statement}\nprint(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def test_import_costs_little_more_than_torch() -> None:
    assert min(timed_import("import normatch") for _ in range(3)) < 0.5


def test_training_needs_no_torchvision_and_imports_heavy_things_late() -> None:
    heavy = ("torchvision", "timm", "sklearn", "scipy", "PIL", "rich", "tensorboard", "tyro")
    code = (
        "import sys, normatch; normatch.train, normatch.load, normatch.NormalizingFlowClassifier; "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_help_needs_no_torch() -> None:
    code = "import sys; from normatch.cli import main; main(['--help']); print({'torch', 'tyro'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.endswith("set()\n")


def test_a_model_is_built_without_torchs_compiler() -> None:
    """Which takes most of a second to import, each time that something is predicted."""
    code = "import sys, normatch; normatch.NormalizingFlowClassifier(8, 3); print('sympy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_the_core_never_imports_torchvision() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "torchvision" for name in names), path


def test_public_names_are_there() -> None:
    for name in normatch.__all__:
        assert getattr(normatch, name) is not None
    assert set(dir(normatch)) == set(normatch.__all__)


def test_every_module_says_what_it_is() -> None:
    for path in SOURCES:
        assert ast.get_docstring(ast.parse(path.read_text())), path
