"""What a person sees of work that is counted: a live bar on a terminal, plain lines or nothing elsewhere."""

import io
import sys

import pytest

from normatch.bars import counting, decoding, downloading

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
    with counting("predict", 7) as told:
        told(7)
    seen = screen.getvalue()
    assert ("predict" in seen, "0/7" in seen, "7/7" in seen) == (terminal,) * 3


def test_a_bar_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable that rich knows, as in the logs of some build servers."""
    screen = screen_of(False, monkeypatch)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with counting("predict", 7) as told:
        told(7)
    assert "7/7" in screen.getvalue()


@on_both
def test_decoding_is_a_bar_or_a_line_every_few_seconds(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(terminal, monkeypatch)
    monkeypatch.setattr("normatch.bars.SECONDS", 0.0)
    with decoding() as told:
        told(3, 7)
        monkeypatch.setattr("normatch.bars.SECONDS", 1000.0)
        told(7, 7)
    if terminal:
        assert "decoding images" in screen.getvalue()
        assert "7/7" in screen.getvalue()
    else:
        assert screen.getvalue() == "decoding images  3/7\n"


@on_both
def test_each_file_that_comes_has_a_bar_or_a_line_at_its_end(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(terminal, monkeypatch)
    with downloading() as told:
        told("a.tar", 10, 50)
        told("b.tar", 20, None)
        told("a.tar", 50, 50)
    if terminal:
        assert "50/50 bytes" in screen.getvalue()
        assert "20/? bytes" in screen.getvalue()
    else:
        assert screen.getvalue() == "a.tar  50 bytes\n"
