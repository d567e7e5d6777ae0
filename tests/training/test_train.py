"""Training: it repeats, stops, and resumes on the same data alone."""

import dataclasses
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from normatch.autoconfig import plan
from normatch.cli import main
from normatch.config import Config
from normatch.data import Corpus
from normatch.errors import UserError
from normatch.evaluate.held_out import evaluate_run
from normatch.methods import methods
from normatch.recipes import own
from normatch.training import Run, baselines, checkpoint, prepare, train
from normatch.training.loop import Loop
from normatch.training.metrics import Record
from normatch.training.progress import Lines
from normatch.training.step import Step
from tests.data.original_formats import save_png


@pytest.mark.parametrize("method", methods.names())
def test_the_same_seed_gives_the_same_bits(method: str, tiny_config: Config, digits: Corpus) -> None:
    config = tiny_config.replace(method=method, steps=3, epoch=2)

    def trained(caller: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(caller)
        loop = Loop(prepare(config, digits))
        with loop.job.runtime.scope():
            loop.run()
        return loop.step.state()

    first, again = trained(1), trained(2)
    assert [name for name, value in first.items() if not torch.equal(value, again[name])] == []
    starts = [next(prepare(config.replace(seed=seed), digits).method.model.parameters()) for seed in (0, 1)]
    assert not torch.equal(*starts)


def test_a_run_neither_sees_nor_changes_the_callers_state(tiny_config: Config, tmp_path: Path) -> None:
    config = tiny_config.replace(method="fixmatch", steps=3, device="cpu")
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    plain = train(config, tmp_path / "plain")
    assert torch.equal(torch.rand(3), expected)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            other = train(config, tmp_path / "other")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    weights = [(run.path / "model.safetensors").read_bytes() for run in (plain, other)]
    assert weights[0] == weights[1]


def test_resume_needs_a_run_and_the_same_config(finished: Run, tiny_config: Config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run"):
        train(tiny_config, tmp_path / "nothing", resume=True)
    with pytest.raises(UserError, match=r"was started with validation 0.1, not 0.0"):
        train(tiny_config, finished.path, resume=True)
    settings = dataclasses.replace(finished.config.settings, disagree="drop")  # type: ignore[call-arg]
    with pytest.raises(UserError, match=r"was started with settings.disagree min, not drop"):
        train(finished.config.replace(settings=settings), finished.path, resume=True)
    with pytest.raises(UserError, match=r"config is 'pictures': give a Config, such as normatch.recipes.own"):
        train("pictures", tmp_path / "other")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"config is 'pictures': give a Config"):
        plan("pictures", tmp_path / "other")  # type: ignore[arg-type]


def test_a_checkpoint_of_other_code_is_named(tiny_config: Config, tmp_path: Path) -> None:
    run = train(tiny_config.replace(method="supervised"), tmp_path / "run")
    (run.path / "result.json").unlink()
    step, tensors = checkpoint.load_latest(run.path / "checkpoint") or (0, {})
    for lost in ("method/model.head.bias", "optimiser/sgd.momentum_buffer.model.head.bias"):
        kept = {name: tensor for name, tensor in tensors.items() if name != lost}
        assert len(kept) == len(tensors) - 1
        checkpoint.save(run.path / "checkpoint", step, kept)
        with pytest.raises(
            UserError, match=r"step 12 does not fit the method's present code \(.*head\.bias.*\): undo the change, or"
        ) as error:
            train(run.config, run.path, resume=True)
        assert "\n" not in str(error.value)


def test_a_run_that_fails_before_its_first_step_is_done_leaves_nothing_behind(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("of the method")

    def exhausted(*_: object) -> None:
        raise MemoryError

    config, supervised = tiny_config.replace(method="supervised"), methods.get("supervised")
    for part, replacement in (("forward", fails), ("last_start", property(fails))):
        with monkeypatch.context() as patch:
            patch.setattr(supervised, part, replacement)
            with pytest.raises(RuntimeError, match="of the method"):
                train(config, tmp_path / "run")
        assert list(tmp_path.iterdir()) == []

    with monkeypatch.context() as patch:
        patch.setattr("normatch.training.runtime._compute_exact_products", exhausted)
        with pytest.raises(UserError, match="too many for the memory"):
            train(config, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []

    class Stopped(Lines):
        def __call__(self, step: int, total: int, record: Record) -> None:
            raise RuntimeError("later")

    with pytest.raises(RuntimeError, match="later"):
        train(config, tmp_path / "run", progress=Stopped("digits"))
    assert Run.open(tmp_path / "run").config == config.replace(threads=Run.open(tmp_path / "run").config.threads)


def test_a_run_on_a_relative_path_can_be_used_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started from Python; the command line is not alone in storing absolute paths."""
    rng = np.random.default_rng(0)
    for folder in ("here", "here/more", "elsewhere"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    np.savez("x.npz", images=rng.integers(0, 256, (40, 8, 8), np.uint8), labels=np.arange(40) % 2)
    save_png(Path("more/y.png"), rng.integers(0, 256, (8, 8, 1), np.uint8))
    config = own("x.npz").replace(
        unlabelled=Path("more"), data_root=Path("sets"), steps=2, epoch=1, batch=4, ratio=1, test_share=0.25
    )
    run = train(config, tmp_path / "run")
    stored = run.config
    assert (stored.data, stored.unlabelled) == (str(tmp_path / "here/x.npz"), tmp_path / "here/more")
    assert stored.data_root == tmp_path / "here/sets"
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert evaluate_run(run.path, device="cpu")["accuracy"] == run.accuracy
    (run.path / "result.json").unlink()
    assert train(stored, run.path, resume=True).finished
    with pytest.raises(UserError, match=r"data is 'cifar1O': no such .+; did you mean 'cifar10'\?"):
        train(config.replace(data="cifar1O"), tmp_path / "other")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (MemoryError("Unable to allocate 200 GiB"), "too many for the memory: lower --batch, --ratio or"),
        (torch.OutOfMemoryError("CUDA out of memory"), "too many for the memory"),
        (RuntimeError("alloc_cpu.cpp:127: DefaultCPUAllocator: can't allocate memory"), "too many for the memory"),
        (ValueError("Expected more than 1 value per channel when training"), r"too few for batch norm \(.*\): give"),
    ],
)
def test_a_batch_that_does_not_suit_is_said_in_a_line(
    error: Exception, remedy: str, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: Step) -> None:
        raise error

    monkeypatch.setattr(Step, "__call__", step)
    with pytest.raises(UserError, match=f"batch is 8 and ratio 2, {remedy}"):
        train(tiny_config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_whose_data_has_moved_is_resumed_from_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))

    def pictures(folder: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for i in range(16):
            save_png(tmp_path / folder / ("ape", "bee")[i % 2] / f"{i}.png", rng.integers(0, 256, (8, 8, 3), np.uint8))
        save_png(tmp_path / f"{folder}-more" / "x.png", rng.integers(0, 256, (8, 8, 3), np.uint8))

    class Stopping(Lines):
        def __call__(self, step: int, total: int, record: Record) -> None:
            if step > 2:
                raise KeyboardInterrupt

    pictures("old", 0)
    pictures("other", 1)
    old, new, other = (str(tmp_path / name) for name in ("old", "new", "other"))
    config = own(old).replace(
        unlabelled=Path(f"{old}-more"), steps=4, epoch=2, log_every=1, batch=4, ratio=1, test_share=0.25, device="cpu"
    )
    whole = train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", progress=Stopping("stops"))
    Path(old).rename(new)
    Path(f"{old}-more").rename(f"{new}-more")

    resume = ["train", "--resume", "--out", str(tmp_path / "run")]
    moved = [*resume, "--data", new, "--unlabeled", f"{new}-more"]
    for argv, says in (
        (resume, "no such folder or file; check the path or, if it has moved, give its new place with --data\n"),
        ([*resume, "--data", new], f"{old}-more"),
        ([*resume, "--data", other, "--unlabeled", f"{other}-more"], "the data has changed since"),
        ([*resume, "--data", new, "--unlabeled", "None"], "the data has changed since"),
        ([*moved, "--seed", "1"], "was started with seed 0, not 1"),
    ):
        assert main(argv) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1

    assert main(moved) == 0
    for name in ("model.safetensors", "predictions.csv", "split.json", "config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (whole.path / name).read_bytes()
    # Once finished, its data is not read again: so other data cannot be the same.
    assert main([*resume, "--data", other]) == 2
    assert f"was started with data {old}, not {other}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "moment", "saved"),
    [(signal.SIGTERM, "__call__", 5), (signal.SIGINT, "__call__", 5), (signal.SIGINT, "__init__", 1)],
)
def test_a_signal_saves_the_run_which_resumes_as_if_left_alone(
    number: signal.Signals, moment: str, saved: int, finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    original = getattr(Step, moment)

    def stopping(self: Step, *args: Any, **options: Any) -> None:
        if moment == "__init__" or self.done == 4:
            signal.raise_signal(number)
        original(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Step, moment, stopping)
        with pytest.raises(KeyboardInterrupt, match=r"^continue with normatch train --out .*run --resume$"):
            train(finished.config, tmp_path / "run")
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert checkpoint.newest_step(tmp_path / "run" / "checkpoint") == saved, "where none is due"
    run = train(finished.config, tmp_path / "run", resume=True)
    for name in ("model.safetensors", "predictions.csv"):
        assert (run.path / name).read_bytes() == (finished.path / name).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_the_last_step_stops_at_once(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While baselines are fitted; the run can be resumed and ends as it would have."""
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(60, 4)), y=np.arange(60) % 2)
    argv = ["train", "--data", str(tmp_path / "x.npz"), "--steps", "4", "--device", "cpu", "--out"]
    run, other = tmp_path / "run", tmp_path / "other"
    with monkeypatch.context() as patch:
        patch.setattr(baselines, "plain_features", lambda *_: signal.raise_signal(number))
        assert main([*argv, str(run)]) == 75
    assert capsys.readouterr().err.endswith(f"stopped; continue with normatch train --out {run} --resume\n")
    assert not Run.open(run).finished
    assert main(["train", "--out", str(run), "--resume"]) == 0
    assert main([*argv, str(other)]) == 0
    assert (run / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert len(Run.open(run).result["baselines"]) == len(Run.open(other).result["baselines"]) > 0


def test_a_second_ctrl_c_stops_at_once(tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping(self: Step) -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr(Step, "__call__", stopping)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_config, tmp_path / "run")
    assert checkpoint.newest_step(tmp_path / "run" / "checkpoint") == 0


def test_a_run_in_another_thread_leaves_signals_alone(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: pytest.fail("a handler was installed"))
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(train, tiny_config.replace(steps=1), tmp_path / "run").result().finished


def test_a_run_whose_last_step_makes_it_diverge_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With this rate the weights are finite after it, the logits are not."""
    argv = ["train", "digits-40", "--steps", "1", "--batch", "8", "--ratio", "1", "--optim.lr", "1e10"]
    assert main([*argv, "--device", "cpu", "--out", str(tmp_path / "run")]) == 2
    assert "training stopped at step 1: loss, weights" in capsys.readouterr().err.splitlines()[-1]
    assert not Run.open(tmp_path / "run").finished
