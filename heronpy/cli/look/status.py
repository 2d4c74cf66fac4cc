"""The state of a topology, as `heron status` shows it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from heronpy.cli import exits
from heronpy.cli.look import doctor, pipelines, spark, stateful
from heronpy.cli.look.topologies import STARTING, unknown
from heronpy.cli.output import (
    clean,
    command,
    moment,
    picked,
    print_json,
    print_table,
    say,
    say_labelled,
    say_wrapped,
    warning,
)
from heronpy.cli.render import containers, summary
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.folders import heron_home
from heronpy.common.states import UP_STATES, lifecycle_name, process_state_name, task_state_name
from heronpy.common.units import format_duration
from heronpy.plan.component_config import reliability_mode, shown_mode
from heronpy.proto import control_pb2, plan_pb2
from heronpy.tracker import place


def show_status(target: Target, topology: str | None, as_json: bool, common: Common) -> None:
    """Print the state of a topology, by default the only one; raises a Failure if it has failed or no process runs."""
    session = Session(target, common, warn=warning)
    topology = topology or _only_topology(session)
    record = session.find(topology)
    waits_for = session.starting(record) if session.tmaster_location(topology) is None else None
    if waits_for is not None:
        _show_starting(record, waits_for.value, as_json, containers.placed_of(session, topology))
        return
    status, placed = session.status(topology), containers.placed_of(session, topology)
    containers.tell_starting(status, placed.containers if placed is not None else ())
    if as_json:
        print_json(_status_json(session, record, status, placed))
    else:
        _show_status(session, record, status, placed)
    if lifecycle_name(status.lifecycle) == "FAILED":
        raise exits.Failure(f"topology '{topology}' has failed: {status.cause or 'see its logs'}")


def _only_topology(session: Session) -> str:
    """Return the only running topology; raises a Failure if there is none or more than one."""
    names = session.names()
    if session.unseen:
        raise exits.Failure(f"name a topology: {unknown(session.unseen)}")
    if len(names) == 1:
        return names[0]
    if not names:
        raise exits.Failure(f"no topology runs in {session.target}", exits.NOT_FOUND)
    raise exits.Failure(f"name a topology; the topologies are {', '.join(names)}", exits.USAGE)


def _show_starting(
    record: plan_pb2.ExecutionState, waits_for: str, as_json: bool, placed: control_pb2.ContainersReply | None
) -> None:
    """Print the state of a topology that is still being submitted."""
    if as_json:
        print_json(
            {
                "topology": record.topology,
                "topology_id": record.topology_id,
                "lifecycle": STARTING,
                "cause": waits_for,
                **_record_json(record),
                "components": [],
                "tasks": [],
                "containers": [containers.as_json(one) for one in placed.containers] if placed is not None else [],
            }
        )
        return
    say(f"Topology '{clean(record.topology)}' in {record.cluster}/{record.role}/{record.environ}")
    _line("state", f"{STARTING}: {waits_for}")
    _line("submitted", moment(record.submitted_at))
    if placed is not None:
        _show_placed(placed, {})


def _record_json(record: plan_pb2.ExecutionState) -> dict[str, Any]:
    """Return who submitted the topology, when, and where it runs."""
    return {
        **picked(record, "cluster", "role", "environ", "submitted_at", "submission_user", "release"),
        "log_dir": f"{record.working_dir}/log-files",
    }


def status_json(session: Session, record: plan_pb2.ExecutionState, status: control_pb2.StatusReply) -> dict[str, Any]:
    """Return the documented content of `heron status --json`."""
    placed = containers.placed_of(session, record.topology)
    containers.tell_starting(status, placed.containers if placed is not None else ())
    return _status_json(session, record, status, placed)


def _status_json(
    session: Session,
    record: plan_pb2.ExecutionState,
    status: control_pb2.StatusReply,
    placed: control_pb2.ContainersReply | None,
) -> dict[str, Any]:
    engine: dict[str, Any] = {}
    if placed is not None:
        engine = {
            "engine_away": placed.engine_away or None,
            "endpoint_refused": containers.refusals_json(placed.refused),
        }
    if session.engine_of(record.topology):
        lacks = session.lacks_scheduler(record.topology)
        engine["scheduler_away"] = str(session.no_scheduler(record.topology)) if lacks else None
    return {
        **summary.as_json(status, summary.components(status), rates=False),
        **_record_json(record),
        "tasks": [
            {
                **picked(task, "task_id", "instance_id", "component", "pid", "epoch", "error"),
                "state": task_state_name(task.state),
            }
            for task in status.tasks
        ],
        **engine,
        "containers": [
            {
                **picked(executor, "container", "host", "pid", "metrics_port", "not_limited"),
                **_placed_json(placed, executor.container),
                "processes": [
                    {
                        **picked(
                            process, "name", "pid", "restarts", "exit_reason", "exit_detail", "rss_bytes", "cpu_s"
                        ),
                        "state": process_state_name(process.state),
                    }
                    for process in executor.processes
                ],
            }
            for executor in status.executors
        ]
        + _unregistered_json(placed, status),
        **stateful.as_json(session, status),
        "spark": spark.as_json(session, status),
        **pipelines.as_json(session, status),
    }


def _placed_json(placed: control_pb2.ContainersReply | None, container: int) -> dict[str, Any]:
    """Return the scheduler's report on a container of an engine, with `host` renamed to `engine_host`."""
    found = [one for one in placed.containers if containers.number_of(one) == container] if placed is not None else []
    if not found:
        return {}
    shown = containers.as_json(found[0])
    return {"engine_host": shown.pop("host"), **{key: value for key, value in shown.items() if key != "container"}}


def _unregistered_json(
    placed: control_pb2.ContainersReply | None, status: control_pb2.StatusReply
) -> list[dict[str, Any]]:
    """Return the engine's containers that have no registered executor."""
    known = {executor.container for executor in status.executors}
    waiting = [one for one in placed.containers if containers.number_of(one) not in known] if placed is not None else []
    return [
        {
            "container": containers.number_of(one),
            "host": one.host,
            "pid": 0,
            "metrics_port": 0,
            "not_limited": "",
            **_placed_json(placed, containers.number_of(one)),
            "processes": [],
        }
        for one in waiting
    ]


def _line(label: str, text: str, whole: bool = False) -> None:
    say_labelled(label, text, whole, margin="  ")


def _discarded_text(status: control_pb2.StatusReply) -> str:
    if reliability_mode(status.plan.topology) == "ATMOST_ONCE":
        return "tuples, and an unknown number more" if status.totals.lost_unknown else "tuples"
    if status.totals.lost_unknown:
        return "tuples, and an unknown number more; the spouts emit tuples with an id again"
    if status.totals.untracked:
        return "tuples at most; the spouts emit tuples with an id again"
    return "tuples at most, which the spouts emit again"


def _show_status(
    session: Session,
    record: plan_pb2.ExecutionState,
    status: control_pb2.StatusReply,
    placed: control_pb2.ContainersReply | None,
) -> None:
    name = clean(status.topology)
    say(f"Topology '{name}' in {record.cluster}/{record.role}/{record.environ}")
    _line("state", summary.state_text(status))
    diagnosis = doctor.line(session, status.topology)
    if diagnosis:
        say_wrapped(f"  {clean(diagnosis)}", 4)
    _line("up", f"{format_duration(status.uptime_s)}, submitted {moment(record.submitted_at)}")
    down = summary.down_tasks(status)
    _line("tasks", f"{len(status.tasks) - len(down)} of {len(status.tasks)} up, physical plan {status.plan_version}")
    _line("mode", shown_mode(status.plan.topology))
    for text in stateful.current_lines(session, status):
        _line("", text)
    _line("tuples", summary.totals_text(status))
    for number, text in enumerate(spark.lines(spark.as_json(session, status))):
        _line("" if number else "spark", text)
    for number, text in enumerate(pipelines.lines(pipelines.ask(session, status))):
        _line("" if number else "units", text)
    if status.discarded_tuples:
        _line("discarded", f"{status.discarded_tuples:,} {_discarded_text(status)}")
    for text in summary.dropped_texts(status):
        _line("dropped", clean(text))
    if status.exceptions:
        _line("exceptions", f"{status.exceptions:,} of user code; see 'heron exceptions {session.target} {name}'", True)
    for culprit in status.culprits:
        say_wrapped(f"  {clean(summary.culprit_text(culprit))}", 4)
    if placed is None:
        _show_containers(status)
        if unlimited := summary.not_limited_text(status.executors):
            say(unlimited)
        if session.lacks_scheduler(record.topology):
            start = command("heron", "scheduler", "start", session.target, record.topology)
            say(f"The scheduler is not running, so containers that end are not replaced; run: {start}")
    else:
        _show_placed(placed, {executor.container: executor for executor in status.executors})
    troubled = summary.troubled_processes(status.executors)
    listed = {process.name for process in troubled if process.state != control_pb2.PROC_RUNNING}
    silent = [
        task
        for task in down
        if task.state not in UP_STATES and not (task.state == control_pb2.TASK_LOST and task.instance_id in listed)
    ]
    if silent:
        rows = [
            (task.instance_id or task.component, task_state_name(task.state), task.error or None) for task in silent
        ]
        print_table(("task not up", "state", "error"), rows)
    if troubled:
        processes = [
            (
                process.name,
                process_state_name(process.state),
                str(process.restarts),
                ": ".join(filter(None, (process.exit_reason.replace("_", " "), process.exit_detail))) or None,
            )
            for process in troubled
        ]
        print_table(("process", "state", "restarts", "last exit"), processes, right=("restarts",))
    say(f"See also: heron top {session.target} {name}, heron logs {session.target} {name}")
    page = place.page_if_running(heron_home(), record.cluster, record.role, record.environ, record.topology)
    if page:
        say(f"Page: {page}")


def _show_containers(status: control_pb2.StatusReply) -> None:
    rows = [
        (
            str(executor.container),
            executor.host,
            str(executor.pid),
            len(executor.processes),
            sum(process.restarts for process in executor.processes),
            summary.memory_text(executor.processes),
        )
        for executor in sorted(status.executors, key=lambda executor: executor.container)
    ]
    if rows:
        columns = ("container", "host", "executor pid", "processes", "their restarts", "memory")
        print_table(columns, rows, right=("container", *columns[2:]))


def _show_placed(placed: control_pb2.ContainersReply, executors: Mapping[int, control_pb2.RegisterExecutor]) -> None:
    """Print the containers that an engine runs, and why other containers are not running."""
    rows = []
    for one in placed.containers:
        executor = executors.get(containers.number_of(one), control_pb2.RegisterExecutor())
        rows.append(
            (
                str(containers.number_of(one)),
                one.host or None,
                one.phase,
                one.engine_id or None,
                one.restarts,
                len(executor.processes),
                sum(process.restarts for process in executor.processes),
                summary.memory_text(executor.processes),
            )
        )
    columns = ("container", "host", "phase", "engine id", "restarts", "processes", "their restarts", "memory")
    print_table(columns, rows, right=("container", *columns[4:]))
    if placed.killing:
        say("The topology was killed, and its containers are being ended; run 'heron kill' again to finish")
    if placed.engine_away:
        runs_on = "" if placed.killing else "; the containers keep running"
        say(f"The engine does not answer {clean(placed.engine_away)}{runs_on}")
    for text in containers.texts(placed.containers, time.time()):
        say(clean(text))
    if refused := containers.refusals_text(placed.refused):
        say(refused)
