"""What a person sees of work: a live bar on a terminal, plain lines or nothing elsewhere."""

import io
import sys

import pytest

from normatch.training.progress import Lines, counting, decoding, downloading

on_both = pytest.mark.parametrize("terminal", [True, False])


def screen_of(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What stands in for standard error."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


@on_both
def test_counting_is_seen_on_a_terminal_alone(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(terminal, monkeypatch)
    with counting("predict", 7) as report:
        report(7)
    seen = screen.getvalue()
    assert ("predict" in seen, "0/7" in seen, "7/7" in seen) == (terminal,) * 3


def test_a_bar_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable that rich knows, as in the logs of some build servers."""
    screen = screen_of(False, monkeypatch)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with counting("predict", 7) as report:
        report(7)
    assert "7/7" in screen.getvalue()


@on_both
def test_decoding_is_a_bar_or_a_line_every_few_seconds(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(terminal, monkeypatch)
    monkeypatch.setattr("normatch.training.progress.SECONDS", 0.0)
    with decoding() as report:
        report(3, 7)
        monkeypatch.setattr("normatch.training.progress.SECONDS", 1000.0)
        report(7, 7)
    if terminal:
        assert "decoding images" in screen.getvalue()
        assert "7/7" in screen.getvalue()
    else:
        assert screen.getvalue() == "decoding images  3/7\n"


def test_each_file_that_comes_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(True, monkeypatch)
    with downloading() as report:
        report("a.tar", 10, 50)
        report("b.tar", 20, None)
        report("a.tar", 50, 50)
    assert "50/50 bytes" in screen.getvalue()
    assert "20/? bytes" in screen.getvalue()


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
