"""Control state of the tasks of one container: registrations and last heartbeats. Pure.

Invariant: a session's epoch never falls; a registration with a lower epoch comes from a zombie and is refused.
"""

from __future__ import annotations

from msgspec import Struct, field

from heronpy.common.errors import ReplacedError
from heronpy.proto import control_pb2

#: Number of last statuses of replaced processes kept for this topology master, and for the next one.
ENDED_MAX = 1000


class Session(Struct):
    """One task of this container, as reported by its process."""

    identity: bytes
    status: control_pb2.TaskStatus
    heard_at: float
    lost: bool = False
    #: True if the last heartbeat showed progress.
    moved: bool = False
    #: The time at which the plan was last sent to the task.
    told_at: float = 0.0


class Sessions(Struct):
    """All tasks of this container."""

    lost_s: float
    by_task: dict[int, Session] = field(default_factory=dict)
    fenced: int = 0
    #: The last statuses of processes that were replaced since the last heartbeat, so that their counts are not lost.
    ended: list[control_pb2.TaskStatus] = field(default_factory=list)
    #: Statuses that a topology master got: if it dies before it stores them, its successor gets them from here.
    told: list[control_pb2.TaskStatus] = field(default_factory=list)
    _looked_at: float = float("inf")

    def register(self, identity: bytes, message: control_pb2.RegisterInstance, now: float) -> Session:
        """Record a registration. Raises ReplacedError for an incarnation older than the recorded incarnation."""
        known = self.by_task.get(message.task_id)
        if known is not None and message.epoch < known.status.epoch:
            self.fenced += 1
            raise ReplacedError(f"task {message.task_id}", message.epoch, known.status.epoch)
        if known is not None and message.epoch > known.status.epoch:
            self.ended.append(known.status)
            del self.ended[:-ENDED_MAX]
        status = control_pb2.TaskStatus(
            task_id=message.task_id,
            component=message.component,
            instance_id=message.instance_id,
            epoch=message.epoch,
            pid=message.pid,
        )
        session = self.by_task[message.task_id] = Session(identity, status, now)
        return session

    def take_ended(self) -> list[control_pb2.TaskStatus]:
        """Return the last statuses of replaced processes, once; they precede the statuses of their successors."""
        ended, self.ended = self.ended, []
        self.told.extend(ended)
        del self.told[:-ENDED_MAX]
        return ended

    @property
    def all_ended(self) -> list[control_pb2.TaskStatus]:
        """Return all kept statuses, oldest first; a topology master skips statuses that it already has."""
        return [*self.told, *self.ended][-ENDED_MAX:]

    def heard(self, identity: bytes, status: control_pb2.TaskStatus, now: float) -> tuple[bool, bool]:
        """Record a heartbeat; return whether the task is registered, and whether something important changed."""
        session = self.by_task.get(status.task_id)
        if session is None or session.identity != identity or session.status.epoch != status.epoch:
            return False, False
        before = session.status
        changed = session.lost or _important(before) != _important(status)
        session.moved = (before.emitted, before.executed, before.acked) != (
            status.emitted,
            status.executed,
            status.acked,
        )
        session.status, session.heard_at, session.lost = status, now, False
        return True, changed

    def said_last(self) -> tuple[int, int]:
        """Return the number of tasks whose process has sent its last status, and the number of all tasks."""
        return sum(session.status.ends for session in self.by_task.values()), len(self.by_task)

    def next_expiry(self) -> float:
        """Return the time at which the first task will have been silent for too long; infinite without tasks."""
        return min((s.heard_at for s in self.by_task.values() if not s.lost), default=float("inf")) + self.lost_s

    def expire(self, now: float) -> list[int]:
        """Return the tasks that have just become silent for too long.

        After a pause of this process, silence does not count: messages may still wait to be read.
        """
        paused, self._looked_at = now - self._looked_at > self.lost_s / 2, now
        gone = []
        for task, session in self.by_task.items():
            if paused:
                session.heard_at = max(session.heard_at, now)
            if not session.lost and now - session.heard_at > self.lost_s:
                session.lost = True
                session.status.state = control_pb2.TASK_LOST
                gone.append(task)
        return gone


def _important(status: control_pb2.TaskStatus) -> tuple[int, ...]:
    """Return the fields that the topology master is waiting for."""
    return status.state, status.plan_version, status.attempt, status.committed, not status.waiting_for, status.ends
