"""Files are complete or absent, also if two processes write one at once."""

from pathlib import Path

import pytest

from normatch.errors import UserError
from normatch.files import replacing


def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for content in ("first", "second"):
        before = path.read_text() if path.exists() else None
        with replacing(path) as part:
            part.write_text(content)
            assert (path.read_text() if path.exists() else None) == before
        assert path.read_text() == content
        assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("first")

    def write(folder: Path) -> None:
        with replacing(path) as part:
            part.write_text("second")
            (folder / "b.txt").read_text()

    with pytest.raises(FileNotFoundError):
        write(tmp_path)
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with replacing(path) as part:
        part.write_text("first")
        message = r"a\.txt is being written by another process: wait for it, or choose another name"
        with pytest.raises(UserError, match=message), replacing(path):
            pass
    assert path.read_text() == "first"
    with replacing(path) as part:
        part.write_text("second")
    assert path.read_text() == "second"


def test_what_a_killed_process_left_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    (tmp_path / ".a.txt.part").write_text("cut off, and longer than what follows")
    with replacing(path) as part:
        part.write_text("whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]
