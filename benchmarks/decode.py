"""The first and the second start on 100,000 small image files: time, cores used, memory.

python benchmarks/decode.py [FOLDER] writes the files (half PNG, half JPEG, 32×32, random pixels, ten classes) unless
they are there, reads them twice in fresh processes with a cache of their own, and prints what it measured.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from normatch.data.images.cores import cores

COUNT, SIDE, CLASSES = 100_000, 32, 10
DECODED = COUNT * SIDE * SIDE * 3

READ = """
import sys, time
from normatch.data import load_corpus
begin = time.perf_counter()
corpus = load_corpus(sys.argv[1])
print(f"{time.perf_counter() - begin:.2f}")
"""


def write_files(folder: Path) -> None:
    for label in range(CLASSES):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(COUNT):
        path = folder / str(i % CLASSES) / f"{i}.{('png', 'jpg')[i // CLASSES % 2]}"
        if not path.exists():
            Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(path)


def resident(pid: int) -> int:
    """Bytes of memory of a process and all below it; what they share counts each time."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(resident(int(child)) for child in children)


def measure(name: str, folder: Path, code: str = READ) -> None:
    before = os.times()
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        time.sleep(0.02)
    wall = time.perf_counter() - begin
    after = os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    assert process.stdout is not None
    inside = process.stdout.read().strip()
    print(
        f"{name}: reading {inside or 0} s, the whole process {wall:.1f} s wall and {busy:.1f} s of processor time, "
        f"peak memory {peak / 1e6:.0f} MB ({peak / DECODED:.2f} times the decoded {DECODED / 1e6:.0f} MB)"
    )


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(tempfile.gettempdir()) / "normatch-100000")
    write_files(folder)
    cache = Path(tempfile.mkdtemp())
    os.environ["NORMATCH_CACHE"] = str(cache)
    try:
        print(f"{cores()} cores, load {os.getloadavg()[0]:.1f} before")
        measure("imports alone", folder, "import normatch.data")
        measure("first start", folder)
        measure("second start", folder)
    finally:
        shutil.rmtree(cache)


if __name__ == "__main__":
    main()
