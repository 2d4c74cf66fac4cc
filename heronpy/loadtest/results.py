"""Result documents: their summary over repeated runs, and the comparison with an earlier document. No side effects.

Users rely on the JSON: `schema` is increased when the meaning of a key changes or a key is removed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heronpy.common.errors import ConfigError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    label: str
    unit: str
    better: str
    """The better direction: `more`, `less`, or "" for neither."""


FIGURES = (
    Figure("rate", "rate", "/s", "more"),
    Figure("cpu_s_per_million", "CPU-s per million records, all processes", "s", "less"),
    Figure("cpu_s_per_million_data_path", "CPU-s per million records, tasks and stream managers", "s", "less"),
    Figure("cpu_in_loops", "CPU per record, relative to one round of the calibration loop", "x", "less"),
    Figure("cpu_cores", "cores used", "", "less"),
    Figure("latency_p50_ms", "latency, median", "ms", "less"),
    Figure("latency_p90_ms", "latency, p90", "ms", "less"),
    Figure("latency_p99_ms", "latency, p99", "ms", "less"),
    Figure("latency_p99.9_ms", "latency, p99.9", "ms", "less"),
    Figure("latency_max_ms", "latency, maximum", "ms", "less"),
    Figure("acked_p50_ms", "time to ack, median", "ms", "less"),
    Figure("acked_p99_ms", "time to ack, p99", "ms", "less"),
    Figure("uss_bytes", "private memory (USS), all processes", "bytes", "less"),
    Figure("pss_bytes", "proportional memory (PSS), all processes", "bytes", "less"),
    Figure("memory_growth_per_s", "memory growth per second, after the warm-up", "bytes", "less"),
    Figure("clamped_s", "time for which backpressure held back the spouts", "s", ""),
    Figure("submit_s", "time from submit until all tasks are ready", "s", "less"),
    # Profile `startup`:
    Figure("first_tuple_s", "time from submit to the first tuple at the sink", "s", "less"),
    Figure("restart_bolt_s", "time from kill -9 of the bolt to its next tuple", "s", "less"),
    Figure("restart_spout_s", "time from kill -9 of the spout to its next tuple", "s", "less"),
    Figure("kill_s", "duration of heron kill", "s", "less"),
    Figure("idle_submit_s", "duration of submit, idle topology", "s", "less"),
    Figure("idle_cpu_percent", "CPU of all processes when idle, share of one core", "%", "less"),
    Figure("idle_wakeups_per_s", "wake-ups of all processes when idle", "/s", "less"),
    Figure("uss_per_task_bytes", "private memory (USS) per idle task", "bytes", "less"),
    Figure("pss_per_task_bytes", "proportional memory (PSS) per idle task", "bytes", "less"),
    Figure("total_uss_bytes", "private memory (USS), all processes of the idle topology", "bytes", "less"),
    Figure("stmgr_uss_bytes", "private memory (USS) per stream manager", "bytes", "less"),
    Figure("stmgr_descriptors", "open file descriptors per stream manager, maximum", "", "less"),
    Figure("total_descriptors", "open file descriptors, all processes of the idle topology", "", "less"),
    Figure("idle_kill_s", "duration of heron kill, idle topology", "s", "less"),
    # Profile `control-plane`:
    Figure("pack_s", "time to compute the packing plan", "s", "less"),
    Figure("storm_s", "time to register all stream managers and send each the physical plan", "s", "less"),
    Figure("beats_s", "time to process one heartbeat from each stream manager", "s", "less"),
    Figure("control_plane_bytes", "memory of plans and topology master", "bytes", "less"),
    # Profile `checkpoint`:
    Figure("state_bytes", "saved state", "bytes", ""),
    Figure("full_bytes", "bytes uploaded, first checkpoint", "bytes", "less"),
    Figure("delta_bytes", "bytes uploaded, 1 % of keys changed", "bytes", "less"),
    Figure("full_pause_s", "time for which the first checkpoint blocks the task", "s", "less"),
    Figure("delta_pause_s", "time for which a checkpoint blocks the task, 1 % of keys changed", "s", "less"),
    Figure("pause_cpu_s", "CPU time of the task per checkpoint, maximum", "s", "less"),
    Figure("full_write_s", "duration of the first checkpoint", "s", "less"),
    Figure("delta_write_s", "duration of a checkpoint, 1 % of keys changed", "s", "less"),
    Figure("restore_s", "duration of a restore", "s", "less"),
    Figure("segments", "number of segments, last checkpoint", "", "less"),
    # Profile `costs`:
    Figure("plain_cpu_s_per_million", "CPU-s per million words, default settings, no acks", "s", "less"),
    Figure("cost_metrics", "CPU ratio, metrics every second vs. no metrics", "x", "less"),
    Figure("cost_info_log", "CPU ratio, log level INFO vs. ERROR", "x", "less"),
    Figure("cost_curve", "CPU ratio, TCP with CurveZMQ vs. ipc between containers", "x", "less"),
    Figure("cost_at_least_once", "CPU ratio, at-least-once vs. no acks", "x", "less"),
    Figure("cost_effectively_once", "CPU ratio, effectively-once (checkpoint every second) vs. no acks", "x", "less"),
    Figure("rate_effectively_once", "throughput ratio, effectively-once vs. no acks", "x", "more"),
    # Profile `jobs`:
    Figure("changed_round_s", "CPU of a syncer round, all jobs changed", "s", "less"),
    Figure("set_s", "duration of a configuration change, p95", "s", "less"),
    Figure("rescale_s", "duration of a change between 2 and 4 tasks, p95", "s", "less"),
    Figure("deploy_s", "duration of a deployment", "s", "less"),
    Figure("pooled_memory", "memory ratio, jobs in a pool vs. separate submits", "x", "less"),
    Figure("pooled_cpu", "CPU ratio of starting, jobs in a pool vs. separate submits", "x", "less"),
    Figure("slot_s", "time from killing a slot until all tasks are running", "s", "less"),
    Figure("idle_round_s", "CPU of a syncer round, no job changed", "s", "less"),
    Figure("map_s", "CPU to compute a pool's first map", "s", "less"),
    Figure("keeper_round_s", "CPU of a keeper round", "s", "less"),
    Figure("loss_s", "CPU to move the shards of lost slots", "s", "less"),
    Figure("keeper_bytes", "memory of the keeper", "bytes", "less"),
    Figure("wrong_causes", "share of scenarios with a wrong diagnosis", "", "less"),
    Figure("worse_lags", "share of scenarios with longer waits due to scaling", "", "less"),
    Figure("changes_a_day", "maximum number of changes per day", "", "less"),
    Figure("managers_percent", "CPU of syncer and scaler with idle jobs, share of one core", "%", "less"),
    Figure("managers_bytes", "private memory (USS) of syncer and scaler", "bytes", "less"),
    # Profile `units`:
    Figure("units_cpu_s_per_gb", "throughput: CPU-s per GB, work units, all processes", "s", "less"),
    Figure("units_worker_cpu_s_per_gb", "throughput: CPU-s per GB, work units, workers only", "s", "less"),
    Figure("hand_cpu_s_per_gb", "throughput: CPU-s per GB, hand-written loop", "s", "less"),
    Figure("hands_cpu_s_per_gb", "throughput: CPU-s per GB, two concurrent hand-written loops", "s", "less"),
    Figure("lines_cpu_s_per_gb", "throughput: CPU-s per GB, TextFileSpout, bolt, FileSink", "s", "less"),
    Figure("spark_cpu_s_per_gb", "throughput: CPU-s per GB, PySpark, same function", "s", "less"),
    Figure("spark_plain_cpu_s_per_gb", "throughput: CPU-s per GB, Spark without Python", "s", "less"),
    Figure("units_vs_hand", "throughput: CPU ratio, work units vs. hand-written loop", "x", "less"),
    Figure("units_vs_hands", "throughput: CPU ratio, two workers vs. two concurrent hand-written loops", "x", "less"),
    Figure("units_vs_lines", "throughput: CPU ratio, work units vs. TextFileSpout, bolt, FileSink", "x", "less"),
    Figure("units_vs_spark", "throughput: CPU ratio, work units vs. PySpark", "x", "less"),
    Figure("units_vs_spark_plain", "throughput: CPU ratio, work units vs. Spark without Python", "x", "less"),
    Figure("visible_p50_s", "latency: time from append to visible row, median", "s", "less"),
    Figure("visible_p99_s", "latency: time from append to visible row, p99", "s", "less"),
    Figure("visible_max_s", "latency: time from append to visible row, maximum", "s", "less"),
    Figure("latency_cores", "latency: cores used", "", "less"),
    Figure("straggler_p50_s", "straggler: time per unit, median", "s", "less"),
    Figure("straggler_p99_s", "straggler: time per unit, p99", "s", "less"),
    Figure("straggler_p99_share", "straggler: p99 relative to lease + 1.5 medians", "x", "less"),
    Figure("straggler_backups", "straggler: number of backups", "", ""),
    Figure("recovery_worker_p50_s", "recovery: time to lease a killed worker's unit again, median", "s", "less"),
    Figure("recovery_worker_max_s", "recovery: time to lease a killed worker's unit again, maximum", "s", "less"),
    Figure("recovery_keeper_p50_s", "recovery: time from killing a keeper to the next rows, median", "s", "less"),
    Figure("recovery_keeper_max_s", "recovery: time from killing a keeper to the next rows, maximum", "s", "less"),
    Figure("ledger_rate", "ledger: write transactions", "/s", "more"),
    Figure("ledger_p50_ms", "ledger: time per write transaction, median", "ms", "less"),
    Figure("ledger_p99_ms", "ledger: time per write transaction, p99", "ms", "less"),
    Figure("ledger_max_ms", "ledger: time per write transaction, maximum", "ms", "less"),
    Figure("ledger_fsync_ms", "ledger: time to append and fsync one page, mean", "ms", ""),
    Figure("ledger_vs_fsync", "ledger: write transaction relative to append and fsync", "x", "less"),
    Figure("quiet_cpu_percent", "quiet: CPU of the keepers, share of one core", "%", "less"),
    Figure("quiet_all_cpu_percent", "quiet: CPU of all processes, share of one core", "%", "less"),
    Figure("quiet_file_bytes", "quiet: ledger size per file", "B", "less"),
    Figure("quiet_grown_file_bytes", "quiet: ledger size per file after all files have grown again", "B", "less"),
    Figure("bad_attempts", "bad: extra attempts, user code raises", "", "less"),
    Figure("bad_s", "bad: time until all other rows are visible, user code raises", "s", "less"),
    Figure("crash_attempts", "bad: extra attempts, worker dies", "", "less"),
    Figure("crash_s", "bad: time until all other rows are visible, worker dies", "s", "less"),
    Figure("rebuild_s", "rebuild: time to rebuild the ledger from its table", "s", "less"),
    Figure("check_s", "rebuild: time to compare table, ledger and bytes", "s", "less"),
    # Profile `batch`:
    Figure("batch_cpu_s_per_gb", "cost: CPU-s per GB, batch", "s", "less"),
    Figure("batch_stream_cpu_s_per_gb", "cost: CPU-s per GB, effectively-once stream", "s", "less"),
    Figure("batch_hands_cpu_s_per_gb", "cost: CPU-s per GB, two hand-written processes", "s", "less"),
    Figure("batch_rdd_cpu_s_per_gb", "cost: CPU-s per GB, PySpark RDD, same functions", "s", "less"),
    Figure("batch_sql_cpu_s_per_gb", "cost: CPU-s per GB, Spark SQL without Python", "s", "less"),
    Figure("batch_vs_stream", "cost: CPU ratio, batch vs. stream", "x", "less"),
    Figure("batch_vs_hands", "cost: CPU ratio, batch vs. two hand-written processes", "x", "less"),
    Figure("batch_vs_rdd", "cost: CPU ratio, batch vs. PySpark RDD", "x", "less"),
    Figure("batch_vs_sql", "cost: CPU ratio, batch vs. Spark SQL", "x", "less"),
    Figure("batch_worker_bytes", "cost: private memory (USS) per worker, maximum", "bytes", "less"),
    Figure("batch_small_s", "small: duration of the command, 10 KB of input", "s", "less"),
    Figure("batch_kills", "kills: time ratio, a worker killed every 2 s vs. no kills", "x", "less"),
    Figure("batch_resumed", "failed: CPU ratio, resumed run vs. complete run", "x", "less"),
    Figure("batch_failed_s", "failed: time from the command until a bad line fails the run", "s", "less"),
    Figure("batch_charged", "preempted: attempts counted as failed", "", "less"),
    Figure("exchange_worker_bytes", "exchange: private memory (USS) per worker, maximum", "bytes", "less"),
    Figure("exchange_cpu_s_per_gb", "exchange: CPU-s per GB exchanged", "s", "less"),
    Figure("batch_history_s", "history: duration of heron history show, all processes killed", "s", "less"),
    Figure("straggler_time", "time ratio, one process 10 times as slow vs. equally fast processes", "x", "less"),
    Figure("straggler_in_vain", "share of wasted work, one unit 10 times as heavy", "x", "less"),
    Figure("handover_live_s", "time from the end of the batch to the first live tuple", "s", "less"),
    Figure("handover_dump", "time to write savepoint and rows, share of the run", "x", "less"),
)
BY_NAME = {figure.name: figure for figure in FIGURES}
#: The figures of each step of `rates`; a step's figure is named `MODE/RATE/FIGURE`.
STEP_FIGURES = {
    figure.name: figure
    for figure in (
        BY_NAME["rate"],
        BY_NAME["cpu_cores"],
        Figure("tuples_per_frame", "tuples per frame", "", "more"),
        Figure("frames_per_tuple", "frames per tuple, all kinds", "", "less"),
        Figure("switches_per_tuple", "voluntary context switches per tuple", "", "less"),
        Figure("calls_per_tuple", "system calls per tuple", "", "less"),
        BY_NAME["latency_p50_ms"],
        BY_NAME["latency_p99_ms"],
        BY_NAME["latency_p99.9_ms"],
    )
}
#: The figures of each scene of `slow_bolt`; a scene's figure is named `SCENE/FIGURE`.
SCENE_FIGURES = {
    figure.name: figure
    for figure in (
        BY_NAME["rate"],
        Figure("share", "rate relative to the capacity of the tasks", "x", "more"),
        Figure("stop_s", "longest pause of the spout", "s", "less"),
        Figure("steady_stop_s", "longest pause of the spout after the warm-up", "s", "less"),
        BY_NAME["latency_p50_ms"],
        BY_NAME["latency_p99_ms"],
        Figure("queued_bytes", "bytes queued in stream managers, maximum", "bytes", "less"),
        BY_NAME["clamped_s"],
        Figure("resume_s", "time until the spout emits fast again", "s", "less"),
    )
}


def step_name(mode: str, rate: float, name: str) -> str:
    """Return the name of a step's figure in the summary; rate 0 means as fast as possible."""
    return f"{mode}/{rate:g}/{name}" if rate else f"{mode}/max/{name}"


def figure_of(name: str) -> Figure | None:
    """Return the figure with this name in a summary; None if this release has no such figure."""
    mode, _, rest = name.partition("/")
    if (known := SCENE_FIGURES.get(rest or name)) is not None:
        return replace(known, name=name, label=f"{mode}: {known.label}") if rest else known
    rate, _, figure = rest.partition("/")
    known = STEP_FIGURES.get(figure) if rest else None
    if known is None:
        return BY_NAME.get(name)
    at = f"{float(rate):,.0f}/s" if rate != "max" else "at full speed"
    return Figure(name, f"{mode} {at}: {known.label}", known.unit, known.better)


def _known(name: str) -> Figure:
    found = figure_of(name)
    assert found is not None, name
    return found


def label_of(name: str) -> str:
    return _known(name).label


def values_of(run: dict[str, Any], loop_s_per_million: float) -> dict[str, float]:
    """Return the figures of one run by name."""
    if "values" in run:
        return dict(run["values"])
    found = {
        name: run["figures"][name] for name in ("rate", "cpu_s_per_million", "cpu_s_per_million_data_path", "cpu_cores")
    }
    found["cpu_in_loops"] = run["figures"]["cpu_s_per_million"] / loop_s_per_million
    for key, prefix in (("end_to_end", "latency"), ("until_acked", "acked")):
        for name, value in run["latency"].get(key, {}).items():
            if f"{prefix}_{name}_ms" in BY_NAME:
                found[f"{prefix}_{name}_ms"] = value
    for name in ("uss_bytes", "pss_bytes", "memory_growth_per_s", "clamped_s", "submit_s"):
        if run[name] is not None:
            found[name] = run[name]
    for scene, row in run.get("scenes", {}).items():
        found.update({f"{scene}/{name}": row[name] for name in SCENE_FIGURES if name in row})
    return found


def summary_of(runs: Sequence[dict[str, Any]], loop_s_per_million: float) -> dict[str, dict[str, float]]:
    """Return the median and the range of every figure."""
    rows = [values_of(run, loop_s_per_million) for run in runs]
    return {
        name: {
            "median": statistics.median(row[name] for row in rows),
            "min": min(row[name] for row in rows),
            "max": max(row[name] for row in rows),
        }
        for name in (*BY_NAME, *(name for name in rows[0] if name not in BY_NAME))
        if all(name in row for row in rows)
    }


def read(path: Path) -> dict[str, Any]:
    """Read a result document. Raises ConfigError if the file contains something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("kind") != "load-test":
        raise ConfigError(f"{path} is not the result of a load test; give the JSON file that a load test has written")
    if content.get("schema") != SCHEMA:
        raise ConfigError(
            f"{path} has schema {content.get('schema')}, but this heronpy reads {SCHEMA}; run the load test again"
        )
    return content


@dataclass(frozen=True, slots=True)
class Change:
    """A figure with its earlier value."""

    figure: Figure
    before: float
    now: float
    overlap: bool
    """Whether the ranges overlap, so that the difference may be chance."""

    @property
    def ratio(self) -> float | None:
        return self.now / self.before if self.before else None

    @property
    def verdict(self) -> str:
        ratio = self.ratio
        if ratio is None or not self.figure.better or self.overlap or abs(ratio - 1) < 0.02:
            return "same"
        return "better" if (ratio > 1) == (self.figure.better == "more") else "worse"


def compare(now: dict[str, Any], before: dict[str, Any]) -> list[Change]:
    """Compare the figures of two documents of the same profile."""
    if now["profile"] != before["profile"]:
        raise ConfigError(
            f"the earlier result is for profile '{before['profile']}', not '{now['profile']}'; give one for the same"
            " profile"
        )
    changes = []
    for name, row in now["summary"].items():
        old = before["summary"].get(name)
        figure = figure_of(name)
        if old is not None and figure is not None:
            overlap = row["min"] <= old["max"] and old["min"] <= row["max"]
            changes.append(Change(figure, old["median"], row["median"], overlap and len(now["runs"]) > 1))
    return changes


def different_options(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Return the options in which two documents differ."""
    mine, theirs = now.get("options", {}), before.get("options", {})
    return [
        f"{key} {theirs.get(key)} before, {mine.get(key)} now"
        for key in sorted(mine.keys() | theirs.keys())
        if mine.get(key) != theirs.get(key)
    ]


def table_of_figures(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return column heads and rows of the table of figures, one row per figure of the summary."""
    several = len(result["runs"]) > 1
    head = ["figure", "median", "minimum", "maximum"] if several else ["figure", "value"]
    parts = ("median", "min", "max") if several else ("median",)
    rows = result["summary"].items()
    return head, [[label_of(name), *(shown(name, row[part]) for part in parts)] for name, row in rows]


def table_of_roles(run: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return column heads and rows of the table of CPU and memory, one row per process role."""
    rows = []
    for role, cpu in run["figures"]["cpu"].items():
        memory = run["memory"].get(role, {"processes": 0, "uss": 0, "pss": 0})
        sizes = [f"{memory[key] / 2**20:,.1f} MB" for key in ("uss", "pss")]
        processes = str(memory["processes"] or "-")
        rows.append([role, processes, f"{cpu['seconds']:.2f}", f"{cpu['per_million']:.4f}", *sizes])
    return ["role", "processes", "CPU-s", "CPU-s per million", "memory (USS)", "memory (PSS)"], rows


def shown(name: str, value: float) -> str:
    """Format a figure."""
    unit = _known(name).unit
    if unit == "bytes":
        return f"{value / 2**20:,.1f} MB"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}" + (f" {unit}" if unit and unit not in ("/s", "x") else unit)
