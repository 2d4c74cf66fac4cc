"""The attempts of a topology's regions, as shown by frames (mode EFFECTIVELY_ONCE). Pure.

A frame of an older attempt than the plan's is stale: its tuples are processed again from the checkpoint, so it is
dropped and counted as rewound. A frame of the current attempt that must be dropped is a loss: it is reported, because
its region must be restored. Invariant: every dropped frame is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from heronpy.proto import plan_pb2


class Attempts:
    """The current attempt of each region, and the number of tuples in dropped frames."""

    def __init__(self) -> None:
        self._of: dict[int, int] = {}
        #: Number of tuples in dropped frames, by reason; each tuple is processed again.
        self.rewound: Counter[str] = Counter()
        #: Called with (attempt, task, tuples, reason) when a frame of the current attempt is dropped.
        self.on_lost: Callable[[int, int, int, str], None] = _nothing

    def use(self, plan: plan_pb2.PhysicalPlan) -> None:
        attempts = {name: region.attempt for region in plan.regions for name in region.components}
        self._of = {i.task_id: attempts[i.component] for i in plan.instances if i.component in attempts}

    def is_stale(self, task: int, attempt: int) -> bool:
        """Return whether a frame for a task belongs to an earlier attempt."""
        return 0 < attempt < self._of.get(task, 0)

    def give_up(self, task: int, attempt: int, tuples: int, reason: str) -> None:
        """Count a frame for a task as dropped."""
        self.rewound[reason] += tuples
        if not self.is_stale(task, attempt):
            self.on_lost(attempt, task, tuples, reason)


def _nothing(*_: object) -> None:
    """Do nothing; the default of the callback."""
