"""How long the verbs that watch a topology wait for a topology master that does not answer."""

from __future__ import annotations

import time

from heronpy.cli.output import warning
from heronpy.clusters.session import Session
from heronpy.common.units import format_duration

#: A topology master may be restarted; longer silence ends `heron top`, and is told by `heron submit --wait`.
SILENCE_MAX_S = 30.0
#: A scheduler that is gone is started again by its guardian; longer absence means that nothing runs any more.
ABSENCE_MAX_S = 20.0


class Silence:
    """A topology whose master does not answer: it may be restarted, stopped for a while, or gone for good."""

    def __init__(self, session: Session, topology: str, patient: bool) -> None:
        self._session, self._topology, self._patient = session, topology, patient
        self._heard_at = self._scheduled_at = time.monotonic()
        self._told = False

    def look(self) -> None:
        """A Failure when waiting is of no use."""
        session, topology, now = self._session, self._topology, time.monotonic()
        session.find(topology)
        if session.scheduler_location(topology) is not None:
            self._scheduled_at = now
        silent_s = now - self._heard_at
        if now - self._scheduled_at > ABSENCE_MAX_S or (silent_s > SILENCE_MAX_S and not self._patient):
            session.status(topology)  # raises with the reason, unless it has just come back
        if silent_s > SILENCE_MAX_S and not self._told:
            self._told = True
            warning(
                f"no answer from the topology master of '{topology}' for {format_duration(round(silent_s))};"
                " waiting for it, the tasks may work on"
            )
