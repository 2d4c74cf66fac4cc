"""Syncers of a job: a plan ends as a whole or gives back what was, whoever dies at whatever point."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heronpy.common.errors import VersionMismatchError
from heronpy.jobs.alerting import of_running
from heronpy.jobs.differ import EFFECT_OF, Effect
from heronpy.jobs.documents import Document, Leaves
from heronpy.jobs.plans import STOPPED, Check, End, Prove, Resize, Seen, Start, Step, Stop, Update, plan_of
from heronpy.jobs.syncer import (
    AGAIN_S,
    PROVE_MAX_S,
    TRIES_MAX,
    Running,
    StepError,
    advance,
    failed,
    released,
    succeeded,
    taken_over,
    to_perform,
)
from heronpy.statemgr import paths
from tests.support.memory_state import MemoryStateManager, MemoryStore

DAY: Leaves = {
    ("definition",): "a" * 64,
    ("run",): "running",
    ("parallelism", "read"): 1,
    ("parallelism", "work"): 3,
    ("resources", "work", "ram"): 1 << 28,
    ("config", "limit"): 7,
}
MORE = DAY | {("parallelism", "work"): 5}
V2 = DAY | {("definition",): "b" * 64, ("parallelism", "work"): 4}
LIVE = {"run", "parallelism", "resources", "config"}

targets = st.fixed_dictionaries(
    {
        ("definition",): st.sampled_from(["a" * 64, "b" * 64]),
        ("run",): st.sampled_from(["running", "paused", "stopped"]),
        ("parallelism", "read"): st.integers(1, 2),
        ("parallelism", "work"): st.integers(1, 3),
        ("resources", "work", "ram"): st.sampled_from([1 << 28, 1 << 29]),
    },
    optional={
        ("config", "limit"): st.integers(1, 2),
        ("concurrency", "work"): st.integers(1, 2),
        ("slo", "lag_s"): st.sampled_from([5.0, 9.0]),
        ("settings", "heron.checkpoint.interval_s"): st.sampled_from([5.0, 10.0]),
    },
)


class World:
    """The topology of the job's name, as a driver finds and changes it."""

    def __init__(self) -> None:
        self.id = ""
        self.alive = False
        self.leaves: Leaves = {}
        self.broken: set[str] = set()
        """Definitions whose topology crashes."""
        self.full = False
        """Whether no program can be unpacked."""
        self.running_s = 60.0
        self.performed: list[str] = []
        self.restarted: dict[str, int] = {}

    def what(self) -> Any:
        """What there is, whatever its id."""
        leaves = {path: value for path, value in self.leaves.items() if EFFECT_OF[path[0]] is not Effect.COMMIT}
        return (self.alive, leaves) if self.alive else (False, {})

    def see(self) -> Seen:
        trouble = "'work' crashes" if self.leaves.get(("definition",)) in self.broken else ""
        live = {path: value for path, value in self.leaves.items() if path[0] in {*LIVE, "concurrency"}}
        return Seen(
            self.id, self.alive, False, live if self.alive else {}, 1, 0.0 if trouble else self.running_s, trouble
        )

    def perform(self, step: Step, part: bool = False) -> dict[str, int]:
        """Perform a step, or only its first half."""
        self.performed.append(type(step).__name__)
        if self.full and isinstance(step, Check):
            raise StepError("the disk is full")
        if isinstance(step, Start):
            assert not self.alive or step.topology_id == self.id, "two topologies of a name"
            self.id, self.leaves = step.topology_id, dict(step.leaves)
            self.alive = not part
        elif isinstance(step, (Stop, End)):
            assert self.id in (step.topology_id, ""), "another topology was stopped"
            self.alive = False
            if not part:
                self.id, self.leaves = "", {}
        elif not isinstance(step, Check) and not part:
            if not self.alive or self.id != step.topology_id:
                raise StepError(f"topology {step.topology_id} is not there")
            for one in step.differences:
                self.leaves.pop(one.path, None)
                if one.new is not None:
                    self.leaves[one.path] = one.new
        return dict(self.restarted)


class Syncing:
    """A syncer of one job, whose state is in a node."""

    def __init__(self, world: World, desired: Leaves, store: MemoryStore | None = None, owner: str = "a") -> None:
        self.world, self.desired, self.owner = world, desired, owner
        self.state = MemoryStateManager(store)
        self.now = 1000.0
        self.ids = (f"Day-{owner}{number}" for number in itertools.count())
        node = self.state.get(paths.running_job("Day"))
        self.running = msgspec.json.decode(node[0], type=Running) if node else Running(owner)
        self.version = node[1] if node else 0
        self.keep(taken_over(self.running, owner))

    def keep(self, running: Running) -> None:
        data = msgspec.json.encode(running)
        self.version = self.state.set(paths.running_job("Day"), data, self.version)
        self.running = msgspec.json.decode(data, type=Running)
        assert self.running == running

    def look(self) -> Step | None:
        """Decide; the step to perform."""
        versions = {"oncall": len(self.desired)}
        self.keep(advance(self.running, self.desired, versions, self.world.see(), self.now, next(self.ids)))
        return to_perform(self.running, self.now)

    def turn(self) -> bool:
        """One step; False when there is nothing to perform."""
        step = self.look()
        if step is None:
            return False
        try:
            restarted = self.world.perform(step)
        except StepError as error:
            self.keep(failed(self.running, str(error), error.fatal, self.now))
        else:
            self.keep(succeeded(self.running, restarted, self.now))
        return True

    def sync(self) -> Running:
        for _ in range(30):
            if not self.turn():
                return self.running
        raise AssertionError("it comes to no end")

    def successor(self) -> Syncing:
        return Syncing(self.world, self.desired, self.state.store, self.owner + "'")


def synced(leaves: Leaves) -> Syncing:
    syncing = Syncing(World(), leaves)
    syncing.sync()
    assert dict(syncing.running.leaves) == leaves
    return syncing


def expected(desired: Leaves) -> Any:
    leaves = {path: value for path, value in desired.items() if EFFECT_OF[path[0]] is not Effect.COMMIT}
    return (False, {}) if desired["run",] == "stopped" else (True, leaves)


def test_each_key_of_a_document_has_an_effect() -> None:
    assert set(EFFECT_OF) == set(Document.__struct_fields__)


@given(targets, targets)
def test_a_job_becomes_what_it_should_be_and_then_rests(before: Leaves, after: Leaves) -> None:
    syncing = synced(before)
    syncing.desired = after
    running = syncing.sync()
    assert syncing.world.what() == expected(after)
    assert dict(running.leaves) == after and running.plan is None and running.drift_since is None
    assert running.state == ("STOPPED" if after["run",] == "stopped" else "IN_SYNC")
    performed = len(syncing.world.performed)
    assert syncing.sync() == running and len(syncing.world.performed) == performed


@given(targets, targets, st.integers(0, 6), st.booleans())
def test_the_undo_of_any_step_gives_what_was(before: Leaves, after: Leaves, fails_at: int, half: bool) -> None:
    syncing = synced(before)
    was = syncing.world.what()
    syncing.desired = after
    for _ in range(fails_at):
        assume(syncing.turn() and syncing.running.plan is not None)
    step = syncing.look()
    assume(step is not None)
    assert step is not None
    if half:
        syncing.world.perform(step, part=True)
    syncing.keep(failed(syncing.running, "the host is full", False, syncing.now))
    assert syncing.running.state == "UNDOING"
    running = syncing.sync()
    assert running.state == "WAITING" and running.retry_at == syncing.now + 30 and running.plan is None
    assert dict(running.leaves) == before, "nothing is committed"
    if after["run",] != "stopped":  # of a stop that has failed nothing is given back: it is tried again
        assert syncing.world.what() == was
    syncing.now += 30
    syncing.sync()
    assert syncing.world.what() == expected(after)


@given(
    targets, targets, st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["before", "half", "after"])), max_size=4)
)
def test_a_successor_redoes_the_step_under_way_and_comes_to_the_same(
    before: Leaves, after: Leaves, deaths: list[tuple[int, str]]
) -> None:
    syncing = synced(before)
    syncing.desired = after
    for turns, how in deaths:
        for _ in range(turns):
            syncing.turn()
        step = syncing.look()
        if step is not None and how != "before":
            syncing.world.perform(step, part=how == "half")
        syncing = syncing.successor()
    running = syncing.sync()
    assert syncing.world.what() == expected(after)
    assert dict(running.leaves) == after and running.state in ("IN_SYNC", "STOPPED")


def test_a_successor_sees_no_sizes_as_proof_that_containers_were_replaced() -> None:
    syncing = synced(DAY)
    syncing.desired = DAY | {("resources", "work", "ram"): 1 << 29}
    step = syncing.look()
    assert isinstance(step, Resize)
    syncing.world.perform(step)  # and it dies before it has said so
    successor = syncing.successor()
    successor.world.performed.clear()
    assert successor.sync().state == "IN_SYNC" and successor.world.performed == ["Resize"]


def steps_of(syncing: Syncing, desired: Leaves) -> Iterator[str]:
    syncing.desired = desired
    syncing.world.performed.clear()
    syncing.sync()
    yield from syncing.world.performed


@pytest.mark.parametrize(
    ("desired", "performed"),
    [
        (DAY | {("slo", "lag_s"): 5.0}, []),
        (DAY | {("config", "limit"): 8, ("concurrency", "work"): 4}, ["Configure"]),
        (DAY | {("run",): "paused"}, ["SetState"]),
        (DAY | {("resources", "work", "ram"): 1 << 29}, ["Resize"]),
        (MORE, ["Update"]),
        (V2, ["Check", "Stop", "Start"]),
        (DAY | {("place", "pool"): "small"}, ["Check", "Stop", "Start"]),
        (DAY | {("run",): "stopped"}, ["Stop"]),
        (STOPPED, ["Stop"]),
    ],
)
def test_only_what_differs_is_done(desired: Leaves, performed: list[str]) -> None:
    assert list(steps_of(synced(DAY), desired)) == performed


def test_what_died_is_started_again_without_a_check() -> None:
    syncing = synced(DAY)
    syncing.world.alive = False
    assert list(steps_of(syncing, DAY)) == ["End", "Start"]
    assert syncing.world.what() == expected(DAY)
    assert syncing.running.restarted == sum(n for path, n in DAY.items() if path[0] == "parallelism") > 0
    syncing.world.alive = False
    rested = syncing.running
    syncing.look()
    during = syncing.running
    (opened,) = of_running("Day", rested, during, 0.0)
    assert (opened.cause, opened.text, opened.over) == ("died", "the topology died; it is being restarted", False)
    (over,) = of_running("Day", during, syncing.sync(), 0.0)
    assert (over.cause, over.over) == ("died", True)


def test_a_stop_that_is_not_possible_yet_is_tried_until_it_is() -> None:
    syncing = synced(DAY)
    syncing.desired = DAY | {("run",): "stopped"}
    for _ in range(4 * TRIES_MAX):
        step = syncing.look()
        if isinstance(step, Stop):
            syncing.keep(failed(syncing.running, "topology 'Day' is DEGRADED", False, syncing.now))
        assert syncing.look() is None and syncing.running.state == "WAITING"
        syncing.now = syncing.running.retry_at
    assert syncing.sync().state == "STOPPED"


class TestATopologyThatCannotBeRestarted:
    """Its job has not changed."""

    def alerts(self, syncing: Syncing, looks: int) -> list[tuple[str, bool]]:
        """The alerts of this many looks, one at the end of each pause; each start fails."""
        told = []
        for _ in range(looks):
            while True:
                before, step = syncing.running, syncing.look()
                told += of_running("Day", before, syncing.running, syncing.now)
                if step is None:
                    break
                before = syncing.running
                if isinstance(step, Start):
                    syncing.keep(failed(before, "the engine refuses it", False, syncing.now))
                else:
                    syncing.keep(succeeded(before, syncing.world.perform(step), syncing.now))
                told += of_running("Day", before, syncing.running, syncing.now)
            syncing.now = max(syncing.now + 1, syncing.running.retry_at)
        return [(one.cause, one.over) for one in told]

    def dead(self) -> Syncing:
        syncing = synced(DAY)
        syncing.world.alive = False
        return syncing

    def test_is_started_every_five_minutes_with_one_alert_until_it_runs(self) -> None:
        syncing = self.dead()
        assert self.alerts(syncing, TRIES_MAX - 1) == [("died", False)] and syncing.running.state == "WAITING"
        for _ in range(3):
            at = syncing.now
            assert self.alerts(syncing, 1) == [] and syncing.now == at + AGAIN_S
            assert (syncing.running.state, syncing.running.failure) == ("QUARANTINED", "the engine refuses it")
        assert syncing.running.died and syncing.running.restarted == 4, "each task counts once"
        down = syncing.running
        assert syncing.sync().state == "IN_SYNC" and syncing.world.what() == expected(DAY)
        (over,) = of_running("Day", down, syncing.running, syncing.now)
        assert (over.cause, over.over, syncing.running.died) == ("died", True, False)

    def test_the_alert_is_over_when_it_is_stopped(self) -> None:
        syncing = self.dead()
        self.alerts(syncing, TRIES_MAX + 1)
        syncing.desired = DAY | {("run",): "stopped"}
        assert self.alerts(syncing, 1) == [("died", True)] and syncing.running.state == "STOPPED"

    def test_a_change_meanwhile_that_fails_has_its_own_alert(self) -> None:
        syncing = self.dead()
        self.alerts(syncing, TRIES_MAX + 1)
        syncing.desired = V2
        assert self.alerts(syncing, TRIES_MAX) == [("plan failed", False)] * 2 and syncing.running.died
        assert self.alerts(syncing, 3) == [] and syncing.running.died, "the version before is tried again"
        syncing.now = syncing.running.retry_at
        assert syncing.sync().state == "QUARANTINED" and syncing.world.what() == expected(DAY)
        assert not syncing.running.died and syncing.running.retry_at == 0


def test_what_is_stopped_or_changed_by_people_has_not_died() -> None:
    syncing = synced(DAY)
    for desired in (DAY | {("run",): "stopped"}, DAY, V2):
        syncing.desired = desired
        for _ in range(10):
            if not syncing.turn():
                break
            assert not syncing.running.died
    assert syncing.running.restarted == 0


def test_what_dies_during_an_update_needs_no_undo_and_is_started_as_it_should_be() -> None:
    syncing = synced(DAY)
    syncing.desired = MORE
    assert isinstance(syncing.look(), Update)
    syncing.world.alive = False
    assert syncing.sync().state == "WAITING" and dict(syncing.running.leaves) == DAY
    syncing.now += 30
    assert syncing.sync().state == "IN_SYNC" and syncing.world.what() == expected(MORE)


def test_what_somebody_else_changed_is_put_right() -> None:
    syncing = synced(DAY)
    syncing.world.leaves["parallelism", "work"] = 9
    assert list(steps_of(syncing, DAY)) == ["Update"]


def test_what_came_to_its_end_is_not_started_again() -> None:
    seen = Seen("Day-a0", finished=True)
    assert plan_of(DAY, {}, DAY, seen, 0.0, "new") is None
    assert plan_of(V2, {}, DAY, seen, 0.0, "new") is not None
    proving = advance(Running("a"), DAY, {}, Seen(), 0.0, "Day-a0")
    for _ in range(2):
        proving = succeeded(proving, {}, 0.0)
    ended = advance(proving, DAY, {}, seen, 0.0, "new")
    assert ended.state == "FINISHED" and ended.topology_id == "Day-a0" and dict(ended.leaves) == DAY


def test_a_deposed_syncer_cannot_commit() -> None:
    old = synced(DAY)
    old.desired = MORE
    step = old.look()
    assert step is not None
    new = old.successor()
    restarted = old.world.perform(step)
    with pytest.raises(VersionMismatchError):
        old.keep(succeeded(old.running, restarted, old.now))
    new.sync()
    assert dict(new.running.leaves) == MORE and new.running.owner == "a'"
    with pytest.raises(VersionMismatchError):
        old.look()


class TestABrokenDeploy:
    def test_the_old_version_runs_again_from_its_savepoint(self) -> None:
        syncing = synced(DAY)
        old = syncing.world.id
        syncing.world.broken.add("b" * 64)
        assert list(steps_of(syncing, V2)) == ["Check", "Stop", "Start", "End", "Start"]
        assert syncing.world.what() == expected(DAY) and syncing.running.topology_id == syncing.world.id != old
        assert syncing.running.failure == "'work' crashes"

    def test_it_is_not_tried_again_because_each_retry_would_stop_the_old_version(self) -> None:
        syncing = synced(DAY)
        syncing.world.broken.add("b" * 64)
        syncing.desired = V2
        assert syncing.sync().state == "QUARANTINED" and dict(syncing.running.leaves) == DAY
        syncing.now += 1e6
        assert not syncing.turn()
        syncing.world.broken.clear()
        syncing.keep(released(syncing.running))
        assert syncing.sync().state == "IN_SYNC" and syncing.world.what() == expected(V2)

    def test_the_old_version_is_kept_running_while_the_new_one_is_given_up(self) -> None:
        syncing = synced(DAY)
        syncing.world.broken.add("b" * 64)
        syncing.desired = V2
        given_up = syncing.sync()
        syncing.world.alive = False
        assert list(steps_of(syncing, V2)) == ["End", "Start"] and syncing.world.what() == expected(DAY)
        kept = syncing.running
        assert (kept.state, kept.failure, kept.tried) == ("QUARANTINED", given_up.failure, given_up.tried)

        syncing.world.alive = False
        syncing.world.broken.add("a" * 64)
        assert list(steps_of(syncing, V2)) == ["End", "Start", "End"] and not syncing.turn()
        failure = "'work' crashes; the previous version does not start either: 'work' crashes"
        assert (syncing.running.state, syncing.running.failure) == ("QUARANTINED", failure)
        syncing.now += AGAIN_S
        assert list(steps_of(syncing, V2)) == ["Start", "End"] and syncing.running.failure == failure
        syncing.now += AGAIN_S
        syncing.world.broken.clear()
        assert list(steps_of(syncing, V2)) == ["Start"] and syncing.world.what() == expected(DAY)
        assert list(steps_of(syncing, V2 | {("run",): "stopped"})) == ["Stop"] and syncing.running.state == "STOPPED"

    def test_a_plan_that_fails_earlier_is_tried_five_times_with_growing_pauses(self) -> None:
        syncing = synced(DAY)
        syncing.desired = V2
        syncing.world.full = True
        syncing.world.performed.clear()
        pauses = []
        while syncing.sync().state == "WAITING":
            pauses.append(syncing.running.retry_at - syncing.now)
            syncing.now += pauses[-1]
        assert pauses == [30, 60, 120, 240] and syncing.running.state == "QUARANTINED"
        assert syncing.world.performed.count("Check") == TRIES_MAX and syncing.world.what() == expected(DAY)
        syncing.now += 1e6
        assert not syncing.turn(), "nothing is tried any more"
        assert syncing.running.drift_s(syncing.now) == 450 + 1e6
        syncing.keep(released(syncing.running))
        syncing.sync()
        assert syncing.world.performed.count("Check") == TRIES_MAX + 1 and syncing.running.state == "WAITING"
        syncing.world.full = False
        syncing.desired = MORE
        assert syncing.sync().state == "IN_SYNC" and syncing.running.tries == 0 and syncing.running.failure == ""
        assert syncing.running.drift_since is None and syncing.running.drifted_s == 450 + 1e6

    def test_a_clock_that_is_set_back_makes_no_pause_longer(self) -> None:
        syncing = synced(DAY)
        syncing.world.full = True
        syncing.desired = V2
        assert syncing.sync().state == "WAITING" and not syncing.turn()
        syncing.now -= 1e6
        syncing.world.performed.clear()
        assert syncing.sync().state == "WAITING" and syncing.world.performed.count("Check") == 1

    def test_a_fatal_failure_is_not_tried_again(self) -> None:
        syncing = synced(DAY)
        syncing.desired = V2
        assert isinstance(syncing.look(), Check)
        syncing.keep(failed(syncing.running, "day2.py does not import", True, syncing.now))
        assert syncing.sync().state == "QUARANTINED" and syncing.running.failure == "day2.py does not import"
        assert syncing.world.what() == expected(DAY)

    @pytest.mark.parametrize("desired", [V2 | {("run",): "stopped"}, STOPPED])
    def test_a_stop_ends_the_proof_at_once(self, desired: Leaves) -> None:
        syncing = synced(DAY)
        old = syncing.world.id
        syncing.world.running_s = 10.0
        assert list(steps_of(syncing, V2)) == ["Check", "Stop", "Start"]
        assert syncing.running.plan is not None and isinstance(syncing.running.plan.step, Prove)
        new = syncing.world.id
        assert list(steps_of(syncing, desired)) == ["Stop"] and new != old
        running = syncing.running
        assert not syncing.world.alive and running.state == "STOPPED" and dict(running.leaves) == desired

    def test_one_that_is_to_be_stopped_and_crashes_still_gives_back_the_old_state(self) -> None:
        syncing = synced(DAY)
        syncing.world.running_s = 10.0
        assert list(steps_of(syncing, V2)) == ["Check", "Stop", "Start"]
        syncing.world.broken.add("b" * 64)
        stopped = V2 | {("run",): "stopped"}
        assert list(steps_of(syncing, stopped)) == ["End", "Start"] and syncing.running.failure == "'work' crashes"
        assert list(steps_of(syncing, stopped)) == ["Stop"] and syncing.running.state == "STOPPED"

    def test_one_that_never_gets_ready_is_given_up(self) -> None:
        plan = plan_of(DAY, {}, {}, Seen(), 0.0, "new")
        assert plan is not None and [type(step) for step in plan.steps][:3] == [Check, Start, Prove]
        waiting = Running("a", plan=msgspec.structs.replace(plan, at=2), state="SYNCING")
        slow = Seen("new", alive=True, running_s=10.0)
        assert advance(waiting, DAY, {}, slow, PROVE_MAX_S - 1, "x") == waiting
        assert advance(waiting, DAY, {}, slow, -PROVE_MAX_S, "x").state == "UNDOING", "the clock was set back"
        given_up = advance(waiting, DAY, {}, slow, PROVE_MAX_S, "x")
        assert given_up.state == "UNDOING" and "did not run without trouble within 600 s" in given_up.failure
        assert isinstance(to_perform(given_up, PROVE_MAX_S), End)

    def test_time_in_a_queue_is_no_part_of_the_time_limit(self) -> None:
        plan = plan_of(DAY, {}, {}, Seen(), 0.0, "new")
        assert plan is not None
        running = Running("a", plan=msgspec.structs.replace(plan, at=2), state="SYNCING")
        queued = Seen("new", alive=True, waits="container 1 is in the queue")
        for hour in range(24):
            running = advance(running, DAY, {}, queued, 3600.0 * hour, "x")
            assert (running.state, running.waits) == ("SYNCING", queued.waits)
        at, slow = 23 * 3600.0, Seen("new", alive=True, running_s=10.0)
        running = advance(running, DAY, {}, slow, at + PROVE_MAX_S - 1, "x")
        assert (running.state, running.waits) == ("SYNCING", "")
        assert advance(running, DAY, {}, slow, at + PROVE_MAX_S, "x").state == "UNDOING"

    def undoing(self) -> Syncing:
        """A job whose undo of a deploy has failed five times."""
        syncing = synced(DAY)
        syncing.world.broken.add("b" * 64)
        syncing.desired = V2
        while not (syncing.running.plan and syncing.running.plan.undoing):
            syncing.turn()
        for _ in range(TRIES_MAX):
            syncing.now = max(syncing.now, syncing.running.retry_at)
            assert isinstance(syncing.look(), Start)
            syncing.keep(failed(syncing.running, "the host is away", False, syncing.now))
        assert syncing.running.state == "QUARANTINED" and syncing.look() is None
        return syncing

    def test_an_undo_that_fails_goes_on_when_released(self) -> None:
        syncing = self.undoing()
        assert syncing.running.failure == "'work' crashes, and the change could not be undone: the host is away"
        syncing.keep(released(syncing.running))
        syncing.sync()
        assert syncing.world.what() == expected(DAY) and syncing.running.failure == "'work' crashes"

    @pytest.mark.parametrize("fatal", [False, True])
    def test_the_start_of_the_old_version_is_tried_again_until_it_succeeds(self, fatal: bool) -> None:
        syncing = self.undoing()
        for _ in range(3):
            syncing.now += AGAIN_S - 1
            assert syncing.look() is None
            syncing.now += 1
            assert isinstance(syncing.look(), Start)
            syncing.keep(failed(syncing.running, "the disk is away", fatal, syncing.now))
            assert syncing.running.failure == "'work' crashes, and the change could not be undone: the disk is away"
        syncing.now += AGAIN_S
        running = syncing.sync()
        assert syncing.world.what() == expected(DAY) and syncing.running.topology_id == syncing.world.id
        assert (running.state, running.failure, running.plan) == ("QUARANTINED", "'work' crashes", None)

    def test_an_undo_that_leaves_the_topology_running_is_given_up(self) -> None:
        syncing = synced(DAY)
        syncing.desired = MORE
        assert isinstance(syncing.look(), Update)
        for _ in range(TRIES_MAX + 1):
            syncing.keep(failed(syncing.running, "the master is away", False, syncing.now))
            syncing.now = max(syncing.now, syncing.running.retry_at)
        syncing.now += 1e6
        assert syncing.running.state == "QUARANTINED" and to_perform(syncing.running, syncing.now) is None


def test_a_topology_that_is_not_the_jobs_is_left_alone() -> None:
    world = World()
    world.id, world.alive, world.leaves = "Day-of-ann", True, dict(DAY)
    syncing = Syncing(world, MORE)
    assert syncing.sync().state == "QUARANTINED" and world.performed == [] and world.id == "Day-of-ann"
    assert "topology Day-of-ann has the name of the job but does not belong to it" in syncing.running.failure


def test_restarts_of_tasks_whose_own_specification_did_not_change_are_counted() -> None:
    syncing = synced(DAY)
    syncing.world.restarted = {"work": 3, "read": 1}
    syncing.desired = MORE
    running = syncing.sync()
    assert (running.restarted, running.restarts_avoidable) == (4, 1)
    syncing.desired = MORE | {("definition",): "b" * 64}
    syncing.turn()
    assert syncing.running.restarts_avoidable == 1, "a deploy changes what each task is"
