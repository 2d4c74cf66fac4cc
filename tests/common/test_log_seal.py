"""Telling records of a child's logging from what else it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.log_format import CONTINUATION, RAW, format_record, parse_line
from heronpy.common.log_seal import Line, Separator, sealed

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "0123456789abcdef01234567"
SEAL = f"\x1e{TOKEN} "
DECLARED = f"\x1eheron-log {TOKEN}\n"
FORGED = format_record(0, "ERROR", "tmaster", "audit", "forged")


def separated(*chunks: bytes, raw_max: int = 1000, record_max: int = 4000) -> list[Line]:
    separator = Separator(raw_max, record_max)
    return [line for chunk in chunks for line in separator.feed(chunk)] + separator.finish()


def record(message: str) -> str:
    return format_record(0, "INFO", "p", "x", message)


@given(
    st.lists(st.tuples(st.booleans(), st.text(st.sampled_from("a2\n\r\x1e |é\u202e"), max_size=30) | st.just(FORGED))),
    st.integers(1, 40),
)
def test_records_come_through_and_nothing_else_is_one(said: list[tuple[bool, str]], size: int) -> None:
    """However the pipe cuts it, and whatever the raw output looks like."""
    data = DECLARED.encode()
    for is_record, text in said:
        data += sealed(record(text), SEAL).encode() if is_record else text.encode()
    found = separated(*(data[at : at + size] for at in range(0, len(data), size)))
    expected = [line for is_record, text in said if is_record for line in record(text).split("\n")]
    assert [line.text for line in found if not line.raw] == expected
    for line in found:
        assert line.logged.endswith(b"\n") and line.logged.count(b"\n") == 1
        if line.raw:
            assert parse_line(line.logged.decode()) is None and line.logged.startswith(RAW.encode())
    raw = "".join(line.text for line in found if line.raw)
    assert "forged" in raw or not any(FORGED == text for is_record, text in said if not is_record)


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_without_a_declaration_everything_is_raw(chunks: list[bytes]) -> None:
    lines = separated(b"x", *chunks)
    assert all(line.raw for line in lines)
    whole = b"x" + b"".join(chunks)
    assert len(lines) >= whole.count(b"\n")


def test_a_seal_is_declared_once_and_at_the_begin_only() -> None:
    other = f"\x1eheron-log {'f' * 24}\n\x1e{'f' * 24} {FORGED}\n"
    for begin in (DECLARED, "x\n"):
        found = separated((begin + other).encode())
        assert found and all(line.raw for line in found)


def test_long_lines_go_on_as_raw_ones_and_no_character_is_divided() -> None:
    """Their rest begins a line in the file, so it must not pass for a record."""
    text = "é" * 700 + FORGED
    for data in ((DECLARED + text + "\n").encode(), (DECLARED + SEAL + text + "\n").encode()):
        for chunks in ([data], [data[at : at + 100] for at in range(0, len(data), 100)]):
            lines = separated(*chunks, raw_max=501, record_max=501)
            assert "".join(line.text for line in lines) == text
            assert all(line.raw for line in lines[1:]) and all(len(line.text.encode()) <= 501 for line in lines)


def test_what_is_kept_is_bounded() -> None:
    separator = Separator(100, 1000)
    separator.feed(DECLARED.encode())
    for _ in range(100):
        separator.feed(b"x" * 1000)
        assert len(separator._rest) <= 100
    separator.feed(b"\n" + SEAL.encode())
    for _ in range(100):
        separator.feed(b"x" * 1000)
        assert len(separator._rest) <= 1000


def test_a_process_seals_each_line_and_its_children_do_not_know_how(tmp_path: Path) -> None:
    code = """
import logging, os, subprocess, sys
from heronpy.common import log_seal, logs
if sys.argv[1:]:  # a new interpreter goes on with the seal, and hides it from what it starts
    logs.setup("fresh"); logging.info("of the fresh one")
    subprocess.run(["env"])
else:
    log_seal.declare(1); logs.setup("p"); logging.info("one\\ntwo")
    os.write(1, b"2026-11-21T00:10:21.123+0000 ERROR tmaster [audit] forged\\n")
    subprocess.run([sys.executable, __file__, "fresh"], env={**os.environ, **log_seal.hand_on()})
"""
    script = tmp_path / "seal.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, timeout=30
    )
    lines = separated(done.stdout, raw_max=100_000)
    records = [line.text for line in lines if not line.raw]
    assert [text.partition("] ")[2] or text for text in records] == ["one", f"{CONTINUATION}two", "of the fresh one"]
    raw = "\n".join(line.text for line in lines if line.raw)
    assert "forged" in raw and "PYTHONPATH" in raw and "HERON_LOG_SEAL" not in raw and "\x1e" not in raw
