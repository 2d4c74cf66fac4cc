"""Hosts that get no containers for some time: hosts that lost a container, and hosts that a user drains. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

#: Maximum number of avoided hosts; the oldest entry is forgotten first.
AVOID_MAX = 64


@dataclass(frozen=True, slots=True)
class Avoided:
    """One avoided host; times are on the caller's clock."""

    host: str
    until: float
    why: str = ""
    #: The user who requested a drain of the host; empty if the host is not being drained.
    by: str = ""
    #: Its containers are still being moved away.
    draining: bool = False


class AvoidedHosts:
    """Avoids each host for `avoid_s` after the last `add` or after its drain has ended.

    `known` contains an earlier scheduler's avoided hosts. A host that lost a container and is drained has two entries.
    """

    def __init__(self, avoid_s: float, known: Iterable[Avoided] = ()) -> None:
        self.avoid_s = avoid_s
        self._found: dict[tuple[str, bool], Avoided] = {(one.host, bool(one.by)): one for one in known}

    def add(self, host: str, now: float, why: str = "", by: str = "") -> bool:
        """Avoid a host; returns False if it was already avoided, or has no name. A user name in `by` begins a drain."""
        if not host:
            return False
        new = host not in self.at(now)
        self._found.pop((host, bool(by)), None)
        self._found[host, bool(by)] = Avoided(host, now + self.avoid_s, why, by, bool(by))
        for oldest in list(self._found)[:-AVOID_MAX]:
            del self._found[oldest]
        return new

    def drained(self, host: str, failed: bool, now: float) -> None:
        """End the drain of a host. The host is then avoided for `avoid_s`, but not after a failed drain."""
        found = self._found.get((host, True))
        if found is not None and failed:
            del self._found[host, True]
        elif found is not None:
            self._found[host, True] = replace(found, until=now + self.avoid_s, draining=False)

    def lift(self, host: str) -> bool:
        """Stop avoiding a host; returns False if the host is being drained or was not avoided."""
        if host in self.draining():
            return False
        found = [key for key in self._found if key[0] == host]
        for key in found:
            del self._found[key]
        return bool(found)

    def draining(self) -> dict[str, str]:
        """Map from each host that is being drained to the user who requested the drain."""
        return {one.host: one.by for one in self._found.values() if one.draining}

    def known(self, now: float) -> tuple[Avoided, ...]:
        """The avoided hosts, to be passed to this scheduler's successor."""
        return tuple(one for one in self._found.values() if now < one.until or one.draining)

    def at(self, now: float) -> set[str]:
        return {one.host for one in self.known(now)}
