"""The line that is overwritten while a command waits never wraps."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from heronpy.cli.render import progress


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
