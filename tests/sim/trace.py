"""The events of a run: the last lines for people, and a hash over all of them.

The hash is over what is equal in every run of a seed: times, names, sizes, texts; not over contents, which
hold paths of this machine.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.kernel import World

TAIL = 400
_FOLDER = re.compile(r"heronpy-sim-\d+/\d")


class Trace:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hash = hashlib.sha256()
        self.lines: deque[tuple[float, str, str]] = deque(maxlen=TAIL)
        self.count = 0
        #: Everything is kept, for `--story`.
        self.story: list[tuple[float, str, str]] | None = None

    def note(self, kind: str, text: str) -> None:
        """One line."""
        now = self._world.now
        if "heronpy-sim" in text:
            # Which of the ten folders it was does not belong to the story.
            text = _FOLDER.sub("heronpy-sim", text)
        self.count += 1
        self._hash.update(f"{now!r} {kind} {text}\n".encode())
        entry = (now, kind, text)
        self.lines.append(entry)
        if self.story is not None:
            self.story.append(entry)

    def tick(self, text: str) -> None:
        """Something too frequent for people: it counts for the hash only."""
        self._hash.update(f"{self._world.now!r} {text}\n".encode())

    def digest(self) -> str:
        return self._hash.hexdigest()

    def tail(self, lines: int = 60) -> str:
        """The last lines, or the whole story if it is kept."""
        shown = self.story if self.story is not None else list(self.lines)[-lines:]
        return "\n".join(f"  {when - 1000.0:10.6f}  {kind:<9} {text}" for when, kind, text in shown)
