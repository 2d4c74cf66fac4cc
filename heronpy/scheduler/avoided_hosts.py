"""Hosts that get no containers for a time (pure)."""

from __future__ import annotations

#: Hosts that are avoided at a time; the one that was added first is forgotten first.
AVOID_MAX = 64


class AvoidedHosts:
    """Each for `avoid_s` from when it was added last."""

    def __init__(self, avoid_s: float) -> None:
        self.avoid_s = avoid_s
        self._until: dict[str, float] = {}

    def add(self, host: str, now: float) -> bool:
        """Whether it was not avoided before; an empty name is no host."""
        if not host:
            return False
        new = self._until.pop(host, now) <= now
        self._until[host] = now + self.avoid_s
        for oldest in list(self._until)[:-AVOID_MAX]:
            del self._until[oldest]
        return new

    def at(self, now: float) -> set[str]:
        """Those that are avoided now."""
        return {host for host, until in self._until.items() if now < until}
