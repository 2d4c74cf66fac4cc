"""`heron cluster hosts`: the hosts that get no containers of a cluster's topologies."""

from __future__ import annotations

from typing import Any

from heronpy.cli import exits
from heronpy.cli.output import picked, print_json, print_table, say, warning
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target, caller
from heronpy.common.errors import HeronError
from heronpy.common.units import format_duration
from heronpy.proto import control_pb2


def hosts(target: Target, lift: str | None, as_json: bool, common: Common) -> None:
    """Ask the scheduler of each topology; a Failure if one could not be asked, or nobody avoids the host to lift."""
    session = Session(target, common, warn=warning)
    names = [one.topology for one in session.topologies() if session.engine_of(one.topology)]
    failed, avoided, lifted = False, list[dict[str, Any]](), list[str]()
    for name in names:
        try:
            with session.scheduler(name) or _none(session, name) as scheduler:
                found = list(scheduler.call(control_pb2.GetContainers(), 5.0).avoided)
                if lift and any(one.host == lift for one in found):
                    scheduler.call(control_pb2.DrainHost(host=lift, lift=True, by=caller()), 5.0)
                    lifted.append(name)
                    found = [one for one in found if one.host != lift]
        except HeronError as error:
            failed = True
            warning(f"'{name}': {error}")
            continue
        avoided += [
            {"topology": name, **picked(one, "host", "why", "draining"), "left_s": round(one.left_s)} for one in found
        ]
    if as_json:
        print_json(avoided)
    else:
        _print(avoided, lift, lifted)
    if failed:
        raise exits.Failure("not all topologies could be asked, as said above")
    if lift and not lifted:
        raise exits.Failure(f"no topology in {target} avoids host '{lift}'", exits.NOT_FOUND)


def _none(session: Session, name: str) -> Any:
    raise session.no_scheduler(name)


def _print(avoided: list[dict[str, Any]], lift: str | None, lifted: list[str]) -> None:
    for name in lifted:
        say(f"Host {lift} may get containers of '{name}' again")
    if avoided:
        rows = [(one["host"], one["topology"], _how_long(one), one["why"]) for one in avoided]
        print_table(("host", "topology", "avoided for", "why"), rows)
    elif not lift:
        say("No host is avoided")


def _how_long(one: dict[str, Any]) -> str:
    return "until its drain is over" if one["draining"] else format_duration(one["left_s"])
