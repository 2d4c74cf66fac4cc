"""What differs between what a job should be, what was made of it last, and what is seen. Pure.

The program's own values are the weakest layer of what a job should be, so a leaf that no layer sets has a value, too. A
leaf that nobody has is None.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from heronpy.jobs.documents import Leaves, Path, Value


class Effect(enum.Enum):
    """What has to happen for a leaf to become another one, from the cheapest to the dearest."""

    COMMIT = "nothing runs otherwise"
    CONFIGURE = "tasks take it while they run"
    STATE = "the topology is paused or goes on"
    RESIZE = "containers get other sizes"
    UPDATE = "tasks come and go"
    RESTART = "the topology stops and starts"


EFFECT_OF: Final[Mapping[str, Effect]] = {
    **dict.fromkeys(("restore", "slo", "scale", "role", "priority", "privileged"), Effect.COMMIT),
    **dict.fromkeys(("config", "component_config", "concurrency"), Effect.CONFIGURE),
    "run": Effect.STATE,
    "resources": Effect.RESIZE,
    "parallelism": Effect.UPDATE,
    **dict.fromkeys(("definition", "settings", "place"), Effect.RESTART),
}
#: What a running topology has is seen; of the rest it is only known what it was started with.
SEEN: Final = frozenset({Effect.CONFIGURE, Effect.STATE, Effect.RESIZE, Effect.UPDATE})


class Difference(Struct, frozen=True):
    """A leaf as it is and as it should be."""

    path: Path
    old: Value | None
    new: Value | None

    @property
    def back(self) -> Difference:
        """The same, the other way."""
        return Difference(self.path, self.new, self.old)


def differences(desired: Leaves, committed: Leaves, seen: Leaves | None) -> dict[Effect, tuple[Difference, ...]]:
    """What differs, by what has to happen; `seen` is None when nothing runs, and then only a start can help."""
    found: dict[Effect, list[Difference]] = {}
    for path in sorted(desired.keys() | committed.keys()):
        effect, new = EFFECT_OF[path[0]], desired.get(path)
        old = seen.get(path) if seen is not None and effect in SEEN else committed.get(path)
        if old != new:
            found.setdefault(effect, []).append(Difference(path, old, new))
        elif committed.get(path) != new:
            found.setdefault(Effect.COMMIT, []).append(Difference(path, committed.get(path), new))
    return {effect: tuple(those) for effect, those in found.items()}
