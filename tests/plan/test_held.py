"""File sinks against what a spout may have pending: what a submit warns of."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.plan import held, validation
from heronpy.plan.logical import LogicalPlan
from tests.plan.builders import TopologyMessage

MODE = "topology__reliability__mode"
PENDING = "topology__max__spout__pending"


def warnings(mode: str = "ATLEAST_ONCE", pending: Any = "100", seconds: float = 5.0) -> list[str]:
    topology = TopologyMessage(**{MODE: mode, PENDING: pending}).spout("s").spout("other")
    topology.bolt("parse", ["s"]).bolt("store", ["parse"], **{held.ROLL_INTERVAL_S: seconds}).bolt("end", ["other"])
    return validation.warnings(LogicalPlan.from_topology(topology.message))


def test_a_file_sink_that_acks_late_is_told_with_the_rate_that_it_leaves() -> None:
    assert warnings() == [
        "file sink 'store' acks what it has published, each 5 s, and a task of spout 's' may have 100 tuples pending: it"
        " emits about 20 tuples a second, unless files are full before; raise topology.max.spout.pending, or lower the"
        " sink's roll_interval_s"
    ]


@pytest.mark.parametrize(
    ("mode", "pending", "seconds"),
    [
        ("ATMOST_ONCE", 100, 5.0),
        ("EFFECTIVELY_ONCE", 100, 5.0),
        ("ATLEAST_ONCE", 500, 5.0),
        ("ATLEAST_ONCE", 100, 1.0),
        ("ATLEAST_ONCE", "many", 5.0),
    ],
)
def test_nothing_is_said_where_it_holds_nobody(mode: str, pending: Any, seconds: float) -> None:
    assert warnings(mode, pending, seconds) == []
