"""Runs the profiles of batch runs, and builds the result documents.

Slow work is simulated by sleeping, so that the figures depend on the runtime and not on the machine's load.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from heronpy.common.folders import make_folders
from heronpy.common.units import MB
from heronpy.loadtest.batch import SCENES
from heronpy.loadtest.batch.contenders import HANDS, by_hand, spark
from heronpy.loadtest.batch.count import BATCH, PATIENCE_S, SLOWEST_BYTES_S, Count, Ran, right_counts, strike
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.inputs import click_lines
from heronpy.loadtest.results import label_of, shown
from heronpy.loadtest.run import Found, Say, in_turn, measured
from heronpy.loadtest.topologies.keyed_count import HEAVY, HELD_S, HOLD, LIVE, SPLIT_BYTES, WIDE
from heronpy.loadtest.topologies.log_units import ATTEMPTS
from heronpy.loadtest.units.contenders import Prepare, work_at_once
from heronpy.loadtest.units.throughput import no_spark, write_logs

#: Maximum accepted value of each figure.
GOALS: dict[str, float] = {
    "batch_vs_stream": 0.9,
    "batch_vs_hands": 3.0,
    "batch_vs_rdd": 0.8,
    "batch_worker_bytes": 150 << 20,
    "batch_small_s": 2.0,
    "batch_kills": 1.2,
    "batch_resumed": 0.12,
    "batch_failed_s": 15.0,
    "batch_charged": 0.0,
    "exchange_worker_bytes": 150 << 20,
    "batch_history_s": 0.5,
    "straggler_time": 1.25,
    "straggler_in_vain": 0.03,
    "handover_live_s": 3.0,
    "handover_dump": 0.05,
}
KILL_S, SMALL_LINES, TIMES = 2.0, 450, 3
UNIT, WORKERS = "heron.batch.unit_bytes", "heron.batch.workers"
#: Bytes of a unit in scenes that kill workers.
KILLED_UNIT = 2 << 20
#: `preempted`: bytes of a unit with held lines, and seconds for which lines are held per preemption.
HELD_UNIT, PREEMPTION_S = 2048, 2.0
#: `batch_straggler`: units per worker, bytes and lines per unit, and seconds of sleep per line.
UNITS, UNIT_BYTES, UNIT_LINES, LINE_S = 40, 1024, 46, 0.011


def run_batch(
    where: Cluster, names: Sequence[str], size: int, preemptions: int, exchange: int, repeat: int, say: Say
) -> dict[str, Any]:
    """Run these scenes of `batch`, or all scenes if none is named; return the result document."""

    def measure(number: int) -> Found:
        logs = where.scratch / f"load-logs-{number}"
        try:
            scenes = Scenes(where, logs, size, preemptions, exchange, number, say)
            return in_turn(where, [getattr(scenes, name) for name in SCENES if name in names or not names])
        finally:
            shutil.rmtree(logs, ignore_errors=True)

    options = {"scenes": ", ".join(names), "bytes": size, "preemptions": preemptions, "exchange": exchange}
    return _document("batch", "a keyed count of lines as a batch run", options, repeat, say, measure)


def run_straggler(where: Cluster, workers: int, repeat: int, say: Say) -> dict[str, Any]:
    """Run `batch_straggler`; return the result document."""
    about, options = "batch runs with one slow process or one heavy unit", {"workers": workers}
    return _document("batch_straggler", about, options, repeat, say, lambda number: straggler(where, workers, number))


def run_handover(where: Cluster, keys: int, repeat: int, say: Say) -> dict[str, Any]:
    """Run `batch_handover`; return the result document."""
    about, options = "handover from a batch run to a stream that continues from its savepoint", {"keys": keys}
    return _document("batch_handover", about, options, repeat, say, lambda number: handover(where, keys, number))


def _document(
    profile: str, about: str, options: dict[str, Any], repeat: int, say: Say, measure: Callable[[int], Found]
) -> dict[str, Any]:
    def figures(number: int) -> Found:
        values, checks = measure(number)
        return values, [*checks, *judged(values)]

    def told(values: dict[str, float], checks: list[Check]) -> str:
        goals = judged(values)
        return f"{sum(goal.ok for goal in goals)} of {len(goals)} goals are met"

    return measured(figures, told, repeat, say, profile=profile, about=about, unit="lines", options=options)


def judged(values: dict[str, float]) -> list[Check]:
    """Return a check for each figure that has a goal."""
    return [
        Check(label_of(name), values[name] <= most, f"{shown(name, values[name])}, limit {shown(name, most)}")
        for name, most in GOALS.items()
        if name in values
    ]


class Scenes:
    """One run of `batch`: each scene is a method."""

    def __init__(
        self, where: Cluster, logs: Path, size: int, preemptions: int, exchange: int, number: int, say: Say
    ) -> None:
        self._where, self._logs, self._number, self._say = where, logs, number, say
        self._preemptions, self._exchange = preemptions, exchange
        make_folders(self._logs)
        self._lines, self._size = write_logs(self._logs, size)
        self._whole: Ran | None = None

    def _count(self, name: str, lines: int = 0) -> Count:
        """Prepare a count over the shared logs or, with `lines`, over separate logs with this number of lines."""
        count = Count(self._where, f"{name}-{self._number}", None if lines else self._logs)
        if lines:
            (count.logs / "0.log").write_text(click_lines(0, lines), encoding="ascii")
        return count

    def _plain(self, checks: list[Check]) -> Ran:
        """Run the batch that other scenes are compared with; later calls return the same result."""
        if self._whole is None:
            count = self._count("batch")
            self._whole = count.run(*BATCH)
            checks.append(count.check("batch", self._lines))
            self._say(f"batch: {self._whole.cpu_s:.1f} CPU-s, {self._whole.seconds:.1f} s")
        return self._whole

    def cost(self) -> Found:
        """Measure the CPU of all contenders."""
        checks: list[Check] = []
        batch, stream = self._plain(checks), self._count("stream")
        costs = {"stream": stream.run().cpu_s}
        checks.append(stream.check("stream", self._lines))
        others: list[tuple[str, Prepare, list[object]]] = [("hands", by_hand, list(range(HANDS)))]
        if missing := no_spark():
            self._say(f"cost: PySpark is skipped: {missing}")
        else:
            others += [("rdd", spark, [False]), ("sql", spark, [True])]
        for name, prepare, each in others:
            count, logs = self._count(name), sorted(self._logs.glob("*.log"))
            shares = [(name, prepare, logs, count.folder, one) for one in each]
            costs[name] = work_at_once(shares, PATIENCE_S + self._size / SLOWEST_BYTES_S)[1]
            checks.append(right_counts(name, count.folder / "result", self._lines))
        values = {"batch_cpu_s_per_gb": batch.cpu_s / self._size * 1e9, "batch_worker_bytes": batch.worker_bytes}
        for name, cpu_s in costs.items():
            values[f"batch_{name}_cpu_s_per_gb"] = cpu_s / self._size * 1e9
            values[f"batch_vs_{name}"] = batch.cpu_s / cpu_s
        return values, checks

    def small(self) -> Found:
        """Measure a run with little input: the command and all processes that it starts."""
        count, seconds = self._count("small", SMALL_LINES), []
        for _ in range(TIMES):
            shutil.rmtree(count.table, ignore_errors=True)  # each run publishes its own rows
            seconds.append(count.command())
        return {"batch_small_s": statistics.median(seconds)}, [count.check("small", SMALL_LINES)]

    def kills(self) -> Found:
        """Compare a run in which workers are killed with a run without kills."""
        calm, killed, settings = self._count("calm"), self._count("kills"), {UNIT: KILLED_UNIT}
        plain = calm.run(*BATCH, settings=settings)
        hit = killed.run(*BATCH, settings=settings, during=strike(signal.SIGKILL, KILL_S))
        self._say(f"kills: {plain.seconds:.1f} s without kills, {hit.seconds:.1f} s with kills")
        return {"batch_kills": hit.seconds / plain.seconds}, [killed.check("kills", self._lines)]

    def failed(self) -> Found:
        """Make a run with a small input fail; make another run fail in its last stage, fix its code, and resume it."""
        checks: list[Check] = []
        whole, small, count = self._plain(checks), self._count("raises", SMALL_LINES), self._count("mended")
        began = time.monotonic()
        checks.append(_fails(small, small.command))
        failed_s = time.monotonic() - began
        checks.append(_fails(count, lambda work: count.run(*BATCH, work=work)))
        mended = count.run(*BATCH, "--resume")
        values = {"batch_failed_s": failed_s, "batch_resumed": mended.cpu_s / whole.cpu_s}
        return values, [*checks, count.check("mended", self._lines)]

    def preempted(self) -> Found:
        """Send SIGTERM to workers until enough of their attempts have ended."""
        lines = int(self._preemptions * PREEMPTION_S / HELD_S)
        count = self._count("preempted", lines)
        hold = count.out / HOLD
        hold.touch()

        def ended(how: str = "preempted") -> int:
            return sum(one[how] for one in count.of_run("progress.json").get("stages", ()))

        def is_enough() -> bool:
            if ended() >= self._preemptions:
                hold.unlink(missing_ok=True)
            return not hold.exists()

        settings = {UNIT: HELD_UNIT, "heron.executor.restart_backoff_max_s": 0.1}
        count.run(*BATCH, work="held", settings=settings, during=strike(signal.SIGTERM, 0.1, is_enough, HOLD))
        enough = Check("preemptions", ended() >= self._preemptions, f"{ended():,} attempts were preempted")
        return {"batch_charged": float(ended("tries_failed"))}, [enough, count.check("preempted", lines)]

    def exchange(self) -> Found:
        """Exchange wide tuples between two stages, in bounded memory."""
        count, splits = self._count("exchange"), -(-self._exchange // SPLIT_BYTES)
        ran = count.run(*BATCH, size=self._exchange, work="wide", splits=splits)
        size = count.of_run("progress.json")["stages"][1]["bytes"]
        self._say(f"exchange: {size:,} bytes, {ran.seconds:.1f} s, {ran.worker_bytes / MB:.0f} MB per worker")
        values = {"exchange_worker_bytes": ran.worker_bytes, "exchange_cpu_s_per_gb": ran.cpu_s / size * 1e9}
        whole = Check("exchange", size >= self._exchange, f"{size:,} bytes were exchanged between the stages")
        return values, [whole, count.check("exchange", splits * WIDE)]

    def history(self) -> Found:
        """Kill all processes of a run simultaneously; then show its history."""
        count, seconds, said = self._count("history"), [], ""
        (count.out / HOLD).touch()
        with count.running(*BATCH, work="held") as topology:
            topology.until(lambda: count.of_run("progress.json"), PATIENCE_S, "the progress of the run")
            for process in [topology.guardian(), *topology.guardian().children(recursive=True)]:
                with suppress(psutil.Error):
                    process.kill()
            for _ in range(TIMES):
                began = time.monotonic()
                said = self._where.heron("history", "show", self._where.target, f"{count.name}/1")
                seconds.append(time.monotonic() - began)
        shows = Check("history", f"{count.name}/1" in said, said.partition("\n")[0])
        return {"batch_history_s": statistics.median(seconds)}, [shows]


def _fails(count: Count, run: Callable[..., object]) -> Check:
    """Run broken user code; check that the run fails and that its record names the error."""
    with suppress(LabError):
        run(work="broken")
    record = count.of_run("run.json")
    return Check(count.name, record["state"] == "FAILED" and "a bad user" in record["cause"], record["cause"])


def straggler(where: Cluster, workers: int, number: int) -> Found:
    """Measure a run with equal units and workers, a run with one slow process, and a run with one heavy unit."""
    lines, ran, checks = workers * UNITS * UNIT_LINES, dict[str, Ran](), list[Check]()
    settings = {UNIT: UNIT_BYTES, WORKERS: workers, "topology.stmgrs": workers}
    for name in ("alike", "slow", "heavy"):
        count, text = Count(where, f"{name}-{number}"), click_lines(0, lines)
        if name == "heavy":
            middle = text.index("\n", len(text) // 2) + 1
            text = text[:middle] + f"{HEAVY}\t1700000000000\n" * UNIT_LINES + text[middle:]
        (count.logs / "0.log").write_text(text, encoding="ascii")
        ran[name] = count.run(*BATCH, work="slow", settings=settings, line_s=LINE_S, slow_process=name == "slow")
        if name != "heavy":
            checks.append(count.check(name, lines))
    attempts = [json.loads(line) for line in (count.out / ATTEMPTS).read_text("ascii").splitlines()]
    attempts.sort(key=lambda one: one["at"])
    # The first attempt that ends at a unit wins.
    won = {one["unit"]: one["s"] for one in reversed(attempts) if one["done"]}
    total, useful = sum(one["s"] for one in attempts), sum(won.values())
    checks.append(Check("heavy", len(won) >= workers * UNITS / 2, f"{len(attempts)} attempts at {len(won)} units"))
    in_vain = (total - useful) / total
    return {"straggler_time": ran["slow"].seconds / ran["alike"].seconds, "straggler_in_vain": in_vain}, checks


def handover(where: Cluster, keys: int, number: int) -> Found:
    """Run a batch that leaves a savepoint, and then a stream that continues from the savepoint with one more line."""
    count = Count(where, f"handover-{number}")
    lines, _ = write_logs(count.logs, keys * 24, keys)
    count.run(*BATCH, work="live")
    record, finalising = count.of_run("run.json"), (count.run_folder / "finalise.lock").stat().st_mtime
    # Read the table at the end, because that takes seconds.
    rows = shutil.copytree(count.table, count.folder / "rows", copy_function=os.link)
    with (count.logs / "0.log").open("a", encoding="ascii") as log:
        log.write(f"{LIVE}\t1\n")
    live = count.out / LIVE
    with count.running("--restore", "latest", work="live") as topology:
        topology.until(lambda: live.exists() and live.read_text("ascii"), PATIENCE_S, "the arrival of the live line")
    ended_at, ran_s = record["ended_at"], record["ended_at"] - record["submitted_at"]
    live_s, dump = float(live.read_text("ascii")) - ended_at, (ended_at - finalising) / ran_s
    return {"handover_live_s": live_s, "handover_dump": dump}, [right_counts("handover", rows, lines, keys)]
