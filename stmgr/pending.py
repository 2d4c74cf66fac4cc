"""Links of peers that the plan does not have yet: what comes over them waits until it does. Pure.

A new stream manager, or a new incarnation of one, may hear the plan that names it before this one does. Until then
its identity is unknown, so nothing of it is accepted: its acks do not count, and it gets no credit. Bounded.
"""

from __future__ import annotations

#: Limit over all links; anything beyond is refused and counted.
LINKS_MAX = 64
BYTES_MAX = 4 << 20

Parts = list[bytes]


class PendingLinks:
    """See the module."""

    def __init__(self) -> None:
        self._kept: dict[bytes, list[Parts]] = {}
        self._bytes = 0
        #: Messages of links that were not kept.
        self.refused = 0

    def begin(self, identity: bytes, parts: Parts) -> None:
        """The first message of a link; what came over an earlier link of the same peer is forgotten."""
        self.take_out(identity)
        if len(self._kept) < LINKS_MAX:
            self._kept[identity] = []
            self.keep(identity, parts)
        else:
            self.refused += 1

    def keep(self, identity: bytes, parts: Parts) -> bool:
        """A further message; False when its link is not waiting here."""
        kept = self._kept.get(identity)
        if kept is None:
            return False
        size = sum(map(len, parts))
        if self._bytes + size <= BYTES_MAX:
            kept.append(parts)
            self._bytes += size
        else:
            # The gap shows when the link is taken: then it is opened again.
            self.refused += 1
        return True

    def take_out(self, identity: bytes) -> list[Parts]:
        """The plan has this peer: all that it has sent, in order."""
        kept = self._kept.pop(identity, [])
        self._bytes -= sum(len(part) for parts in kept for part in parts)
        return kept

    def forget_older(self, name: str, incarnation: int) -> None:
        """Links of earlier incarnations of a stream manager will never be taken."""
        for identity in list(self._kept):
            who, _, number = identity.decode("ascii", "replace").removeprefix("s:").rpartition(":")
            if who == name and number.isdigit() and int(number) < incarnation:
                self.take_out(identity)
