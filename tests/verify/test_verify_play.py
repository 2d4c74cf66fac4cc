"""What a run does around its faults: what a fault needs is waited for, and what is judged has arrived, whatever went wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.loadtest.errors import LabError
from heronpy.proto import control_pb2
from heronpy.verify.acts import checkpoint_under_backpressure
from heronpy.verify.run import Run, play_faults
from heronpy.verify.stream import InputSpec
from heronpy.verify.world import World


class Looks(World):
    """A world of which each look at the topology finds the next of some answers."""

    def __init__(self, looks: Iterator[Any]) -> None:
        topology: Any = SimpleNamespace(name="seen", status=lambda: next(looks))
        super().__init__(topology, Path(), random.Random(1), True, "EFFECTIVELY_ONCE", InputSpec())
        self.did: list[str] = []
        #: As a fault leaves it that goes wrong before it expects no failure any more.
        self.may_fail = True

    def until(self, condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
        if not any(condition() for _ in range(10)):
            raise LabError(f"timed out after {timeout_s:g} s waiting for {what}")
        self.did.append(what)

    def arrived(self) -> int:
        return 1

    def until_arrived(self, more: int, timeout_s: float = 0.0) -> None:
        """They do."""

    def until_checkpoint(self, timeout_s: float = 0.0) -> int:
        return 1

    def wait(self, seconds: float) -> None:
        """It is over at once."""

    def configure(self, **values: object) -> None:
        """Nothing is slow."""

    def checkpoints(self) -> Any:
        return SimpleNamespace(completed=1, aborted=0, failed=0)

    def end_input(self) -> None:
        self.did.append("end of the input")


def pressure(*clamped: bool) -> Iterator[Any]:
    """Looks that find spouts clamped or not, the last one for ever."""
    looks = [SimpleNamespace(stmgrs=[SimpleNamespace(clamped=one)]) for one in clamped]
    return chain(looks, repeat(looks[-1]))


def test_backpressure_may_pause_while_tuples_under_way_are_saved() -> None:
    """Whoever saves them takes them from their link, which is below its mark until others have come."""
    checkpoint_under_backpressure(unaligned=True)(Looks(pressure(False, True, False, False, True)), 1)
    world = Looks(pressure(True, False))
    with pytest.raises(LabError, match="backpressure after the checkpoint"):
        checkpoint_under_backpressure(unaligned=True)(world, 1)


def goes_wrong(world: Any, runs: int) -> None:
    raise LabError("no disk could be made full")


def test_after_a_fault_that_went_wrong_all_tuples_arrive_before_they_are_judged() -> None:
    world = Looks(repeat(SimpleNamespace(lifecycle=control_pb2.LIFE_FINISHED)))
    assert play_faults(world, Run(), goes_wrong) == "no disk could be made full"
    assert world.did[-2:] == ["end of the input", "the end of 'seen'"]
    assert world.complete and not world.may_fail, "the topology is not expected to fail any more"


def test_what_was_wrong_first_is_said_though_the_end_does_not_come() -> None:
    for act, said in (
        (goes_wrong, "no disk could be made full"),
        (lambda world, runs: None, "timed out after 120 s waiting for the end of 'seen'"),
    ):
        world = Looks(repeat(SimpleNamespace(lifecycle=control_pb2.LIFE_RUNNING)))
        assert play_faults(world, Run(), act).startswith(said)
        assert not world.complete


def test_work_units_are_settled_before_they_are_judged() -> None:
    """Each kind of world knows by itself when all of its input has arrived."""

    class Settling(Looks):
        fails = False

        def settled(self) -> None:
            self.did.append("settled")
            if self.fails:
                raise LabError("it did not settle")

    world = Settling(repeat(None))
    assert play_faults(world, Run(), goes_wrong) == "no disk could be made full"
    assert world.did[-2:] == ["end of the input", "settled"] and world.complete
    world.fails, world.complete = True, False
    assert play_faults(world, Run(), lambda world, runs: None) == "it did not settle"
    assert not world.complete
