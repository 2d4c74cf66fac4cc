"""`compare_peers.py --rates`: the cost of the same tuples at the same rates with heronpy and its peers.

One source, one sink, 100 bytes a tuple; each source is paced by the clock and stamps each tuple with its due time. CPU
seconds and voluntary context switches are those of all processes of a contender in the steady part of the run, between
two samples; latency is from the due time, over the whole run. Every number must arrive once.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from peer_programs import PEERS, Unavailable, python_of, watched

from heronpy.common.errors import HeronError
from heronpy.loadtest import measure, rates, run
from heronpy.loadtest.cluster import cluster
from heronpy.loadtest.processes import Tree
from heronpy.loadtest.run import facts, run_once
from heronpy.loadtest.watch import CpuLook

DEFAULT_RATES = "100,1000,5000,20000"
LOOK_S = 0.25
#: Warm-up in seconds, the same for all contenders, because JVMs and Rust engines start slowly.
WARMUP_S = 2.0
PIPE = "pipe"


@dataclass(slots=True)
class Sample:
    """The figures of one contender at one rate."""

    rate: float
    cores: float
    switches: float
    p50_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(slots=True)
class RateContender:
    """A contender: the rows of the table for one program."""

    name: str
    label: str
    run: Callable[[float, float], Sample]
    """Runs at a rate for some seconds. Raises Unavailable."""
    version: str = ""
    samples: dict[float, list[Sample]] = field(default_factory=dict)
    reason: str = ""
    """Why it was not measured."""


def heronpy(name: str, label: str, mode: str, *parameters: str) -> RateContender:
    def run(rate: float, seconds: float) -> Sample:
        load = rates.load_of(mode, rate, seconds, parameters, counting=False)
        try:
            with cluster() as where:
                result = run_once(where, load, 1)
        except HeronError as error:
            raise Unavailable(str(error).splitlines()[0]) from None
        if not result["checks"][0]["ok"]:
            raise Unavailable(result["checks"][0]["text"])
        step = rates.step_of(mode, rate, result, "")
        return Sample(
            step["rate"],
            step["cpu_cores"],
            step["switches_per_tuple"],
            step["latency_p50_ms"],
            step["latency_p99_ms"],
            step["latency_p99.9_ms"],
        )

    return RateContender(name, label, run, facts()["heronpy"])


def program(
    cache: Path, name: str, label: str, file: str, package: str = "", version: str = "", *extra: str
) -> RateContender:
    def run(rate: float, seconds: float) -> Sample:
        python = python_of(cache, package, version) if package else sys.executable
        looks: list[CpuLook] = []

        def look(tree: Tree) -> None:
            at, cpu = time.monotonic(), tree.cpu()
            looks.append(CpuLook(at, cpu, {}, 0.0, 0.0, tree.switches()))

        with tempfile.TemporaryDirectory(prefix="peer-rate-") as folder:
            words = [f"{rate:g}", f"{WARMUP_S + seconds:g}", str(Path(folder) / "result"), *extra]
            watched([python, str(PEERS / file), *words], look, LOOK_S)
            return sample_of(Path(folder), looks)

    return RateContender(name, label, run, version)


def sample_of(folder: Path, looks: Sequence[CpuLook]) -> Sample:
    """Return the figures of a program, from its result files and the samples of its processes."""
    source = json.loads((folder / "result.source.json").read_text(encoding="utf-8"))
    sinks = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("result.sink-*.json"))]
    sent, received = source["sent"], sum(sink["received"] for sink in sinks)
    if received != sent or sum(sink["numbers"] for sink in sinks) != sent * (sent - 1) // 2:
        raise Unavailable(f"{received:,} of {sent:,} tuples arrived, or some arrived more than once")
    latencies = np.concatenate(
        [np.fromfile(path, dtype=np.int64) for path in sorted(folder.glob("result.sink-*.latencies"))]
    )
    window = measure.window_of(looks, source["started_at"], source["ended_at"], WARMUP_S)
    if not window.steady:
        raise Unavailable("the run was too short to measure; give more --seconds")
    last = max(sink["last_at"] for sink in sinks if sink["received"])
    rate = sent / max(last - source["started_at"], 1e-9)
    switches = measure.switches_per_tuple(window, rate * window.seconds)
    cores = sum(measure.cpu_by_role(window).values()) / window.seconds
    p50, p99, p999 = (float(value) / 1e6 for value in np.percentile(latencies, (50, 99, 99.9)))
    return Sample(rate, cores, switches or 0.0, p50, p99, p999)


def contenders(cache: Path) -> list[RateContender]:
    return [
        program(cache, PIPE, "by hand: pipes, router process", "pipe_rate.py"),
        heronpy("heronpy", "heronpy, acks off, spout polled", "ATMOST_ONCE", "polled=true"),
        heronpy("heronpy-acks", "heronpy, at least once, spout polled", "ATLEAST_ONCE", "polled=true"),
        heronpy("heronpy-wait", "heronpy, acks off, spout waits", "ATMOST_ONCE"),
        heronpy("heronpy-acks-wait", "heronpy, at least once, spout waits", "ATLEAST_ONCE"),
        program(cache, "bytewax", "Bytewax, 1 process", "bytewax_rate.py", "bytewax", "0.21.1", "1"),
        program(cache, "bytewax-2", "Bytewax, 2 processes", "bytewax_rate.py", "bytewax", "0.21.1", "2"),
        program(cache, "pathway", "Pathway, commits every 5 ms", "pathway_rate.py", "pathway", "0.33.0"),
        program(cache, "pyflink-thread", "PyFlink, thread mode", "pyflink_rate.py", "apache-flink", "2.3.0"),
    ]


def compete(found: list[RateContender], asked: Sequence[float], seconds: float, rounds: int) -> dict[str, Any]:
    """Measure all contenders, in reverse order in every second round; return how noisy the machine was."""
    calibrations = [run.calibrate()]
    for number in range(rounds):
        for rate in asked:
            for contender in found if number % 2 == 0 else reversed(found):
                if contender.reason:
                    continue
                where = f"round {number + 1} of {rounds}: {rate:,.0f}/s, {contender.label} ..."
                print(where, end=" ", file=sys.stderr, flush=True)
                try:
                    sample = contender.run(rate, seconds)
                except Unavailable as error:
                    contender.reason = str(error)
                    print(contender.reason, file=sys.stderr)
                    continue
                contender.samples.setdefault(rate, []).append(sample)
                print(f"{sample.cores:.2f} cores, median {sample.p50_ms:.2f} ms", file=sys.stderr)
        calibrations.append(run.calibrate())
    return run.noise_of(calibrations, [])


def median_of(contender: RateContender, rate: float, name: str) -> float | None:
    """Return the median of one figure; None if it was not measured."""
    values = [getattr(sample, name) for sample in contender.samples.get(rate, ())]
    return statistics.median(values) if values else None


def markdown(
    found: Sequence[RateContender], asked: Sequence[float], verdict: dict[str, Any], rounds: int, seconds: float
) -> str:
    """Return the table, with a line below it for each contender that was not measured."""
    about = facts()
    host = about["host"]
    pipe = next((contender for contender in found if contender.name == PIPE), None)
    lines = [
        f"{about['date'][:10]}, {host['cores']} cores ({host['cpu']}), Linux {host['kernel']}, Python {about['python']},"
        f" medians of {rounds}, {seconds:g} s each. {verdict['text'].capitalize()}; the calibration loop needs"
        f" {verdict['loop_s_per_million']:.3f} CPU-s per million.",
        "",
        "| tuples/s | | version | reached | cores | against by hand | switches per tuple | 50 % | 99 % | 99.9 % |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for rate in asked:
        for contender in found:
            cores = median_of(contender, rate, "cores")
            if cores is None:
                continue
            figures = {name: median_of(contender, rate, name) or 0.0 for name in Sample.__slots__}
            floor = median_of(pipe, rate, "cores") if pipe is not None else None
            cells = [
                f"{rate:,.0f}",
                contender.label,
                contender.version or "-",
                f"{figures['rate']:,.0f}",
                f"{cores:.2f}",
                f"{cores / floor:.1f}x" if floor else "",
                f"{figures['switches']:.2f}",
                *(f"{figures[name]:.2f} ms" for name in ("p50_ms", "p99_ms", "p999_ms")),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += [""] + [f"Not measured: {c.label}: {c.reason}" for c in found if c.reason]
    return "\n".join(lines).rstrip() + "\n"


def as_json(found: Sequence[RateContender], verdict: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return all figures of all rounds."""
    rows = [
        {
            "name": c.name,
            "label": c.label,
            "version": c.version,
            "reason": c.reason,
            "rates": {
                f"{rate:g}": [{name: getattr(sample, name) for name in Sample.__slots__} for sample in samples]
                for rate, samples in c.samples.items()
            },
        }
        for c in found
    ]
    return {
        "schema": 1,
        "kind": "peer-rates",
        **facts(),
        "seconds": seconds,
        "calibration": verdict,
        "contenders": rows,
    }
