"""What the runtime does with the objects of users: whose `ack` and `fail` count, and no look at their dict."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import pytest

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from instance.spout_loop import has_own
from tests.sim.run import cluster_of
from tests.sim.workload import Program


def refuse(user: object) -> Any:
    raise AssertionError(f"something has read the dict of a {type(user).__name__}")


class Emitting(Spout):
    outputs = ["n"]
    __dict__ = property(refuse)  # type: ignore[assignment]
    sent = acked = failed = 0

    def next_tuple(self) -> None:
        if self.sent < 20:
            self.sent += 1
            self.emit([self.sent], tup_id=self.sent)

    def ack(self, tup_id: Any) -> None:
        self.acked += 1

    def fail(self, tup_id: Any) -> None:
        self.failed += 1


class Judging(Bolt):
    __dict__ = property(refuse)  # type: ignore[assignment]

    def process(self, tup: Any) -> None:
        if tup.values[0] % 2:
            self.ack(tup)
        else:
            self.fail(tup)


def test_nothing_reads_the_dict_of_a_spout_or_a_bolt() -> None:
    """CPython 3.11 makes each attribute of an object slower once its dict has been asked for."""
    made = TopologyBuilder("sim")
    numbers = made.add_spout("numbers", Emitting, par=1)
    made.add_bolt("judge", Judging, par=1, inputs={numbers: Grouping.SHUFFLE})
    made.set_config({"topology.reliability.mode": "ATLEAST_ONCE"})
    with cluster_of(0, Program(made, None)) as (cluster, _):
        cluster.until(control_pb2.LIFE_RUNNING)
        [process] = cluster.tasks("numbers")
        spout = process.program.user.object
        cluster.run(lambda: (spout.acked, spout.failed) == (10, 10))


class Inheriting(Spout):
    def next_tuple(self) -> None: ...


class InheritingAsync(AsyncSpout):
    async def run(self) -> None: ...


class Overriding(Inheriting):
    def fail(self, tup_id: Any) -> None: ...


class Static(Inheriting):
    @staticmethod
    def fail(tup_id: Any) -> None: ...  # type: ignore[override]


class Partial(Inheriting):
    def _end(self, how: str, tup_id: Any) -> None: ...

    fail = partialmethod(_end, "failed")  # type: ignore[assignment]


class Assigned(Inheriting):
    def __init__(self) -> None:
        self.fail = print  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (Inheriting, False),
        (InheritingAsync, False),
        (Overriding, True),
        (Static, True),
        (Partial, True),
        (Assigned, True),
        (object, False),
    ],
)
def test_whether_a_spout_has_a_fail_of_its_own(kind: Any, own: bool) -> None:
    spout = kind.__new__(kind)
    if kind is Assigned:
        spout.__init__()
    assert has_own(spout, "fail") is own
