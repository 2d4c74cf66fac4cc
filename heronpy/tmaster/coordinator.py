"""Decides when checkpoints are taken, which events they wait for, and which can be restored. Pure.

Each call gets the time, and returns a value or adds to `effects`. Invariants: A number is reserved in the log
before it is announced, and is never used twice. One checkpoint runs at a time. An answer counts once per task, and only
if it comes from the process and attempt with which the checkpoint began. A checkpoint is complete when its metadata is
written, and is logged before it is announced. Every checkpoint that has started is counted as completed, aborted or
failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from heronpy.common.errors import HeronError, InvalidRpcError, RetryableRpcError, RpcError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto import checkpoint_pb2, control_pb2
from heronpy.proto.checkpoint_pb2 import SAVEPOINT, CheckpointRecord
from heronpy.tmaster.events import Failed, Node, Note, Persist, Prune, WriteMetadata, Written

#: Version of the metadata format.
METADATA_VERSION = 1
#: Maximum number of requested checkpoints that wait for their turn.
REQUESTS_MAX = 100
#: Pause before an incomplete checkpoint is retried, if a checkpoint is still needed.
RETRY_S = 1.0


class UnknownCheckpointError(InvalidRpcError):
    """No complete checkpoint has this number."""

    def __init__(self, checkpoint: int) -> None:
        super().__init__(checkpoint)
        self.checkpoint = checkpoint

    def __str__(self) -> str:
        return f"there is no complete checkpoint {self.checkpoint}; see heron checkpoints list"


class WithdrawnCheckpointError(InvalidRpcError):
    """The topology was restored from an older checkpoint, and sinks may have withdrawn output of this checkpoint.

    This also holds if the restore from the older checkpoint failed: a sink that restored first has withdrawn its
    output.
    """

    def __init__(self, checkpoint: int) -> None:
        super().__init__(checkpoint)
        self.checkpoint = checkpoint

    def __str__(self) -> str:
        return (
            f"checkpoint {self.checkpoint} cannot be restored: the topology was later restored from an older"
            " checkpoint, and sinks may have removed the output that belongs to it; choose an older checkpoint (heron"
            " checkpoints list)"
        )


class Incarnation(Struct, frozen=True):
    """The process and attempt of a task when a checkpoint began."""

    component: str
    epoch: int
    attempt: int


# ---- effects --------------------------------------------------------------------------------


class Trigger(Struct, frozen=True):
    """Request barriers from the spouts or, if `unaligned`, the state of every task that has not saved it."""

    checkpoint: int
    savepoint: bool
    unaligned: bool


class Announce(Struct, frozen=True):
    """Notify every task that the checkpoint is complete."""

    checkpoint: int


class Abort(Struct, frozen=True):
    """Notify every task that the checkpoint will not complete."""

    checkpoint: int
    reason: str


class Answer(Struct, frozen=True):
    """The outcome of a requested checkpoint; a RetryableError means that a retry will probably succeed."""

    token: int
    outcome: checkpoint_pb2.CheckpointRecord | HeronError


Decision = Persist | Note | Trigger | WriteMetadata | Announce | Abort | Prune | Answer


class Roster(Protocol):
    """Returns the tasks that take part in a checkpoint; None while a region is not running."""

    def __call__(self) -> Mapping[int, Incarnation] | None: ...


class Pending(Struct):
    """The checkpoint in progress."""

    checkpoint: int
    savepoint: bool
    began: float
    deadline: float
    #: Time at which the checkpoint becomes unaligned if tasks still wait for barriers.
    overtake: float
    roster: Mapping[int, Incarnation]
    waiting: set[int]
    tokens: list[int] = field(default_factory=list)
    snapshots: dict[int, checkpoint_pb2.TaskSnapshot] = field(default_factory=dict)
    writing: bool = False


class _Request(Struct, frozen=True):
    token: int
    savepoint: bool
    aligned: bool
    expires: float


class Coordinator:
    """Coordinates checkpoints. After each call, `take` the effects and perform them in order."""

    def __init__(
        self,
        settings: CheckpointSettings,
        log: checkpoint_pb2.CheckpointLog,
        describe: Callable[[checkpoint_pb2.Metadata], None],
    ) -> None:
        self._settings = settings
        self.log = log
        #: Fills in the fields of the metadata that do not come from the tasks.
        self._describe = describe
        self.pending: Pending | None = None
        self._requests: list[_Request] = []
        #: Time of the next periodic checkpoint, and the earliest time for any checkpoint.
        self._due = self._not_before = float("-inf")
        #: Whether a due checkpoint must wait for an event before it can begin.
        self._stalled = False
        #: Whether checkpoints are taken without a request.
        self.periodic = True
        self.effects: list[Decision] = []
        self.last_failure = ""
        #: The last checkpoint that this coordinator completed; 0: none yet.
        self.last_completed = 0
        #: Components with a plain State in the last completed checkpoint.
        self.plain: frozenset[str] = frozenset()

    # ---- beginning --------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Schedule the first checkpoint after one interval."""
        self._due, self._not_before = now + self._settings.interval_s, now

    @property
    def deadline(self) -> float:
        """The latest time for the next call to `advance`, unless an event comes first."""
        if self.pending is not None:
            pending = self.pending
            return self.expiry if pending.writing else min(self.expiry, pending.deadline, pending.overtake)
        return self.expiry if self._stalled else min(self.expiry, self._next_start())

    @property
    def expiry(self) -> float:
        """The time at which the first request expires."""
        return min((r.expires for r in self._requests), default=float("inf"))

    def _next_start(self) -> float:
        if self._requests:
            return self._not_before
        return max(self._due, self._not_before) if self.periodic else float("inf")

    def request(self, token: int, savepoint: bool, now: float, *, aligned: bool = False) -> None:
        """Request a checkpoint. Raises RetryableRpcError if too many requests are waiting."""
        if len(self._requests) >= REQUESTS_MAX:
            raise RetryableRpcError("too many checkpoint requests are waiting; try again when one is done")
        self._requests.append(_Request(token, savepoint, aligned or savepoint, now + self._limit_s(savepoint)))

    def _limit_s(self, savepoint: bool) -> float:
        return self._settings.savepoint_timeout_s if savepoint else self._settings.timeout_s

    def advance(self, now: float, roster: Roster) -> None:
        """Abort an overdue checkpoint, make a slow checkpoint unaligned, or begin the next checkpoint if it is due."""
        self._expire(now)
        self._stalled = False
        pending = self.pending
        if pending is not None:
            if not pending.writing and now >= pending.deadline:
                self.abort(f"{self._laggards(pending)} within {now - pending.began:.3g} s", now)
            elif not pending.writing and now >= pending.overtake:
                self._overtake(pending)
            return
        if now < self._next_start():
            return
        members = roster()
        self._stalled = members is None
        if members is not None:
            self._begin(members, now)

    def _expire(self, now: float) -> None:
        """Answer requests that have waited too long with an error."""
        for request in [r for r in self._requests if now >= r.expires]:
            self._requests.remove(request)
            why = "no checkpoint could begin in time: the topology is not running; see heron status"
            if self.pending is not None:
                why = f"no checkpoint could begin in time: checkpoint {self.pending.checkpoint} is still in progress"
            self.effects.append(Answer(request.token, RpcError(why)))

    def _begin(self, members: Mapping[int, Incarnation], now: float) -> None:
        settings = self._settings
        savepoint = bool(self._requests) and self._requests[0].savepoint
        mine = [r for r in self._requests if r.savepoint == savepoint]
        self._requests = [r for r in self._requests if r.savepoint != savepoint]
        number = max(1, self.log.next_checkpoint)
        self.log.next_checkpoint = number + 1
        patience_s = float("inf") if any(r.aligned for r in mine) else settings.aligned_timeout_s
        deadline = now + self._limit_s(savepoint)
        self.pending = pending = Pending(number, savepoint, now, deadline, now + patience_s, members, set(members))
        pending.tokens = [request.token for request in mine]
        if not savepoint:
            self._due = now + max(settings.interval_s, settings.interval_min_s)
        self._save()
        if patience_s:
            self.effects.append(Trigger(number, savepoint, unaligned=False))
        else:
            self._overtake(pending)

    def _overtake(self, pending: Pending) -> None:
        """Make the checkpoint unaligned: barriers overtake tuples, and tasks save these tuples in their state."""
        pending.overtake = float("inf")
        self.effects.append(Trigger(pending.checkpoint, pending.savepoint, unaligned=True))

    # ---- answers ----------------------------------------------------------------------------

    def answered(self, message: control_pb2.TaskCheckpoint, now: float) -> bool:
        """Handle a task's answer that it has saved its state or declined; return False if the answer is ignored."""
        pending = self.pending
        member = pending.roster.get(message.task_id) if pending is not None else None
        if (
            pending is None
            or member is None
            or pending.checkpoint != message.checkpoint
            or message.task_id not in pending.waiting
            or (message.epoch, message.attempt) != (member.epoch, member.attempt)
        ):
            return False
        if message.WhichOneof("answer") != "snapshot":
            self.abort(f"task {message.task_id} of {member.component} declined: {message.error}", now)
            return True
        pending.waiting.discard(message.task_id)
        snapshot = checkpoint_pb2.TaskSnapshot()
        snapshot.CopyFrom(message.snapshot)
        snapshot.task_id, snapshot.component = message.task_id, member.component
        snapshot.attempt = member.attempt
        pending.snapshots[message.task_id] = snapshot
        if not pending.waiting:
            pending.writing = True
            self.effects.append(WriteMetadata(self._metadata(pending, now)))
        return True

    def _metadata(self, pending: Pending, now: float) -> checkpoint_pb2.Metadata:
        metadata = checkpoint_pb2.Metadata(
            version=METADATA_VERSION,
            checkpoint=pending.checkpoint,
            kind=checkpoint_pb2.SAVEPOINT if pending.savepoint else checkpoint_pb2.CHECKPOINT,
            unaligned=any(snapshot.HasField("channel_file") for snapshot in pending.snapshots.values()),
            duration_s=now - pending.began,
            key_groups=self._settings.key_groups,
            tasks=[pending.snapshots[task] for task in sorted(pending.snapshots)],
        )
        for member in pending.roster.values():
            metadata.parallelism[member.component] += 1
        self._describe(metadata)
        return metadata

    def written(self, metadata: checkpoint_pb2.Metadata, outcome: Written | Failed, now: float) -> None:
        """Handle the outcome of writing the metadata."""
        pending = self.pending
        if pending is None or pending.checkpoint != metadata.checkpoint:
            # The checkpoint was aborted in the meantime, so a restore must not find it.
            if isinstance(outcome, Written):
                self.effects.append(self.prune((metadata.checkpoint,)))
            return
        if isinstance(outcome, Failed):
            self._give_up(f"its metadata cannot be written: {outcome.reason}", now, failed=True)
            return
        self.pending = None
        self._not_before = now + self._settings.min_pause_s
        self.log.completed += 1
        self.last_completed = pending.checkpoint
        self.plain = frozenset(task.component for task in metadata.tasks if task.stateful)
        record = self.log.complete.add(
            checkpoint=pending.checkpoint,
            kind=metadata.kind,
            location=outcome.location,
            taken_at=metadata.taken_at,
            total_bytes=sum(task.total_bytes for task in metadata.tasks),
            uploaded_bytes=sum(task.uploaded_bytes for task in metadata.tasks),
            duration_s=now - pending.began,
            publishes=any(task.publishes for task in metadata.tasks),
        )
        # From now on this topology does not depend on the checkpoint that it was restored from.
        self.log.restore_from = ""
        delete = self._retire()
        self._save()
        self.effects.append(Announce(pending.checkpoint))
        self.effects.extend(Answer(token, record) for token in pending.tokens)
        if delete:
            self.effects.append(self.prune(tuple(delete)))

    def _retire(self) -> list[int]:
        """Remove checkpoints beyond the retained number from the log, except savepoints; return the removed numbers."""
        gone = to_drop(self.log.complete, self._settings.retained)
        self._drop(set(gone))
        return gone

    def _drop(self, gone: set[int]) -> None:
        kept = [r for r in self.log.complete if r.checkpoint not in gone]
        records = [checkpoint_pb2.CheckpointRecord.FromString(r.SerializeToString()) for r in kept]
        del self.log.complete[:]
        self.log.complete.extend(records)

    def prune(self, delete: tuple[int, ...] = (), token: int = 0) -> Prune:
        """Return the effect that deletes the files of checkpoints that are not in the log."""
        kept = tuple(record.checkpoint for record in self.log.complete)
        abandoned = tuple(record.checkpoint for record in self.log.complete if record.abandoned)
        return Prune(delete, kept, abandoned, token)

    # ---- aborting ---------------------------------------------------------------------------

    def abort(self, why: str, now: float, *, again: bool = False) -> None:
        """Abort the checkpoint in progress; `again` means that a retry will probably succeed."""
        if self.pending is not None:
            self._give_up(why, now, failed=False, again=again)

    def _give_up(self, why: str, now: float, *, failed: bool, again: bool = False) -> None:
        pending, self.pending = self.pending, None
        assert pending is not None
        kind = "savepoint" if pending.savepoint else "checkpoint"
        self._not_before = now + max(self._settings.min_pause_s, min(RETRY_S, self._settings.interval_s))
        self.log.failed += failed
        self.log.aborted += not failed
        self._save()
        self.last_failure = f"{kind} {pending.checkpoint}: {why}"
        self.effects.append(Abort(pending.checkpoint, why))
        verb = "failed" if failed else "was aborted"
        text = f"{kind} {pending.checkpoint} {verb}: {why}"
        self.effects.append(Note(text, warning=True))
        error = RetryableRpcError(text) if again else RpcError(text)
        self.effects.extend(Answer(token, error) for token in pending.tokens)

    def _laggards(self, pending: Pending) -> str:
        tasks = sorted(pending.waiting)
        shown = ", ".join(f"{task} of {pending.roster[task].component}" for task in tasks[:10])
        more = f" and {len(tasks) - 10} more" if len(tasks) > 10 else ""
        return f"no answer from task {shown}{more}"

    # ---- restoring --------------------------------------------------------------------------

    def newest(self) -> checkpoint_pb2.CheckpointRecord | None:
        """Return the checkpoint from which a restore should start; None if all are damaged."""
        return next((r for r in reversed(self.log.complete) if not (r.damaged or r.abandoned)), None)

    def back_to(self, checkpoint: int) -> None:
        """Make this checkpoint the newest and abandon the later ones.

        Raises UnknownCheckpointError if it is not complete, and WithdrawnCheckpointError if output that belongs to it
        is gone. Damage marks are cleared, because a store may be reachable again. The next restore detects real damage.
        """
        self._require(checkpoint)
        for record in self.log.complete:
            if record.checkpoint == checkpoint:
                if record.abandoned and record.publishes:
                    raise WithdrawnCheckpointError(checkpoint)
                record.abandoned = record.damaged = False
                record.damage = ""
        self._abandon_after(checkpoint)
        self._save()
        self.effects.append(self.prune())

    def _abandon_after(self, checkpoint: int) -> bool:
        """Abandon later checkpoints; return whether there are any."""
        later = [r for r in self.log.complete if r.checkpoint > checkpoint and not r.abandoned]
        for record in later:
            record.abandoned = True
        return bool(later)

    def delete(self, checkpoints: list[int], token: int) -> None:
        """Remove complete checkpoints from the log and delete their files.

        Raises UnknownCheckpointError if one of them is not complete, and RpcError if no checkpoint would be left.
        """
        doomed = set(checkpoints)
        for number in sorted(doomed):
            self._require(number)
        if doomed and len(doomed) == len(self.log.complete):
            # Without a record, the topology would appear to have no state, and would start empty (F23).
            raise RpcError("the last checkpoint of a running topology cannot be deleted; kill the topology first")
        self._drop(doomed)
        self._save()
        self.effects.append(self.prune(tuple(sorted(doomed)), token))

    def _require(self, checkpoint: int) -> None:
        if all(record.checkpoint != checkpoint for record in self.log.complete):
            raise UnknownCheckpointError(checkpoint)

    def damaged(self, checkpoint: int, what: str) -> None:
        """Mark a checkpoint as damaged, because a task could not restore it."""
        for record in self.log.complete:
            if record.checkpoint == checkpoint and not record.damaged:
                record.damaged, record.damage = True, what
                self._save()

    def reserve_attempt(self, start: int) -> int:
        """Reserve the number of the next attempt, which starts from this checkpoint (0: none). No number is reused.

        The sinks of the attempt withdraw output published after the checkpoint, so later checkpoints are abandoned.
        """
        passed_over = self._abandon_after(start)
        attempt = max(1, self.log.next_attempt)
        self.log.next_attempt = attempt + 1
        self._save()
        if passed_over:
            self.effects.append(self.prune())
        return attempt

    def _save(self) -> None:
        copy = checkpoint_pb2.CheckpointLog()
        copy.CopyFrom(self.log)
        self.effects.append(Persist(Node.CHECKPOINTS, copy))

    def take(self) -> list[Decision]:
        """Return the pending effects and clear the list."""
        effects, self.effects = self.effects, []
        return effects

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        numbers = [record.checkpoint for record in self.log.complete]
        assert numbers == sorted(set(numbers)), "checkpoints are out of order"
        assert not numbers or numbers[-1] < self.log.next_checkpoint, "a number was not reserved"
        pending = self.pending
        if pending is not None:
            assert pending.checkpoint == self.log.next_checkpoint - 1
            assert pending.waiting | pending.snapshots.keys() == pending.roster.keys()
            assert not pending.waiting & pending.snapshots.keys()
            assert pending.writing == (not pending.waiting)


def to_drop(records: Sequence[CheckpointRecord], retained: int) -> list[int]:
    """Return the ids of the checkpoints to remove if the newest `retained` undamaged checkpoints are kept.

    Savepoints are kept, and so are all checkpoints newer than the oldest kept checkpoint: running tasks
    build upon the newest checkpoint, even if it is damaged.
    """
    plain = sorted((r for r in records if r.kind != SAVEPOINT), key=lambda record: record.checkpoint)
    sound = [record.checkpoint for record in plain if not (record.damaged or record.abandoned)]
    oldest = sound[-max(1, retained) :][0] if sound else 0
    return [record.checkpoint for record in plain if record.checkpoint < oldest]
