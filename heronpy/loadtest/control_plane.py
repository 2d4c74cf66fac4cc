"""Measures packing and the topology master at sizes that are too large for one machine.

All containers of a simulated topology register with a topology master that has no socket, and then send one round of
heartbeats. The figures are the time and memory of the decisions, without ZeroMQ or disks.
"""

from __future__ import annotations

import time
from typing import Any

import psutil

from heronpy.api.api_constants import TOPOLOGY_COMPONENT_PARALLELISM, TOPOLOGY_STMGRS
from heronpy.common.ids import stmgr_id
from heronpy.common.setting_types import PackingSettings, TmasterSettings
from heronpy.loadtest.checks import Check
from heronpy.loadtest.run import Found, Say, measured
from heronpy.packing import pack
from heronpy.plan.component_config import set_key
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Persist, Send
from heronpy.tmaster.machine import TopologyMaster

#: Limits for 1000 containers and 10,000 tasks.
PLAN_MAX_S, STORM_MAX_S, MEMORY_MAX_BYTES = 2.0, 5.0, 500 << 20


def run_control_plane(containers: int, tasks: int, repeat: int, say: Say) -> dict[str, Any]:
    """Measure packing and registration of a simulated topology; return the result document."""

    return measured(
        lambda number: _once(containers, tasks),
        lambda values, checks: f"packed in {values['pack_s']:.2f} s, registered in {values['storm_s']:.2f} s",
        repeat,
        say,
        profile="control-plane",
        about=f"packing and registration of {tasks:,} simulated tasks in {containers:,} containers",
        unit="tasks",
        options={"containers": containers, "tasks": tasks},
    )


def topology_of(name: str, number: str, spout: tuple[str, int], bolt: tuple[str, int]) -> topology_pb2.Topology:
    """Return a topology with stub classes; `spout` and `bolt` are (name, number of tasks)."""
    topology = topology_pb2.Topology(id=number, name=name, state=topology_pb2.RUNNING)
    for part, (component, tasks) in ((topology.spouts.add(), spout), (topology.bolts.add(), bolt)):
        part.comp.name, part.comp.spec = component, topology_pb2.PYTHON_CLASS_NAME
        part.comp.class_name = f"stub.{component}"
        set_key(part.comp.config, TOPOLOGY_COMPONENT_PARALLELISM, str(tasks))
        output = part.outputs.add()
        output.stream.id, output.stream.component_name = "default", component
        output.schema.keys.add(key="value", type=topology_pb2.OBJECT)
    step = topology.bolts[0].inputs.add(gtype=topology_pb2.SHUFFLE)
    step.stream.id, step.stream.component_name = "default", spout[0]
    return topology


def _once(containers: int, tasks: int) -> Found:
    process = psutil.Process()
    memory_before = process.memory_info().rss
    began = time.perf_counter()
    topology = topology_of("scale", "scale-1", ("source", tasks - tasks // 2), ("sink", tasks // 2))
    set_key(topology.topology_config, TOPOLOGY_STMGRS, str(containers))
    packing = pack(topology, PackingSettings(), containers)
    pack_s = time.perf_counter() - began
    began = time.perf_counter()
    machine = TopologyMaster(TmasterSettings(), 1, topology=topology, packing=packing)
    machine.begin(0.0)
    plans = persisted = 0
    for container in packing.containers:
        for effect in machine.handle(_registration(container), 0.1):
            persisted += isinstance(effect, Persist)
            plans += len(effect.peers) if isinstance(effect, Send) else 0
    storm_s = time.perf_counter() - began
    began = time.perf_counter()
    for container in packing.containers:
        machine.handle(_beat(container, machine.shared.book.version), 0.2)
    beats_s = time.perf_counter() - began
    machine.validate()
    memory = process.memory_info().rss - memory_before
    values = {
        "pack_s": pack_s,
        "storm_s": storm_s,
        "beats_s": beats_s,
        "control_plane_bytes": float(memory),
    }
    running = machine.lifecycle == control_pb2.LIFE_RUNNING
    return values, [
        Check("running", running, f"{plans:,} plans sent, {persisted} written; all tasks must be running"),
        Check("plan", pack_s < PLAN_MAX_S, f"packed in {pack_s:.2f} s, limit {PLAN_MAX_S:g} s"),
        Check("storm", storm_s < STORM_MAX_S, f"all registered in {storm_s:.2f} s, limit {STORM_MAX_S:g} s"),
        Check("memory", memory < MEMORY_MAX_BYTES, f"{memory >> 20} MB, limit {MEMORY_MAX_BYTES >> 20} MB"),
    ]


def _registration(container: plan_pb2.ContainerPlan) -> events.StmgrRegistered:
    record = plan_pb2.StmgrRecord(id=stmgr_id(container.id), container=container.id, epoch=1)
    message = control_pb2.RegisterStmgr(stmgr=record)
    for instance in container.instances:
        message.tasks.add(task_id=instance.task_id, epoch=1)
    return events.StmgrRegistered(b"%d" % container.id, container.id, message)


def _beat(container: plan_pb2.ContainerPlan, version: int) -> events.StmgrBeat:
    beat = control_pb2.StmgrHeartbeat(stmgr_id=stmgr_id(container.id), epoch=1, plan_version=version)
    for instance in container.instances:
        state = control_pb2.TASK_RUNNING
        beat.tasks.add(task_id=instance.task_id, epoch=1, plan_version=version, state=state)
    return events.StmgrBeat(b"%d" % container.id, beat)
