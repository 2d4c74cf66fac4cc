"""The effect of each message on a task, in every phase: shared by all loops that read the inbox."""

from __future__ import annotations

import logging
from typing import Protocol

from heronpy.proto import control_pb2, plan_pb2

from .checkpoints import Checkpoints
from .messages import Message, Refused, SnapshotWritten

log = logging.getLogger("heron.instance")


class Recipient(Protocol):
    """A task as its messages see it."""

    #: The plan that it works by.
    plan: plan_pb2.PhysicalPlan | None
    #: Its input has ended: it calls `finish` when nothing waits.
    finish_requested: bool

    @property
    def checkpoints(self) -> Checkpoints | None: ...

    def stop(self, refused: Refused | None = None) -> None: ...

    def registered(self, reply: control_pb2.RegisterInstanceReply) -> None: ...

    def plan_came(self, plan: plan_pb2.PhysicalPlan) -> None: ...

    def hold_ticks(self) -> None: ...

    def trace_at(self, order: control_pb2.TraceRate) -> None: ...


def act(task: Recipient, message: Message) -> None:
    """Act on a message; a task without a plan only registers, takes plans and ends."""
    match message:
        case control_pb2.StopTask():
            log.info("asked to stop: %s", message.reason)
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
            return  # an order for the process before this one
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
