"""How much of what containers read from the state waits at the door until they have it. Pure.

ZeroMQ counts the messages that wait for a peer, not their bytes, and a value of the state may have megabytes. So each
large answer counts until its session says, in a later call, that it does not wait for that request any more.
"""

from __future__ import annotations

from typing import Final

#: Answers up to this size do not count: their number is bounded by the queue of their connection.
SMALL_MAX_BYTES: Final = 256 << 10
SESSION_MAX_BYTES: Final = 32 << 20
ALL_MAX_BYTES: Final = 256 << 20


class LargeAnswers:
    """By session and request; what a session waits for ends with it."""

    def __init__(self, session_max: int = SESSION_MAX_BYTES, all_max: int = ALL_MAX_BYTES) -> None:
        self._session_max, self._all_max = session_max, all_max
        self._waiting: dict[int, dict[int, int]] = {}
        self.bytes = 0

    def settle(self, session: int, awaits: int) -> None:
        """A session has its answers to all requests below `awaits`, or has given them up."""
        waiting = self._waiting.get(session)
        if waiting is None:
            return
        for request in [one for one in waiting if one < awaits]:
            self.bytes -= waiting.pop(request)
        if not waiting:
            del self._waiting[session]

    def take(self, session: int, request: int, size: int) -> bool:
        """Whether an answer may be sent now; one that is sent again counts once, and one alone is never too large."""
        if size <= SMALL_MAX_BYTES:
            return True
        waiting = self._waiting.get(session, {})
        others = sum(waiting.values()) - waiting.get(request, 0)
        whole = self.bytes - waiting.get(request, 0) + size
        if (others and others + size > self._session_max) or (whole > size and whole > self._all_max):
            return False
        self._waiting.setdefault(session, waiting)[request] = size
        self.bytes = whole
        return True

    def end(self, session: int) -> None:
        """The session has ended."""
        self.bytes -= sum(self._waiting.pop(session, {}).values())
