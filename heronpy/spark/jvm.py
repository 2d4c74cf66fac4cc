"""Starts and stops the Spark driver's JVM, and reads its output. Uses neither pyspark nor py4j.

The JVM's properties are passed in a file of mode 0600, because all users on the host can read a command line. Its
stdout and stderr, and the output of Spark's Python workers, become records of the gateway's log: with time and level,
found by `heron logs`, and distinguishable from other records.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from heronpy.common.errors import HeronError

log = logging.getLogger("jvm")

#: Number of lines kept to explain an exit, and number of lines in an error.
LINES_KEPT = 20
LINES_NAMED = 3
_LINE_MAX = 8192
_CHUNK = 1 << 16
_POLL_S = 0.05
#: Levels in Spark's log4j pattern: `26/11/22 02:48:22 WARN Logger: message`.
_LEVELS = {"ERROR": logging.ERROR, "FATAL": logging.ERROR, "WARN": logging.WARNING}
_HEAD = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ([A-Z]+) ")
#: Patterns of lines that do not explain an exit.
_CHATTER = re.compile(
    r"\s+at |\s*\.\.\. \d+ more|WARNING: Using incubator modules|Using Spark's default log4j profile"
    r"|Setting default log level|To adjust logging level|Setting Spark log level|[\d/: ]+(INFO|WARN) "
)


class JvmError(HeronError):
    """The JVM ended, or did not listen in time. `killed`: whether a signal ended it, so that a retry may succeed."""

    def __init__(self, text: str, killed: bool = False) -> None:
        super().__init__(text)
        self.killed = killed


class Output:
    """The JVM's output: one pipe, read by a thread until its last writer has closed it."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        self._telling: deque[str] = deque(maxlen=LINES_KEPT)
        self._level = logging.INFO
        self._thread = threading.Thread(target=self._run, name="jvm-output", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Close this process's copy of the pipe's write end, so that the reader detects the end of the output."""
        os.close(self.writer)

    def termination_report(self, wait_s: float = 0.0) -> str:
        """Return the last lines, which may explain an exit; wait up to `wait_s` for the end of the output."""
        self._thread.join(wait_s)
        telling = [line.strip() for line in self._telling]
        return "; ".join(telling[-LINES_NAMED:])

    def _run(self) -> None:
        rest = b""
        try:
            while data := os.read(self._reader, _CHUNK):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(line)
                if len(rest) > _LINE_MAX:
                    self._take(rest)
                    rest = b""
        finally:
            os.close(self._reader)
        self._take(rest)

    def _take(self, line: bytes) -> None:
        text = line[:_LINE_MAX].decode(errors="replace").rstrip()
        if not text:
            return
        head = _HEAD.match(text)
        if head:
            self._level = _LEVELS.get(head[1], logging.INFO)
        elif not text[0].isspace() and not text.startswith("Caused by:"):
            self._level = logging.INFO
        if not _CHATTER.match(text):
            self._telling.append(text)
        log.log(self._level, "%s", text)


class Jvm:
    """One JVM that serves py4j; `start` creates it."""

    def __init__(self, process: subprocess.Popen[bytes], output: Output) -> None:
        self.process = process
        self.output = output
        #: The port of py4j, and the token that py4j requires.
        self.port = 0
        self.secret = ""

    @classmethod
    def start(cls, command: Sequence[str], environ: Mapping[str, str]) -> Jvm:
        """Start spark-submit; `listen` then waits for the JVM's address."""
        output = Output()
        try:
            # The JVM ends when its stdin is closed, so it does not outlive this process for long.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output.writer, stderr=output.writer, env=dict(environ)
            )
        finally:
            output.release()
        return cls(process, output)

    def listen(self, info: Path, deadline: float) -> None:
        """Wait until the JVM has written its address to `info`. On failure, raise JvmError with its last lines."""
        while not info.exists():
            end = self.ended()
            if end is not None:
                raise end
            if time.monotonic() >= deadline:
                words = self.output.termination_report() or "nothing"
                raise JvmError(f"Spark's JVM did not start in time; its last lines: {words}")
            time.sleep(_POLL_S)
        data = info.read_bytes()
        port, length = struct.unpack_from(">ii", data)
        self.port, self.secret = port, data[8 : 8 + length].decode()

    def ended(self) -> JvmError | None:
        """Return an error with the JVM's last lines if the JVM has ended; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        words = self.output.termination_report(wait_s=2.0)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return JvmError(f"Spark's JVM {how} while it was starting: {words or 'no output'}", killed=code < 0)

    def end_in_order(self, wait_s: float) -> None:
        """Close the JVM's stdin and wait until the JVM ends. Raises JvmError on a timeout or a failure."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            code = self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            raise JvmError(f"Spark's JVM did not end within {wait_s:g} s") from None
        if code:
            report = self.output.termination_report(wait_s=2.0)
            raise JvmError(f"Spark's JVM ended with exit code {code}: {report}")

    def end(self) -> None:
        """Kill the JVM."""
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self.output.termination_report(wait_s=1.0)


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file that only this user can read."""
    lines = [f"{_escaped(key, ' =:#!')}={_escaped(value, '')}\n" for key, value in properties.items()]
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(lines)


def _escaped(text: str, also: str) -> str:
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {char: f"\\{char}" for char in also}
    # Escaped, because leading blanks of a value are dropped.
    blank = "\\" if text.startswith(" ") and " " not in also else ""
    return blank + "".join(escapes.get(char, char) for char in text)
