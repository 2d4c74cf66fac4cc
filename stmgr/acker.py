"""The acker of one spout task: detects when a tuple and all tuples derived from it are processed. Pure.

A tree of tuples is one 64-bit number: each copy of a tuple has a random edge, which is XORed in when
the copy is sent and again when it is acked; when the number is zero the tree is complete (as in Storm
and Heron). Roots are consecutive numbers, so the trees are a ring of uint64 indexed by
root, and a whole frame is registered or acknowledged by one vectorised XOR on a slice.

Roots may be registered out of order: a tuple with several copies is registered ahead of the tuples that
still wait for credit. An acker handles the roots of only one incarnation of its spout task.

Invariants: `live[slot]` is true exactly while the root of that slot is registered, and not complete, failed or
forgotten; `value[slot]` is zero when it is not live; live roots are in [low, next), which is never longer than the
ring.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from heronpy.proto import frame_pb2
from heronpy.wire.frames import (
    ACK,
    COMPLETE,
    FAIL,
    NO_RUNS,
    REGISTER,
    Array64,
    Frame,
    Runs,
    count_of,
    distinct,
    edges_of,
    expand,
    fits,
    joined,
    one_run,
    pack64,
    part_of,
    read_runs,
    root_tasks_of,
    roots_of,
    runs_of,
    values_of,
)

from .neighbours import LocalTask, Peer

RING_MIN = 1 << 12
#: Maximum number of slots, 9 bytes each: 144 MB at most per spout task. Beyond it, the oldest trees are failed.
RING_MAX = 1 << 24
#: Runs of at least the first number of roots are acked one by one, shorter runs in groups of the second number.
RUN_LONG, RUNS_AT_ONCE = 256, 1024
#: Up to this number of consecutive roots are handled one by one, because NumPy calls would cost several times more.
FEW = 4
#: The exceptions that arrays of roots, tasks and values cause if their lengths differ or values exceed 64 bits.
UNFIT = (ValueError, IndexError, OverflowError)
#: Maximum size of a COMPLETE without its runs, which take up to 12 bytes each.
HEAD_BYTES, RUN_BYTES = 256, 12
#: Maximum number of runs in one COMPLETE.
RUNS_MAX = 1 << 15


class Acker:
    """The tuple trees of one spout task."""

    def __init__(self) -> None:
        self._value = np.zeros(RING_MIN, dtype=np.uint64)
        self._live = np.zeros(RING_MIN, dtype=bool)
        self._mask = RING_MIN - 1
        #: Roots below this number are not live.
        self._low = 0
        #: Roots from this number on were never registered.
        self._next = 0
        self.live_roots = 0
        #: Number of acks and fails for roots that are not live: late, repeated, or of an earlier incarnation.
        self.unknown_roots = 0

    # ---- registering --------------------------------------------------------------------------

    def register(self, frame: frame_pb2.Frame) -> Runs:
        """Register the roots of a frame from the spout; return the roots that must fail because the ring is full."""
        base, count = frame.root_base, frame.count
        failed = self._make_room(base, base + count)
        if base < self._low:
            # The other roots are so far behind the newest that the ring has no space for them.
            return joined([failed, one_run(base, count)])
        start = base & self._mask
        if start + count <= len(self._value):
            self._value[start : start + count] = values_of(frame) if frame.values or frame.derived_edges else frame.edge
            self._live[start : start + count] = True
        else:
            slots = np.arange(base, base + count, dtype=np.uint64) & np.uint64(self._mask)
            self._value[slots] = values_of(frame)
            self._live[slots] = True
        self.live_roots += count
        return failed

    def _make_room(self, first: int, end: int) -> Runs:
        """Make room in the ring for the roots from `first` to `end` - 1; return the roots to fail."""
        if not self.live_roots:
            self._low, self._next = first, first
        failed: Runs = NO_RUNS
        low, after = min(self._low, first), max(self._next, end)
        if after - low > len(self._value):
            self._advance()
            low = min(self._low, first)
            if after - low > RING_MAX:
                failed = self._drop_below(after - RING_MAX // 2)
                # The given roots may be old; roots below `low` are not registered.
                low = self._low
                if not self.live_roots and first >= low:
                    low = first  # no live root needs room
            while after - low > len(self._value):
                self._grow()
        self._low, self._next = low, after
        return failed

    def _advance(self) -> None:
        """Move `low` up to the oldest live root."""
        if self.live_roots:
            roots = self._roots_from_low()
            live = self._live[roots & np.uint64(self._mask)]
            self._low = int(roots[int(np.argmax(live))])

    def _roots_from_low(self) -> Array64:
        end = min(self._next, self._low + len(self._value))
        return np.arange(self._low, max(end, self._low), dtype=np.uint64)

    def _drop_below(self, root: int) -> Runs:
        roots = self._roots_from_low()
        roots = roots[roots < np.uint64(root)]
        gone = roots[self._live[roots & np.uint64(self._mask)]]
        self._clear(gone)
        self._low = max(self._low, root)
        self._next = max(self._next, self._low)
        return runs_of(gone)

    def _grow(self) -> None:
        """Double the ring; every root keeps its number and moves to its slot in the larger ring."""
        roots = self._roots_from_low()
        old = roots & np.uint64(self._mask)
        value = np.zeros(2 * len(self._value), dtype=np.uint64)
        live = np.zeros(2 * len(self._live), dtype=bool)
        mask = len(value) - 1
        new = roots & np.uint64(mask)
        value[new], live[new] = self._value[old], self._live[old]
        self._value, self._live, self._mask = value, live, mask

    # ---- acknowledging ------------------------------------------------------------------------

    def ack(self, frame: frame_pb2.Frame) -> Runs:
        """XOR an ACK into the trees; return the roots that are now complete."""
        if frame.run_first:
            return self._ack_runs(frame)
        if frame.roots or frame.root_counts:
            return self._ack_many(roots_of(frame), values_of(frame))
        if frame.count <= FEW and not frame.derived_edges:
            values = values_of(frame).tolist() if frame.values else [frame.edge] * frame.count
            return self._ack_few(frame.root_base, values)
        if frame.values:
            return self._ack_slice(frame.root_base, frame.count, values_of(frame))
        if frame.derived_edges:
            return self._ack_slice(frame.root_base, frame.count, edges_of(frame))
        return self._ack_slice(frame.root_base, frame.count, np.uint64(frame.edge))

    def _ack_few(self, base: int, values: list[int]) -> Runs:
        """Ack a few consecutive roots, with a value for each."""
        done: list[int] = []
        for root, edge in enumerate(values, base):
            slot = root & self._mask
            if not (self._low <= root < self._next and self._live.item(slot)):
                self.unknown_roots += 1
                continue
            value = self._value.item(slot) ^ edge
            self._value[slot] = value
            if not value:
                self._live[slot] = False
                done.append(root)
        self.live_roots -= len(done)
        if done and done[-1] - done[0] == len(done) - 1:
            return one_run(done[0], len(done))
        return joined([one_run(root, 1) for root in done])

    def _ack_slice(self, base: int, count: int, values: np.uint64 | Array64) -> Runs:
        """Ack consecutive roots, with one value for all or one for each."""
        start = base & self._mask
        if base < self._low or base + count > self._next or start + count > len(self._value):
            # The count is a claim of the sender, so it is limited to the number of roots that can be live.
            first, end = max(base, self._low), min(base + count, self._next)
            known = max(0, end - first)
            self.unknown_roots += count - known
            roots = np.arange(first, first + known, dtype=np.uint64)
            mine = values[first - base :][:known] if isinstance(values, np.ndarray) else np.full(known, values)
            return self._ack_many(roots, mine)
        live = self._live[start : start + count]
        value = self._value[start : start + count]
        if live.all():
            value ^= values
            if not value.any():
                live[:] = False
                self.live_roots -= count
                return one_run(base, count)
            done = np.flatnonzero(value == 0)
        else:
            self.unknown_roots += count - int(np.count_nonzero(live))
            np.bitwise_xor(value, values, out=value, where=live)
            done = np.flatnonzero((value == 0) & live)
        if not len(done):
            return NO_RUNS
        live[done] = False
        self.live_roots -= len(done)
        return runs_of(done.astype(np.uint64) + np.uint64(base))

    def _ack_runs(self, frame: frame_pb2.Frame) -> Runs:
        """Ack many runs of roots with one value each; the runs may overlap."""
        first, length = read_runs((frame.run_first, frame.run_length))
        edges = np.frombuffer(frame.run_edge, dtype="<u8")
        long = length >= RUN_LONG
        done = [
            self._ack_slice(base, count, edge)
            for base, count, edge in zip(first[long].tolist(), length[long].tolist(), edges[long], strict=True)
        ]
        if not long.all():
            first, length, edges = first[~long], length[~long], edges[~long]
            for low in range(0, len(first), RUNS_AT_ONCE):
                part = slice(low, low + RUNS_AT_ONCE)
                roots = expand(first[part], length[part])
                done.append(self._ack_many(roots, np.repeat(edges[part], length[part])))
        return joined(done)

    def _ack_many(self, roots: Array64, values: Array64) -> Runs:
        if len(roots) != len(values):
            raise ValueError(f"{len(roots)} roots with {len(values)} values")
        keep = self._known(roots)
        if not keep.all():
            roots, values = roots[keep], values[keep]
        if not len(roots):
            return NO_RUNS
        roots, values = distinct(roots, values)
        # Signed, because NumPy converts other indices; ascending roots are distinct, so no XOR is lost.
        slots = (roots & np.uint64(self._mask)).view(np.int64)
        after = self._value[slots] ^ values
        self._value[slots] = after
        done = roots[after == 0]
        self._clear(done)
        return runs_of(done)

    def _known(self, roots: Array64) -> NDArray[np.bool_]:
        inside = (roots >= np.uint64(self._low)) & (roots < np.uint64(self._next))
        known: NDArray[np.bool_] = inside & self._live[(roots & np.uint64(self._mask)).view(np.int64)]
        self.unknown_roots += len(roots) - int(np.count_nonzero(known))
        return known

    def _clear(self, roots: Array64) -> None:
        slots = roots & np.uint64(self._mask)
        self._value[slots] = 0
        self._live[slots] = False
        self.live_roots -= len(roots)

    def fail(self, frame: frame_pb2.Frame) -> Runs:
        """Remove the roots of a FAIL, FORGET or undelivered DATA frame; return the roots that were live."""
        roots = np.unique(roots_of(frame))
        roots = roots[self._known(roots)]
        self._clear(roots)
        return runs_of(roots)


class Acking:
    """Routes acks, fails and registrations to the acker of their spout, here or at another stream manager.

    It finds the acker of each message, and shares the switch's tasks, peers, places and counters.

    Invariant: a message with inconsistent arrays is counted and changes nothing else.
    """

    def __init__(
        self,
        tasks: dict[int, LocalTask],
        peers: dict[str, Peer],
        remote: dict[int, str],
        counts: Counter[str],
        frame_max_bytes: int,
    ) -> None:
        self._tasks = tasks
        self._peers = peers
        self._remote = remote
        self._counts = counts
        self._runs_max = min(RUNS_MAX, max(1, (frame_max_bytes - HEAD_BYTES) // RUN_BYTES))
        #: The ackers of the spouts of this container.
        self.ackers: dict[int, Acker] = {}

    def take(self, frame: frame_pb2.Frame, data: bytes) -> None:
        """Apply a message for the acker of a spout."""
        if not fits(frame):
            self._counts["malformed_frames"] += 1
            return
        try:
            self._take(frame, data)
        except UNFIT:
            self._counts["garbage"] += 1

    def _take(self, frame: frame_pb2.Frame, data: bytes) -> None:
        spout = frame.dest_task
        acker = self.ackers.get(spout)
        if acker is None:
            peer = self._peers.get(self._remote.get(spout, ""))
            if peer is None or not peer.link.send_control(data):
                self._counts["ack_tuples_lost"] += frame.count
            return
        kind = frame.kind
        if kind == ACK:
            self._counts["ack_tuples"] += frame.count
            self._completed(spout, acker.ack(frame), failed=False)
        elif kind == REGISTER:
            self._completed(spout, acker.register(frame), failed=True)
        elif kind == FAIL:
            self._counts["fail_tuples"] += frame.count
            self._completed(spout, acker.fail(frame), failed=True)
        else:
            acker.fail(frame)

    def register(self, spout: int, frame: frame_pb2.Frame) -> None:
        """Register the roots of a frame, which the spout has not registered itself."""
        acker = self.ackers.get(spout)
        if acker is not None and not frame.roots:
            try:
                self._completed(spout, acker.register(frame), failed=True)
            except UNFIT:
                self._counts["garbage"] += 1

    def fail_roots(self, frame: frame_pb2.Frame) -> None:
        """Fail the roots of a lost tracked frame now, instead of after the timeout."""
        if frame.tracked:
            try:
                self._fail_roots(frame)
            except UNFIT:
                self._counts["garbage"] += 1

    def _fail_roots(self, frame: frame_pb2.Frame) -> None:
        roots = roots_of(frame)
        tasks = root_tasks_of(frame, len(roots))
        for task in set(tasks.tolist()):
            mine = roots[tasks == task]
            fail = Frame(kind=FAIL, dest_task=task, count=len(mine), roots=pack64(mine))
            self._take(fail, fail.SerializeToString())

    def _completed(self, spout: int, runs: Runs, failed: bool) -> None:
        for low in range(0, count_of(runs), self._runs_max):
            first, length = part_of(runs, low, low + self._runs_max)
            message = Frame(kind=COMPLETE, dest_task=spout, run_first=first, run_length=length, failed=failed)
            self._tasks[spout].link.send_control(message.SerializeToString())
