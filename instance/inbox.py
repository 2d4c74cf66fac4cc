"""Applies messages to a task, in every phase, and unregisters the task from its stream manager."""

from __future__ import annotations

import logging
import time
from typing import Protocol

import zmq

from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2, frame_pb2, plan_pb2
from heronpy.task.emitter import Emitter

from .checkpoints import Checkpoints
from .control import ControlThread, Message, Refused, SnapshotWritten
from .link import DataLink
from .metrics import UserMetrics

log = logging.getLogger("heron.instance")


class Inner(Protocol):
    """The parts of a task that `act` and `leave` use."""

    #: The plan by which the task works; None: it has never joined a plan.
    plan: plan_pb2.PhysicalPlan | None
    #: True if the input has ended, so that `finish` is called when nothing waits.
    finish_requested: bool
    link: DataLink
    emitter: Emitter
    control: ControlThread
    user_metrics: UserMetrics

    @property
    def checkpoints(self) -> Checkpoints | None: ...

    def stop(self, refused: Refused | None = None) -> None: ...

    def registered(self, reply: control_pb2.RegisterInstanceReply) -> None: ...

    def plan_came(self, plan: plan_pb2.PhysicalPlan) -> None: ...

    def hold_ticks(self) -> None: ...

    def trace_at(self, order: control_pb2.TraceRate) -> None: ...

    def take_frame(self, frame: frame_pb2.Frame, size: int) -> None: ...

    def last_word(self) -> frame_pb2.Frame: ...

    def publish_progress(self, now: float, resting: bool = False) -> None: ...


def act(task: Inner, message: Message) -> None:
    """Act on a message; a task without a plan only registers, accepts plans and stops."""
    match message:
        case control_pb2.StopTask():
            log.info("requested to stop: %s", message.reason)
            task.stop()
        case Refused():
            task.stop(message)
        case control_pb2.RegisterInstanceReply():
            task.registered(message)
            if message.HasField("plan"):
                task.plan_came(message.plan)
        case control_pb2.NewPlan():
            task.plan_came(message.plan)
        case _ if task.plan is None:
            return  # an order for an earlier process
        case control_pb2.FinishTask():
            task.finish_requested = True
        case control_pb2.HoldTicks():
            task.hold_ticks()
        case control_pb2.TraceRate():
            task.trace_at(message)
        case (
            control_pb2.TriggerCheckpoint()
            | control_pb2.CheckpointComplete()
            | control_pb2.CheckpointAborted()
            | SnapshotWritten()
        ):
            if task.checkpoints is not None:
                task.checkpoints.note(message)


def leave(task: Inner) -> None:
    """Flush, send LEAVE to the stream manager and close; never raises.

    Everything in the out-queue is sent, even without credit, because this process cannot keep it.
    """
    # A successor under EFFECTIVELY_ONCE starts from a checkpoint, so waiting data would be stale.
    flushes = task.plan is not None and task.link.epoch and task.checkpoints is None
    if task.checkpoints is not None:
        task.checkpoints.close()
    try:
        if flushes:
            task.link.receive(task.take_frame)
            task.emitter.flush()
    except (HeronError, zmq.ZMQError) as error:
        log.warning("could not send all output before exiting: %s", error)
    try:
        if flushes:
            task.link.send_all()
        if task.plan is not None and task.link.epoch:
            task.link.send_control(task.last_word().SerializeToString())
    except zmq.ZMQError as error:
        log.warning("could not unregister from the stream manager: %s", error)
    if task.plan is not None:
        now = time.monotonic()
        task.user_metrics.collect(now, force=True)
        task.publish_progress(now)
    task.control.stop(timeout_s=1.0)
    task.link.close()
