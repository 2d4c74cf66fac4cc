"""Decides when a command that follows a topology can stop waiting. Pure.

A removed topology does not answer. On the topology's own host the state manager reports the removal. Other hosts
get no report, because the control endpoint is closed when the topology ends. There, a topology counts as killed if
its last report showed that it was being killed.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

#: A restarted scheduler answers again within this time.
AWAY_S: Final = 30.0
#: A scheduler that was killing its topology and is silent for this time has ended: a guardian would restart it sooner.
GONE_S: Final = 8.0


class Life(Enum):
    """The state of a topology as seen by one check."""

    RUNS = "runs"
    #: All input is processed; the topology stays until it is killed.
    FINISHED = "finished"
    KILLING = "killing"
    REMOVED = "removed"
    #: Another topology has this name.
    REPLACED = "replaced"
    #: No process has answered.
    UNKNOWN = "unknown"


class End(Enum):
    """How a topology ended."""

    FINISHED = "finished"
    REMOVED = "removed"
    REPLACED = "replaced"
    #: The topology was being killed at the last report.
    KILLED = "killed"
    #: It is unknown whether the topology runs, and none of its state can be read from this host.
    AWAY = "away"


_ENDS = {Life.FINISHED: End.FINISHED, Life.REMOVED: End.REMOVED, Life.REPLACED: End.REPLACED}


class Ending:
    """Judges the results of checks. If `by_endpoint`, this host reaches the topology only through its endpoint."""

    def __init__(self, by_endpoint: bool, now: float) -> None:
        self._by_endpoint = by_endpoint
        self._killing = False
        self._known_at = now

    def look(self, life: Life, now: float) -> End | None:
        """How the topology ended; None while it may still be running. `now` is monotonic, in seconds."""
        if life is not Life.UNKNOWN:
            self._killing, self._known_at = life is Life.KILLING, now
            return _ENDS.get(life)
        silent_s = now - self._known_at
        if not self._by_endpoint or silent_s < (GONE_S if self._killing else AWAY_S):
            return None  # on the topology's own host, its logs can still be read
        return End.KILLED if self._killing else End.AWAY
