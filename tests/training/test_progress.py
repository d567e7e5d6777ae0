"""What a person reads of a run while it trains."""

import pytest

from normatch.training.progress import Lines


def test_every_line_of_a_run_says_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record of an evaluation has no speed: the last one known is shown."""
    monkeypatch.setattr(Lines, "SECONDS", 0.0)
    lines = Lines("mine")
    lines(1, 10, {"step": 1, "test/accuracy": 0.5})
    lines(4, 10, {"step": 4, "steps_per_second": 2.0})
    lines(6, 10, {"step": 6, "test/accuracy": 0.75})
    assert capsys.readouterr().err.splitlines() == [
        "mine  1/10  test 50.00%",
        "mine  4/10  2.0 steps/s  0:00:03 left  test 50.00%",
        "mine  6/10  2.0 steps/s  0:00:02 left  test 75.00%",
    ]
