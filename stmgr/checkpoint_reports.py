"""Reports of tasks and this stream manager about checkpoints, resent until the topology master has them.

A new topology master gets the reports that its predecessor did not take. Invariants: one report of each kind and task,
the newest, so memory is bounded; reports that are given up are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import Message

from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2

#: Pause before a report is sent again.
RETRY_S = 0.2
KEPT_MAX = 10_000

_Key = tuple[str, int]


class CheckpointReports:
    """See the module. `call` hands a message to the topology master and waits for its answer."""

    def __init__(self, name: str, call: Callable[[Message], Awaitable[Any]]) -> None:
        self._name = name
        self._call = call
        self._kept: dict[_Key, Message] = {}
        self._jobs: dict[_Key, asyncio.Task[None]] = {}
        #: Reports that were given up because there were too many.
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._kept)

    def report(self, kind: str, task: int, body: Message) -> None:
        """Pass a report on; an older one of its kind and task is not sent again."""
        key = (kind, task)
        if key not in self._kept and len(self._kept) >= KEPT_MAX:
            self.dropped += 1
            return
        self._kept[key] = body
        if key not in self._jobs:
            self._jobs[key] = asyncio.get_running_loop().create_task(self._deliver(key))

    def lost(self, attempt: int, task: int, tuples: int, reason: str) -> None:
        """Frames of the present attempt were given up."""
        known = self._kept.get(("lost", task))
        if isinstance(known, control_pb2.DataLost) and known.attempt == attempt:
            known.tuples += tuples
            return
        body = control_pb2.DataLost(stmgr_id=self._name, attempt=attempt, task_id=task, tuples=tuples, reason=reason)
        self.report("lost", task, body)

    def forget(self, checkpoint: int) -> None:
        """Answers to this checkpoint, or an earlier one, are not waited for any more."""
        for key, body in list(self._kept.items()):
            if isinstance(body, control_pb2.TaskCheckpoint) and body.checkpoint <= checkpoint:
                del self._kept[key]

    async def _deliver(self, key: _Key) -> None:
        while (body := self._kept.get(key)) is not None:
            try:
                await self._call(body)
            except HeronError:
                await asyncio.sleep(RETRY_S)
                continue
            if self._kept.get(key) is body:
                del self._kept[key]
        # Here, not in a callback: a report that comes before that would find a job that no longer sends.
        del self._jobs[key]

    def close(self) -> None:
        """Send nothing more."""
        self._kept.clear()
        for job in list(self._jobs.values()):
            job.cancel()
