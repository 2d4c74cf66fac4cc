"""A pipeline of work units for one profile: its folder, its topology, and the check of its table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from heronpy.ingest.outputs.lineage import PREFIX, published, record_of
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster, Topology
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.inputs import BASE_MS, USERS, Began, attempts_of
from heronpy.loadtest.run import LogScene
from heronpy.loadtest.topologies.log_units import ATTEMPTS

NAME = "units"
#: Interval at which the table is read.
LOOK_S = 0.01


class Pipeline(LogScene):
    def __init__(self, where: Cluster, name: str) -> None:
        super().__init__(where, f"units-{name}")
        self.ledger = f"sqlite:{self.folder / 'ledger' / 'units.db'}"
        #: When each published unit was first seen (monotonic ns), by its folder.
        self.seen: dict[str, int] = {}
        self._rows: dict[str, int] = {}

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    @contextmanager
    def running(
        self,
        function: str,
        *flags: str,
        mode: str = "ATMOST_ONCE",
        settings: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Iterator[Topology]:
        """Run the topology with this function and these changed parameters, and kill it at the end."""
        parameters = {
            "function": function,
            "logs": str(self.logs / "*.log"),
            "table": str(self.table),
            "ledger": self.ledger,
            "facts": str(self.out),
            "parquet": False,
            "workers": 2,
            "bounded": False,
            "unit_bytes": 32 << 20,
            "unit_wait_s": 2.0,
            **changes,
        }
        with self.submitted("log_units", parameters, mode, settings, *flags) as topology:
            yield topology

    def look(self) -> int:
        """Look at the table once; return the number of published units."""
        now = time.monotonic_ns()
        with suppress(FileNotFoundError):
            for path in self.table.iterdir():
                if path.name.startswith(PREFIX):
                    self.seen.setdefault(path.name, now)
        return len(self.seen)

    def until(self, holds: Callable[[], bool], deadline_s: float, what: str, topology: Topology) -> None:
        """Read the table until the condition holds. Raises LabError after the deadline."""
        try:
            topology.until(lambda: self.look() >= 0 and holds(), deadline_s, what, LOOK_S)
        except LabError as error:
            raise LabError(f"'{self.name}': {error}\n{topology.exceptions()}".rstrip()) from None

    def until_rows(self, count: int, deadline_s: float, topology: Topology) -> None:
        """Look until this number of rows is visible."""
        self.until(lambda: self.rows() >= count, deadline_s, f"{count:,} visible rows", topology)

    def rows(self) -> int:
        """Return the number of published rows, summed over the units' records; each record is read only once."""
        self.look()
        for name in self.seen.keys() - self._rows.keys():
            self._rows[name] = record_of(self.table / name).rows
        return sum(self._rows.values())

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the content of each published unit."""
        for folder, _ in published(str(self.table)):
            yield folder.name, (folder / "part-0.txt").read_text("utf-8")

    def visible_ns(self) -> dict[int, int]:
        """Return the time (monotonic ns) at which each unit was first seen, by unit number."""
        return {int(name.rpartition("-")[2]): at for name, at in self.seen.items()}

    def attempts(self) -> list[Began]:
        """Return the attempts that the function has recorded."""
        path = self.out / ATTEMPTS
        return attempts_of(path.read_text("ascii")) if path.exists() else []

    def check(self, name: str, lines: int, left_out: Sequence[int] = ()) -> Check:
        """Check a table whose rows begin with their line numbers."""
        numbers = [int(line.split(" ", 1)[0]) for _, text in self.texts() for line in text.splitlines()]
        return rows_check(name, wrong_numbers(numbers, lines, left_out), lines - len(left_out))


def wrong_numbers(found: Iterable[int], expected: int, left_out: Sequence[int] = ()) -> str:
    """Describe how `found` differs from the numbers 0 to `expected` - 1 without `left_out`; "" if each occurs once."""
    numbers = np.asarray(found if isinstance(found, np.ndarray) else list(found), dtype=np.int64)
    counts: Any = np.bincount(numbers[(numbers >= 0) & (numbers < expected)], minlength=expected)
    wanted = np.ones(expected, dtype=np.int64)
    wanted[list(left_out)] = 0
    foreign = int(((numbers < 0) | (numbers >= expected)).sum())
    parts = [
        f"{int(count):,} {word}"
        for count, word in (
            ((counts < wanted).sum(), "missing"),
            (np.maximum(counts - np.maximum(wanted, 1), 0).sum(), "duplicates"),
            (((wanted == 0) & (counts > 0)).sum(), "unexpected"),
            (foreign, "without a line"),
        )
        if count
    ]
    return f"{len(numbers):,} rows of {int(wanted.sum()):,}: {', '.join(parts)}" if parts else ""


def wrong_clicks(users: Sequence[str], times: Iterable[int], expected: int) -> str:
    """Describe how a table of clicks differs from the first `expected` lines; "" if they are equal."""
    numbers = np.asarray(times if isinstance(times, np.ndarray) else list(times), dtype=np.int64) - BASE_MS
    wrong = wrong_numbers(numbers, expected)
    if wrong:
        return wrong
    swapped = sum(user != f"user{number % USERS}" for user, number in zip(users, numbers.tolist(), strict=True))
    return f"{swapped:,} rows have the user of another line" if swapped else ""


def rows_check(name: str, wrong: str, expected: int) -> Check:
    return Check(name, not wrong, wrong or f"{expected:,} rows, each once")


def unit_seconds(began: Iterable[Began], visible_ns: Mapping[int, int]) -> list[float]:
    """Return the seconds from the first attempt at each unit until its rows are visible."""
    first: dict[int, int] = {}
    for one in began:
        first[one.unit] = min(one.at_ns, first.get(one.unit, one.at_ns))
    return [(visible_ns[unit] - at) / 1e9 for unit, at in sorted(first.items()) if unit in visible_ns]
