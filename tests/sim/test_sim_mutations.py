"""The simulator finds bugs: each test plants one in the product, and some seed of a few must fail (F39)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import heronpy.storage.checkpoints
from heronpy.ckpt.snapshot import TaskState
from heronpy.plan.grouping import Shuffle
from heronpy.storage.locations import open_location
from heronpy.tmaster.coordinator import Announce, Coordinator
from heronpy.tmaster.events import Persist
from instance.barriers import BoltCheckpoints
from instance.bolt_loop import BoltTask
from instance.checkpoints import Checkpoints
from instance.in_queue import Aligner, Step
from instance.link import DataLink
from instance.spout_loop import SpoutTask
from stmgr.acker import Acker
from stmgr.attempts import Attempts
from stmgr.backpressure import Backpressure
from stmgr.hints import Hints
from stmgr.links import Link, Source
from stmgr.neighbours import LocalTask
from stmgr.switch import NEVER, Switch
from tests.sim.flow import run_flow
from tests.sim.planted import Patch, each, found_by
from tests.sim.run import run_seed
from tests.sim.workload import AT_LEAST, AT_MOST, EFFECTIVELY

SEEDS = 150


def skip_alignment(patch: pytest.MonkeyPatch) -> None:
    """Frames behind a barrier are processed before the cut."""
    patch.setattr(Aligner, "data", lambda self, source, item, size: Step.PROCESS)


def lose_a_frame(patch: pytest.MonkeyPatch) -> None:
    """A frame that was counted in never reaches the user's code."""
    whole = BoltTask.take_next
    count = 0

    def take_next(self: Any, now: float) -> bool:
        nonlocal count
        count += 1
        if count % 40 == 0 and self.in_queue.waiting[0].count == 1:
            self.in_queue.done(self.in_queue.next(), 1)
            return False
        return whole(self, now)

    patch.setattr(BoltTask, "take_next", take_next)


def mix_attempts(patch: pytest.MonkeyPatch) -> None:
    """Frames of an earlier attempt are taken in."""
    admit = BoltCheckpoints.admit

    def any_attempt(self: Any, frame: Any, size: int) -> bool:
        frame.attempt = self.attempt
        return admit(self, frame, size)

    patch.setattr(BoltCheckpoints, "admit", any_attempt)
    patch.setattr(Attempts, "is_stale", lambda self, task, attempt: False)


def forget_numbers(patch: pytest.MonkeyPatch) -> None:
    """The log with the numbers given out is stored only when a checkpoint completes."""
    take = Coordinator.take

    def some(self: Any) -> list[Any]:
        effects = take(self)
        completed = any(isinstance(effect, Announce) for effect in effects)
        return [effect for effect in effects if completed or not isinstance(effect, Persist)]

    patch.setattr(Coordinator, "take", some)


def commit_before_the_record(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint is announced before it is in the log."""
    take = Coordinator.take
    patch.setattr(Coordinator, "take", lambda self: sorted(take(self), key=lambda e: not isinstance(e, Announce)))


def keep_the_state(patch: pytest.MonkeyPatch) -> None:
    """The state of a checkpoint is not loaded."""
    restore = TaskState.restore

    def empty(self: Any, location: str, attempt: int) -> list[bytes]:
        return restore(self, "" if self.owner.component == "count" else location, attempt)

    patch.setattr(TaskState, "restore", empty)


def scale_without_state(patch: pytest.MonkeyPatch) -> None:
    """Keyed state does not follow its keys to another number of tasks."""
    restore = TaskState.restore

    def own(self: Any, location: str, attempt: int) -> list[bytes]:
        scaled = location and open_location(location)[1].parallelism[self.owner.component] != self.parallelism
        return restore(self, "" if scaled else location, attempt)

    patch.setattr(TaskState, "restore", own)


def leak_credit(patch: pytest.MonkeyPatch) -> None:
    """A sender does not get all of its credit back."""
    absorbed = Source.absorbed
    patch.setattr(Source, "absorbed", lambda self, size, tuples: absorbed(self, size * 3 // 4, tuples))


def grant_too_much(patch: pytest.MonkeyPatch) -> None:
    """A task grants more with each frame."""
    consumed = DataLink.consumed
    patch.setattr(DataLink, "consumed", lambda self, size, tuples: consumed(self, size * 2, tuples))


def count_losses_only_sometimes(patch: pytest.MonkeyPatch) -> None:
    """Tuples given up in EFFECTIVELY_ONCE are not reported, and barriers do not count."""
    patch.setattr(Attempts, "give_up", lambda self, task, attempt, tuples, reason: None)
    patch.setattr("instance.in_queue.Channels.difference", lambda self, source, sent: 0)


def ack_too_early(patch: pytest.MonkeyPatch) -> None:
    """A tree counts as complete at its first ack."""
    patch.setattr(Acker, "ack", Acker.fail)


def forget_the_failed(patch: pytest.MonkeyPatch) -> None:
    """Failed and timed-out tuples are not told to the spout."""
    patch.setattr(SpoutTask, "_fail_ids", lambda self, ids, batch, now, latency: None)


def skip_pre_restore(patch: pytest.MonkeyPatch) -> None:
    """A sink is not told to finish or to drop what it had prepared."""
    patch.setattr(Checkpoints, "pre_restore", lambda self, component: setattr(component, "restored", 0))


def skip_fsync(patch: pytest.MonkeyPatch) -> None:
    """Files of a checkpoint are not on disk when it counts as complete."""
    begin = heronpy.storage.checkpoints.CheckpointStore.__init__

    def unsynced(self: Any, folder: Any, fsync: bool = True, limits: Any = None, **options: Any) -> None:
        begin(self, folder, False, limits, **options)

    patch.setattr(heronpy.storage.checkpoints.CheckpointStore, "__init__", unsynced)


def never_release(patch: pytest.MonkeyPatch) -> None:
    """A peer that was asked to hold a task's frames is never told to go on."""
    patch.setattr(LocalTask, "release", lambda self: self.held_by.clear())


def only(patch: pytest.MonkeyPatch, owner: type, name: str, when: Callable[..., bool]) -> None:
    """A method does something only when this is true of its arguments."""
    whole = getattr(owner, name)
    patch.setattr(owner, name, lambda *args: whole(*args) if when(*args) else None)


def keep_room_to_itself(patch: pytest.MonkeyPatch) -> None:
    """Senders are not told that a task has room again."""
    only(patch, Hints, "tell", lambda self, task, full, limit: full)


def keep_full_to_itself(patch: pytest.MonkeyPatch) -> None:
    """Senders are not told that a task is full."""
    only(patch, Hints, "tell", lambda self, task, full, limit: not full)


def repeat_nothing(patch: pytest.MonkeyPatch) -> None:
    """A new link of a sender does not learn which tasks are full."""
    only(patch, Hints, "repeat", lambda self, link: False)


def hold_nobody(patch: pytest.MonkeyPatch) -> None:
    """All tasks of a component are full, their senders keep their credit, and spouts run on."""
    put = Link.put
    patch.setattr(Link, "put", lambda self, waiting, hold_above: put(self, waiting, NEVER))
    patch.setattr("stmgr.backpressure.clamps", lambda episode: False)


def stop_for_good(patch: pytest.MonkeyPatch) -> None:
    """Spouts that were stopped are not told to go on."""
    only(patch, Switch, "clamp_spouts", lambda self, on: on)


def outlive_the_announcer(patch: pytest.MonkeyPatch) -> None:
    """What a stream manager has announced holds after its death."""
    only(patch, Backpressure, "expire", lambda self, now: False)
    only(patch, Backpressure, "lost", lambda self, stmgr_id: False)


def shut_for_good(patch: pytest.MonkeyPatch) -> None:
    """A shuffle that has left a task out does not go back to it."""

    def avoid(self: Any, full: Any) -> None:
        self.open = [task for task in self.open if task not in full] or self.open
        self._next %= len(self.open)

    patch.setattr(Shuffle, "avoid", avoid)


#: Bug, mode, and a seed that is known to find it; at most once it is one of slow tasks.
PLANTED: list[tuple[Patch, str, int]] = [
    (skip_alignment, EFFECTIVELY, 4),
    (lose_a_frame, EFFECTIVELY, 0),
    (mix_attempts, EFFECTIVELY, 199),
    (forget_numbers, EFFECTIVELY, 3),
    (commit_before_the_record, EFFECTIVELY, 2),
    (keep_the_state, EFFECTIVELY, 0),
    (scale_without_state, EFFECTIVELY, 2),
    (leak_credit, EFFECTIVELY, 0),
    (grant_too_much, EFFECTIVELY, 0),
    (count_losses_only_sometimes, EFFECTIVELY, 34),
    (skip_pre_restore, EFFECTIVELY, 3),
    (skip_fsync, EFFECTIVELY, 3),
    (never_release, EFFECTIVELY, 5),
    (ack_too_early, AT_LEAST, 0),
    (forget_the_failed, AT_LEAST, 9),
    (keep_room_to_itself, AT_MOST, 1),
    (keep_full_to_itself, AT_MOST, 1),
    (repeat_nothing, AT_MOST, 15),
    (hold_nobody, AT_MOST, 3),
    (stop_for_good, AT_MOST, 0),
    (outlive_the_announcer, AT_MOST, 108),
    (never_release, AT_MOST, 2),
    (shut_for_good, AT_MOST, 1),
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("plant", "mode", "seed"), each(PLANTED, (keep_room_to_itself, hold_nobody)))
def test_a_planted_bug_is_found(plant: Patch, mode: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    # The product changes, and another seed may find it then.
    run, options = (
        (run_flow, {}) if mode == AT_MOST else (run_seed, {"mode": mode, "events_max": 400_000, "ways": False})
    )
    found = found_by(run, (seed, *range(SEEDS)), **options)
    assert found is not None, f"found by none of {SEEDS} seeds"
