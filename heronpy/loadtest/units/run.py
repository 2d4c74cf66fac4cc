"""Runs the profiles of work units, and builds the result document.

`straggler` sleeps in its function, so that its figure depends on the backups and not on how busy the machine is.
Before it kills a worker, `recovery` writes a line at which the first attempt at a unit halts, so the worker is killed
while it has a unit. After it kills a keeper, it appends a line and waits until the line is in the table. `rebuild`
writes its table directly, a line per unit, as workers and keepers would. One unit is missing, and a topology then
processes only that unit.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from heronpy.common.folders import make_folders
from heronpy.growing.identity import HEAD_BYTES, digest
from heronpy.ingest.checking import check, command_of, rebuild
from heronpy.ingest.ledger.policy import LEASE_MIN_S
from heronpy.ingest.ledger.types import Config, Span, SpanState
from heronpy.ingest.outputs.lineage import FILE, Lineage, Range, folder_name
from heronpy.ingest.outputs.stages import About, Stages
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster, Topology
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.histogram import quantile
from heronpy.loadtest.inputs import Began, stamped_lines, stamps_of
from heronpy.loadtest.processes import Tree
from heronpy.loadtest.run import Found, Say, in_turn, repeated, run_of
from heronpy.loadtest.topologies.log_units import HALT
from heronpy.loadtest.units import plan
from heronpy.loadtest.units.ledger import ledger
from heronpy.loadtest.units.pipeline import NAME, Pipeline, rows_check, unit_seconds, wrong_numbers
from heronpy.loadtest.units.plan import Sizes
from heronpy.loadtest.units.throughput import throughput

PATIENCE_S = 120.0
LINE_BYTES = 100
#: `latency`: a line of LINE_BYTES every 10 ms.
BYTES_PER_S, TICK_S = 1_000_000, 0.01
_PER_TICK = int(BYTES_PER_S * TICK_S / LINE_BYTES)
#: `straggler`: number of workers, seconds per unit, lines per unit.
WORKERS, UNIT_S, UNIT_LINES = 3, 1.0, 100
#: `recovery`: seconds for a kill and the restart; seconds for which a unit halts, longer than the wait of workers
#: before its next attempt; maximum age of data before a unit is cut.
KILL_S, HALT_S, UNIT_WAIT_S = 2.5, 120.0, 0.2
#: `quiet`: time until keepers are idle.
SETTLE_S = 2.0
#: `bad`: bytes per unit.
UNIT_BYTES = 4 << 20
#: `rebuild`: number of logs.
LOGS = 10


def run_units(where: Cluster, names: Sequence[str], sizes: Sizes, repeat: int, say: Say) -> dict[str, Any]:
    """Run these profiles `repeat` times each; return the result document."""

    def once(number: int, begin: str) -> dict[str, Any]:
        return run_of(*in_turn(where, [partial(_RUNS[name], where, sizes, number, say) for name in names]))

    result = repeated(
        once,
        repeat,
        profile="units",
        about=f"work units: {', '.join(names)}",
        unit="units",
        options={"profiles": ", ".join(names), **asdict(sizes)},
    )
    result["goals"] = plan.judged(result["summary"], sizes)
    return result


class Appender(threading.Thread):
    """Appends due lines, each with the time at which it is appended, and catches up after a stall."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(name="appender", daemon=True)
        self._path = path
        self.lines = 0
        self._ticks = max(1, int(seconds / TICK_S))
        self.stop = threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        with open(self._path, "ab", buffering=0) as log:
            for tick in range(self._ticks):
                if self.stop.wait(max(0.0, began + tick * TICK_S - time.monotonic())):
                    return
                log.write(stamped_lines(self.lines, _PER_TICK, time.monotonic_ns(), LINE_BYTES).encode())
                self.lines += _PER_TICK


def latency(where: Cluster, sizes: Sizes, number: int, say: Say) -> Found:
    """Measure the time from append to visible row: append at a fixed rate, and read the table every 10 ms."""
    made = Pipeline(where, f"latency-{number}")
    # Process a first unit, so that all processes have started and done their work once.
    made.log("first").write_text(stamped_lines(0, 1, 0, LINE_BYTES), encoding="ascii")
    appender = Appender(made.log("clicks"), sizes.seconds)
    with made.running("line") as topology:
        made.until(lambda: len(made.seen) == 1, PATIENCE_S, "the first unit", topology)
        warm = set(made.seen)
        tree = Tree(topology.scheduler())
        tree.refresh()
        before, began = sum(tree.cpu().values()), time.monotonic()
        appender.start()
        try:
            made.until(lambda: not appender.is_alive(), sizes.seconds + PATIENCE_S, "the end of the log", topology)
            cores = (sum(tree.cpu().values()) - before) / (time.monotonic() - began)
            made.until_rows(appender.lines + 1, PATIENCE_S, topology)
        finally:
            appender.stop.set()
            appender.join()
    stamps = [(made.seen[name], *stamp) for name, text in made.texts() if name not in warm for stamp in stamps_of(text)]
    late = [(seen_ns - at_ns) / 1e9 for seen_ns, _, at_ns in stamps]
    values = {
        "visible_p50_s": quantile(late, 0.5) or 0.0,
        "visible_p99_s": quantile(late, 0.99) or 0.0,
        "visible_max_s": max(late, default=0.0),
        "latency_cores": cores,
    }
    say(f"latency: time to visible row p50 {values['visible_p50_s']:.2f} s, p99 {values['visible_p99_s']:.2f} s")
    wrong = wrong_numbers([line for _, line, _ in stamps], appender.lines)
    return values, [rows_check("latency", wrong, appender.lines)]


def straggler(where: Cluster, sizes: Sizes, number: int, say: Say) -> Found:
    """Make one of three workers ten times as slow; measure the time from each unit's first attempt to
    its visible rows."""
    made = Pipeline(where, f"straggler-{number}")
    units = max(WORKERS + 1, int(sizes.seconds / UNIT_S) * (WORKERS - 1))
    lines = units * UNIT_LINES
    made.log("clicks").write_text(stamped_lines(0, lines, 0, LINE_BYTES), encoding="ascii")
    with made.running(
        "slow", workers=WORKERS, unit_s=UNIT_S, unit_bytes=UNIT_LINES * LINE_BYTES, unit_wait_s=0.2
    ) as topology:
        what = f"{units} published units"
        made.until(lambda: len(made.seen) >= units, sizes.seconds + PATIENCE_S, what, topology)
    began = made.attempts()
    seconds = unit_seconds(began, made.visible_ns())
    median, late = quantile(seconds, 0.5) or 0.0, quantile(seconds, 0.99) or 0.0
    values = {
        "straggler_p50_s": median,
        "straggler_p99_s": late,
        # These units are fast, so they get the shortest lease.
        "straggler_p99_share": late / (LEASE_MIN_S + 1.5 * median) if median else 0.0,
        "straggler_backups": float(sum(one.attempt > 1 for one in began)),
    }
    took_part = len({one.pid for one in began})
    say(f"straggler: time per unit p50 {median:.2f} s, p99 {late:.2f} s; {values['straggler_backups']:.0f} backups")
    text = f"{took_part} of {WORKERS} workers took part"
    return values, [made.check("straggler", lines), Check("straggler workers", took_part == WORKERS, text)]


def recovery(where: Cluster, sizes: Sizes, number: int, say: Say) -> Found:
    """Kill workers and keepers; measure the time until a unit is leased again and rows are published again."""
    made = Pipeline(where, f"recovery-{number}")
    kills = max(2, int(sizes.seconds / KILL_S))
    lines = 0

    def append(word: str) -> int:
        """Append a line; return the number of lines."""
        nonlocal lines
        with open(made.log("clicks"), "a", encoding="ascii") as out:
            out.write(f"{lines} {word}\n")
        lines += 1
        return lines

    workers: list[float] = []
    keepers: list[float] = []
    with made.running("halt", halt_s=HALT_S, unit_wait_s=UNIT_WAIT_S) as topology:
        # Both workers and both keepers have started once the first unit is visible and all tasks have a process.
        made.until_rows(append("first"), PATIENCE_S, topology)
        for _ in range(kills):
            count = append(HALT)
            halted = _attempt(made, topology, lambda one: one.attempt == 1 and one.unit not in made.visible_ns())
            began = _kill(halted.pid)
            again = _attempt(made, topology, _is_next_of(halted))
            workers.append((again.at_ns - began) / 1e9)
            made.until_rows(count, PATIENCE_S, topology)
        for kill in range(kills):
            before = set(made.seen)
            began = _kill(_keeper(made, topology, kill))
            made.until_rows(append("after"), PATIENCE_S, topology)
            keepers.append((min(made.seen[name] for name in made.seen.keys() - before) - began) / 1e9)
    values = {
        "recovery_worker_p50_s": quantile(workers, 0.5) or 0.0,
        "recovery_worker_max_s": max(workers),
        "recovery_keeper_p50_s": quantile(keepers, 0.5) or 0.0,
        "recovery_keeper_max_s": max(keepers),
    }
    say(
        f"recovery: {kills} kills each: unit leased again after {values['recovery_worker_p50_s']:.2f} s, maximum"
        f" {max(workers):.2f} s; rows published after {values['recovery_keeper_p50_s']:.2f} s, maximum"
        f" {max(keepers):.2f} s"
    )
    return values, [made.check("recovery", lines)]


def _attempt(made: Pipeline, topology: Topology, is_meant: Callable[[Began], bool]) -> Began:
    """Wait for an attempt that meets a condition."""
    made.until(lambda: any(map(is_meant, made.attempts())), PATIENCE_S, "an attempt at a unit", topology)
    return next(filter(is_meant, made.attempts()))


def _is_next_of(ended: Began) -> Callable[[Began], bool]:
    return lambda one: one.unit == ended.unit and one.attempt > ended.attempt


def _keeper(made: Pipeline, topology: Topology, turn: int) -> int:
    """Wait until all keepers have a process; return the pid of keeper number `turn`, modulo the number of keepers."""
    pids: list[int] = []

    def are_there() -> bool:
        status = topology.status()
        tasks = [task for task in status.tasks if task.component == f"{NAME}-keeper"] if status is not None else []
        alive = [task for task in tasks if task.pid > 0 and os.path.exists(f"/proc/{task.pid}")]
        pids[:] = [task.pid for task in sorted(alive, key=lambda task: task.task_id)]
        return bool(pids) and len(pids) == len(tasks)

    made.until(are_there, PATIENCE_S, "all keepers", topology)
    return pids[turn % len(pids)]


def _kill(pid: int) -> int:
    """Kill a process with SIGKILL; return the monotonic time in ns."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        raise LabError(f"process {pid} ended before it could be killed") from None
    return time.monotonic_ns()


def quiet(where: Cluster, sizes: Sizes, number: int, say: Say) -> Found:
    """Measure the cost of keepers and the size of the ledger with many files that do not grow."""
    made = Pipeline(where, f"quiet-{number}")
    files, keeper = sizes.files, f"task {NAME}-keeper"

    def grow(first: int) -> None:
        for place in range(files):
            with made.log(f"quiet-{place:06d}").open("a", encoding="ascii") as log:
                log.write(f"{first + place}\n")

    grow(0)
    with made.running("line", unit_wait_s=0.5) as topology:
        once = _settled_file_bytes(made, files, files, topology)
        grow(files)
        grown = _settled_file_bytes(made, 2 * files, files, topology)
        time.sleep(SETTLE_S)
        tree = Tree(topology.scheduler())
        tree.refresh()
        before, began = tree.cpu(), time.monotonic()
        time.sleep(sizes.seconds)
        after, seconds = tree.cpu(), time.monotonic() - began
    values = {
        "quiet_cpu_percent": (after.get(keeper, 0.0) - before.get(keeper, 0.0)) / seconds * 100,
        "quiet_all_cpu_percent": (sum(after.values()) - sum(before.values())) / seconds * 100,
        "quiet_file_bytes": once,
        "quiet_grown_file_bytes": grown,
    }
    say(
        f"quiet: {files:,} files, keepers {values['quiet_cpu_percent']:.1f} % of a core,"
        f" {grown:,.0f} bytes of ledger per file"
    )
    return values, [made.check("quiet", 2 * files)]


def _settled_file_bytes(made: Pipeline, rows: int, files: int, topology: Topology) -> float:
    """Wait until the ledger has no live unit; return the used bytes of the ledger per file."""
    made.until_rows(rows, PATIENCE_S, topology)
    what = "a ledger without live units"
    made.until(lambda: not _asked(made.ledger, "SELECT count(*) FROM units")[0], PATIENCE_S, what, topology)
    pages, free, size = _asked(made.ledger, "PRAGMA page_count", "PRAGMA freelist_count", "PRAGMA page_size")
    return (pages - free) * size / files


def _asked(url: str, *statements: str) -> list[int]:
    path = Path(url.removeprefix("sqlite:"))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10.0)) as connection:
        return [int(connection.execute(statement).fetchone()[0]) for statement in statements]


def bad(where: Cluster, sizes: Sizes, number: int, say: Say) -> Found:
    """Measure the cost of a bad line, at which a worker raises or dies, and check that all other rows arrive."""
    values: dict[str, float] = {}
    checks: list[Check] = []
    for kind in ("bad", "crash"):
        attempts, seconds, found = _bad_once(where, sizes.lines, f"{kind}-{number}", kind)
        values[f"{kind}_attempts"], values[f"{kind}_s"] = float(attempts), seconds
        checks += found
        say(f"bad: worker {'dies' if kind == 'crash' else 'raises'}: {attempts} extra attempts, {seconds:.1f} s")
    return values, checks


def _bad_once(where: Cluster, lines: int, name: str, kind: str) -> tuple[int, float, list[Check]]:
    made = Pipeline(where, name)
    place = lines * 2 // 3
    before = "".join(f"{number:09d}\n" for number in range(place))
    after = "".join(f"{number:09d}\n" for number in range(place + 1, lines))
    text = f"bad {place}\n"
    made.log("clicks").write_text(before + text + after, encoding="ascii")
    with made.running(
        "bad", bad_line=text.rstrip(), deadly=kind == "crash", unit_bytes=UNIT_BYTES, unit_wait_s=0.5
    ) as topology:
        began = time.monotonic()
        made.until_rows(lines - 1, PATIENCE_S, topology)
        seconds = time.monotonic() - began
        # The bad line may be tried separately after all other lines are visible.
        made.until(lambda: bool(_bad_spans(made.ledger)), PATIENCE_S, "a bad range", topology)
        spans = _bad_spans(made.ledger)
    wanted = f"{len(before)}-{len(before) + len(text)}"
    shown = ", ".join(f"{one.begin}-{one.end}" for one in spans[:5]) or "none"
    checks = [
        made.check(kind, lines, [place]),
        Check(f"{kind} range", shown == wanted, f"bad ranges {shown}, the line is at {wanted}"),
    ]
    return len(made.attempts()) - len(made.seen), seconds, checks


def _bad_spans(url: str) -> list[Span]:
    with closing(command_of(url, NAME)) as store:
        return [one for one in store.snapshot() if isinstance(one, Span) and one.state is SpanState.BAD]


def rebuilding(where: Cluster, sizes: Sizes, number: int, say: Say) -> Found:
    """Rebuild a ledger from its table; measure the duration, and check that no row is lost or duplicated."""
    made = Pipeline(where, f"rebuild-{number}")
    lines = max(sizes.units, LOGS + 1)
    _write(made, lines, hole=lines // 2)
    began = time.perf_counter()
    answer = rebuild(made.ledger, NAME, str(made.table))
    rebuild_s = time.perf_counter() - began
    began = time.perf_counter()
    compared = check(made.ledger, NAME, str(made.table))
    check_s = time.perf_counter() - began
    with made.running("line", unit_wait_s=0.5) as topology:
        made.until_rows(lines, PATIENCE_S, topology)
    say(f"rebuild: {lines - 1:,} units in {rebuild_s:.2f} s")
    done_bytes = (lines - 1) * LINE_BYTES
    right = answer.done_bytes == done_bytes and answer.units == 1 and not answer.bad_bytes
    text = f"{answer.done_bytes:,} bytes done of {done_bytes:,}, {answer.units} unit to process again"
    return {"rebuild_s": rebuild_s, "check_s": check_s}, [
        Check("rebuild", right, text),
        Check("rebuild check", not compared.problems, "; ".join(compared.problems[:3]) or "table and ledger agree"),
        made.check("rebuild rows", lines),
    ]


def _write(made: Pipeline, lines: int, hole: int) -> None:
    """Write logs, and a table with a unit for each line except one."""
    texts = {f"{place}.log": b"" for place in range(LOGS)}
    units: list[tuple[str, int, int, bytes]] = []
    per_log = -(-lines // LOGS)
    for number in range(lines):
        key = f"{number // per_log}.log"
        line = stamped_lines(number, 1, 0, LINE_BYTES).encode()
        units.append((key, len(texts[key]), number, line))
        texts[key] += line
    heads = {}
    for key, data in texts.items():
        if data:
            (made.logs / key).write_bytes(data)
            first = data[: data.index(b"\n") + 1]
            heads[key] = f"{digest(first)}:{min(HEAD_BYTES, len(data))}:{digest(data[:HEAD_BYTES])}"
    Stages(str(made.table)).claim(About(NAME, Config(pattern=str(made.logs / "*.log"))))
    for key, begin, number, line in units:
        if number != hole:
            chunk = Range(key, 1, begin, begin + len(line), heads[key], sha256(line).hexdigest())
            folder = made.table / folder_name(1, number + 1)
            make_folders(folder)
            (folder / "part-0.txt").write_bytes(line)
            record = folder / FILE
            record.write_text(Lineage(NAME, 1, number + 1, 1, 1, (chunk,)).to_json(), encoding="utf-8")
            record.chmod(0o600)


_RUNS: dict[str, Callable[[Cluster, Sizes, int, Say], Found]] = {
    "throughput": throughput,
    "latency": latency,
    "straggler": straggler,
    "recovery": recovery,
    "ledger": ledger,
    "quiet": quiet,
    "bad": bad,
    "rebuild": rebuilding,
}
