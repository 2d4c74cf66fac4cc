"""The rotated logs of a verification with few old copies, and a judge of rows; also runs as a separate process.

python -m tests.support.growing_logs FOLDER --seed 7 --logs 3 --lines 2000
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from heronpy.verify.units.logs import RotatedLogs


@dataclass(slots=True)
class Judgement:
    """The differences between rows and the written lines."""

    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is a difference."""
        return bool(self.missing or self.doubled or self.foreign)


class GrowingLogs(RotatedLogs):
    """Rotated logs with at most `keep` old copies of each log."""

    def __init__(self, folder: Path, seed: int, logs: Iterable[str] = ("app.log",), keep: int = 1000) -> None:
        super().__init__(folder, seed, logs)
        self.keep = keep

    def _shift(self, log: str) -> None:
        super()._shift(log)
        (self.folder / f"{log}.{self.keep + 1}").unlink(missing_ok=True)

    def judge(self, rows: Iterable[str]) -> Judgement:
        """Return the missing lines, and the rows that are duplicated or not from these logs."""
        seen, expected = Counter(rows), set(self.written.all_lines())
        return Judgement(
            sorted(expected - seen.keys()),
            sorted(row for row, count in seen.items() if count > 1),
            sorted(seen.keys() - expected),
        )


def main() -> None:
    """Write logs for a while, with random operations determined by the seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=int, default=2)
    parser.add_argument("--lines", type=int, default=1000, help="lines of each log")
    parser.add_argument("--pause-s", type=float, default=0.01)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    logs = GrowingLogs(args.folder, args.seed, [f"app-{number}.log" for number in range(args.logs)])
    while open_logs := [log for log, count in logs.written.lines.items() if count < args.lines]:
        log = chance.choice(open_logs)
        act = chance.random()
        if act < 0.03:
            logs.rename(log)
        elif act < 0.06:
            logs.copytruncate(log)
        elif act < 0.2:
            logs.begin(log)
        else:
            logs.append(log, min(chance.randint(1, 30), args.lines - logs.written.lines[log]))
        time.sleep(args.pause_s)
    for log in logs.written.lines:
        logs.finish(log)


if __name__ == "__main__":
    main()
