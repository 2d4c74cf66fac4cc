"""Hosts that get no containers for a time: those that lost one, and those that somebody drains. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

#: Hosts that are avoided at a time; the one that was added first is forgotten first.
AVOID_MAX = 64


@dataclass(frozen=True, slots=True)
class Avoided:
    """One of them, on the clock of who asks."""

    host: str
    until: float
    why: str = ""
    #: Who drains it; empty: nobody does.
    by: str = ""
    #: Its containers are still being moved away.
    draining: bool = False


class AvoidedHosts:
    """Each for `avoid_s` from when it was added last or its drain was over; `known` are those of an earlier scheduler.

    That a drain is over says nothing of a host that has lost containers as well, so each is remembered by itself.
    """

    def __init__(self, avoid_s: float, known: Iterable[Avoided] = ()) -> None:
        self.avoid_s = avoid_s
        self._found: dict[tuple[str, bool], Avoided] = {(one.host, bool(one.by)): one for one in known}

    def add(self, host: str, now: float, why: str = "", by: str = "") -> bool:
        """Whether it was not avoided before; an empty name is no host. With `by` its drain begins."""
        if not host:
            return False
        new = host not in self.at(now)
        self._found.pop((host, bool(by)), None)
        self._found[host, bool(by)] = Avoided(host, now + self.avoid_s, why, by, bool(by))
        for oldest in list(self._found)[:-AVOID_MAX]:
            del self._found[oldest]
        return new

    def drained(self, host: str, failed: bool, now: float) -> None:
        """Its drain is over: it is avoided for its time from now on, or, if that failed, a host like others."""
        found = self._found.get((host, True))
        if found is not None and failed:
            del self._found[host, True]
        elif found is not None:
            self._found[host, True] = replace(found, until=now + self.avoid_s, draining=False)

    def lift(self, host: str) -> bool:
        """Stop avoiding the host, unless its drain continues; returns whether it was avoided and no longer is."""
        if host in self.draining():
            return False
        found = [key for key in self._found if key[0] == host]
        for key in found:
            del self._found[key]
        return bool(found)

    def draining(self) -> dict[str, str]:
        """Hosts whose drain is not over, and who asked for it."""
        return {one.host: one.by for one in self._found.values() if one.draining}

    def known(self, now: float) -> tuple[Avoided, ...]:
        """The avoided hosts, for a successor of this scheduler."""
        return tuple(one for one in self._found.values() if now < one.until or one.draining)

    def at(self, now: float) -> set[str]:
        """The hosts that are avoided now."""
        return {one.host for one in self.known(now)}
