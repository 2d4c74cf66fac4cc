"""Checkpoints and restores under everything at once, in any order (F03, F09, F23).

`CheckpointWorld` checks on the way: nothing is announced before it is stored, numbers and attempts are used
once, a region starts when all of it has restored, metadata names every task once with its present attempt,
and nothing starts from a checkpoint that is incomplete, damaged, given up or deleted. At the end the faults
stop: everybody must run, and a checkpoint must complete.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto import control_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Node
from tests.tmaster.checkpoint_world import CheckpointWorld
from tests.tmaster.test_tmaster_random import act, heal

ACTIONS = (
    "beat",
    "round",
    "round",
    "round",
    "answer",
    "write",
    "late_answer",
    "kill",
    "kill_two",
    "lost_frames",
    "lost_barrier",
    "decline",
    "mute",
    "speak",
    "full",
    "damage",
    "checkpoint",
    "savepoint",
    "rewind",
    "delete",
    "deleted",
    "master",
    "restart_stmgr",
    "restart_task",
    "silence",
    "stuck",
    "activate",
    "deactivate",
    "restart_request",
    "update",
    "long_tick",
    "pause",
)


def interfere(w: CheckpointWorld, action: str, rng: random.Random, asked: dict[int, int]) -> None:
    w.reconcile()
    task = rng.choice(w.tasks())
    number = task.status.task_id
    known = [r.checkpoint for r in w.store[Node.CHECKPOINTS].complete] if Node.CHECKPOINTS in w.store else []
    some = rng.choice([*known, 0, 99])
    if action in ("answer", "write", "deleted"):
        {"answer": w.answer_checkpoint, "write": w.write, "deleted": w.delete}[action]()
    elif action in ("late_answer", "lost_barrier", "decline"):
        message = w.answer_of(task)
        if action == "late_answer":
            message.attempt = max(0, message.attempt - rng.randint(0, 1))
            message.epoch = max(0, message.epoch - rng.randint(0, 1))
        elif action == "decline":
            message.error = "too much was held back"
        else:
            message.error, message.lost_data = "frames are missing", True
        w.feed(events.TaskAnswered(message))
    elif action in ("kill", "kill_two"):
        for victim in [number] if action == "kill" else [number, rng.choice(w.tasks()).status.task_id]:
            w.kill(victim)
    elif action == "lost_frames":
        attempt = max(0, task.status.attempt - rng.randint(0, 1))
        w.feed(events.DataLost(control_pb2.DataLost(stmgr_id="stmgr-1", attempt=attempt, task_id=number, tuples=3)))
    elif action in ("mute", "speak"):
        w.mute = {number} if action == "mute" else set()
    elif action == "full":
        w.full = not w.full
    elif action == "damage" and known and rng.random() < 0.3:
        w.damaged.add(rng.choice(known))
    elif action in ("checkpoint", "savepoint"):
        asked[w.request(events.CheckpointRequested, action == "savepoint")] = w.epoch
    elif action == "rewind":
        asked[w.request(events.RewindRequested, some)] = w.epoch
    elif action == "delete":
        asked[w.request(events.DeleteRequested, (some,))] = w.epoch
    elif action == "pause":
        w.now += 60.0
    else:
        act(w, action, rng, asked)


def recover(w: CheckpointWorld) -> None:
    """No further faults; what has failed for good is restarted, as people would."""
    w.mute, w.full, w.damaged = set(), False, set()
    w.unstartable.clear()
    for _ in range(60):
        heal(w)
        w.round()
    if w.life == control_pb2.LIFE_FAILED:
        w.request(events.RestartRequested, -1, 0)
    for _ in range(100):
        heal(w)
        w.round()


#: What Hypothesis draws.
DRAWN = {
    "actions": st.lists(st.sampled_from(ACTIONS), max_size=80),
    "seed": st.integers(0, 2**32),
    "containers": st.integers(1, 3),
    "aligned_s": st.sampled_from([0.0, 1.0, 60.0]),
}


@pytest.mark.parametrize("examples", [15, pytest.param(150, marks=pytest.mark.heavy)])
def test_any_order_of_faults_keeps_the_invariants_and_ends_with_a_complete_checkpoint(examples: int) -> None:
    tried = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    tried(given(**DRAWN)(any_order))()


def any_order(actions: list[str], seed: int, containers: int, aligned_s: float) -> None:
    settings_of = CheckpointSettings(
        interval_s=5.0,
        timeout_s=8.0,
        savepoint_timeout_s=20.0,
        min_pause_s=1.0,
        aligned_timeout_s=aligned_s,
        allow_empty=True,
    )
    w = CheckpointWorld(containers=containers, checkpoints=settings_of)
    rng, asked = random.Random(seed), dict[int, int]()
    for action in actions:
        interfere(w, action, rng, asked)
    recover(w)
    assert not [token for token, epoch in asked.items() if epoch == w.epoch and token not in w.replies]
    assert w.machine.operation is None and Node.UPDATE not in w.store and not w.machine.shared.book.held_to_empty
    assert w.life in (control_pb2.LIFE_RUNNING, control_pb2.LIFE_PAUSED), w.status().cause
    shown = w.store[Node.PHYSICAL_PLAN]
    assert all(region.started for region in shown.regions)
    for region in shown.regions:
        for task, epoch in region.epochs.items():
            status = w.task(task).status
            assert (status.epoch, status.attempt) == (epoch, region.attempt), (
                "another process than the one that restored"
            )
    before = len(w.written)
    w.until(lambda: len(w.written) > before, 20)
