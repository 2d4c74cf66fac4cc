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

    #: It ends at the next tuple boundary.
    stopping: bool
    #: Its input has ended: it calls `finish` when nothing waits.
    finish_requested: bool
    #: Why it cannot work, for people.
    error: str
    refused: Refused | None
    #: The newest plan that came before it joined one, and the one it works by.
    offered: plan_pb2.PhysicalPlan | None
    plan: plan_pb2.PhysicalPlan | None

    @property
    def checkpoints(self) -> Checkpoints | None: ...

    def registered(self, reply: control_pb2.RegisterInstanceReply) -> None: ...

    def take_plan(self, plan: plan_pb2.PhysicalPlan) -> None: ...

    def hold_ticks(self) -> None: ...


def act(task: Recipient, message: Message) -> None:
    """Act on a message; a task without a plan only registers, takes plans and ends."""
    match message:
        case control_pb2.StopTask():
            log.info("asked to stop: %s", message.reason)
            task.stopping = True
        case Refused():
            task.stopping = True
            task.refused, task.error = message, message.why
        case control_pb2.RegisterInstanceReply():
            task.registered(message)
            if message.HasField("plan"):
                _take(task, message.plan)
        case control_pb2.NewPlan():
            _take(task, message.plan)
        case _ if task.plan is None:
            return  # an order for the process before this one
        case control_pb2.FinishTask():
            task.finish_requested = True
        case control_pb2.HoldTicks():
            task.hold_ticks()
        case (
            control_pb2.TriggerCheckpoint()
            | control_pb2.CheckpointComplete()
            | control_pb2.CheckpointAborted()
            | SnapshotWritten()
        ):
            if task.checkpoints is not None:
                task.checkpoints.note(message)


def _take(task: Recipient, plan: plan_pb2.PhysicalPlan) -> None:
    if task.plan is None:
        task.offered = plan
    else:
        task.take_plan(plan)
