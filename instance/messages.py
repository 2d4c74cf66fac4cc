"""What the loop of a task finds in its inbox: the stream manager's own messages, and two of this process. Pure."""

from __future__ import annotations

from msgspec import Struct

from heronpy.common import exit_codes
from heronpy.proto import control_pb2
from heronpy.proto.checkpoint_pb2 import TaskSnapshot


class Refused(Struct, frozen=True):
    """The stream manager does not take this task, now or later; `why` is for people alone."""

    refusal: control_pb2.Refusal
    why: str

    @property
    def exit_code(self) -> exit_codes.ExitCode:
        """How the process ends.

        Only a newer incarnation fences it. One that is invalid is missing from every plan, or its own name and
        numbers contradict each other: an error of ours, or an executor ahead of the plan. No other process does its
        work, so its executor starts it again, within the budget of such errors.
        """
        return exit_codes.FENCED if self.refusal == control_pb2.REFUSAL_FENCED else exit_codes.FAILURE


class SnapshotWritten(Struct, frozen=True):
    """The writer of a checkpoint is done; without a snapshot it has failed."""

    checkpoint: int
    snapshot: TaskSnapshot | None


#: Refusals that repeating the registration does not change.
FINAL = frozenset((control_pb2.REFUSAL_FENCED, control_pb2.REFUSAL_INVALID))

CheckpointMessage = (
    control_pb2.TriggerCheckpoint | control_pb2.CheckpointComplete | control_pb2.CheckpointAborted | SnapshotWritten
)
Message = (
    control_pb2.RegisterInstanceReply
    | control_pb2.NewPlan
    | control_pb2.FinishTask
    | control_pb2.HoldTicks
    | control_pb2.StopTask
    | control_pb2.TraceRate
    | CheckpointMessage
    | Refused
)
