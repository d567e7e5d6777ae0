"""Many files are decoded by processes, with the same result as by threads."""

import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import normatch
from normatch.data.images import crew as crew_module
from normatch.data.images import decode_all
from normatch.data.images.crew import Crew, crew
from normatch.data.images.many import decode_batches
from normatch.data.images.worker import Result, Work, work
from normatch.errors import UserError
from tests.data.original_formats import random_bytes


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    for i, image in enumerate(random_bytes(60, 12, 12, 3)):
        Image.fromarray(image).save(tmp_path / f"{i:02}.png")
    (tmp_path / "30.png").write_bytes(b"")
    return sorted(tmp_path.iterdir())


def test_processes_give_what_threads_give(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    by_threads = decode_all(paths, on_bad="skip")
    monkeypatch.setattr(crew_module, "FEW", 0)
    by_processes = decode_all(paths, on_bad="skip")
    np.testing.assert_array_equal(by_threads.images, by_processes.images)
    np.testing.assert_array_equal(by_threads.facts, by_processes.facts)
    assert by_threads.bad == by_processes.bad == (f"{paths[30]}: the file is empty",)
    assert by_processes.kept.tolist() == [i for i in range(60) if i != 30]


def test_a_process_that_dies_is_reported(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "FEW", 0)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with crew(len(paths)) as do, pytest.raises(RuntimeError, match="ended with code 1"):
        list(do([Work((str(paths[0]),), None)]))


def test_a_process_that_dies_while_it_answers_is_reported(
    tmp_path: Path, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = pickle.dumps(work(Work((str(paths[0]),), (12, 12, 3))))
    (tmp_path / "half").write_bytes(answer[: len(answer) // 2])
    dying = tmp_path / "dying"
    dying.write_text(f"#!/bin/sh\nhead -c 1 > /dev/null\ncat {tmp_path / 'half'}\nexit 9\n")
    dying.chmod(0o755)
    monkeypatch.setattr(crew_module, "FEW", 0)
    monkeypatch.setattr(sys, "executable", str(dying))
    with crew(len(paths)) as do, pytest.raises(RuntimeError, match=r"ended with code 9, at .*00\.png"):
        list(do([Work((str(paths[0]),), (12, 12, 3))]))


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path, paths: list[Path]) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from normatch.data.images import crew, decode_all\n"
        "print('once')\n"
        "crew.FEW = 0\n"
        f"print(len(decode_all(sorted(Path({str(tmp_path)!r}).glob('*.png')), on_bad='skip').images))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["once", "59"]
    assert done.stderr == ""


def test_the_processes_import_the_package_from_where_it_was_imported(paths: list[Path]) -> None:
    # Of another folder, which is on the path as '' alone: no other place has it.
    code = (
        "import sys; sys.path[:] = ['', *(p for p in sys.path if p and not p.endswith('src'))]\n"
        "from pathlib import Path; from normatch.data.images import crew, decode_all; crew.FEW = 0\n"
        f"print(len(decode_all(sorted(Path({str(paths[0].parent)!r}).glob('*.png')), on_bad='skip').images))\n"
    )
    source = Path(normatch.__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], cwd=source, env=environment, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("59", "")


def test_warnings_of_others_are_not_silenced(paths: list[Path]) -> None:
    filters = list(warnings.filters)
    with ExitStack() as first, ExitStack() as second:
        for stack in (first, second):
            next(stack.enter_context(closing(decode_batches(paths, 2, size=12, channels=3, on_bad="skip"))))  # type: ignore[type-var]
        first.close()
        with pytest.raises(UserWarning, match="mine"):
            warnings.warn("mine", stacklevel=1)
    assert warnings.filters == filters


def test_the_processes_do_without_torch() -> None:
    code = "import sys, normatch.data.images.worker; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_results_do_not_pile_up(monkeypatch: pytest.MonkeyPatch, paths: list[Path]) -> None:
    monkeypatch.setattr(crew_module, "cores", lambda: 2)
    asked = 0

    def pieces() -> Iterator[Work]:
        nonlocal asked
        for path in paths:
            asked += 1
            yield Work((str(path),), None)

    with crew(len(paths)) as do:
        results = do(pieces())
        next(results)
        assert asked <= 6
        assert len(list(results)) == len(paths) - 1


def test_nothing_waits_for_what_has_not_begun(monkeypatch: pytest.MonkeyPatch, paths: list[Path]) -> None:
    done: list[Work] = []

    def slow(piece: Work) -> Result:
        time.sleep(0.2)
        done.append(piece)
        return work(piece)

    monkeypatch.setattr(crew_module, "cores", lambda: 1)
    monkeypatch.setattr(crew_module, "work", slow)
    with crew(len(paths)) as do:
        next(do(Work((str(path),), None) for path in paths))
    assert len(done) <= 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_nothing_waits_for_a_process(monkeypatch: pytest.MonkeyPatch, paths: list[Path], tmp_path: Path) -> None:
    """A named pipe that nobody writes to stands for a picture that takes forever."""
    forever = tmp_path / "forever.png"
    os.mkfifo(forever)
    monkeypatch.setattr(crew_module, "cores", lambda: 1)
    monkeypatch.setattr(crew_module, "FEW", 0)
    # Should the test fail, it fails instead of hanging: opened for both, the pipe never blocks, and is read as empty.
    rescue = threading.Timer(20, lambda: os.close(os.open(forever, os.O_RDWR)))
    rescue.start()
    try:
        begun = time.monotonic()
        batches = decode_batches([paths[0], *[forever] * 5], 1, size=8, channels=3)
        next(batches)
        del batches  # closes the generator
        assert time.monotonic() - begun < 15
    finally:
        rescue.cancel()


def test_a_decompression_bomb_is_unreadable_and_warnings_stay_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("L", (40, 40)).save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    decoded = decode_all([tmp_path / "large.png"], on_bad="skip")
    assert "exceeds limit of 1000 pixels" in decoded.bad[0]


def test_one_crew_reads_all_batches(monkeypatch: pytest.MonkeyPatch, paths: list[Path]) -> None:
    made: list[int] = []

    @contextmanager
    def counted(files: int) -> Iterator[Crew]:
        made.append(files)
        with crew(files) as do:
            yield do

    monkeypatch.setattr("normatch.data.images.many.crew", counted)
    batches = list(decode_batches(paths, 3, size=8, channels=3, on_bad="skip"))
    assert made == [len(paths)]
    whole = decode_all(paths, size=8, channels=3, on_bad="skip")
    np.testing.assert_array_equal(np.concatenate([batch.images for batch in batches]), whole.images)
    np.testing.assert_array_equal(np.concatenate([batch.kept for batch in batches]), whole.kept)


@pytest.mark.parametrize(("batch", "of"), [(8, "the first 32"), (30, "60")])
def test_unreadable_images_are_counted_among_all_that_were_read(paths: list[Path], batch: int, of: str) -> None:
    """Not among those of their batch: 2 of 8 would sound like a quarter."""
    paths[31].write_bytes(b"")
    last = paths if batch == 8 else [*paths[:30], *paths[32:], *paths[30:32]]
    with pytest.raises(UserError, match=f"cannot read 2 of {of} images: "):
        list(decode_batches(last, batch, size=8, channels=3))
