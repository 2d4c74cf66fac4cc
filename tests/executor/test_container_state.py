"""The life of a container on another host, as it is decided."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.engines.lease import Fencing, LeaseTimes
from heronpy.executor.container_state import (
    BACK_S,
    FIRST_SIGN_S,
    SILENT_S,
    AnswerLate,
    AskState,
    Cause,
    ContainerState,
    Effect,
    End,
    Ending,
    Event,
    ExecutorEnded,
    KillExecutor,
    LeaveHeard,
    LinkBack,
    Phase,
    Prepared,
    Renewed,
    Send,
    SendLeave,
    Signal,
    SignOfLife,
    StartExecutor,
    StateAnswered,
    StopExecutor,
    Tick,
    Word,
)

TIMES = LeaseTimes(renew_s=1.0, fence_s=5.0, lost_s=10.0, stop_grace_s=2.0, permit_s=20.0)


class World:
    """A container and a clock; requests are answered only by the test."""

    def __init__(self, fencing: Fencing = Fencing.LEASE, state_apart: bool = True) -> None:
        self.now = 100.0
        self.standing = ContainerState(TIMES, fencing, self.now, state_apart)
        self.effects: list[Effect] = []
        self.feed(Tick())

    def feed(self, event: Event) -> list[Effect]:
        effects = self.standing.handle(event, self.now)
        self.effects += effects
        return effects

    def wait(self, seconds: float) -> list[Effect]:
        found: list[Effect] = []
        for _ in range(round(seconds * 4)):
            self.now += 0.25
            found += self.feed(Tick())
        return found

    def until(self, kind: type) -> float:
        """When the next effect of a kind comes."""
        for _ in range(4000):
            if kind in kinds(self.wait(0.25)):
                return self.now
        raise AssertionError(f"no {kind.__name__}")

    def last(self, kind: type) -> Any:
        return next(effect for effect in reversed(self.effects) if isinstance(effect, kind))

    def answer(self, word: Word, epoch: int = 0) -> list[Effect]:
        return self.feed(Renewed(self.last(Send).number, word, epoch, "so says the control endpoint"))

    def acting(self, epoch: int = 3) -> World:
        self.feed(Prepared())
        assert StartExecutor(epoch) in self.answer(Word.ACTIVATED, epoch)
        return self

    def running_for(self, seconds: float) -> World:
        """With grants and signs of life."""
        for _ in range(round(seconds)):
            self.feed(SignOfLife())
            self.wait(1)
            self.answer(Word.GRANTED)
        return self


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def test_it_stands_by_and_acts_when_it_is_told() -> None:
    world = World()
    first = world.last(Send)
    assert (first.epoch, first.stopped, first.wait_s) == (0, 0, TIMES.renew_s)
    world.feed(Prepared())
    assert not world.answer(Word.NONE) and kinds(world.wait(0.25)) == [Send]
    effects = world.answer(Word.ACTIVATED, 3)
    assert effects[0] == StartExecutor(3) and effects[1].epoch == 3 and effects[1].wait_s == 0  # type: ignore[union-attr]
    assert not world.answer(Word.ACTIVATED, 3), "the control endpoint says so until it has heard of it"
    assert world.standing.phase is Phase.ACTING


def test_an_endpoint_that_is_back_hears_of_it_at_once() -> None:
    """Its scheduler may be another one, which takes no container for running that it has not heard of."""
    world = World().acting()
    world.answer(Word.GRANTED)
    assert not world.feed(LinkBack()), "it has just asked: a control endpoint that comes and goes is not flooded"
    assert kinds(world.wait(BACK_S)) == [Send]
    unanswered = world.last(Send)
    world.now += BACK_S
    [again] = world.feed(LinkBack())
    assert isinstance(again, Send) and again.number > unanswered.number and again.epoch == 3


def test_it_waits_for_what_it_needs() -> None:
    world = World()
    world.answer(Word.ACTIVATED, 3)
    assert world.standing.phase is Phase.PREPARING and world.standing.epoch == 3
    assert StartExecutor(3) in world.feed(Prepared())


@pytest.mark.parametrize("prepared", [True, False])
def test_the_executor_is_told_why_its_container_was_started_again(prepared: bool) -> None:
    world, moved = World(), Cause("moved", "ann has moved it away from host n1")
    if prepared:
        world.feed(Prepared())
    started = world.feed(Renewed(world.last(Send).number, Word.ACTIVATED, 3, after=moved))
    assert StartExecutor(3, moved) in (started if prepared else world.feed(Prepared()))


def test_an_activation_whose_lease_is_over_before_it_could_start_is_given_back() -> None:
    world = World()
    world.answer(Word.ACTIVATED, 3)
    world.wait(6)
    assert not [effect for effect in world.feed(Prepared()) if isinstance(effect, StartExecutor)]
    assert world.last(Send).number and world.feed(AnswerLate(world.last(Send).number))[0] == Send(
        world.last(Send).number, 0, 3, TIMES.renew_s
    )


def test_without_grants_it_stops_kills_and_stands_by_again() -> None:
    world = World().acting().running_for(3)
    sent_at = world.now - 1  # of the request that was granted last, at the latest
    asked_at, stopped_at, killed_at = (world.until(kind) for kind in (AskState, StopExecutor, KillExecutor))
    assert asked_at < stopped_at <= sent_at + TIMES.fence_s + 0.25
    assert killed_at == stopped_at + TIMES.stop_grace_s and world.until(KillExecutor) == killed_at + 1
    world.feed(ExecutorEnded(9))
    world.feed(AnswerLate(world.last(Send).number))
    again = world.last(Send)
    assert world.standing.phase is Phase.STANDBY and (again.epoch, again.stopped) == (0, 3)
    assert StartExecutor(3) not in world.answer(Word.ACTIVATED, 3), "never twice in one epoch"
    world.wait(1)
    assert StartExecutor(4) in world.answer(Word.ACTIVATED, 4)


def test_a_state_manager_that_knows_no_scheduler_keeps_it_going() -> None:
    world = World().acting()
    for _ in range(10):
        world.feed(SignOfLife())
        found = [effect for effect in world.wait(2) if isinstance(effect, AskState)]
        for question in found:
            world.feed(StateAnswered(question.number, False))
    assert world.standing.phase is Phase.ACTING
    for answer in (True, None):
        world.feed(StateAnswered(world.last(AskState).number, answer))
    world.wait(6)
    assert world.standing.phase is Phase.STOPPING


def test_where_the_state_is_at_the_endpoint_nobody_else_is_asked() -> None:
    world = World(state_apart=False).acting()
    assert AskState not in kinds(world.wait(6)) and world.standing.phase is Phase.STOPPING


def test_with_epochs_it_runs_on() -> None:
    world = World(Fencing.EPOCH).acting()
    for _ in range(30):
        world.feed(SignOfLife())
        assert StopExecutor not in kinds(world.wait(10))
    assert world.standing.phase is Phase.ACTING


def test_fenced_it_stops_and_ends() -> None:
    world = World().acting()
    assert kinds(world.answer(Word.FENCED)) == [StopExecutor]
    assert kinds(world.feed(Signal(True, "later"))) == [SendLeave], "the first reason counts"
    assert world.feed(ExecutorEnded(0)) == [End(Ending.FENCED, "so says the control endpoint")]
    assert not world.feed(Prepared()) and not world.wait(10)


def test_a_standby_ends_at_once() -> None:
    world = World()
    assert world.answer(Word.FENCED) == [End(Ending.FENCED, "so says the control endpoint")]
    world = World()
    assert world.feed(Signal(True, "enough")) == [SendLeave("enough"), End(Ending.ASKED, "enough")]


def test_it_says_that_it_has_to_leave_until_it_is_heard_and_goes_on() -> None:
    world = World().acting()
    assert world.feed(Signal(False, "walltime")) == [SendLeave("walltime")]
    assert [effect for effect in world.wait(2) if isinstance(effect, SendLeave)] == [SendLeave("walltime")] * 2
    world.feed(LeaveHeard())
    assert SendLeave not in kinds(world.wait(2)) and world.standing.phase is Phase.ACTING


def test_the_end_of_the_executor_is_the_end_of_the_container() -> None:
    world = World().acting()
    assert world.feed(ExecutorEnded(0x0400)) == [End(Ending.EXECUTOR, "its executor has ended", 0x0400)]


def test_an_executor_without_a_sign_of_life_is_killed() -> None:
    world = World(Fencing.EPOCH).acting()
    assert KillExecutor not in kinds(world.wait(FIRST_SIGN_S - 1)) and KillExecutor in kinds(world.wait(2))
    world = World(Fencing.EPOCH).acting().running_for(3)
    assert KillExecutor not in kinds(world.wait(SILENT_S - 1.5))
    effects = world.wait(1)
    assert KillExecutor in kinds(effects) and StopExecutor not in kinds(effects)
    (end,) = world.feed(ExecutorEnded(9))
    assert isinstance(end, End) and end.ending is Ending.HUNG


def test_silence_while_this_process_was_paused_proves_nothing() -> None:
    world = World(Fencing.EPOCH).acting().running_for(3)
    world.now += 500
    assert KillExecutor not in kinds(world.feed(Tick())) and KillExecutor not in kinds(world.wait(SILENT_S - 1))
    assert KillExecutor in kinds(world.wait(2))


EVENTS = st.one_of(
    st.builds(Prepared),
    st.builds(Renewed, st.integers(1, 12), st.sampled_from(Word), st.integers(0, 6), st.just("x")),
    st.builds(AnswerLate, st.integers(1, 12)),
    st.builds(LinkBack),
    st.builds(StateAnswered, st.integers(1, 12), st.sampled_from([True, False, None])),
    st.builds(SignOfLife),
    st.builds(ExecutorEnded, st.integers(0, 255)),
    st.builds(Signal, st.booleans(), st.just("x")),
    st.builds(LeaveHeard),
    st.builds(Tick),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(EVENTS, st.sampled_from([0.0, 0.2, 1.0, 3.0])), max_size=60),
    st.sampled_from(Fencing),
    st.booleans(),
)
def test_whatever_happens(steps: list[tuple[Event, float]], fencing: Fencing, state_apart: bool) -> None:
    standing, now = ContainerState(TIMES, fencing, 0.0, state_apart), 0.0
    runs, ended, asked, granted_at = 0, False, set[int](), 0.0
    started: list[int] = []
    sent: dict[int, float] = {}
    for event, pause in steps:
        now += pause
        if isinstance(event, ExecutorEnded) and not runs:
            continue
        if isinstance(event, Renewed | AnswerLate):
            asked.discard(event.number)
        if isinstance(event, LinkBack):
            asked.clear()  # given up
        if isinstance(event, ExecutorEnded):
            runs = 0
        effects = standing.handle(event, now)
        assert not (ended and effects), "nothing follows an end"
        for effect in effects:
            match effect:
                case StartExecutor(epoch, _, 0):
                    assert not runs and all(epoch > before for before in started), "each epoch is acted in once"
                    assert isinstance(event, Renewed | Prepared) and epoch == standing.epoch
                    started.append(epoch)
                    runs = epoch
                case Send(number, epoch, stopped, _):
                    assert not asked and number not in sent, "one request at a time"
                    assert epoch == runs or (not runs and standing.phase is Phase.PREPARING)
                    assert stopped < epoch or not epoch
                    assert stopped in (0, *started) or fencing is Fencing.LEASE
                    asked.add(number)
                    sent[number] = now
                case AskState(number):
                    assert state_apart and fencing is Fencing.LEASE
                    sent[number] = now
                case StopExecutor() | KillExecutor():
                    assert runs
                case End():
                    assert not runs, "everything has stopped before"
                    ended = True
        word = event.word if isinstance(event, Renewed) else None
        if isinstance(event, Renewed) and word in (Word.GRANTED, Word.ACTIVATED) and event.number in sent:
            granted_at = max(granted_at, sent[event.number])
        if isinstance(event, StateAnswered) and event.has_scheduler is False and event.number in sent:
            granted_at = max(granted_at, sent[event.number])
        if standing.phase is Phase.ACTING and fencing is Fencing.LEASE:
            assert now < granted_at + TIMES.fence_s, "it acts no longer than its lease"


def test_one_that_its_engine_ends_has_a_last_word() -> None:
    world = World(Fencing.EPOCH).acting(3)
    assert world.standing.farewell(world.now) is None, "it still acts"
    assert SendLeave("gone") in world.feed(Signal(True, "gone")) and world.standing.leave_unheard == "gone"
    world.feed(LeaveHeard())
    assert world.last(StopExecutor) and not world.standing.leave_unheard
    assert world.feed(ExecutorEnded(15)) == [End(Ending.ASKED, "gone")]
    last = world.standing.farewell(world.now)
    assert last is not None and (last.epoch, last.stopped) == (0, 3)


def test_one_that_has_never_acted_or_ends_by_itself_has_none() -> None:
    world = World()
    world.feed(Signal(True, "gone"))
    assert world.standing.phase is Phase.ENDED and world.standing.farewell(world.now) is None
    other = World().acting(3)
    other.feed(ExecutorEnded(9))
    assert other.standing.farewell(other.now) is None


def test_a_slot_that_ends_runs_again_in_its_epoch_but_not_for_ever_and_not_without_a_lease() -> None:
    world = World()
    world.standing = ContainerState(TIMES, Fencing.LEASE, world.now, lives=3)
    world.feed(Tick())
    world.feed(Prepared())
    assert StartExecutor(3) in world.answer(Word.ACTIVATED, 3)
    assert world.feed(ExecutorEnded(9)) == [StartExecutor(3, None, 1)]
    assert world.feed(ExecutorEnded(9)) == [StartExecutor(3, None, 2)]
    assert End(Ending.EXECUTOR, "its executor has ended", 9) in world.feed(ExecutorEnded(9))

    world.standing = ContainerState(TIMES, Fencing.LEASE, world.now, lives=3)
    world.feed(Tick())
    world.feed(Prepared())
    assert StartExecutor(3) in world.answer(Word.ACTIVATED, 3)
    world.now += TIMES.fence_s
    assert not any(isinstance(one, StartExecutor) for one in world.feed(ExecutorEnded(9)))
