"""The scheduler of containers on an engine, with an engine in memory and containers that only speak at its endpoint."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from heronpy.engines.contract import Request
from heronpy.net.rpc_loop import ControlClient
from heronpy.proto import control_pb2
from heronpy.scheduler.guardian import Pulse
from heronpy.scheduler.reconciler import EngineScheduler
from heronpy.statemgr import paths
from tests.support.memory_engine import MemoryEngine, Pretend
from tests.support.topologies import Deployed, deploy, packing_plan
from tests.support.waiting import eventually

NAME = "word-count"
PLAN = packing_plan({1: [("word", 1)], 2: [("count", 2)]})
FAST = {"renew_s": 0.2, "fence_s": 1.0, "lost_s": 2.0, "permit_s": 10.0, "poll_s": 0.2, "start_s": 5.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "engine": FAST,
    "security": {"transport": "tcp"},
    "scheduler": {"kill_grace_s": 0.5, "container_restart_backoff_s": 0.05},
}


class World:
    """One topology on an engine; schedulers come and go."""

    def __init__(self, home: Path, shared: str = "", **submitted: Any) -> None:
        settings = {**SETTINGS, "engine": {**FAST, "shared": shared}}
        self.deployed: Deployed = deploy(home, PLAN, settings, engine="memory", **submitted)
        self.kind: type[EngineScheduler] = EngineScheduler
        self.engine = MemoryEngine()
        self.engine.started, self.engine.ended = self._started, self._ended
        self.containers: dict[str, Pretend] = {}
        self._loop = asyncio.get_running_loop()
        self.make: Callable[[Request, str], Pretend] = Pretend

    def _started(self, engine_id: str, request: Request, host: str) -> None:
        def start() -> None:
            self.containers[engine_id] = self.make(request, host)
            self.containers[engine_id].run()

        self._loop.call_soon_threadsafe(start)

    def _ended(self, engine_id: str) -> None:
        def stop() -> None:
            if engine_id in self.containers:
                self.containers[engine_id].stop()

        self._loop.call_soon_threadsafe(stop)

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[Running]:
        running = Running(self)
        try:
            await running.begin()
            yield running
        finally:
            await running.end()

    def of(self, container: int) -> Pretend:
        """The newest of a container."""
        found = [one for one in self.containers.values() if one.request.container == container]
        return max(found, key=lambda one: one.request.submission)

    def close(self) -> None:
        for one in self.containers.values():
            one.stop()
        self.deployed.clean_up()


class Running:
    """One scheduler that runs in this process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pulse = Pulse()
        self.itself = world.kind(world.deployed.launch, self.pulse)
        self.task = asyncio.create_task(self.itself.run())

    async def begin(self) -> None:
        state = self.world.deployed.state
        await eventually(lambda: self.task.done() or state.get(paths.scheduler(NAME)), what="the scheduler's permit")
        self.client = ControlClient(f"ipc://{self.world.deployed.launch.sockets_dir}/scheduler", lambda _: None)

    async def ask(self, body: Any, timeout_s: float = 5.0) -> Any:
        return await self.client.call(body, timeout_s)

    async def records(self) -> dict[str, control_pb2.ProcessRecord]:
        reply = await self.ask(control_pb2.GetContainers())
        return {one.name: one for one in reply.containers}

    async def when(
        self, holds: Callable[[dict[str, control_pb2.ProcessRecord]], bool], what: str, timeout_s: float = 10.0
    ) -> dict[str, control_pb2.ProcessRecord]:
        async with asyncio.timeout(timeout_s):
            while True:
                found = await self.records()
                if holds(found):
                    return found
                await asyncio.sleep(0.02)

    async def all_run(self) -> dict[str, control_pb2.ProcessRecord]:
        return await self.when(
            lambda found: len(found) == 3 and all(one.phase == "RUNNING" for one in found.values()), "all running"
        )

    async def end(self) -> int:
        self.client.close()
        if not self.task.done():
            self.itself.end()
        code = await asyncio.wait_for(self.task, 10)
        self.pulse.close()
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signum)
        return code
