"""The topologies of a cluster, as `heron list` shows them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from heronpy.cli import exits
from heronpy.cli.output import clean, moment, picked, print_json, print_table, say, say_wrapped, warning
from heronpy.cli.render import containers, summary
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.losses import losses_text
from heronpy.proto import control_pb2, plan_pb2

ASK_S = 1.0
ASKED_AT_ONCE = 16
#: Names in a sentence.
SHOWN = 5
DEAD = "DEAD"
STARTING = "STARTING"
NO_MASTER = "NO MASTER"
NO_ANSWER = "NO ANSWER"


def list_topologies(target: Target, as_json: bool, common: Common) -> None:
    """Print the topologies of a cluster, a role or an environ, as a table or JSON."""
    session = Session(target, common, warn=warning)
    records = session.topologies()
    with ThreadPoolExecutor(max_workers=max(1, min(len(records), ASKED_AT_ONCE))) as pool:
        found = list(pool.map(lambda record: _row(session, record), records))
    if as_json:
        print_json([{key: value for key, value in row.items() if key != "waits"} for row in found])
    elif found:
        _print(session, found)
    elif not session.unseen:
        say(f"No topology runs in {session.target}{session.of_this_host()}")
    if session.unseen:
        raise exits.Failure(unknown(session.unseen))


def unknown(names: Sequence[str]) -> str:
    """Return the sentence about topologies that did not answer; the reasons were printed before."""
    shown = ", ".join(f"'{clean(name)}'" for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"it is not known whether {shown}{more} still {'runs' if len(names) == 1 else 'run'}; the reasons are above"


def _print(session: Session, found: list[dict[str, Any]]) -> None:
    rows = [
        (row["name"], row["state"], row["role"], row["environ"], row["tasks"], moment(row["submitted_at"]))
        for row in found
    ]
    print_table(("topology", "state", "role", "environ", "tasks", "submitted"), rows, right=("tasks",))
    for row in found:
        if row["text"] != row["state"]:
            say_wrapped(f"'{clean(row['name'])}' is {clean(row['text'])}", 2)
        away = row.get("scheduler_away")
        if away and away not in row["text"]:
            say_wrapped(f"'{clean(row['name'])}': {clean(away)}", 2)
        for text in row.pop("waits", ()):
            say_wrapped(f"'{clean(row['name'])}': {clean(text)}", 2)
        if row["state"] == DEAD:
            say(f"'{clean(row['name'])}' is dead; {clean(session.cure_of_dead(row['name']))}")


def _row(session: Session, record: plan_pb2.ExecutionState) -> dict[str, Any]:
    status, cause = session.poll(record.topology, ASK_S), ""
    engine = session.engine_of(record.topology)
    placed = session.containers(record.topology, ASK_S) if engine else None
    if status is not None and placed is not None:
        containers.tell_starting(status, placed.containers)
    if status is not None:
        state, cause = summary.label_of(status), status.cause
    elif (waits_for := session.starting(record)) is not None:
        state, cause = STARTING, waits_for.value
    elif session.tmaster_location(record.topology) is not None:
        state = NO_ANSWER
    else:
        # Without a scheduler, the topology's containers on the engine are unknown.
        state = NO_MASTER if engine or session.scheduler_location(record.topology) is not None else DEAD
    away = ""
    if engine and state != STARTING and session.lacks_scheduler(record.topology):
        away = str(session.no_scheduler(record.topology))
    if state in (NO_ANSWER, NO_MASTER):
        cause = away
    return {
        "name": record.topology,
        "id": record.topology_id,
        **picked(record, "cluster", "role", "environ", "submitted_at", "submission_user", "release"),
        "state": state,
        "losses": (losses_text(status.totals) or None) if status is not None else None,
        "cause": cause,
        "text": summary.state_text(status) if status is not None else f"{state}: {cause}" if cause else state,
        "tasks": len(status.tasks) if status is not None else None,
        "uptime_s": round(status.uptime_s, 3) if status is not None else None,
        **_engine_row(engine, placed, away),
    }


def _engine_row(engine: str, placed: control_pb2.ContainersReply | None, away: str) -> dict[str, Any]:
    """Return extra fields for a topology on an engine, else {}. `containers` is None if unknown."""
    if not engine:
        return {}
    known = placed.containers if placed is not None else ()
    return {
        "engine": engine,
        "scheduler_away": away or None,
        "containers": [containers.as_json(one) for one in known] if placed is not None else None,
        "waits": containers.texts(known, time.time()),
    }
