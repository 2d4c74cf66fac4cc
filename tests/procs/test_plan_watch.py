"""Following the packing plan while the state manager comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from heronpy.common.errors import StateError
from heronpy.procs.plan_watch import PlanWatch
from heronpy.proto import plan_pb2
from tests.support.waiting import eventually


class Source:
    """A state manager with one node, which may be away."""

    def __init__(self, version: int) -> None:
        self.plan = plan_pb2.PackingPlan(id="p", version=version)
        self.away = False
        self.callbacks: list[Callable[[str], None]] = []

    def get(self, path: str) -> tuple[bytes, int] | None:
        if self.away:
            raise StateError("the state manager is away")
        return self.plan.SerializeToString(), 1

    def watch(self, path: str, callback: Callable[[str], None]) -> Source:
        if self.away:
            raise StateError("the state manager is away")
        self.callbacks.append(callback)
        return self

    def cancel(self) -> None:
        self.callbacks.clear()

    def change(self, version: int) -> None:
        self.plan = plan_pb2.PackingPlan(id="p", version=version)
        for callback in self.callbacks:
            callback("p")


async def test_hears_of_newer_plans_only_and_keeps_the_last(tmp_path: Path) -> None:
    source, seen = Source(1), []
    copy = tmp_path / "copy"
    watch = PlanWatch(source, "p", lambda plan: seen.append(plan.version), copy)
    watch.start()
    assert seen == [1]
    source.change(3)
    await eventually(lambda: seen == [1, 3])
    source.change(2)
    source.away = True
    source.change(4)
    await asyncio.sleep(0)
    assert seen == [1, 3]
    assert watch.plan is not None
    assert watch.plan.version == 3
    watch.close()

    # A new process while the state manager is still away begins with the copy.
    watch = PlanWatch(source, "p", lambda plan: seen.append(plan.version), copy)
    watch.start()
    assert seen == [1, 3, 3]
    source.away = False
    await eventually(lambda: seen == [1, 3, 3, 4])
    watch.close()
