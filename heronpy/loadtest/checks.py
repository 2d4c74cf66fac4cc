"""Checks of a run: exact counts, and other requirements of its profile. Reads no files except Spark's table."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heronpy.loadtest.inputs import KINDS, expected_counts, expected_totals, flight_lines, sentences, word_list
from heronpy.loadtest.measure import Growth, Reports, episodes
from heronpy.loadtest.profiles import Load
from heronpy.loadtest.watch import Watch

RATE_HELD = 0.99
#: Seconds that the last tuple may be late, independent of the length of the run.
LAST_LATE_S = 0.1
#: Maximum rate of backpressure announcements.
TOGGLES_MAX_PER_S = 1.0
#: After a stall: the required share of the earlier throughput, and the time limit in seconds.
RECOVERED, RECOVERED_MAX_S = 0.9, 2.0
#: Maximum growth of memory that counts as flat: bytes, and share of the initial size.
FLAT_BYTES, FLAT_PART = 8 << 20, 0.05


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a run, and whether it holds."""

    name: str
    ok: bool
    text: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def checks(load: Load, reports: Reports, seen: Watch, growth: Growth | None, out: Path) -> list[Check]:
    """Return all checks of a run, beginning with exactness."""
    found = [EXACT[load.topology](load, reports, out), lost(seen), *memory_flat(growth)]
    if load.topology == "slow_bolt":
        found += [stall(reports)] if "stall_s" in load.parameters else slow_bolt(reports, seen)
    if load.rate and load.topology == "passthrough":
        found.append(rate_held(load, reports))
    if load.parameters.get("burst_s") and reports.sinks:
        found.append(burst(load, reports))
    return found


def lost(seen: Watch) -> Check:
    """Check that no tuple was discarded and no process was restarted."""
    restarts, discarded = seen.restarts(), seen.discarded()
    parts = [f"{discarded:,} tuples were discarded"] if discarded else []
    parts += [f"restarted: {', '.join(restarts)}"] if restarts else []
    return Check("nothing lost", not parts, "; ".join(parts) or "no tuple discarded, no process restarted")


def memory_flat(growth: Growth | None) -> list[Check]:
    """Check that memory does not grow with the number of tuples; return no check if the run is too short."""
    if growth is None:
        return []
    text = f"{growth.bytes / 2**20:+.1f} MB in {growth.seconds:.0f} s"
    flat = growth.bytes <= FLAT_BYTES + FLAT_PART * growth.first
    if not flat:
        text += f", mostly in {growth.role}"
    return [Check("memory flat", flat, text)]


def _exact(ok: bool, got: int, expected: int, unit: str, replayed: int, detail: str) -> Check:
    """Return the exactness check; with replays, duplicates are allowed and counted."""
    if ok and got == expected:
        return Check("counts", True, f"exact: {got:,} of {expected:,} {unit}{detail}")
    if ok:
        text = f"at least once: {got:,} arrivals of {expected:,} {unit}, {replayed:,} replayed{detail}"
        return Check("counts", True, text)
    return Check("counts", False, f"WRONG: {got:,} instead of {expected:,} {unit}{detail}")


def _exact_counter(
    expected: Counter[Any], got: Counter[Any], unit: str, replayed: int, detail: str, ok: bool = True, copies: int = 1
) -> Check:
    """Compare the expected with the actual counts; each unit is counted `copies` times."""
    missing, surplus = (expected - got).total(), (got - expected).total()
    ok = ok and not missing and (not surplus or bool(replayed))
    if not ok:
        detail += f"; {missing:,} missing, {surplus:,} too many"
    return _exact(ok, got.total() // copies, expected.total() // copies, unit, replayed, detail)


def exact_words(load: Load, reports: Reports, out: Path) -> Check:
    """Check that every word has the right count."""
    p = load.parameters
    messages: Any = word_list(p["distinct"], p["words"], p["zipf"])
    if p["split_bolts"]:
        messages = sentences(messages)
    expected: Counter[str] = Counter()
    for message, times in expected_counts(messages, [report["tuples"] for report in reports.spouts]).items():
        for word in message.split():
            expected[word] += times
    got: Counter[str] = Counter()
    homes: Counter[str] = Counter()
    for report in reports.sinks:
        got.update(report["counts"])
        homes.update(report["counts"].keys())
    split = sum(tasks > 1 for tasks in homes.values())
    detail = f", {len(expected):,} distinct" + (f"; {split} words are counted in two or more tasks" if split else "")
    return _exact_counter(expected, got, "words", reports.replayed, detail, not split)


def exact_numbers(load: Load, reports: Reports, out: Path) -> Check:
    """Check the number of received tuples and the sum of their sequence numbers."""
    copies = len(reports.sinks) if load.parameters.get("copies") else 1
    expected = reports.sent * copies
    sums = sum(report["tuples"] * (report["tuples"] - 1) // 2 for report in reports.spouts) * copies
    got = sum(report.get("numbers", 0) for report in reports.sinks)
    right = got == sums and reports.total == expected
    ok = right or (bool(reports.replayed) and reports.total >= expected)
    detail = "" if right else f"; the sum of the sequence numbers is {got} instead of {sums}"
    return _exact(ok, reports.total, expected, load.unit, reports.replayed, detail)


def exact_bytes(load: Load, reports: Reports, out: Path) -> Check:
    """Check that all payloads arrived, byte for byte."""
    expected = sum(report["bytes"] for report in reports.spouts)
    got = sum(report["bytes"] for report in reports.sinks)
    wrong = sum(report["wrong"] for report in reports.sinks)
    right = not wrong and reports.total == reports.sent and got == expected
    ok = right or (bool(reports.replayed) and not wrong and got >= expected)
    detail = f", {got:,} bytes, {wrong} payloads differ"
    return _exact(ok, reports.total, reports.sent, "tuples", reports.replayed, detail)


def exact_table(load: Load, reports: Reports, out: Path) -> Check:
    """Check that Spark's table contains every row once."""
    import pyarrow.parquet as parquet

    numbers: list[int] = []
    for path in sorted((out / "spark-table").rglob("*.parquet")):
        if not any(part.startswith((".", "_")) for part in path.relative_to(out).parts):
            numbers += parquet.ParquetFile(path).read(columns=["number"])["number"].to_pylist()
    expected = Counter(number for report in reports.spouts for number in range(report["tuples"]))
    return _exact_counter(expected, Counter(numbers), "rows in the table", reports.replayed, "")


def exact_totals(load: Load, reports: Reports, out: Path) -> Check:
    """Check that every line is counted once under each of its keys."""
    p = load.parameters
    lines = flight_lines(p["lines"], p["carriers"], p["origins"], p["delays"])
    expected = expected_totals(lines, [report["tuples"] for report in reports.spouts])
    got: Counter[tuple[str, str, int]] = Counter()
    for report in reports.sinks:
        for kind, key, delay, count in report["totals"]:
            got[kind, key, delay] += count
    kinds = len(KINDS)
    return _exact_counter(expected, got, load.unit, reports.replayed, f", each counted by {kinds} keys", copies=kinds)


EXACT: dict[str, Callable[[Load, Reports, Path], Check]] = {
    "aggregate": exact_totals,
    "words": exact_words,
    "passthrough": exact_numbers,
    "slow_bolt": exact_numbers,
    "big_tuples": exact_bytes,
    "spark_sink": exact_table,
}


def rate_held(load: Load, reports: Reports) -> Check:
    """Check that the sinks kept up with the schedule."""
    wanted = load.rate * len(reports.spouts) * (len(reports.sinks) if load.parameters["copies"] else 1)
    if load.parameters["burst_s"]:
        return Check("rate", True, f"{wanted:,.0f}/s, {load.parameters['burst_factor']:g} times this rate in the burst")
    seconds = max(reports.last_arrival() - reports.start(), 1e-9)
    rate = reports.total / seconds
    ok = seconds <= reports.total / wanted / RATE_HELD + LAST_LATE_S
    return Check("rate", ok, f"{rate:,.0f}/s, target {wanted:,.0f}/s")


def burst(load: Load, reports: Reports) -> Check:
    """Check the time from the end of the burst until the latency returned to its earlier value."""
    p = load.parameters
    begin = reports.start() + p["burst_at_s"]
    end = begin + p["burst_s"]
    rows = sorted(tuple(row) for report in reports.sinks for row in report["latency"]["timeline"])
    before = sorted(row[3] for row in rows if begin - p["burst_at_s"] / 2 <= row[0] < begin)
    within = [row[3] for row in rows if begin <= row[0] < end]
    if not before or not within:
        return Check("burst", True, "the run was too short to compare before and after the burst")
    limit = max(before[len(before) // 2] * 2, 1_000_000)
    # The latency has recovered at the first of five consecutive calm ticks.
    after = [row for row in rows if row[0] >= end]
    calm = (place for place in range(4, len(after)) if all(row[3] <= limit for row in after[place - 4 : place + 1]))
    recovered = next((after[place][0] - end for place in calm), None)
    text = f"p99 up to {max(within) / 1e6:.1f} ms during the burst, {before[len(before) // 2] / 1e6:.2f} ms before; "
    if recovered is None:
        late = sum(row[3] > limit for row in after)
        return Check("burst", False, text + f"not recovered before the end ({late} late ticks)")
    return Check("burst", True, text + f"recovered {max(0.0, recovered - 0.4):.1f} s after the burst")


def slow_bolt(reports: Reports, seen: Watch) -> list[Check]:
    """Check that backpressure does not toggle and, with one sink, names the slow task as culprit."""
    seconds = max(sink["fast_at"] - sink["first_at"] for sink in reports.sinks)
    announced = episodes(seen.statuses)
    text = f"{len(announced)} backpressure announcements in {seconds:.0f} s"
    found = [Check("no toggling", len(announced) <= TOGGLES_MAX_PER_S * max(seconds, 1.0), text)]
    if len(reports.sinks) == 1:
        named = {name for look in seen.statuses for name in look.culprits}
        right = bool(named) and all("_slow_" in name for name in named)
        found.append(Check("culprit", right, f"reported: {', '.join(sorted(named)) or 'no task'}"))
    return found


def resumed_s(reports: Reports, fast_at: float, fast: float) -> float | None:
    """Return the seconds from `fast_at` until the spout emitted faster than `fast`; None if it never did."""
    later = [(at - fast_at, rate) for at, rate in _rates(reports.spouts[0]["timeline"]) if at > fast_at]
    return next((after for after, rate in later if rate > fast), None)


def _rates(timeline: list[list[float]]) -> list[tuple[float, float]]:
    """Return (time, rate since the previous mark) for each mark except the first."""
    marks = itertools.pairwise(timeline)
    return [(after[0], (after[1] - before[1]) / max(after[0] - before[0], 1e-9)) for before, after in marks]


def stall(reports: Reports) -> Check:
    """Check the time from the end of the stall until the sink reached 90 % of its earlier throughput."""
    sink = reports.sinks[0]
    stalled_at, resumed_at = sink["stalled_at"], sink["resumed_at"]
    windows = _rates(sink["timeline"])
    before_rates = sorted(rate for at, rate in windows if stalled_at - 3 <= at <= stalled_at)
    if not before_rates or not resumed_at:
        return Check("recovery", False, "the bolt never stalled: the run was too short")
    usual = before_rates[len(before_rates) // 2]
    # The first window after the stall contains the stall itself.
    later = [(at, rate) for at, rate in windows if at > resumed_at][1:]
    recovered = next((at - resumed_at for at, rate in later if rate >= RECOVERED * usual), None)
    if recovered is None:
        return Check("recovery", False, f"the rate did not return to {RECOVERED:.0%} of {usual:,.0f}/s")
    text = f"{RECOVERED:.0%} of {usual:,.0f}/s reached {recovered:.1f} s after a stall of "
    return Check("recovery", recovered < RECOVERED_MAX_S, text + f"{resumed_at - stalled_at:.1f} s")
