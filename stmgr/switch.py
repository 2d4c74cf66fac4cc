"""The data path of a stream manager: frames from tasks and peers to tasks, peers and ackers.

Called directly by the shell, once per frame; tuples never become events. The payload is never read.
Pure but for the `transmit` functions that links carry and the counters it keeps.

Invariant (H07): every tuple of every accepted data frame is, at any time, queued, in flight to a
peer, delivered, or counted in `discarded`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from heronpy.proto import frame_pb2
from heronpy.wire.frames import (
    ACK,
    ACKER_KINDS,
    CLAMP,
    COMPLETE,
    CREDIT,
    DATA,
    FAIL,
    LEAVE,
    LINK_HEADER,
    LINK_OPEN,
    REGISTER,
    Frame,
    pack64,
    root_tasks_of,
    roots_of,
)

from .acker import Acker, Ranges
from .backpressure import Backpressure
from .links import Link, Source, Waiting, parse_frame, skip_bytes

#: A queue is never held back by credit above this in a topology with a cycle: it could wait for itself.
NEVER = 1 << 62
_PEER = re.compile(rb"s:(stmgr-\d+):(\d+)")


class LocalTask:
    """A task of this container: its link, its source, and the incarnation they belong to."""

    __slots__ = ("task", "component", "is_spout", "identity", "epoch", "link", "source", "farewell", "in_plan")

    def __init__(self, task: int, component: str, is_spout: bool, link: Link) -> None:
        self.task = task
        self.component = component
        self.is_spout = is_spout
        self.identity = b""
        self.epoch = 0
        self.link = link
        self.source: Source | None = None
        #: The LEAVE of an orderly exit.
        self.farewell: frame_pb2.Frame | None = None
        self.in_plan = False


class Peer:
    """Another stream manager: the link to it."""

    __slots__ = ("stmgr_id", "epoch", "link")

    def __init__(self, stmgr_id: str, epoch: int, link: Link) -> None:
        self.stmgr_id = stmgr_id
        self.epoch = epoch
        self.link = link


class Switch:
    """Routes frames; owns links, ackers and backpressure of one container."""

    def __init__(self, settings: Any, send: Callable[[bytes, bytes, bytes], bool], now: Callable[[], float]) -> None:
        self.settings = settings
        self._send = send
        self._now = now
        self.tasks: dict[int, LocalTask] = {}
        self.peers: dict[str, Peer] = {}
        self.remote: dict[int, str] = {}
        self.sources: dict[bytes, Source] = {}
        self.ackers: dict[int, Acker] = {}
        self.backpressure = Backpressure(
            settings.backpressure_high_bytes,
            settings.backpressure_low_bytes,
            settings.backpressure_lease_s,
            settings.backpressure_renew_s,
        )
        self.hold_above = settings.backpressure_high_bytes
        self.counts: Counter[str] = Counter()
        #: Tuples given up, by reason.
        self.discarded: Counter[str] = Counter()
        #: Called once when credit below a quarter window is owed; `settle_credit` returns it.
        self.on_credit_owed: Callable[[], None] = _nothing
        self._credit_owed = False
        #: Called when announcements or clamps may have changed.
        self.on_pressure: Callable[[bool], None] = _ignore
        #: The highest incarnation seen of each peer, for fencing (D13).
        self.peer_epochs: dict[str, int] = {}
        self._frame = Frame()

    # ---- frames in ----------------------------------------------------------------------------

    def receive(self, parts: list[bytes]) -> None:
        """A message of the data socket: identity, link header, frame."""
        if len(parts) != 3 or len(parts[1]) != LINK_HEADER.size or not parse_frame(parts[2], self._frame):
            self.counts["garbage"] += 1
            return
        identity, header, data = parts
        frame = self._frame
        epoch, seq = LINK_HEADER.unpack(header)
        kind = frame.kind
        if kind == LINK_OPEN:
            self._open(identity, epoch)
            return
        source = self.sources.get(identity)
        if source is None or not source.accept(epoch, seq):
            self.counts["stale_frames"] += 1
            if kind == DATA:
                self._discard("stale link", frame.count)
            return
        if kind == DATA:
            self._data(frame, data, source)
        elif kind == CREDIT:
            self._task_credit(source, frame)
        elif kind in ACKER_KINDS:
            self._for_acker(frame, data)
        elif kind == LEAVE:
            self._leave(source, frame)

    def _open(self, identity: bytes, epoch: int) -> None:
        """First frame of a link: of a registered task, or of a peer of the plan."""
        for task in self.tasks.values():
            if task.identity == identity and task.source is not None and task.source.epoch == epoch:
                task.source.seq = 1
                self.sources[identity] = task.source
                task.source.grant()
                if task.is_spout and self.backpressure.clamped:
                    task.link.send_control(self._clamp(True))
                return
        match = _PEER.fullmatch(identity)
        if match is None:
            self.counts["stale_frames"] += 1
            return
        name, incarnation = match[1].decode(), int(match[2])
        if incarnation < self.peer_epochs.get(name, 0):
            self.counts["fenced_links"] += 1
            return
        self.peer_epochs[name] = incarnation
        for old in [i for i, s in self.sources.items() if s.name == name and i != identity]:
            del self.sources[old]
        source = Source(name, 0, epoch, self.settings.link_window_bytes, self._replier(identity, epoch))
        source.seq = 1
        self.sources[identity] = source
        source.grant()

    def _replier(self, identity: bytes, epoch: int) -> Callable[[bytes], None]:
        seq = 0

        def reply(data: bytes) -> None:
            nonlocal seq
            seq += 1
            self._send(identity, LINK_HEADER.pack(epoch, seq), data)

        return reply

    def _data(self, frame: frame_pb2.Frame, data: bytes, source: Source) -> None:
        count = frame.count
        source.received_bytes += len(data)
        source.received_tuples += count
        self.counts["tuples_from_workers" if source.task else "tuples_from_stmgrs"] += count
        if frame.tracked and not frame.registered and source.task and frame.root_task == source.task:
            acker = self.ackers.get(source.task)
            if acker is not None and not frame.roots:
                self._completed(source.task, acker.register(frame), failed=True)
        dest = frame.dest_task
        local = self.tasks.get(dest)
        if local is not None:
            link = local.link
        else:
            peer = self.peers.get(self.remote.get(dest, ""))
            if peer is None:
                self._discard("no such task", count)
                self.fail_roots(frame)
                source.absorbed(len(data), count)
                return
            link = peer.link
        link.put(Waiting(data, count, dest, frame.tracked, source), self.hold_above)
        if link.queued_bytes > self.backpressure.high:
            self._observe(link)
        if not self._credit_owed:
            self._credit_owed = True
            self.on_credit_owed()

    def settle_credit(self) -> None:
        """Return the credit that waits for its quarter window, so that senders know they are drained."""
        self._credit_owed = False
        for source in self.sources.values():
            if source.absorbed_bytes != source.reported_bytes:
                source.grant()

    def _observe(self, link: Link) -> None:
        if self.backpressure.observe(link.name, link.queued_bytes, link.top_task, self._now()):
            self.on_pressure(True)

    def _pumped(self, link: Link) -> None:
        if link.name in self.backpressure.local:
            self._observe(link)

    def _task_credit(self, source: Source, frame: frame_pb2.Frame) -> None:
        task = self.tasks.get(source.task)
        if task is not None:
            task.link.credit(frame)
            task.link.pump()
            self._pumped(task.link)

    def peer_credit(self, stmgr_id: str, header: bytes, data: bytes) -> None:
        """What a peer answers on our own socket to it: credits."""
        peer = self.peers.get(stmgr_id)
        if peer is None or len(header) != LINK_HEADER.size or not parse_frame(data, self._frame):
            self.counts["garbage"] += 1
            return
        if LINK_HEADER.unpack(header)[0] != peer.link.epoch:
            self.counts["stale_frames"] += 1
            return
        if self._frame.kind == CREDIT:
            peer.link.credit(self._frame)
            peer.link.pump()
            self._pumped(peer.link)

    # ---- acking -------------------------------------------------------------------------------

    def _for_acker(self, frame: frame_pb2.Frame, data: bytes) -> None:
        spout = frame.dest_task
        acker = self.ackers.get(spout)
        if acker is None:
            peer = self.peers.get(self.remote.get(spout, ""))
            if peer is None or not peer.link.send_control(data):
                self.counts["ack_tuples_lost"] += frame.count
            return
        kind = frame.kind
        if kind == ACK:
            self.counts["ack_tuples"] += frame.count
            self._completed(spout, acker.ack(frame), failed=False)
        elif kind == REGISTER:
            self._completed(spout, acker.register(frame), failed=True)
        elif kind == FAIL:
            self.counts["fail_tuples"] += frame.count
            self._completed(spout, acker.fail(frame), failed=True)
        else:
            acker.fail(frame)

    def _completed(self, spout: int, ranges: Ranges, failed: bool) -> None:
        if ranges[0]:
            message = Frame(kind=COMPLETE, dest_task=spout, first=ranges[0], length=ranges[1], failed=failed)
            self.tasks[spout].link.send_control(message.SerializeToString())

    def fail_roots(self, frame: frame_pb2.Frame) -> None:
        """The tuples of a tracked frame are lost: fail their roots now rather than by timeout."""
        if not frame.tracked:
            return
        roots = roots_of(frame)
        tasks = root_tasks_of(frame, len(roots))
        for task in set(tasks.tolist()):
            mine = roots[tasks == task]
            fail = Frame(kind=FAIL, dest_task=task, count=len(mine), roots=pack64(mine))
            self._for_acker(fail, fail.SerializeToString())

    # ---- tasks --------------------------------------------------------------------------------

    def add_task(self, task_id: int, component: str, is_spout: bool) -> LocalTask:
        """Know a task of this container; frames for it queue until it registers."""
        task = self.tasks.get(task_id)
        if task is None:
            link = Link(f"task-{task_id}", task_id, self._no_peer, retain=True)
            task = self.tasks[task_id] = LocalTask(task_id, component, is_spout, link)
            if is_spout:
                self.ackers[task_id] = Acker()
        return task

    @staticmethod
    def _no_peer(header: bytes, data: bytes) -> bool:
        return False

    def attach(self, task: LocalTask, identity: bytes, epoch: int, link_epoch: int) -> None:
        """A (new) incarnation of a task registered; settle what its predecessor left."""
        self.sources.pop(task.identity, None)
        if task.is_spout and epoch != task.epoch:
            self.ackers[task.task] = Acker()
        task.identity, task.epoch = identity, epoch
        farewell, task.farewell = task.farewell, None
        window = self.settings.instance_out_window_bytes
        reply = task.link.send_control
        task.source = Source(f"task-{task.task}", task.task, link_epoch, window, reply)
        task.link.transmit = lambda header, data: self._send(identity, header, data)
        lost = task.link.start(link_epoch)
        if farewell is not None and lost and not task.is_spout:
            lost[0].data += skip_bytes(farewell.skip)
            lost[0].tuples -= farewell.skip
            task.link.put_back(lost)
        else:
            self._lose(lost, "task died")

    def _leave(self, source: Source, frame: frame_pb2.Frame) -> None:
        task = self.tasks.get(source.task)
        if task is None:
            return
        task.farewell = Frame()
        task.farewell.CopyFrom(frame)
        task.link.consumed(frame)
        task.link.open = False
        if not task.in_plan:
            self.remove_task(task.task)

    def detach(self, task_id: int) -> None:
        """A task went silent: hold its frames until its next incarnation."""
        task = self.tasks.get(task_id)
        if task is not None:
            task.link.open = False

    def remove_task(self, task_id: int) -> None:
        """A task is gone for good: what waits for it is discarded, and counted."""
        task = self.tasks.pop(task_id, None)
        if task is None:
            return
        self.sources.pop(task.identity, None)
        self.ackers.pop(task_id, None)
        lost = task.link.close()
        self._lose(lost + list(task.link.queue), "task removed")
        if self.backpressure.forget(task.link.name, self._now()):
            self.on_pressure(True)

    def _lose(self, frames: list[Waiting], reason: str) -> None:
        for waiting in frames:
            self._discard(reason, waiting.tuples)
            if waiting.creditor is not None:
                waiting.creditor.absorbed(len(waiting.data), waiting.tuples)
            if waiting.tracked:
                self.fail_roots(Frame.FromString(waiting.data))

    def _discard(self, reason: str, tuples: int) -> None:
        self.discarded[reason] += tuples

    # ---- peers --------------------------------------------------------------------------------

    def add_peer(self, stmgr_id: str, epoch: int, transmit: Callable[[bytes, bytes], bool]) -> Peer:
        """Know a peer, or a new incarnation of it; what is queued for it stays queued."""
        peer = self.peers.get(stmgr_id)
        if peer is None:
            peer = self.peers[stmgr_id] = Peer(stmgr_id, epoch, Link(stmgr_id, 0, transmit, retain=False))
        peer.epoch = epoch
        peer.link.transmit = transmit
        return peer

    def open_peer(self, stmgr_id: str, link_epoch: int) -> None:
        """Start a link to a peer; frames in flight over the one before are lost, and counted."""
        link = self.peers[stmgr_id].link
        self._discard("peer lost", link.in_flight())
        link.start(link_epoch)
        link.send_control(Frame(kind=LINK_OPEN).SerializeToString())

    def remove_peer(self, stmgr_id: str) -> None:
        """A peer left the plan."""
        peer = self.peers.pop(stmgr_id)
        self._discard("peer removed", peer.link.in_flight())
        self._lose(list(peer.link.queue), "peer removed")
        self.backpressure.lost(stmgr_id)
        if self.backpressure.forget(stmgr_id, self._now()):
            self.on_pressure(True)

    # ---- backpressure -------------------------------------------------------------------------

    @staticmethod
    def _clamp(on: bool, reason: str = "") -> bytes:
        return Frame(kind=CLAMP, on=on, reason=reason).SerializeToString()

    def clamp_spouts(self, on: bool) -> None:
        """Stop or resume the local spouts."""
        message = self._clamp(on)
        for task in self.tasks.values():
            if task.is_spout:
                task.link.send_control(message)

    # ---- totals -------------------------------------------------------------------------------

    def queued(self) -> tuple[int, int]:
        """(bytes, tuples) that wait in this process."""
        links = [t.link for t in self.tasks.values()] + [p.link for p in self.peers.values()]
        return sum(link.queued_bytes for link in links), sum(link.queued_tuples for link in links)

    def in_flight(self) -> int:
        """Tuples sent to local tasks or peers and not reported as consumed."""
        links = [t.link for t in self.tasks.values()] + [p.link for p in self.peers.values()]
        return sum(link.in_flight() for link in links)


def _nothing() -> None:
    return None


def _ignore(changed: bool) -> None:
    return None
