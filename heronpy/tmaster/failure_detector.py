"""When a standby topology master takes over from one that has fallen silent. The caller passes the time. Pure."""

from __future__ import annotations

#: Number of requests that must go unanswered, however long each of them took.
MISSED_MIN = 2


class FailureDetector:
    """How long the holder of the location has been silent."""

    def __init__(self, takeover_s: float) -> None:
        self._takeover_s = takeover_s
        self._holder = b""
        self._heard_at = 0.0
        self._looked_at: float | None = None
        self._missed = 0

    def look(self, holder: bytes, now: float) -> None:
        """Note the current holder. After a pause of this process itself, the silence so far does not count."""
        paused = self._looked_at is not None and now - self._looked_at > self._takeover_s
        self._looked_at = now
        if holder != self._holder or paused:
            self._holder = holder
            self.answered(now)

    def answered(self, now: float) -> None:
        self._heard_at, self._missed = now, 0

    def missed(self) -> None:
        """A request to the holder was not answered."""
        self._missed += 1

    def overdue(self, now: float) -> bool:
        """Whether to take over from a holder whose location still exists."""
        return self._missed >= MISSED_MIN and now - self._heard_at >= self._takeover_s
