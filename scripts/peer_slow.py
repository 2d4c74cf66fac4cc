"""`compare_peers.py --slow`: heronpy and its peers while one of four parallel steps is ten times as slow as the others.

This is the scene `slow` of `heron load-test slow_bolt`: a source without a rate limit, and steps that together serve
3,100 tuples a second. All figures are for the slow phase. A stop that outlasts the slow phase counts up to its end.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peer_programs import PEERS, Unavailable, python_of, watched

from heronpy.common.errors import HeronError
from heronpy.loadtest import profiles
from heronpy.loadtest.cluster import cluster
from heronpy.loadtest.processes import Tree
from heronpy.loadtest.run import facts, run_once

LOOK_S = 1.0
STEPS = 4
DEBLOAT = "taskmanager.network.memory.buffer-debloat.enabled"
ADAPTIVE = "taskmanager.network.adaptive-partitioner.enabled"


@dataclass(slots=True)
class Figures:
    """The figures of one run."""

    share: float
    """The rate as a share of the capacity of the steps."""
    stop_s: float
    p50_ms: float
    p99_ms: float
    uss_bytes: int


@dataclass(slots=True)
class SlowContender:
    """A contender: one row of the table."""

    name: str
    label: str
    run: Callable[[float], Figures]
    """Function that runs it with a slow phase of this many seconds. Raises Unavailable."""
    version: str = ""
    found: Figures | None = None
    load: float = 0.0
    """The load average of the minute before the run."""
    reason: str = ""


def heronpy(seconds: float) -> Figures:
    profile = profiles.changed(profiles.load("slow_bolt"), {"duration_s": seconds}, ["scene=slow"])
    try:
        with cluster() as where:
            result = run_once(where, profiles.scenes_of(profile)[0], 1)
    except HeronError as error:
        raise Unavailable(str(error).splitlines()[0]) from None
    row = result["scene"]
    names = ("share", "stop_s", "latency_p50_ms", "latency_p99_ms")
    return Figures(*(row[name] for name in names), result["uss_bytes"])


def program(cache: Path, name: str, label: str, file: str, package: str, version: str, *extra: str) -> SlowContender:
    def run(seconds: float) -> Figures:
        python = python_of(cache, package, version)
        sizes = [0]

        def look(tree: Tree) -> None:
            sizes.append(sum(memory["uss"] for memory in tree.memory().values()))

        with tempfile.TemporaryDirectory(prefix="peer-slow-") as folder:
            watched([python, str(PEERS / file), f"{seconds:g}", str(Path(folder) / "result"), *extra], look, LOOK_S)
            return figures_of(Path(folder), max(sizes))

    return SlowContender(name, label, run, version)


def figures_of(folder: Path, uss_bytes: int) -> Figures:
    """Return the figures of a program, from its result files."""
    steps = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("result.sink-*.json")]
    if len(steps) != STEPS:
        raise Unavailable(f"{len(steps)} of {STEPS} steps had tuples until the end of the slow phase")
    stops = json.loads((folder / "result.source.json").read_text(encoding="utf-8"))["stops"]
    end = min(step["fast_at"] for step in steps)
    rate = sum(step["received"] / (step["fast_at"] - step["first_at"]) for step in steps)
    latencies = np.concatenate([np.fromfile(path, dtype=np.int64) for path in folder.glob("result.sink-*.latencies")])
    p50, p99 = (float(value) / 1e6 for value in np.percentile(latencies, (50, 99)))
    stop_s = max((min(at, end) - (at - seconds) for at, seconds in stops), default=0.0)
    return Figures(rate / sum(step["capacity"] for step in steps), max(stop_s, 0.0), p50, p99, uss_bytes)


def contenders(cache: Path) -> list[SlowContender]:
    def flink(name: str, what: str, mode: str, *options: str) -> SlowContender:
        label = f"PyFlink, {mode} mode{what}"
        return program(cache, name, label, "pyflink_slow.py", "apache-flink", "2.3.0", mode, *options)

    return [
        SlowContender("heronpy", "heronpy, acks off", heronpy, facts()["heronpy"]),
        flink("pyflink-thread", "", "thread", f"{DEBLOAT}=false"),
        flink("pyflink-thread-debloat", ", buffer debloating", "thread", f"{DEBLOAT}=true"),
        flink("pyflink-thread-adaptive", ", adaptive partitioner", "thread", f"{ADAPTIVE}=true"),
        flink("pyflink-thread-both", ", adaptive and debloating", "thread", f"{ADAPTIVE}=true", f"{DEBLOAT}=true"),
        flink("pyflink-process", "", "process", f"{DEBLOAT}=false"),
        flink("pyflink-process-debloat", ", buffer debloating", "process", f"{DEBLOAT}=true"),
        program(cache, "bytewax", "Bytewax, source next to the slow step", "bytewax_slow.py", "bytewax", "0.21.1", "0"),
        program(
            cache, "bytewax-apart", "Bytewax, source next to another step", "bytewax_slow.py", "bytewax", "0.21.1", "1"
        ),
    ]


def compete(found: Sequence[SlowContender], seconds: float) -> None:
    """Measure the contenders, one after the other."""
    for contender in found:
        print(f"{contender.label} ...", end=" ", file=sys.stderr, flush=True)
        contender.load = os.getloadavg()[0]
        try:
            contender.found = contender.run(seconds)
            print(f"{contender.found.share:.3f} of the rate", file=sys.stderr)
        except Unavailable as error:
            contender.reason = str(error)
            print(contender.reason, file=sys.stderr)


def markdown(found: Sequence[SlowContender], seconds: float) -> str:
    """Return the table, with a line below it for each contender that was not measured."""
    about = facts()
    lines = [
        f"{about['date'][:10]}, {about['host']['cores']} cores ({about['host']['cpu']}), Python {about['python']},"
        f" one run of {seconds:g} s each.",
        "",
        "| | version | rate relative to the capacity of the steps | longest stop | 50 %, 99 % | memory | load before |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in found:
        if f := c.found:
            figures = f"{f.share:.3f} | {f.stop_s:.2f} s | {f.p50_ms:,.1f}, {f.p99_ms:,.1f} ms"
            lines.append(f"| {c.label} | {c.version} | {figures} | {f.uss_bytes / 2**20:,.0f} MB | {c.load:.1f} |")
    lines += [""] + [f"Not measured: {c.label}: {c.reason}" for c in found if c.reason]
    return "\n".join(lines).rstrip() + "\n"


def as_json(found: Sequence[SlowContender], seconds: float) -> dict[str, Any]:
    """Return all figures."""
    rows = [
        {"name": c.name, "label": c.label, "version": c.version, "reason": c.reason, "load": c.load}
        | (asdict(c.found) if c.found else {})
        for c in found
    ]
    return {"schema": 1, "kind": "peer-slow", **facts(), "seconds": seconds, "contenders": rows}
