"""Which runs a plan has get ready on a GPU while others train, told what it would measure there."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from normatch.cli import main
from normatch.config import Config
from normatch.errors import UserError
from normatch.reproduce import estimate, plan
from normatch.reproduce.estimate import Paces
from normatch.training.pace import Pace
from normatch.training.progress import clock

GB = 10**9


@pytest.mark.parametrize(
    ("at_once", "memory", "free", "ahead", "hidden"),
    [
        pytest.param(1, GB, 4 * GB, 1, 20, id="room for the next one"),
        pytest.param(1, GB, 3 * GB, 0, 0, id="room for one only"),
        pytest.param(2, GB, 80 * GB, 0, 0, id="there is no next one"),
        pytest.param(1, None, 80 * GB, 0, 0, id="nobody knows what one takes"),
    ],
)
def test_the_next_run_gets_ready_where_it_fits(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    at_once: int,
    memory: int | None,
    free: int,
    ahead: int,
    hidden: float,
) -> None:
    monkeypatch.setattr(Paces, "of", lambda self, recipe: Pace(20, 0.01, 0.0, memory))
    monkeypatch.setattr("normatch.reproduce.plan.Runtime.of", lambda config: SimpleNamespace(on_gpu=True))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, free))
    made = plan.make_plan(
        "table3", budget="500steps", seeds=(0,), data="digits", device="cpu", at_once=at_once, out=tmp_path
    )
    assert (made.at_once, made.ahead, made.hidden) == (at_once, ahead, hidden)
    assert f"about {clock(50 - hidden)} to go" in made.describe()


def test_nothing_gets_ready_on_a_processor(tmp_path: Path) -> None:
    made = plan.make_plan("table3", budget="2steps", seeds=(0, 1), data="digits", device="cpu", out=tmp_path)
    assert (made.at_once, made.ahead) == (1, 0)


@pytest.mark.parametrize(
    ("more", "known", "times", "said"),
    [
        ([], False, 0, "1 run, 0 finished; the time left shows while it trains"),
        ([], True, 0, f"1 run, 0 finished; about {clock(520)} to go"),
        (["--dry-run"], False, 1, f"1 run, 0 finished; about {clock(520)} to go"),
        (["--seeds", "0", "1"], False, 1, f"2 runs, 0 finished; about {clock(1040)} to go"),
        (["--budget", "1"], False, 1, f"1 run, 0 finished; about {clock(57)} to go"),
    ],
)
def test_a_single_run_is_timed_only_to_tell_or_to_set_its_time(
    more: list[str],
    known: bool,
    times: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured: list[str] = []

    def measure(config: Config, file: Path, key: str) -> None:
        measured.append(key)
        file.write_text(json.dumps({key: {"start": 20, "step": 1, "evaluation": 0}}))

    monkeypatch.setattr(estimate, "_measure", measure)
    monkeypatch.setattr("normatch.cli.reproduce.carry_out", lambda plan, tell: [])
    monkeypatch.setattr("normatch.cli.reproduce.summary", lambda plan: "")
    if known:
        Paces(tmp_path / "pace.json", device="cpu", data_root=None).of("digits-40")
        measured.clear()
    one = ["--data", "digits", "--budget", "500steps", "--seeds", "0", "--only", "no-stop", "--device", "cpu"]
    assert main(["reproduce", "table3", *one, *more, "--out", str(tmp_path)]) == 0
    assert said in capsys.readouterr().out
    assert len(measured) == times


def test_a_data_set_is_looked_for_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looked: list[str] = []

    def absent(config: Config) -> None:
        looked.append(config.data)
        raise UserError(f"no {config.data}")

    monkeypatch.setattr(plan, "open_corpus", absent)
    with pytest.raises(UserError, match="no cifar10"):
        plan.make_plan("table6", device="cpu", out=tmp_path)
    assert looked == ["cifar10", "cifar100", "stl10"]


def test_without_any_data_all_of_it_is_named_with_what_can_stand_in(tmp_path: Path) -> None:
    def complaint(name: str) -> str:
        with pytest.raises(UserError) as caught:
            plan.make_plan(name, device="cpu", data_root=tmp_path / "empty", out=tmp_path)
        return str(caught.value)

    assert complaint("table1").endswith(
        f"run `normatch data get cifar10 --root {tmp_path / 'empty'}`, or put it there; "
        "to try it without cifar10, add --data digits"
    )
    every = complaint("all")
    assert (
        "; cifar100, stl10, mini-imagenet cannot be read either; to try it without cifar10, add --data digits" in every
    )
    # It is about its own data.
    assert complaint("table6").endswith("; cifar100, stl10 cannot be read either")
