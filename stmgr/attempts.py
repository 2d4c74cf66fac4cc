"""Attempts of a topology's regions as the frames show them (mode EFFECTIVELY_ONCE). Pure.

A frame of an older attempt than the plan's is stale: its tuples are processed again from the checkpoint, so
it is dropped and counted as rewound. A frame of the current attempt that must be given up is a loss: its region must go
back, so it is reported. Invariant: every frame that is given up is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from heronpy.proto import plan_pb2


class Attempts:
    """See the module."""

    def __init__(self) -> None:
        self._of: dict[int, int] = {}
        #: Tuples of frames that were given up, by reason; each is processed again.
        self.rewound: Counter[str] = Counter()
        #: Called with (attempt, task, tuples, reason) when a frame of the present attempt is given up.
        self.on_lost: Callable[[int, int, int, str], None] = _nothing

    def use(self, plan: plan_pb2.PhysicalPlan) -> None:
        """Take the attempts of a new plan."""
        attempts = {name: region.attempt for region in plan.regions for name in region.components}
        self._of = {i.task_id: attempts[i.component] for i in plan.instances if i.component in attempts}

    def is_stale(self, task: int, attempt: int) -> bool:
        """Whether a frame for a task belongs to an attempt that is over."""
        return 0 < attempt < self._of.get(task, 0)

    def give_up(self, task: int, attempt: int, tuples: int, reason: str) -> None:
        """A frame for a task is given up."""
        self.rewound[reason] += tuples
        if not self.is_stale(task, attempt):
            self.on_lost(attempt, task, tuples, reason)


def _nothing(*_: object) -> None:
    """The default of the callback."""
