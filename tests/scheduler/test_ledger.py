"""Permit and ledger in the state manager: who may write, and what a successor takes over."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from heronpy.common.errors import FencedError, StateError
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.restart_policy import Charges
from heronpy.proto import plan_pb2
from heronpy.scheduler.avoided_hosts import Avoided
from heronpy.scheduler.ledger import LedgerStore, trace_of
from heronpy.scheduler.placement_events import Cause, Entry, Past
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.base import StateManager

LEDGER = {0: Entry(1, 1, 1), 3: Entry(4, 2, 7)}
PAST = Past(
    3, 2, "ended 3 times", False, ExitReason.OOM, "OUT_OF_MEMORY",
    Charges(((ExitReason.OOM, (1.0, 2.5)), (ExitReason.CRASHED, (3.0,))), 2, 0.4, 0.5),
    Charges(((ExitReason.KILLED, (4.0,)),)),
)  # fmt: skip


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateManager]:
    found = open_state("local", str(tmp_path / "state"))
    yield found
    found.close()


def store(state: StateManager, permit: str = "one") -> LedgerStore:
    return LedgerStore(state, plan_pb2.SchedulerLocation(topology="wc", endpoint="ipc:///x", permit=permit))


def release(state: StateManager) -> None:
    state.delete(paths.scheduler("wc"))


def test_a_successor_takes_over_what_was_written(state: StateManager) -> None:
    first = store(state)
    assert first.take() == ({}, True, False, ())
    first.write(LEDGER)
    with pytest.raises(FencedError, match="another scheduler is running topology 'wc'"):
        store(state, "two").take()
    release(state)
    # The first one is this process, which lives.
    assert store(state, "two").take() == (LEDGER, False, False, ())


TAKES = """
import os, sys
from heronpy.proto import plan_pb2
from heronpy.scheduler.ledger import LedgerStore
from heronpy.statemgr import open_state
state = open_state("local", sys.argv[1])
LedgerStore(state, plan_pb2.SchedulerLocation(topology="wc", endpoint="ipc:///x", permit="one")).take()
os._exit(0)
"""


def test_a_predecessor_that_has_ended_here_is_known_to_have_ended(state: StateManager, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TAKES, str(tmp_path / "state")], check=True, timeout=30)
    kept = state.get(paths.placement("wc"))
    assert kept is not None and plan_pb2.PlacementLedger.FromString(kept[0]).scheduler.permit == "one"
    assert store(state, "two").take() == ({}, True, False, ())


@pytest.mark.parametrize("change", ["host", "pids"])
def test_the_end_of_one_elsewhere_is_not_known(state: StateManager, change: str) -> None:
    trace = trace_of(2**22 + 1, "gone")
    if change == "host":
        trace.host = "0 1 elsewhere"
    else:
        trace.pids += 1
    kept = plan_pb2.PlacementLedger(alone=True, scheduler=trace)
    state.create(paths.placement("wc"), kept.SerializeToString())
    assert store(state).take()[1] is False


def test_who_is_not_alone_says_so_until_it_is(state: StateManager) -> None:
    store(state).take()
    release(state)
    second = store(state, "two")
    assert second.take()[1] is False
    second.write(LEDGER)

    def alone() -> bool:
        kept = state.get(paths.placement("wc"))
        assert kept is not None
        return plan_pb2.PlacementLedger.FromString(kept[0]).alone

    assert not alone()
    second.become_alone()
    assert alone()
    version = state.get(paths.placement("wc"))
    second.become_alone()
    assert state.get(paths.placement("wc")) == version, "no write without need"
    second.write({})
    assert alone()


def test_who_has_lost_the_permit_writes_nothing(state: StateManager) -> None:
    first = store(state)
    first.take()
    release(state)
    with pytest.raises(FencedError, match="has lost its permit; no process has it"):
        first.write(LEDGER)
    second = store(state, "two")
    second.take()
    for act in (first.prove, lambda: first.write(LEDGER)):
        with pytest.raises(FencedError, match="has lost its permit"):
            act()
    kept = state.get(paths.placement("wc"))
    assert kept is not None and not plan_pb2.PlacementLedger.FromString(kept[0]).entries


def test_a_write_whose_answer_was_lost_is_its_own(state: StateManager) -> None:
    first = store(state)
    first.take()
    path = paths.placement("wc")
    kept, version = state.get(path) or (b"", 0)
    state.set(path, kept, version)  # as if the answer to our own write had been lost
    first.write(LEDGER)
    found = state.get(path)
    assert found is not None
    assert [one.container for one in plan_pb2.PlacementLedger.FromString(found[0]).entries] == [0, 3]


def test_a_ledger_that_another_has_written_fences(state: StateManager) -> None:
    first = store(state)
    first.take()
    other = plan_pb2.PlacementLedger(scheduler=trace_of(1, "another"))
    state.set(paths.placement("wc"), other.SerializeToString())
    with pytest.raises(FencedError, match="another scheduler of wc has written"):
        first.write(LEDGER)


def test_a_damaged_ledger_is_named(state: StateManager) -> None:
    state.create(paths.placement("wc"), b"\xff\xff")
    with pytest.raises(StateError, match=r"container ledger .* is damaged"):
        store(state).take()


def test_what_has_ended_is_remembered_on_a_clock_that_begins_anew(
    state: StateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler's clock counts from the boot of its host."""
    monkeypatch.setattr(time, "time", lambda: 5000.0)
    one = plan_pb2.SchedulerLocation(topology="wc", endpoint="ipc:///x", permit="one")
    first = LedgerStore(state, one, lambda: 10.0)
    first.take()
    cause = Cause(ExitReason.MOVED, "ann has moved it away from host n1")
    drained = Avoided("n1", 12.0, "ann drains it", "ann", draining=True)
    first.write({1: Entry(4, 2, 7, PAST, "n1", cause)}, True, [drained])
    release(state)
    monkeypatch.setattr(time, "time", lambda: 5060.0)
    two = plan_pb2.SchedulerLocation(topology="wc", endpoint="ipc:///x", permit="two")
    taken = LedgerStore(state, two, lambda: 40.0).take()
    assert taken.killing
    # 60 s later, on a clock that has gone on by 30 s only.
    ends = Charges(((ExitReason.OOM, (-29.0, -27.5)), (ExitReason.CRASHED, (-27.0,))), 2, 0.4, -29.5)
    past = replace(PAST, ends=ends, cancels=Charges(((ExitReason.KILLED, (-26.0,)),)))
    assert taken.ledger == {1: Entry(4, 2, 7, past, "n1", cause)}
    assert taken.hosts == (replace(drained, until=-18.0),)


def test_a_reason_of_another_release_is_left_out(state: StateManager) -> None:
    entry = plan_pb2.PlacementEntry(container=1, submitted=1, exit_reason="sunspots", restarts=2)
    entry.ends.charges.add(reason="sunspots", at=[1.0])
    state.create(paths.placement("wc"), plan_pb2.PlacementLedger(entries=[entry]).SerializeToString())
    assert store(state).take().ledger == {1: Entry(1, 0, 0, Past(restarts=2))}
