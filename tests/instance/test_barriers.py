"""A bolt's checkpoints between its in-queue and its process: what a cut holds, and that all credit comes back.

Queue, alignment and snapshots are the real ones; the loop, the state and the other tasks are the test's. Each tuple
says which task it is from and its number there, so a cut can be compared with what was sent before it.
"""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.proto import control_pb2
from heronpy.wire.frames import BARRIER, DATA
from tests.instance.barrier_world import (
    ATTEMPT,
    BOLT,
    SINK,
    Notes,
    World,
    by_source,
    first,
    packed,
    recorded,
)

EVENTS = (
    ["data"] * 6 + ["step"] * 6 + ["barrier"] * 2 + ["trigger", "abort", "abandon", "relink", "stale", "stale barrier"]
)


@given(st.integers(0, 1 << 32), st.sampled_from([200, 1 << 20]))
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_cut_holds_exactly_what_was_sent_before_it(seed: int, bytes_max: int) -> None:
    """Whatever comes in between: data, steps, other barriers, aborts, a new link, frames of other attempts."""
    rng = random.Random(seed)
    sources = rng.randint(1, 3)
    frames = [packed(source, -9, 4, skip=rng.randint(0, 3)) for source in range(1, sources + 1)]
    world = World(sources, alignment_bytes_max=bytes_max, frames=frames if rng.random() < 0.3 else [])
    try:
        checkpoint = 1
        at_barrier: dict[int, dict[int, int]] = {}
        gone: set[int] = set()
        modes = [rng.random() < 0.5 for _ in range(7)]
        for _ in range(rng.randint(10, 100)):
            event, source = rng.choice(EVENTS), rng.randint(1, sources)
            unaligned = modes[checkpoint % 7]
            marks = at_barrier.setdefault(checkpoint, {})
            if event == "data":
                world.data(source, rng.randint(1, 4))
            elif event == "barrier" and source not in marks:
                marks[source] = world.numbers[source]
                world.barrier(source, checkpoint, unaligned and rng.random() < 0.8)
            elif event == "trigger" and (unaligned or rng.random() < 0.3):
                # An aligned checkpoint may become unaligned at any time, also while its barriers are under way.
                modes[checkpoint % 7] = True
                world.note(control_pb2.TriggerCheckpoint(checkpoint=checkpoint, unaligned=True))
            elif event == "abort" and rng.random() < 0.3:
                gone.add(checkpoint)
                world.note(control_pb2.CheckpointAborted(checkpoint=checkpoint, reason="test"))
                checkpoint += 1
            elif event == "abandon" and rng.random() < 0.3:
                # The message of it is lost: the next barrier says it.
                gone.add(checkpoint)
                checkpoint += 1
            elif event == "relink":
                world.relink()
            elif event == "stale":
                world.data(source, 2, attempt=ATTEMPT - 1)
            elif event == "stale barrier":
                world.barrier(source, checkpoint, attempt=ATTEMPT - 1, channel_frames=99)
            else:
                world.step()
            if len(marks) == sources and checkpoint not in gone:
                # The topology master begins the next checkpoint when this one is over.
                world.settle()
                checkpoint += 1
        world.note(control_pb2.CheckpointAborted(checkpoint=checkpoint, reason="the end"))
        world.settle()
        world.check_calm()
        assert by_source(world.component.seen, sources) == first(world.numbers)
        answers = world.answers()
        for number, marks in at_barrier.items():
            answer = answers.get(number)
            if number not in gone and len(marks) == sources:
                assert answer is not None, "a checkpoint with all barriers must be answered"
            if answer is None:
                continue
            if answer.error:
                assert bytes_max == 200 and "alignment_bytes_max" in answer.error, answer.error
                continue
            inside = list(world.state.seen[number])
            inside += recorded(world.state.channels.get(number, []))
            assert by_source(inside, sources) == first(marks), "not what was sent before the barriers"
    finally:
        world.checkpoints.close()


def test_what_is_held_back_gives_its_credit_back_at_once() -> None:
    world = World(2)
    world.barrier(1, 1)
    for _ in range(5):
        world.data(1)
    world.data(2)
    world.settle()
    assert world.component.seen == [(2, 0)]
    assert world.returned == world.received
    assert world.checkpoints.held_bytes() > 0
    world.barrier(2, 1)
    world.settle()
    assert world.component.seen == [(2, 0), *((1, n) for n in range(5))]
    world.check_calm()


def test_the_barriers_that_go_out_say_how_much_came_before() -> None:
    world = World(1)
    world.data(1, 3)
    world.settle()
    assert world.buffered, "the cut has to send it"
    world.barrier(1, 4, savepoint=True)
    world.settle()
    (out,) = world.barriers_out()
    assert (out.source_task, out.dest_task, out.attempt, out.checkpoint) == (BOLT, SINK, ATTEMPT, 4)
    assert out.channel_frames == 1 and out.savepoint and not out.unaligned
    assert [frame.kind for frame in world.out] == [DATA, BARRIER]


@pytest.mark.parametrize(("missing", "words"), [(2, "2 frames .* are missing"), (-1, "1 frames .* came twice")])
@pytest.mark.parametrize("unaligned", [False, True])
def test_frames_that_are_missing_are_lost_data(missing: int, words: str, unaligned: bool) -> None:
    """The barrier of one source is enough to know; the topology master restores the region."""
    world = World(2)
    world.data(1)
    world.barrier(1, 7, unaligned, missing=missing)
    answer = world.answers()[7]
    assert answer.lost_data and answer.attempt == ATTEMPT
    assert re.search(words, answer.error)
    assert not answer.HasField("snapshot")


def test_too_much_to_hold_back_declines_the_checkpoint_and_lets_go() -> None:
    world = World(2, alignment_bytes_max=200)
    world.barrier(1, 1)
    for _ in range(20):
        world.data(1)
    world.settle()
    answer = world.answers()[1]
    assert "alignment_bytes_max" in answer.error and not answer.lost_data
    assert by_source(world.component.seen, 2)[1] == list(range(20))
    world.barrier(2, 1)
    world.settle()
    assert 1 not in world.state.seen, "it was declined"
    for source in (1, 2):
        world.barrier(source, 2)
    world.settle()
    assert world.answers()[2].HasField("snapshot")
    world.check_calm()


def test_nothing_is_held_back_for_longer_than_a_checkpoint_may_take() -> None:
    """Also when no topology master is there to abort it."""
    world = World(3)
    before = time.monotonic()
    world.barrier(1, 1)
    world.data(1)
    world.settle()
    world.checkpoints.check(before + 59)
    assert world.control.told == [] and world.component.seen == []
    world.checkpoints.check(time.monotonic() + 61)
    assert "no barrier from task 2, 3 within 60 s" in world.answers()[1].error
    world.settle()
    assert world.component.seen == [(1, 0)]
    world.barrier(1, 2, savepoint=True)
    world.settle()
    world.checkpoints.check(time.monotonic() + 61)
    assert 2 not in world.answers(), "a savepoint has a time of its own"


def test_an_unaligned_cut_takes_what_is_under_way_with_it() -> None:
    """In the middle of a frame, behind a full queue: the barrier overtakes all of it."""
    world = World(2)
    world.data(1, 4)
    world.data(2, 3)
    world.step()
    world.step()
    assert world.component.seen == [(1, 0), (1, 1)]
    world.barrier(1, 1, unaligned=True)
    assert world.checkpoints.urgent
    world.checkpoints.work()
    assert [frame.checkpoint for frame in world.barriers_out()] == [1]
    assert world.state.seen[1] == [(1, 0), (1, 1)], "cut between two tuples"
    world.data(1, 2)
    world.data(2, 1)
    assert world.returned == world.received, "it drains while it records"
    world.barrier(2, 1, unaligned=True)
    world.settle()
    assert recorded(world.state.channels[1]) == [(1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]
    world.check_calm()


def test_an_unaligned_cut_takes_what_an_older_alignment_held_back_with_it() -> None:
    world = World(2)
    world.barrier(1, 1)
    world.data(1, 2)
    world.settle()
    assert world.component.seen == []
    world.data(1)
    world.note(control_pb2.TriggerCheckpoint(checkpoint=2, unaligned=True))
    world.step()
    for source in (1, 2):
        world.barrier(source, 2, unaligned=True)
    world.settle()
    assert world.state.seen[2] == []
    assert recorded(world.state.channels[2]) == [(1, 0), (1, 1), (1, 2)]
    world.check_calm()


def test_restored_frames_come_first_and_owe_no_credit() -> None:
    world = World(1, frames=[packed(1, -4, 4, skip=1)])
    world.data(1)
    assert world.progress.in_tuples == 4
    world.step()
    world.note(control_pb2.TriggerCheckpoint(checkpoint=1, unaligned=True))
    world.step()
    world.barrier(1, 1, unaligned=True)
    world.settle()
    assert world.component.seen == [(1, -3), (1, -2), (1, -1), (1, 0)]
    assert recorded(world.state.channels[1]) == [(1, -2), (1, -1), (1, 0)]
    assert not world.answers()[1].error, "what was restored counts for no channel"
    world.check_calm()


def test_frames_of_another_attempt_are_dropped_counted_and_credited() -> None:
    """What a zombie sends does no harm."""
    world = World(1)
    world.data(1, 5, attempt=ATTEMPT - 1)
    world.data(1, 2, attempt=ATTEMPT + 1)
    world.barrier(1, 6, attempt=ATTEMPT - 1, channel_frames=50)
    world.settle()
    assert world.component.seen == [] and world.control.told == []
    assert world.metrics.counters["__stateful_stale_tuples", ""] == 7
    world.check_calm()


def test_a_pre_save_that_raises_declines_the_checkpoint_and_the_task_goes_on() -> None:
    calls: list[str] = []

    class Sink(Notes, TwoPhaseStatefulComponent):
        def pre_save(self, checkpoint_id: str) -> None:
            calls.append(f"pre_save {checkpoint_id}")
            if checkpoint_id == "1":
                raise OSError("the disk is full")

        def post_save(self, checkpoint_id: str) -> None:
            calls.append(f"post_save {checkpoint_id}")
            if checkpoint_id == "3":
                raise OSError("the target is gone")

    world = World(1, Sink())
    world.barrier(1, 1)
    world.settle()
    assert "pre_save of task container_1_note_9 raised OSError: the disk is full" in world.answers()[1].error
    assert [str(error) for error in world.errors] == ["the disk is full"]
    assert world.barriers_out() == []
    for checkpoint in (2, 3):
        world.barrier(1, checkpoint)
        world.settle()
        assert world.answers()[checkpoint].HasField("snapshot")
    done = control_pb2.CheckpointComplete
    world.note(done(checkpoint=1))
    world.note(done(checkpoint=2))
    world.note(done(checkpoint=2))
    world.settle()
    assert calls == ["pre_save 1", "pre_save 2", "pre_save 3", "post_save 2"]
    assert world.checkpoints.committed == 2
    world.note(done(checkpoint=3))
    with pytest.raises(OSError):
        world.settle()
    assert world.checkpoints.committed == 2, "what post_save raises restarts the task, which commits again"
