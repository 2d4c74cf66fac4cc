"""A writer of seeded logs that grow, are rotated by rename and by copytruncate, truncated and copied; and its judge.

Each line is unique and can be told from the seed, so the judge needs no list of what was written: it knows how
many lines each log got. It depends on nothing of heronpy and can run as a process of its own:

    python -m tests.support.growing_logs FOLDER --seed 7 --logs 3 --lines 2000
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path


def line_of(seed: int, log: str, number: int) -> str:
    """The line of this number, counted from 0; of 20 to 90 characters, without its end."""
    code = blake2b(f"{seed} {log} {number}".encode(), digest_size=36).hexdigest()
    return f"{log} {number} {code[: int(code[:2], 16) % 72]}."


@dataclass(slots=True)
class Judgement:
    """How rows differ from what was written."""

    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything wrong."""
        return bool(self.missing or self.doubled or self.foreign)


class GrowingLogs:
    """Some logs in a folder. Every act leaves them as a real writer or logrotate would between two system calls."""

    def __init__(self, folder: Path, seed: int, logs: Iterable[str] = ("app.log",), keep: int = 1000) -> None:
        self.folder, self.seed, self.keep = folder, seed, keep
        #: Lines of each log so far, also an unfinished one.
        self.written = dict.fromkeys(logs, 0)
        self._half: dict[str, str] = {}

    # ---- the writer -------------------------------------------------------------------------------

    def append(self, log: str, lines: int = 1) -> None:
        """Whole lines; an unfinished one is finished first."""
        self.finish(log)
        first = self.written[log]
        self.written[log] += lines
        text = "".join(line_of(self.seed, log, number) + "\n" for number in range(first, first + lines))
        self._write(log, text)

    def begin(self, log: str) -> None:
        """The first part of a line."""
        if log in self._half:
            return
        line = line_of(self.seed, log, self.written[log])
        self.written[log] += 1
        cut = len(line) // 2
        self._write(log, line[:cut])
        self._half[log] = line[cut:] + "\n"

    def finish(self, log: str) -> None:
        """The rest of a line that was begun."""
        rest = self._half.pop(log, None)
        if rest is not None:
            self._write(log, rest)

    def _write(self, log: str, text: str) -> None:
        with open(self.folder / log, "a", encoding="utf-8") as file:
            file.write(text)

    # ---- logrotate --------------------------------------------------------------------------------

    def rename(self, log: str) -> None:
        """Rotate by renaming: app.log becomes app.log.1, that app.log.2, and so on; the writer makes a new file."""
        self.finish(log)
        self._shift(log)
        if (self.folder / log).exists():
            os.rename(self.folder / log, self.folder / f"{log}.1")

    def copytruncate(self, log: str) -> None:
        """Rotate by copying, for writers that never open their file again."""
        self.finish(log)
        if not (self.folder / log).exists():
            return
        self._shift(log)
        shutil.copyfile(self.folder / log, self.folder / f"{log}.1")
        os.truncate(self.folder / log, 0)

    def _shift(self, log: str) -> None:
        number = 1
        while (self.folder / f"{log}.{number}").exists():
            number += 1
        for old in range(number - 1, 0, -1):
            if old >= self.keep:
                os.unlink(self.folder / f"{log}.{old}")
            else:
                os.rename(self.folder / f"{log}.{old}", self.folder / f"{log}.{old + 1}")

    # ---- people -----------------------------------------------------------------------------------

    def truncate(self, log: str) -> None:
        """Throw away what is in a log."""
        self.finish(log)
        if (self.folder / log).exists():
            os.truncate(self.folder / log, 0)

    def copy(self, log: str) -> None:
        """Somebody keeps a copy beside it."""
        if (self.folder / log).exists():
            shutil.copyfile(self.folder / log, self.folder / f"{log}.bak")

    # ---- the judge --------------------------------------------------------------------------------

    def judge(self, rows: Iterable[str]) -> Judgement:
        """What is missing, there more than once, or not of these logs."""
        seen = Counter(rows)
        expected = {line_of(self.seed, log, n) for log, count in self.written.items() for n in range(count)}
        return Judgement(
            sorted(expected - seen.keys()),
            sorted(row for row, count in seen.items() if count > 1),
            sorted(seen.keys() - expected),
        )


def main() -> None:
    """Write for a while, at random but by the seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=int, default=2)
    parser.add_argument("--lines", type=int, default=1000, help="lines of each log")
    parser.add_argument("--pause-s", type=float, default=0.01)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    logs = GrowingLogs(args.folder, args.seed, [f"app-{number}.log" for number in range(args.logs)])
    while open_logs := [log for log, count in logs.written.items() if count < args.lines]:
        log = chance.choice(open_logs)
        act = chance.random()
        if act < 0.03:
            logs.rename(log)
        elif act < 0.06:
            logs.copytruncate(log)
        elif act < 0.2:
            logs.begin(log)
        else:
            logs.append(log, min(chance.randint(1, 30), args.lines - logs.written[log]))
        time.sleep(args.pause_s)
    for log in logs.written:
        logs.finish(log)


if __name__ == "__main__":
    main()
