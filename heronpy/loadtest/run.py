"""Runs a profile, once or several times, and builds the result document.

A topology is submitted with paused spouts, so that CPU and time are counted from the first emit. Its input is bounded,
so that every count is final.

CPU figures on a shared machine vary with its other users (caches, hyperthreads, clock). So a fixed loop of pure Python,
which counts words like the word-count topologies, runs before and after each run. CPU per million tuples divided
by the loop's CPU is comparable between machines.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from heronpy.common.folders import make_folders
from heronpy.loadtest import measure, processes
from heronpy.loadtest.checks import Check, checks
from heronpy.loadtest.cluster import Cluster, Topology, submitted
from heronpy.loadtest.inputs import word_list
from heronpy.loadtest.profiles import Load, program_of, scenes_of
from heronpy.loadtest.results import SCHEMA, summary_of
from heronpy.loadtest.scenes import floors, joined, row_of
from heronpy.loadtest.watch import Watch, watch

RECORDS = 1_000_000
ROUNDS = 5
#: Limits above which a run is noisy: slowdown relative to the best calibration, and cores used by other processes.
SPREAD_MAX = 0.10
OTHERS_MAX = 0.25
#: Seconds of a run in addition to emitting: start, drain, final reports.
PATIENCE_S = 60.0
#: Lowest assumed rate of a run that is bounded by a number of tuples.
SLOWEST_RATE = 20_000.0
#: Seconds before the end of a run at which counting of system calls begins, and its duration: `heron` needs up to
#: ACTIVATE_S before the spouts emit, and perf must end before the last tuple.
TAIL_S, COUNT_S, ACTIVATE_S = 2.0, 1.0, 0.4

#: Prefix of the names of scenes.
SCENE = "load-scene-"

Say = Callable[[str], None]


def count_words(words: list[str], records: int) -> dict[str, int]:
    """Count words in the fixed loop of the calibration."""
    counts: dict[str, int] = {}
    get = counts.get
    for _ in range(records // len(words)):
        for word in words:
            counts[word] = get(word, 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class Calibration:
    """CPU seconds for one million rounds of the loop."""

    best_s: float
    median_s: float


def calibrate(rounds: int = ROUNDS) -> Calibration:
    words = word_list(5000, 10_000)
    times = []
    for _ in range(rounds):
        began = time.process_time()
        count_words(words, RECORDS)
        times.append(time.process_time() - began)
    return Calibration(min(times), statistics.median(times))


def noise_of(calibrations: list[Calibration], others_cores: list[float]) -> dict[str, Any]:
    """Return how noisy the machine was, for the result document."""
    best = min(item.best_s for item in calibrations)
    spread = max(item.median_s for item in calibrations) / best - 1
    others = max(others_cores, default=0.0)
    reasons = []
    if spread > SPREAD_MAX:
        reasons.append(f"the calibration loop took up to {spread:.0%} longer than in its fastest run")
    if others > OTHERS_MAX:
        reasons.append(f"other processes used up to {others:.2f} cores")
    return {
        "loop_s_per_million": best,
        "before_s": calibrations[0].median_s,
        "after_s": calibrations[-1].median_s,
        "spread": spread,
        "others_cores": others,
        "noisy": bool(reasons),
        "text": "noisy machine: " + " and ".join(reasons) if reasons else "quiet machine",
    }


class LogScene:
    """A topology that reads logs; its folders are in the load test's folder."""

    def __init__(self, where: Cluster, name: str, logs: Path | None = None) -> None:
        """`logs` is the folder of another scene's logs, if they are shared."""
        self.cluster, self.name = where, f"{SCENE}{name}"
        self.folder = where.scratch / self.name
        self.logs, self.table, self.out = logs or self.folder / "logs", self.folder / "table", self.folder / "out"
        for folder in (self.logs, self.out):
            make_folders(folder)

    @contextmanager
    def submitted(
        self, topology: str, parameters: dict[str, Any], mode: str, settings: dict[str, Any] | None, *flags: str
    ) -> Iterator[Topology]:
        """Submit a topology of `heronpy.loadtest.topologies`, and kill it at the end."""
        load = Load(self.name, "", topology, mode=mode, max_spout_pending=10_000, settings=settings or {})
        spec = {**load.spec(self.name, str(self.out)), "parameters": parameters}
        with submitted(self.cluster, program_of(load), spec, *flags) as made:
            yield made


#: The figures and the checks of a run.
Found = tuple[dict[str, float], list[Check]]


def measured(
    figures: Callable[[int], Found],
    told: Callable[[dict[str, float], list[Check]], str],
    repeat: int,
    say: Say,
    **about: Any,
) -> dict[str, Any]:
    """Call `figures` `repeat` times; return the result document. `told` returns the progress line of a call."""

    def once(number: int, begin: str) -> dict[str, Any]:
        values, checks = figures(number)
        say(begin + told(values, checks))
        return run_of(values, checks)

    return repeated(once, repeat, **about)


def in_turn(where: Cluster, parts: Iterable[Callable[[], Found]]) -> Found:
    """Run some measurements one after the other; return all figures and checks."""
    values, checks = dict[str, float](), list[Check]()
    for part in parts:
        found, judged = part()
        values.update(found)
        checks += judged
        # Logs and tables of all scenes together could fill the disk.
        for folder in where.scratch.glob(f"{SCENE}*"):
            shutil.rmtree(folder, ignore_errors=True)
    return values, checks


def run_of(values: dict[str, float], checks: Iterable[Check]) -> dict[str, Any]:
    """Return the result document's part about a run that has only values and checks."""
    return {"values": values, "checks": [check.as_json() for check in checks]}


def repeated(once: Callable[[int, str], dict[str, Any]], repeat: int, **about: Any) -> dict[str, Any]:
    """Return the result document of `repeat` runs; `about` contains the other arguments for `result_of`.

    `once(number, prefix)` does a run and returns its part of the document; its progress lines begin with `prefix`. The
    part may contain the key `others_cores`, the maximum number of cores that other processes used during the run.
    """
    calibrations = [calibrate()]
    runs: list[dict[str, Any]] = []
    others: list[float] = []
    for number in range(1, repeat + 1):
        run = once(number, f"run {number} of {repeat}: " if repeat > 1 else "")
        others.append(run.pop("others_cores", 0.0))
        runs.append(run)
        calibrations.append(calibrate())
    return result_of(runs=runs, verdict=noise_of(calibrations, others), **about)


def run_profile(where: Cluster, load: Load, repeat: int, say: Say) -> dict[str, Any]:
    """Run a profile `repeat` times, each time with all of its scenes; return the result document."""
    loads = scenes_of(load)

    def once(number: int, begin: str) -> dict[str, Any]:
        runs = []
        for place, one in enumerate(loads):
            run = run_once(where, one, number * len(loads) + place)
            name = f"{begin}{one.parameters['scene']}: " if len(loads) > 1 else begin
            say(f"{name}{run['figures']['rate']:,.0f} {load.unit}/s, {run['checks'][0]['text']}")
            runs.append(run)
        return {**joined(loads, runs), "others_cores": max(run["figures"]["others_cores"] for run in runs)}

    return repeated(once, repeat, profile=load.name, about=load.about, unit=load.unit, options=load.options())


def facts() -> dict[str, Any]:
    """Return date, versions and facts about the machine, without its name, for the result document."""
    model = ""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "heronpy": metadata.version("heronpy"),
        "python": platform.python_version(),
        "host": {
            "cores": os.cpu_count(),
            "cpu": model,
            "memory_bytes": psutil.virtual_memory().total,
            "kernel": os.uname().release,
        },
    }


def result_of(
    profile: str, about: str, unit: str, options: dict[str, Any], runs: list[dict[str, Any]], verdict: dict[str, Any]
) -> dict[str, Any]:
    """Return the result document of a load test; `unit` names the counted items, `verdict` states the noise."""
    return {
        "schema": SCHEMA,
        "kind": "load-test",
        "profile": profile,
        "about": about,
        "unit": unit,
        "options": options,
        **facts(),
        "calibration": verdict,
        "runs": runs,
        "summary": summary_of(runs, verdict["loop_s_per_million"]),
        "ok": all(check["ok"] for run in runs for check in run["checks"]),
    }


def run_once(where: Cluster, load: Load, number: int, count_calls: bool = False) -> dict[str, Any]:
    """Do one run: submit, release the spouts, watch until the topology has finished, measure, check.

    With `count_calls`, system calls are counted for a second near the end; other figures exclude the last TAIL_S s.
    """
    out = where.scratch / f"{load.name}-{number}"
    name = f"load-{load.name}-{number}"
    began = time.monotonic()
    with submitted(where, program_of(load), load.spec(name, str(out)), "--deploy-deactivated") as topology:
        submit_s = time.monotonic() - began
        seen = watch(topology)
        seen.look_memory()
        counter = processes.CallCounter(list(seen.tree.seen), count_after(load), COUNT_S) if count_calls else None
        try:
            seen.look_cpu()
            topology.activate()
            seen.until_finished(deadline_of(load))
            counted = counter.result() if counter is not None else None
        finally:
            if counter is not None:
                counter.close()
        reports = measure.Reports(topology.reports())
        return document(load, reports, seen, submit_s, out, counted)


def count_after(load: Load) -> float:
    """Return the seconds from creating the counter, shortly before the first emit, until counting begins."""
    return max(0.0, load.duration_s - TAIL_S + ACTIVATE_S)


def deadline_of(load: Load) -> float:
    emitting = load.tuples / (load.rate or SLOWEST_RATE) if load.tuples else load.duration_s
    return emitting + float(load.parameters.get("fast_s", 0.0)) + max(PATIENCE_S, 2.0 * load.message_timeout_s)


def document(
    load: Load,
    reports: measure.Reports,
    seen: Watch,
    submit_s: float,
    out: Path,
    counted: processes.Counted | None = None,
) -> dict[str, Any]:
    """Return the part of the result document about one run."""
    start, end = reports.start(), reports.end()
    if counted is not None:
        end = min(end, start + load.duration_s - TAIL_S)
    if "capacity" in load.parameters:
        start, end = (min(sink[key] for sink in reports.sinks) for key in ("first_at", "fast_at"))
    window = measure.window_of(seen.cpu, start, end, load.warmup_s)
    growth = measure.growth_of(seen.memory, start, end, load.warmup_s)
    memory = measure.memory_by_role(seen.memory)
    figures, latency = measure.figures(window, reports), measure.latency(reports)
    scene = row_of(load, reports, latency["end_to_end"], seen) if "capacity" in load.parameters else {}
    return {
        "checks": [check.as_json() for check in (*checks(load, reports, seen, growth, out), *floors(load, scene))],
        "scene": scene,
        "submit_s": submit_s,
        "tuples": reports.total,
        "sent": reports.sent,
        "replayed": reports.replayed,
        "figures": figures,
        "frames": measure.frames(seen.frames, reports),
        "system_calls": measure.calls(counted, figures["rate"]),
        "latency": latency,
        "memory": memory,
        "uss_bytes": sum(role["uss"] for role in memory.values()),
        "pss_bytes": sum(role["pss"] for role in memory.values()),
        "memory_growth_per_s": growth.bytes / growth.seconds if growth is not None else None,
        "clamped_s": seen.clamped_s,
        "series": measure.series(reports, seen.cpu, seen.statuses, seen.memory),
    }
