"""Registries: what modules and plug-ins add is found, or said to be missing."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from normatch.cli import main
from normatch.errors import UserError
from normatch.recipes import recipes
from normatch.registry import Registry, _import_plugins


@pytest.fixture
def things() -> Registry[object]:
    return Registry("thing", package="normatch.errors")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on Python's path, whose modules are forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    _import_plugins.cache_clear()
    yield tmp_path
    _import_plugins.cache_clear()
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    for name in [name for name, file in files.items() if file and Path(file).is_relative_to(tmp_path)]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "ModuleNotFoundError: No module named 'broken'"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("raise RuntimeError('first\\nsecond')", "RuntimeError: first"),
    ],
)
@pytest.mark.parametrize("by", ["variable", "entry point"])
def test_a_plug_in_that_raises_anything_is_one_line(
    by: str,
    content: str | None,
    why: str,
    folder: Path,
    things: Registry[object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if by == "variable":
        monkeypatch.setenv("NORMATCH_PLUGINS", "broken")
    else:
        point = importlib.metadata.EntryPoint("broken", "broken", "normatch.plugins")
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    if content is not None:
        (folder / "broken.py").write_text(content)
    importlib.invalidate_caches()
    for _ in range(2):  # also when asked again
        with pytest.raises(UserError, match=re.escape(f"plug-in 'broken' cannot be imported ({why}")):
            things.names()
    monkeypatch.setattr(recipes, "_discovered", False)
    assert main(["list", "recipes"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_unknown_name_says_which_there_are_and_which_is_close(things: Registry[object]) -> None:
    things.add("fixmatch", object())
    with pytest.raises(UserError) as close:
        things.get("flexmatch")
    assert str(close.value) == (
        "unknown thing 'flexmatch' (did you mean 'fixmatch'?): choose from fixmatch; "
        "if a plug-in defines it, set NORMATCH_PLUGINS to its module"
    )
    with pytest.raises(UserError, match="unknown thing 'other': choose from fixmatch; if"):
        things.get("other")


def test_a_module_may_ask_for_names_while_it_is_discovered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    things: Registry[object] = Registry("thing", package="several")
    monkeypatch.setitem(sys.modules, "shelf", SimpleNamespace(things=things))
    package = folder / "several"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from shelf import things\nthings.add('a', 1)\nfound = things.names()\n")
    (package / "b.py").write_text("from shelf import things\nfrom several.a import found\nthings.add('b', 2)\n")
    assert things.names() == ["a", "b"]
    assert sys.modules["several.a"].found == ["a"]


def test_a_definition_that_is_run_again_replaces_the_old_one(things: Registry[object]) -> None:
    cell = "@things.named('mine')\nclass Mine: ...\n"
    here, elsewhere = ({"__name__": name, "things": things} for name in ("notebook", "another"))
    exec(cell, here)
    first = things.get("mine")
    exec(cell, here)
    assert things.get("mine") is here["Mine"] is not first
    for other, where in ((cell, elsewhere), (cell.replace("Mine", "Yours"), here)):
        with pytest.raises(UserError, match="thing 'mine' is defined twice, in "):
            exec(other, where)
    things.add("path", Path("a"))
    with pytest.raises(UserError, match="thing 'path' is defined twice"):
        things.add("path", Path("b"))
