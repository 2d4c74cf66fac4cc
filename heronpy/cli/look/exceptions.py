"""The exceptions of user code, as `heron exceptions` shows them."""

from __future__ import annotations

from typing import Any

from heronpy.cli.output import moment, picked, print_json, print_table, say
from heronpy.cli.render.exceptions import exception_text, group_text
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.proto import control_pb2
from heronpy.views.exception_groups import groups_of

_JSON = (
    "instance_id", "process", "component", "task_id", "container", "type", "message", "traceback", "first_at",
    "last_at", "count", "startup",
)  # fmt: skip


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
    """Print the exceptions of user code: grouped, each by itself, or as a table or JSON."""
    session = Session(target, common)
    session.check_component(topology, component)
    reply = session.ask(topology, control_pb2.GetExceptions(component=component or "", task_id=task or 0))
    groups = groups_of(reply.exceptions)
    if as_json:
        print_json({**_exceptions_json(topology, reply), "groups": [group.as_json() for group in groups]})
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
            for group in groups
        ]
        print_table(("type", "where", "message", "count", "tasks", "first", "last"), rows, right=("count", "tasks"))
    elif everything:
        say("\n\n".join(exception_text(item) for item in reply.exceptions))
    else:
        say("\n\n".join(group_text(group) for group in groups))
    if reply.discarded:
        say(f"\n{reply.discarded:,} further kinds of exceptions were not kept; see the logs")


def _exceptions_json(topology: str, reply: control_pb2.ExceptionsReply) -> dict[str, Any]:
    return {
        "topology": topology,
        "discarded": reply.discarded,
        "exceptions": [picked(item, *_JSON) for item in reply.exceptions],
    }


def groups_json(session: Session, topology: str) -> list[dict[str, Any]]:
    """`groups` of `heron exceptions --json`."""
    return [group.as_json() for group in groups_of(session.ask(topology, control_pb2.GetExceptions()).exceptions)]
