"""Files are complete or absent, and JSON files show when they were changed."""

import contextlib
import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normatch.errors import UserError
from normatch.files import PARTS, alone, read_json, read_sealed, replacing, write_json, write_sealed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for content in ("first", "second"):
        before = path.read_text() if path.exists() else None
        with replacing(path) as part:
            part.write_text(content)
            assert (path.read_text() if path.exists() else None) == before
        assert path.read_text() == content
        assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_block_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("first")
    with contextlib.suppress(InterruptedError), replacing(path) as part:
        part.write_text("second")
        raise InterruptedError
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_that_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "a.txt"
    with pytest.raises(FileNotFoundError) as raised, replacing(path):
        pass
    assert raised.value.filename == str(path)


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with replacing(path) as first, replacing(path) as second:
        assert {first, second} == set(tmp_path.glob(PARTS)), "so that what a killed process leaves can be found"
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first", "the last to end"
    assert list(tmp_path.iterdir()) == [path]


def test_no_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, victim = tmp_path / "labels.csv", tmp_path / "victim"
    victim.write_text("mine")
    for name in (".labels.csv.part", ".labels.csv.guessed.part"):
        (tmp_path / name).symlink_to(victim)
    with replacing(path) as part:
        part.write_text("labels")
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    with pytest.raises(FileExistsError), replacing(path):
        pass
    assert victim.read_text() == "mine"
    assert path.read_text() == "labels"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with alone(tmp_path / ".lock", "busy"), pytest.raises(UserError, match="busy"), alone(tmp_path / ".lock", "busy"):
        pass
    with alone(tmp_path / ".lock", "busy"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EACCES])
def test_a_file_system_without_locks_is_no_obstacle(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, "failed")

    monkeypatch.setattr("filelock.FileLock.acquire", fails)
    expected = contextlib.nullcontext() if number == errno.ENOLCK else pytest.raises(OSError, match="failed")
    with expected, alone(tmp_path / ".lock", "busy"):
        pass


@given(value=st.dictionaries(st.text().filter(lambda name: name != "sha256"), VALUES))
def test_a_sealed_file_is_read_back(value: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("sealed") / "a.json"
    write_sealed(path, value)
    assert read_sealed(path) == value
    write_json(path, value)
    assert read_sealed(path) == value, "written by hand"


def test_a_change_of_a_sealed_file_shows(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_sealed(path, {"steps": 100, "data": "caf\udce9"})
    assert read_sealed(path)["data"] == "caf\udce9"
    path.write_text(path.read_text().replace("100", "101"))
    with pytest.raises(ValueError, match="its sha256 is of other content"):
        read_sealed(path)
    content = json.loads(path.read_text())
    del content["sha256"]
    path.write_text(json.dumps(content))
    assert read_sealed(path)["steps"] == 101


def test_deeply_nested_json_is_a_value_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(tmp_path / "a.json")
