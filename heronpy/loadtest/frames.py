"""Frames of a run, from the metrics of its tasks. Pure.

Every frame within a container passes the link of exactly one task, in one direction, so the sums over the tasks are
all frames of a topology of one container.
"""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.proto import control_pb2

NAMES = (
    "__gateway-sent-packets-count",
    "__gateway-sent-tuples-count",
    "__gateway-sent-messages-count",
    "__gateway-received-messages-count",
)


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of all tasks of a run."""

    sent: int
    """Frames with tuples that tasks have sent, and the tuples in them."""
    sent_tuples: int
    every_kind: int
    """Frames that tasks have sent or received: tuples, acks, credit."""

    def tuples_per_frame(self) -> float:
        """0 when no frame was sent."""
        return self.sent_tuples / self.sent if self.sent else 0.0


def frames_of(reply: control_pb2.MetricsReply) -> Frames:
    """The frames that the tasks have reported since their start."""
    sums = dict.fromkeys(NAMES, 0.0)
    for report in reply.reports:
        if report.task_id:
            for sample in report.samples:
                if sample.name in sums:
                    sums[sample.name] += sample.value
    sent, tuples, out, back = (round(sums[name]) for name in NAMES)
    return Frames(sent, tuples, out + back)
