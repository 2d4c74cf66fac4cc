"""A topology in the slots of a pool: its plan and package, and the address of its scheduler."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable

from google.protobuf.message import Message

from heronpy.common.errors import ConfigError, HeronError
from heronpy.common.ids import executor_id
from heronpy.net import curve
from heronpy.net.private import make_private
from heronpy.net.rpc_loop import ControlServer
from heronpy.plan.launch import LaunchSpec
from heronpy.pools.shards import Map, Size, Spec, name_of, shard_of
from heronpy.procs.plan_watch import PlanWatch
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.scheduler.package_endpoint import Archive, PackageEndpoint
from heronpy.scheduler.reconciler_setup import read_topology, sizes_of
from heronpy.scheduler.teardown import remove_sockets, remove_state
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.scheduler")

LAST_ANSWERS_MS = 500
#: Pause before another attempt to pack a package.
PACK_AGAIN_S = 10.0

OnRequest = Callable[["Member", control_pb2.Envelope], "Message | Awaitable[Message]"]


class Member:
    """A topology in a pool; create it on the loop, after `read_member` has read the records."""

    def __init__(
        self,
        launch: LaunchSpec,
        topology: topology_pb2.Topology,
        state: StateManager,
        restarts: dict[int, int],
        place: str,
        on_request: OnRequest,
        on_change: Callable[[], None],
    ) -> None:
        self.launch, self._topology, self._state = launch, topology, state
        self.restarts = restarts
        self._on_change = on_change
        self._plan: plan_pb2.PackingPlan | None = None
        self._archive: Archive | None = None
        self._spec: Spec | None = None
        #: Whether it was killed. It is then no longer published, and is removed when its last process has ended.
        self.is_killed = False
        #: The slots and epochs that may still run the killed topology, with the number of the map that each has to
        #: apply first. None: the topology is still in the specifications.
        self.holders: dict[tuple[int, int], int] | None = None
        self.gone = asyncio.Event()
        make_private(launch.sockets_dir)
        endpoint = f"ipc://{launch.sockets_dir}/scheduler"
        self._server = ControlServer([endpoint], lambda _, envelope: on_request(self, envelope))
        self.package = PackageEndpoint(launch.package_dir, launch.working_dir, launch.topology_id, place)
        self.package.start()
        self._packing = asyncio.create_task(self._pack())
        self._watch = PlanWatch(state, paths.packing_plan(launch.topology), self._on_plan)
        self._watch.start()

    def location(self) -> bytes:
        """The location of the member's scheduler, for commands."""
        return plan_pb2.SchedulerLocation(
            topology=self.launch.topology,
            endpoint=f"ipc://{self.launch.sockets_dir}/scheduler",
            pid=os.getpid(),
            host=socket.gethostname(),
        ).SerializeToString()

    async def _pack(self) -> None:
        while self._archive is None:
            try:
                self._archive = await self.package.archive()
            except HeronError as error:
                log.warning("the package of %s cannot be packed for the slots: %s", self.launch.topology, error)
                await asyncio.sleep(PACK_AGAIN_S)
        self._on_change()

    def _on_plan(self, plan: plan_pb2.PackingPlan) -> None:
        self._plan, self._spec = plan, None
        self._on_change()

    def ask_restart(self, container: int) -> None:
        self.restarts[container] = self.restarts.get(container, 0) + 1
        self._spec = None
        self._on_change()

    def spec(self) -> Spec | None:
        """The specification for slots; None while it is not known yet, or if the topology must end."""
        if self._plan is None or self._archive is None or self.is_killed:
            return None
        if self._spec is None:
            sizes = sizes_of(self.launch, self._plan, self._topology)
            self._spec = Spec(
                self.launch.topology,
                self.launch.topology_id,
                self.launch.submitted.to_bytes().decode(),
                {number: Size(one.cpu, one.ram_bytes) for number, one in sorted(sizes.items())},
                dict(self.restarts),
                self._archive.size,
                self._archive.sha256,
            )
        return self._spec

    def close(self) -> None:
        """Stop answering requests."""
        self._packing.cancel()
        self._watch.close()
        self._server.close(LAST_ANSWERS_MS)

    def remove(self) -> None:  # called in a thread
        """Delete the topology's state, keys and files; call this after its last process has ended."""
        curve.remove(self.launch.working_dir)
        self.package.remove()
        remove_state(self._state, self.launch.topology)
        remove_sockets(self.launch.sockets_dir)


def read_member(state: StateManager, name: str, topology_id: str) -> tuple[LaunchSpec, topology_pb2.Topology]:
    """The stored records of a topology; raises HeronError if they are missing or belong to another topology."""
    found = state.get(paths.execution_state(name))
    record = plan_pb2.ExecutionState.FromString(found[0]) if found is not None else plan_pb2.ExecutionState()
    if record.topology_id != topology_id:
        raise ConfigError(f"the state manager contains no topology {name!r} with the id {topology_id}")
    return LaunchSpec.load(record.launch_file), read_topology(state, name)


def holders_of(known: Map, spec: Spec) -> dict[tuple[int, int], int]:
    """Map from each (slot, epoch) that may run a topology's containers to the number of the map."""
    shards = {shard_of((spec.topology_id, container), len(known.owners)) for container in spec.containers}
    owners = (known.owners[shard] for shard in shards)
    return {(one.slot, one.epoch): known.number for one in owners if one.slot}


def records_of(
    spec: Spec, answered: dict[str, tuple[int, bytes]], hosts: dict[int, str]
) -> list[control_pb2.ProcessRecord]:
    """The records of a topology's containers; `answered` maps each name to its slot and record."""
    found = []
    for container in spec.containers:
        slot, content = answered.get(name_of((spec.topology_id, container)), (0, b""))
        record = control_pb2.ProcessRecord(name=executor_id(container), state=control_pb2.PROC_STARTING)
        record.MergeFromString(content)
        record.host = hosts.get(slot, "")
        record.engine_id = f"slot {slot}" if slot else ""
        record.phase = {
            control_pb2.PROC_RUNNING: "RUNNING", control_pb2.PROC_FAILED: "FAILED"
        }.get(record.state, "STARTING" if slot else "QUEUED")  # fmt: skip
        record.words = record.exit_detail if slot else "it is waiting for a slot in the pool"
        found.append(record)
    return found
