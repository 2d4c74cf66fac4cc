"""The requests of containers that wait for an answer: the last one of each submission.

A standby's request is answered when there is something to say, or after the time that it waits; a container that acts
is answered at once. An earlier request that is still open is answered by nothing new.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from heronpy.common.errors import RetryableRpcError
from heronpy.proto import door_pb2

#: Open requests; more submissions than this are none of ours.
WAITING_MAX = 10_000


@dataclass(slots=True)
class _Open:
    number: int
    received_at: float
    answer: asyncio.Future[door_pb2.Renewed]


class Renewals:
    """By (container, submission)."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, member: tuple[int, int], number: int, received_at: float) -> asyncio.Future[door_pb2.Renewed]:
        """A request has come; what its sender gets."""
        self.say(member, door_pb2.VERDICT_NONE)
        if len(self._open) >= WAITING_MAX:
            raise RetryableRpcError("too many requests wait for an answer at the door; ask again later")
        answer: asyncio.Future[door_pb2.Renewed] = asyncio.get_running_loop().create_future()
        self._open[member] = _Open(number, received_at, answer)
        return answer

    def received_at(self, member: tuple[int, int]) -> float | None:
        """When its open request came; None without one."""
        found = self._open.get(member)
        return found.received_at if found is not None else None

    def say(
        self,
        member: tuple[int, int],
        verdict: door_pb2.Verdict,
        epoch: int = 0,
        why: str = "",
        after: door_pb2.Cause | None = None,
    ) -> bool:
        """Answer the open request of a submission; False if there is none."""
        found = self._open.pop(member, None)
        if found is None or found.answer.done():
            return False
        found.answer.set_result(
            door_pb2.Renewed(number=found.number, verdict=verdict, epoch=epoch, why=why, after=after)
        )
        return True
