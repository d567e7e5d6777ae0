"""Carry out a plan: train its runs, store a result as each ends, and update the tables."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from normatch.config import Config
from normatch.errors import UserError
from normatch.files import replacing
from normatch.locks import take
from normatch.recipes import recipes
from normatch.reproduce.children import side_by_side
from normatch.reproduce.fill import Filled
from normatch.reproduce.grid import Planned
from normatch.reproduce.page import plain, relative, section
from normatch.reproduce.paper import STUDIES
from normatch.reproduce.pictures import draw
from normatch.reproduce.plan import Plan
from normatch.reproduce.results import read_results, write_result
from normatch.reproduce.turns import turn
from normatch.training.diagnosis import NOT_FINITE
from normatch.training.loop import Turns
from normatch.training.progress import Lines
from normatch.training.runtime import Runtime
from normatch.training.train import train

__all__ = ["carry_out", "summary", "tables"]


def carry_out(plan: Plan, tell: Callable[[str], None]) -> list[str]:
    """Train the unfinished runs of a plan; return the names of those that failed.

    However it ends, finished runs stay finished, and the next call continues other runs from their checkpoints.
    """
    plan.results.mkdir(parents=True, exist_ok=True)
    with _locked(plan.out):
        for run in plan.runs:
            if run.finished and not _result_file(plan, run).is_file():
                _keep_result(plan, run)
        write_page(plan)  # Before hours of training: a result that cannot be read would stop it after the first run.
        failed = []
        for run, succeeded in _trained(plan.to_do, plan):
            if run.finished or _diverged(run):
                _keep_result(plan, run)
                write_page(plan)
            if not succeeded:
                failed.append(run.name)
            tell(run.run().describe() if run.finished else f"{run.name} failed")
        write_page(plan)
    return failed


def tables(plan: Plan) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The cells of a plan's studies and the gains over their first rows, JSON-ready, from all results so far."""
    filled = _filled(plan)
    return {
        "tables": {one.study.name: one.cells() for one in filled},
        "gains": {one.study.name: [gain.to_json() for gain in one.gains()] for one in filled},
    }


def summary(plan: Plan) -> str:
    """The tables of a plan as text, from all results so far."""
    return "\n\n".join(map(plain, _filled(plan)))


def write_page(plan: Plan) -> Path:
    """Write ``results.md`` with the plan's tables and figures, and all others for which there are results."""
    link = relative(plan.results.name)
    parts = [section(filled, link, draw(filled, plan.out / "pictures", "pictures")) for filled in _shown(plan)]
    path = plan.out / "results.md"
    with replacing(path) as part:
        part.write_text("\n".join(["# Results\n", *parts]), encoding="utf-8")
    return path


def _filled(plan: Plan) -> list[Filled]:
    results = read_results(plan.results)
    return [Filled(study, results, plan.stand_in) for study in plan.studies]


def _shown(plan: Plan) -> list[Filled]:
    """The studies of the plan, and those with results of earlier plans, also with other stand-ins than the plan's."""
    results, movable = read_results(plan.results), [study for study in STUDIES.values() if study.movable]
    of_paper = {trial.recipe for study in STUDIES.values() for trial in study.trials()}
    stand_ins = dict.fromkeys([None, plan.stand_in, *(name for name in recipes.names() if name not in of_paper)])
    found = [Filled(study, results, name) for name in stand_ins for study in (movable if name else STUDIES.values())]
    return [
        filled
        for filled in found
        if (filled.study in plan.studies and filled.stand_in == plan.stand_in)
        or any(filled.answers(trial) for trial in filled.study.trials())
    ]


def _trained(runs: Sequence[Planned], plan: Plan) -> Iterator[tuple[Planned, bool]]:
    """Train the runs; yield each when it ends, and whether it succeeded.

    On a GPU each is a separate process, so that compiled code and memory of one do not affect the next. If there is
    room, one additional run is started: it gets ready and compiles, on the CPU, and then waits for its turn.
    """
    if plan.at_once == 1 and not plan.ahead and runs and not Runtime.of(runs[0].config).on_gpu:
        for run in runs:
            try:
                _train(run.config, run.folder)
            except UserError as error:
                Lines(run.name).note(str(error))
                yield run, False
            else:
                yield run, True
    else:
        turns = partial(turn, plan.out, plan.at_once) if plan.ahead else None
        tasks = [(_train, (run.config, run.folder, turns)) for run in runs]
        for number, succeeded in side_by_side(tasks, plan.at_once + plan.ahead):
            yield runs[number], succeeded


def _train(config: Config, folder: Path, turns: Turns | None = None) -> None:
    train(config, folder, resume=folder.exists(), progress=Lines(config.name), turns=turns)


def _result_file(plan: Plan, run: Planned) -> Path:
    return plan.results / f"{run.name}.json"


def _keep_result(plan: Plan, run: Planned) -> None:
    write_result(run.run(), _result_file(plan, run), plan.whole(run))


def _diverged(run: Planned) -> bool:
    return run.begun and any(warning["name"] == NOT_FINITE for warning in run.run().warnings)


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Lock a folder, so that only one ``normatch reproduce`` at a time writes to it."""
    lock = take(out / ".lock")
    if lock is None:
        raise UserError(f"{out} is in use by another normatch reproduce: wait for it, or choose another --out")
    with lock:
        yield
