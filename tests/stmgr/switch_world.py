"""A switch of tests, its tasks and its peers, and what it has sent."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from heronpy.common.setting_types import StmgrSettings
from heronpy.wire.frames import (
    CREDIT,
    DATA,
    LINK_HEADER,
    LINK_OPEN,
    Frame,
    message_of,
)
from stmgr.switch import Switch

SPOUT, BOLT, FAR = 1, 2, 9


class World:
    """A switch with a spout and a bolt of its own and a peer with a task; everybody is a list of frames."""

    def __init__(self, **settings: Any) -> None:
        self.sent: dict[bytes, list[Frame]] = {}
        self.dead: set[bytes] = set()
        self.now = 0.0
        self.switch = Switch(replace(StmgrSettings(), **settings), self.send, lambda: self.now)
        self.owed = 0
        self.switch.on_credit_owed = self.owe
        self.switch.take_places({SPOUT: "spout", BOLT: "bolt"}, {"spout"}, {FAR: "stmgr-2"})
        self.to_peer: list[Frame] = []
        #: How often a link to the peer was asked for.
        self.wanted = 0
        self.switch.add_peer("stmgr-2", 1, self.transmit, self.want)
        self.seq: dict[bytes, int] = {}
        self.epochs: dict[bytes, int] = {}

    def want(self) -> None:
        self.wanted += 1

    def owe(self) -> None:
        self.owed += 1

    def send(self, identity: bytes, header: bytes, data: bytes) -> bool:
        if identity in self.dead:
            return False
        self.sent.setdefault(identity, []).append(Frame.FromString(data))
        return True

    def transmit(self, header: bytes, data: bytes) -> bool:
        self.to_peer.append(Frame.FromString(data))
        return True

    def register(self, task: int, epoch: int = 1, link_epoch: int = 100) -> bytes:
        identity = f"t:{task}:{epoch}".encode()
        known = self.switch.tasks[task]
        self.switch.attach(known, identity, epoch, link_epoch)
        self.epochs[identity], self.seq[identity] = link_epoch, 0
        self.receive(identity, Frame(kind=LINK_OPEN))
        self.grant(identity, 1 << 30)
        return identity

    def peer(self, epoch: int = 1, link_epoch: int = 7) -> bytes:
        identity = f"s:stmgr-2:{epoch}".encode()
        self.epochs[identity], self.seq[identity] = link_epoch, 0
        self.receive(identity, Frame(kind=LINK_OPEN))
        return identity

    def reply(self, frame: Frame, seq: int = 1, link_epoch: int = 50) -> bool:
        """A frame of the peer over the link to it. Returns whether it was taken."""
        return self.switch.peer_credit("stmgr-2", LINK_HEADER.pack(link_epoch, seq), frame.SerializeToString())

    def receive(self, identity: bytes, frame: Frame, **changed: int) -> None:
        self.seq[identity] += 1
        header = LINK_HEADER.pack(changed.get("epoch", self.epochs[identity]), changed.get("seq", self.seq[identity]))
        self.switch.receive([identity, *message_of(header, frame.SerializeToString())])

    def grant(self, identity: bytes, granted: int, frames: int = 0) -> None:
        self.receive(
            identity, Frame(kind=CREDIT, granted_bytes=granted, granted_tuples=1 << 40, consumed_frames=frames)
        )

    def of(self, identity: bytes, kind: Any) -> list[Frame]:
        return [frame for frame in self.sent.get(identity, []) if frame.kind == kind]


def data(dest: int, count: int = 1, **fields: Any) -> Frame:
    return Frame(kind=DATA, source_task=SPOUT, dest_task=dest, count=count, **fields)


def tracked(dest: int, base: int, count: int = 1) -> Frame:
    return data(dest, count, tracked=True, root_base=base, root_task=SPOUT, edge=5)
