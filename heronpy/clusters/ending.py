"""When a command that follows a topology has nothing to wait for any more. Pure.

A topology that was removed cannot be asked. On its own host the state manager says so; by way of its control endpoint
nobody does, because the endpoint ends with it: then it counts that the scheduler was killing it when it was last heard.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

#: A scheduler that is started again is back by then.
AWAY_S: Final = 30.0
#: One that was killing its topology ends with it; when it had been killed itself, its guardian takes less than this.
GONE_S: Final = 8.0


class Life(Enum):
    """What a look has found."""

    RUNS = "runs"
    #: All its input is processed; it stays until it is killed.
    FINISHED = "finished"
    KILLING = "killing"
    REMOVED = "removed"
    #: Another topology has its name.
    REPLACED = "replaced"
    #: Nobody could be asked.
    UNKNOWN = "unknown"


class End(Enum):
    """How it came to its end."""

    FINISHED = "finished"
    REMOVED = "removed"
    REPLACED = "replaced"
    #: It was being killed when it was last heard.
    KILLED = "killed"
    #: Whether it runs is not known, and nothing of it is to be had from here.
    AWAY = "away"


_ENDS = {Life.FINISHED: End.FINISHED, Life.REMOVED: End.REMOVED, Life.REPLACED: End.REPLACED}


class Ending:
    """Takes what one look after the other has found; `by_endpoint`: this host has no other way to the topology."""

    def __init__(self, by_endpoint: bool, now: float) -> None:
        self._by_endpoint = by_endpoint
        self._killing = False
        self._known_at = now

    def look(self, life: Life, now: float) -> End | None:
        """What the topology has come to; None while it may go on. `now` is monotonic, in seconds."""
        if life is not Life.UNKNOWN:
            self._killing, self._known_at = life is Life.KILLING, now
            return _ENDS.get(life)
        silent_s = now - self._known_at
        if not self._by_endpoint or silent_s < (GONE_S if self._killing else AWAY_S):
            return None  # on its own host its logs are read all the same
        return End.KILLED if self._killing else End.AWAY
