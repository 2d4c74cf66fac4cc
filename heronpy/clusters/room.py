"""Checks, before a submit or a change, whether a topology's containers fit the hosts of an engine.

A container is one object of the engine with the resources requested at its submission; an update of a running container
cannot extend them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heronpy.clusters.engines import engine_of
from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.session import Session
from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import PackingSettings
from heronpy.common.settings import settings_for
from heronpy.engines.contract import EngineError, NodeSize
from heronpy.packing.demand import ResourceRequest, requests_of, size_text
from heronpy.pools.nodes import read_pool
from heronpy.proto import plan_pb2, topology_pb2


def check_room(
    session: Session,
    name: str,
    topology: topology_pb2.Topology,
    old: plan_pb2.PackingPlan,
    new: plan_pb2.PackingPlan,
) -> dict[int, str]:
    """Messages about containers that outgrow their resources on the engine, by container; 0 stands for all containers.

    Raises RequestError if a new or enlarged container fits no host, and ClusterError if the engine does not report host
    sizes. Without an engine there are no messages.
    """
    submitted = session.submitted(name)
    if submitted is None or not submitted.engine:
        return {}
    settings = settings_for(session.settings_of(session.find(name)), PackingSettings)
    # Container 0 has no tasks, so no update changes its request.
    before, after = requests_of(old, topology, settings), requests_of(new, topology, settings)
    larger = {number: asked for number, asked in after.items() if _grows(before.get(number), asked)}
    if not larger:
        return {}  # a smaller request is possible on every engine
    if submitted.pool:
        # A slot gives its containers the resources that they request.
        problem = size_problem(larger, slot_sizes(session, submitted.pool))
        if problem:
            raise RequestError(f"{problem}; nothing was changed")
        return {}
    told = {one: _outgrown(session, name, one, before[one], larger[one]) for one in sorted(larger) if one in before}
    try:
        sizes = engine_of(submitted).node_sizes()
    except (EngineError, ConfigError) as error:
        why = f"{submitted.engine} does not report the size of its hosts: {error}"
        if session.is_here(session.find(name)):
            raise ClusterError(f"{why}; nothing was changed") from None
        # the engine's commands may not exist on this host
        return {**told, 0: f"the size of the containers was not checked: {why}"}
    problem = size_problem(larger, sizes)
    if problem:
        raise RequestError(f"{problem}; nothing was changed")
    return told


def slot_sizes(session: Session, name: str) -> Sequence[NodeSize]:
    """The slot size of a pool, which replaces the sizes of hosts; empty if the pool does not exist."""
    pool = read_pool(session.state, name)
    return [NodeSize(pool.size.cpu, pool.size.ram_bytes, None, f"pool '{name}'")] if pool is not None else []


def _grows(before: ResourceRequest | None, after: ResourceRequest) -> bool:
    return (
        before is None
        or after.cpu > before.cpu
        or after.ram_bytes > before.ram_bytes
        or after.disk_bytes > before.disk_bytes
    )


def _outgrown(session: Session, name: str, number: int, before: ResourceRequest, after: ResourceRequest) -> str:
    wants, had = (size_text(one.cpu, one.ram_bytes, one.disk_bytes) for one in (after, before))
    return (
        f"container {number} now requests {wants} instead of {had}, but keeps the resources that the engine gave it"
        " at its submission; spread its tasks with --container-number, or replace it with a container of the new size:"
        f" heron restart {session.target} {name} {number} --force"
    )


def size_problem(requests: Mapping[int, ResourceRequest], sizes: Sequence[NodeSize]) -> str:
    """A sentence on the first container that fits no host; "" if all fit, or if the hosts' sizes are unknown."""
    if not sizes:
        return ""
    largest = max(sizes, key=lambda size: (size.ram_bytes, size.cpu))
    for container, asked in sorted(requests.items()):
        if any(_fits(asked, size) for size in sizes):
            continue
        where = f" of {largest.where}" if largest.where else ""
        wants = size_text(asked.cpu, asked.ram_bytes, asked.disk_bytes if largest.disk_bytes is not None else None)
        has = size_text(largest.cpu, largest.ram_bytes, largest.disk_bytes if asked.disk_bytes else None)
        return (
            f"container {container} requests {wants}, but the largest host{where} has {has}; spread its tasks over more"
            " containers, or request less (heron.packing.instance_* are the defaults for components)"
        )
    return ""


def _fits(asked: ResourceRequest, size: NodeSize) -> bool:
    disk = size.disk_bytes is None or asked.disk_bytes <= size.disk_bytes
    return asked.cpu <= size.cpu and asked.ram_bytes <= size.ram_bytes and disk
