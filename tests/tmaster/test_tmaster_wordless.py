"""What becomes of checkpoints and restores does not depend on what the sentences of errors say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from heronpy.common.errors import RetryableError, StateError
from heronpy.proto import checkpoint_pb2, control_pb2
from heronpy.tmaster import events
from heronpy.tmaster.archive import Archive
from heronpy.tmaster.events import Node, Prune
from tests.support.wordless import AS_IT_IS, WORDINGS, reword
from tests.tmaster.checkpoint_world import CheckpointWorld, attempt, bigger, started, world

WAIT_S = 30.0


class Stubborn:
    """A checkpoint store where nothing can be written, read or deleted."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def _fail(self, *_: Any) -> Any:
        raise self.error

    write_metadata = checkpoints = load_metadata = delete = discard = sweep = _fail


class OneStubborn:
    def __init__(self, error: Exception) -> None:
        self.store = Stubborn(error)

    def homes(self) -> list[Any]:
        return [self.store]

    def failed(self) -> None: ...


@pytest.fixture
def failing() -> Iterator[Callable[[Exception], Archive]]:
    made: list[Archive] = []

    def make(error: Exception) -> Archive:
        made.append(Archive(lambda: OneStubborn(error)))  # type: ignore[arg-type,return-value]
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("error", [OSError(), StateError(), StateError("full"), ValueError()])
def test_a_write_or_a_deletion_that_fails_without_a_word_has_failed(
    failing: Callable[[Exception], Archive], error: Exception
) -> None:
    outcomes: list[Any] = []
    ended = threading.Semaphore(0)

    def done(outcome: Any) -> None:
        outcomes.append(outcome)
        ended.release()

    store = failing(error)
    store.write(checkpoint_pb2.Metadata(checkpoint=1), done)
    assert ended.acquire(timeout=WAIT_S)
    store.prune(Prune((1,), ()), done)
    assert ended.acquire(timeout=WAIT_S)
    assert [type(outcome) for outcome in outcomes] == [events.Failed, events.Failed]
    assert all(outcome.reason for outcome in outcomes), "people are told at least the kind"
    assert store.failures == 1


def outcome_of(scenario: Callable[[CheckpointWorld, str], Any], words: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        reword(patch, words)
        return scenario(world(), "a task has its reasons" if words == AS_IT_IS else words)


def declined(w: CheckpointWorld, words: str) -> Any:
    """A task declines, and one has lost data."""
    token = w.request(events.CheckpointRequested, False)
    w.mute = {1, 2, 3, 4}
    w.until(lambda: w.open > 0)
    answer = w.answer_of(w.task(3))
    answer.error = words
    w.feed(events.TaskAnswered(answer))
    error = w.answer(token).error
    aborted = w.machine.checkpoints_reply(w.now).aborted
    w.until(lambda: w.open > 0)
    answer = w.answer_of(w.task(2))
    answer.error, answer.lost_data = words, True
    w.feed(events.TaskAnswered(answer))
    w.mute = set()
    w.until(lambda: started(w) and attempt(w) > 1)
    return type(error), aborted, attempt(w), w.machine.checkpoints_reply(w.now).restores


def not_written(w: CheckpointWorld, words: str) -> Any:
    """The disk is full, and says so in these words."""
    token = w.request(events.CheckpointRequested, True)
    w.until(lambda: w.open > 0)
    for task in (1, 2, 3, 4):
        w.feed(events.TaskAnswered(w.answer_of(w.task(task))))
    [metadata] = w.to_write
    w.to_write.clear()
    w.feed(events.MetadataWritten(metadata, events.Failed(words)))
    reply = w.machine.checkpoints_reply(w.now)
    return type(w.replies[token].error), reply.failed, reply.completed, len(w.log.complete)


def not_deleted(w: CheckpointWorld, words: str) -> Any:
    w.when_complete(2)
    token = w.request(events.DeleteRequested, (1,))
    w.deletions.clear()
    w.feed(events.CheckpointsDeleted(token, events.Failed(words)))
    return type(w.replies[token].error), [r.checkpoint for r in w.log.complete]


def interrupted(w: CheckpointWorld, words: str) -> Any:
    """A restore ends the checkpoint that a client waits for, and the one that an update waits for."""
    token = w.request(events.CheckpointRequested, False)
    w.mute = {1, 2, 3, 4}
    w.until(lambda: w.open > 0)
    w.kill(3)
    error = w.answer(token).error
    w.until(lambda: started(w))
    update = bigger(w, 3)
    w.until(lambda: w.open > 0)
    w.kill(3)
    w.mute = set()
    return isinstance(error, RetryableError), w.answer(update).error, len(w.machine.shared.registry.places)


def damaged(w: CheckpointWorld, words: str) -> Any:
    """No checkpoint can be restored, and a rewind and a restart are asked for."""
    w.when_complete(2)
    w.damaged = {1, 2}
    w.kill(3)
    w.until(lambda: w.life == control_pb2.LIFE_FAILED)
    w.rounds(5)
    again = w.life
    refused = w.answer(w.request(events.CheckpointRequested, False)).error
    rewound = w.answer(w.request(events.RewindRequested, 0)).error
    w.damaged = {2}
    w.answer(w.request(events.RewindRequested, 1))
    w.until(lambda: started(w))
    return again, type(refused), type(rewound), w.regions()[0].checkpoint


@pytest.mark.parametrize("words", WORDINGS[1:])
@pytest.mark.parametrize("scenario", [declined, not_written, not_deleted, interrupted, damaged])
def test_outcomes_do_not_depend_on_words(scenario: Callable[[CheckpointWorld, str], Any], words: str) -> None:
    assert outcome_of(scenario, words) == outcome_of(scenario, AS_IT_IS)


@pytest.mark.parametrize("words", ["", "the file is gone"])
def test_a_start_elsewhere_that_cannot_be_restored_is_not_tried_again(words: str) -> None:
    """Also when the task that found it has no words for it: it would go back there for ever."""
    w = CheckpointWorld()
    w.store[Node.CHECKPOINTS] = checkpoint_pb2.CheckpointLog(
        topology_id=w.store[Node.TOPOLOGY].id, restore_from="/elsewhere/wc-7/chk-12"
    )
    w.start_master()
    w.task(3).stuck = True
    w.until(lambda: bool(w.regions()))
    region = w.regions()[0]
    assert region.checkpoint == 12
    message = control_pb2.RestoreFailed(task_id=3, epoch=1, attempt=region.attempt, checkpoint=12, error=words)
    w.feed(events.RestoreFailed(message))
    w.rounds(3)
    assert w.life == control_pb2.LIFE_FAILED
