"""Logs: the format and what cannot forge it, bounded files, and the reader that follows them."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common import log_files
from heronpy.common.errors import ConfigError
from heronpy.common.logs import (
    LogFormatter,
    Record,
    RotatingLog,
    escape,
    format_record,
    log_processes,
    parse_line,
    read_logs,
    setup,
)

DEADLINE_S = 20.0
ROOT = Path(__file__).resolve().parents[2]
WHEN = 1795219821.123
HEAD = "2026-11-21T00:10:21.123+0000"


def line(message: str, level: str = "INFO", when: float = WHEN) -> str:
    return format_record(when, level, "p", "x", message) + "\n"


def read(directory: Path, **options: object) -> list[str]:
    return [record.message for record in read_logs(directory, "p", **options)]  # type: ignore[arg-type]


def formatted(message: str, *arguments: object, process: str = "p", name: str = "x") -> str:
    record = logging.LogRecord(name, logging.WARNING, "f", 1, message, arguments, None)
    record.created = WHEN
    return LogFormatter(process).format(record)


def test_the_format_of_a_record() -> None:
    text = format_record(WHEN, "INFO", "container_1_word_3", "word", "hello\nworld\n")
    assert text == f"{HEAD} INFO  container_1_word_3 [word] hello\n  | world"
    assert formatted("%s: %d", "a", 1) == f"{HEAD} WARN  p [x] a: 1"
    assert formatted("100%") == f"{HEAD} WARN  p [x] 100%"
    assert "cannot be formatted" in formatted("%d", "a")


def test_an_exception_is_part_of_its_record() -> None:
    try:
        raise ValueError("boom\x1b[31m\r\nsecond")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    lines = LogFormatter("p").format(record).split("\n")
    assert lines[0].endswith("ERROR p [x] failed")
    assert lines[1] == "  | Traceback (most recent call last):"
    assert lines[-2:] == ["  | ValueError: boom\\x1b[31m", "  | second"]


FORGED = f"x\n{HEAD} ERROR tmaster [audit] forged"


@pytest.mark.parametrize(
    "text",
    [FORGED, FORGED.replace("\n", "\r"), FORGED.replace("\n", "\r\n")]
    + [FORGED.replace("\n", mark) for mark in "\u2028\u2029\x85\x0b\x0c\x1c\x00"],
)
def test_text_cannot_forge_a_record(text: str) -> None:
    for shown in (formatted(text), formatted("x", process=text), formatted("x", name=text)):
        heads = [record for part in shown.splitlines() if (record := parse_line(part))]
        assert len(heads) == 1
        assert heads[0].level == "WARN"


@given(st.text(), st.text(), st.text())
def test_any_text_stays_one_record(message: str, process: str, name: str) -> None:
    text = format_record(WHEN, "INFO", process, name, message)
    text.encode()
    first, *rest = text.split("\n")
    assert parse_line(first)
    assert all(part.startswith("  | ") for part in rest)
    assert escape(text) == text


@given(st.floats(0, 4e9), st.sampled_from(["DEBUG", "INFO", "WARN", "ERROR", "FATAL"]), st.text())
def test_what_is_formatted_parses_back(when: float, level: str, message: str) -> None:
    record = parse_line(format_record(when, level, "p-1", "a.b", message.replace("\n", " ")))
    assert record
    assert abs(record.when - when) <= 0.001
    assert (record.level, record.process, record.logger) == (level, "p-1", "a.b")
    assert record.message == escape(message.replace("\n", " "))
    assert parse_line(record.text) == record


@pytest.mark.parametrize("text", ["", "text", "  | more", HEAD, "2026-99-21T00:10:21.123+0000 INFO p [x] "])
def test_other_lines_begin_no_record(text: str) -> None:
    assert parse_line(text) is None


def test_a_record_is_bounded() -> None:
    assert len(format_record(WHEN, "INFO", "p", "x", "y" * 10_000_000)) < 300_000


def run(code: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    head = "import logging, sys, os, threading\nfrom heronpy.common import logs\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout
    return [text.partition("+0000 ")[2] or text for text in done.stdout.decode().split("\n")]


def test_setup_and_prints() -> None:
    code = """
logs.setup("old", "DEBUG"); logs.setup("container_1_word_3")
logs.capture_prints()
logging.debug("unseen"); logging.getLogger("a").info("seen")
print("one\\ntwo\\r\\nthree", 4); print("err", file=sys.stderr)
print("un", end=""); print("finished", end="", flush=True)
sys.stdout.buffer.write(b"by\\xfftes\\n"); sys.stdout.write(""); print()
print("\\x1b[31mred\\x1b[0m\\u2028")
threads = [threading.Thread(target=print, args=("word " * 100,)) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert os.fstat(sys.stdout.fileno()) and not sys.stdout.isatty() and sys.stdout.writable()
sys.stdout.close(); print("open"); print("x" * 200_000); print("rest", end="")
import warnings; warnings.warn("careful")
"""
    lines = run(code)
    place = "INFO  container_1_word_3 [stdout] "
    assert lines[:2] == ["INFO  container_1_word_3 [a] seen", place + "one"]
    assert lines[2:5] == [place + "two", place + "three 4", "INFO  container_1_word_3 [stderr] err"]
    assert lines[5:9] == [
        place + "unfinished", place + "by\\xfftes", place, place + "\\x1b[31mred\\x1b[0m\\u2028"
    ]  # fmt: skip
    assert lines[9:17] == [place + "word " * 100] * 8
    assert lines[17] == place + "open"
    assert "".join(text.removeprefix(place) for text in lines[18:22]) == "x" * 200_000
    assert any("WARN  container_1_word_3 [py.warnings]" in text for text in lines[22:])
    assert place + "rest" in lines


def test_a_handler_that_prints_does_not_loop() -> None:
    code = """
logs.setup("p"); logs.capture_prints()
class Printing(logging.Handler):
    def emit(self, record): print("printed")
logging.getLogger().addHandler(Printing()); print("x")
"""
    assert run(code)[:1] == ["INFO  p [stdout] x"]


def test_a_reader_that_is_gone_does_not_hurt() -> None:
    run("logs.setup('p'); r, w = os.pipe(); os.dup2(w, 1); os.close(r); logging.info('x')")


def test_an_unknown_level_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'LOUD'; use DEBUG"):
        setup("p", "LOUD")


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_log_rotates_between_lines_and_is_bounded(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "logs/p.log", max_bytes=10, files_max=3)
    for number in range(8):
        log.write(b"line%d\n" % number)
    log.close()
    expected = {"p.log": b"line7\n", "p.log.1": b"line6\n", "p.log.2": b"line5\n"}
    assert files(tmp_path / "logs") == expected
    assert log.discarded_bytes == 0
    log.write(b"a\nb\ncc")
    log.write(b"cccccccccc\nd\n")
    log.close()
    expected = {"p.log": b"cc\nd\n", "p.log.1": b"cccccccccc", "p.log.2": b"line7\na\nb\n"}
    assert files(tmp_path / "logs") == expected


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 50), st.integers(1, 4))
def test_files_are_bounded_and_hold_the_newest_bytes(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], max_bytes: int, files_max: int
) -> None:
    directory = tmp_path_factory.mktemp("logs")
    log = RotatingLog(directory / "p.log", max_bytes, files_max)
    for chunk in chunks:
        log.write(chunk)
    log.close()
    found = files(directory)
    assert len(found) <= files_max
    assert all(len(data) <= max_bytes for data in found.values())
    ordered = sorted(found, key=lambda name: -int(name.partition(".log")[2].strip(".") or 0))
    assert b"".join(chunks).endswith(b"".join(found[name] for name in ordered))
    assert log.discarded_bytes == 0


def test_a_log_goes_on_after_a_restart_of_its_writer(tmp_path: Path) -> None:
    for number in range(3):
        log = RotatingLog(tmp_path / "p.log", max_bytes=12, files_max=2)
        log.write(b"line%d\n" % number)
        log.close()
    assert files(tmp_path) == {"p.log": b"line2\n", "p.log.1": b"line0\nline1\n"}
    assert (tmp_path / "p.log").stat().st_mode & 0o777 == 0o600


def test_a_log_that_somebody_removed_is_begun_anew(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=100, files_max=2)
    log.write(b"1\n")
    (tmp_path / "p.log").unlink()
    log.write(b"2\n")
    assert files(tmp_path) == {"p.log": b"2\n"}
    log.close()


def test_a_full_disk_costs_bytes_that_the_log_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=1000, files_max=2)
    log.write(b"before\n")
    write = os.write
    with monkeypatch.context() as patch:
        space = 6

        def full(descriptor: int, data: bytes) -> int:
            nonlocal space
            if not space:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = write(descriptor, data[:space])
            space -= written
            return written

        patch.setattr(os, "write", full)
        log.write(b"0123")
        log.write(b"torn line\n")
        log.write(b"lost\n")
    assert log.discarded_bytes == len("rn line\nlost\n")
    lost = log.discarded_bytes
    log.write(b"after\n")
    assert log.discarded_bytes == lost
    assert read(tmp_path)[-2:] == [
        f"{lost} bytes of this log were discarded: No space left on device",
        "after",
    ]
    assert read(tmp_path)[:2] == ["before", "0123to"]
    log.write(b"more\n")
    assert read(tmp_path)[-1] == "more"
    log.close()


def test_a_forbidden_directory_costs_bytes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=20, files_max=3)
    log.write(b"0123456789012345\n")

    def forbidden(*arguments: object, **options: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", forbidden)
        for _ in range(100):
            log.write(b"9 bytes..\n")
    assert log.discarded_bytes == 1000
    assert (tmp_path / "p.log").stat().st_size <= 20
    log.close()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", forbidden)
        log.write(b"x\n")
    assert log.discarded_bytes == 1002
    (tmp_path / "file").write_text("")
    lost = RotatingLog(tmp_path / "file/p.log", max_bytes=20, files_max=3)
    lost.write(b"x\n")
    assert lost.discarded_bytes == 2
    (tmp_path / "p2.log").symlink_to("/dev/full")
    linked = RotatingLog(tmp_path / "p2.log", max_bytes=20, files_max=3)
    linked.write(b"x\n")
    assert linked.discarded_bytes == 2


def test_records_are_read_in_order_and_whole(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=120, files_max=100)
    messages = [f"number {number}\nsecond\n  | third" for number in range(20)]
    for message in messages:
        for piece in line(message).split("d", 1):
            log.write(piece.encode() + (b"d" if piece.endswith("secon") else b""))
    log.close()
    assert len(files(tmp_path)) > 10
    text = "".join(line(message) for message in messages)
    log = RotatingLog(tmp_path / "q.log", max_bytes=120, files_max=100)
    data = text.encode()
    for at in range(0, len(data), 7):
        log.write(data[at : at + 7])
    assert [record.message for record in read_logs(tmp_path, "q")] == messages
    log.close()


def test_filters(tmp_path: Path) -> None:
    raw = "Fatal Python error: Segmentation fault\x1b[31m"
    text = "early raw\n" + line("old", when=WHEN - 60) + line("debug", "DEBUG") + raw + "\n"
    text += line("new", "WARN", WHEN + 60) + line("worst\nmore", "FATAL", WHEN + 61) + "torn"
    (tmp_path / "p.log").write_text(text)
    raw = raw.replace("\x1b", "\\x1b")
    assert read(tmp_path) == ["early raw", "old", "debug", raw, "new", "worst\nmore", "torn"]
    assert read(tmp_path, since=WHEN) == ["debug", raw, "new", "worst\nmore", "torn"]
    assert read(tmp_path, level="WARNING") == ["early raw", raw, "new", "worst\nmore", "torn"]
    assert read(tmp_path, level="critical", since=WHEN + 61) == ["worst\nmore", "torn"]
    assert read(tmp_path, level="fatal", since=WHEN + 62) == []
    with pytest.raises(ConfigError, match="unknown log level 'loud'"):
        read(tmp_path, level="loud")
    records = list(read_logs(tmp_path, "p"))
    assert records[-1].when == records[-2].when
    assert records[3].text == raw
    assert records[5].text == f"{HEAD[:14]}11:22.123+0000 FATAL p [x] worst\n  | more"


@pytest.mark.parametrize("name", ["", ".", "..", "../p", "/etc/passwd", "a/b", "a\\b", "p\0", "p\n", ".p", "x" * 201])
def test_a_name_cannot_lead_out_of_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not the name of a process"):
        list(read_logs(tmp_path, name))


def test_a_link_is_not_followed_and_a_missing_log_names_the_others(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "p.log").symlink_to(tmp_path / "secret")
    (tmp_path / "stmgr-1.log").write_text("")
    with pytest.raises(ConfigError, match=r"no log of 'p' in .*known logs: p, stmgr-1"):
        read(tmp_path)
    assert log_processes(tmp_path) == ["p", "stmgr-1"]
    assert log_processes(tmp_path / "none") == []
    assert list(read_logs(tmp_path, "stmgr-1")) == []


class Follower:
    """Follows a log in a thread."""

    def __init__(self, directory: Path) -> None:
        self.records: list[Record] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._reader = read_logs(directory, "p", follow=True, stop=lambda: self._stopping, poll_s=0.002)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for record in self._reader:
            with self._changed:
                self.records.append(record)
                self._changed.notify_all()

    def wait(self, message: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.records and self.records[-1].message == message, DEADLINE_S), (
                self.records[-3:]
            )

    def stop(self) -> None:
        self._stopping = True
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    found = Follower(tmp_path)
    yield found
    found.stop()


def test_a_rotation_in_the_middle_of_a_look_at_the_files_hides_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a slow reader sees them: before each call of the system the log is rotated once more."""
    names = [f"p.log{f'.{number}' if number else ''}" for number in range(3)]
    for number, name in enumerate(names):
        (tmp_path / name).write_text(line(str(2 - number)))
    stat, opened, rotations = os.stat, os.open, 5

    def rotated(call: Callable[..., Any]) -> Callable[..., Any]:
        def first_rotate(file: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal rotations
            if rotations and str(file).startswith(str(tmp_path / "p.log")):
                rotations -= 1
                log_files.rotate(tmp_path / "p.log", 50)
                (tmp_path / "p.log").write_text(line(str(7 - rotations)))
            return call(file, *arguments, **options)

        return first_rotate

    monkeypatch.setattr("heronpy.common.log_files.os.stat", rotated(stat))
    monkeypatch.setattr("heronpy.common.log_files.os.open", rotated(opened))
    records = read_logs(tmp_path, "p", follow=True, stop=lambda: not rotations)
    found = [record.message for record in records]
    assert found == [str(number) for number in range(8)]


def test_follow_waits_for_the_log_and_survives_rotation(tmp_path: Path, follower: Follower) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=2000, files_max=50)
    log.write(line("first").encode())
    follower.wait("first")
    for number in range(500):
        log.write(line(f"{number}\nmore").encode())
        if number % 100 == 50:
            follower.wait(f"{number}\nmore")
    log.write(line("last").encode())
    follower.wait("last")
    assert len(files(tmp_path)) > 10
    expected = ["first", *(f"{number}\nmore" for number in range(500)), "last"]
    assert [record.message for record in follower.records] == expected
    log.close()


def test_follow_goes_on_when_the_file_is_removed(tmp_path: Path, follower: Follower) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=100, files_max=3)
    for number in range(6):
        log.write(line(f"{number}").encode())
        follower.wait(f"{number}")
    (tmp_path / "p.log").unlink()
    log.write(line("anew").encode())
    follower.wait("anew")
    assert [record.message for record in follower.records] == [*"012345", "anew"]
    log.close()


def test_follow_reads_a_file_that_is_truncated_in_place(tmp_path: Path, follower: Follower) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=100, files_max=1)
    for number in range(9):
        log.write(line(f"{number}").encode())
        follower.wait(f"{number}")
    log.close()


def test_a_slow_follower_loses_only_what_was_deleted(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=100, files_max=3)
    log.write(line("0").encode())
    stopping = False
    reader = read_logs(tmp_path, "p", follow=True, stop=lambda: stopping, poll_s=0)
    first = next(reader)
    for number in range(1, 30):
        log.write(line(f"{number}").encode())
    stopping = True
    rest = [record.message for record in reader]
    assert first.message == "0"
    # "1" stands in the file that the reader holds open.
    assert rest == ["1", *(str(number) for number in range(31 - len(rest), 30))]
    assert len(rest) >= 4
    log.close()


def test_reading_is_bounded_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "RECORD_LINES_MAX", 100)
    with open(tmp_path / "p.log", "w") as file:
        file.write(line("head"))
        file.writelines("  | more\n" for _ in range(1000))
        file.write("x" * 5_000_000)
    records = list(read_logs(tmp_path, "p"))
    assert max(len(record.message) for record in records) < 1_200_000
    assert sum(record.message.count("more") for record in records) == 1000
    assert sum(record.message.count("x") for record in records) == 5_000_000


def test_reading_a_live_log_ends(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "p.log", max_bytes=1000, files_max=3)
    for number in range(30):
        log.write(line(f"{number}").encode())
    found = 0
    for _ in read_logs(tmp_path, "p"):
        found += 1
        assert found < 1000
        for number in range(5):
            with contextlib.suppress(OSError):
                log.write(line(f"{number}").encode())
    assert found >= 20
    log.close()


def test_reading_ends_when_the_newest_file_is_rotated_away(tmp_path: Path) -> None:
    """A fast writer, and files that get another identity each time."""
    log = RotatingLog(tmp_path / "p.log", max_bytes=1000, files_max=3)
    for number in range(30):
        log.write(line(f"{number}").encode())
    found, held = 0, []
    for _ in read_logs(tmp_path, "p"):
        found += 1
        assert found < 1000
        for number in range(60):
            held.append(os.open(tmp_path / "p.log", os.O_RDONLY))  # its inode is not used again
            log.write(line(f"{number}").encode())
        if found > 5:
            for descriptor in held:
                os.close(descriptor)
            held = []
    for descriptor in held:
        os.close(descriptor)
    log.close()


@given(
    lines=st.lists(st.sampled_from(["INFO", "ERROR", "more", "raw"]), max_size=60),
    count=st.integers(0, 12),
    since=st.none() | st.integers(0, 60),
    level=st.sampled_from([None, "ERROR"]),
    tail=st.sampled_from([1, 100, 1000]),
    files_max=st.integers(1, 4),
)
def test_the_last_records_are_those_of_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], count: int, since: int | None, level: str | None, tail: int,
    files_max: int,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("logs")
    log = RotatingLog(folder / "p.log", 500, files_max)
    for number, kind in enumerate(lines):
        marked = {"more": f"  | more {number}", "raw": f"raw | {number}"}.get(kind)
        log.write(f"{marked or format_record(1000.0 + number, kind, 'p', 'x', f'line {number}')}\n".encode())
    log.close()
    if not lines:
        return
    oldest = None if since is None else 1000.0 + since
    whole = [one for one in read_logs(folder, "p", oldest, level) if "3" not in one.message]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "TAIL_BYTES", tail)
        patch.setattr(log_files, "TAIL_BYTES_MAX", 20_000)
        last = log_files.last_logs(folder, "p", count, oldest, level, lambda one: "3" not in one.message)
    assert last == whole[max(0, len(whole) - count) :]


def test_the_last_records_of_a_large_log_are_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`heron logs -n 2` parsed every line of all files."""
    log = RotatingLog(tmp_path / "p.log", 4 << 20, 5)
    for number in range(40):
        log.write("".join([f"{format_record(number, 'INFO', 'p', 'x', 'word ' * 20)}\n" * 1000]).encode())
    log.close()
    parsed, parse = [], log_files.parse_line
    monkeypatch.setattr(log_files, "parse_line", lambda line: parsed.append(line) or parse(line))
    assert [one.when for one in log_files.last_logs(tmp_path, "p", 2)] == [39.0, 39.0]
    assert sum(map(len, parsed)) <= 2 * log_files.TAIL_BYTES
