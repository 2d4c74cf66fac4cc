"""The cost of a tuple at every rate, and the cost of single features.

Rates: `passthrough` runs at given rates in given modes, for some seconds each.

Each step is a separate topology, so its counts are final and exact. One spout emits at the given rate; 0 means as fast
as possible.

Single features: the CPU of the word count with a feature, relative to the CPU without it. The CPU per word in
one run depends as much on the machine's other users as on the feature. So every variant is compared with the plain
runs right before and after it, and the order differs in each round.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from heronpy.common.errors import ConfigError
from heronpy.loadtest import processes, profiles
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.profiles import Load
from heronpy.loadtest.results import STEP_FIGURES, step_name
from heronpy.loadtest.run import TAIL_S, Say, repeated, run_of, run_once

RATE_MAX = 10_000_000.0
#: Highest promised rate in tuples per second; higher rates depend on the machine.
RATE_JUDGED = 20_000.0
#: Column heads of the table, one for each of STEP_FIGURES.
HEADS = ("reached/s", "cores", "tuples/\nframe", "frames/\ntuple", "switches/\ntuple", "calls/\ntuple",
         "p50\nms", "p99\nms", "p99.9\nms")  # fmt: skip
NOT_MEASURED = "not measured"


def rates_of(text: str) -> tuple[float, ...]:
    """Parse a comma-separated list of rates; `max` and 0 mean as fast as possible.

    Raises ConfigError for an invalid or repeated rate.
    """
    found: list[float] = []
    for word in text.split(","):
        word = word.strip()
        try:
            rate = 0.0 if word == "max" else float(word.replace("_", ""))
        except ValueError:
            raise ConfigError(f"'{word}' is not a rate; give tuples per second, such as 100,5000,max") from None
        if not 0 <= rate <= RATE_MAX:
            raise ConfigError(f"a rate must be between 0 and {RATE_MAX:,.0f} tuples per second, not {word}")
        if rate in found:
            raise ConfigError(f"the rate {word} is in the list twice; give each rate once")
        found.append(rate)
    return tuple(found)


def step_of(mode: str, rate: float, run: dict[str, Any], reason: str) -> dict[str, Any]:
    """Make a row of the table from the document of a run; figures that were not measured are None."""
    latency = {f"latency_{name}_ms": value for name, value in run["latency"].get("end_to_end", {}).items()}
    calls = run["system_calls"] or {"per_tuple": None, "reason": reason}
    measured = {**run["figures"], **(run["frames"] or {}), **latency, "calls_per_tuple": calls["per_tuple"]}
    return {
        "mode": mode,
        "asked": rate,
        **{name: measured.get(name) for name in STEP_FIGURES},
        "calls_reason": calls["reason"],
        "seconds": measured["seconds"],
        "tuples": run["tuples"],
    }


def checks_of(mode: str, rate: float, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the checks of a step, named after the step; the rate is only checked if the step promises one."""
    return [
        {**check, "name": f"{mode} {rate_text(rate)}, {check['name']}"}
        for check in run["checks"]
        if check["name"] != "rate" or rate <= RATE_JUDGED
    ]


def values_of_steps(steps: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the figures of all steps under distinct names."""
    return {
        step_name(step["mode"], step["asked"], name): step[name]
        for step in steps
        for name in STEP_FIGURES
        if step[name] is not None
    }


def rate_text(rate: float) -> str:
    """Format a rate as `5,000/s` or `max`."""
    return f"{rate:,.0f}/s" if rate else "max"


def table_of(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the column heads and rows of the table, with medians over the runs."""
    rows = []
    for step in result["runs"][0]["steps"]:
        cells = [step["mode"], f"{step['asked']:,.0f}" if step["asked"] else "max"]
        for name in STEP_FIGURES:
            known = result["summary"].get(step_name(step["mode"], step["asked"], name))
            cells.append(_shown(name, known["median"]) if known is not None else "-")
        rows.append(cells)
    return ["mode", "asked/s", *HEADS], rows


def notes_of(result: dict[str, Any]) -> list[str]:
    """Return the notes below the table about figures that were not measured."""
    reasons = {step["calls_reason"] for run in result["runs"] for step in run["steps"] if step["calls_reason"]}
    return [f"calls/tuple: {NOT_MEASURED}: {reason}" for reason in sorted(reasons)]


def _shown(name: str, value: float) -> str:
    digits = 0 if name == "rate" or value >= 100 else 3 if abs(value) < 1 and name != "cpu_cores" else 2
    return f"{value:,.{digits}f}"


PROFILE = "passthrough"
WARMUP_S = 1.0


def load_of(mode: str, rate: float, step_s: float, parameters: Sequence[str], counting: bool) -> Load:
    """Return the profile of one step."""
    duration_s = WARMUP_S + step_s + (TAIL_S if counting else 0.0)
    changes = {"mode": mode, "rate": rate, "duration_s": duration_s, "warmup_s": WARMUP_S}
    return profiles.changed(profiles.load(PROFILE), changes, list(parameters))


def run_rates(
    where: Cluster,
    rates: Sequence[float],
    modes: Sequence[str],
    step_s: float,
    parameters: Sequence[str],
    repeat: int,
    say: Say,
) -> dict[str, Any]:
    """Measure all modes at all rates; return the result document."""
    reason = processes.no_counter()

    def once(number: int, begin: str) -> dict[str, Any]:
        steps: list[dict[str, Any]] = []
        checks: list[dict[str, Any]] = []
        others: list[float] = []
        for place, (mode, rate) in enumerate(itertools.product(modes, rates)):
            load = load_of(mode, rate, step_s, parameters, counting=not reason)
            run = run_once(where, load, number * 1000 + place, count_calls=not reason)
            steps.append(step_of(mode, rate, run, reason))
            checks += checks_of(mode, rate, run)
            others.append(run["figures"]["others_cores"])
            say(f"{begin}{mode} {rate_text(rate)}: {steps[-1]['rate']:,.0f}/s, {steps[-1]['cpu_cores']:.2f} cores")
        return {"values": values_of_steps(steps), "checks": checks, "steps": steps, "others_cores": max(others)}

    return repeated(
        once,
        repeat,
        profile="rates",
        about="cost and latency of a tuple at each rate: 1 spout, 1 sink, payload of 100 bytes",
        unit="tuples",
        options={
            "rates": ",".join(f"{rate:g}" if rate else "max" for rate in rates),
            "modes": ",".join(modes),
            "step_s": step_s,
            "set": ",".join(parameters),
        },
    )


PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Variant:
    """The word count with one feature changed."""

    name: str
    figure: str
    """Name of the ratio in the summary."""
    settings: dict[str, str] = field(default_factory=dict)
    mode: str = "ATMOST_ONCE"
    without: bool = False
    """Whether the plain run uses the feature and this variant does not."""
    rate_figure: str = ""
    """Name of the ratio of words per second in the summary."""


VARIANTS = (
    Variant("without metrics", "cost_metrics", {"heron.metrics.export_interval_s": "3600"}, without=True),
    Variant("log level ERROR", "cost_info_log", {"heron.logging.level": "ERROR"}, without=True),
    Variant("TCP with CurveZMQ", "cost_curve", {"heron.security.transport": "tcp"}),
    Variant("at least once", "cost_at_least_once", mode="ATLEAST_ONCE"),
    Variant(
        "effectively once",
        "cost_effectively_once",
        {"heron.checkpoint.interval_s": "1"},
        "EFFECTIVELY_ONCE",
        rate_figure="rate_effectively_once",
    ),
)


def run_costs(where: Cluster, containers: int, duration_s: float, repeat: int, say: Say) -> dict[str, Any]:
    """Measure the costs of features; return the result document."""

    def once(number: int, begin: str) -> dict[str, Any]:
        values, checks, busy = _costs_once(where, containers, duration_s, number)
        ratios = ", ".join(f"{one.name} {values[one.figure]:.2f}" for one in VARIANTS)
        say(f"{begin}plain {values['plain_cpu_s_per_million']:.3f} CPU-s per million; {ratios}")
        return {**run_of(values, checks), "others_cores": busy}

    return repeated(
        once,
        repeat,
        profile="costs",
        about="CPU cost of metrics, logging, encryption and guarantees in the word count, as ratios",
        unit="words",
        options={"containers": containers, "duration_s": duration_s},
    )


def _load_of_variant(variant: Variant | None, containers: int, duration_s: float) -> Load:
    changes = {"containers": containers, "duration_s": duration_s, "mode": variant.mode if variant else None}
    settings = [f"{key}={value}" for key, value in variant.settings.items()] if variant else []
    return profiles.changed(profiles.load("word_count"), changes, settings)


def _costs_once(
    where: Cluster, containers: int, duration_s: float, number: int
) -> tuple[dict[str, float], list[Check], float]:
    """Run all variants once, each between two plain runs."""
    order = list(VARIANTS)
    random.Random(number).shuffle(order)
    line: list[Variant | None] = [None]
    for variant in order:
        line += [variant, None]
    cpu: list[float] = []
    rate: list[float] = []
    checks: list[Check] = []
    busy = 0.0
    for place, one in enumerate(line):
        run = run_once(where, _load_of_variant(one, containers, duration_s), number * len(line) + place)
        cpu.append(run["figures"]["cpu_s_per_million"])
        rate.append(run["figures"]["rate"])
        busy = max(busy, run["figures"]["others_cores"])
        exact = run["checks"][0]
        checks.append(Check(f"counts, {one.name if one else PLAIN}", exact["ok"], exact["text"]))
    values = {"plain_cpu_s_per_million": statistics.median(cpu[::2])}
    for place, one in enumerate(order):
        before, here, after = cpu[2 * place : 2 * place + 3]
        ratio = 2 * here / (before + after)
        values[one.figure] = 1 / ratio if one.without else ratio
        if one.rate_figure:
            before, here, after = rate[2 * place : 2 * place + 3]
            values[one.rate_figure] = 2 * here / (before + after)
    return values, checks, busy
