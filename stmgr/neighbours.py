"""The processes to which a stream manager has links: the tasks of its container, and its peers. Pure."""

from __future__ import annotations

from collections.abc import Callable

from heronpy.proto import frame_pb2
from heronpy.wire.frames import CLAMP, LINK_HEADER, Frame

from .links import Link, Source

#: Limit over all links; anything beyond it is refused and counted.
LINKS_MAX = 64
BYTES_MAX = 4 << 20

Parts = list[bytes]


class LocalTask:
    """A task of this container: its link, its source, and the incarnation to which they belong."""

    __slots__ = (
        "component",
        "earlier_tuples",
        "ended",
        "epoch",
        "farewell",
        "held_by",
        "identity",
        "in_plan",
        "is_spout",
        "limit",
        "link",
        "source",
        "task",
    )  # fmt: skip

    def __init__(self, task: int, component: str, is_spout: bool, link: Link) -> None:
        self.task = task
        self.component = component
        self.is_spout = is_spout
        self.identity = b""
        self.epoch = 0
        self.link = link
        self.source: Source | None = None
        #: Number of tuples that arrived over earlier links of the process of `epoch`.
        self.earlier_tuples = 0
        #: The epoch of the previous process, and the number of tuples that arrived from it.
        self.ended = (0, 0)
        #: The LEAVE of an orderly exit.
        self.farewell: frame_pb2.Frame | None = None
        self.in_plan = False
        #: Links of peers that were asked to hold back the frames for this task.
        self.held_by: list[Source] = []
        #: The maximum number of tuples in a frame for it, as reported to its senders; 0: any number.
        self.limit = 0

    def begin(self, identity: bytes, epoch: int) -> None:
        """Begin a new link to the same process or its successor."""
        received = self.received_tuples()
        if epoch != self.epoch:
            self.ended, received = (self.epoch, received), 0
        self.identity, self.epoch, self.earlier_tuples, self.source = identity, epoch, received, None

    def received_tuples(self) -> int:
        """The number of tuples that have arrived from the process of `epoch`, a lower bound on its emitted tuples."""
        return self.earlier_tuples + (self.source.received_tuples if self.source is not None else 0)

    def release(self) -> None:
        """Allow peers to send frames for this task again."""
        message = Frame(kind=CLAMP, dest_task=self.task, on=False, count=self.limit).SerializeToString()
        for source in self.held_by:
            source.holding.discard(self.task)
            source.reply(message)
        self.held_by.clear()


class Peer:
    """Another stream manager, and the link to it."""

    __slots__ = ("epoch", "link", "stmgr_id")

    def __init__(self, stmgr_id: str, epoch: int, link: Link) -> None:
        self.stmgr_id = stmgr_id
        self.epoch = epoch
        self.link = link


def replier(send: Callable[[bytes, bytes, bytes], bool], identity: bytes, epoch: int) -> Callable[[bytes], None]:
    """Return a function that answers a peer over its link; answers are numbered, so the peer detects a missing one."""
    seq = 0

    def reply(data: bytes) -> None:
        nonlocal seq
        seq += 1
        send(identity, LINK_HEADER.pack(epoch, seq, data), data)

    return reply


class PendingLinks:
    """Links of peers that are not in the plan yet: their frames wait until the plan contains the peers.

    A new stream manager, or a new incarnation of one, may get the plan that names it before this stream manager does.
    Until then its identity is unknown: its frames are not accepted, its acks do not count, and it gets no credit.
    The number of kept messages is limited.
    """

    def __init__(self) -> None:
        self._kept: dict[bytes, list[Parts]] = {}
        self._bytes = 0
        #: Number of messages of links that were not kept.
        self.refused = 0

    def begin(self, identity: bytes, parts: Parts) -> None:
        """Keep the first message of a link; drop the messages of an earlier link from the same peer."""
        self.take_out(identity)
        if len(self._kept) < LINKS_MAX:
            self._kept[identity] = []
            self.keep(identity, parts)
        else:
            self.refused += 1

    def keep(self, identity: bytes, parts: Parts) -> bool:
        """Keep a further message; return False if its link is not waiting here."""
        kept = self._kept.get(identity)
        if kept is None:
            return False
        size = sum(map(len, parts))
        if self._bytes + size <= BYTES_MAX:
            kept.append(parts)
            self._bytes += size
        else:
            # The gap is detected when these messages are processed; the link is then reopened.
            self.refused += 1
        return True

    def take_out(self, identity: bytes) -> list[Parts]:
        """Remove and return all messages from a peer that is now in the plan, in order."""
        kept = self._kept.pop(identity, [])
        self._bytes -= sum(len(part) for parts in kept for part in parts)
        return kept

    def forget_older(self, name: str, incarnation: int) -> None:
        """Drop the links of a stream manager's earlier incarnations, which will not be in any plan."""
        for identity in list(self._kept):
            who, _, number = identity.decode("ascii", "replace").removeprefix("s:").rpartition(":")
            if who == name and number.isdigit() and int(number) < incarnation:
                self.take_out(identity)
