"""Long lines on a terminal: broken between words, or cut where they are overwritten; whole everywhere else."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from heronpy.cli.output import say_labelled
from heronpy.cli.render import progress

TEXT = "container_1_work_2 is slow: while busy, it handles 33/s, and the other tasks of work handle 420/s each"


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
        assert slow == "SLOW TASK  container_1_work_2 is slow: while busy, it handles 33/s, and the"
        assert more == ["           other tasks of work handle 420/s each"]
    else:
        assert (slow, more) == (f"SLOW TASK  {TEXT}", [])


def test_a_margin_goes_on_below(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    say_labelled("state", TEXT, margin="  ")
    say_labelled("", TEXT, margin="  ")
    first, second = (
        "container_1_work_2 is slow: while busy, it handles 33/s, and the",
        "other tasks of work handle 420/s each",
    )
    below = " " * 13
    assert capsys.readouterr().out.splitlines() == [
        f"  state      {first}", below + second, below + first, below + second,
    ]  # fmt: skip


def test_what_cannot_be_broken_stays_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    say_labelled("where", "container_1_a_component_of_a_long_name_2")
    assert "container_1_a_component_of_a_long_name_2" in capsys.readouterr().out


@given(st.text(alphabet="ab é漢字한\u0301", max_size=60), st.integers(0, 50))
def test_a_line_is_cut_to_columns_not_letters(text: str, columns: int) -> None:
    shown = progress.cut(text, columns)
    assert cell_len(shown) <= columns
    assert shown == text or shown.endswith("…") or not columns
    if cell_len(text) <= columns:
        assert shown == text


def test_progress_follows_the_terminals_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((40, 20)))
    shown = progress.Progress()
    shown.show("starting: 12 of 20 tasks not ready: container_1_word_1, container_1_word_2")
    line = capsys.readouterr().err.removeprefix("\r\x1b[K")
    assert len(line) == 39 and line.endswith("…")
    shown.clear()
