"""Frames of tasks that this task's plan does not have yet; they wait for the plan. Pure.

When a component grows, its new tasks may send before every receiver has the plan they are in. What they
send can only be read with that plan, which will follow.

Invariants: at most FRAMES_MAX frames and BYTES_MAX bytes wait, each at most WAIT_S seconds; frames of one
task come out in the order they came in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from heronpy.proto import frame_pb2

FRAMES_MAX = 1000
BYTES_MAX = 8 << 20
WAIT_S = 30.0

#: A frame and its size in bytes.
Sized = tuple[frame_pb2.Frame, int]


class Strangers:
    """See the module."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[frame_pb2.Frame, int, float]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, frame: frame_pb2.Frame, size: int, now: float) -> bool:
        """Let a frame wait; False when there is no room for it."""
        if len(self._waiting) >= FRAMES_MAX or self._bytes + size > BYTES_MAX:
            return False
        self._waiting.append((frame, size, now + WAIT_S))
        self._bytes += size
        return True

    def take_known(self, known: Container[int]) -> list[Sized]:
        """Take the frames of tasks that are known now."""
        return self._take({frame.source_task for frame, _, _ in self._waiting if frame.source_task in known})

    def take_late(self, now: float) -> list[Sized]:
        """Take the frames that have waited for too long."""
        late: list[Sized] = []
        while self._waiting and self._waiting[0][2] <= now:
            frame, size, _ = self._waiting.popleft()
            self._bytes -= size
            late.append((frame, size))
        return late

    def take_all(self) -> list[Sized]:
        return self._take({frame.source_task for frame, _, _ in self._waiting})

    def _take(self, tasks: set[int]) -> list[Sized]:
        if not tasks:
            return []
        taken = [(frame, size) for frame, size, _ in self._waiting if frame.source_task in tasks]
        self._waiting = deque(one for one in self._waiting if one[0].source_task not in tasks)
        self._bytes -= sum(size for _, size in taken)
        return taken
