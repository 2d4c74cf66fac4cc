"""The coordinator in any order of answers, losses, timeouts and restarts from what it has stored (F23)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.common.errors import RetryableRpcError, RpcError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto import checkpoint_pb2, control_pb2
from heronpy.tmaster.coordinator import (
    Abort,
    Announce,
    Answer,
    Coordinator,
    Incarnation,
    Persist,
    Prune,
    Trigger,
    WriteMetadata,
)
from heronpy.tmaster.events import Failed, Written

TASKS = (1, 2, 3)


class Model:
    """A coordinator, what it has stored, and what everybody outside has seen."""

    def __init__(self, **options: object) -> None:
        self.settings = CheckpointSettings(**options)  # type: ignore[arg-type]
        self.stored = checkpoint_pb2.CheckpointLog()
        self.now = 0.0
        self.epochs = dict.fromkeys(TASKS, 1)
        self.attempt = 1
        self.running = True
        self.triggers: list[tuple[float, Trigger]] = []
        self.open: int | None = None
        self.ended_at = float("-inf")
        self.to_write: list[checkpoint_pb2.Metadata] = []
        self.on_disk: set[int] = set()
        self.pruned: set[int] = set()
        #: Complete savepoints that were not deleted on request.
        self.savepoints: set[int] = set()
        self.answers: dict[int, Answer] = {}
        self.asked: set[int] = set()
        self.tokens = 0
        self.start()

    def start(self) -> None:
        """A new process goes on with what is stored."""
        log = checkpoint_pb2.CheckpointLog.FromString(self.stored.SerializeToString())
        self.coordinator = Coordinator(self.settings, log, lambda metadata: None)
        self.coordinator.begin(self.now)
        self.open = None
        self.ended_at = float("-inf")
        self.to_write.clear()
        self.asked.clear()

    def roster(self) -> Mapping[int, Incarnation] | None:
        if not self.running:
            return None
        return {task: Incarnation("count", epoch, self.attempt) for task, epoch in self.epochs.items()}

    def take(self) -> None:
        self.coordinator.validate()
        for effect in self.coordinator.take():
            if isinstance(effect, Persist):
                assert effect.value.next_checkpoint >= self.stored.next_checkpoint
                assert effect.value.next_attempt >= self.stored.next_attempt
                self.stored = effect.value
            elif isinstance(effect, Trigger) and effect.checkpoint == self.open:
                began, first = self.triggers[-1]
                assert effect.unaligned and not (first.unaligned or first.savepoint)
                assert self.now >= began + self.settings.aligned_timeout_s
                self.triggers[-1] = began, effect
            elif isinstance(effect, Trigger):
                assert self.open is None, "two at once"
                assert effect.checkpoint < self.stored.next_checkpoint, "a number that is not stored"
                assert all(effect.checkpoint > old.checkpoint for _, old in self.triggers), "a number twice"
                assert self.now >= self.ended_at + self.settings.min_pause_s, "no pause"
                self.triggers.append((self.now, effect))
                self.open = effect.checkpoint
            elif isinstance(effect, WriteMetadata):
                self._check(effect.metadata)
                self.to_write.append(effect.metadata)
            elif isinstance(effect, Announce):
                assert effect.checkpoint in self.on_disk
                assert effect.checkpoint in [r.checkpoint for r in self.stored.complete], "told before it was stored"
                if self.triggers[-1][1].savepoint:
                    self.savepoints.add(effect.checkpoint)
                self.open, self.ended_at = None, self.now
            elif isinstance(effect, Abort):
                assert effect.checkpoint == self.open and effect.reason
                self.open, self.ended_at = None, self.now
            elif isinstance(effect, Answer):
                assert effect.token not in self.answers
                self.answers[effect.token] = effect
            elif isinstance(effect, Prune):
                assert not set(effect.delete) & set(effect.keep)
                assert not set(effect.delete) & self.savepoints
                assert set(effect.keep) == {r.checkpoint for r in self.stored.complete}
                self.pruned.update(effect.delete)
        newest = self.coordinator.newest()
        if newest is not None:
            assert newest.checkpoint in self.on_disk and newest.checkpoint not in self.pruned
            assert not newest.damaged and not newest.abandoned

    def _check(self, metadata: checkpoint_pb2.Metadata) -> None:
        assert [task.task_id for task in metadata.tasks] == list(TASKS), "not every task exactly once"
        assert {task.attempt for task in metadata.tasks} == {self.attempt}
        assert all(task.emitted == self.epochs[task.task_id] for task in metadata.tasks), "of another process"

    def answer(
        self, task: int, *, epoch: int = 0, attempt: int = 0, checkpoint: int = 0, error: str | None = None
    ) -> bool:
        epoch = epoch or self.epochs[task]
        message = control_pb2.TaskCheckpoint(
            checkpoint=checkpoint or self.open or 1,
            task_id=task,
            epoch=epoch,
            attempt=attempt or self.attempt,
        )
        if error is None:
            message.snapshot.MergeFrom(checkpoint_pb2.TaskSnapshot(emitted=epoch, total_bytes=7))
        else:
            message.error = error
        return self.coordinator.answered(message, self.now)

    def write(self, error: str | None = None) -> None:
        waiting, self.to_write = self.to_write, []
        for metadata in waiting:
            if error is None:
                self.on_disk.add(metadata.checkpoint)
            outcome = Written(f"/x/chk-{metadata.checkpoint}") if error is None else Failed(error)
            self.coordinator.written(metadata, outcome, self.now)
            self.take()

    def advance(self, seconds: float) -> None:
        """Let time pass, looking exactly when the coordinator wants to be asked."""
        end = self.now + seconds
        for _ in range(1000):
            due = self.coordinator.deadline
            if due > end:
                break
            self.now = max(self.now, due)
            self.coordinator.advance(self.now, self.roster)
            self.take()
            if self.coordinator.deadline <= due:
                break  # it waits for the topology to run
        self.now = end
        self.coordinator.advance(self.now, self.roster)
        self.take()

    def ask(self, savepoint: bool) -> None:
        self.tokens += 1
        with contextlib.suppress(RetryableRpcError):
            self.coordinator.request(self.tokens, savepoint, self.now)
            self.asked.add(self.tokens)

    def lose(self) -> None:
        """A task dies: everything goes back with a new attempt."""
        self.epochs[random.choice(TASKS)] += 1
        self.coordinator.abort("task 1 ended", self.now)
        self.attempt = self.coordinator.reserve_attempt(1 << 63)

    def complete(self) -> None:
        for task in TASKS:
            self.answer(task)
            self.take()
        self.write()


ACTIONS = ("answer", "answer", "answer", "stale", "decline", "write", "fail", "lose", "pause", "run", "time", "time",
           "long", "checkpoint", "savepoint", "restart", "damage", "back", "delete")  # fmt: skip


def act(m: Model, action: str, rng: random.Random) -> None:
    known = [record.checkpoint for record in m.stored.complete]
    if action == "answer":
        m.answer(rng.choice(TASKS))
    elif action == "stale":
        task = rng.choice(TASKS)
        field, number = rng.choice((("epoch", m.epochs[task] + 1), ("attempt", m.attempt + 1), ("checkpoint", 99999)))
        assert not m.answer(task, **{field: number})
    elif action == "decline":
        m.answer(rng.choice(TASKS), error="too much was held back")
    elif action in ("write", "fail"):
        m.write("no space left on device" if action == "fail" else "")
    elif action == "lose":
        m.lose()
    elif action in ("pause", "run"):
        m.running = action == "run"
    elif action in ("time", "long"):
        m.advance(rng.random() * (3.0 if action == "time" else 60.0))
    elif action in ("checkpoint", "savepoint"):
        m.ask(action == "savepoint")
    elif action == "restart":
        m.start()
    elif action == "damage" and known:
        m.coordinator.damaged(rng.choice(known), "a file is damaged")
    elif action == "back" and known:
        number = rng.choice(known)
        m.coordinator.abort("the topology is rewound", m.now)
        m.coordinator.back_to(number)
        newest = m.coordinator.newest()
        assert newest is not None and newest.checkpoint == number
    elif action == "delete" and known:
        newest = m.coordinator.newest()
        doomed = rng.choice(known)
        if newest is None or newest.checkpoint != doomed:
            with contextlib.suppress(RpcError):  # the last one stays
                m.coordinator.delete([doomed], 0)
                m.savepoints.discard(doomed)
    m.take()


@settings(max_examples=300, deadline=None)
@given(actions=st.lists(st.sampled_from(ACTIONS), max_size=60), seed=st.integers(0, 2**32))
def test_any_order_keeps_the_promises_and_without_faults_a_checkpoint_completes(actions: list[str], seed: int) -> None:
    m = Model(interval_s=5.0, timeout_s=4.0, savepoint_timeout_s=15.0, min_pause_s=0.5, retained=3)
    rng = random.Random(seed)
    random.seed(seed)
    for action in actions:
        act(m, action, rng)
    m.running = True
    before = m.coordinator.log.completed
    for _ in range(60):
        m.advance(1.0)
        m.complete()
    assert m.coordinator.log.completed > before
    assert m.asked <= m.answers.keys(), "somebody was not answered"
    usable = [r for r in m.stored.complete if r.kind == checkpoint_pb2.CHECKPOINT and not (r.damaged or r.abandoned)]
    assert len(usable) == m.settings.retained


def started(**options: object) -> Model:
    m = Model(interval_s=10.0, min_pause_s=2.0, **options)
    m.advance(10.0)
    return m


def test_barriers_overtake_tuples_after_a_while_but_not_those_of_a_savepoint() -> None:
    m = started(aligned_timeout_s=1.0)
    m.answer(1)
    m.advance(0.9)
    assert not m.triggers[-1][1].unaligned
    m.advance(0.2)
    assert m.triggers[-1][1] == Trigger(1, False, True)
    m.complete()
    m.ask(True)
    m.advance(5.0)
    assert m.triggers[-1][1] == Trigger(2, True, False)
    m.complete()
    assert m.coordinator.log.completed == 2


def test_the_floor_of_the_platform_is_above_the_interval_of_the_topology() -> None:
    m = Model(interval_s=1.0, interval_min_s=20.0, min_pause_s=0.0)
    for _ in range(100):
        m.advance(1.0)
        m.complete()
    times = [at for at, _ in m.triggers]
    assert len(times) == 5 and all(b - a >= 20.0 for a, b in pairwise(times))


def test_metadata_that_is_written_after_the_end_of_its_checkpoint_is_deleted() -> None:
    m = started()
    for task in TASKS:
        m.answer(task)
    m.take()
    m.coordinator.abort("task 1 ended", m.now)
    m.take()
    m.write()
    assert m.pruned == {1} and not m.stored.complete and m.coordinator.log.completed == 0


def test_one_that_is_due_and_cannot_begin_asks_for_no_call_until_something_happens() -> None:
    """Its deadline stayed in the past: a new topology master that nobody had found yet kept a core busy."""
    model = Model(interval_s=1.0)
    coordinator, model.running, model.now = model.coordinator, False, 5.0
    coordinator.advance(model.now, model.roster)
    assert coordinator.deadline == float("inf")
    coordinator.request(1, False, model.now)
    coordinator.advance(model.now, model.roster)
    assert coordinator.deadline == coordinator.expiry > model.now
    model.running = True
    coordinator.advance(model.now, model.roster)
    assert coordinator.pending is not None and coordinator.pending.tokens == [1]
