"""The cost of single features: the CPU of the word count with a feature, relative to that without it.

CPU per word of one run depends as much on the machine's other users as on the feature; so every variant
is compared with the plain runs right before and right after it, and the order differs in each round.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from heronpy.loadtest import profiles
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.profiles import Load
from heronpy.loadtest.run import Say, repeated, run_of, run_once

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Variant:
    """The word count with one thing changed."""

    name: str
    figure: str
    """Name of the ratio in the summary."""
    settings: dict[str, str] = field(default_factory=dict)
    mode: str = "ATMOST_ONCE"
    without: bool = False
    """The plain run has the feature and this one does not."""
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
    """The result document."""

    def once(number: int, begin: str) -> dict[str, Any]:
        values, checks, busy = _once(where, containers, duration_s, number)
        ratios = ", ".join(f"{one.name} {values[one.figure]:.2f}" for one in VARIANTS)
        say(f"{begin}plain {values['plain_cpu_s_per_million']:.3f} CPU-s per million; {ratios}")
        return {**run_of(values, checks), "others_cores": busy}

    return repeated(
        once,
        repeat,
        profile="costs",
        about="what metrics, logging, encryption and guarantees cost on the word count, as ratios of CPU",
        unit="words",
        options={"containers": containers, "duration_s": duration_s},
    )


def _load(variant: Variant | None, containers: int, duration_s: float) -> Load:
    changes = {"containers": containers, "duration_s": duration_s, "mode": variant.mode if variant else None}
    settings = [f"{key}={value}" for key, value in variant.settings.items()] if variant else []
    return profiles.changed(profiles.load("word_count"), changes, settings)


def _once(
    where: Cluster, containers: int, duration_s: float, number: int
) -> tuple[dict[str, float], list[Check], float]:
    """All variants once, each between two plain runs."""
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
        run = run_once(where, _load(one, containers, duration_s), number * len(line) + place)
        cpu.append(run["figures"]["cpu_s_per_million"])
        rate.append(run["figures"]["rate"])
        busy = max(busy, run["figures"]["others_cores"])
        exact = run["checks"][0]
        checks.append(Check(f"counts, {one.name if one else PLAIN}", exact["ok"], exact["text"]))
    values = {"plain_cpu_s_per_million": median(cpu[::2])}
    for place, one in enumerate(order):
        before, here, after = cpu[2 * place : 2 * place + 3]
        ratio = 2 * here / (before + after)
        values[one.figure] = 1 / ratio if one.without else ratio
        if one.rate_figure:
            before, here, after = rate[2 * place : 2 * place + 3]
            values[one.rate_figure] = 2 * here / (before + after)
    return values, checks, busy
