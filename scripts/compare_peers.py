#!/usr/bin/env python3
"""Counts the same words with heronpy and its peers on this machine, and prints the figures.

    scripts/compare_peers.py                          everything, three rounds
    scripts/compare_peers.py --only pipe,heronpy      without the peers that must be installed
    scripts/compare_peers.py --markdown out/peers.md --plot docs/peers.svg
    scripts/compare_peers.py --rates                  cost and latency of tuples at fixed rates
    scripts/compare_peers.py --slow                   one of four steps ten times as slow as the others
    scripts/compare_peers.py --rates 1000,5000 --seconds 10 --only pipe,heronpy,bytewax

Each contender counts a small and a large number of words. The differences in CPU seconds of all its processes and in
wall time, divided by the difference in words, do not include the start. The order of the contenders is reversed after
each round. Every count of every word is checked. Peers are installed from PyPI, pinned, each into a separate virtual
environment below --cache; a peer that cannot be installed or does not run is reported with the reason.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))

try:
    import peer_rates
    import peer_slow
    from peer_programs import PEERS, Unavailable, python_of, watched
except ModuleNotFoundError as missing:
    sys.exit(
        f"error: this Python has no {missing.name}; run 'make demo' once and then"
        " .venv/bin/python scripts/compare_peers.py"
    )

from heronpy.common.errors import HeronError  # noqa: E402
from heronpy.common.folders import make_folders, make_output  # noqa: E402
from heronpy.loadtest import profiles, rates  # noqa: E402
from heronpy.loadtest.cluster import cluster  # noqa: E402
from heronpy.loadtest.inputs import expected_counts, word_list  # noqa: E402
from heronpy.loadtest.processes import Tree  # noqa: E402
from heronpy.loadtest.run import Calibration, calibrate, facts, noise_of, run_once  # noqa: E402

DISTINCT, LENGTH = 5000, 10_000
#: Dimensions of the charts, in pixels.
WIDTH, TOP = 640, 12
POLL_S = 0.05
#: The large count is this many times the small one.
SPREAD = 5


@dataclass(slots=True)
class Contender:
    """A contender: one row of the table."""

    name: str
    label: str
    run: Callable[[int], tuple[float, float]]
    """Function that counts this many words; returns CPU and wall seconds of all processes. Raises Unavailable."""
    words: int
    """The large number of words, for a run of about ten seconds."""
    version: str = ""
    colour: int = 1
    cpu: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    reason: str = ""


# ---- heronpy -------------------------------------------------------------------------------------


def heronpy(name: str, label: str, containers: int, mode: str, words: int) -> Contender:
    def run(count: int) -> tuple[float, float]:
        load = profiles.changed(
            profiles.load("word_count"),
            {"containers": containers, "mode": mode, "tuples": count},
            [f"distinct={DISTINCT}", f"words={LENGTH}", "heron.checkpoint.interval_s=1"],
        )
        try:
            with cluster() as where:
                result = run_once(where, load, 1)
        except HeronError as error:
            raise Unavailable(str(error).splitlines()[0]) from None
        if not result["checks"][0]["ok"]:
            raise Unavailable(result["checks"][0]["text"])
        # Measure from the release of the spouts to the last count; the start is the same for every number of words.
        series = result["series"]["cpu"]
        times = [0.0, *series["t"]]
        cpu = sum(
            cores * (after - before)
            for cores_of in series["values"].values()
            for cores, before, after in zip(cores_of, times, series["t"], strict=False)
        )
        return cpu, result["tuples"] / result["figures"]["whole_rate"]

    return Contender(name, label, run, words, facts()["heronpy"], colour=0)


# ---- other contenders: programs in separate interpreters -------------------------------------------


def measured(command: Sequence[str]) -> tuple[float, float]:
    """Run a program to its end; return the CPU seconds of its process tree, and the wall seconds."""
    cpu = 0.0

    def look(tree: Tree) -> None:
        nonlocal cpu
        cpu = max(cpu, sum(tree.cpu().values()))

    wall = watched(command, look, POLL_S)
    return cpu, wall


class Peers:
    """Runs the peers in their virtual environments."""

    def __init__(self, cache: Path, words: Sequence[str], scratch: Path) -> None:
        self.cache = cache
        self.words = words
        self.words_file = scratch / "words.json"
        self.words_file.write_text(json.dumps(words), encoding="utf-8")
        self.scratch = scratch

    def contender(
        self, name: str, label: str, program: str, words: int, package: str = "", version: str = "", *extra: str
    ) -> Contender:
        def run(count: int) -> tuple[float, float]:
            python = python_of(self.cache, package, version) if package else sys.executable
            passes = max(1, count // len(self.words))
            with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
                result = Path(folder) / "result.json"
                cost = measured([python, str(PEERS / program), str(self.words_file), str(passes), str(result), *extra])
                counts = json.loads(result.read_text(encoding="utf-8"))["counts"]
            if counts != expected_counts(self.words, [passes * len(self.words)]):
                raise Unavailable("its counts are wrong")
            return cost

        return Contender(name, label, run, words, version)


def contenders(peers: Peers) -> list[Contender]:
    """Return all contenders, each with the number of words that it counts in some seconds."""
    million = 1_000_000
    return [
        peers.contender("pipe", "by hand: pipes, router process", "pipe_count.py", 25 * million),
        heronpy("heronpy", "heronpy, acks off, 1 container", 1, "ATMOST_ONCE", 25 * million),
        heronpy("heronpy-2", "heronpy, acks off, 2 containers", 2, "ATMOST_ONCE", 25 * million),
        heronpy("heronpy-acks", "heronpy, at least once, 1 container", 1, "ATLEAST_ONCE", 15 * million),
        heronpy("heronpy-acks-2", "heronpy, at least once, 2 containers", 2, "ATLEAST_ONCE", 15 * million),
        heronpy("heronpy-once", "heronpy, effectively once, 1 container", 1, "EFFECTIVELY_ONCE", 25 * million),
        heronpy("heronpy-once-2", "heronpy, effectively once, 2 containers", 2, "EFFECTIVELY_ONCE", 25 * million),
        peers.contender("bytewax", "Bytewax, 1 process", "bytewax_count.py", 20 * million, "bytewax", "0.21.1", "1"),
        peers.contender("bytewax-2", "Bytewax, 2 processes", "bytewax_count.py", 5 * million, "bytewax", "0.21.1", "2"),
        peers.contender(
            "bytewax-word",
            "Bytewax, 1 process, state per word",
            "bytewax_count.py",
            5 * million,
            "bytewax",
            "0.21.1",
            "1",
            "word",
        ),
        peers.contender("pathway", "Pathway", "pathway_count.py", 2 * million, "pathway", "0.33.0"),
        peers.contender(
            "pyflink", "PyFlink, process mode", "pyflink_count.py", million // 2, "apache-flink", "2.3.0", "process"
        ),
        peers.contender(
            "pyflink-thread",
            "PyFlink, thread mode",
            "pyflink_count.py",
            million // 2,
            "apache-flink",
            "2.3.0",
            "thread",
        ),
    ]


# ---- rounds --------------------------------------------------------------------------------------


def compete(found: list[Contender], rounds: int, scale: float) -> list[Calibration]:
    """Measure all contenders, in reverse order in every second round; return the calibrations of all rounds."""
    calibrations = [calibrate()]
    for number in range(rounds):
        for contender in found if number % 2 == 0 else reversed(found):
            if contender.reason:
                continue
            print(f"round {number + 1} of {rounds}: {contender.label} ...", end=" ", file=sys.stderr, flush=True)
            try:
                large = max(int(contender.words * scale) // LENGTH, SPREAD) * LENGTH
                small = large // LENGTH // SPREAD * LENGTH
                (cpu_small, wall_small), (cpu, wall) = contender.run(small), contender.run(large)
            except Unavailable as error:
                contender.reason = str(error)
                print(contender.reason, file=sys.stderr)
                continue
            millions = (large - small) / 1e6
            if cpu <= cpu_small or wall <= wall_small:
                print("too few words to measure; use a larger --scale", file=sys.stderr)
                continue
            contender.cpu.append((cpu - cpu_small) / millions)
            contender.rate.append((large - small) / (wall - wall_small))
            print(f"{contender.cpu[-1]:.3f} CPU-s per million, {contender.rate[-1]:,.0f} words/s", file=sys.stderr)
        calibrations.append(calibrate())
    return calibrations


def markdown(found: list[Contender], verdict: dict[str, Any], rounds: int) -> str:
    about = facts()
    host = about["host"]
    pipe = next((statistics.median(c.cpu) for c in found if c.name == "pipe" and c.cpu), None)
    lines = [
        f"{about['date'][:10]}, {host['cores']} cores ({host['cpu']}), Linux {host['kernel']}, "
        f"Python {about['python']},"
        f" medians of {rounds} (range). {verdict['text'].capitalize()}; the calibration loop"
        f" `counts[word] = counts.get(word, 0) + 1` needs {verdict['loop_s_per_million']:.3f} CPU-s per million.",
        "",
        "| | version | CPU-s per million words | words/s | CPU against by hand |",
        "|---|---|---|---|---|",
    ]
    for contender in found:
        if contender.cpu:
            cpu, rate = statistics.median(contender.cpu), statistics.median(contender.rate)
            span = f"{cpu:.2f} ({min(contender.cpu):.2f}-{max(contender.cpu):.2f})"
            ratio = f"{cpu / pipe:.1f}x" if pipe else ""
            lines.append(f"| {contender.label} | {contender.version or '-'} | {span} | {rate:,.0f} | {ratio} |")
        else:
            lines.append(
                f"| {contender.label} | {contender.version or '-'} | {contender.reason or 'not measured'} | | |"
            )
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart, with its range if it was measured several times."""

    label: str
    value: float
    low: float
    high: float
    colour: int = 0


def bars(title: str, unit: str, items: Sequence[Bar]) -> str:
    """Return an SVG file with horizontal bars on a logarithmic scale."""
    row, left = 24, 250
    height = TOP + 26 + row * len(items) + 24
    smallest = min((item.low for item in items if item.low > 0), default=1.0)
    low, high = math.floor(math.log10(smallest)), math.log10(max((item.high for item in items), default=1.0)) + 0.25

    def x(value: float) -> float:
        return left + (math.log10(max(value, 10.0**low)) - low) / (high - low) * (WIDTH - left - 60)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot bars"'
        f' viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        _STANDALONE,
    ]
    parts.append(f'<text class="title" x="4" y="{TOP + 6}">{escape(title)}</text>')
    for power in range(int(low), int(high) + 1):
        at = x(10.0**power)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP + 16}" y2="{height - 22}"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - 8}" text-anchor="middle">{10.0**power:g}</text>')
    for number, item in enumerate(items):
        y = TOP + 22 + row * number
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(item.label)}</text>')
        parts.append(
            f'<rect class="f{item.colour}" x="{left}" y="{y}" width="{max(x(item.value) - left, 1):.1f}"'
            f' height="{row - 7}"/>'
        )
        parts.append(
            f'<line class="axis" x1="{x(item.low):.1f}" x2="{x(item.high):.1f}" y1="{y + 8.5}" y2="{y + 8.5}"/>'
        )
        parts.append(f'<text x="{x(item.high) + 6:.1f}" y="{y + 13}">{item.value:.3g}</text>')
    parts.append(f'<text x="4" y="{height - 8}">{escape(unit)}</text></svg>')
    return "".join(parts)


#: Colours for a plot in a document.
_STANDALONE = (
    "<style>svg{background:#fff;font:11px system-ui,sans-serif}text{fill:#444}.title{font-weight:600;fill:#111}"
    ".grid{stroke:#ddd}.axis{stroke:#222}.f0{fill:#3366aa}.f1{fill:#bbbbbb}.f2{fill:#cc6633}</style>"
)


def plot(found: list[Contender]) -> str:
    """Return the figures as a bar chart (SVG)."""
    items = [
        Bar(c.label, statistics.median(c.cpu), min(c.cpu), max(c.cpu), 2 if c.name == "pipe" else c.colour)
        for c in found
        if c.cpu
    ]
    return bars("CPU seconds per million words (less is better)", "logarithmic", items)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each contender (default: 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of words (default: 1)")
    parser.add_argument(
        "--rates",
        nargs="?",
        const=peer_rates.DEFAULT_RATES,
        metavar="N,N,...",
        help=f"compare at these tuples per second instead (default: {peer_rates.DEFAULT_RATES})",
    )
    parser.add_argument("--slow", action="store_true", help="compare with one of four parallel steps slow instead")
    parser.add_argument("--seconds", type=float, help="seconds per measurement; default: 6 (--rates) or 20 (--slow)")
    parser.add_argument("--only", default="", help="contenders, by full or first name, such as pipe,heronpy")
    parser.add_argument("--cache", type=Path, help="virtual environments (default: ~/.cache/heronpy/peers)")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--plot", type=Path, help="write the plot (SVG) to this file")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    cache = (options.cache or home / "heronpy" / "peers").absolute()
    make_folders(cache)
    if options.rates is not None or options.slow:
        return (compare_slow if options.slow else compare_rates)(parser, options, cache)
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        found = _chosen(parser, options.only, contenders(Peers(cache, word_list(DISTINCT, LENGTH), Path(scratch))))
        verdict = noise_of(compete(found, options.rounds, options.scale), [])
    rows = [
        {
            "name": c.name,
            "label": c.label,
            "version": c.version,
            "cpu_s_per_million": c.cpu,
            "words_per_s": c.rate,
            "reason": c.reason,
        }
        for c in found
    ]
    content = {"schema": 1, "kind": "peers", **facts(), "calibration": verdict, "contenders": rows}
    _write(options, markdown(found, verdict, options.rounds), content)
    if options.plot:
        make_output(options.plot.parent)
        options.plot.write_text(plot(found), encoding="utf-8")
    return 0


def compare_rates(parser: argparse.ArgumentParser, options: argparse.Namespace, cache: Path) -> int:
    """Run the comparison at fixed rates (`--rates`)."""
    try:
        asked = rates.rates_of(options.rates)
    except HeronError as error:
        parser.error(str(error))
    if not all(asked):
        parser.error("--rates needs rates above 0; to run as fast as possible, leave out --rates")
    seconds = _seconds(parser, options, 6.0)
    found = _chosen(parser, options.only, peer_rates.contenders(cache))
    verdict = peer_rates.compete(found, asked, seconds, options.rounds)
    table = peer_rates.markdown(found, asked, verdict, options.rounds, seconds)
    _write(options, table, peer_rates.as_json(found, verdict, seconds))
    return 0


def compare_slow(parser: argparse.ArgumentParser, options: argparse.Namespace, cache: Path) -> int:
    """Run the comparison with a slow step (`--slow`)."""
    if options.rates is not None:
        parser.error("--slow has no fixed rate; leave out --rates or --slow")
    seconds = _seconds(parser, options, 20.0)
    found = _chosen(parser, options.only, peer_slow.contenders(cache))
    peer_slow.compete(found, seconds)
    _write(options, peer_slow.markdown(found, seconds), peer_slow.as_json(found, seconds))
    return 0


def _seconds(parser: argparse.ArgumentParser, options: argparse.Namespace, usual: float) -> float:
    """Return the seconds per measurement; refuse too short measurements, and --plot."""
    if options.plot:
        parser.error("--plot is only for the word count; leave out --plot, or --rates and --slow")
    seconds = usual if options.seconds is None else float(options.seconds)
    if seconds < 2:
        parser.error("--seconds must be at least 2")
    return seconds


def _write(options: argparse.Namespace, table: str, content: dict[str, Any]) -> None:
    """Print the table, and write the requested files."""
    print(table)
    for path, text in ((options.markdown, table), (options.json, json.dumps(content, indent=1))):
        if path:
            make_output(path.parent)
            path.write_text(text, encoding="utf-8")


def _chosen(parser: argparse.ArgumentParser, only: str, found: list[Any]) -> list[Any]:
    """Return the contenders that --only names, or all contenders."""
    wanted = [part for part in only.split(",") if part]
    unknown = [part for part in wanted if not any(_is(c, part) for c in found)]
    if unknown:
        parser.error(f"there is no contender '{unknown[0]}'; choose from {', '.join(c.name for c in found)}")
    return [c for c in found if not wanted or any(_is(c, part) for part in wanted)]


def _is(contender: Contender | peer_rates.RateContender | peer_slow.SlowContender, name: str) -> bool:
    return contender.name == name or contender.name.partition("-")[0] == name


if __name__ == "__main__":
    sys.exit(main())
