"""Routes acks, fails and registrations to the acker of their spout, here or at another stream manager. Pure.

Invariant: a message whose arrays do not fit each other is counted and changes nothing else.
"""

from __future__ import annotations

from collections import Counter

from heronpy.proto import frame_pb2
from heronpy.wire.frames import ACK, COMPLETE, FAIL, REGISTER, Frame, fits, pack64, root_tasks_of, roots_of
from heronpy.wire.runs import Runs, count_of, part_of

from .acker import Acker
from .neighbours import LocalTask, Peer

#: The errors of arrays of roots, tasks and values whose lengths differ, or that exceed 64 bits.
UNFIT = (ValueError, IndexError, OverflowError)
#: Maximum size of a COMPLETE without its runs, which take up to 12 bytes each.
HEAD_BYTES, RUN_BYTES = 256, 12
#: Maximum number of runs in one COMPLETE.
RUNS_MAX = 1 << 15


class Acking:
    """Finds the acker of each message; shares the switch's tasks, peers, places and counters."""

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
        #: Of the spouts of this container.
        self.ackers: dict[int, Acker] = {}

    def take(self, frame: frame_pb2.Frame, data: bytes) -> None:
        """A message for the acker of a spout."""
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
        """The roots of a frame that its spout has not registered itself."""
        acker = self.ackers.get(spout)
        if acker is not None and not frame.roots:
            try:
                self._completed(spout, acker.register(frame), failed=True)
            except UNFIT:
                self._counts["garbage"] += 1

    def fail_roots(self, frame: frame_pb2.Frame) -> None:
        """The tuples of a tracked frame are lost: fail their roots now rather than by timeout."""
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
