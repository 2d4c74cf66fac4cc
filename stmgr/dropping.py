"""A topology that discards tuples instead of stopping its spouts (`topology.droptuples.upon.backpressure`). Pure.

Frames from a task of this container to a full task, here or elsewhere, are discarded and counted before the switch
routes them. A task is full under the rules of backpressure: its queue is past its mark, its own stream manager has
asked to hold its frames, or too many bytes wait for that stream manager. While its senders can use other tasks, its
frames wait, up to the limit in bytes.

Frames from another stream manager are not discarded here: that stream manager discards as soon as it is requested to
hold frames. Until then a queue grows past its mark by the frames in transit, at most `link_window_bytes` per peer.
"""

from __future__ import annotations

from heronpy.plan.dropping import DropPolicy
from heronpy.proto import frame_pb2, plan_pb2
from heronpy.wire.frames import fits

from .links import Source
from .switch import Switch


class Dropping:
    """Discards tuples in front of a switch's data path; unused without the setting."""

    def __init__(self, switch: Switch, policy: str, plan: plan_pb2.PhysicalPlan) -> None:
        self._switch = switch
        self._policy = DropPolicy(policy)
        self._names = {one.task_id: (one.component, one.instance_id) for one in plan.instances}
        switch.take_data, switch.backpressure.drops = self.take, True

    def take(self, frame: frame_pb2.Frame, data: bytes, source: Source) -> None:
        """Route or discard a data frame from a task or a peer."""
        dest = frame.dest_task
        if not source.task or self._has_room(dest) or not fits(frame):
            self._switch.data(frame, data, source)
            return
        tuples = self._switch.refuse(frame, data, source)
        self._switch.discarded[self._policy.name] += tuples
        self._switch.dropped[self._names.get(dest, ("a removed task", f"task {dest}"))] += tuples

    def _has_room(self, dest: int) -> bool:
        switch = self._switch
        place = switch.tasks.get(dest) or switch.peers.get(switch.remote.get(dest, ""))
        if place is None:
            return True  # the switch decides about the frame
        link = place.link
        held = dest in link.held
        if not held and not link.is_full:
            return True
        if switch.hints.is_avoided(dest):
            return link.queued_bytes <= switch.backpressure.high
        return not held and self._policy.keeps(dest, link.queued_bytes / link.high)
