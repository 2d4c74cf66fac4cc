"""`heron list` and `heron status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from heronpy.cli import exits
from heronpy.cli.output import clean, moment, print_json, print_table, say
from heronpy.cli.reading import Reading, reading_target
from heronpy.cli.target import Common, Target, common_flags, json_flag, optional_topology_argument

if TYPE_CHECKING:
    from heronpy.cli.session import Session
    from heronpy.proto import control_pb2 as control
    from heronpy.proto import plan_pb2 as plans

ASK_S = 1.0
ASKED_AT_ONCE = 16
DEAD = "DEAD"
STARTING = "STARTING"
NO_MASTER = "NO MASTER"
NO_ANSWER = "NO ANSWER"


@click.command("list", cls=Reading)
@reading_target
@json_flag
@common_flags
def list_command(target: Target, as_json: bool, common: Common) -> None:
    """List the topologies of a cluster, of a role or of an environ."""
    from concurrent.futures import ThreadPoolExecutor

    from heronpy.cli.session import Session

    session = Session(target, common)
    records = session.topologies()
    with ThreadPoolExecutor(max_workers=max(1, min(len(records), ASKED_AT_ONCE))) as pool:
        found = list(pool.map(lambda record: _row(session, record), records))
    if as_json:
        print_json(found)
        return
    if not found:
        say(f"No topology runs in {session.target}")
        return
    rows = [
        (row["name"], row["state"], row["role"], row["environ"], row["tasks"], moment(row["submitted_at"]))
        for row in found
    ]
    print_table(("topology", "state", "role", "environ", "tasks", "submitted"), rows, right=("tasks",))
    for row in found:
        if row["text"] != row["state"]:
            say(f"'{clean(row['name'])}' is {clean(row['text'])}")
        if row["state"] == DEAD:
            where = f"{session.target} {clean(row['name'])}"
            say(f"'{clean(row['name'])}' is dead; run 'heron kill {where}' to remove what is left")


def _row(session: Session, record: plans.ExecutionState) -> dict[str, Any]:
    from heronpy.cli import summary, waiting

    status, cause = waiting.poll(session, record.topology, ASK_S), ""
    if status is not None:
        state, cause = summary.lifecycle_name(status), status.cause
    elif cause := session.starting(record):
        state = STARTING
    elif session.tmaster_location(record.topology) is not None:
        state = NO_ANSWER
    else:
        state = NO_MASTER if session.scheduler_location(record.topology) is not None else DEAD
    return {
        "name": record.topology,
        "id": record.topology_id,
        "cluster": record.cluster,
        "role": record.role,
        "environ": record.environ,
        "state": state,
        "cause": cause,
        "text": summary.state_text(status) if status is not None else f"{state}: {cause}" if cause else state,
        "tasks": len(status.tasks) if status is not None else None,
        "uptime_s": round(status.uptime_s, 3) if status is not None else None,
        "submitted_at": record.submitted_at,
        "submission_user": record.submission_user,
        "release": record.release,
    }


@click.command("status", cls=Reading)
@reading_target
@optional_topology_argument
@json_flag
@common_flags
def status_command(target: Target, topology: str | None, as_json: bool, common: Common) -> None:
    """Show a topology's state: what does not run, what holds it back, what was restarted.

    Without TOPOLOGY it is the one that runs, where only one does.
    Exit code 1 when the topology has failed or nothing of it runs.
    """
    from heronpy.cli import stateful, summary
    from heronpy.cli.session import Session

    session = Session(target, common)
    topology = topology or _only_topology(session)
    record = session.find(topology)
    waits_for = session.starting(record) if session.tmaster_location(topology) is None else ""
    if waits_for:
        _show_starting(record, waits_for, as_json)
        return
    status = session.status(topology)
    if as_json:
        print_json({**status_json(record, status), **stateful.as_json(session, status)})
    else:
        _show_status(session, record, status)
    if summary.lifecycle_name(status) == "FAILED":
        raise exits.Failure(f"topology '{topology}' has failed: {status.cause or 'see its logs'}")


def _only_topology(session: Session) -> str:
    """The topology that is meant when none is named; a Failure where that is not clear."""
    names = session.names()
    if len(names) == 1:
        return names[0]
    if not names:
        raise exits.Failure(f"no topology runs in {session.target}", exits.NOT_FOUND)
    raise exits.Failure(f"name a topology: there are {', '.join(names)}", exits.USAGE)


def _show_starting(record: plans.ExecutionState, waits_for: str, as_json: bool) -> None:
    """The state of a topology of which only its submit knows something."""
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
                "containers": [],
            }
        )
        return
    say(f"Topology '{clean(record.topology)}' in {record.cluster}/{record.role}/{record.environ}")
    say(f"  state      {STARTING}: {waits_for}")
    say(f"  submitted  {moment(record.submitted_at)}")


def _record_json(record: plans.ExecutionState) -> dict[str, Any]:
    """Who submitted it, when, and where it lives."""
    return {
        "cluster": record.cluster,
        "role": record.role,
        "environ": record.environ,
        "submitted_at": record.submitted_at,
        "submission_user": record.submission_user,
        "release": record.release,
        "log_dir": f"{record.working_dir}/log-files",
    }


def status_json(record: plans.ExecutionState, status: control.StatusReply) -> dict[str, Any]:
    from heronpy.cli import summary

    return {
        **summary.as_json(status, summary.components(status)),
        **_record_json(record),
        "tasks": [
            {
                "task_id": task.task_id,
                "instance_id": task.instance_id,
                "component": task.component,
                "state": summary.task_state_name(task.state),
                "pid": task.pid,
                "epoch": task.epoch,
                "error": task.error,
            }
            for task in status.tasks
        ],
        "containers": [
            {
                "container": executor.container,
                "host": executor.host,
                "pid": executor.pid,
                "metrics_port": executor.metrics_port,
                "processes": [
                    {
                        "name": process.name,
                        "pid": process.pid,
                        "state": summary.process_state_name(process.state),
                        "restarts": process.restarts,
                        "exit_reason": process.exit_reason,
                        "exit_detail": process.exit_detail,
                        "rss_bytes": process.rss_bytes,
                        "cpu_s": process.cpu_s,
                    }
                    for process in executor.processes
                ],
            }
            for executor in status.executors
        ],
    }


def _show_status(session: Session, record: plans.ExecutionState, status: control.StatusReply) -> None:
    from heronpy.cli import stateful, summary
    from heronpy.common.units import format_duration
    from heronpy.plan.component_config import reliability_mode

    name = clean(status.topology)
    say(f"Topology '{name}' in {record.cluster}/{record.role}/{record.environ}")
    say(f"  state      {clean(summary.state_text(status))}")
    say(f"  up         {format_duration(status.uptime_s)}, submitted {moment(record.submitted_at)}")
    down = summary.down_tasks(status)
    say(f"  tasks      {len(status.tasks) - len(down)} of {len(status.tasks)} up, plan version {status.plan_version}")
    say(f"  mode       {clean(reliability_mode(status.plan.topology))}")
    for text in stateful.current_lines(session, status):
        say(f"             {clean(text)}")
    say(f"  tuples     {summary.totals_text(status)}")
    if status.discarded_tuples:
        again = reliability_mode(status.plan.topology) != "ATMOST_ONCE"
        what = "tuples at most, which the spouts send again" if again else "tuples"
        say(f"  discarded  {status.discarded_tuples:,} {what}")
    if status.exceptions:
        say(f"  exceptions {status.exceptions:,} of user code; see 'heron exceptions {session.target} {name}'")
    for culprit in status.culprits:
        say(f"  {clean(summary.culprit_text(culprit))}")
    _show_containers(status)
    silent = [task for task in down if task.state not in summary.UP]  # the others' processes are listed below
    if silent:
        rows = [
            (task.instance_id or task.component, summary.task_state_name(task.state), task.error or None)
            for task in silent
        ]
        print_table(("task not up", "state", "error"), rows)
    troubled = summary.troubled_processes(status.executors)
    if troubled:
        processes = [
            (
                process.name,
                summary.process_state_name(process.state),
                str(process.restarts),
                ": ".join(filter(None, (process.exit_reason.replace("_", " "), process.exit_detail))) or None,
            )
            for process in troubled
        ]
        print_table(("process", "state", "restarts", "last exit"), processes, right=("restarts",))
    say(f"See also: heron top {session.target} {name}, heron logs {session.target} {name}")


def _show_containers(status: control.StatusReply) -> None:
    from heronpy.common.units import format_bytes

    rows = [
        (
            str(executor.container),
            executor.host,
            str(executor.pid),
            len(executor.processes),
            sum(process.restarts for process in executor.processes),
            format_bytes(memory) if (memory := sum(process.rss_bytes for process in executor.processes)) else None,
        )
        for executor in sorted(status.executors, key=lambda executor: executor.container)
    ]
    if rows:
        columns = ("container", "host", "executor pid", "processes", "restarts", "memory")
        print_table(columns, rows, right=("container", *columns[2:]))
