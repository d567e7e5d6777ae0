"""What a run reports: its lines of metrics and its events for TensorBoard."""

from pathlib import Path

import pytest

from normatch.training.recorder import RunRecorder


@pytest.mark.parametrize("resumed_at", [0, 20])
def test_events_of_steps_that_are_done_again_are_dropped(tmp_path: Path, resumed_at: int) -> None:
    """TensorBoard shows each step once, that of the checkpoint included."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for begin, steps in ((0, (10, 20, 30)), (resumed_at, range(resumed_at + 10, 50, 10))):
        with RunRecorder(tmp_path, begin) as recorder:
            for step in steps:
                recorder.write(step, {"loss": 1.0})
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [10, 20, 30, 40]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught, RunRecorder(tmp_path, 0) as recorder:
        recorder.write(1, {"loss": 1.0})
    assert caught.value.filename == str(tmp_path / "metrics.jsonl")


def test_two_files_of_events_in_a_second_are_two(tmp_path: Path) -> None:
    for _ in range(3):
        with RunRecorder(tmp_path, 0) as recorder:
            recorder.write(1, {"loss": 1.0, "classes": [0.5, 0.5], "none": None})
    assert len(list((tmp_path / "events").iterdir())) == 3
