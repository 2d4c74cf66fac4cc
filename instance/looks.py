"""Where a task is found by who looks at it: which line of user code, and which keys come.

The control thread looks whenever it reports, about once a second. For the line it reads the stack of the task's thread:
it gets to do so when that thread waits or has computed for some milliseconds, so of short calls that wait for nothing
the line stays unknown. Which key is in hand it would see as seldom, so it wishes to know: the task's thread then notes
the keys of the first tuples of its next chunks. Without a wish that costs one comparison per chunk.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from heronpy.api.user_code import is_runtime_frame
from heronpy.common.units import is_installed, line_of
from heronpy.proto import control_pb2, plan_pb2, topology_pb2

from .in_batch import Part
from .slow import VALUE_LETTERS, shown
from .tuples import DamagedValues, HeronTuple

#: So long a look counts, seconds.
KEEP_S = 300.0
#: At most this many, whatever the interval of reports.
KEPT = 600
LINE_LETTERS = 200
#: Chunks whose first tuple is noted after each look.
WISHES = 10

#: By component and stream: the fields of the grouping with their places in the tuple.
Keys = Mapping[tuple[str, str], Sequence[tuple[str, int]]]


def keys_of(
    plan: plan_pb2.PhysicalPlan, component: str, schemas: Mapping[str, Sequence[tuple[str, list[str]]]]
) -> Keys:
    """The keys by which tuples come to a bolt; those of other groupings have none. `schemas` as in routing.py."""
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for bolt in plan.topology.bolts:
        for source in bolt.inputs if bolt.comp.name == component else ():
            of, stream = source.stream.component_name, source.stream.id
            fields = next((names for name, names in schemas.get(of, ()) if name == stream), [])
            if source.gtype == topology_pb2.FIELDS:
                keys = [key.key for key in source.grouping_fields.keys if key.key in fields]
                found[of, stream] = [(key, fields.index(key)) for key in keys]
    return found


class Looks:
    """Of one task. Its thread calls `note`, the control thread all else."""

    def __init__(self) -> None:
        #: Gives the tuple or batch that user code has in hand, and its frames, the innermost first.
        self.in_hand: Callable[[], tuple[Part | None, list[FrameType]]] = lambda: (None, [])
        self.keys: Keys = {}
        #: So many tuples are still to be noted.
        self.wished = 0
        #: When, and what was seen.
        self._lines: deque[tuple[float, str]] = deque(maxlen=KEPT)
        self._keys: deque[tuple[float, str]] = deque(maxlen=KEPT * WISHES)

    def look(self, now: float) -> None:
        """Look once; `now` is monotonic."""
        self.wished = WISHES if self.keys else 0
        part, frames = self.in_hand()
        if part is not None:
            self._lines.append((now, _users_line(frames)[:LINE_LETTERS]))

    def note(self, tup: HeronTuple, now: float) -> None:
        """The first tuple of a chunk, as wished."""
        self.wished -= 1
        keys, values = self.keys.get((tup.component, tup.stream)), tup.values
        if keys and not isinstance(values, DamagedValues):
            key = ", ".join(f"{name}={shown(values[place])}" for name, place in keys if place < len(values))
            self._keys.append((now, key[:VALUE_LETTERS]))

    def told(self, now: float) -> control_pb2.TaskLooks | None:
        """What was found most often; None if nothing was."""
        lines, keys = (_counted(seen, now) for seen in (self._lines, self._keys))
        if not lines and not keys:
            return None
        found = control_pb2.TaskLooks(looks=lines.total(), keyed=keys.total())
        del lines[""]
        if lines:
            [(found.line, found.at_line)] = lines.most_common(1)
        if keys:
            [(found.key, found.of_key)] = keys.most_common(1)
        return found


def _users_line(frames: Sequence[FrameType]) -> str:
    """The innermost line of the user's code; "" where there is none: the runtime's own are nobody's culprit."""
    found = [(one.f_code.co_filename, one.f_lineno or 0, one.f_code.co_name) for one in frames]
    return line_of(found, _is_foreign) if not all(is_runtime_frame(file) for file, _, _ in found) else ""


def _is_foreign(file: str) -> bool:
    return is_installed(file) or is_runtime_frame(file)


def _counted(seen: deque[tuple[float, str]], now: float) -> Counter[str]:
    while seen and seen[0][0] < now - KEEP_S:
        seen.popleft()
    # The copy is made in one go, whatever the other thread adds.
    return Counter(text for _, text in tuple(seen))
