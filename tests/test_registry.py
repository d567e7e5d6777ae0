"""Registries: what modules and plug-ins add is found, or said to be missing."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from normatch.errors import UserError
from normatch.registry import Registry, _import_plugins


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


def test_a_plug_in_that_fails_is_an_error_at_every_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NORMATCH_PLUGINS", "late")
    things: Registry[object] = Registry("thing", package="normatch.errors")
    for _ in range(2):
        with pytest.raises(UserError, match="NORMATCH_PLUGINS names 'late', which cannot be imported"):
            things.names()
    (folder / "late.py").write_text("")
    importlib.invalidate_caches()
    things.add("one", object())
    assert things.names() == ["one"]


@pytest.mark.parametrize(
    ("named", "remedy"),
    [
        ("nowhere", "put its folder on Python's path, such as PYTHONPATH=FOLDER"),
        ("here.nowhere", "put its folder on Python's path, such as PYTHONPATH=FOLDER"),
        ("one,two", "separate names by spaces"),
        ("broken", "mend it"),
    ],
)
def test_a_plug_in_that_cannot_be_imported_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch, named: str, remedy: str
) -> None:
    monkeypatch.setenv("NORMATCH_PLUGINS", named)
    (folder / "broken.py").write_text("import no_such_package\n")
    with pytest.raises(
        UserError, match=rf"NORMATCH_PLUGINS names '{named}', which cannot be imported \(.*\): {remedy}"
    ):
        Registry[object]("thing", package="normatch.errors").names()


def test_an_unknown_name_says_which_there_are_and_which_is_close() -> None:
    things: Registry[object] = Registry("thing", package="normatch.errors")
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


def test_a_definition_that_is_run_again_replaces_the_old_one() -> None:
    things: Registry[object] = Registry("thing", package="normatch.errors")
    cell = "@things.named('mine')\nclass Mine: ...\n"
    here, elsewhere = ({"__name__": name, "things": things} for name in ("notebook", "another"))
    exec(cell, here)
    first = things.get("mine")
    exec(cell, here)
    assert things.get("mine") is here["Mine"] is not first
    for other, where in ((cell, elsewhere), (cell.replace("Mine", "Yours"), here)):
        with pytest.raises(ValueError, match="thing 'mine' is defined twice, in "):
            exec(other, where)
    assert things.get("mine") is here["Mine"]


def test_things_without_a_name_of_their_own_are_not_redefined() -> None:
    things: Registry[object] = Registry("thing", package="normatch.errors")
    things.add("path", Path("a"))
    with pytest.raises(ValueError, match="thing 'path' is defined twice"):
        things.add("path", Path("b"))
