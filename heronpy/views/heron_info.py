"""A topology in the JSON of Apache Heron's tracker, field by field. Pure.

Fields without a counterpart in heronpy have Heron's empty value: unused ports are null, links to job pages and file
servers are empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.common.ids import stmgr_id
from heronpy.common.redaction import redacted
from heronpy.proto import components_of, control_pb2, plan_pb2, topology_pb2
from heronpy.views import heron_plans
from heronpy.views.heron_plans import config_as_json

Json = dict[str, Any]
_STATUS = {topology_pb2.RUNNING: "Running", topology_pb2.PAUSED: "Paused", topology_pb2.KILLED: "Killed"}


@dataclass(frozen=True, slots=True)
class Parts:
    """The records of a topology in the state manager; None for a missing record."""

    record: plan_pb2.ExecutionState
    definition: topology_pb2.Topology | None
    packing: plan_pb2.PackingPlan | None
    physical: plan_pb2.PhysicalPlan | None
    scheduler: plan_pb2.SchedulerLocation | None
    tmaster: plan_pb2.TmasterLocation | None


def info(parts: Parts) -> Json:
    """Return the answer to `/topologies/info`."""
    return {
        "execution_state": execution_state(parts),
        "id": parts.record.topology_id or None,
        "logical_plan": logical_plan(parts.definition),
        "metadata": metadata(parts),
        "name": parts.record.topology,
        "packing_plan": packing_plan(parts.packing),
        "physical_plan": physical_plan(parts.physical, parts.record.working_dir),
        "runtime_state": runtime_state(parts, {}),
        "scheduler_location": scheduler_location(parts.scheduler),
        "tmanager_location": tmanager_location(parts),
    }


def _config(config: topology_pb2.Config) -> dict[str, str]:
    """Return the configuration without possible secrets."""
    return {key: str(redacted(value, key)) for key, value in config_as_json(config).items()}


def metadata(parts: Parts) -> Json:
    """Return the answer to `/topologies/metadata`."""
    record = parts.record
    return {
        "cluster": record.cluster,
        "environ": record.environ,
        "role": record.role,
        "jobname": record.topology,
        "submission_time": int(record.submitted_at),
        "submission_user": record.submission_user,
        "release_username": record.submission_user,
        "release_tag": "",
        "release_version": record.release,
        "instances": len(parts.physical.instances) if parts.physical is not None else 0,
        "extra_links": [],
    }


def execution_state(parts: Parts) -> Json:
    """Return the answer to `/topologies/executionstate`."""
    state = parts.physical.topology.state if parts.physical is not None else None
    return {
        **metadata(parts),
        **_present(parts),
        "status": _STATUS.get(state, "Unknown") if state is not None else "Unknown",
    }


def _present(parts: Parts) -> Json:
    return {
        "has_physical_plan": parts.physical is not None,
        "has_packing_plan": parts.packing is not None,
        "has_tmanager_location": parts.tmaster is not None,
        "has_scheduler_location": parts.scheduler is not None,
    }


def runtime_state(parts: Parts, registered: Mapping[str, bool]) -> Json:
    """Return the answer to `/topologies/runtimestate`: the registered stream managers."""
    return {**_present(parts), "stmgrs": {name: {"is_registered": known} for name, known in registered.items()}}


def scheduler_location(location: plan_pb2.SchedulerLocation | None) -> Json:
    """Return the answer to `/topologies/schedulerlocation`."""
    if location is None:
        return {"name": None, "http_endpoint": None, "job_page_link": None}
    return {"name": location.topology, "http_endpoint": location.endpoint, "job_page_link": ""}


def tmanager_location(parts: Parts) -> Json:
    """Return the part of `/topologies/info` about the topology master."""
    known = parts.tmaster is not None
    return {
        "name": parts.record.topology if known else None,
        "id": parts.record.topology_id if known else None,
        "host": parts.tmaster.host if parts.tmaster is not None else None,
        "controller_port": None,
        "server_port": None,
        "stats_port": None,
    }


def logical_plan(topology: topology_pb2.Topology | None) -> Json:
    """Return the answer to `/topologies/logicalplan`."""
    if topology is None:
        return {"bolts": {}, "spouts": {}, "stages": 0}
    bolts = {
        bolt.comp.name: {
            "config": _config(bolt.comp.config),
            "outputs": [{"stream_name": output.stream.id} for output in bolt.outputs],
            "inputs": [
                {
                    "stream_name": item.stream.id,
                    "component_name": item.stream.component_name,
                    "grouping": topology_pb2.Grouping.Name(item.gtype),
                }
                for item in bolt.inputs
            ],
            "inputComponents": [item.stream.component_name for item in bolt.inputs],
        }
        for bolt in topology.bolts
    }
    return {"bolts": bolts, "spouts": {s.comp.name: _spout(s) for s in topology.spouts}, "stages": stages(topology)}


def _spout(spout: topology_pb2.Spout) -> Json:
    config = config_as_json(spout.comp.config)
    return {
        "config": _config(spout.comp.config),
        "spout_type": config.get("spout.type", "default"),
        "spout_source": config.get("spout.source", "NA"),
        "version": config.get("spout.version", "NA"),
        "outputs": [{"stream_name": output.stream.id} for output in spout.outputs],
        "extra_links": [],
    }


def stages(topology: topology_pb2.Topology) -> int:
    """Return the number of edges of the longest path. A cycle, which Heron does not count, ends a path."""
    sources = {bolt.comp.name: {item.stream.component_name for item in bolt.inputs} for bolt in topology.bolts}
    depth: dict[str, int] = {}
    for _ in range(len(sources) + 1):
        before = dict(depth)
        for name, inputs in sources.items():
            depth[name] = max((before.get(one, 0) + 1 for one in inputs), default=0)
        if depth == before:
            break
    return min(max(depth.values(), default=0), len(sources))


def packing_plan(plan: plan_pb2.PackingPlan | None) -> Json:
    """Return the answer to `/topologies/packingplan`."""
    if plan is None:
        return {"id": "", "container_plans": []}
    found = heron_plans.packing_plan(plan)
    scheduled = {"scheduled_resources": {"cpu": None, "ram": None, "disk": None}}
    return {"id": plan.id, "container_plans": [container | scheduled for container in found["container_plans"]]}


def physical_plan(plan: plan_pb2.PhysicalPlan | None, working_dir: str) -> Json:
    """Return the answer to `/topologies/physicalplan`."""
    found: Json = {
        "instances": {}, "instance_groups": {}, "stmgrs": {}, "spouts": {}, "bolts": {}, "config": {}, "components": {},
    }  # fmt: skip
    if plan is None:
        return found
    found["config"] = _config(plan.topology.topology_config)
    for name, part in components_of(plan.topology).items():
        found["components"][name] = {"config": _config(part.comp.config)}
    found["spouts"] = {spout.comp.name: [] for spout in plan.topology.spouts}
    found["bolts"] = {bolt.comp.name: [] for bolt in plan.topology.bolts}
    for stmgr in plan.stmgrs:
        found["stmgrs"][stmgr.id] = {
            "id": stmgr.id, "host": stmgr.host, "port": None, "shell_port": None, "cwd": working_dir,
            "pid": stmgr.pid, "joburl": "", "logfiles": "", "instance_ids": [],
        }  # fmt: skip
    for task in plan.instances:
        of_kind = found["spouts"] if task.component in found["spouts"] else found["bolts"]
        of_kind.setdefault(task.component, []).append(task.instance_id)
        place = stmgr_id(task.container)
        if place in found["stmgrs"]:
            found["stmgrs"][place]["instance_ids"].append(task.instance_id)
        found["instances"][task.instance_id] = {
            "id": task.instance_id, "name": task.component, "stmgr_id": place, "logfile": "",
        }  # fmt: skip
        found["instance_groups"].setdefault(f"container_{task.container}", []).append(task.instance_id)
    return found


def metrics(reply: control_pb2.MetricsReply, component: str) -> Json:
    """Return the answer to `/topologies/metrics`: values by metric (`name` or `name/label`) and instance."""
    found: dict[str, dict[str, str]] = {}
    for report in reply.reports:
        for sample in report.samples:
            name = f"{sample.name}/{sample.label}" if sample.label else sample.name
            is_time = sample.type == control_pb2.Sample.HISTOGRAM
            value = (sample.sum / sample.count if sample.count else 0.0) if is_time else sample.value
            found.setdefault(name, {})[report.process] = str(value)
    return {"interval": int(reply.interval_s), "component": component, "metrics": found}


def exceptions(reports: Sequence[control_pb2.ExceptionReport], hosts: Mapping[int, str]) -> list[Json]:
    """Return the answer to `/topologies/exceptions`."""
    return [
        {
            "hostname": hosts.get(report.container, ""),
            "instance_id": report.instance_id,
            "stacktrace": report.traceback,
            "lasttime": str(report.last_at),
            "firsttime": str(report.first_at),
            "count": str(report.count),
            "logging": "",
        }
        for report in reports
    ]


def exception_summary(reports: Sequence[control_pb2.ExceptionReport]) -> list[Json]:
    """Return the answer to `/topologies/exceptionsummary`: counts by class."""
    counts: dict[str, int] = {}
    last: dict[str, float] = {}
    first: dict[str, float] = {}
    for report in reports:
        counts[report.type] = counts.get(report.type, 0) + max(1, report.count)
        last[report.type] = max(last.get(report.type, 0.0), report.last_at)
        first[report.type] = min(first.get(report.type, report.first_at), report.first_at)
    return [
        {"class_name": name, "lasttime": int(last[name]), "firsttime": int(first[name]), "count": str(count)}
        for name, count in counts.items()
    ]
