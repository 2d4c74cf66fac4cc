"""The verifier: recomputes the input from its seed and compares it with the records of the sinks.

A loss is a missing sequence number, and a duplicate is a repeated sequence number. Exactness means that the aggregates
per key equal the recomputation. Order means that the first deliveries of a key arrive in the order in which one process
of the source emitted them. Recovery is the duration of a fault's effect, derived from the first arrival times of
tuples. `_verdicts` contains the promises of each mode.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heronpy.loadtest.checks import Check
from heronpy.loadtest.errors import LabError
from heronpy.verify import records
from heronpy.verify.records import Records
from heronpy.verify.stream import (
    CHUNK,
    InputSpec,
    Partition,
    Totals,
    contents_totals,
    expected_contents,
    expected_totals,
    key_text,
    spec_of,
    totals_of,
)

Times = npt.NDArray[np.float64]
_NONE: Records = np.zeros(0, dtype=records.DTYPE)

#: Window of the rate, and the share of the earlier rate that it must reach.
WINDOW_S, STEP_S, HELD = 0.1, 0.02, 0.9
#: A fault has no effect if no effect is visible within these seconds.
ONSET_S = 2.0
#: Averaging window of the overall rate after a fault.
CHANGE_S = 3.0
#: Maximum averaging window of the rate before a fault.
BEFORE_S = 60.0


@dataclass(frozen=True, slots=True)
class Recovery:
    fault: str
    at_s: float
    """Seconds after the first tuple."""
    seconds: float | None
    """Seconds from the fault until the rate recovered; 0 if the rate never fell; None if it did not recover before the
    end of the input.
    """
    change: float | None = None
    """Relative change of the rate from before the first fault to after this fault; None if the input ended too soon."""


def rates(times: Times, starts: Times, window_s: float = WINDOW_S) -> Times:
    """Return the tuples per second in the window after each start."""
    found: Times = (np.searchsorted(times, starts + window_s) - np.searchsorted(times, starts)) / window_s
    return found


def mean_before(times: Times, at: float) -> float:
    first = max(float(times[0]), at - BEFORE_S) if len(times) else at
    length = at - first
    return float((np.searchsorted(times, at) - np.searchsorted(times, first)) / length) if length > 0 else 0.0


def recoveries(times: Times, faults: list[tuple[float, str]], input_ended: float) -> list[Recovery]:
    """Return the recovery of each fault, compared with the rate before the first fault. `times` are sorted."""
    found: list[Recovery] = []
    ordered = sorted(faults)
    if not ordered or not len(times):
        return found
    before = mean_before(times, ordered[0][0])
    wanted = before * HELD
    for number, (at, name) in enumerate(ordered):
        # A later fault ends the observation of an earlier fault only if the earlier fault is over.
        onset_end = min(at + ONSET_S, ordered[number + 1][0] if number + 1 < len(ordered) else at + ONSET_S)
        seconds = _seconds(times, at, onset_end, input_ended, wanted)
        known = at + CHANGE_S <= input_ended and before > 0
        change = float(rates(times, np.array([at]), CHANGE_S)[0] / before - 1) if known else None
        found.append(Recovery(name, at - float(times[0]), seconds, change))
    return found


def _seconds(times: Times, at: float, onset_end: float, input_ended: float, wanted: float) -> float | None:
    starts = np.arange(at, max(input_ended - WINDOW_S, at) + STEP_S / 2, STEP_S)
    held = rates(times, starts) >= wanted
    dips = np.flatnonzero(~held & (starts < max(onset_end, at + STEP_S)))
    if not len(dips):
        return 0.0
    after = np.flatnonzero(held[dips[0] :])
    return float(starts[dips[0] + after[0]] - at) if len(after) else None


def longest_gap(times: Times) -> float:
    """Return the longest time without a new arrival."""
    return float(np.diff(times).max()) if len(times) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    loss_max: int = 0
    """At-most-once mode: maximum number of tuples that may be lost."""
    stall_max_s: float = 60.0
    memory_max_bytes: int = 0
    """Memory limit of one process; 0 means no limit."""


@dataclass(slots=True)
class Verdict:
    """The results of a verification, and whether they keep the promises of the mode."""

    mode: str
    expected: int
    complete: bool = True
    """Whether the whole input was processed; otherwise missing tuples may merely be late."""
    arrived: int = 0
    loss: int = 0
    """Tuples that never arrived."""
    duplicates: int = 0
    unexplained: int = 0
    """Duplicates that are not replays: the source did not emit the tuple again."""
    corrupt: int = 0
    foreign: int = 0
    """Records of tuples that the source never emits, or of poison."""
    keys: int = 0
    wrong_keys: int = 0
    inversions: int | None = None
    stall_s: float = 0.0
    replays: int = 0
    rewound: int = 0
    """Effectively-once mode: records in the trace that were rolled back."""
    memory: dict[str, int] = field(default_factory=dict)
    recovery: list[Recovery] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def memory_max(self) -> int:
        return max(self.memory.values(), default=0)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "memory_max_bytes": self.memory_max, "ok": self.ok}


def _noted(out: Path) -> dict[str, Any]:
    """Return the specification that the source wrote at its first start, as a dict."""
    try:
        values: dict[str, Any] = json.loads((out / "spec.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LabError(f"{out} has no spec.json; give the folder that a SeededSource writes to") from None
    return values


def read_endless(out: Path) -> InputSpec:
    """Read the specification of an input that has no end yet. Raises LabError if the input has a count or an end."""
    spec = spec_of(_noted(out))
    if spec.count or records.read_end(out):
        raise LabError(f"the input of {out} already has an end: {spec.count or records.read_end(out):,} tuples")
    return spec


def read_spec(out: Path) -> tuple[InputSpec, str]:
    """Return the specification and the mode, as written by the source."""
    values = _noted(out)
    spec = spec_of(values)
    if not spec.count:
        spec = replace(spec, count=records.read_end(out))
    if not spec.count:
        raise LabError(f"the input of {out} has no end yet; end it with 'heron verify end {out}' and let it finish")
    return spec, values["mode"]


def verify(
    out: Path,
    spec: InputSpec,
    mode: str,
    limits: Limits,
    faults: list[tuple[float, str]] | None = None,
    memory: dict[str, int] | None = None,
    ended: float | None = None,
    complete: bool = True,
) -> Verdict:
    """Check the records in a folder.

    Rates are evaluated until `ended`, when the input left its schedule. `complete`: whether all input was processed.
    """
    traces = records.read_segments(out / records.TRACE, "*.seg")
    trace = judged = np.concatenate([_NONE, *traces])
    progress = records.read_progress(out, spec.partitions)
    verdict = Verdict(mode, spec.expected, complete, memory=memory or {}, keys=spec.keys)
    verdict.replays = sum(one.replays for one in progress)
    if mode == "EFFECTIVELY_ONCE":
        judged = np.concatenate([_NONE, *records.read_segments(out / records.ROWS, "*.committed")])
        verdict.rewound = len(trace) - len(judged)
    # Arrived poison does not belong to the input.
    own = _of_input(spec, judged) & ~np.isin(judged["seq"], np.array(spec.poisonous(), dtype=np.uint64))
    verdict.foreign = int(np.count_nonzero(~own))
    judged = judged[own]
    verdict.arrived = len(judged)
    keys, crcs = _recomputed(spec, judged)
    verdict.corrupt = int(np.count_nonzero(crcs != judged["crc"]))
    if spec.distinct:
        # A new process of the source replays tuples in flight without counting the replays.
        _count_equal(spec, judged, verdict, was_replaced=any(one.last_owner != 1 for one in progress))
    else:
        _count(spec, judged, verdict)
    if mode == "EFFECTIVELY_ONCE":
        totals = _reported_totals(out, spec, verdict)
    elif spec.distinct:
        # Surplus arrivals are duplicates; the duplicated tuple is unknown, because the tuples are equal.
        totals = contents_totals(spec, np.minimum(_contents(spec, judged), expected_contents(spec)))
    else:
        first = _first_of_each(spec, judged)
        totals = totals_of(spec, keys[first], judged["crc"][first])
    verdict.wrong_keys = len(expected_totals(spec).wrong(totals))
    if spec.in_order:
        segments = traces if mode != "EFFECTIVELY_ONCE" else [judged]
        # The commits of a transaction are one sequence, independent of the emitting process.
        within = () if mode == "EFFECTIVELY_ONCE" else ("task", "source")
        verdict.inversions = sum(_inversions(spec, part, within) for part in segments)
    _times(spec, trace, verdict, faults or [], ended)
    verdict.checks = _verdicts(verdict, limits)
    return verdict


def _of_input(spec: InputSpec, rows: Records) -> Any:
    partitions, count = (1, spec.distinct) if spec.distinct else (spec.partitions, spec.count)
    return (rows["partition"] < partitions) & (rows["seq"] < count)


def _recomputed(spec: InputSpec, rows: Records) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return the recomputed key and checksum of each record."""
    keys, crcs = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.uint32)
    for number in range(spec.partitions):
        partition, [mine] = Partition(spec, number), np.nonzero(rows["partition"] == number)
        for first in range(0, len(mine), CHUNK):
            part = mine[first : first + CHUNK]
            hashed = partition.hashes(rows["seq"][part].astype(np.uint64))
            keys[part], crcs[part] = partition.keys(hashed), partition.crcs(hashed)
    return keys, crcs


def _places(spec: InputSpec, rows: Records) -> Any:
    """Return for each record a number that is unique to its input tuple."""
    return rows["partition"].astype(np.uint64) * np.uint64(spec.count) + rows["seq"]


def _first_of_each(spec: InputSpec, rows: Records) -> Any:
    return np.unique(_places(spec, rows), return_index=True)[1]


def _count(spec: InputSpec, rows: Records, verdict: Verdict) -> None:
    different = len(np.unique(_places(spec, rows)))
    verdict.loss = spec.expected - different
    verdict.duplicates = len(rows) - different
    emissions = np.unique(rows[["partition", "seq", "source", "attempt"]])
    verdict.unexplained = len(rows) - len(emissions)


def _contents(spec: InputSpec, rows: Records) -> Any:
    """Return the number of arrivals per content."""
    return np.bincount(rows["seq"].astype(np.int64), minlength=spec.distinct)


def _count_equal(spec: InputSpec, rows: Records, verdict: Verdict, was_replaced: bool) -> None:
    """Determine loss and duplicates by the count of each content, because equal tuples cannot be distinguished."""
    more = _contents(spec, rows) - expected_contents(spec)
    verdict.loss = int(-more[more < 0].sum())
    verdict.duplicates = int(more[more > 0].sum())
    if not was_replaced:
        # The source has counted the fail that caused each replay.
        verdict.unexplained = max(0, verdict.duplicates - verdict.replays)


def _reported_totals(out: Path, spec: InputSpec, verdict: Verdict) -> Totals:
    """Return the aggregates from the sinks' state, summed over the tasks; unknown keys count as foreign."""
    counts, sums = np.zeros(spec.keys, dtype=np.int64), np.zeros(spec.keys, dtype=np.int64)
    places = {key_text(number): number for number in range(spec.keys)}
    for path in sorted((out / records.TOTALS).glob("*.json")):
        for key, (count, total) in json.loads(path.read_text(encoding="utf-8"))["totals"].items():
            if key in places:
                counts[places[key]] += count
                sums[places[key]] += total
            else:
                verdict.foreign += count
    return Totals(counts, sums)


def _inversions(spec: InputSpec, rows: Records, within: tuple[str, ...]) -> int:
    """Count the first emissions that arrive directly after a later emission of the same partition and key."""
    own = (rows["partition"] < spec.partitions) & (rows["seq"] < spec.count) & (rows["attempt"] == 0)
    rows = rows[own]
    if len(rows) < 2:
        return 0
    keys, _ = _recomputed(spec, rows)
    order = np.lexsort((rows["time"], *(rows[name] for name in within), rows["partition"], keys))
    rows, keys = rows[order], keys[order]
    same = keys[1:] == keys[:-1]
    for name in ("partition", *within):
        same &= rows[name][1:] == rows[name][:-1]
    return int(np.count_nonzero(same & (rows["seq"][1:] < rows["seq"][:-1])))


def _times(
    spec: InputSpec, trace: Records, verdict: Verdict, faults: list[tuple[float, str]], ended: float | None
) -> None:
    """Compute stall and recovery from the first arrivals of tuples."""
    trace = trace[_of_input(spec, trace)]
    if not len(trace):
        return
    trace = trace[np.argsort(trace["time"], kind="stable")]
    times = trace["time"] if spec.distinct else np.sort(trace["time"][_first_of_each(spec, trace)])
    verdict.stall_s = longest_gap(times)
    verdict.recovery = recoveries(times, faults, float(times[-1]) if ended is None else ended)


def _verdicts(v: Verdict, limits: Limits) -> list[Check]:
    """Return the checks that apply in the verdict's mode."""
    found = [Check("input", not (v.corrupt or v.foreign), f"{v.corrupt:,} corrupt, {v.foreign:,} unknown records")]
    if v.loss and not v.complete:
        text = f"{v.loss:,} of {v.expected:,} tuples had not arrived when the run was abandoned"
        found.append(Check("loss", False, f"{text}; they may be lost or late"))
    elif v.mode == "ATMOST_ONCE":
        found.append(Check("loss", v.loss <= limits.loss_max, f"{v.loss:,} lost, {limits.loss_max:,} allowed"))
    else:
        found.append(Check("loss", v.loss == 0, f"{v.loss:,} lost of {v.expected:,}"))
    if v.mode == "ATMOST_ONCE":
        found.append(Check("duplicates", v.duplicates == 0, f"{v.duplicates:,} duplicates"))
    elif v.mode == "ATLEAST_ONCE":
        text = f"{v.duplicates:,} duplicates, {v.unexplained:,} of them not replayed by the source"
        found.append(Check("duplicates", v.unexplained == 0, text))
    else:
        found.append(Check("duplicates", v.duplicates == 0, f"{v.duplicates:,} duplicate rows committed"))
    if v.complete:
        right = v.wrong_keys <= (v.loss if v.mode == "ATMOST_ONCE" else 0)
        found.append(Check("exactness", right, f"{v.wrong_keys:,} of {v.keys:,} keys differ"))
    if v.inversions is not None:
        text = f"{v.inversions:,} tuples arrived after a later tuple of their key"
        found.append(Check("order", v.inversions == 0, text))
    found.append(Check("liveness", v.stall_s <= limits.stall_max_s, f"longest stall {v.stall_s:.2f} s"))
    return found + memory_checks(v, limits)


def memory_checks(v: Verdict, limits: Limits) -> list[Check]:
    """Check that the largest process stayed below its memory limit, if there is a limit."""
    text = f"{v.memory_max / 2**20:,.0f} MB in the largest process"
    return [Check("memory", v.memory_max <= limits.memory_max_bytes, text)] if limits.memory_max_bytes else []
