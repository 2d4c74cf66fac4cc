"""The slow tuples, as `heron slow` shows them."""

from __future__ import annotations

import msgspec

from heronpy.cli.output import moment, print_json, print_table, say
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.units import format_duration
from heronpy.proto import control_pb2
from heronpy.views.build_past import slow_of
from heronpy.views.past import SlowTuple


def show_slow(
    target: Target, topology: str, component: str | None, task: int | None, as_json: bool, common: Common
) -> None:
    """Print the slow tuples as a table or as JSON."""
    session = Session(target, common)
    session.check_component(topology, component)
    found = slow_of(session.ask(topology, control_pb2.GetSlow(component=component or "", task_id=task or 0)))
    if as_json:
        print_json({"topology": topology, **msgspec.to_builtins(found)})
    elif not found.tuples:
        say(f"No slow tuples in topology '{topology}' (see heron.instance.slow_ms)")
    else:
        rows = [
            (format_duration(one.took_s), one.instance_id, one.source, moment(one.at), _value(one))
            for one in found.tuples
        ]
        print_table(("took", "task", "from", "at", "value"), rows, right=("took",))


def _value(one: SlowTuple) -> str:
    if one.value is None:
        return f"not known: one of {one.tuples:,} tuples"
    return one.value if one.tuples == 1 else f"{one.value} (the first of {one.tuples:,} in one call)"
