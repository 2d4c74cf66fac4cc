"""`heron events` and `heron exceptions`: the events of a topology, and the exceptions of its user code."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from heronpy.cli import exits
from heronpy.cli.output import clean, moment, picked, print_json, print_table, say
from heronpy.cli.render.exceptions import exception_text, group_text
from heronpy.clusters.errors import ClusterError
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import DeadlineError, RpcError
from heronpy.common.units import counted, format_duration
from heronpy.proto import control_pb2
from heronpy.views.exception_groups import groups_of
from heronpy.views.past import Event, Events, Start

#: Poll interval of `--follow`, and the maximum time without an answer from the topology master.
LOOK_S, SILENCE_MAX_S = 1.0, 30.0
_JSON = (
    "instance_id", "process", "component", "task_id", "container", "type", "message", "traceback", "first_at",
    "last_at", "count", "startup",
)  # fmt: skip


def show_events(
    target: Target,
    topology: str,
    kinds: Sequence[str],
    limit: int,
    follow: bool,
    start: bool,
    as_json: bool,
    common: Common,
) -> None:
    """Print the newest events; with `follow`, also new ones, until Ctrl-C or the end of the topology.

    With `start`, print the phases of the topology's start instead.
    """
    if start and (kinds or follow):
        raise exits.Failure("--start shows no events; leave out --kind and --follow", exits.USAGE)
    session = Session(target, common)
    reply = session.look(topology, control_pb2.GetEvents(), Events)
    if start:
        _show_start(topology, reply.start, as_json)
        return
    shown = _chosen(reply, kinds)[-limit:]
    if as_json and not follow:
        print_json({"topology": topology, "forgotten": reply.forgotten, "events": [_as_json(one) for one in shown]})
        return
    if not shown and not follow:
        say(f"No events{' of this kind' if kinds else ''} in topology '{topology}'")
    _print(shown, as_json)
    if reply.forgotten and not as_json:
        say(f"{counted(reply.forgotten, 'older event')} no longer kept")
    if follow:
        try:
            _follow(session, topology, kinds, as_json, reply.last)
        except KeyboardInterrupt:
            if not as_json:
                say()


def _show_start(topology: str, found: Start | None, as_json: bool) -> None:
    if found is None:
        raise exits.Failure(f"the topology master of '{topology}' has no record of the phases of the start")
    if as_json:
        seconds = {one.name: round(one.took_s, 3) for one in found.phases}
        figures = {"begun_at": found.begun_at, "took_s": round(found.took_s, 3), "running": found.running}
        print_json({"topology": topology, **figures, "phases": seconds})
        return
    so_far = "" if found.running else " so far"
    took = format_duration(round(found.took_s, 2))
    say(f"Start of topology '{topology}' at {moment(found.begun_at)}: {took}{so_far}")
    rows = [(one.name, format_duration(round(one.took_s, 2)), one.what) for one in found.phases]
    print_table(("phase", "took", "description"), rows, right=("took",))


def _follow(session: Session, topology: str, kinds: Sequence[str], as_json: bool, last: int) -> None:
    heard_at = time.monotonic()
    while True:
        time.sleep(LOOK_S)
        try:
            reply = session.look(topology, control_pb2.GetEvents(after=last), Events)
        except (ClusterError, DeadlineError, RpcError):
            # The topology master may be restarting. If the topology is gone, `find` raises.
            session.find(topology)
            if time.monotonic() - heard_at > SILENCE_MAX_S:
                raise
            continue
        heard_at, last = time.monotonic(), reply.last
        _print(_chosen(reply, kinds), as_json)


def _chosen(reply: Events, kinds: Sequence[str]) -> list[Event]:
    return [event for event in reply.events if not kinds or event.kind in kinds]


def _as_json(event: Event) -> dict[str, Any]:
    figures = picked(event, "kind", "number", "at", "first_at", "times", "subject", "reason", "text")
    return {**figures, "lasted_s": event.lasted_s or 0.0, "warning": event.warning}


def _print(events: Sequence[Event], as_json: bool) -> None:
    for event in events:
        if as_json:
            click.echo(json.dumps(_as_json(event)))
        else:
            say(event_line(event))


def event_line(event: Event) -> str:
    mark = "!" if event.warning else " "
    again = f"  ({event.times} times since {moment(event.first_at)})" if event.times > 1 else ""
    return f"{moment(event.at)} {mark} {event.kind:<12} {clean(event.text)}{again}"


def show_exceptions(
    target: Target,
    topology: str,
    component: str | None,
    task: int | None,
    summary: bool,
    everything: bool,
    as_json: bool,
    common: Common,
) -> None:
    """Print the exceptions of user code: grouped, one by one, as a table or as JSON."""
    session = Session(target, common)
    session.check_component(topology, component)
    reply = session.ask(topology, control_pb2.GetExceptions(component=component or "", task_id=task or 0))
    print_exceptions(topology, reply, summary, everything, as_json)


def print_exceptions(
    topology: str, reply: control_pb2.ExceptionsReply, summary: bool, everything: bool, as_json: bool
) -> None:
    """Print exceptions grouped, one by one, as a table or as JSON."""
    groups = groups_of(reply.exceptions)
    if as_json:
        listed = [picked(item, *_JSON) for item in reply.exceptions]
        found = [msgspec.to_builtins(group) for group, _ in groups]
        print_json({"topology": topology, "discarded": reply.discarded, "exceptions": listed, "groups": found})
        return
    if not reply.exceptions:
        say(f"No exceptions in topology '{topology}'")
    elif summary:
        rows = [
            (
                group.type,
                group.where or None,
                group.messages[0][:200],
                group.count,
                len(group.tasks),
                moment(group.first_at),
                moment(group.last_at),
            )
            for group, _ in groups
        ]
        print_table(("type", "where", "message", "count", "tasks", "first", "last"), rows, right=("count", "tasks"))
    elif everything:
        say("\n\n".join(exception_text(item) for item in reply.exceptions))
    else:
        say("\n\n".join(group_text(*group) for group in groups))
    if reply.discarded:
        say(f"\n{reply.discarded:,} further kinds of exceptions were not kept; see the logs")


def groups_json(session: Session, topology: str) -> list[dict[str, Any]]:
    """Return the value of `groups` in `heron exceptions --json`."""
    found = groups_of(session.ask(topology, control_pb2.GetExceptions()).exceptions)
    return [msgspec.to_builtins(group) for group, _ in found]
