"""The messages that tell ackers which roots are acked or failed: few, whatever the order of the acks. Pure.

Roots are collected over all frames of one flush and packed by spout task. Acks of tuples without anchored outputs are
sent as runs of roots with one XOR value each, when that is shorter; all others as ascending, distinct roots with a
value each: the tuple's own edge XOR the edges of all tuples anchored to it.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from heronpy.proto import frame_pb2
from heronpy.wire.frames import ACK, COUNT_MAX, Array32, Array64, Frame, Kind, pack32, pack64
from heronpy.wire.runs import distinct, lengths_of, starts_of

from .tuples import InFrame, Places

#: Maximum size of a message without its roots or runs, which take up to 16 and 20 bytes each.
HEAD_BYTES, ROOT_BYTES, RUN_BYTES = 256, 16, 20
#: Maximum number of roots or runs per message.
MESSAGE_MAX = 1 << 16


def whole_ack(task_id: int, envelope: frame_pb2.Frame) -> bytes:
    """The message that acks all roots of a frame of one spout task; `envelope` is the frame without its payload."""
    message = Frame()
    message.CopyFrom(envelope)
    message.kind, message.source_task, message.dest_task = ACK, task_id, envelope.root_task
    return message.SerializeToString()


def few_acks(task_id: int, spout: int, values: dict[int, int]) -> bytes:
    """One message that acks these roots of a spout task with these values; for few, at a tenth of what arrays cost."""
    roots = sorted(values)
    message = Frame(kind=ACK, source_task=task_id, dest_task=spout, count=len(roots))
    if roots[-1] - roots[0] == len(roots) - 1:
        message.root_base = roots[0]
    else:
        message.roots = _packed(roots)
    if len(roots) == 1:
        message.edge = values[roots[0]]
    else:
        message.values = _packed([values[root] for root in roots])
    return message.SerializeToString()


def _packed(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


class AckMessages:
    """The acks or fails of one flush; `packed` yields them as frames."""

    def __init__(self, kind: Kind, task_id: int, frame_max_bytes: int) -> None:
        self._kind = kind
        self._task_id = task_id
        room = frame_max_bytes - HEAD_BYTES
        self._roots_max = min(MESSAGE_MAX, max(1, room // ROOT_BYTES))
        self._runs_max = min(MESSAGE_MAX, max(1, room // RUN_BYTES))
        #: By spout task: first roots, lengths and edges of runs.
        self._runs: dict[int, tuple[list[int], list[int], list[int]]] = {}
        #: By spout task: roots and their values.
        self._single: defaultdict[int, list[tuple[Array64, Array64]]] = defaultdict(list)
        #: Roots of several spout tasks: the tasks, the roots, their values.
        self._mixed: list[tuple[Array32, Array64, Array64]] = []

    def add(self, frame: InFrame, places: Places) -> None:
        """Add tuples of a tracked frame by position, ascending, each once."""
        envelope = frame.envelope
        if envelope is None or not len(places):
            return
        if frame.plain():
            self._add_plain(envelope.root_task, envelope.root_base, envelope.edge, places)
            return
        frame.unpack()
        if len(places) < frame.count:
            at = frame.root_places(places)
            tasks, roots, values = frame.root_tasks[at], frame.roots[at], frame.values_[at]  # type: ignore[index]
        else:
            tasks, roots, values = frame.root_tasks, frame.roots, frame.values_
        if envelope.root_tasks:
            self._mixed.append((tasks, roots, values))
        else:
            self._single[envelope.root_task].append((roots, values))

    def add_run(self, spout: int, base: int, count: int, edge: int) -> None:
        """Add the acks of consecutive roots of a spout task with one edge."""
        firsts, lengths, edges = self._runs.setdefault(spout, ([], [], []))
        firsts.append(base)
        lengths.append(count)
        edges.append(edge)

    def _add_plain(self, spout: int, base: int, edge: int, places: Places) -> None:
        starts = starts_of(places)
        if self._kind == ACK and 2 * len(starts) <= len(places):
            firsts, lengths, edges = self._runs.setdefault(spout, ([], [], []))
            firsts += (places[starts] + base).tolist()
            lengths += lengths_of(starts, len(places)).tolist()
            edges += [edge] * len(starts)
            return
        roots = places.astype(np.uint64)
        roots += np.uint64(base)
        self._single[spout].append((roots, np.full(len(places), edge, dtype=np.uint64)))

    def packed(self) -> Iterator[bytes]:
        """The messages, each within the limit of a frame."""
        for spout, (firsts, lengths, edges) in self._runs.items():
            yield from self._pack_runs(spout, firsts, lengths, edges)
        self._split_mixed()
        for spout, parts in self._single.items():
            roots = np.concatenate([roots for roots, _ in parts])
            values = np.concatenate([values for _, values in parts])
            if len(roots):
                yield from self._pack_roots(spout, *distinct(roots, values))

    def _split_mixed(self) -> None:
        """Sort roots of several spout tasks by task."""
        if not self._mixed:
            return
        tasks, roots, values = (np.concatenate(arrays) for arrays in zip(*self._mixed, strict=True))
        for task in np.unique(tasks).tolist():
            mine = tasks == task
            self._single[task].append((roots[mine], values[mine]))

    def _pack_runs(self, spout: int, firsts: list[int], lengths: list[int], edges: list[int]) -> Iterator[bytes]:
        ends = np.cumsum(lengths)
        low, done = 0, 0
        while low < len(firsts):
            # A run has no more roots than a frame may have, so this takes at least one.
            within = int(np.searchsorted(ends, done + COUNT_MAX, side="right"))
            high = min(low + self._runs_max, within)
            count = int(ends[high - 1]) - done
            message = Frame(kind=self._kind, source_task=self._task_id, dest_task=spout, count=count)
            if high == low + 1:
                message.root_base, message.edge = firsts[low], edges[low]
            else:
                message.run_first = pack64(firsts[low:high])
                message.run_length = pack32(lengths[low:high])
                message.run_edge = pack64(edges[low:high])
            yield message.SerializeToString()
            low, done = high, done + count

    def _pack_roots(self, spout: int, roots: Array64, values: Array64) -> Iterator[bytes]:
        for low in range(0, len(roots), self._roots_max):
            part = roots[low : low + self._roots_max]
            message = Frame(kind=self._kind, source_task=self._task_id, dest_task=spout, count=len(part))
            if int(part[-1]) - int(part[0]) == len(part) - 1:
                message.root_base = int(part[0])
            else:
                message.roots = pack64(part)
            if self._kind == ACK:
                message.values = pack64(values[low : low + self._roots_max])
            yield message.SerializeToString()
