"""What a run does around its faults: what a fault needs is waited for, and what is judged has arrived, whatever went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.proto import control_pb2
from heronpy.verify.errors import VerifyError
from heronpy.verify.pressure import checkpoint_under_backpressure
from heronpy.verify.run import Run, play_faults
from heronpy.verify.units.run import Pipeline
from heronpy.verify.units.run import play_faults as play_faults_on_units


class Looks:
    """A world of which each look at the topology finds the next of some answers."""

    def __init__(self, looks: Iterator[Any]) -> None:
        self.topology = SimpleNamespace(name="seen", status=lambda: next(looks))
        self.did: list[str] = []
        self.faults: list[Any] = []
        self.notes: dict[str, Any] = {}
        #: As a fault leaves it that goes wrong before it expects no failure any more.
        self.may_fail, self.complete = True, False

    def until(self, condition: Callable[[], object], timeout_s: float, what: str) -> None:
        if not any(condition() for _ in range(10)):
            raise VerifyError(f"{what} did not come within {timeout_s:g} s")
        self.did.append(what)

    def arrived(self) -> int:
        return 1

    def until_arrived(self, count: int) -> None:
        """They do."""

    def until_checkpoint(self) -> None:
        """It comes at once."""

    def wait(self, seconds: float) -> None: ...

    def note(self, what: str, disruptive: bool = True) -> None: ...

    def configure(self, **values: object) -> None: ...

    def checkpoints(self) -> Any:
        return SimpleNamespace(completed=1, aborted=0, failed=0)

    def end_input(self) -> int:
        self.did.append("end of the input")
        return 100

    def settled(self) -> None:
        self.did.append("settled")
        if self.topology.status() == "never":
            raise VerifyError("it did not settle")


def pressure(*clamped: bool) -> Iterator[Any]:
    """Looks that find spouts clamped or not, the last one for ever."""
    looks = [SimpleNamespace(stmgrs=[SimpleNamespace(clamped=one)]) for one in clamped]
    return chain(looks, repeat(looks[-1]))


def test_backpressure_may_pause_while_tuples_under_way_are_saved() -> None:
    """Whoever saves them takes them from their link, which is below its mark until others have come."""
    checkpoint_under_backpressure(unaligned=True)(Looks(pressure(False, True, False, False, True)), 1)  # type: ignore[arg-type]
    world = Looks(pressure(True, False))
    with pytest.raises(VerifyError, match="outlasts the checkpoint"):
        checkpoint_under_backpressure(unaligned=True)(world, 1)  # type: ignore[arg-type]


def goes_wrong(world: Any, runs: int) -> None:
    raise VerifyError("no disk could be made full")


def test_after_a_fault_that_went_wrong_all_tuples_arrive_before_they_are_judged() -> None:
    world = Looks(repeat(SimpleNamespace(lifecycle=control_pb2.LIFE_FINISHED)))
    run, error = play_faults(world, Run(), goes_wrong)  # type: ignore[arg-type]
    assert (error, run.input.count) == ("no disk could be made full", 100)
    assert world.did[-2:] == ["end of the input", "the end of 'seen'"]
    assert world.complete and not world.may_fail, "the topology is not expected to fail any more"


def test_what_was_wrong_first_is_said_though_the_end_does_not_come() -> None:
    for act, said in ((goes_wrong, "no disk could be made full"), (lambda world, runs: None, "the end of 'seen' did")):
        world = Looks(repeat(SimpleNamespace(lifecycle=control_pb2.LIFE_RUNNING)))
        assert play_faults(world, Run(), act)[1].startswith(said)  # type: ignore[arg-type]
        assert not world.complete


def test_lines_of_work_units_come_to_the_table_before_they_are_judged() -> None:
    world = Looks(repeat(None))
    wanted = Pipeline(logs=1, lines_per_s=1.0, baseline_s=0.0, duration_s=0.0)
    assert play_faults_on_units(world, wanted, goes_wrong, 1) == "no disk could be made full"  # type: ignore[arg-type]
    assert world.did[-2:] == ["end of the input", "settled"] and world.complete
    world = Looks(repeat("never"))
    assert play_faults_on_units(world, wanted, lambda world, runs: None, 1) == "it did not settle"  # type: ignore[arg-type]
    assert not world.complete
