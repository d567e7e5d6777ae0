"""Turns on one machine: as many at a time as there may be, and a dead process has none."""

import errno
import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from normatch.locks import take
from normatch.reproduce.turns import turn


def test_a_lock_is_held_by_one_until_it_is_closed(tmp_path: Path) -> None:
    held = take(tmp_path / "lock")
    assert held is not None
    assert take(tmp_path / "lock") is None
    held.close()
    again = take(tmp_path / "lock")
    assert again is not None
    again.close()


@pytest.mark.parametrize("missing", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(missing, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with turn(tmp_path, 1), turn(tmp_path, 1):
        pass


@pytest.mark.parametrize("at_once", [1, 2])
def test_so_many_at_once_and_no_more(tmp_path: Path, at_once: int) -> None:
    going, most, done = 0, 0, 0
    met = threading.Barrier(at_once)
    count = threading.Lock()

    def work() -> None:
        nonlocal going, most, done
        with turn(tmp_path, at_once):
            with count:
                going += 1
                most = max(most, going)
            met.wait(20)  # as many as may be are there together
            with count:
                going -= 1
                done += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (most, done) == (at_once, 4)


def test_the_turn_of_a_killed_process_goes_on(tmp_path: Path) -> None:
    holding = f"""
import sys, time
from pathlib import Path
from normatch.reproduce.turns import turn
with turn(Path({str(tmp_path)!r}), 1):
    print("mine", flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", holding], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "mine\n"
        assert take(tmp_path / ".turn-0") is None
        process.kill()
        process.wait()
    with turn(tmp_path, 1):
        pass
