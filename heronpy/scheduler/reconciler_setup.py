"""The prerequisites of a scheduler for containers on an engine: settings, keys, engine, addresses and sizes."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heronpy.common.clock import boot_s
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import (
    PackingSettings,
    SchedulerSettings,
    SecuritySettings,
    SparkSettings,
    TmasterSettings,
)
from heronpy.common.settings import settings_for
from heronpy.engines.contract import Engine, traits_of
from heronpy.engines.lease import LeaseTimes
from heronpy.engines.open import open_engine
from heronpy.net import curve, endpoint_keys
from heronpy.net.access import USER, EndpointPlace, make_client, write_endpoint
from heronpy.net.addresses import address_here, told_at
from heronpy.net.join_token import JoinToken
from heronpy.packing.demand import ResourceRequest, requests_of
from heronpy.plan.launch import SLOT, LaunchSpec
from heronpy.procs.restart_policy import limits_of
from heronpy.proto import plan_pb2, topology_pb2
from heronpy.scheduler.admission import Admission, Terms
from heronpy.scheduler.containers import with_standby
from heronpy.scheduler.control_endpoint import ControlEndpoint, bind_endpoint, kept_addresses
from heronpy.scheduler.leases import fencing_of
from heronpy.scheduler.placement_facts import PlacementLimits
from heronpy.scheduler.relay import Own, Relay
from heronpy.scheduler.state_records import SessionLimits
from heronpy.scheduler.state_rules import ContainerRules, PoolRules
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

if TYPE_CHECKING:
    from heronpy.scheduler.state_endpoint import StateEndpoint

log = logging.getLogger("heronpy.scheduler")

#: Time to leave for a container that a user restarts, if the engine sends it no message.
_LEAVE_S = 30.0
#: A container that avoids the host of another container is submitted when that host is known, or after this time.
APART_WAIT_S = 15.0
#: Maximum number of state sessions in a pool, whose slots run the processes of many topologies.
SESSIONS_MAX = 1 << 14


@dataclass(frozen=True, slots=True)
class Setup:
    """The data that does not change while a scheduler runs."""

    settings: EngineSettings
    limits: PlacementLimits
    terms: Terms = field(repr=False)
    engine: Engine

    def told_at(self, endpoints: list[str]) -> list[str]:
        """The published addresses of the endpoint: `endpoints`, unless the operator names a host."""
        return told_at(self.settings.endpoint_host, endpoints)

    def token_for(self, endpoints: list[str]) -> str:
        """The join token of a container, with the addresses of the endpoint."""
        keys, told = self.terms.endpoint_keys.keys, self.told_at(endpoints)
        return JoinToken(self.terms.launch.topology_id, tuple(told), keys.server.public, keys.client).to_text()


def set_up(launch: LaunchSpec, mode: str) -> Setup:
    """Read all prerequisites; raises ConfigError if settings or keys are not suitable for an engine."""
    settings, scheduler = settings_for(launch, EngineSettings), settings_for(launch, SchedulerSettings)
    times = LeaseTimes(settings.renew_s, settings.fence_s, settings.lost_s, scheduler.kill_grace_s, settings.permit_s)
    terms = Terms(
        launch,
        times,
        fencing_of(settings.fencing, mode, launch.state_type == "local"),
        endpoint_keys.load(launch.working_dir, launch.topology_id),
        curve.load(launch.working_dir, launch.topology_id),
        tuple(folder for folder in settings.shared.split(":") if folder),
    )
    command = [settings.python or sys.executable, "-Pm", "heronpy.executor.bootstrap"]
    command += ["--start-s", f"{settings.start_s:g}"]
    engine = open_engine(launch.submitted.engine, launch, launch.topology_id, command)
    # If the engine does not ask a container to end, the endpoint does, in answer to the next renewal.
    leave_s = _LEAVE_S if traits_of(engine).tells_to_end else 0.0
    limits = PlacementLimits(
        limits_of(scheduler),
        leave_s=leave_s,
        start_s=settings.start_s,
        avoid_s=settings.avoid_s,
        apart_wait_s=APART_WAIT_S if traits_of(engine).avoids_hosts and not traits_of(engine).keeps_apart else 0.0,
    )
    return Setup(settings, limits, terms, engine)


def sizes_of(
    launch: LaunchSpec, plan: plan_pb2.PackingPlan, topology: topology_pb2.Topology
) -> dict[int, ResourceRequest]:
    """The resources requested for each container; those of container 0 include its Spark driver."""
    heap = 0
    if launch.needs_spark:
        from heronpy.spark.tuning import driver_bytes

        heap = driver_bytes(settings_for(launch, SparkSettings))
    return requests_of(plan, topology, settings_for(launch, PackingSettings), heap)


def read_topology(state: StateManager, name: str) -> topology_pb2.Topology:
    """The topology as submitted; raises ConfigError if the state manager does not have it."""
    found = state.get(paths.topology(name))
    if found is None:
        raise ConfigError(f"the state manager contains no topology {name!r}; submit it again")
    return topology_pb2.Topology.FromString(found[0])


def state_endpoint_of(
    launch: LaunchSpec, state: StateManager, rules: ContainerRules | PoolRules
) -> StateEndpoint | None:
    """The endpoint for a state that is in this host's files; None if containers access the state manager directly."""
    if launch.state_type != "local":
        return None
    from heronpy.scheduler.state_endpoint import StateEndpoint

    found = state.get(paths.packing_plan(launch.topology))
    if found is not None:
        rules.masters = masters_of(launch, plan_pb2.PackingPlan.FromString(found[0]))
    limits = SessionLimits(SESSIONS_MAX, SESSIONS_MAX // 4) if launch.submitted.program == SLOT else None
    return StateEndpoint(state, launch.topology, boot_s, rules, limits)


def masters_of(launch: LaunchSpec, plan: plan_pb2.PackingPlan) -> frozenset[int]:
    """The containers that run a topology master or a standby."""
    standbys = settings_for(launch, TmasterSettings).standbys
    return frozenset((0, *with_standby([0, *(one.id for one in plan.containers)], standbys)))


async def open_endpoint(
    launch: LaunchSpec, setup: Setup, admission: Admission, at_endpoint: StateEndpoint | None
) -> ControlEndpoint:
    """Open the endpoint at an earlier scheduler's address, or else at an address that the engine's hosts can reach."""
    security = settings_for(launch, SecuritySettings)
    clients = {make_client(launch.submitted.cluster).public: USER}

    def make(endpoints: list[str]) -> ControlEndpoint:
        return ControlEndpoint(
            setup.terms.endpoint_keys, launch.topology_id, endpoints, admission, at_endpoint, clients
        )

    def bind(addresses: tuple[str, ...]) -> ControlEndpoint:
        return bind_endpoint(launch.working_dir, addresses, security.port_range, make)

    if security.network:
        return bind((address_here(security.network, ""),))
    kept = kept_addresses(launch.working_dir)
    if kept:
        try:
            return bind(kept)
        except ConfigError:
            pass  # this host differs from the host of the submit
    return bind(await asyncio.to_thread(setup.engine.reach))


def relay_of(setup: Setup, state: StateManager, own: Own) -> Relay:
    """The relay for requests from clients; `own` answers requests to the scheduler itself."""
    path = paths.tmaster(setup.terms.launch.topology)

    def master() -> plan_pb2.TmasterLocation | None:
        found = state.get(path)
        return plan_pb2.TmasterLocation.FromString(found[0]) if found is not None else None

    return Relay(own, master, setup.terms.links)


def tell_clients(setup: Setup, endpoints: list[str]) -> None:
    """Write the endpoint's address for commands on other hosts; a failure does not affect containers."""
    launch, keys = setup.terms.launch, setup.terms.endpoint_keys.keys
    place = EndpointPlace(launch.topology_id, tuple(setup.told_at(endpoints)), keys.server.public)
    try:
        write_endpoint(launch.submitted.cluster, launch.topology, place)
    except (ConfigError, OSError) as error:
        log.warning("commands on other hosts cannot find the control endpoint: %s", error)
