"""The logical, packing or physical plan of a topology."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from heronpy.cli import exits
from heronpy.cli.output import print_json, say
from heronpy.cli.render.plans import show_logical, show_packing, show_physical
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.views import heron_plans

P = TypeVar("P", bound=Message)


def show_plan(target: Target, topology: str, which: str, form: str, as_json: bool, common: Common) -> None:
    """Print one of the plans of a topology."""
    session = Session(target, common)
    session.find(topology)
    form = "json" if as_json else form
    if which == "logical":
        _print(session.topology(topology), heron_plans.logical_plan, show_logical, form)
    elif which == "packing":
        _print(session.packing_plan(topology), heron_plans.packing_plan, show_packing, form)
    else:
        physical = session.physical_plan(topology)
        if physical is None:
            raise exits.Failure(
                f"topology '{topology}' has no physical plan yet; see 'heron status {target} {topology}' for what it"
                " waits for"
            )
        _print(physical, heron_plans.physical_plan, show_physical, form)


def _print(plan: P, as_json: Callable[[P], dict[str, Any]], show: Callable[[P, bool], None], form: str) -> None:
    if form == "json":
        print_json(as_json(plan))
    elif form == "raw":
        say(str(plan).rstrip())
    else:
        show(plan, form == "colored_table")
