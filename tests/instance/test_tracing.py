"""Traces: which frames carry one, where the traced tuple is in them, and what it costs the others."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.setting_types import InstanceSettings
from heronpy.plan.grouping import All, Fields, Shuffle
from heronpy.proto import control_pb2
from heronpy.task.emitter import Emitter
from heronpy.task.outlets import OutStream
from heronpy.task.roots import PendingRoots
from heronpy.task.tuples import Arrived, TracedFrame
from heronpy.wire import codec
from heronpy.wire.frames import COMPLETE, DATA, Frame, pack32, pack64
from instance.tracing import NEVER, ROOTS_MAX, SPANS_MAX, Tracer

GROUPINGS: dict[str, Any] = {
    "fields": lambda: Fields([0], [4, 5]),
    "shuffle": lambda: Shuffle([4, 5], 0),
    "all": lambda: All([4, 5]),
}


class World:
    """A task that sends to tasks 4 and 5, and its traces; its clock moves with each look."""

    def __init__(self, grouping: str = "fields", tracked: str | None = None, per_s: float = 5.0) -> None:
        self.sent: list[bytes] = []
        self.stream = OutStream("default", 0, ["n"], False)
        numbers, clock = count(1000), count(1)
        self.pending = PendingRoots(77)
        settings = InstanceSettings(batch_tuples=16)
        self.emitter = Emitter(
            "word", 3, [self.stream], settings, lambda dest, data, tuples: self.sent.append(data),
            bits=lambda: next(numbers), tracked=tracked, pending=self.pending,
        )  # fmt: skip
        self.emitter.route({"default": [GROUPINGS[grouping]()]} if grouping else {})
        self.tracer = Tracer(self.emitter, per_s, lambda: next(numbers), lambda: next(clock), 9)

    def emit(self, *numbers: int) -> None:
        for number in numbers:
            self.emitter.push(self.stream, [number], number if self.emitter.tracked else None)

    def frames(self) -> list[Frame]:
        """What has been sent since the last look, flushed."""
        self.emitter.flush()
        found = [Frame.FromString(data) for data in self.sent]
        self.sent.clear()
        return [frame for frame in found if frame.kind == DATA]


def values(frame: Frame) -> list[int]:
    found: list[int] = codec.decoder(None, False)(frame.payload, frame.codec)
    return found


@given(
    st.sampled_from(sorted(GROUPINGS)),
    st.sampled_from([None, "spout"]),
    st.lists(st.integers(0, 99), max_size=40),
    st.lists(st.integers(100, 199), min_size=1, max_size=60),
    st.lists(st.integers(200, 299), max_size=40),
)
def test_the_first_tuple_of_the_call_to_each_destination_is_traced(
    grouping: str, tracked: str | None, before: list[int], during: list[int], after: list[int]
) -> None:
    world = World(grouping, tracked)
    world.emit(*before)
    span = world.tracer.open()
    world.emit(*during)
    assert world.tracer.close(span, 10.0, 50.0) and span.end == control_pb2.SPAN_GOES_ON
    world.emit(*after)
    frames = world.frames()
    traced = [frame for frame in frames if frame.trace]
    assert traced and all(frame.trace == span.trace and frame.trace_parent == span.number for frame in traced)
    assert all(100 <= values(frame)[frame.trace_index] < 200 for frame in traced)
    for task in {frame.dest_task for frame in traced}:
        [own] = [frame for frame in traced if frame.dest_task == task]
        earlier = [value for frame in frames if frame.dest_task == task for value in values(frame)]
        if grouping != "shuffle":
            assert values(own)[own.trace_index] == next(value for value in earlier if 100 <= value < 200)
    assert all(frame.trace_emitted <= frame.trace_sealed and frame.trace_clock == 9 for frame in traced)
    if grouping == "all":
        assert {frame.dest_task for frame in traced} == {4, 5}


@given(st.sampled_from(sorted(GROUPINGS)), st.lists(st.integers(0, 99), min_size=1, max_size=60))
def test_without_a_trace_the_bytes_of_a_frame_are_the_same(grouping: str, numbers: list[int]) -> None:
    off, on = World(grouping, per_s=0.0), World(grouping, per_s=5.0)
    for world in (off, on):
        world.emit(*numbers)
        world.emitter.flush()
    assert off.sent == on.sent and all(type(data) is bytes for data in on.sent)
    assert off.tracer.due == NEVER and on.tracer.due == 0.0
    fields = {field.name for data in on.sent for field, _ in Frame.FromString(data).ListFields()}
    assert not {name for name in fields if name.startswith("trace")}


def test_a_call_that_emits_nothing_is_no_trace() -> None:
    world = World()
    assert not world.tracer.close(world.tracer.open(), 10.0, 50.0)
    assert world.tracer.due == 0.0 and not world.tracer.take()


def arrived(index: int, skip: int = 0) -> Arrived:
    frame = Frame(trace=7, trace_parent=8, trace_index=index, skip=skip, trace_emitted=1, trace_sealed=2, source_task=3)
    return Arrived(frame, "word/default")


def test_a_bolt_passes_the_trace_on_and_says_how_it_ends() -> None:
    world = World()
    span = world.tracer.begin(arrived(0))
    world.emit(5)
    world.tracer.end(span)
    [frame] = world.frames()
    assert (frame.trace, frame.trace_parent, span.end) == (7, span.number, control_pb2.SPAN_GOES_ON)
    span = world.tracer.begin(arrived(0))
    world.tracer.end(span)
    assert span.end == control_pb2.SPAN_HELD, "a window holds it"
    sink = World("")
    span = sink.tracer.begin(arrived(0))
    sink.tracer.end(span, 12)
    assert span.end == control_pb2.SPAN_ENDS and span.tuples == 12
    assert [(one.trace, one.parent, one.source) for one in sink.tracer.take()] == [(7, 8, "word/default")]


def test_a_frame_has_one_trace() -> None:
    world = World()
    first = world.tracer.begin(arrived(0))
    world.emit(5)
    world.tracer.end(first)
    second = world.tracer.begin(arrived(1))
    world.emit(5)
    world.tracer.end(second)
    [frame] = world.frames()
    assert second.end == control_pb2.SPAN_JOINED and frame.trace_parent == first.number and frame.trace_index == 0


def test_of_two_in_progress_at_once_one_is_followed() -> None:
    world = World()
    first, second = world.tracer.begin(arrived(0)), world.tracer.begin(arrived(1))
    world.emit(5)
    world.tracer.end(second)
    world.tracer.end(first)
    assert (first.end, second.end) == (control_pb2.SPAN_GOES_ON, control_pb2.SPAN_JOINED)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 21))
def test_the_traced_tuple_is_processed_by_itself(index: int, skip: int, chunk: int) -> None:
    waiting, place, alone = list(range(skip, 21)), 0, []
    trace: Arrived | None = arrived(index, skip)
    done: list[int] = []
    while place < len(waiting):
        part, traced = waiting[place : place + chunk], False
        if trace is not None:
            part, traced = trace.next_part(part, place)
        if traced:
            alone.append(part)
            trace = None
        done += part
        place += len(part)
    assert done == waiting and alone == ([[index]] if index >= skip else [])


def test_the_ack_of_a_traced_tuple_is_a_span_too() -> None:
    world = World("fields", "spout")
    world.emit(*range(5))
    span = world.tracer.open()
    world.emit(50)
    world.tracer.close(span, 10.0, 50.0)
    world.emit(*range(5))
    world.frames()
    [root] = world.tracer.roots
    world.tracer.completed(Frame(kind=COMPLETE, run_first=pack64([root + 1]), run_length=pack32([5])))
    assert root in world.tracer.roots, "not that one"
    world.tracer.completed(Frame(kind=COMPLETE, run_first=pack64([root - 1]), run_length=pack32([3])))
    *_, acked = world.tracer.take()
    assert (acked.trace, acked.parent, acked.end) == (span.trace, span.number, control_pb2.SPAN_ACKED)
    world.tracer.follow(90, 1, 2)
    world.tracer.gave_up(88, 3)
    assert [one.end for one in world.tracer.take()] == [control_pb2.SPAN_FAILED] and not world.tracer.roots


def test_what_waits_is_bounded_and_what_is_given_up_counted() -> None:
    world = World("")
    for _ in range(SPANS_MAX + 7):
        world.tracer.end(world.tracer.begin(arrived(0)))
    assert len(world.tracer.take()) == SPANS_MAX and world.tracer.discarded == 7
    for root in range(2 * ROOTS_MAX):
        world.tracer.follow(root, 1, 2)
    assert len(world.tracer.roots) == ROOTS_MAX and max(world.tracer.roots) == 2 * ROOTS_MAX - 1


@pytest.mark.parametrize("own", [0.0, 5.0])
def test_a_lent_rate_is_shared_and_falls_back_by_itself(own: float) -> None:
    world = World(per_s=own)
    world.tracer.shared_by(4)

    def pause(now: float) -> float:
        span = world.tracer.open()
        world.emit(1)
        world.tracer.close(span, now, 50.0)
        return world.tracer.due - now

    world.tracer.lend(100.0, 3.0, 10.0)
    assert world.tracer.due - 10.0 <= 1.5 * 4 / 100, "or it is due already"
    assert 0.49 * 4 / 100 <= pause(12.9) <= 1.51 * 4 / 100
    assert pause(13.1) == NEVER if not own else 0.49 * 4 / 5 <= pause(13.1) <= 1.51 * 4 / 5


def test_a_frame_that_waited_in_the_out_queue_says_when_it_left() -> None:
    data = TracedFrame(Frame(kind=DATA, trace=7, trace_left=3).SerializeToString()).left(99)
    frame = Frame.FromString(data)
    assert type(data) is TracedFrame and (frame.trace, frame.trace_left) == (7, 99)
