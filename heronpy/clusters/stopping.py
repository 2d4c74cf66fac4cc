"""Stops a topology gracefully, with a drain or a savepoint, before anything is killed.

The spouts are deactivated first, so no new input arrives. A drain then waits until all emitted tuples are processed,
and tells the bolts to finish. With a savepoint, the stop waits until every task has committed the savepoint. After
that, the topology may be removed.
If a step fails, the spouts return to their earlier state, and the topology keeps running.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from heronpy.clusters.errors import ClusterError, NotThereError, RequestError
from heronpy.clusters.session import Session
from heronpy.common.errors import ConfigError, DeadlineError, HeronError, LateRpcError, TopologyError
from heronpy.common.states import has_failed, lifecycle_name, task_name
from heronpy.common.units import counted, listed
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import checkpoint_pb2, control_pb2

LOOK_S = 0.1
ACTIVATE_S = 30.0
EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"


@dataclass(slots=True)
class Stop:
    session: Session
    topology: str
    deadline: float
    timeout_s: float
    show: Callable[[str], None] = lambda text: None
    """Function that is called with the reason for waiting."""
    topology_id: str = ""
    was_active: bool = False
    finishing: bool = False
    """Whether the request to finish was sent to the bolts."""
    complete: bool = False
    before: control_pb2.StatusReply | None = None
    """State of the topology before the stop."""
    discarded: int = 0
    """Number of tuples that were discarded during the drain."""

    def check(self, savepoint: bool) -> None:
        """Raise ClusterError or RequestError if the drain (if `savepoint`, the stop with a savepoint) is impossible."""
        self.topology_id = self.session.find(self.topology).topology_id
        mode = reliability_mode(self.session.topology(self.topology))
        if savepoint and mode != EFFECTIVELY_ONCE:
            self.topology_id = ""  # the command is wrong, and --force does not override that
            raise RequestError(f"topology '{self.topology}' is {mode} and has no savepoints; stop it with --drain")
        self.session.check_changes(self.topology)
        status = self.session.status(self.topology)
        life = lifecycle_name(status.lifecycle)
        if life not in ("RUNNING", "PAUSED", "FINISHING", "FINISHED"):
            raise ClusterError(
                f"topology '{self.topology}' is {life}{': ' + status.cause if status.cause else ''};"
                " to stop it gracefully, wait until it runs; otherwise use 'heron kill'"
            )
        if savepoint and life in ("FINISHING", "FINISHED"):
            raise ClusterError(
                f"topology '{self.topology}' is {life}: its input has ended, and its last checkpoint is equivalent to a"
                " savepoint; use 'heron stop --drain' or 'heron kill'"
            )
        self.was_active, self.before = life == "RUNNING", status

    @contextmanager
    def spouts_at_rest(self) -> Iterator[None]:
        """Context with deactivated spouts; if the block fails, spouts that were active are activated again."""
        try:
            if self.was_active:
                self.session.ask(self.topology, control_pb2.SetState(active=False), self._left_s())
            yield
        except BaseException as error:
            said = self._as_before()
            if isinstance(error, HeronError) and said:
                raise _with(error, f"; nothing was killed, and {said}") from error
            raise

    def _as_before(self) -> str:
        """Activate the spouts again; return a sentence on the result."""
        if self.finishing:
            where = f"{self.session.target} {self.topology}"
            return f"its bolts are finishing: run 'heron stop {where} --drain' again, or 'heron kill {where}'"
        if not self.was_active:
            return "the topology stays deactivated"
        try:
            self.session.ask(self.topology, control_pb2.SetState(active=True), ACTIVATE_S)
        except HeronError as error:
            where = f"{self.session.target} {self.topology}"
            return f"its spouts could not be activated again ({error}); see 'heron status {where}'"
        return "its spouts are active again"

    # ---- savepoint --------------------------------------------------------------------------

    def take_savepoint(self) -> checkpoint_pb2.CheckpointRecord:
        """Take the savepoint, and return it after every task has committed it."""
        reply = self.session.ask(self.topology, control_pb2.TakeCheckpoint(savepoint=True), self._left_s())
        record: checkpoint_pb2.CheckpointRecord = reply.record
        self._until(
            lambda status: all(task.committed >= record.checkpoint for task in status.tasks),
            lambda status: f"{_waiting(status, record.checkpoint)} have not committed savepoint {record.checkpoint}",
        )
        self.complete = True
        return record

    # ---- drain ------------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait until no tuple is in flight, then until every bolt has finished."""
        before = self.before
        assert before is not None  # checked before
        if lifecycle_name(before.lifecycle) in ("RUNNING", "PAUSED"):
            drained = self._until(lambda status: status.drained, _under_way)
            failed = _failed_since(before, drained)
            if failed > 0:
                # Deactivated spouts replay no tuples; active spouts do.
                raise ClusterError(
                    f"{counted(failed, 'tuple')} of '{self.topology}' failed while it was drained, and its spouts would"
                    " have to replay them"
                )
            self.session.ask(self.topology, control_pb2.SetState(active=False, end_input=True), self._left_s())
        # A bolt finishes only once, so the stop cannot be undone from here on.
        self.finishing = True
        over = self._until(self._finished, lambda status: "its bolts have not finished")
        self.discarded = max(0, over.discarded_tuples - before.discarded_tuples)
        self.complete = True

    def _finished(self, status: control_pb2.StatusReply) -> bool:
        """Whether the bolts have finished; repeats the request to finish if the topology master has just taken over."""
        life = lifecycle_name(status.lifecycle)
        if life == "PAUSED" and status.drained:
            self.session.ask(self.topology, control_pb2.SetState(active=False, end_input=True), self._left_s())
        return life == "FINISHED"

    # ---- waiting ----------------------------------------------------------------------------

    def _left_s(self) -> float:
        return max(0.1, self.deadline - time.monotonic())

    def _until(
        self, done: Callable[[control_pb2.StatusReply], bool], missing: Callable[[control_pb2.StatusReply], str]
    ) -> control_pb2.StatusReply:
        """Wait for a status that satisfies `done`; ClusterError if the topology fails, DeadlineError on timeout."""
        status: control_pb2.StatusReply | None = None
        while True:
            latest = self.session.poll(self.topology)
            status = latest or status
            if latest is not None and has_failed(latest):
                raise ClusterError(f"topology '{self.topology}' failed: {latest.cause or 'see its logs'}")
            if latest is not None and done(latest):
                return latest
            said = "its topology master does not answer" if status is None else missing(status)
            if time.monotonic() > self.deadline:
                raise DeadlineError(f"topology '{self.topology}' was not stopped within {self.timeout_s:g} s: {said}")
            self.show(f"stopping: {said}")
            time.sleep(LOOK_S)


def _failed_since(before: control_pb2.StatusReply, status: control_pb2.StatusReply) -> int:
    """Number of tuples that have failed at the spouts since `before`; a restarted task counts from 0 again."""
    spouts = {spout.comp.name for spout in status.plan.topology.spouts}
    earlier = {(task.task_id, task.epoch): task.failed for task in before.tasks}
    return sum(
        task.failed - earlier.get((task.task_id, task.epoch), 0) for task in status.tasks if task.component in spouts
    )


def _under_way(status: control_pb2.StatusReply) -> str:
    """The unfinished work, as part of a sentence."""
    queued = {task_name(task): task.in_queue_tuples + task.out_queue_tuples + task.pending for task in status.tasks}
    busy = [f"{name} ({count:,})" for name, count in queued.items() if count]
    moving = sum(beat.queued_tuples + beat.in_flight_tuples for beat in status.stmgrs)
    if busy:
        return f"tuples are in flight: {listed(busy)}"
    return f"{counted(moving, 'tuple')} are in flight" if moving else "its tasks have not been idle for long enough"


def _waiting(status: control_pb2.StatusReply, checkpoint: int) -> str:
    return listed([task_name(task) for task in status.tasks if task.committed < checkpoint])


def _with(error: HeronError, more: str) -> HeronError:
    """The error with `more` appended to its message, of a class with the same exit code."""
    kinds = (RequestError, NotThereError, ConfigError, TopologyError, DeadlineError, LateRpcError)
    return next((kind for kind in kinds if isinstance(error, kind)), ClusterError)(f"{error}{more}")
