"""The differences between the desired state of a job, its last committed state, and its observed state. Pure.

The program's own values are the weakest layer, so a leaf that no other layer sets still has a value. The value of a
leaf is None if neither a layer nor the program sets it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from heronpy.jobs.documents import Leaves, Path, Value


class Effect(enum.Enum):
    """Kind of action that applies a changed leaf, from the cheapest to the most expensive."""

    COMMIT = "running processes are not affected"
    CONFIGURE = "the configuration of running tasks changes"
    STATE = "the topology is paused or resumed"
    RESIZE = "the sizes of containers change"
    UPDATE = "tasks are added or removed"
    RESTART = "the topology is restarted"


EFFECT_OF: Final[Mapping[str, Effect]] = {
    **dict.fromkeys(("restore", "slo", "scale", "role", "priority", "privileged"), Effect.COMMIT),
    **dict.fromkeys(("config", "component_config", "concurrency"), Effect.CONFIGURE),
    "run": Effect.STATE,
    "resources": Effect.RESIZE,
    "parallelism": Effect.UPDATE,
    **dict.fromkeys(("definition", "settings", "place"), Effect.RESTART),
}
#: Effects whose leaves can be observed in a running topology; all other leaves are as they were at its start.
SEEN: Final = frozenset({Effect.CONFIGURE, Effect.STATE, Effect.RESIZE, Effect.UPDATE})


class Difference(Struct, frozen=True):
    """A leaf with its current and its desired value."""

    path: Path
    old: Value | None
    new: Value | None

    @property
    def back(self) -> Difference:
        """Return the difference with the current and desired values swapped."""
        return Difference(self.path, self.new, self.old)


def differences(desired: Leaves, committed: Leaves, seen: Leaves | None) -> dict[Effect, tuple[Difference, ...]]:
    """Return the differences by kind of action. `seen` is None if nothing runs."""
    found: dict[Effect, list[Difference]] = {}
    for path in sorted(desired.keys() | committed.keys()):
        effect, new = EFFECT_OF[path[0]], desired.get(path)
        old = seen.get(path) if seen is not None and effect in SEEN else committed.get(path)
        if old != new:
            found.setdefault(effect, []).append(Difference(path, old, new))
        elif committed.get(path) != new:
            found.setdefault(Effect.COMMIT, []).append(Difference(path, committed.get(path), new))
    return {effect: tuple(those) for effect, those in found.items()}
