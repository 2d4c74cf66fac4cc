"""The counts of all processes as a message, for the next topology master. Pure.

A live process reports its counts to the new master itself, but only this message contains the counts of ended
processes. Gauges are not included, because they describe a moment.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite

from heronpy.proto import control_pb2

#: Maximum bytes of all values, because a node of the state manager is written as a whole.
LEDGER_BYTES_MAX = 512 << 10
#: Maximum decompressed bytes of one process's values; a larger size indicates damage.
_INFLATED_MAX = 4 << 20

#: Fields of a process, with the names used in reports.
_HEAD = ("process", "task_id", "component", "container", "epoch", "ends", "at_least")

#: The parts of a series: "" is a counter; a histogram has "sum", "count" and one per upper bound.
Part = str | float


@dataclass(slots=True)
class CountedSeries:
    """One counter or histogram of a process."""

    kind: int
    #: Map from part to the counts of ended processes with this name, and of the current process.
    parts: dict[Part, tuple[float, float]] = field(default_factory=dict)


@dataclass(slots=True)
class CountedProcess:
    """The counts of one process; `head` is the process's last report, minus the samples."""

    head: control_pb2.MetricsReport
    series: dict[tuple[str, str], CountedSeries] = field(default_factory=dict)


def write(topology_id: str, processes: Iterable[CountedProcess]) -> control_pb2.MetricsLedger:
    """Encode the processes; processes that do not fit are counted in `left_out`."""
    ledger = control_pb2.MetricsLedger(topology_id=topology_id)
    places: dict[tuple[str, str, int, tuple[float, ...]], int] = {}
    size = 0
    for process in processes:
        values: list[float] = []
        numbers: list[int] = []
        for (name, label), series in process.series.items():
            bounds = tuple(sorted(part for part in series.parts if isinstance(part, float)))
            key = (name, label, series.kind, bounds)
            place = places.setdefault(key, len(places))
            if place == len(ledger.series):
                kind = control_pb2.Sample.Type.Name(series.kind)
                ledger.series.add(name=name, label=label, type=kind, bounds=bounds)
            numbers.append(place)
            for part in _parts(series.kind, bounds):
                values += series.parts.get(part, (0.0, 0.0))
        packed = zlib.compress(struct.pack(f"<{len(values)}d", *values), 1)
        size += len(packed)
        if size > LEDGER_BYTES_MAX:
            size -= len(packed)
            ledger.left_out += 1
            continue
        head = {name: getattr(process.head, name) for name in _HEAD}
        ledger.processes.add(series=numbers, values=packed, **head)
    return ledger


def read(ledger: control_pb2.MetricsLedger) -> Iterator[CountedProcess]:
    """Decode the processes of a message, except processes with damaged values."""
    for told in ledger.processes:
        found = CountedProcess(control_pb2.MetricsReport(**{name: getattr(told, name) for name in _HEAD}))
        try:
            inflater = zlib.decompressobj()
            data = inflater.decompress(told.values, _INFLATED_MAX)
            if not inflater.eof:
                continue
            values = iter(struct.unpack(f"<{len(data) // 8}d", data))
            for number in told.series:
                series = ledger.series[number]
                counted = CountedSeries(series.type)
                for part in _parts(series.type, tuple(series.bounds)):
                    before, latest = next(values), next(values)
                    if not (isfinite(before) and isfinite(latest)):
                        raise ValueError(f"{series.name} has no finite value")
                    counted.parts[part] = (before, latest)
                found.series[series.name, series.label] = counted
        except (zlib.error, struct.error, IndexError, StopIteration, ValueError):
            continue
        if next(values, None) is None:
            yield found


def _parts(kind: int, bounds: tuple[float, ...]) -> tuple[Part, ...]:
    return ("sum", "count", *bounds) if kind == control_pb2.Sample.HISTOGRAM else ("",)
