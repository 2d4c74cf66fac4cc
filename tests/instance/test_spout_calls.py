"""A chunk of next_tuple calls ends as soon as there is something else to do; how often a spout is polled; no sleep over a message."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.metrics import AssignableMetrics
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.api.user_code import user_traceback
from heronpy.common.errors import LocalWireError
from heronpy.common.setting_types import InstanceSettings
from heronpy.proto import control_pb2
from heronpy.views.exception_groups import user_line
from heronpy.wire.frames import CREDIT, Frame
from instance.control import Message
from instance.linger import SOON_S, poll_pause_s
from instance.progress import Progress
from instance.reports import Standing
from instance.spout_loop import SpoutTask
from instance.task import StopRequested, Task
from instance.time_use import TimeUse
from tests.instance.harness import TaskHarness, closing
from tests.sim.run import cluster_of
from tests.sim.workload import Program


class Counter(Spout):
    """At its fifth call it does what the test wants."""

    outputs = ["n"]
    calls = 0
    fifth: Callable[[], object] | None = None

    def next_tuple(self) -> None:
        self.calls += 1
        if self.calls == 5 and self.fifth is not None:
            self.fifth()


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


@pytest.fixture
def task() -> Iterator[Any]:
    """A spout's task that runs and has nothing to do."""
    made = TopologyBuilder("sim")
    count = made.add_spout("count", Counter, par=1)
    made.add_bolt("sink", Sink, par=1, inputs={count: Grouping.SHUFFLE})
    with cluster_of(0, Program(made, None)) as (cluster, _):
        cluster.until(control_pb2.LIFE_RUNNING)
        [process] = cluster.tasks("count")
        with cluster.world.acting(process):
            process.program.control.drain_wake()
            process.program.user.object.calls = 0
            yield process.program


def test_it_is_as_long_as_it_was_asked_for_when_nothing_comes(task: Any) -> None:
    task.call_user(100)
    assert task.user.object.calls == 100


@pytest.mark.parametrize("message", [control_pb2.TriggerCheckpoint(), control_pb2.StopTask()])
def test_a_message_ends_it(task: Any, message: Message) -> None:
    """A source that became slow would hold up checkpoints, stops and plans for thousands of calls."""
    task.user.object.fifth = lambda: task.control.deliver(message)
    task.call_user(100)
    assert task.user.object.calls == 5


def test_an_interruption_ends_it(task: Any) -> None:
    task.user.object.fifth = task.control.interrupt
    task.call_user(100)
    assert task.user.object.calls == 5


def test_the_end_of_input_ends_it(task: Any) -> None:
    task.user.object.fifth = task.user.object.end_of_input
    task.call_user(100)
    assert task.user.object.calls == 5 and task.exhausted


@pytest.mark.parametrize(("tuple_at", "calls"), [(1, 2), (5, 13)])
def test_one_call_in_vain_ends_it_unless_tuples_come_after_such_calls(task: Any, tuple_at: int, calls: int) -> None:
    spout, task._dry_calls = task.user.object, 1  # noqa: SLF001
    spout.calls, spout.fifth = 5 - tuple_at, lambda: spout.emit([1])
    made, dry = task._call_until_dry(64, 64, float("inf"))  # noqa: SLF001
    assert dry and made == calls


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("chunk", [0, 4096])
def test_a_spout_of_several_tuples_per_call_passes_the_limit_by_one_call_at_most(
    task: Any, chunk: int, traced: bool
) -> None:
    """It had 160 of 100 tuples pending: as many calls were made as there was room for tuples."""
    task.max_pending = 100
    spout = task.user.object
    spout.next_tuple = lambda: [spout.emit([n]) for n in range(10)]
    for _ in range(2):  # what a call emits is known after the first ones
        task._call(100, 1, 0.0)  # noqa: SLF001
        before = task.emitter.emitted()
        task.tracer.due = 0.0 if traced else float("inf")
        made, _ = task._call(95, chunk, float("inf"))  # noqa: SLF001
        assert made == 10 and task.emitter.emitted() - before == 100


def test_what_cannot_be_sent_is_told_at_the_line_that_emits_it(task: Any) -> None:
    with pytest.raises(LocalWireError) as caught:
        task.user.object.emit([Lock()])
    where = user_line(user_traceback(caught.value))
    assert where.startswith(f"{__file__}:") and where.endswith(
        " in test_what_cannot_be_sent_is_told_at_the_line_that_emits_it"
    )


def test_figures_of_a_spout_that_has_ended_are_final(task: Any) -> None:
    """They were collected at its next turn, seconds later: work units waited in a topology that had finished."""
    waiting = AssignableMetrics(3)
    task.user_metrics.register_metric("waiting", waiting, 1e9)
    task.user_metrics.collect(0.0)
    assert task.metrics.gauges["waiting", ""] == 3
    waiting.update(0)
    task.user.object.end_of_input()
    task._show_state()  # noqa: SLF001
    assert task.metrics.gauges["waiting", ""] == 0 and task.standing.state == control_pb2.TASK_EXHAUSTED


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_change_of_parallelism_ends_the_end_of_its_input_if_it_reads_partitions(task: Any, partitioned: bool) -> None:
    if partitioned:
        task.user.context.partitioned_state("positions")
    task.user.object.end_of_input()
    task._show_state()  # noqa: SLF001
    for tasks, is_exhausted in ((1, True), (2, not partitioned)):
        plan = type(task.plan).FromString(task.plan.SerializeToString())
        plan.version += 1
        if tasks == 2:
            plan.instances.add(task_id=99, component="count", container=1, component_index=1)
        task.take_plan(plan)
        assert task.exhausted is is_exhausted
        assert (task.standing.state == control_pb2.TASK_EXHAUSTED) is is_exhausted


class Waiting(Spout):
    """Emits a tuple with an id that is acked immediately, and asks for a long wait."""

    outputs = ["n", Stream(["n"], "nobody")]
    acked: Callable[[], object]

    def next_tuple(self) -> None:
        self.emit([1], tup_id=1, stream="nobody")
        self.wait(60.0)

    def ack(self, tup_id: Any) -> None:
        self.acked()


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_an_immediate_ack_does_not_wait_for_the_next_call(mode: str) -> None:
    """It came at the end of the wait, or after five seconds."""
    made = TopologyBuilder("wc")
    made.set_config({"topology.reliability.mode": mode})
    source = made.add_spout("source", Waiting, par=1)
    made.add_bolt("sink", Sink, par=1, inputs={source: Grouping.SHUFFLE})
    with closing(TaskHarness) as harnesses:
        h = harnesses(SpoutTask, made, "source", InstanceSettings())
        waits: list[float] = []
        h.task.link.wait = lambda timeout_s, **_: bool(waits.append(timeout_s))
        h.user.acked = h.stop
        h.come(Frame(kind=CREDIT, granted_bytes=1 << 20, source_task=0))
        h.run_task()
        assert not any(waits)


SHORTEST_S = InstanceSettings().spout_idle_min_us * 1e-6
LONGEST_S = InstanceSettings().spout_idle_max_ms * 1e-3


def pause_s(silent_s: float) -> float:
    return poll_pause_s(silent_s, SHORTEST_S, LONGEST_S)


@pytest.mark.parametrize(
    ("silent_s", "expected"),
    [(0.0, SHORTEST_S), (1.0, 0.05), (2.0, 0.1), (5.0, 0.1), (10.0, 0.2), (25.0, 0.5), (1e6, 0.5)],
)
def test_the_pause_follows_the_silence(silent_s: float, expected: float) -> None:
    assert pause_s(silent_s) == pytest.approx(expected)


@given(st.floats(0, 1e6))
def test_a_record_waits_for_a_small_part_of_the_silence_before_it(silent_s: float) -> None:
    pause = pause_s(silent_s)
    assert SHORTEST_S <= pause <= LONGEST_S
    assert pause <= max(SHORTEST_S, silent_s * 0.05)
    assert pause <= max(SOON_S, silent_s * 0.02)


@given(st.floats(0, 1e3), st.floats(0, 1e3))
def test_a_longer_silence_never_means_a_shorter_pause(one_s: float, other_s: float) -> None:
    assert pause_s(min(one_s, other_s)) <= pause_s(max(one_s, other_s))


@pytest.mark.parametrize("longest_s", [0.0, 0.02, 0.1])
def test_a_user_s_limit_wins(longest_s: float) -> None:
    assert poll_pause_s(1e6, 0.0, longest_s) == longest_s


def test_a_silent_spout_is_called_a_few_hundred_times_in_the_first_minute() -> None:
    silent_s, calls = 0.0, 0
    while silent_s < 60.0:
        silent_s += pause_s(silent_s)
        calls += 1
    assert calls < 350


class Link:
    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, timeout_s: float, *, frames: bool = True, also: int = -1) -> bool:
        self.waits.append(timeout_s)
        return False

    def out_tuples(self) -> int:
        return 0


def task_with(messages: list[Any], stopping: bool = False) -> tuple[Any, Link]:
    task: Any = Task.__new__(Task)
    link = Link()
    task.control, task.link, task.progress = SimpleNamespace(inbox=deque(messages)), link, Progress()
    task.standing = Standing()
    task.emitter = SimpleNamespace(emitted=lambda: 0, buffered=lambda: 0)
    task.stopping, task.checkpoints, task.time_use = stopping, None, TimeUse(0)
    return task, link


def test_a_message_whose_wake_up_was_used_up_is_not_waited_for() -> None:
    """An idle bolt waits twice in a row: a stop that came during the first wait must end the second."""
    task, link = task_with([control_pb2.StopTask()])
    task.sleep(5.0)
    assert link.waits == []


def test_a_stop_that_an_emit_has_heard_is_not_slept_over() -> None:
    """A clamped spout waited five seconds then, and was killed after the grace of two."""
    task, link = task_with([], stopping=True)
    task.sleep(5.0)
    assert link.waits == []


def test_without_a_message_it_waits() -> None:
    task, link = task_with([])
    task.sleep(5.0)
    assert link.waits == [5.0]


def test_user_code_that_waits_outside_says_why_is_not_hung_and_stops_when_it_is_asked_to() -> None:
    """A sink waits minutes for room on a disk: it was killed as hung after one, and after two seconds of a stop."""
    task, link = task_with([])
    told: list[str] = []
    task.control.notify = lambda metrics=False: told.append(task.standing.outage if metrics else "")
    vars(task)["_waiting"] = False
    task.turn = lambda now: setattr(task.progress, "turned_at", now)
    task.serve_inbox = lambda: setattr(task, "stopping", bool(task.control.inbox.popleft()))
    resting: list[bool] = []
    link.wait = lambda timeout_s, **_: resting.append(task.progress.resting) or time.sleep(timeout_s)
    task.wait_outside("no room", 0.01)
    task.wait_outside("no room", 0.01)
    assert told == ["no room"] and all(resting) and task.progress.loop_age_s() < 1.0
    task.wait_outside("", 0.0)
    assert told == ["no room", ""]
    task.standing.outage = "no room"
    task.control.inbox.append(control_pb2.StopTask())
    with pytest.raises(StopRequested):
        task.wait_outside("no room", 60.0)
    assert task.standing.outage == ""
