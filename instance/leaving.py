"""How a task leaves its stream manager."""

from __future__ import annotations

import logging
import time
from typing import Protocol

import zmq

from heronpy.common.errors import HeronError
from heronpy.proto import frame_pb2, plan_pb2

from .checkpoints import Checkpoints
from .control import ControlThread
from .emitter import Emitter
from .link import DataLink
from .metrics import UserMetrics

log = logging.getLogger("heron.instance")


class Leaver(Protocol):
    """A task at its end."""

    #: None: it has never joined a plan.
    plan: plan_pb2.PhysicalPlan | None
    link: DataLink
    emitter: Emitter
    control: ControlThread
    user_metrics: UserMetrics

    @property
    def checkpoints(self) -> Checkpoints | None: ...

    def take_frame(self, frame: frame_pb2.Frame, size: int) -> None: ...

    def last_word(self) -> frame_pb2.Frame: ...

    def publish_progress(self, now: float, resting: bool = False) -> None: ...


def leave(task: Leaver) -> None:
    """Flush, send LEAVE to the stream manager and close; never raises.

    Everything in the out-queue goes out, credit or not: this process has no other way to keep it.
    """
    # A successor in EFFECTIVELY_ONCE starts from a checkpoint: what is here would be stale.
    flushes = task.plan is not None and task.link.epoch and task.checkpoints is None
    if task.checkpoints is not None:
        task.checkpoints.close()
    try:
        if flushes:
            task.link.receive(task.take_frame)
            task.emitter.flush()
    except (HeronError, zmq.ZMQError) as error:
        log.warning("could not flush everything before exit: %s", error)
    try:
        if flushes:
            task.link.send_all()
        if task.plan is not None and task.link.epoch:
            task.link.send_control(task.last_word().SerializeToString())
    except zmq.ZMQError as error:
        log.warning("could not leave the stream manager in order: %s", error)
    if task.plan is not None:
        now = time.monotonic()
        task.user_metrics.collect(now, force=True)
        task.publish_progress(now)
    task.control.stop(timeout_s=1.0)
    task.link.close()
