"""Runs that are killed again and again, at random moments of their whole life, lose nothing.

``python -m tests.training.test_random_kills 200`` does it 200 times.
"""

import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from normatch.errors import RESUME
from normatch.training.run import Run
from normatch.training.train import train
from tests.training.killed import CONFIG

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.training.killed", "torch.utils.tensorboard", "sklearn.metrics"])

TIMES = {"seconds", "steps_per_second"}
"""Metrics that differ between two runs of the same config."""


def work(out: Path) -> None:
    """Train, or continue, in a process of its own."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        train(CONFIG, out, resume=out.exists())
    except KeyboardInterrupt:
        sys.exit(RESUME)


def once(out: Path, number: int = 0, after: float = 0.0) -> int | None:
    """Start or continue a run, with signal ``number`` so many seconds ``after`` that; the exit code of its process."""
    process = PROCESSES.Process(target=work, args=(out,))
    process.start()
    if number:
        process.join(after)
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, number)
    process.join()
    return process.exitcode


def content(run: Path) -> dict[str, Any]:
    """What must not differ: weights, predictions, and the metrics without times."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "files": sorted(path.name for path in run.iterdir() if path.name not in (".lock", "events")),
        "weights": (run / "model.safetensors").read_bytes(),
        "predictions": (run / "predictions.csv").read_bytes(),
        "warnings": (run / "warnings.json").read_bytes() if (run / "warnings.json").exists() else b"",
        "metrics": [{k: v for k, v in record.items() if k not in TIMES} for record in records],
    }


def kill(count: int, folder: Path, seed: int = 0) -> dict[str, int]:
    """Kill runs ``count`` times in all; each is continued until it ends, and then equals one that was left alone.

    Returns how often each signal came before the process had ended, and the number of runs.
    """
    draws = random.Random(seed)
    whole = folder / "whole"
    assert once(whole) == 0
    start = time.monotonic()
    assert once(folder / "timed") == 0
    life = time.monotonic() - start
    expected = content(whole)
    assert content(folder / "timed") == expected
    done = {"SIGKILL": 0, "SIGTERM": 0, "runs": 0}
    while done["SIGKILL"] + done["SIGTERM"] < count:
        out = folder / f"run{done['runs']}"
        kills = 0
        while not (out / "result.json").exists():
            # After some kills it is left alone: each may come before the first checkpoint.
            name = draws.choice(["SIGKILL", "SIGKILL", "SIGTERM"]) if kills < 8 else ""
            code = once(out, getattr(signal, name, 0), draws.uniform(0, 1.1 * life))
            expected_codes = {0, -getattr(signal, name, 0), RESUME} if name else {0}
            assert code in expected_codes, (code, name)
            if name and code != 0:
                done[name] += 1
                kills += 1
        assert content(out) == expected, out
        assert Run(out).result["steps"] == CONFIG.steps
        done["runs"] += 1
    return done


def test_twenty_random_kills_lose_nothing(tmp_path: Path) -> None:
    done = kill(20, tmp_path)
    assert done["SIGKILL"]
    assert done["SIGTERM"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(kill(int(sys.argv[1]), Path(place), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0))
