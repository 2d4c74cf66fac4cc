"""Sessions at the scheduler's door: who lives, whose a node is, and that each call is carried out once."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heronpy.common.errors import DamagedStateError, StateAwayError, StateError
from heronpy.scheduler.state_sessions import TICK_MAX_S, SessionLimits, StateSessions, Verdict

PATHS = st.sampled_from(["tmasters/wc", "a/1", "a/2"])
#: Quarters of a second are exact in floats.
STEPS = st.integers(1, 8).map(lambda quarters: quarters / 4)
SESSION_S = 4.0
LIMITS = SessionLimits(sessions=6, calls=4)


class Model:
    """What is true of one session, told apart from how it is kept."""

    def __init__(self, container: int) -> None:
        self.container = container
        self.silent_s = 0.0
        self.ended = False
        self.waits = False
        self.settled = 1
        self.answers: dict[int, str | None] = {}


class Sessions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.sessions = StateSessions(0.0, b"", LIMITS)
        self.models: dict[int, Model] = {}
        self.owners: dict[str, int] = {}
        self.next_number = 100

    def live(self) -> list[int]:
        return [number for number, model in self.models.items() if not model.ended and not model.waits]

    def a_session(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(self.live()))

    @rule(container=st.integers(1, 2))
    def open(self, container: int) -> None:
        number = self.next_number
        if len(self.live()) >= LIMITS.sessions:
            with pytest.raises(StateAwayError):
                self.sessions.open(self.now, number, container, SESSION_S)
            return
        self.sessions.open(self.now, number, container, SESSION_S)
        self.models[number] = Model(container)
        self.next_number += 1

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def speak(self, data: st.DataObject) -> None:
        number = self.a_session(data)
        assert self.sessions.heard(self.now, number)
        self.models[number].silent_s = 0.0

    @rule(step_s=STEPS)
    def time_passes(self, step_s: float) -> None:
        self.pass_time(step_s, step_s)

    @rule(stopped_s=st.integers(3, 1000))
    def the_door_is_stopped(self, stopped_s: float) -> None:
        self.pass_time(stopped_s, TICK_MAX_S)

    def pass_time(self, step_s: float, listened_s: float) -> None:
        self.now += step_s
        for model in self.models.values():
            model.silent_s += listened_s
        expected = {number for number in self.live() if self.models[number].silent_s >= SESSION_S}
        assert set(self.sessions.tick(self.now)) == expected
        for number in expected:
            self.finish(number)
        for model in self.models.values():
            if model.waits and model.silent_s >= SESSION_S:
                model.waits, model.ended = False, True

    def finish(self, number: int) -> None:
        self.sessions.end(number)
        self.models[number].ended = True

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self.finish(self.a_session(data))

    @precondition(lambda self: self.live())
    @rule(data=st.data(), path=PATHS)
    def create(self, data: st.DataObject, path: str) -> None:
        number = self.a_session(data)
        if path not in self.owners:
            self.sessions.own(path, number)
            self.owners[path] = number

    @rule(path=PATHS)
    def delete(self, path: str) -> None:
        self.sessions.disown(path)
        self.owners.pop(path, None)

    @rule()
    def sweep(self) -> None:
        for path in self.sessions.orphans():
            self.sessions.disown(path)
            del self.owners[path]

    @rule()
    def the_scheduler_restarts(self) -> None:
        self.sessions = StateSessions(self.now, self.sessions.record(), LIMITS)
        for number, model in self.models.items():
            owns = number in self.owners.values()
            # One that had ended gets the same time again: the next scheduler cannot know it.
            model.waits, model.ended, model.silent_s = owns, not owns, 0.0

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def take_over(self, data: st.DataObject) -> None:
        number = self.a_session(data)
        earlier = data.draw(st.sampled_from(sorted(self.models)))
        before, model = self.models[earlier], self.models[number]
        may = before.container == model.container and not before.ended
        expected = sorted(path for path, owner in self.owners.items() if may and owner == earlier)
        assert self.sessions.take_over(number, earlier) == expected
        for path in expected:
            self.owners[path] = number
        if expected and before.waits:
            before.waits, before.ended = False, True

    @precondition(lambda self: self.live())
    @rule(data=st.data(), call=st.integers(1, 30), settled=st.integers(1, 20))
    def ask(self, data: st.DataObject, call: int, settled: int) -> None:
        number = self.a_session(data)
        model = self.models[number]
        model.settled = max(model.settled, settled)
        verdict = self.sessions.begin(number, call, settled)
        if call < model.settled:
            assert verdict is Verdict.SETTLED
        elif call in model.answers:
            assert verdict is (Verdict.WAIT if model.answers[call] is None else Verdict.REPEAT)
            if verdict is Verdict.REPEAT:
                assert self.sessions.answer_to(number, call) == model.answers[call]
        elif call >= model.settled + LIMITS.calls:
            assert verdict is Verdict.TOO_MANY
        else:
            assert verdict is Verdict.CARRY_OUT
            model.answers[call] = None

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        number = self.a_session(data)
        for call, known in self.models[number].answers.items():
            if known is None:
                self.models[number].answers[call] = f"answer to {call}"
                self.sessions.finish(number, call, f"answer to {call}")
                return

    @invariant()
    def nodes_go_with_their_sessions_and_never_before(self) -> None:
        assert self.sessions.orphans() == sorted(
            path for path, owner in self.owners.items() if self.models[owner].ended
        )
        for path, owner in self.owners.items():
            assert self.sessions.owner_of(path) == owner

    @invariant()
    def only_the_living_have_a_container(self) -> None:
        for number, model in self.models.items():
            alive = not model.ended and not model.waits
            assert self.sessions.container_of(number) == (model.container if alive else None)


Sessions.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestSessions = Sessions.TestCase


def test_what_a_session_may_have_is_bounded() -> None:
    sessions = StateSessions(0.0, b"", SessionLimits(watches=2, nodes=1, locks=1))
    sessions.open(0.0, 1, 3, 10.0)
    sessions.own("tmasters/a", 1)
    with pytest.raises(StateError, match=r"1 ephemeral nodes at most, so 'tmasters/b'"):
        sessions.own("tmasters/b", 1)
    sessions.lock(1, "locks/a")
    with pytest.raises(StateError, match=r"1 locks at most, so 'locks/b'"):
        sessions.lock(1, "locks/b")
    sessions.watch(1, "a")
    sessions.watch(1, "b")
    sessions.watch(1, "a")
    with pytest.raises(StateError, match=r"watches 2 nodes at most, so 'c'"):
        sessions.watch(1, "c")
    for session_s in (0.1, 1000.0, float("nan")):
        with pytest.raises(StateError, match="session_timeout_s between"):
            sessions.open(0.0, 2, 3, session_s)


def test_changes_are_counted_for_each_session_that_watches() -> None:
    sessions = StateSessions(0.0)
    sessions.open(0.0, 1, 3, 10.0)
    sessions.open(0.0, 2, 3, 10.0)
    sessions.watch(1, "a")
    assert sessions.changed("a") == [(1, 1)]
    sessions.watch(2, "a")
    assert sessions.changed("a") == [(1, 2), (2, 1)]
    assert sessions.changed("b") == []
    assert dict(sessions.seen(1)) == {"a": 2}
    sessions.unwatch(1, "a")
    assert sessions.changed("a") == [(2, 2)]
    assert sessions.end(2) == (set(), {"a"})
    assert not sessions.is_watched("a")


@pytest.mark.parametrize("record", [b"x", b"[]", b'{"nodes": []}', b'{"nodes": {"a": 1}}', b'{"nodes": {"a": [1]}}'])
def test_a_damaged_record_is_refused(record: bytes) -> None:
    with pytest.raises(DamagedStateError, match="damaged; kill the topology"):
        StateSessions(0.0, record)
