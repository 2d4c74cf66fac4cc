"""Result documents: their summary over repeated runs, and the comparison with an earlier document. Pure.

Users rely on the JSON: `schema` grows when a key changes its meaning or is removed.
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
    """`more` or `less` if that is better, "" if neither is."""


FIGURES = (
    Figure("rate", "rate", "/s", "more"),
    Figure("cpu_s_per_million", "CPU-s per million, all processes", "s", "less"),
    Figure("cpu_s_per_million_data_path", "CPU-s per million, tasks and stream managers", "s", "less"),
    Figure("cpu_in_loops", "CPU per record, in rounds of the calibration loop", "x", "less"),
    Figure("cpu_cores", "cores used", "", "less"),
    Figure("latency_p50_ms", "latency, median", "ms", "less"),
    Figure("latency_p90_ms", "latency, 90 %", "ms", "less"),
    Figure("latency_p99_ms", "latency, 99 %", "ms", "less"),
    Figure("latency_p99.9_ms", "latency, 99.9 %", "ms", "less"),
    Figure("latency_max_ms", "latency, longest", "ms", "less"),
    Figure("acked_p50_ms", "until acked, median", "ms", "less"),
    Figure("acked_p99_ms", "until acked, 99 %", "ms", "less"),
    Figure("uss_bytes", "private memory, all processes", "bytes", "less"),
    Figure("pss_bytes", "memory including their share of shared pages", "bytes", "less"),
    Figure("memory_growth_per_s", "growth of memory in the steady run, per second", "bytes", "less"),
    Figure("clamped_s", "spouts held back by backpressure", "s", ""),
    Figure("submit_s", "submit until every task is ready", "s", "less"),
    # Of `startup`:
    Figure("first_tuple_s", "submit until the first tuple at the sink", "s", "less"),
    Figure("restart_bolt_s", "bolt killed (-9) until its next tuple", "s", "less"),
    Figure("restart_spout_s", "spout killed (-9) until its next tuple", "s", "less"),
    Figure("kill_s", "heron kill", "s", "less"),
    Figure("idle_submit_s", "submit of the idle topology", "s", "less"),
    Figure("idle_cpu_percent", "idle CPU of all processes, of one core", "%", "less"),
    Figure("idle_wakeups_per_s", "wake-ups of all idle processes", "/s", "less"),
    Figure("uss_per_task_bytes", "private memory per idle task", "bytes", "less"),
    Figure("pss_per_task_bytes", "memory including its share of shared pages, per idle task", "bytes", "less"),
    Figure("total_uss_bytes", "private memory, all processes of the idle topology", "bytes", "less"),
    Figure("stmgr_uss_bytes", "private memory per stream manager", "bytes", "less"),
    Figure("stmgr_descriptors", "open file descriptors, the stream manager with most", "", "less"),
    Figure("total_descriptors", "open file descriptors, all processes of the idle topology", "", "less"),
    Figure("idle_kill_s", "heron kill of the idle topology", "s", "less"),
    # Of `control-plane`:
    Figure("pack_s", "packing plan", "s", "less"),
    Figure("storm_s", "all stream managers registered, physical plan sent to each", "s", "less"),
    Figure("beats_s", "one heartbeat of each stream manager", "s", "less"),
    Figure("control_plane_bytes", "memory of the plans and the topology master", "bytes", "less"),
    # Of `checkpoint`:
    Figure("state_bytes", "saved state", "bytes", ""),
    Figure("full_bytes", "uploaded by the first checkpoint", "bytes", "less"),
    Figure("delta_bytes", "uploaded after 1 % of change", "bytes", "less"),
    Figure("full_pause_s", "task held up by the first checkpoint", "s", "less"),
    Figure("delta_pause_s", "task held up after 1 % of change", "s", "less"),
    Figure("pause_cpu_s", "CPU of the task for a checkpoint", "s", "less"),
    Figure("full_write_s", "first checkpoint, until it is complete", "s", "less"),
    Figure("delta_write_s", "checkpoint of 1 % of change, until it is complete", "s", "less"),
    Figure("restore_s", "restore", "s", "less"),
    Figure("segments", "segments of the last checkpoint", "", "less"),
    # Of `costs`:
    Figure("plain_cpu_s_per_million", "CPU-s per million, acks off, all defaults", "s", "less"),
    Figure("cost_metrics", "CPU with metrics each second, compared with no metrics", "x", "less"),
    Figure("cost_info_log", "CPU with log level INFO, against ERROR", "x", "less"),
    Figure("cost_curve", "CPU with TCP and CurveZMQ between containers, against ipc", "x", "less"),
    Figure("cost_at_least_once", "CPU at least once, against acks off", "x", "less"),
    Figure("cost_effectively_once", "CPU effectively once, checkpoint each second, against acks off", "x", "less"),
    Figure("rate_effectively_once", "tuples/s effectively once, against acks off", "x", "more"),
    # Of `jobs`:
    Figure("changed_round_s", "CPU of a round of the syncer, each job changed", "s", "less"),
    Figure("set_s", "time of a change of a job's configuration, p95", "s", "less"),
    Figure("rescale_s", "time of a change between 2 and 4 tasks, p95", "s", "less"),
    Figure("deploy_s", "time of a deploy", "s", "less"),
    Figure("pooled_memory", "memory in a pool, relative to submits", "x", "less"),
    Figure("pooled_cpu", "CPU to start in a pool, relative to submits", "x", "less"),
    Figure("slot_s", "time until all tasks run after the kill of a slot", "s", "less"),
    Figure("idle_round_s", "CPU of a round of the syncer, no job changed", "s", "less"),
    Figure("map_s", "CPU of a pool's first map", "s", "less"),
    Figure("keeper_round_s", "CPU of a round of a pool's keeper", "s", "less"),
    Figure("loss_s", "CPU until the shards of lost slots are elsewhere", "s", "less"),
    Figure("keeper_bytes", "memory of a pool's keeper", "bytes", "less"),
    Figure("wrong_causes", "share of scenarios with a wrong cause", "", "less"),
    Figure("worse_lags", "share of scenarios with longer waits because of scaling", "", "less"),
    Figure("changes_a_day", "maximum number of changes in a day", "", "less"),
    Figure("managers_percent", "idle CPU of syncer and scaler, of one core", "%", "less"),
    Figure("managers_bytes", "private memory of syncer and scaler", "bytes", "less"),
    # Of `units`:
    Figure("units_cpu_s_per_gb", "throughput: CPU-s per GB, work units, all processes", "s", "less"),
    Figure("units_worker_cpu_s_per_gb", "throughput: CPU-s per GB, work units, workers only", "s", "less"),
    Figure("hand_cpu_s_per_gb", "throughput: CPU-s per GB, hand-written loop", "s", "less"),
    Figure("hands_cpu_s_per_gb", "throughput: CPU-s per GB, two concurrent hand-written loops", "s", "less"),
    Figure("lines_cpu_s_per_gb", "throughput: CPU-s per GB, TextFileSpout, bolt, FileSink", "s", "less"),
    Figure("spark_cpu_s_per_gb", "throughput: CPU-s per GB, PySpark, same function", "s", "less"),
    Figure("spark_plain_cpu_s_per_gb", "throughput: CPU-s per GB, Spark without Python", "s", "less"),
    Figure("units_vs_hand", "throughput: work units against the hand-written loop", "x", "less"),
    Figure("units_vs_hands", "throughput: two workers against two concurrent hand-written loops", "x", "less"),
    Figure("units_vs_lines", "throughput: work units against TextFileSpout, bolt, FileSink", "x", "less"),
    Figure("units_vs_spark", "throughput: work units against PySpark", "x", "less"),
    Figure("units_vs_spark_plain", "throughput: work units against Spark without Python", "x", "less"),
    Figure("visible_p50_s", "latency: append to visible, median", "s", "less"),
    Figure("visible_p99_s", "latency: append to visible, 99 %", "s", "less"),
    Figure("visible_max_s", "latency: append to visible, longest", "s", "less"),
    Figure("latency_cores", "latency: cores used during the measurement", "", "less"),
    Figure("straggler_p50_s", "straggler: a unit, median", "s", "less"),
    Figure("straggler_p99_s", "straggler: a unit, 99 %", "s", "less"),
    Figure("straggler_p99_share", "straggler: 99 % against its lease and 1.5 medians", "x", "less"),
    Figure("straggler_backups", "straggler: backups", "", ""),
    Figure("recovery_worker_p50_s", "recovery: from a worker's kill to its unit leased again, median", "s", "less"),
    Figure("recovery_worker_max_s", "recovery: from a worker's kill to its unit leased again, longest", "s", "less"),
    Figure("recovery_keeper_p50_s", "recovery: from a keeper's kill to the next rows published, median", "s", "less"),
    Figure("recovery_keeper_max_s", "recovery: from a keeper's kill to the next rows published, longest", "s", "less"),
    Figure("ledger_rate", "ledger: transactions that write", "/s", "more"),
    Figure("ledger_p50_ms", "ledger: a transaction, median", "ms", "less"),
    Figure("ledger_p99_ms", "ledger: a transaction, 99 %", "ms", "less"),
    Figure("ledger_max_ms", "ledger: a transaction, longest", "ms", "less"),
    Figure("ledger_fsync_ms", "ledger: a page that is appended and synced by hand, mean", "ms", ""),
    Figure("ledger_vs_fsync", "ledger: a transaction, relative to that page", "x", "less"),
    Figure("quiet_cpu_percent", "quiet: CPU of the keepers, of one core", "%", "less"),
    Figure("quiet_all_cpu_percent", "quiet: CPU of all processes, of one core", "%", "less"),
    Figure("quiet_file_bytes", "quiet: ledger per file", "B", "less"),
    Figure("quiet_grown_file_bytes", "quiet: ledger size per file, after every file has grown once more", "B", "less"),
    Figure("bad_attempts", "bad: attempts because of a line that raises", "", "less"),
    Figure("bad_s", "bad: until all other rows are visible", "s", "less"),
    Figure("crash_attempts", "bad: attempts because of a line that kills its worker", "", "less"),
    Figure("crash_s", "bad: until all other rows are visible, with kills", "s", "less"),
    Figure("rebuild_s", "rebuild: the ledger from its table", "s", "less"),
    Figure("check_s", "rebuild: table, ledger and bytes compared", "s", "less"),
    # Of `batch`:
    Figure("batch_cpu_s_per_gb", "cost: CPU-s per GB, batch", "s", "less"),
    Figure("batch_stream_cpu_s_per_gb", "cost: CPU-s per GB, stream, effectively once", "s", "less"),
    Figure("batch_hands_cpu_s_per_gb", "cost: CPU-s per GB, two processes by hand", "s", "less"),
    Figure("batch_rdd_cpu_s_per_gb", "cost: CPU-s per GB, PySpark RDD, same functions", "s", "less"),
    Figure("batch_sql_cpu_s_per_gb", "cost: CPU-s per GB, Spark SQL without Python", "s", "less"),
    Figure("batch_vs_stream", "cost: batch against the stream", "x", "less"),
    Figure("batch_vs_hands", "cost: batch against two processes by hand", "x", "less"),
    Figure("batch_vs_rdd", "cost: batch against PySpark RDD", "x", "less"),
    Figure("batch_vs_sql", "cost: batch against Spark SQL, which is cheaper above 1x", "x", "less"),
    Figure("batch_worker_bytes", "cost: private memory of a worker", "bytes", "less"),
    Figure("batch_small_s", "small: 10 KB, command until its end", "s", "less"),
    Figure("batch_kills", "kills: time with a worker killed every 2 s, against none", "x", "less"),
    Figure("batch_resumed", "failed: CPU of the repeated command, against all", "x", "less"),
    Figure("batch_failed_s", "failed: command until a line that raises has failed it", "s", "less"),
    Figure("batch_charged", "preempted: attempts that were charged", "", "less"),
    Figure("exchange_worker_bytes", "exchange: private memory of a worker", "bytes", "less"),
    Figure("exchange_cpu_s_per_gb", "exchange: CPU-s per GB between the stages", "s", "less"),
    Figure("batch_history_s", "history: heron history show, all processes killed", "s", "less"),
    Figure("straggler_time", "time with one process 10 times as slow, against all alike", "x", "less"),
    Figure("straggler_in_vain", "wasted work with one unit 10 times as heavy", "x", "less"),
    Figure("handover_live_s", "end of the batch to the first live tuple", "s", "less"),
    Figure("handover_dump", "time of the savepoint and the rows, of the run", "x", "less"),
)
BY_NAME = {figure.name: figure for figure in FIGURES}
#: Of each step of `rates`; a step's figure is named `MODE/RATE/FIGURE`.
STEP_FIGURES = {
    figure.name: figure
    for figure in (
        BY_NAME["rate"],
        BY_NAME["cpu_cores"],
        Figure("tuples_per_frame", "tuples per frame", "", "more"),
        Figure("frames_per_tuple", "frames of every kind per tuple", "", "less"),
        Figure("switches_per_tuple", "voluntary context switches per tuple", "", "less"),
        Figure("calls_per_tuple", "system calls per tuple", "", "less"),
        BY_NAME["latency_p50_ms"],
        BY_NAME["latency_p99_ms"],
        BY_NAME["latency_p99.9_ms"],
    )
}
#: Of each scene of `slow_bolt`; a scene's figure is named `SCENE/FIGURE`.
SCENE_FIGURES = {
    figure.name: figure
    for figure in (
        BY_NAME["rate"],
        Figure("share", "rate against what the tasks can do", "x", "more"),
        Figure("stop_s", "longest stop of the spout", "s", "less"),
        Figure("steady_stop_s", "longest stop of the spout after the warm-up", "s", "less"),
        BY_NAME["latency_p50_ms"],
        BY_NAME["latency_p99_ms"],
        Figure("queued_bytes", "most bytes queued in stream managers", "bytes", "less"),
        BY_NAME["clamped_s"],
        Figure("resume_s", "until the spout emits fast again", "s", "less"),
    )
}


def step_name(mode: str, rate: float, name: str) -> str:
    """Return the name of a step's figure in the summary; rate 0 means as fast as possible."""
    return f"{mode}/{rate:g}/{name}" if rate else f"{mode}/max/{name}"


def figure_of(name: str) -> Figure | None:
    """Return the figure of a name in a summary; None if this release does not know it."""
    mode, _, rest = name.partition("/")
    if (known := SCENE_FIGURES.get(rest or name)) is not None:
        return replace(known, name=name, label=f"{mode}: {known.label}") if rest else known
    rate, _, figure = rest.partition("/")
    known = STEP_FIGURES.get(figure) if rest else None
    if known is None:
        return BY_NAME.get(name)
    at = f"{float(rate):,.0f}/s" if rate != "max" else "as fast as it can"
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
    """Return median and range of every figure."""
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
            f"the earlier result is of profile '{before['profile']}', not '{now['profile']}'; give a result of the same"
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
    """Return head and rows of the table of figures, one row per figure of the summary."""
    several = len(result["runs"]) > 1
    head = ["figure", "median", "smallest", "largest"] if several else ["figure", "value"]
    parts = ("median", "min", "max") if several else ("median",)
    rows = result["summary"].items()
    return head, [[label_of(name), *(shown(name, row[part]) for part in parts)] for name, row in rows]


def table_of_roles(run: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of CPU and memory, one row per role of a run's processes."""
    rows = []
    for role, cpu in run["figures"]["cpu"].items():
        memory = run["memory"].get(role, {"processes": 0, "uss": 0, "pss": 0})
        sizes = [f"{memory[key] / 2**20:,.1f} MB" for key in ("uss", "pss")]
        processes = str(memory["processes"] or "-")
        rows.append([role, processes, f"{cpu['seconds']:.2f}", f"{cpu['per_million']:.4f}", *sizes])
    return ["role", "processes", "CPU-s", "CPU-s per million", "own memory", "with shared"], rows


def shown(name: str, value: float) -> str:
    """Format a figure."""
    unit = _known(name).unit
    if unit == "bytes":
        return f"{value / 2**20:,.1f} MB"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}" + (f" {unit}" if unit and unit not in ("/s", "x") else unit)
