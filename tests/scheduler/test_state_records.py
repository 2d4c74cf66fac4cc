"""The records at the scheduler's control endpoint: who lives, whose a node is, and that each change is carried out once."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.common.errors import DamagedStateError, DeadlineError, NodeExistsError, StateError
from heronpy.proto import endpoint_pb2
from heronpy.scheduler.state_records import GoneError, StateRecords, Steps
from heronpy.scheduler.state_rules import Use
from heronpy.statemgr import paths
from tests.support.memory_state import MemoryStateManager


class Anything:
    def refusal(self, use: Use, path: str, container: int) -> str:
        return ""


def made(state: MemoryStateManager) -> StateRecords:
    return StateRecords(0.0, "wc", "endpoint", state.get(paths.ephemerals("wc")) or (b"", 0), Anything())


def carry_out(state: MemoryStateManager, steps: Steps) -> endpoint_pb2.StateAnswer:
    """Take all steps; watches and locks are taken for granted."""
    try:
        step = next(steps)
        while True:
            try:
                lasts = step.what in ("watch", "lock", "unlock")
                result: Any = None if lasts else getattr(state, step.what)(*step.arguments)
            except StateError as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        answer: endpoint_pb2.StateAnswer = end.value
        return answer


def test_impossible_sessions_are_refused() -> None:
    records = made(MemoryStateManager())
    for session_s in (0.1, 1000.0, float("nan")):
        with pytest.raises(StateError, match="session_timeout_s between"):
            records.open(0.0, 2, 3, session_s, 1)


def test_a_node_waits_for_its_owner_over_a_restart_and_is_no_other_containers() -> None:
    state = MemoryStateManager()
    records = made(state)
    records.open(0.0, 1, 3, 10.0, 1)
    leading = endpoint_pb2.StatePut(path="a", data=b"mine", ephemeral=True)
    carry_out(state, records.perform(endpoint_pb2.StateCall(session=1, put=leading)))
    with pytest.raises(StateError, match="container 2 cannot open a session of another container"):
        records.open(1.0, 1, 2, 10.0, 1)
    records = made(state)
    with pytest.raises(StateError, match="container 2 cannot open a session of another container"):
        records.open(1.0, 1, 2, 10.0, 1)
    assert records.left() == []
    records.open(1.0, 1, 3, 10.0, 1)
    with pytest.raises(NodeExistsError):
        carry_out(state, records.perform(endpoint_pb2.StateCall(session=1, put=leading)))
    carry_out(state, records.perform(endpoint_pb2.StateCall(session=1, put=leading, again=True)))
    records = made(state)
    for second in range(1, 10):
        records.tick(float(second))
    assert records.left() == []
    records.tick(10.0)
    assert records.left() == ["a"]
    carry_out(state, records.sweep())
    assert not state.exists("a") and records.owner_of("a") is None


def test_changes_below_that_of_the_opening_were_given_up() -> None:
    records = made(MemoryStateManager())
    records.open(0.0, 1, 3, 10.0, 7)
    with pytest.raises(StateError, match="change 6 of this session was abandoned"):
        records.begin(1, 6)
    assert records.begin(1, 7) and not records.begin(1, 7)


def test_changes_are_counted_and_told_to_whoever_watches() -> None:
    state = MemoryStateManager()
    records = made(state)
    state.set("a", b"value")
    for number in (1, 2):
        records.open(0.0, number, 3, 10.0, 1)
    answer = carry_out(state, records.perform(endpoint_pb2.StateCall(session=1, watch="a")))
    assert (answer.found, answer.data, answer.seen[0].count) == (True, b"value", 0)
    assert records.changed("a") == [(1, 1)]
    state.set("a", bytes(1 << 20))
    answer = carry_out(state, records.perform(endpoint_pb2.StateCall(session=2, watch="a")))
    assert answer.unread and not answer.found and answer.seen[0].count == 1
    assert records.changed("a") == [(1, 2), (2, 2)]
    assert records.changed("b") == []
    assert [(seen.path, seen.count) for seen in records.seen(1).seen] == [("a", 2)]


def test_a_lock_is_one_sessions_and_goes_with_it() -> None:
    state = MemoryStateManager()
    records = made(state)
    for number in (1, 2):
        records.open(0.0, number, 3, 10.0, 1)
    carry_out(state, records.perform(endpoint_pb2.StateCall(session=1, lock="locks/a")))
    with pytest.raises(DeadlineError, match="held by another"):
        carry_out(state, records.perform(endpoint_pb2.StateCall(session=2, lock="locks/a")))
    carry_out(state, records.perform(endpoint_pb2.StateCall(session=2, unlock="locks/a")))
    assert records.left() == []
    steps = records.perform(endpoint_pb2.StateCall(session=1, close=endpoint_pb2.StateClose()))
    records.open(0.0, 1, 3, 10.0, 1)  # the same number comes again before anything was swept
    assert records.left() == ["locks/a"]
    carry_out(state, steps)
    carry_out(state, records.perform(endpoint_pb2.StateCall(session=2, lock="locks/a")))
    with pytest.raises(GoneError):
        carry_out(state, records.perform(endpoint_pb2.StateCall(session=9, lock="locks/b")))


def test_a_write_that_was_done_before_is_recognised_by_version_and_content() -> None:
    state = MemoryStateManager()
    records = made(state)
    records.open(0.0, 1, 3, 10.0, 1)
    state.set("a", b"old")
    state.set("a", b"new")

    def put(data: bytes, again: bool) -> endpoint_pb2.StateCall:
        body = endpoint_pb2.StatePut(path="a", data=data, versioned=True, version=1)
        return endpoint_pb2.StateCall(session=1, again=again, put=body)

    assert carry_out(state, records.perform(put(b"new", True))).number == 2
    for body in (put(b"new", False), put(b"another's", True)):
        with pytest.raises(StateError, match="has version 2, not 1"):
            carry_out(state, records.perform(body))


@pytest.mark.parametrize("owners", [b"x", b"[]", b'{"nodes": []}', b'{"nodes": {"a": 1}}', b'{"nodes": {"a": [1]}}'])
def test_a_damaged_list_of_owners_is_refused(owners: bytes) -> None:
    with pytest.raises(DamagedStateError, match="damaged; kill the topology"):
        StateRecords(0.0, "wc", "endpoint", (owners, 1))
