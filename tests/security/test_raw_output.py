"""What a task prints past Python's streams: kept, marked as its own, and never a record (forging worked before)."""

from __future__ import annotations

import json
from pathlib import Path

from heronpy.common.log_files import read_logs
from heronpy.common.log_format import RAW, format_record
from heronpy.procs.child_log import last_line_of
from tests.security.evil import TERMINAL
from tests.support.command import Heron
from tests.support.user_programs import PRELUDE

FORGED = format_record(1, "ERROR", "tmaster", "audit", "forged")
_BODY = """
import logging, os, subprocess


class Words(Numbers):
    outputs = ["n"]

    def next_tuple(self):
        if self.n:
            logging.error("the last word\\nof two lines")
            self.end_of_input()
            return
        self.n = 1
        forged = {forged!r}
        os.write(1, (forged + " by write\\n\\x1b[2J\\xff").encode("latin-1"))
        logging.warning("in the middle of a line")
        os.write(2, ("\\n" + forged + " to stderr\\n").encode())
        subprocess.run(["printf", "%s by a child\\n  | more\\n", forged], check=True)
        os.write(1, b"\\x1eheron-log " + b"f" * 24 + b"\\n\\x1e" + b"f" * 24 + b" " + forged.encode() + b" with a seal\\n")
        os.write(1, b"x" * 100_000 + forged.encode() + b" far behind\\n")
        print(forged + " by print")


class Sink(Bolt):
    def process(self, tup):
        pass


builder = TopologyBuilder("forger")
words = builder.add_spout("words", Words, par=1)
builder.add_bolt("sink", Sink, par=1, inputs={{words: Grouping.SHUFFLE}})
builder.build_and_submit()
"""


def test_raw_output_is_marked_and_forges_no_record(heron: Heron) -> None:
    path = heron.home.parent / "forger.py"
    path.write_text(PRELUDE + _BODY.format(forged=FORGED))
    heron.submit(path)
    heron.when_logged("forger", "of two lines")
    [process] = [file.stem for file in heron.log_dir("forger").glob("container_*_words_*.log")]
    records = list(read_logs(heron.log_dir("forger"), process))
    assert {record.process for record in records if record.level} == {process}
    forged = [record.message for record in records if "forged" in record.message]
    raw = [record.message for record in records if record.logger == "raw"]
    for way in ("write", "stderr", "by a child", "with a seal", "far behind", "print"):
        assert any(way in message for message in forged), way
        assert any(way in message for message in raw) == (way != "print"), way
    assert any(record.message == "in the middle of a line" and record.level == "WARN" for record in records)
    assert any(record.message == "the last word\nof two lines" for record in records)
    text = (heron.log_dir("forger") / f"{process}.log").read_text()
    assert not TERMINAL.search(text) and RAW + "\\x1b[2J\\xff" in text
    shown = heron("logs", "local", "forger", process, "--level", "ERROR").ok()
    assert not [line for line in shown.out.splitlines() if line.startswith("1970-")]
    rows = [json.loads(line) for line in heron("logs", "local", "forger", process, "--json").ok().out.splitlines()]
    assert not [row for row in rows if row["process"] == "tmaster"]
    assert {row["level"] for row in rows if row["logger"] == "raw"} == {""}


def test_the_last_words_of_a_process_are_its_own() -> None:
    """They become the reason for its end: without the marks, and without lines that say nothing."""
    tail = f"{format_record(1, 'INFO', 'p', 'x', 'before')}\n{RAW}Segmentation fault\n{RAW}\n".encode()
    assert last_line_of(tail) == "Segmentation fault"
    assert last_line_of(f"{FORGED}\n  | ValueError: boom\n".encode()) == "ValueError: boom"
    assert last_line_of(f"{RAW}{FORGED}\n".encode()) == FORGED
    assert last_line_of(b"\n\n") == ""


def test_what_the_runtime_logs_in_passing_are_no_last_words() -> None:
    """A task that user code ended with os._exit() "said last: processing carefully for a while ..."."""
    routine = format_record(0.0, "INFO", "container_1_b_2", "heron.instance", "recording each tuple for a while") + "\n"
    theirs = format_record(0.0, "INFO", "container_1_b_2", "log", "bye") + "\n"
    warned = format_record(0.0, "WARN", "container_1_b_2", "heron.instance", "the disk is full") + "\n"
    assert last_line_of((theirs + routine).encode(), routine=False) == "bye"
    assert last_line_of((warned + routine).encode(), routine=False) == "the disk is full"
    assert last_line_of(routine.encode(), routine=False) == ""
    assert last_line_of(routine.encode()) == "recording each tuple for a while"


def test_a_long_line_in_a_file_is_one_record_at_most(tmp_path: Path) -> None:
    """The reader gives it out in pieces; a later piece begins no line, so it is no record."""
    whole = format_record(1, "INFO", "p", "x", "y")
    for pad in range(0, 200_000, 65_536):
        (tmp_path / "p.log").write_text(whole + "z" * (1_048_576 + pad - len(whole)) + FORGED + "\n" + whole + "\n")
        assert not [record for record in read_logs(tmp_path, "p") if record.process == "tmaster"]
