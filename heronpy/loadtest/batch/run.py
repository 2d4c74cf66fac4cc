"""Runs the profiles of batch runs, and builds the result documents.

Sleeping work makes the figures of slow processes those of the runtime, and not of a busy machine.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from heronpy.common.folders import make_folders
from heronpy.loadtest.batch.contenders import HANDS, by_hand, spark
from heronpy.loadtest.batch.count import BATCH, PATIENCE_S, SLOWEST_BYTES_S, Count, Ran, right_counts, strike
from heronpy.loadtest.batch.plan import Sizes, judged
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.inputs import USERS, click_lines
from heronpy.loadtest.run import Say, repeated, run_of
from heronpy.loadtest.topologies.keyed_count import HEAVY, HELD_S, HOLD, LIVE
from heronpy.loadtest.topologies.log_units import ATTEMPTS
from heronpy.loadtest.units.contenders import Prepare, work_at_once
from heronpy.loadtest.units.throughput import no_spark, write_logs

KILL_S, SMALL_LINES, TIMES = 2.0, 450, 3
UNIT, WORKERS = "heron.batch.unit_bytes", "heron.batch.workers"
#: Bytes of a unit where workers are killed.
KILLED_UNIT = 2 << 20
#: `batch_straggler`: units of each worker, how long a line sleeps, lines of a unit of the least size.
UNITS, LINE_S, UNIT_BYTES, UNIT_LINES = 40, 0.011, 1024, 46

Found = tuple[dict[str, float], list[Check]]


def run_batch(where: Cluster, names: Sequence[str], sizes: Sizes, repeat: int, say: Say) -> dict[str, Any]:
    """The result document of these scenes, each run `repeat` times."""
    options = {"scenes": ", ".join(names), **asdict(sizes)}
    return _document("batch", f"batch runs: {', '.join(names)}", options, repeat, say, lambda number: _scenes(
        Scenes(where, sizes, number, say), names
    ))  # fmt: skip


def run_straggler(where: Cluster, workers: int, repeat: int, say: Say) -> dict[str, Any]:
    """The result document of `batch_straggler`."""
    about, options = "batch runs with a slow process, and with a heavy unit", {"workers": workers}
    return _document("batch_straggler", about, options, repeat, say, lambda number: straggler(where, workers, number))


def run_handover(where: Cluster, keys: int, repeat: int, say: Say) -> dict[str, Any]:
    """The result document of `batch_handover`."""
    about, options = "from a batch run to the stream that goes on", {"keys": keys}
    return _document("batch_handover", about, options, repeat, say, lambda number: handover(where, keys, number))


def _document(
    profile: str, about: str, options: dict[str, Any], repeat: int, say: Say, measure: Callable[[int], Found]
) -> dict[str, Any]:
    def once(number: int, begin: str) -> dict[str, Any]:
        values, checks = measure(number)
        goals = judged(values)
        say(f"{begin}{sum(goal.ok for goal in goals)} of {len(goals)} goals are reached")
        return run_of(values, [*checks, *goals])

    return repeated(once, repeat, profile=profile, about=about, unit="lines", options=options)


def _scenes(scenes: Scenes, names: Sequence[str]) -> Found:
    values: dict[str, float] = {}
    checks: list[Check] = []
    for name in names:
        found, judged = getattr(scenes, name)()
        values.update(found)
        checks += judged
    # Logs and tables of many runs together could fill a disk.
    for folder in scenes.where.scratch.glob("load-batch-*"):
        shutil.rmtree(folder, ignore_errors=True)
    return values, checks


class Scenes:
    """The scenes of `batch` in one run, over the same logs."""

    def __init__(self, where: Cluster, sizes: Sizes, number: int, say: Say) -> None:
        self.where, self._sizes, self._number, self._say = where, sizes, number, say
        self._logs = where.scratch / f"load-batch-logs-{number}"
        make_folders(self._logs)
        self._lines, self._size = write_logs(self._logs, sizes.bytes)
        self._plain: Ran | None = None
        self._checks: list[Check] = []

    def _count(self, name: str, logs: Path | None = None) -> Count:
        return Count(self.where, f"{name}-{self._number}", logs or self._logs)

    def _whole(self) -> Ran:
        """The run that others are compared with, once."""
        if self._plain is None:
            count = self._count("batch")
            self._plain = count.run(count.spec(), *BATCH)
            self._checks = [count.check("batch", self._lines)]
            self._say(f"batch: {self._plain.cpu_s:.1f} CPU-s, {self._plain.seconds:.1f} s")
        return self._plain

    def cost(self) -> Found:
        """CPU of all contenders."""
        batch, gb = self._whole(), self._size / 1e9
        count = self._count("stream")
        stream = count.run(count.spec())
        costs = {"stream": stream.cpu_s}
        checks = [*self._checks, count.check("stream", self._lines)]
        others: list[tuple[str, Prepare, list[tuple[object, ...]]]] = [
            ("hands", by_hand, [(place,) for place in range(HANDS)]),
            ("rdd", spark, [(False,)]),
            ("sql", spark, [(True,)]),
        ]
        missing = no_spark()
        if missing:
            self._say(f"cost: PySpark is left out: {missing}")
        for name, prepare, arguments in others[: 1 if missing else None]:
            folder = self._count(name).folder
            logs = sorted(self._logs.glob("*.log"))
            shares = [(name, prepare, logs, folder, *each) for each in arguments]
            costs[name] = work_at_once(shares, PATIENCE_S + self._size / SLOWEST_BYTES_S)[1]
            result = folder if prepare is by_hand else folder / "result"
            checks.append(Check(name, *right_counts(result, self._lines, USERS)))
        values = {"batch_cpu_s_per_gb": batch.cpu_s / gb, "batch_worker_bytes": batch.worker_bytes}
        for name, cpu_s in costs.items():
            values |= {f"batch_{name}_cpu_s_per_gb": cpu_s / gb, f"batch_vs_{name}": batch.cpu_s / cpu_s}
        return values, checks

    def small(self) -> Found:
        """Little input: the command and all that it starts."""
        count = self._count("small", self.where.scratch / f"load-batch-small-{self._number}")
        (count.logs / "0.log").write_text(click_lines(0, SMALL_LINES), encoding="ascii")
        seconds = []
        for _ in range(TIMES):
            shutil.rmtree(count.table, ignore_errors=True)  # each run publishes its own rows
            seconds.append(count.command(count.spec(), *BATCH))
        return {"batch_small_s": statistics.median(seconds)}, [count.check("small", SMALL_LINES)]

    def kills(self) -> Found:
        """Workers are killed, against the same without kills."""
        settings = {UNIT: KILLED_UNIT}
        calm, killed = self._count("calm"), self._count("kills")
        plain = calm.run(calm.spec(settings=settings), *BATCH)
        hit = killed.run(
            killed.spec(settings=settings), *BATCH, during=strike(signal.SIGKILL, KILL_S, self._sizes.preemptions)
        )
        self._say(f"kills: {plain.seconds:.1f} s without, {hit.seconds:.1f} s with")
        return {"batch_kills": hit.seconds / plain.seconds}, [killed.check("kills", self._lines)]

    def failed(self) -> Found:
        """A line raises in a small input; a user raises in the last stage, is mended, and the command repeated."""
        whole = self._whole()
        small = self._count("raises", self.where.scratch / f"load-batch-raises-{self._number}")
        (small.logs / "0.log").write_text(click_lines(0, SMALL_LINES), encoding="ascii")
        began = time.monotonic()
        checks = [_fails(small, small.command, "broken_parse", "a bad line")]
        failed_s = time.monotonic() - began
        count = self._count("mended")
        checks.append(_fails(count, count.run, "broken_count", "a bad user"))
        mended = count.run(count.spec(), *BATCH, "--resume")
        values = {"batch_failed_s": failed_s, "batch_resumed": mended.cpu_s / whole.cpu_s}
        return values, [*checks, count.check("mended", self._lines)]

    def preempted(self) -> Found:
        """Workers get SIGTERM while they have units."""
        count = self._count("preempted", self.where.scratch / f"load-batch-preempted-{self._number}")
        lines, hold = int(self._sizes.preemptions / HELD_S), count.out / HOLD
        (count.logs / "0.log").write_text(click_lines(0, lines), encoding="ascii")
        hold.touch()
        acts = strike(signal.SIGTERM, 0.1, self._sizes.preemptions, lambda: hold.unlink(missing_ok=True))
        count.run(count.spec("held", {UNIT: 20_000}), *BATCH, during=acts)
        returned = sum(one["preempted"] for one in count.stages)
        charged = float(sum(one["tries_failed"] for one in count.stages))
        held = Check(
            "preempted units", not hold.exists() and returned > 0, f"{returned} attempts were ended from outside"
        )
        return {"batch_preempted": float(returned), "batch_charged": charged}, [held, count.check("preempted", lines)]

    def history(self) -> Found:
        """All processes of a run are killed at once; then its history is shown."""
        count = self._count("history")
        (count.out / HOLD).touch()
        with count.running(count.spec("held"), *BATCH) as topology:
            topology.until(lambda: bool(count.stages), PATIENCE_S, "progress of the run")
            for process in [topology.guardian(), *topology.guardian().children(recursive=True)]:
                with suppress(psutil.Error):
                    process.kill()
            run, seconds, said = f"{count.name}/1", [], ""
            for _ in range(TIMES):
                began = time.monotonic()
                said = self.where.heron("history", "show", self.where.target, run)
                seconds.append(time.monotonic() - began)
        return {"batch_history_s": statistics.median(seconds)}, [Check("history", run in said, said.partition("\n")[0])]


def _fails(count: Count, run: Callable[..., object], work: str, why: str) -> Check:
    """Whether the run fails, and names the error of the user's code."""
    try:
        run(count.spec(work), *BATCH)
    except LabError as error:
        said = str(error).partition("\n")[0]
        return Check(work, why in said and count.record["state"] == "FAILED", said)
    return Check(work, False, "the run did not fail")


def straggler(where: Cluster, workers: int, number: int) -> Found:
    """All alike; the same with one slow process; the same with one heavy unit."""
    lines, units = workers * UNITS * UNIT_LINES, workers * UNITS
    settings = {UNIT: UNIT_BYTES, WORKERS: workers, "topology.stmgrs": workers}
    ran: dict[str, Ran] = {}
    checks = []
    for name in ("alike", "slow", "heavy"):
        count = Count(where, f"{name}-{number}")
        text = click_lines(0, lines)
        if name == "heavy":
            # One unit in the middle, and no part of a second one.
            middle = text.index("\n", len(text) // 2) + 1
            text = text[:middle] + f"{HEAVY}\t1700000000000\n" * (UNIT_LINES - 4) + text[middle:]
        (count.logs / "0.log").write_text(text, encoding="ascii")
        spec = count.spec("slow", settings, line_s=LINE_S, slow_process=name == "slow")
        ran[name] = count.run(spec, *BATCH)
        if name != "heavy":
            checks.append(count.check(name, lines))
    attempts = [json.loads(line) for line in (count.out / ATTEMPTS).read_text("ascii").splitlines()]
    total, in_vain = sum(one["s"] for one in attempts), _in_vain(attempts)
    checks.append(
        Check("heavy", len(attempts) >= units, f"{len(attempts)} attempts, {in_vain:.1f} of {total:.1f} s in vain")
    )
    return {"straggler_time": ran["slow"].seconds / ran["alike"].seconds, "straggler_in_vain": in_vain / total}, checks


def _in_vain(attempts: Sequence[dict[str, Any]]) -> float:
    """Seconds of attempts that were not the first of their unit to end."""
    by_unit: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in attempts:
        by_unit[one["unit"]].append(one)
    won = sum(min((one for one in each if one["done"]), key=lambda one: one["at"])["s"] for each in by_unit.values()
              if any(one["done"] for one in each))  # fmt: skip
    return math.fsum(one["s"] for one in attempts) - won


def handover(where: Cluster, keys: int, number: int) -> Found:
    """A batch that leaves a savepoint, and the stream that goes on from it, with one more line."""
    count = Count(where, f"handover-{number}")
    lines, _ = write_logs(count.logs, keys * 24, keys)
    spec = count.spec("live")
    count.run(spec, *BATCH)
    record = count.record
    finalising = (count.run_folder / "finalise.lock").stat().st_mtime
    checks = [count.check("handover", lines, keys)]
    with (count.logs / "0.log").open("a", encoding="ascii") as log:
        log.write(f"{LIVE}\t1\n")
    live = count.out / LIVE
    with count.running(spec, "--restore", "latest") as topology:
        topology.until(lambda: live.exists() and live.read_text("ascii"), PATIENCE_S, "the live line")
    ran_s, ended_at = record["ended_at"] - record["submitted_at"], record["ended_at"]
    values = {
        "handover_live_s": float(live.read_text("ascii")) - ended_at,
        "handover_dump": (ended_at - finalising) / ran_s,
        "handover_run_s": ran_s,
    }
    return values, checks
