"""The data path of a stream manager: frames from tasks and peers to tasks, peers and ackers. Pure.

The shell calls it directly, once per frame; tuples never become events. The payload is never read.
Only the `transmit` functions of links and the counters are impure.

Invariants: every tuple of every accepted data frame is, at any time, queued, in flight on a link,
consumed, or counted in `discarded`; a sender is soon notified when its last frame has been passed on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container

from heronpy.common.setting_types import StmgrSettings
from heronpy.proto import frame_pb2, plan_pb2
from heronpy.wire.frames import ACKER_KINDS, BARRIER, CLAMP, COUNT_MAX, CREDIT, DATA, LEAVE, LINK_OPEN, Frame, fits

from .acker import Acker, Acking
from .attempts import Attempts
from .backpressure import Backpressure
from .hints import Hints, clamp_frame
from .links import Link, Source, Waiting, open_frame
from .neighbours import LocalTask, Peer, PendingLinks, replier

#: Mark for topologies with a cycle, whose queues credit never holds back, because a queue could wait for itself.
NEVER = 1 << 62
#: Kinds of frames that are sent in the order of the data: by credit, through queues, never dropped silently.
_IN_LINE = frozenset((DATA, BARRIER))
_PEER = re.compile(rb"s:(stmgr-\d+):(\d+)")


class Switch:
    """Routes frames; holds the links, ackers and backpressure of one container."""

    def __init__(
        self, settings: StmgrSettings, send: Callable[[bytes, bytes, bytes], bool], now: Callable[[], float]
    ) -> None:
        self.settings = settings
        self._send = send
        self._now = now
        self.tasks: dict[int, LocalTask] = {}
        self.peers: dict[str, Peer] = {}
        self.remote: dict[int, str] = {}
        self.sources: dict[bytes, Source] = {}
        self.backpressure = Backpressure(
            settings.backpressure_high_bytes,
            settings.backpressure_low_bytes,
            settings.backpressure_lease_s,
            settings.backpressure_renew_s,
        )
        #: True if a full queue may hold back its senders' credit: not in a topology with a cycle or with drops.
        self.may_hold = True
        #: True if a full queue currently holds back its senders' credit.
        self.holds = True
        #: True if peers are asked to hold back the frames of a full task.
        self.asks = True
        #: The function that takes data frames; see `dropping.py`.
        self.take_data = self.data
        self.hints = Hints(settings, self.tasks, self.sources, self.backpressure, now, self._owe_credit)
        self.counts: Counter[str] = Counter()
        #: Number of tuples in dropped frames, by reason.
        self.discarded: Counter[str] = Counter()
        #: Number of tuples that were discarded on purpose, by component and instance.
        self.dropped: Counter[tuple[str, str]] = Counter()
        #: Number of lost tuples that no tuple tree replays.
        self.lost_tuples = 0
        self.acking = Acking(self.tasks, self.peers, self.remote, self.counts, settings.frame_max_bytes)
        #: The ackers of the spouts of this container.
        self.ackers = self.acking.ackers
        self.attempts = Attempts()
        #: Called once when credit below a quarter window waits to be returned; `settle_credit` returns it.
        self.on_credit_owed: Callable[[], None] = _nothing
        self._credit_owed = False
        #: Called when a task that is not in the plan has been removed.
        self.on_removed: Callable[[int], None] = _nothing
        #: The incarnation that the plan has, or last had, of each peer: no other may open a link (D13).
        self.peer_epochs: dict[str, int] = {}
        self.pending = PendingLinks()
        #: True if there is a plan; before the first plan no credit is granted, because there are no destinations.
        self._ready = False
        #: True if no more frames are accepted; see `end`.
        self._ended = False

    # ---- frames in ----------------------------------------------------------------------------

    def receive(self, parts: list[bytes]) -> None:
        """Process a message from the data socket: identity, link header, frame (see `message_of`)."""
        if self._ended:
            return
        identity = parts[0]
        opened = open_frame(parts[1:])
        if opened is None:
            self._damaged(identity)
            return
        epoch, seq, frame, data = opened
        kind = frame.kind
        if kind == LINK_OPEN:
            self._open(identity, epoch, parts)
            return
        source = self.sources.get(identity)
        if source is None and self.pending.keep(identity, parts):
            return
        if source is None or not source.accept(epoch, seq):
            self.counts["stale_frames"] += 1
            if frame.attempt:
                self.attempts.give_up(frame.dest_task, frame.attempt, frame.count, "stale link")
            elif kind == DATA:
                self._discard("stale link", frame.count, frame.tracked)
            return
        if source.gaps and not source.task:
            # A frame lost between two machines must be settled with all frames in flight.
            self._damaged(identity)
        elif kind in _IN_LINE:
            self.take_data(frame, data, source)
        elif kind == CREDIT:
            self._task_credit(source, frame)
        elif kind in ACKER_KINDS:
            self.acking.take(frame, data)
        elif kind == LEAVE:
            self._leave(source, frame)

    def _damaged(self, identity: bytes) -> None:
        """Handle a damaged or foreign message: a peer is asked for a new link, which settles the old link."""
        self.counts["garbage"] += 1
        source = self.sources.get(identity)
        if source is not None and not source.task:
            self.counts["damaged_links"] += 1
            source.reply(Frame(kind=LINK_OPEN).SerializeToString())
            self._end_source(identity)

    def _open(self, identity: bytes, epoch: int, parts: list[bytes]) -> None:
        """Handle the first frame of a link from a registered task or a peer in the plan; ignore other frames."""
        for task in self.tasks.values():
            if task.identity == identity and task.source is not None and task.source.epoch == epoch:
                task.source.seq = 1
                self.sources[identity] = task.source
                task.source.grant()
                if task.is_spout and self.backpressure.clamped:
                    task.link.send_control(clamp_frame(True))
                self.hints.repeat(task.link)
                return
        match = _PEER.fullmatch(identity)
        if match is None:
            self.counts["stale_frames"] += 1
            return
        name, incarnation = match[1].decode(), int(match[2])
        planned = self.peer_epochs.get(name, 0)
        if incarnation != planned:
            self.counts["fenced_links"] += incarnation < planned
            if incarnation > planned:
                self.pending.begin(identity, parts)
            return
        for old in [i for i, s in self.sources.items() if s.name == name]:
            self._end_source(old)
        source = Source(name, 0, epoch, self.settings.link_window_bytes, replier(self._send, identity, epoch))
        source.seq = 1
        self.sources[identity] = source
        self.hints.repeat_limits(source)
        if self._ready:
            source.grant()

    def _end_source(self, identity: bytes) -> None:
        source = self.sources.pop(identity, None)
        if source is not None:
            source.mute()
            self.counts["link_gaps"] += source.gaps

    def refuse(self, frame: frame_pb2.Frame, data: bytes, source: Source) -> int:
        """Refuse a frame and return its credit to the sender; return the number of tuples to count."""
        count = min(frame.count, COUNT_MAX)
        source.received_bytes += len(data)
        source.received_tuples += count
        self.counts["tuples_from_workers" if source.task else "tuples_from_stmgrs"] += count
        source.settled_tuples += count
        source.absorbed(len(data), count)
        self._owe_credit()
        return count

    def data(self, frame: frame_pb2.Frame, data: bytes, source: Source) -> None:
        """Route a frame from a task or a peer: data, or a message that must stay in order with the data."""
        if not fits(frame):
            self.counts["malformed_frames"] += 1
            count = self.refuse(frame, data, source)
            if frame.attempt:
                self.attempts.give_up(frame.dest_task, frame.attempt, count, "malformed")
            else:
                self._discard("malformed", count)
            return
        count = frame.count
        source.received_bytes += len(data)
        source.received_tuples += count
        self.counts["tuples_from_workers" if source.task else "tuples_from_stmgrs"] += count
        if frame.tracked and not frame.registered and source.task and frame.root_task == source.task:
            self.acking.register(source.task, frame)
        dest = frame.dest_task
        waiting = Waiting(data, count, dest, frame.tracked, source, frame.attempt)
        if frame.trace:
            waiting.arrived_ns, waiting.clock = self._now_ns(), self._now_ns
        if waiting.tracked or waiting.attempt:
            source.settled_tuples += count
        else:
            waiting.origin = source
        if waiting.attempt and self.attempts.is_stale(dest, waiting.attempt):
            self._lose([waiting], "earlier attempt")
            return
        local = self.tasks.get(dest)
        if local is not None:
            link = local.link
            # A peer gets its credit immediately (see links.py) and is asked to hold the task's frames instead.
            limit = link.high if source.task and self.holds else NEVER
            if link.queued_bytes > limit and self.hints.is_avoided(dest):
                # The sender uses another task, which it could not do without credit.
                limit = self.backpressure.high
            link.put(waiting, limit)
            if link.is_full and not source.task and self.asks and dest not in source.holding:
                source.holding.add(dest)
                local.held_by.append(source)
                source.reply(clamp_frame(True, dest, local.limit))
        else:
            peer = self.peers.get(self.remote.get(dest, ""))
            if peer is None:
                self._lose([waiting], "no such task")
                return
            link = peer.link
            # Frames that the peer has asked to hold earn no credit, unless their sender can use another task now.
            held = link.held and dest in link.held and not self.hints.is_avoided(dest)
            link.put(waiting, NEVER if not self.holds else 0 if held else link.high)
        if waiting.creditor is not None:
            self.hints.hold_sender(waiting)
        if link.queued_bytes > link.high and link.is_full:
            self.hints.observe(link)
        if not self._credit_owed:
            self._owe_credit()

    def _now_ns(self) -> int:
        return int(self._now() * 1e9)

    def _owe_credit(self) -> None:
        """Arrange that senders soon get their outstanding credit, even below a quarter window."""
        if not self._credit_owed:
            self._credit_owed = True
            self.on_credit_owed()

    def settle_credit(self) -> None:
        """Return the credit that waits for its quarter window, so that senders know they are drained."""
        self._credit_owed = False
        for source in self.sources.values():
            if source.window < source.window_max:
                source.grow(self._now())
            if source.unreported():
                source.grant()

    def _pump(self, link: Link) -> None:
        """Send frames for which the link has credit, and return credit to their senders."""
        if link.pump():
            self._owe_credit()
        if link.name in self.backpressure.local:
            self.hints.observe(link)

    def _task_credit(self, source: Source, frame: frame_pb2.Frame) -> None:
        task = self.tasks.get(source.task)
        if task is None:
            source.grant()  # a probe of a peer
        else:
            task.link.credit(frame)
            if frame.pace != task.link.pace:
                self.hints.take_pace(task, frame.pace)
            self._owe_credit()
            self._pump(task.link)
            if task.held_by and task.link.queued_bytes <= task.link.low:
                task.release()

    def peer_credit(self, stmgr_id: str, *parts: bytes) -> bool:
        """Process a peer's answers on the socket to it: credits, and the tasks that are too full.

        Returns False if the link must be reopened, because a message was damaged in transit in either direction.
        """
        peer, opened = self.peers.get(stmgr_id), open_frame(list(parts))
        if peer is None or opened is None:
            self.counts["garbage"] += 1
            self.counts["damaged_links"] += peer is not None
            return peer is None
        epoch, seq, frame, _ = opened
        if epoch != peer.link.epoch:
            self.counts["stale_frames"] += 1
            return True
        if not peer.link.heard(seq) or frame.kind == LINK_OPEN:
            return False
        if frame.kind == CREDIT:
            peer.link.credit(frame)
            self._owe_credit()
            self._pump(peer.link)
        elif frame.kind == CLAMP:
            self.hints.tell(frame.dest_task, frame.on, frame.count)
            if frame.on:
                peer.link.hold(frame.dest_task)
            else:
                peer.link.release(frame.dest_task)
                self._pump(peer.link)
        return True

    # ---- tasks --------------------------------------------------------------------------------

    def take_places(self, mine: dict[int, str], spouts: Container[str], elsewhere: dict[int, str]) -> None:
        """Apply a new plan: the component of each task here, and the stream manager of every other task."""
        for task_id, component in mine.items():
            self.add_task(task_id, component, component in spouts)
            self.remote.pop(task_id, None)
        for task_id, name in self.remote.items():
            if elsewhere.get(task_id) != name:
                self.hints.tell(task_id, False, 0)
        # Senders that have not applied the plan yet still send to tasks that it removes.
        self.remote.update(elsewhere)
        for task_id, task in self.tasks.items():
            task.in_plan = task_id in mine
        # Peers that connected before the first plan may send now.
        self._ready = True
        for source in self.sources.values():
            if not source.granted:
                source.grant()

    def absent(self, connected: Container[int], rewound: bool) -> list[int]:
        """Return the tasks that the plan places elsewhere or no longer contains, and that can be removed now.

        A connected task that has not sent LEAVE may still have frames to send. With `rewound`, these frames do not
        matter, because the plan's new attempt rewinds them.
        """
        gone = [task for task in self.tasks.values() if not task.in_plan]
        return [t.task for t in gone if rewound or t.farewell is not None or t.task not in connected]

    def add_task(self, task_id: int, component: str, is_spout: bool) -> LocalTask:
        """Add a task of this container; frames for it queue until it registers."""
        task = self.tasks.get(task_id)
        if task is None:
            link = Link(f"task-{task_id}", task_id, self._no_peer, *self.hints.start_marks())
            task = self.tasks[task_id] = LocalTask(task_id, component, is_spout, link)
            if is_spout:
                self.ackers[task_id] = Acker()
        return task

    @staticmethod
    def _no_peer(header: bytes, data: bytes) -> bool:
        return False

    def attach(self, task: LocalTask, identity: bytes, epoch: int, link_epoch: int) -> None:
        """Begin a (new) link to a task; settle the remaining frames of the previous link.

        None of a spout's earlier roots is pending any more, whether its process is new or the same.
        """
        self._end_source(task.identity)
        if task.source is not None:
            task.source.mute()
        if task.is_spout:
            self.ackers[task.task] = Acker()
        task.begin(identity, epoch)
        farewell, task.farewell = task.farewell, None
        self._settle_unconsumed(task, farewell)
        window = self.settings.instance_out_window_bytes
        reply = task.link.send_control
        task.source = Source(f"task-{task.task}", task.task, link_epoch, window, reply)
        task.link.transmit = lambda header, data: self._send(identity, header, data)
        task.link.start(link_epoch)

    def _settle_unconsumed(self, task: LocalTask, farewell: frame_pb2.Frame | None) -> None:
        """Settle frames in flight to a task: they are sent again after an orderly exit, and lost otherwise."""
        frames = task.link.close()
        if farewell is not None and not task.is_spout and not any(waiting.attempt for waiting in frames):
            task.link.put_back(frames, farewell.skip)
        else:
            self._lose(frames, "task died")

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

    def remove_task(self, task_id: int) -> None:
        """Remove a task that has ended or moved: forward its waiting frames, or discard and count them."""
        task = self.tasks.pop(task_id, None)
        if task is None:
            return
        self._end_source(task.identity)
        task.release()
        self.ackers.pop(task_id, None)
        self._settle_unconsumed(task, task.farewell)
        peer = self.peers.get(self.remote.get(task_id, ""))
        self.counts["tuples_to_workers"] += task.link.total_tuples
        self.counts["tuples_consumed"] += task.link.total_consumed
        self.counts["bytes_to_workers"] += task.link.total_bytes
        self.counts["frames_to_workers"] += task.link.total_frames
        if peer is None:
            self._lose(task.link.waiting(), "task removed")
        else:
            for waiting in task.link.waiting():
                peer.link.put(waiting, peer.link.high if self.holds else NEVER)
            self._owe_credit()
        self.hints.tell(task_id, False, 0)
        if self.backpressure.forget(task.link.name, self._now()):
            self.hints.on_pressure()
        self.on_removed(task_id)

    def _lose(self, frames: list[Waiting], reason: str) -> None:
        for waiting in frames:
            waiting.settled(waiting.tuples)
            if waiting.attempt:
                self.attempts.give_up(waiting.dest_task, waiting.attempt, waiting.tuples, reason)
            else:
                self._discard(reason, waiting.tuples, waiting.tracked)
            if waiting.creditor is not None:
                waiting.creditor.absorbed(len(waiting.data), waiting.tuples)
                waiting.creditor = None
                self._owe_credit()
            if waiting.tracked:
                self.acking.fail_roots(Frame.FromString(waiting.data))

    def rewind(self, plan: plan_pb2.PhysicalPlan) -> None:
        """Apply the attempts of a new plan: drop waiting frames of earlier attempts."""
        self.attempts.use(plan)
        stale = self.attempts.is_stale
        for link in self._links():
            gone = link.discard(lambda waiting: stale(waiting.dest_task, waiting.attempt))
            if gone:
                self._lose(gone, "earlier attempt")
                if link.name in self.backpressure.local:
                    self.hints.observe(link)
        for task in self.tasks.values():
            if task.held_by and task.link.queued_bytes <= task.link.low:
                task.release()

    def _discard(self, reason: str, tuples: int, tracked: bool = False) -> None:
        if tuples:
            self.discarded[reason] += tuples
            self.lost_tuples += 0 if tracked else tuples

    # ---- peers --------------------------------------------------------------------------------

    def add_peer(
        self,
        stmgr_id: str,
        epoch: int,
        transmit: Callable[[bytes, bytes], bool],
        wanted: Callable[[], None] | None = None,
    ) -> Peer:
        """Add a peer, or a new incarnation of it; its queued frames stay queued.

        `wanted` is called when frames wait for the peer without a link; `open_peer` opens one.
        """
        peer = self.peers.get(stmgr_id)
        if peer is None:
            high, low = self.settings.backpressure_high_bytes, self.settings.backpressure_low_bytes
            peer = self.peers[stmgr_id] = Peer(stmgr_id, epoch, Link(stmgr_id, 0, transmit, high, low))
        if epoch != peer.epoch:
            self._discard("peer died", peer.link.take_unsettled())
        peer.epoch = epoch
        peer.link.transmit, peer.link.wanted = transmit, wanted or _nothing
        self.peer_epochs[stmgr_id] = max(epoch, self.peer_epochs.get(stmgr_id, 0))
        self.pending.forget_older(stmgr_id, epoch)
        for parts in self.pending.take_out(f"s:{stmgr_id}:{epoch}".encode()):
            self.receive(parts)
        if not peer.link.is_empty:
            peer.link.wanted()
        return peer

    def is_peer(self, identity: bytes) -> bool:
        """Return whether this is the identity of a stream manager in the plan."""
        match = _PEER.fullmatch(identity)
        return match is not None and self.peer_epochs.get(match[1].decode()) == int(match[2])

    def close_peer(self, stmgr_id: str) -> None:
        """Close the broken connection to a peer: frames in flight are lost, new frames wait for the next connection.

        A frame counted as lost may have arrived: then its roots fail although it was processed, which
        ATLEAST_ONCE allows; without acks, it is counted once too often.
        """
        peer = self.peers.get(stmgr_id)
        if peer is not None:
            self.counts["lost_links"] += peer.link.open
            self._lose(peer.link.close(), "peer lost")

    def open_peer(self, stmgr_id: str, link_epoch: int) -> None:
        peer = self.peers.get(stmgr_id)
        if peer is None:
            return
        self.close_peer(stmgr_id)
        # The peer reports the limits again, and asks to hold frames when the first frame arrives too early.
        for task, name in self.remote.items():
            if name == stmgr_id:
                self.hints.tell(task, False, 0)
        peer.link.start(link_epoch)
        peer.link.send_control(Frame(kind=LINK_OPEN).SerializeToString())
        peer.link.send_kept()

    def probe_peers(self) -> list[str]:
        """Called once per heartbeat: return peers that do not reply, because their links must be reopened."""
        return [name for name, peer in self.peers.items() if not peer.link.probe()]

    def remove_peer(self, stmgr_id: str) -> None:
        """Remove a peer that has left the plan."""
        peer = self.peers.pop(stmgr_id)
        for task in peer.link.held:
            self.hints.tell(task, False, 0)
        self._lose(peer.link.close() + peer.link.waiting(), "peer removed")
        self._discard("peer removed", peer.link.take_unsettled())
        self.backpressure.lost(stmgr_id)
        if self.backpressure.forget(stmgr_id, self._now()):
            self.hints.on_pressure()

    # ---- backpressure -------------------------------------------------------------------------

    def clamp_spouts(self, on: bool) -> None:
        message = clamp_frame(on)
        for task in self.tasks.values():
            if task.is_spout:
                task.link.send_control(message)

    def hold_credit(self, on: bool) -> None:
        """Set whether full queues hold back credit; if not, held credit is returned.

        A barrier may wait in its sender behind frames for other tasks, which delays a checkpoint that saves the tuples
        in flight. While credit is returned for this reason, clamped spouts bound the queues.
        """
        self.holds = on and self.may_hold
        if on:
            return
        for link in self._links():
            for waiting in link.waiting():
                if waiting.creditor is not None:
                    waiting.creditor.absorbed(len(waiting.data), waiting.tuples)
                    waiting.creditor = None
        self._owe_credit()

    # ---- the end ------------------------------------------------------------------------------

    @property
    def tasks_left(self) -> bool:
        """True if all tasks have sent LEAVE or have no link, so that no more frames arrive from them."""
        return all(task.source is None or task.farewell is not None for task in self.tasks.values())

    @property
    def settled(self) -> bool:
        """True if all tasks have left, and the peers have received all frames for them."""
        moving = any(peer.link.in_flight() or peer.link.queued_tuples for peer in self.peers.values())
        return self.tasks_left and not moving

    def end(self) -> None:
        """End this process cleanly: drop and count the frames that wait here, and accept no more frames.

        Peers count the frames that they still send as lost with this process. No tuple is missing after a restore from
        a checkpoint.
        """
        for task in self.tasks.values():
            self._settle_unconsumed(task, task.farewell)
        for peer in self.peers.values():
            self._lose(peer.link.close(), "stream manager ended")
        for link in self._links():
            self._lose(link.discard(lambda waiting: not waiting.attempt), "stream manager ended")
        self.settle_credit()
        self._ended = True

    # ---- totals -------------------------------------------------------------------------------

    def queued(self) -> tuple[int, int]:
        """Return (bytes, tuples) that wait in this process."""
        links = self._links()
        return sum(link.queued_bytes for link in links), sum(link.queued_tuples for link in links)

    def in_flight(self) -> int:
        """Return the number of tuples sent to local tasks or peers and not reported as consumed."""
        return sum(link.in_flight() for link in self._links())

    def _links(self) -> list[Link]:
        return [task.link for task in self.tasks.values()] + [peer.link for peer in self.peers.values()]


def _nothing(*_: object) -> None:
    """Do nothing; the default of callbacks."""
