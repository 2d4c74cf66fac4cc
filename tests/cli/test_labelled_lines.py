"""Long lines with a label: broken between words on a terminal, whole everywhere else."""

from __future__ import annotations

import sys

import pytest

from heronpy.cli.output import say_labelled

TEXT = "container_1_work_2 is slow: while busy it handles 33/s, the other tasks of work 420/s each"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_whole_words(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns it read "the other tas" and "ks of work"."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    say_labelled("SLOW TASK", TEXT)
    say_labelled("next", f"heron profile local {TEXT}", whole=True)
    slow, *more, todo = capsys.readouterr().out.splitlines()
    assert todo == f"next       heron profile local {TEXT}", "a command is copied as one line"
    if terminal:
        assert slow == "SLOW TASK  container_1_work_2 is slow: while busy it handles 33/s, the other"
        assert more == ["           tasks of work 420/s each"]
    else:
        assert (slow, more) == (f"SLOW TASK  {TEXT}", [])


def test_a_margin_goes_on_below(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    say_labelled("state", TEXT, margin="  ")
    say_labelled("", TEXT, margin="  ")
    first, second = "container_1_work_2 is slow: while busy it handles 33/s, the other", "tasks of work 420/s each"
    below = " " * 13
    assert capsys.readouterr().out.splitlines() == [
        f"  state      {first}", below + second, below + first, below + second,
    ]  # fmt: skip


def test_what_cannot_be_broken_stays_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    say_labelled("where", "container_1_a_component_of_a_long_name_2")
    assert "container_1_a_component_of_a_long_name_2" in capsys.readouterr().out
