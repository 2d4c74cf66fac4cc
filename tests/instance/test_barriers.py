"""A bolt between its link and its checkpoints: what a cut holds, and that all credit comes back (M17, F38, H24).

The bolt is real, down to frames on the link; its process, its state and the other tasks are the test's.
Each tuple says from whom it is and which one, so a cut can be compared with what was sent before it.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import instance.checkpoints
import instance.task
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.common.rooms import CheckpointSettings, InstanceSettings
from heronpy.proto import control_pb2 as control
from heronpy.proto import plan_pb2
from heronpy.proto import topology_pb2 as pb
from heronpy.proto.checkpoint_pb2 import TaskSnapshot
from heronpy.wire import codec
from heronpy.wire.frames import BARRIER, DATA, LINK_HEADER, Frame
from instance.barriers import BoltCheckpoints
from instance.bolt_loop import BoltTask
from instance.link import DataLink
from instance.task import UserError
from tests.instance.test_link import FakeSocket
from tests.plan.builders import TopologyMessage
from tests.support.plane import FakeControl, FakeUser, UserObject

BOLT, SINK, ATTEMPT = 9, 10, 3
INSTANCE = replace(InstanceSettings(), poison_tries=0)


class Control(FakeControl):
    def __init__(self) -> None:
        super().__init__()
        self.letters: list[Any] = []

    def tell(self, message: Any) -> None:
        self.letters.append(message)


class User(FakeUser):
    def know_state(self, attempt: int, state: Any) -> None:
        self.attempt = attempt


class Notes(UserObject):
    """Keeps what it processed, and passes it on."""

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self.seen: list[tuple[int, int]] = []

    def process(self, tup: Any) -> None:
        source, number = tup.values
        self.seen.append((source, number))
        self.emit([source, number])


class State:
    """The state of the bolt is what it has seen; snapshots are kept here."""

    index = 0
    restored: TaskSnapshot | None = None

    def __init__(self, frames: list[bytes]) -> None:
        self.task: Any = None
        self.frames = frames
        self.keyed = None
        self.seen: dict[int, list[tuple[int, int]]] = {}
        self.channels: dict[int, list[bytes]] = {}
        self.fates: list[tuple[str, int]] = []

    def restore(self, location: str, attempt: int) -> list[bytes]:
        return self.frames

    def capture(self, checkpoint: int) -> Any:
        self.seen[checkpoint] = list(self.task.user.object.seen)
        return SimpleNamespace(estimate_bytes=0, needs_fork=False, persist=TaskSnapshot)

    def write_channel(self, checkpoint: int, snapshot: TaskSnapshot, frames: list[bytes], tuples: int) -> None:
        self.channels[checkpoint] = frames
        snapshot.channel_tuples = tuples

    def persisted(self, checkpoint: int, snapshot: TaskSnapshot) -> None:
        self.fates.append(("persisted", checkpoint))

    def completed(self, checkpoint: int) -> None:
        self.fates.append(("completed", checkpoint))

    def aborted(self, checkpoint: int) -> None:
        self.fates.append(("aborted", checkpoint))


class World:
    """One bolt task with `sources` tasks before it and a sink behind it."""

    def __init__(
        self, sources: int, make: Any = Notes, alignment_bytes_max: int = 1 << 20, frames: list[bytes] | None = None
    ) -> None:
        self.patch = pytest.MonkeyPatch()
        self.state = State(frames or [])
        chosen = CheckpointSettings(alignment_bytes_max=alignment_bytes_max)
        self.patch.setattr(instance.task, "UserCode", User)
        self.patch.setattr(instance.task, "settings_for", lambda launch, room: chosen)
        self.patch.setattr(instance.checkpoints, "open_state", lambda *_: self.state)
        message = TopologyMessage().spout("src", outputs={"default": ["source", "n"]})
        message.bolt("note", [("src", "default", pb.SHUFFLE, [])], outputs={"default": ["source", "n"]})
        message.bolt("sink", [("note", "default", pb.SHUFFLE, [])], outputs={})
        plan = plan_pb2.PhysicalPlan(version=1, topology=message.message)
        for task_id in range(1, sources + 1):
            plan.instances.add(task_id=task_id, component="src", container=1)
        plan.instances.add(task_id=BOLT, component="note", container=1)
        plan.instances.add(task_id=SINK, component="sink", container=1)
        plan.regions.add(components=["src", "note", "sink"], attempt=ATTEMPT)
        launch = SimpleNamespace(make={"note": make}, reliability="EFFECTIVELY_ONCE", config={}, custom={})
        self.task = task = BoltTask(launch, INSTANCE, 1.0, 1, BOLT, 1)
        self.state.task = task
        task.connect = None  # type: ignore[assignment,method-assign]
        task.topology, task.component, task.instance_id = message.message, "note", "note-9"
        task._frame_max_bytes = 1 << 26
        task.attempt = instance.task.Attempt("note", pytest.fail)  # type: ignore[arg-type]
        self.control = task.control = Control()  # type: ignore[assignment]
        task.link = DataLink(BOLT, b"t:9:1", "ipc://x", 1 << 26, -1)
        self.sockets: list[FakeSocket] = []
        task.link._context = SimpleNamespace(socket=self.socket)  # type: ignore[assignment]
        self.links = 0
        self.relink()
        task.build(plan)
        task.bind_emit()
        assert isinstance(task.checkpoints, BoltCheckpoints)
        self.checkpoints = task.checkpoints
        self.checkpoints.restored = True
        plan.version, plan.regions[0].started = 2, True
        task.take_plan(plan)
        assert self.checkpoints.started
        task.state = control.TASK_RUNNING
        #: One tuple a step: a cut may fall into the middle of a frame.
        task._chunk = 1
        self.sent = dict.fromkeys(range(1, sources + 1), 0)
        self.numbers = dict(self.sent)

    def socket(self, kind: int) -> FakeSocket:
        self.sockets.append(FakeSocket())
        return self.sockets[-1]

    def relink(self) -> None:
        """The link is a new one: what came over the old one is here, its credit is void."""
        self.links += 1
        self.seq = 0
        self.task.registered(control.RegisterInstanceReply(link_epoch=self.links))
        self.task.link.granted_out = 1 << 40

    def arrive(self, frame: Frame) -> None:
        self.seq += 1
        header = LINK_HEADER.pack(self.task.link.epoch, self.seq)
        self.sockets[-1].inbox.append([header, frame.SerializeToString()])
        self.task.link.receive(self.task.take_frame)

    def data(self, source: int, tuples: int = 1, attempt: int = ATTEMPT) -> None:
        first = self.numbers[source]
        values = [value for n in range(first, first + tuples) for value in (source, n)]
        if attempt == ATTEMPT:
            self.numbers[source] += tuples
            self.sent[source] += 1
        self.arrive(
            Frame(kind=DATA, source_task=source, dest_task=BOLT, count=tuples, attempt=attempt,
                  payload=codec.encode(values), codec=0)
        )  # fmt: skip

    def barrier(self, source: int, checkpoint: int, unaligned: bool = False, missing: int = 0, **more: Any) -> None:
        fields = {"attempt": ATTEMPT, "channel_frames": self.sent[source] + missing, **more}
        self.arrive(
            Frame(kind=BARRIER, source_task=source, dest_task=BOLT, checkpoint=checkpoint, unaligned=unaligned, **fields)
        )

    def note(self, kind: str, body: Any) -> None:
        self.control.deliver(kind, body)

    def step(self) -> None:
        """A turn of the loop."""
        task = self.task
        if self.control.inbox:
            task.serve_inbox()
        if self.checkpoints.pending:
            self.checkpoints.work()
        if task.current or task.in_queue.waiting:
            task._chunk = 1
            task._step(task.emitter.batches.now)
        self.check()

    def settle(self) -> None:
        """Until there is nothing to do, and all is reported that can be."""
        while self.task.current or self.task.in_queue.waiting or self.control.inbox or self.checkpoints.pending:
            self.step()
            job = self.checkpoints.writer._job
            if job is None or not job.records or job.ready.is_set():
                for thread in threading.enumerate():
                    if thread.name == "snapshot":
                        thread.join(60)

    def check(self) -> None:
        """Credit: of what came over this link, all but the unsettled frames was returned."""
        task, link = self.task, self.task.link
        opened = task.opened()
        open_bytes = task._current_bytes if opened and not task.settled else 0
        waiting = list(task.queue)[max(0, task.settled - opened) :]
        assert 0 <= task.settled <= opened + len(task.queue)
        assert link.received_bytes - link.consumed_bytes == open_bytes + sum(size for _, size in waiting)

    def check_calm(self) -> None:
        task, link = self.task, self.task.link
        assert not task.queue and not task.current and task.settled == 0
        assert (link.consumed_bytes, link.consumed_tuples) == (link.received_bytes, link.received_tuples)
        held = self.checkpoints.aligner._held
        assert task.progress.in_tuples == sum(frame.count - frame.skip for frame, _ in held)
        assert task.progress.in_bytes == sum(size for _, size in held)

    def answers(self) -> dict[int, Any]:
        found = {}
        for letter in self.control.letters:
            assert letter.checkpoint not in found, "answered twice"
            found[letter.checkpoint] = letter
        return found

    def barriers_out(self) -> list[Any]:
        return [frame for sock in self.sockets for _, _, frame in sock.sent if frame.kind == BARRIER]

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        self.patch.undo()


@pytest.fixture
def worlds() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(*args: Any, **options: Any) -> World:
        made.append(World(*args, **options))
        return made[-1]

    yield make
    for world in made:
        world.close()


def first(numbers: dict[int, int]) -> dict[int, list[int]]:
    return {source: list(range(count)) for source, count in numbers.items()}


def packed(source: int, number: int, tuples: int, skip: int = 0) -> bytes:
    """A frame that a checkpoint held."""
    values = [value for n in range(number, number + tuples) for value in (source, n)]
    frame = Frame(kind=DATA, source_task=source, dest_task=BOLT, count=tuples, skip=skip, attempt=ATTEMPT - 1)
    frame.payload = codec.encode(values)
    data: bytes = frame.SerializeToString()
    return data


def by_source(pairs: list[tuple[int, int]], sources: int) -> dict[int, list[int]]:
    """The numbers of each source; without those of restored frames, which must come first."""
    for source in range(1, sources + 1):
        numbers = [n for s, n in pairs if s == source]
        assert numbers == sorted(set(numbers)), "twice, or not in order"
    return {source: [n for s, n in pairs if s == source and n >= 0] for source in range(1, sources + 1)}


def recorded(frames: list[bytes]) -> list[tuple[int, int]]:
    found = []
    for data in frames:
        frame = Frame.FromString(data)
        flat = codec.decoder(None, False)(frame.payload, frame.codec)
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        found += pairs[frame.skip :]
    return found


EVENTS = ["data"] * 6 + ["step"] * 6 + ["barrier"] * 2 + ["trigger", "abort", "abandon", "relink", "stale", "stale barrier"]


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
                world.barrier(source, checkpoint, unaligned)
            elif event == "trigger" and unaligned:
                world.note("trigger_checkpoint", control.TriggerCheckpoint(checkpoint=checkpoint, unaligned=True))
            elif event == "abort" and rng.random() < 0.3:
                gone.add(checkpoint)
                world.note("checkpoint_aborted", control.CheckpointAborted(checkpoint=checkpoint, reason="test"))
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
        world.note("checkpoint_aborted", control.CheckpointAborted(checkpoint=checkpoint, reason="the end"))
        world.settle()
        world.check_calm()
        assert by_source(world.task.user.object.seen, sources) == first(world.numbers)
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
        world.checkpoints.writer.cancel(1 << 62)
        world.close()


def test_what_is_held_back_gives_its_credit_back_at_once(worlds: Callable[..., World]) -> None:
    world = worlds(2)
    world.barrier(1, 1)
    for _ in range(5):
        world.data(1)
    world.data(2)
    world.settle()
    assert world.task.user.object.seen == [(2, 0)]
    link = world.task.link
    assert link.consumed_bytes == link.received_bytes
    assert world.checkpoints.held_bytes() > 0
    world.barrier(2, 1)
    world.settle()
    assert world.task.user.object.seen == [(2, 0), *((1, n) for n in range(5))]
    world.check_calm()


def test_the_barriers_that_go_out_say_how_much_came_before(worlds: Callable[..., World]) -> None:
    world = worlds(1)
    world.data(1, 3)
    world.settle()
    assert world.task.emitter.dirty(), "the cut has to send it"
    world.barrier(1, 4, savepoint=True)
    world.settle()
    (out,) = world.barriers_out()
    assert (out.source_task, out.dest_task, out.attempt, out.checkpoint) == (BOLT, SINK, ATTEMPT, 4)
    assert out.channel_frames == 1 and out.savepoint and not out.unaligned
    kinds = [frame.kind for _, _, frame in world.sockets[-1].sent if frame.kind in (DATA, BARRIER)]
    assert kinds == [DATA, BARRIER]


@pytest.mark.parametrize(("missing", "words"), [(2, "2 frames .* are missing"), (-1, "1 frames .* came twice")])
@pytest.mark.parametrize("unaligned", [False, True])
def test_frames_that_are_missing_are_lost_data(
    worlds: Callable[..., World], missing: int, words: str, unaligned: bool
) -> None:
    """The barrier of one source is enough to know; the topology master restores the region."""
    world = worlds(2)
    world.data(1)
    world.barrier(1, 7, unaligned, missing=missing)
    answer = world.answers()[7]
    assert answer.lost_data and answer.attempt == ATTEMPT
    assert re.search(words, answer.error)
    assert not answer.HasField("snapshot")


def test_too_much_to_hold_back_declines_the_checkpoint_and_lets_go(worlds: Callable[..., World]) -> None:
    world = worlds(2, alignment_bytes_max=200)
    world.barrier(1, 1)
    for _ in range(20):
        world.data(1)
    world.settle()
    answer = world.answers()[1]
    assert "alignment_bytes_max" in answer.error and not answer.lost_data
    assert by_source(world.task.user.object.seen, 2)[1] == list(range(20))
    world.barrier(2, 1)
    world.settle()
    assert 1 not in world.state.seen, "it was declined"
    for source in (1, 2):
        world.barrier(source, 2)
    world.settle()
    assert world.answers()[2].HasField("snapshot")
    world.check_calm()


def test_nothing_is_held_back_for_longer_than_a_checkpoint_may_take(worlds: Callable[..., World]) -> None:
    """Also when no topology master is there to abort it."""
    world = worlds(3)
    world.barrier(1, 1)
    world.data(1)
    world.settle()
    since = world.checkpoints._since
    world.checkpoints.check(since + 59)
    assert world.control.letters == [] and world.task.user.object.seen == []
    world.checkpoints.check(since + 61)
    assert "no barrier of task 2, 3 within 60 s" in world.answers()[1].error
    world.settle()
    assert world.task.user.object.seen == [(1, 0)]
    world.barrier(1, 2, savepoint=True)
    world.settle()
    world.checkpoints.check(world.checkpoints._since + 61)
    assert 2 not in world.answers(), "a savepoint has a time of its own (M35)"


def test_an_unaligned_cut_takes_what_is_under_way_with_it(worlds: Callable[..., World]) -> None:
    """In the middle of a frame, behind a full queue: the barrier overtakes all of it (F38)."""
    world = worlds(2)
    world.data(1, 4)
    world.data(2, 3)
    world.step()
    world.step()
    assert world.task.user.object.seen == [(1, 0), (1, 1)]
    world.barrier(1, 1, unaligned=True)
    assert world.checkpoints.urgent
    world.checkpoints.work()
    assert [frame.checkpoint for frame in world.barriers_out()] == [1]
    assert world.state.seen[1] == [(1, 0), (1, 1)], "cut between two tuples"
    world.data(1, 2)
    world.data(2, 1)
    assert world.task.link.consumed_bytes == world.task.link.received_bytes, "it drains while it records"
    world.barrier(2, 1, unaligned=True)
    world.settle()
    assert recorded(world.state.channels[1]) == [(1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]
    world.check_calm()


def test_an_unaligned_cut_takes_what_an_older_alignment_held_back_with_it(worlds: Callable[..., World]) -> None:
    world = worlds(2)
    world.barrier(1, 1)
    world.data(1, 2)
    world.settle()
    assert world.task.user.object.seen == []
    world.data(1)
    world.note("trigger_checkpoint", control.TriggerCheckpoint(checkpoint=2, unaligned=True))
    world.step()
    for source in (1, 2):
        world.barrier(source, 2, unaligned=True)
    world.settle()
    assert world.state.seen[2] == []
    assert recorded(world.state.channels[2]) == [(1, 0), (1, 1), (1, 2)]
    world.check_calm()


def test_restored_frames_come_first_and_owe_no_credit(worlds: Callable[..., World]) -> None:
    world = worlds(1, frames=[packed(1, -4, 4, skip=1)])
    world.data(1)
    assert world.task.progress.in_tuples == 4
    world.step()
    world.note("trigger_checkpoint", control.TriggerCheckpoint(checkpoint=1, unaligned=True))
    world.step()
    world.barrier(1, 1, unaligned=True)
    world.settle()
    assert world.task.user.object.seen == [(1, -3), (1, -2), (1, -1), (1, 0)]
    assert recorded(world.state.channels[1]) == [(1, -2), (1, -1), (1, 0)]
    assert not world.answers()[1].error, "what was restored counts for no channel"
    world.check_calm()


def test_frames_of_another_attempt_are_dropped_counted_and_credited(worlds: Callable[..., World]) -> None:
    """What a zombie sends does no harm (T19, F10)."""
    world = worlds(1)
    world.data(1, 5, attempt=ATTEMPT - 1)
    world.data(1, 2, attempt=ATTEMPT + 1)
    world.barrier(1, 6, attempt=ATTEMPT - 1, channel_frames=50)
    world.settle()
    assert world.task.user.object.seen == [] and world.control.letters == []
    assert world.task.metrics.counters["__stateful_stale_tuples", ""] == 7
    world.check_calm()


def test_a_pre_save_that_raises_declines_the_checkpoint_and_the_task_goes_on(
    worlds: Callable[..., World],
) -> None:
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

    world = worlds(1, make=Sink)
    world.barrier(1, 1)
    world.settle()
    assert "pre_save of task note-9 raised OSError: the disk is full" in world.answers()[1].error
    (report,) = world.control.reports
    assert report.type == "OSError" and "in pre_save" in report.traceback
    assert world.barriers_out() == []
    for checkpoint in (2, 3):
        world.barrier(1, checkpoint)
        world.settle()
        assert world.answers()[checkpoint].HasField("snapshot")
    done = control.CheckpointComplete
    world.note("checkpoint_complete", done(checkpoint=1))
    world.note("checkpoint_complete", done(checkpoint=2))
    world.note("checkpoint_complete", done(checkpoint=2))
    world.settle()
    assert calls == ["pre_save 1", "pre_save 2", "pre_save 3", "post_save 2"]
    assert world.checkpoints.committed == 2
    world.note("checkpoint_complete", done(checkpoint=3))
    with pytest.raises(UserError):
        world.settle()
    assert world.checkpoints.committed == 2, "what post_save raises restarts the task, which commits anew"
