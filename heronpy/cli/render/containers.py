"""The containers of a topology on an engine, as its scheduler reports them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from heronpy.cli.output import picked
from heronpy.clusters.session import Session
from heronpy.common.ids import container_of
from heronpy.proto import control_pb2

#: Field of EndpointRefusals -> the kind of request that the scheduler's control endpoint has refused.
_REFUSED = {
    "strangers": "connections without its keys",
    "garbage": "invalid messages",
    "unknown": "requests without admission",
    "impostors": "hello messages from a second process of a submission",
    "replaced": "requests from replaced submissions",
    "releases": "containers of another release",
    "oversized": "oversized requests",
    "busy": "requests during overload",
    "not_theirs": "requests from the wrong kind of peer (client or container)",
}
RUNNING = "RUNNING"
QUEUED = "QUEUED"
SHOWN = 5
_DAY_S = 86_400.0
_GUESS_S = 7 * _DAY_S


def number_of(record: control_pb2.ProcessRecord) -> int:
    return container_of(record.name)


def placed_of(session: Session, topology: str) -> control_pb2.ContainersReply | None:
    """Return the scheduler's report on the containers; None without an engine, or if the scheduler does not answer."""
    return session.containers(topology) if session.engine_of(topology) else None


def late(containers: Iterable[control_pb2.ProcessRecord]) -> list[control_pb2.ProcessRecord]:
    """Return the containers that are not running; containers without an engine have no phase and are left out."""
    return [one for one in containers if one.phase not in ("", RUNNING)]


def text(record: control_pb2.ProcessRecord, now: float) -> str:
    """Return text such as `container 2 QUEUED job 812_2: Resources, starts about 14:05`; `now` is wall-clock time."""
    # A bare number needs the word "job"; a name does not.
    job = f"{' job' if record.engine_id[0].isdigit() else ''} {record.engine_id}" if record.engine_id else ""
    host = f" on {record.host}" if record.host else ""
    said = [part for part in (record.words, _starts(record.starts_at, now)) if part]
    return f"container {number_of(record)} {record.phase}{job}{host}" + (f": {', '.join(said)}" if said else "")


def texts(containers: Iterable[control_pb2.ProcessRecord], now: float) -> list[str]:
    """Return one line for each of the first containers that are not running."""
    waiting = late(containers)
    found = [text(one, now) for one in waiting[:SHOWN]]
    return [*found, f"and {len(waiting) - SHOWN} more"] if len(waiting) > SHOWN else found


def tell_starting(status: control_pb2.StatusReply, containers: Iterable[control_pb2.ProcessRecord]) -> None:
    """Change a RUNNING status to DEGRADED while new containers are starting.

    Until a new executor and its stream manager have registered, the topology master still reports the old tasks.
    """
    if status.lifecycle != control_pb2.LIFE_RUNNING:
        return
    heard = {one.container: one for one in status.executors}
    found = [
        f"container {number_of(one)} is starting on host {one.host}"
        for one in containers
        if one.phase == RUNNING and number_of(one) in heard and _starts_again(one, heard[number_of(one)])
    ]
    if found:
        more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        status.lifecycle, status.cause = control_pb2.LIFE_DEGRADED, "; ".join([*found[:SHOWN], *more])


def _starts_again(container: control_pb2.ProcessRecord, known: control_pb2.RegisterExecutor) -> bool:
    return container.epoch > known.epoch or any(
        one.kind == control_pb2.PROCESS_STMGR and one.state == control_pb2.PROC_STARTING for one in known.processes
    )


def refusals_json(refused: control_pb2.EndpointRefusals) -> dict[str, int]:
    """Return the counts of refused requests since the scheduler started."""
    return {name: getattr(refused, name) for name in _REFUSED}


def refusals_text(refused: control_pb2.EndpointRefusals) -> str:
    """Return the refusals as a sentence; "" when nothing was refused."""
    found = [f"{count:,} {_REFUSED[name]}" for name, count in refusals_json(refused).items() if count]
    return f"The scheduler's control endpoint has refused {', '.join(found)}" if found else ""


def _starts(at: float, now: float) -> str:
    if at <= now:
        return ""  # unknown, or an earlier estimate of Slurm that has passed
    if at - now > _GUESS_S:
        return "no start is expected within a week"  # Slurm estimates a year if the jobs ahead have no time limit
    when = datetime.datetime.fromtimestamp(at).astimezone()
    far = abs(at - now) > _DAY_S
    return f"starts about {when.isoformat(sep=' ', timespec='minutes')[:16] if far else when.strftime('%H:%M')}"


def as_json(record: control_pb2.ProcessRecord) -> dict[str, Any]:
    """Return the additional fields of a container on an engine."""
    return {
        "container": number_of(record),
        **picked(record, "host", "engine_id", "phase", "words", "submission", "restarts", "epoch"),
        "starts_at": record.starts_at or None,
    }
