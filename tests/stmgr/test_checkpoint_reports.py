"""Reports to the topology master: each is sent until one has heard it."""

from __future__ import annotations

import asyncio
from typing import Any

from google.protobuf.message import Message

from heronpy.proto import control_pb2
from stmgr.reports import CheckpointReports
from tests.support.waiting import eventually


def test_a_report_that_comes_while_the_one_before_is_answered_is_sent() -> None:
    """Also in the very turn of the loop in which that answer is taken."""
    sent: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def call(body: Message) -> Any:
            assert isinstance(body, control_pb2.TaskCheckpoint)
            sent.append(body.checkpoint)
            if body.checkpoint == 1:
                # Runs right after the step of the job that ends with this answer.
                loop.call_soon(relay.report, "task_checkpoint", 3, control_pb2.TaskCheckpoint(checkpoint=2))

        relay = CheckpointReports("stmgr-1", call)
        relay.report("task_checkpoint", 3, control_pb2.TaskCheckpoint(checkpoint=1))
        await eventually(lambda: sent == [1, 2] and not len(relay))
        relay.close()

    asyncio.run(main())
