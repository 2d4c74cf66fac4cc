"""The state of tasks against a plain model: captured, written late, completed or not, restored, re-scaled."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from heronpy.api.state import keyed_state
from heronpy.ckpt.snapshot import CheckpointSuperseded
from heronpy.common.errors import HeronError, TopologyError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto.checkpoint_pb2 import SAVEPOINT
from heronpy.storage.checkpoint_files import StoreError
from heronpy.storage.checkpoints import CheckpointStore, files_of
from heronpy.storage.locations import location_of
from tests.support.states import COMPONENT, NAME, Taken, Tasks, fill

GROUPS = 16
#: Everything in files, and compaction soon: what a test wants to go wrong.
FILES = CheckpointSettings(key_groups=GROUPS, inline_max_bytes=0, compact_ratio=0.9, fsync=False)
KEYS = st.integers(0, 9) | st.sampled_from(["a", ("t", 1)])
VALUES = st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


def copied(model: dict[Any, Any]) -> dict[Any, Any]:
    return {key: list(value) if isinstance(value, list) else value for key, value in model.items()}


class Life(RuleBasedStateMachine):
    """A component through checkpoints, failures and changes of its parallelism."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="heron-state-"))
        self.store = CheckpointStore(self.folder / "wordy1", fsync=False)
        self.settings = FILES
        self.tasks = Tasks(self.store, self.settings, 2)
        self.model: dict[Any, Any] = {}
        self.number = 0
        self.attempt = 1
        self.taken: Taken | None = None
        self.at_cut: dict[Any, Any] = {}
        #: Checkpoints were removed since the cut.
        self.removed = False
        self.undelivered: list[Taken] = []
        self.undelivered_aborts: list[Taken] = []
        self.complete: list[tuple[Taken, dict[Any, Any]]] = []

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    # ---- the topology works -----------------------------------------------------------------

    @initialize(ratio=st.sampled_from([0.5, 5.0, 100.0]), parallelism=st.integers(1, 3))
    def begin(self, ratio: float, parallelism: int) -> None:
        """A high ratio makes long chains of deltas."""
        self.settings = replace(FILES, compact_ratio=ratio)
        self.tasks = Tasks(self.store, self.settings, parallelism)

    @rule(key=KEYS, value=VALUES)
    def put(self, key: Any, value: Any) -> None:
        self.tasks.state(key)[key] = value
        self.model[key] = list(value) if isinstance(value, list) else value

    @rule(keys=st.lists(KEYS, max_size=12, unique=True), value=VALUES)
    def put_many(self, keys: list[Any], value: Any) -> None:
        for key in keys:
            self.put(key, list(value) if isinstance(value, list) else value)

    @rule(key=KEYS)
    def delete(self, key: Any) -> None:
        assert self.tasks.state(key).pop(key, "none") == self.model.pop(key, "none")

    @rule(key=KEYS)
    def change_in_place(self, key: Any) -> None:
        if isinstance(self.model.get(key), list):
            self.tasks.state(key)[key].append(7)
            self.model[key].append(7)

    @rule()
    def clear(self) -> None:
        for task in self.tasks.tasks:
            task.keyed(NAME).clear()
        self.model.clear()

    # ---- checkpoints ------------------------------------------------------------------------

    @rule()
    def cut(self) -> None:
        """A checkpoint begins; one under way is given up, and the tasks may hear of that before or after."""
        if self.taken is not None:
            self.undelivered_aborts.append(self.taken)
        self.number += 1
        self.taken = self.tasks.begin(self.number)
        self.at_cut, self.removed = copied(self.model), False

    @precondition(lambda self: self.taken is not None)
    @rule()
    def write(self) -> None:
        """However late: what is written is the state at the cut.

        It fails, and nothing is lost, if a file that it builds on was removed after the cut: tasks that have not heard
        of later checkpoints build on an old one.
        """
        taken = self.taken
        self.taken = None
        assert taken is not None
        try:
            taken.persist()
            taken.write()
        except StoreError:
            if not self.removed:
                raise
            taken.abort()
            return
        self.complete.append((taken, self.at_cut))
        self.undelivered.append(taken)
        # A look at what a restore would give.
        assert Tasks(self.store, self.settings, len(self.tasks.tasks), taken.location).content() == self.at_cut

    @rule(keys=st.lists(KEYS, min_size=1, max_size=3), gone=st.booleans())
    def checkpoint(self, keys: list[Any], gone: bool) -> None:
        """What mostly happens: some work, a checkpoint, and everybody hears of it."""
        for key in keys:
            self.put(key, self.number)
        if gone:
            self.delete(keys[0])
        self.cut()
        self.write()
        self.deliver()

    @rule()
    def deliver(self) -> None:
        while self.undelivered:
            self.undelivered.pop(0).complete()

    @rule()
    def deliver_aborts(self) -> None:
        while self.undelivered_aborts:
            self.undelivered_aborts.pop().abort()

    @precondition(lambda self: self.taken is not None)
    @rule(persisted=st.booleans())
    def abort(self, persisted: bool) -> None:
        assert self.taken is not None
        if persisted:
            self.taken.persist()
        self.taken.abort()
        self.taken = None

    @precondition(lambda self: len(self.complete) > 2)
    @rule()
    def retire(self) -> None:
        """What older checkpoints alone name goes."""
        self.complete, gone = self.complete[-2:], self.complete[:-2]
        self.store.discard([taken.metadata for taken, _ in gone], [taken.metadata for taken, _ in self.complete])
        self.removed = self.removed or bool(gone)

    @rule()
    def sweep(self) -> None:
        self.store.sweep([taken.metadata for taken, _ in self.complete])

    # ---- failures ---------------------------------------------------------------------------

    @precondition(lambda self: self.number % 4 == 3)
    @rule(back=st.integers(0, 1), parallelism=st.sampled_from([0, 0, 0, 1, 2, 7, 20]), moved=st.booleans())
    def restore(self, back: int, parallelism: int, moved: bool) -> None:
        """All tasks come back, sometimes from the one before, as others, or from a moved tree."""
        parallelism = parallelism or len(self.tasks.tasks)
        if len(self.complete) <= back:
            location, self.model = "", {}
        else:
            taken, model = self.complete[-1 - back]
            self.complete = self.complete[: len(self.complete) - back]
            self.model, location = copied(model), location_of(self.store.folder, taken.number)
        self.attempt += 1
        self.undelivered, self.undelivered_aborts, self.taken = [], [], None
        if moved:
            target = self.folder / f"moved{self.attempt}" / "wordy1"
            if self.store.folder.exists():
                shutil.copytree(self.store.folder, target)
                shutil.rmtree(self.store.folder)
            location = location and location_of(target, taken.number)
            self.store = CheckpointStore(target, fsync=False)
        self.tasks = Tasks(self.store, self.settings, parallelism, location, self.attempt)

    @invariant()
    def the_same(self) -> None:
        content = {}
        for task in self.tasks.tasks:
            # Not through items(): that would mark what can change as changed.
            content.update({key: value for key, value, _ in task.keyed(NAME).dump()})
        assert content == self.model
        for taken, _ in self.complete:
            for ref in files_of(taken.metadata):
                assert (self.store.folder / ref.path).stat().st_size == ref.bytes


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


# ---- single things ----------------------------------------------------------------------------


def test_a_checkpoint_fails_whose_base_was_removed_and_the_next_one_does_not() -> None:
    """Its tasks have heard of none of the two checkpoints for which the one that they build on was removed."""
    life = Life()
    life.begin(ratio=5.0, parallelism=1)
    try:
        life.checkpoint(gone=False, keys=[0])
        life.clear()
        for _ in range(2):
            life.cut()
            life.write()
        life.put(key=0, value=0)
        life.cut()
        life.retire()
        before = len(life.complete)
        life.write()
        assert len(life.complete) == before, "it names a file that is gone"
        life.cut()
        life.write()
        life.the_same()
        assert len(life.complete) == before + 1
    finally:
        life.teardown()


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "wordy1", fsync=False)


def test_other_key_groups_are_refused(store: CheckpointStore) -> None:
    tasks = Tasks(store, FILES)
    fill(tasks, range(5), 1)
    location = tasks.checkpoint(1).location
    with pytest.raises(TopologyError, match=f"set heron.checkpoint.key_groups to {GROUPS}"):
        Tasks(store, CheckpointSettings(key_groups=8), 1, location)


def test_plain_state_and_tuples_under_way_cannot_be_divided(store: CheckpointStore) -> None:
    tasks = Tasks(store, FILES)
    tasks.tasks[0].plain["offset"] = 5
    location = tasks.checkpoint(1).location
    assert Tasks(store, FILES, 1, location).tasks[0].plain == {"offset": 5}
    with pytest.raises(TopologyError, match=f"component '{COMPONENT}' has plain State of 1 task in checkpoint 1"):
        Tasks(store, FILES, 2, location)
    tasks.tasks[0].plain.clear()
    taken = tasks.begin(2)
    taken.persist()
    tasks.tasks[0].write_channel(2, taken.metadata.tasks[0], [b"frame one", b"frame two"], 9)
    taken.write()
    assert Tasks(store, FILES, 1, taken.location).channels == [[b"frame one", b"frame two"]]
    with pytest.raises(TopologyError, match="has 9 tuples in flight to 1 task in checkpoint 2"):
        Tasks(store, FILES, 2, taken.location)


def test_shared_parts_of_a_plain_state_stay_shared(store: CheckpointStore) -> None:
    part: list[int] = [1]
    tasks = Tasks(store, FILES)
    tasks.tasks[0].plain.update(a=part, b=part, c=(1, "x"), d=1 << 80)
    [task] = Tasks(store, FILES, 1, tasks.checkpoint(1).location).tasks
    task.plain["a"].append(2)
    assert task.plain == {"a": [1, 2], "b": [1, 2], "c": (1, "x"), "d": 1 << 80}


def test_a_life_is_saved_and_ends_at_the_same_time(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wall:
        now = 1000.0

        def time(self) -> float:
            return self.now

    wall = Wall()
    monkeypatch.setattr(keyed_state, "time", wall)
    tasks = Tasks(store, FILES)
    state = tasks.state("a", ttl_s=10)
    state["a"] = 1
    wall.now += 5
    state["b"] = [2]
    first = tasks.checkpoint(1)
    del state["b"]
    second = tasks.checkpoint(2)
    assert first.metadata.tasks[0].keyed[0].keys == 2
    wall.now += 4
    assert dict(Tasks(store, FILES, 1, first.location).state("a", ttl_s=10)) == {"a": 1, "b": [2]}
    assert dict(Tasks(store, FILES, 1, second.location).state("a", ttl_s=10)) == {"a": 1}
    wall.now += 1
    restored = Tasks(store, FILES, 1, first.location)
    assert dict(restored.state("a", ttl_s=10)) == {"b": [2]}
    state.clear()
    state["a"] = 3
    wall.now += 10
    third = tasks.checkpoint(3)
    assert Tasks(store, FILES, 1, third.location).content() == {}


def test_a_task_writes_while_its_checkpoint_is_read_in_a_thread(store: CheckpointStore) -> None:
    """What a helper thread writes is the state at the cut, whatever the task does meanwhile."""
    tasks = Tasks(store, FILES)
    fill(tasks, range(3000), "old")
    state = tasks.state(0)
    for number in range(1, 6):
        at_cut = dict(state.items())
        taken = tasks.begin(number)
        done = threading.Event()

        def write(taken: Taken = taken, done: threading.Event = done) -> None:
            taken.persist()
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        turn = 0
        while not done.is_set():
            turn += 1
            key = turn * 7 % 4000
            if turn % 3:
                state[key] = [number, turn]
            else:
                state.pop(key, None)
            if turn % 2 and key in state and isinstance(state[key], list):
                state[key].append("changed in place")
        thread.join()
        taken.write()
        taken.complete()
        assert Tasks(store, FILES, 1, taken.location).content() == at_cut


def test_what_a_newer_cut_overtook_yields_no_snapshot(store: CheckpointStore) -> None:
    tasks = Tasks(store, FILES)
    fill(tasks, range(5), 1)
    old, new = tasks.begin(1), tasks.begin(2)
    with pytest.raises(CheckpointSuperseded, match=r"checkpoint 1 of count\[0\] was abandoned during writing"):
        old.persist()
    new.persist()
    new.write()
    assert Tasks(store, FILES, 1, new.location).content() == dict.fromkeys(range(5), 1)


class Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


def test_what_cannot_be_saved_fails_the_checkpoint_and_names_the_key(store: CheckpointStore) -> None:
    tasks = Tasks(store, FILES)
    tasks.state("good")["good"] = tasks.state("bad")["bad"] = Unpicklable()
    tasks.state("good")["good"] = 1
    taken = tasks.begin(1)
    with pytest.raises(HeronError, match=r"key 'bad' of keyed state 'counts' cannot be saved: .*not me"):
        taken.persist()
    taken.abort()
    del tasks.state("bad")["bad"]
    assert Tasks(store, FILES, 1, tasks.checkpoint(2).location).content() == {"good": 1}
    tasks.tasks[0].plain["bad"] = Unpicklable()
    with pytest.raises(HeronError, match="the State of component count cannot be saved: key 'bad'"):
        tasks.begin(3)


def test_small_state_lies_in_the_metadata(store: CheckpointStore) -> None:
    config = CheckpointSettings(key_groups=GROUPS, fsync=False)
    tasks = Tasks(store, config)
    tasks.tasks[0].plain["offset"] = 1
    fill(tasks, range(20), "x")
    taken = tasks.checkpoint(1)
    assert files_of(taken.metadata) == [] and taken.segments == 1
    fill(tasks, range(3), "y")
    again = tasks.checkpoint(2)
    assert files_of(again.metadata) == [] and again.segments == 1
    restored = Tasks(store, config, 1, again.location)
    assert restored.content() == dict.fromkeys(range(20), "x") | dict.fromkeys(range(3), "y")
    assert restored.tasks[0].plain == {"offset": 1}


def test_savepoints_are_checkpoints_to_a_task(store: CheckpointStore) -> None:
    tasks = Tasks(store, FILES)
    fill(tasks, range(9), 1)
    taken = tasks.checkpoint(1, SAVEPOINT)
    assert taken.metadata.kind == SAVEPOINT and Tasks(store, FILES, 1, taken.location).content() == tasks.content()
