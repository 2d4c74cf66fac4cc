"""From a frame to the tuples in it, and what becomes of those that cannot be had.

A value that cannot be decoded costs its own tuple only: the frame is decoded again value by value, and the
tuple keeps its place in it with DamagedValues, and goes to the dead letters when its turn comes. A frame
that cannot be split into values is given up as a whole: its tuples are counted and, at least once, acked,
because the same bytes would come again for ever. A frame of a task that the plan does not have yet waits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from heronpy.common.errors import WireError
from heronpy.proto import frame_pb2, plan_pb2
from heronpy.wire import codec
from heronpy.wire.frames import ACK, FAIL, unpack16

from .routing import schemas_of
from .strangers import Strangers
from .tuples import HeronTuple, InFrame, make_mixed_tuples, make_tuples, mark_damaged

if TYPE_CHECKING:
    from .bolt_loop import BoltTask

log = logging.getLogger("heron.instance")


class FrameOpener:
    """Opens the frames of one bolt task, for its thread."""

    def __init__(self, task: BoltTask) -> None:
        self._task = task
        self.strangers = Strangers()
        self._components: dict[int, str] = {}
        self._schemas: dict[str, list[tuple[str, int]]] = {}
        #: The frame that was opened last may hold damaged tuples.
        self.damaged = False

    def use_serializer(self, deserialize: Any, allow_pickle: bool) -> None:
        self._decode = codec.decoder(deserialize, allow_pickle)
        self._salvage = codec.salvager(deserialize, allow_pickle)

    def take_plan(self, plan: plan_pb2.PhysicalPlan, components: dict[int, str]) -> list[tuple[frame_pb2.Frame, int]]:
        """Read frames by a new plan; returns those that have waited for it."""
        self._schemas = schemas_of(plan.topology)
        # Frames of a task that a rescale removed may still be on their way.
        self._components.update(components)
        return self.strangers.take_known(self._components)

    def waits(self, frame: frame_pb2.Frame, size: int, now: float) -> bool:
        """Whether the frame was put aside until its source is known.

        Where checkpoints are taken the tasks of an attempt all start with its plan.
        """
        if frame.source_task in self._components or self._task.checkpoints is not None:
            return False
        return self.strangers.hold(frame, size, now)

    def open(self, frame: frame_pb2.Frame, now: float) -> list[HeronTuple]:
        """The tuples of a frame that are still to be processed; any error for a frame that cannot be opened."""
        component = self._components.get(frame.source_task, "")
        streams = self._schemas.get(component, ())
        kinds = unpack16(frame.streams) if frame.streams else None
        if (frame.stream if kinds is None else max(kinds)) >= len(streams):
            raise WireError(f"frame of task {frame.source_task} has unknown stream number {frame.stream}")
        name, width = streams[frame.stream]
        self.damaged = False
        try:
            flat = self._decode(frame.payload, frame.codec)
        except (Exception, SystemExit):
            self.damaged = True
        if self.damaged:  # not in the handler: what is raised now is shown without the runtime's first attempt
            flat = self._salvage(frame.payload, frame.codec)
        widths = None if kinds is None else [streams[kind][1] for kind in kinds]
        expected = max(1, width) * frame.count if widths is None else sum(w or 1 for w in widths)
        if len(flat) != expected or (widths is not None and len(widths) != frame.count):
            raise WireError(
                f"frame of {frame.count} tuples on {component}/{name} holds {len(flat)} values, expected {expected}"
            )
        inner = InFrame(component, name, frame.source_task, frame.count, now)
        if frame.tracked and self._task.acking:
            inner.track(frame)
        if kinds is None or widths is None:
            tuples = make_tuples(flat, width, inner)
        else:
            inner.streams = [streams[kind][0] for kind in kinds]
            tuples = make_mixed_tuples(flat, widths, inner)
        if self.damaged:
            mark_damaged(tuples)
        return tuples[frame.skip :] if frame.skip else tuples

    # ---- what cannot be opened ----------------------------------------------------------------

    def refuse(self, frame: frame_pb2.Frame, error: Exception) -> None:
        """Give up a frame that cannot be split into values: the same bytes would come again for ever."""
        task, tuples = self._task, frame.count - frame.skip
        log.error("dropped a frame of %d tuples: %s: %s", tuples, type(error).__name__, error)
        if not isinstance(error, WireError):
            task.report_exception(error, startup=False)
        self.count_malformed(tuples)
        task.acks.give_up(frame, ACK)

    def count_malformed(self, tuples: int) -> None:
        """So many tuples could not be read, and nothing is kept of them."""
        self._task.metrics.count("__malformed-tuples", "", tuples)
        self._task.progress.lost += tuples

    def give_up_late(self, now: float) -> None:
        """Strangers that no plan came for."""
        self._lose(self.strangers.take_late(now), "no plan with their source came in time")

    def give_up_all(self) -> None:
        """The task ends, and its stream manager has the credit of what waits here."""
        self._lose(self.strangers.take_all(), "the task ended before the plan with their source came")

    def _lose(self, frames: list[tuple[frame_pb2.Frame, int]], why: str) -> None:
        task = self._task
        for frame, size in frames:
            tuples = frame.count - frame.skip
            log.warning("gave up %d tuples of task %d: %s", tuples, frame.source_task, why)
            task.progress.in_tuples -= tuples
            task.progress.in_bytes -= size
            task.metrics.count("__gateway-lost-tuples", "unknown source", tuples)
            if frame.tracked and task.acking:
                # Sent again, they may come to one who knows their source.
                task.acks.give_up(frame, FAIL)
            else:
                task.progress.lost += tuples
