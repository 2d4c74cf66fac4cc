"""Prepares topologies before their containers move to other slots (see `heronpy.tmaster.operations.Move`).

Before a container leaves its slot, the topology's spouts are paused, and either a checkpoint is complete or no
tuple is in flight. Invariant: a topology that is not ready in time moves anyway.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf.message import Message

from heronpy.common.errors import HeronError, RetryableRpcError
from heronpy.common.setting_types import TmasterSettings
from heronpy.common.settings import settings_for
from heronpy.net import curve
from heronpy.net.rpc_loop import ControlClient
from heronpy.plan.launch import LaunchSpec
from heronpy.pools.shards import Spec, shard_of
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.scheduler")

#: Time for the answer of a topology, in addition to the time that the topology has to get ready.
ANSWER_S: Final = 5.0
#: Pause before the request to a busy topology master is repeated.
AGAIN_S: Final = 1.0


class PoolMoves:
    """The preparations in one pool; not thread-safe. `changed` is called when a topology becomes ready."""

    def __init__(self, state: StateManager, changed: Callable[[], None]) -> None:
        self._state, self._changed = state, changed
        #: The requests to topologies that are getting ready, by topology id.
        self._asking: dict[str, asyncio.Task[None]] = {}

    def ready(
        self, leaving: frozenset[int], specs: Mapping[str, Spec], launches: Mapping[str, LaunchSpec], shards: int
    ) -> frozenset[int]:
        """The shards of `leaving` that may move now. Topologies in the other leaving shards are asked to get ready."""
        containers: defaultdict[str, set[int]] = defaultdict(set)
        waiting: defaultdict[int, set[str]] = defaultdict(set)
        for id_, spec in specs.items() if leaving else ():
            for container in spec.containers if id_ in launches else ():
                shard = shard_of((id_, container), shards)
                if shard in leaving and container:
                    containers[id_].add(container)
                    waiting[shard].add(id_)
        for id_ in self._asking.keys() - containers.keys():
            self._asking.pop(id_).cancel()
        for id_ in containers.keys() - self._asking.keys():
            self._asking[id_] = asyncio.create_task(self._ask(launches[id_], sorted(containers[id_])))
        return frozenset(shard for shard in leaving if all(self._asking[id_].done() for id_ in waiting[shard]))

    async def _ask(self, launch: LaunchSpec, containers: list[int]) -> None:
        begun, limit_s = time.monotonic(), settings_for(launch, TmasterSettings).drain_timeout_s + ANSWER_S
        body = control_pb2.RestartTarget(moved=containers)
        try:
            async with asyncio.timeout(limit_s):
                text = await self._answer(launch, body, limit_s)
            log.info("topology %s may move after %.1f s: %s", launch.topology, time.monotonic() - begun, text)
        except (HeronError, OSError, TimeoutError) as error:
            why = str(error) or f"it was not ready within {limit_s:g} s"
            log.warning("topology %s is moved without preparation: %s", launch.topology, why)
        self._changed()

    async def _answer(self, launch: LaunchSpec, body: Message, limit_s: float) -> str:
        while True:
            found = await asyncio.to_thread(self._state.get, paths.tmaster(launch.topology))
            if found is None:
                return "no topology master is active"
            keys = await asyncio.to_thread(curve.load, launch.working_dir, launch.topology_id)
            endpoint = plan_pb2.TmasterLocation.FromString(found[0]).endpoint
            client = ControlClient(endpoint, keys=keys, topology_id=keys.domain)
            try:
                return str((await client.call(body, limit_s)).text)
            except RetryableRpcError:
                await asyncio.sleep(AGAIN_S)
            finally:
                client.close()

    def close(self) -> None:
        """Stop sending requests."""
        for task in self._asking.values():
            task.cancel()
