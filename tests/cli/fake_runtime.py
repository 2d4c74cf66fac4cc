"""A stand-in for scheduler and topology master that runs as a process: `python fake_runtime.py --launch F`.

HERON_FAKE chooses what becomes of the topology: running, failing, stuck, dying or finishing; after the first
answers it has failed (`collapsing`), or another topology of its name has its place (`replaced`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.plan.launch import LaunchSpec, load_submitted, make_here, save_here
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.statemgr import open_state, paths


def status_of(
    spec: LaunchSpec, topology: topology_pb2.Topology, plan: plan_pb2.PackingPlan, fate: str
) -> control_pb2.StatusReply:
    reply = control_pb2.StatusReply(topology=spec.topology, topology_id=spec.topology_id, uptime_s=1.0, plan_version=1)
    reply.plan.topology.CopyFrom(topology)
    reply.lifecycle = {
        "running": control_pb2.LIFE_PAUSED if topology.state == topology_pb2.PAUSED else control_pb2.LIFE_RUNNING,
        "failing": control_pb2.LIFE_FAILED,
        "finishing": control_pb2.LIFE_FINISHED,
        "losing": control_pb2.LIFE_FINISHED,
        "doubling": control_pb2.LIFE_FINISHED,
    }.get(fate, control_pb2.LIFE_STARTING)
    state = control_pb2.TASK_STARTING if fate == "stuck" else control_pb2.TASK_RUNNING
    for container in plan.containers:
        for instance in container.instances:
            name = f"container_{container.id}_{instance.component}_{instance.task_id}"
            reply.tasks.add(task_id=instance.task_id, component=instance.component, state=state, instance_id=name)
    if fate in ("losing", "collapsing"):
        reply.totals.acked, reply.totals.failed, reply.totals.replayed = 100, 3, 3
        reply.totals.dead_letters, reply.totals.lost = 2, 10
    if fate == "doubling":
        reply.totals.acked, reply.totals.spouts_begun_again = 100, 1
        reply.totals.begun_again.append("task 1 of word")
    if fate == "failing":
        reply.startup_exceptions.add(
            instance_id=reply.tasks[0].instance_id,
            type="ZeroDivisionError",
            traceback="Traceback (most recent call last):\n  File ...\nZeroDivisionError: division by zero\n",
        )
    return reply


async def serve(spec: LaunchSpec) -> None:
    fate = os.environ["HERON_FAKE"]
    state = open_state(spec.state_type, spec.state_root)
    name = spec.topology
    topology = topology_pb2.Topology.FromString(state.get(paths.topology(name))[0])  # type: ignore[index]
    plan = plan_pb2.PackingPlan.FromString(state.get(paths.packing_plan(name))[0])  # type: ignore[index]
    over = asyncio.Event()
    asked: list[str] = []

    def answer(_: bytes, envelope: control_pb2.Envelope) -> object:
        field, _body = body_of(envelope)
        if field == "kill_topology":
            for path in (
                paths.topology(name),
                paths.packing_plan(name),
                paths.tmaster(name),
                paths.execution_state(name),
            ):
                state.delete(path)
            asyncio.get_running_loop().call_later(0.05, over.set)
            return control_pb2.Ok(text="killed")
        if field == "get_containers":
            return control_pb2.ContainersReply()
        if field == "get_exceptions":
            return control_pb2.ExceptionsReply()
        if field == "get_metrics":
            return control_pb2.MetricsReply()
        reply = status_of(spec, topology, plan, fate)
        if fate in ("replaced", "collapsing"):
            asked.append(field)
            reply.lifecycle = control_pb2.LIFE_RUNNING
            if len(asked) >= 4 and fate == "replaced":
                reply.topology_id = "another"
            elif len(asked) >= 4:
                reply.lifecycle, reply.cause = control_pb2.LIFE_FAILED, "task 3 failed"
        return reply

    server = ControlServer([f"ipc://{spec.sockets_dir}/{one}" for one in ("tmaster", "scheduler")], answer)  # type: ignore[arg-type]
    location = plan_pb2.TmasterLocation(topology=name, endpoint=server.endpoints[0], pid=os.getpid())
    state.create(paths.tmaster(name), location.SerializeToString(), ephemeral=True)
    where = plan_pb2.SchedulerLocation(topology=name, endpoint=server.endpoints[1], pid=os.getpid())
    state.create(paths.scheduler(name), where.SerializeToString(), ephemeral=True)
    await over.wait()
    server.close()
    state.close()


if __name__ == "__main__":
    if os.environ["HERON_FAKE"] == "dying":
        print("the fake scheduler is dying on purpose")
        sys.exit(9)
    launch_file = Path(sys.argv[sys.argv.index("--launch") + 1])
    submitted = load_submitted(launch_file)
    save_here(make_here(submitted, launch_file), launch_file)
    asyncio.run(serve(LaunchSpec.load(launch_file)))
