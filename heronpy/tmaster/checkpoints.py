"""The checkpoints of the topology master (mode EFFECTIVELY_ONCE). Pure.

Connects the coordinator (which checkpoints exist), the restorer (which tasks run, and from which checkpoint) and the
shared state, and turns the decisions of these parts into effects. Invariants: numbers, records and deletions are in the
stored log before any process receives them; every request is answered once.
"""

from __future__ import annotations

import contextlib

from heronpy.common.errors import HeronError, RetryableRpcError, RpcError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.units import format_bytes
from heronpy.proto import checkpoint_pb2, control_pb2, plan_pb2
from heronpy.storage.checkpoint_layout import number_in
from heronpy.tmaster import coordinator as words
from heronpy.tmaster import events
from heronpy.tmaster.coordinator import Coordinator
from heronpy.tmaster.input import Finisher
from heronpy.tmaster.restorer import Restorer
from heronpy.tmaster.shared_state import SharedState

#: Token of the checkpoint that ends a topology; tokens of client requests are positive.
_SEAL = 0
#: Interval at which CheckpointComplete of the last checkpoint is repeated to tasks that have not handled it.
ANNOUNCE_AGAIN_S = 1.0
#: Maximum number of awaited tasks that a reply names.
NAMES_MAX = 100


class Checkpoints:
    """The checkpoints of a topology; call `begin` first."""

    def __init__(
        self,
        shared: SharedState,
        settings: CheckpointSettings,
        log: checkpoint_pb2.CheckpointLog | None,
        previous: plan_pb2.PhysicalPlan | None,
        finisher: Finisher,
    ) -> None:
        self._shared = shared
        self._finisher = finisher
        finisher.sealed = self.sealed
        topology = shared.book.topology
        if log is None or log.topology_id != topology.id:
            log = checkpoint_pb2.CheckpointLog(topology_id=topology.id)
        self.coordinator = Coordinator(settings, log, self._describe)
        self.restorer = Restorer(shared, settings, self.coordinator, previous, finisher, self._perform)
        #: A checkpoint that a predecessor may have left incomplete; 0: none.
        self._orphan = 0
        #: Lowest number that the checkpoint ending the topology can have; 0: not requested.
        self._seal_from = 0
        self._seal_asked = False
        self._announce_at = float("-inf")
        #: Whether the last check found tasks that have not committed the checkpoint that ends the topology. No check
        #: runs during an operation or a restore.
        self._seal_waits = False
        #: By token: the outcome of a checkpoint that an operation of this master requested.
        self._outcomes: dict[int, words.Answer] = {}
        self._tokens = 0

    def begin(self, now: float) -> None:
        """Read the previous topology master's records, before the first plan is published."""
        log = self.coordinator.log
        source = number_in(log.restore_from)
        log.next_checkpoint = max(1, log.next_checkpoint, source + 1)
        last = max((record.checkpoint for record in log.complete), default=source)
        self._orphan = log.next_checkpoint - 1 if log.next_checkpoint - 1 > last else 0
        self.coordinator.begin(now)
        self.restorer.begin(now)
        self._shared.pending.append(self.coordinator.prune((self._orphan,) if self._orphan else ()))

    # ---- reports of other processes ---------------------------------------------------------

    def handle(self, event: events.Event, now: float) -> None:
        """Handle reports of tasks, stream managers and the checkpoint store."""
        if isinstance(event, events.TaskAnswered):
            message = event.message
            self.coordinator.answered(message, now)
            if message.lost_data:
                why = message.error or "frames are missing"
                self.restorer.on_data_lost(message.task_id, message.attempt, why, now)
        elif isinstance(event, events.DataLost):
            self._on_data_lost(event.message, now)
        elif isinstance(event, events.RestoreFailed):
            self.restorer.on_restore_failed(event.message, now)
        elif isinstance(event, events.MetadataWritten):
            self._on_written(event, now)
        elif isinstance(event, events.CheckpointsDeleted):
            self._on_deleted(event)
        self._perform()

    def look_at_stmgr(self, record: plan_pb2.StmgrRecord, peer: bytes, now: float) -> None:
        """Handle the registration of a stream manager."""
        self.restorer.look_at_stmgr(record, now)
        if self._orphan and self.coordinator.pending is None:
            reason = "the topology master was replaced"
            self._shared.send((peer,), control_pb2.CheckpointAborted(checkpoint=self._orphan, reason=reason))
        last = self.coordinator.newest()
        if last is not None and self.restorer.regions.all_started:
            # The predecessor may have stored this checkpoint without notifying every task.
            self._shared.send((peer,), control_pb2.CheckpointComplete(checkpoint=last.checkpoint))

    def _on_data_lost(self, message: control_pb2.DataLost, now: float) -> None:
        tuples = "1 tuple" if message.tuples == 1 else f"{message.tuples} tuples"
        why = f"{message.stmgr_id} dropped {tuples} for task {message.task_id} ({message.reason}), to be sent again"
        self.restorer.on_data_lost(message.task_id, message.attempt, why, now)

    def on_send_failed(self, body: object, now: float) -> None:
        pending = self.coordinator.pending
        if isinstance(body, control_pb2.TriggerCheckpoint) and pending and pending.checkpoint == body.checkpoint:
            self.coordinator.abort("a stream manager could not be reached", now)
        self._perform()

    def _on_written(self, event: events.MetadataWritten, now: float) -> None:
        before = self.coordinator.log.completed
        self.coordinator.written(event.metadata, event.outcome, now)
        if self.coordinator.log.completed != before:
            self.restorer.regions.forgive()

    def _on_deleted(self, event: events.CheckpointsDeleted) -> None:
        if event.failure is not None:
            left = event.failure.reason
            why = f"the checkpoints are removed from the log, but not all of their files are deleted yet: {left}"
            self._shared.refuse([event.request], RpcError(why))
        else:
            self._shared.confirm([event.request], "deleted")

    # ---- requests ---------------------------------------------------------------------------

    def on_requested(self, token: int, savepoint: bool, now: float) -> None:
        """Take a checkpoint at a client's request. Raises RpcError if no checkpoint can be taken."""
        if self._shared.failure is not None:
            raise RpcError(f"{self._shared.book.topology.name} has failed: {self._shared.failure}")
        self.coordinator.request(token, savepoint, now)

    def on_rewind(self, token: int, checkpoint: int, now: float) -> None:
        """Rewind the topology at a client's request. The answer is sent when the plan for the rewind is published."""
        number = self.restorer.rewind(checkpoint, now)
        self._shared.publish_if_due(now)
        where = f"checkpoint {number}" if number else "the beginning"
        self._shared.confirm([token], f"{self._shared.book.topology.name} goes back to {where}")

    def on_delete(self, token: int, checkpoints: list[int]) -> None:
        """Delete all of these checkpoints at a client's request, or none of them. The answer is sent when the files are
        deleted.
        """
        used = self.restorer.in_use()
        for number in checkpoints:
            if number in used:
                raise RpcError(f"checkpoint {number} cannot be deleted, because {used[number]}")
        self.coordinator.delete(checkpoints, token)
        self._perform()

    # ---- for operations of this master ------------------------------------------------------

    def ask(self, now: float) -> int:
        """Request an aligned checkpoint (without tuples in flight); return the token for `outcome`."""
        self._tokens -= 1
        try:
            self.coordinator.request(self._tokens, False, now, aligned=True)
        except RetryableRpcError as error:
            self._outcomes[self._tokens] = words.Answer(self._tokens, error)
        return self._tokens

    @property
    def plain(self) -> frozenset[str]:
        """Components that have a plain State in the last checkpoint."""
        return self.coordinator.plain

    @property
    def settled(self) -> bool:
        """Whether every task runs, and every process has the current plan."""
        return self.restorer.ready

    def outcome(self, token: int) -> words.Answer | None:
        """The result of the checkpoint that `ask` requested; None while it is in progress."""
        return self._outcomes.pop(token, None)

    def sealed(self, now: float) -> bool:
        """Whether all tasks have committed a checkpoint that began after the first call to this method."""
        coordinator = self.coordinator
        if not self._seal_from:
            self._seal_from = coordinator.log.next_checkpoint
        if coordinator.last_completed >= self._seal_from:
            return self._all_committed(coordinator.last_completed, now)
        if not self._seal_asked:
            with contextlib.suppress(RetryableRpcError):
                coordinator.request(_SEAL, False, now)
                self._seal_asked = True
        return False

    def _all_committed(self, checkpoint: int, now: float) -> bool:
        registry = self._shared.registry
        waiting = [t for t, s in registry.tasks.items() if s.committed < checkpoint]
        self._seal_waits = bool(waiting)
        if waiting and now >= self._announce_at:
            self._announce_at = now + ANNOUNCE_AGAIN_S
            self._broadcast(control_pb2.CheckpointComplete(checkpoint=checkpoint))
        return not waiting

    # ---- time -------------------------------------------------------------------------------

    @property
    def _quiet(self) -> bool:
        """Whether a checkpoint would save nothing new, because the topology has finished."""
        return self._finisher.done and self.coordinator.pending is None

    def advance(self, now: float, *, updating: bool, switching: bool) -> None:
        """Start regions whose tasks are all ready, and begin a checkpoint if one is due."""
        self._seal_waits = False
        self.coordinator.periodic = not updating
        self.restorer.switching = switching
        if not self._finisher.active:
            self._seal_from, self._seal_asked = 0, False
        self.restorer.advance(now)
        if not self._quiet:
            self.coordinator.advance(now, self.restorer.roster)
        self._perform()

    def deadline(self) -> float:
        """The latest time for the next call to `advance`."""
        coordinator = self.coordinator
        if self._quiet:
            return float("inf")
        due = coordinator.deadline
        if coordinator.pending is None and not self.restorer.ready:
            # No checkpoint can begin now; the event that changes this leads to another call.
            due = coordinator.expiry
        if self._seal_waits:
            due = min(due, self._announce_at)
        return min(due, self.restorer.deadline())

    # ---- effects ----------------------------------------------------------------------------

    def _perform(self) -> None:
        for effect in self.coordinator.take():
            if isinstance(effect, words.Trigger):
                self._trigger(effect)
            elif isinstance(effect, words.Announce):
                self._announce_at = float("-inf")
                self._broadcast(control_pb2.CheckpointComplete(checkpoint=effect.checkpoint))
                self._note_complete(effect.checkpoint)
            elif isinstance(effect, words.Abort):
                text = f"checkpoint {effect.checkpoint} was aborted: {effect.reason}"
                self._shared.event_log.add(control_pb2.EVENT_CHECKPOINT, text, reason="aborted", warning=True)
                self._broadcast(control_pb2.CheckpointAborted(checkpoint=effect.checkpoint, reason=effect.reason))
            elif isinstance(effect, words.Answer):
                self._answer(effect)
            else:
                self._shared.pending.append(effect)

    def _note_complete(self, checkpoint: int) -> None:
        record = next(one for one in self.coordinator.log.complete if one.checkpoint == checkpoint)
        kind = "savepoint" if record.kind == checkpoint_pb2.SAVEPOINT else "checkpoint"
        self._shared.event_log.add(
            control_pb2.EVENT_CHECKPOINT,
            f"{kind} {checkpoint} is complete, {format_bytes(record.total_bytes)}",
            reason=kind,
            lasted_s=record.duration_s,
        )

    def _trigger(self, effect: words.Trigger) -> None:
        shared = self._shared
        self._orphan = 0
        spouts = {spout.comp.name for spout in shared.book.topology.spouts}
        orders: dict[bytes, list[int]] = {}
        for task, place in shared.registry.places.items():
            peer = shared.registry.peer_of_task(task)
            # An unaligned checkpoint does not wait for barriers, which may be stuck in a long queue (F38).
            if peer is not None and (effect.unaligned or place.component in spouts):
                orders.setdefault(peer, []).append(task)
        for peer, tasks in orders.items():
            order = control_pb2.TriggerCheckpoint(
                checkpoint=effect.checkpoint,
                savepoint=effect.savepoint,
                unaligned=effect.unaligned,
                task_ids=sorted(tasks),
            )
            shared.send((peer,), order)

    def _broadcast(self, body: control_pb2.CheckpointComplete | control_pb2.CheckpointAborted) -> None:
        shared = self._shared
        shared.send(sorted(entry.peer for entry in shared.registry.stmgrs.values()), body)

    def _answer(self, answer: words.Answer) -> None:
        if answer.token == _SEAL:
            self._seal_asked = False
        elif answer.token < 0:
            self._outcomes[answer.token] = answer
        elif isinstance(answer.outcome, HeronError):
            self._shared.refuse([answer.token], answer.outcome)
        else:
            self._shared.reply(answer.token, control_pb2.TakeCheckpointReply(record=answer.outcome))

    def _describe(self, metadata: checkpoint_pb2.Metadata) -> None:
        book = self._shared.book
        metadata.topology, metadata.topology_id = book.topology.name, book.topology.id
        metadata.plan_version = book.version

    # ---- questions --------------------------------------------------------------------------

    def reply(self, now: float) -> control_pb2.CheckpointsReply:
        """Build the reply that lists the checkpoints."""
        coordinator, restorer = self.coordinator, self.restorer
        reply = control_pb2.CheckpointsReply(
            complete=coordinator.log.complete,
            completed=coordinator.log.completed,
            aborted=coordinator.log.aborted,
            failed=coordinator.log.failed,
            restores=self._shared.registry.totals.restores,
            last_failure=coordinator.last_failure,
            last_restore=restorer.last_restore,
            last_restore_s=restorer.last_restore_s,
            regions=[region.record for region in restorer.regions.regions],
        )
        pending = coordinator.pending
        if pending is not None:
            reply.pending = pending.checkpoint
            reply.pending_s = now - pending.began
            reply.pending_tasks = len(pending.waiting)
            reply.pending_names.extend(
                self._shared.registry.name_of(task) for task in sorted(pending.waiting)[:NAMES_MAX]
            )
        return reply

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        self.coordinator.validate()
        self.restorer.regions.validate()
        assert not self.coordinator.effects, "effects of the coordinator were left behind"
