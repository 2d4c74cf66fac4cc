"""The store of jobs: one class for each promise of a change, and for what may be asked."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heronpy.common.errors import ConfigError, DamagedStateError, HeronError, NodeExistsError, NoNodeError, StateError
from heronpy.jobs import store as stores
from heronpy.jobs.allotting import check_maximum
from heronpy.jobs.merge import ConflictError
from heronpy.jobs.store import Store
from heronpy.jobs.syncer import Running
from heronpy.statemgr import paths
from heronpy.statemgr.localfs import LocalStateManager
from tests.jobs.job_worlds import Clock, definition_of, make_job
from tests.support.memory_state import MemoryStateManager

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 30.0
#: A writer that sets `parallelism.work` of layer oncall, or as its arguments say, and prints what became of it.
WRITER = """
import json, sys
from heronpy.common.errors import HeronError
from heronpy.jobs.store import Store
from heronpy.statemgr.localfs import LocalStateManager
root, who, writes = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
store = Store(LocalStateManager(root))
print("ready", flush=True)
sys.stdin.readline()
for layer, changes, version in writes:
    try:
        view = store.set("Day", layer, changes, store.get("Day").versions[layer] if version is None else version, who, "")
        print("done", flush=True)
    except HeronError as error:
        print(type(error).__name__, error, flush=True)
"""


class Writers:
    """Processes that write at once."""

    def __init__(self, root: Path, **writes: list[tuple[str, Any, int | None]]) -> None:
        self.processes = {
            who: subprocess.Popen(
                [sys.executable, "-c", WRITER, str(root), who, json.dumps(what)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            for who, what in writes.items()
        }

    def __enter__(self) -> Writers:
        for process in self.processes.values():
            assert process.stdout and process.stdout.readline() == "ready\n"
        return self

    def go(self) -> dict[str, list[str]]:
        for process in self.processes.values():
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        return {who: process.communicate(timeout=DEADLINE_S)[0].splitlines() for who, process in self.processes.items()}

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()


@pytest.fixture
def state() -> MemoryStateManager:
    return MemoryStateManager()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(state: MemoryStateManager, clock: Clock) -> Store:
    return make_job(state, clock)


def work(store: Store) -> tuple[Any, str]:
    found = store.get("Day").found["parallelism", "work"]
    return found.value, found.layer


def tasks(count: int) -> dict[str, Any]:
    return {"parallelism": {"work": count}}


class TestTheTwoOncalls:
    """The case of the layers: base 10 tasks, the scaler's 15, and two people at once."""

    def test_one_is_refused_and_removing_the_other_lets_the_scaler_through(self, tmp_path: Path) -> None:
        state = LocalStateManager(tmp_path / "state")
        store = make_job(state)
        store.set("Day", "scaler", tasks(15), 0, "scaler", "2,310/s now")
        assert work(store) == (15, "scaler")
        with Writers(tmp_path / "state", ann=[("oncall", tasks(20), 0)], bob=[("oncall", tasks(30), 0)]) as writers:
            said = writers.go()
        [winner] = [who for who, lines in said.items() if lines == ["done"]]
        loser, mine, theirs = ("bob", 20, 30) if winner == "ann" else ("ann", 30, 20)
        assert work(store) == (mine, "oncall")
        [refusal] = said[loser]
        assert refusal.startswith("ConflictError")
        assert f"{mine} by {winner} in the meantime, but {loser}'s change would leave it set to {theirs}" in refusal
        store.unset("Day", "oncall", ["parallelism.work"], 1, winner, "the backfill is done")
        assert work(store) == (mine, "scaler"), "it continues from what runs"
        store.unset("Day", "scaler", ["parallelism"], 2, "scaler", "")
        assert work(store) == (10, "provisioner")
        state.close()


class TestAtomic:
    """A change is there as a whole or not at all."""

    def test_a_refused_change_of_several_keys_leaves_nothing(self, store: Store, state: MemoryStateManager) -> None:
        before = dict(state.store.nodes)
        with pytest.raises(ConfigError, match=r"'parallelism\.wrk' of layer oncall names component 'wrk'"):
            store.set("Day", "oncall", {"role": "ads", "parallelism": {"work": 3, "wrk": 4}}, 0, "ann", "")
        assert state.store.nodes == before

    @pytest.mark.parametrize("dies_at", range(3))
    def test_a_writer_that_dies_between_two_nodes_loses_no_history(
        self, store: Store, state: MemoryStateManager, monkeypatch: pytest.MonkeyPatch, dies_at: int
    ) -> None:
        version = store.get("Day").versions["oncall"]
        writes: list[str] = []

        def dying(path: str, data: bytes, version: int | None = None) -> int:
            if len(writes) == dies_at:
                raise KeyboardInterrupt
            writes.append(path)
            return MemoryStateManager.set(state, path, data, version)

        monkeypatch.setattr(state, "set", dying)
        with pytest.raises(KeyboardInterrupt):
            store.set("Day", "oncall", tasks(20), version, "ann", "")
        monkeypatch.undo()
        changed = dies_at == 2
        assert writes == [paths.job_log("Day"), paths.job("Day")][:dies_at]
        assert work(store) == ((20, "oncall") if changed else (10, "provisioner"))
        log = store.log("Day").changes
        assert [(one.layer, one.version) for one in log] == [("provisioner", 1), ("oncall", 1)][: 1 + changed]


class TestConsistent:
    """No change makes a document that contradicts itself or its program."""

    @pytest.mark.parametrize(
        ("layer", "changes", "said"),
        [
            (
                "oncall",
                {"parallelism": {"wrk": 3}},
                "does not have (did you mean 'work'?); its components are call, read",
            ),
            ("oncall", {"scale": {"min": {"work": 41}}}, "but scale.min would be 41 and scale.max 40; change both"),
            ("oncall", {"definition": "a" * 64}, "definition aaaaaaaaaaaa is missing or damaged; deploy the program"),
            (
                "scaler",
                tasks(41),
                "'parallelism.work' of layer scaler is 41; it must be from scale.min (1) to scale.max (40)",
            ),
            ("scaler", {"parallelism": {"call": 2}}, "because 'call' has no maximum; set scale.max.call"),
            (
                "oncall",
                {"concurrency": {"read": 2}},
                "is for asynchronous bolts, but 'read' is not an asynchronous bolt; set parallelism.read",
            ),
            ("oncall", {}, "no change is given for layer oncall of job 'Day'"),
        ],
    )
    def test_it_is_refused(self, store: Store, layer: str, changes: Any, said: str) -> None:
        with pytest.raises((ConfigError, DamagedStateError), match=re.escape(said)):
            store.set("Day", layer, changes, 0, "ann", "")
        assert store.get("Day").versions == {"base": 0, "provisioner": 1, "scaler": 0, "oncall": 0}

    def test_oncall_is_not_clamped(self, store: Store) -> None:
        store.set("Day", "oncall", tasks(50), 0, "ann", "")
        assert work(store) == (50, "oncall")

    def test_the_scaler_writes_only_when_it_may_act(self, store: Store) -> None:
        store.set("Day", "oncall", {"scale": {"mode": "advise"}}, 0, "ann", "")
        with pytest.raises(ConfigError, match=r"is refused, because scale\.mode is advise; set scale\.mode to act"):
            store.set("Day", "scaler", tasks(15), 0, "scaler", "")

    def test_a_job_keeps_its_definition(self, store: Store) -> None:
        with pytest.raises(ConfigError, match="job 'Day' would have no definition; deploy a program to it"):
            store.unset("Day", "provisioner", ["definition"], 1, "ann", "")

    def test_keys_of_a_component_that_a_new_program_lacks_are_shown_and_do_not_count(self, store: Store) -> None:
        store.set("Day", "oncall", {"parallelism": {"work": 20, "call": 5}}, 0, "ann", "")
        digest = store.define(definition_of("call"))
        view = store.set("Day", "provisioner", {"definition": digest}, 1, "deploy", "v2")
        assert view.document.parallelism == {"call": 5} and view.document.scale.max == {}
        assert {found.entry.path for found in view.ignored} == {("parallelism", "work"), ("scale", "max", "work")}
        assert store.revert("Day", "provisioner", 1, 2, "ann", "").document.parallelism == {"work": 20, "call": 5}


class TestIsolated:
    """Writers at once do not see or undo each other's halves."""

    def test_other_layers_and_other_keys_are_all_kept(self, tmp_path: Path) -> None:
        state = LocalStateManager(tmp_path / "state")
        store = make_job(state)
        rounds = 10
        with Writers(
            tmp_path / "state",
            scaler=[("scaler", tasks(11 + turn), None) for turn in range(rounds)],
            ann=[("oncall", {"concurrency": {"work": 1 + turn}}, None) for turn in range(rounds)],
            bob=[("oncall", {"concurrency": {"call": 1 + turn}}, None) for turn in range(rounds)],
        ) as writers:
            said = writers.go()
        assert said == dict.fromkeys(("scaler", "ann", "bob"), ["done"] * rounds)
        view = store.get("Day")
        assert view.versions == {"base": 0, "provisioner": 1, "scaler": rounds, "oncall": 2 * rounds}
        assert view.document.parallelism == {"work": 10 + rounds}
        assert view.document.concurrency == {"work": rounds, "call": rounds}
        log = [(change.layer, change.version) for change in store.log("Day").changes]
        assert sorted(log) == sorted(
            {
                ("provisioner", 1),
                *(("scaler", n + 1) for n in range(rounds)),
                *(("oncall", n + 1) for n in range(2 * rounds)),
            }
        )
        state.close()

    def test_a_change_during_another_is_retried(self, store: Store, state: MemoryStateManager) -> None:
        other = Store(MemoryStateManager(state.store))
        turns = iter([lambda: other.set("Day", "scaler", tasks(15), 0, "scaler", "")])
        before = state.set

        def late(path: str, data: bytes, version: int | None = None) -> int:
            for turn in turns:
                turn()
            return before(path, data, version)

        state.set = late  # type: ignore[method-assign]
        view = store.set("Day", "oncall", tasks(20), 0, "ann", "")
        assert view.versions["scaler"] == view.versions["oncall"] == 1 and work(store) == (20, "oncall")


class TestDurable:
    """What was answered stays, also when its writer is killed in the next moment."""

    def test_it_is_there_after_the_writer_was_killed(self, tmp_path: Path) -> None:
        state = LocalStateManager(tmp_path / "state")
        store = make_job(state)
        many = [("oncall", tasks(1 + turn % 2), None) for turn in range(2000)]
        with Writers(tmp_path / "state", ann=many) as writers:
            process = writers.processes["ann"]
            assert process.stdin and process.stdout
            process.stdin.write("\n")
            process.stdin.flush()
            assert [process.stdout.readline() for _ in range(5)] == ["done\n"] * 5
            process.send_signal(signal.SIGKILL)
            answered = 5 + process.communicate(timeout=DEADLINE_S)[0].count("done\n")
        version = store.get("Day").versions["oncall"]
        assert version in (answered, answered + 1)
        assert [change.version for change in store.log("Day").changes if change.layer == "oncall"] == list(
            range(1, version + 1)
        )[-99:]
        assert store.set("Day", "oncall", tasks(7), version, "bob", "").versions["oncall"] == version + 1
        state.close()


class TestFaultTolerant:
    """What cannot be read stops its own job only, and says what to do."""

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"{", r"state node 'jobs/Bad' cannot be read \(.*\); restore it from a copy, or remove it"),
            (b'{"format":2}', "state node 'jobs/Bad' was written by a later release of heronpy; use that release"),
            (b"[]", "state node 'jobs/Bad' cannot be read"),
            (b'{"created":1,"last":[],"layers":{"oncall":{"name":"oncall","entries":[{"path":["run","x"],"value":1,"version":1,'
             b'"stamp":{"who":"","why":"","at":1}},{"path":["run"],"value":1,"version":1,"stamp":{"who":"","why":"","at":1}}]}}}',
             "state node 'jobs/Bad' cannot be read"),
        ],
    )  # fmt: skip
    def test_a_damaged_job(self, store: Store, state: MemoryStateManager, content: bytes, said: str) -> None:
        state.create(paths.job("Bad"), content)
        for ask in (
            lambda: store.get("Bad"),
            lambda: store.set("Bad", "oncall", {"role": "ads"}, 0, "ann", ""),
        ):
            with pytest.raises(DamagedStateError, match=said):
                ask()
        assert store.names() == ["Bad", "Day"] and work(store) == (10, "provisioner")
        store.delete("Bad")
        assert store.names() == ["Day"]

    def test_a_damaged_list_of_changed_jobs_stops_no_change(self, store: Store, state: MemoryStateManager) -> None:
        state.set(paths.JOB_NEWS, b"{")
        assert store.set("Day", "oncall", tasks(20), 0, "ann", "").versions["oncall"] == 1
        with pytest.raises(DamagedStateError, match="state node 'jobnews' cannot be read"):
            store.news(0)

    def test_a_change_whose_answer_was_lost_can_be_repeated(self, store: Store) -> None:
        for _ in range(2):
            view = store.set("Day", "oncall", tasks(20), 0, "ann", "")
        assert view.versions["oncall"] == 1


class TestOverridesWithAnEnd:
    def test_they_end_by_themselves(self, store: Store, clock: Clock) -> None:
        store.set("Day", "oncall", tasks(20), 0, "ann", "backfill", for_s=7200)
        clock.now += 7199
        assert work(store) == (20, "oncall")
        clock.now += 1
        assert work(store) == (10, "provisioner")

    def test_what_is_left_at_their_end_is_checked_at_once(self, state: MemoryStateManager, clock: Clock) -> None:
        store = make_job(state, clock)
        checked = Store(state, clock, check_maximum)
        checked.set("Day", "oncall", {"scale": {"max": {"work": 80}}, "parallelism": {"work": 60}}, 0, "ann", "", 3600)
        for given, said in (
            ({"scale": {"min": {"work": 50}}}, "'scale.min.work' of layer oncall is 50, but scale.min would be 50 and"),
            ({"parallelism": {"work": 50}}, "job 'Day' would have parallelism.work=50, but scale.max.work is 40; set"),
        ):
            with pytest.raises(HeronError, match=f"^after the end of .*'scale.max.work' of layer oncall, {said}"):
                checked.set("Day", "oncall", given, 1, "bob", "")
        assert checked.set("Day", "oncall", {"parallelism": {"work": 50}}, 1, "bob", "", 3600).versions["oncall"] == 2
        clock.now += 3600
        assert work(store) == (10, "provisioner") and store.get("Day").document.scale.max == {"work": 40}

    def test_a_pin_that_is_taken_out_leaves_its_number_to_the_scaler(self, store: Store) -> None:
        store.set("Day", "scaler", tasks(16), 0, "scaler", "load")
        store.set("Day", "oncall", tasks(2), 0, "ann", "fewer")
        assert work(store) == (2, "oncall")
        store.unset("Day", "oncall", ["parallelism.work"], 1, "ann", "")
        assert work(store) == (2, "scaler")
        assert [(one.layer, one.stamp.why) for one in store.log("Day").changes[-3:]] == [
            ("oncall", "fewer"),
            ("oncall", ""),
            ("scaler", "continues from the running topology"),
        ]

    def test_after_a_pin_with_an_end_the_number_from_before_applies(self, store: Store, clock: Clock) -> None:
        store.set("Day", "scaler", tasks(16), 0, "scaler", "load")
        store.set("Day", "oncall", tasks(30), 0, "ann", "backfill", for_s=10)
        clock.now += 10
        assert work(store) == (16, "scaler")

    def test_after_an_override_the_value_that_it_replaced_applies_again(self, store: Store, clock: Clock) -> None:
        store.set("Day", "oncall", {"scale": {"max": {"work": 8}}, "parallelism": {"read": 3}}, 0, "ann", "")
        store.set("Day", "scaler", tasks(8), 0, "scaler", "load")
        before = store.get("Day").document
        peak = {"scale": {"max": {"work": 16}}, "parallelism": {"read": 5}}
        view = store.set("Day", "oncall", peak, 1, "bob", "peak", for_s=7200)
        assert view.document.scale.max == {"work": 16} and view.document.parallelism == {"read": 5, "work": 8}
        assert store.get("Day", clock.now + 7200).document == before
        store.set("Day", "oncall", {"role": "ads"}, 2, "ann", "")
        store.set("Day", "oncall", {"parallelism": {"read": 6}}, 3, "ann", "longer", for_s=9000)
        clock.now += 7200
        assert store.get("Day").document.parallelism == {"read": 6, "work": 8}
        clock.now += 1800
        assert store.get("Day").document.parallelism == {"read": 3, "work": 8} and work(store) == (8, "scaler")
        assert store.set("Day", "oncall", {"parallelism": {"read": 3}}, 4, "ann", "").versions["oncall"] == 4
        view = store.set("Day", "oncall", {"parallelism": {"read": 4}}, 4, "ann", "")
        assert [entry.value for entry in store.log("Day").changes[-1].before] == [3]
        assert store.revert("Day", "oncall", 4, 5, "ann", "").document.parallelism == {"read": 3, "work": 8}
        view = store.unset("Day", "oncall", ["parallelism.read"], 6, "ann", "")
        assert view.document.parallelism == {"work": 8}

    def test_an_override_that_lasts_longer_applies_again_after_a_shorter_one(self, store: Store, clock: Clock) -> None:
        store.set("Day", "oncall", tasks(20), 0, "ann", "", for_s=100)
        store.set("Day", "oncall", tasks(30), 1, "bob", "", for_s=10)
        now = clock.now
        assert [store.get("Day", now + s).document.parallelism["work"] for s in (9, 10, 99, 100)] == [30, 20, 20, 10]
        store.set("Day", "oncall", tasks(40), 2, "bob", "", for_s=200)
        assert store.get("Day", now + 150).document.parallelism["work"] == 40
        assert store.get("Day", now + 200).document.parallelism["work"] == 10

    def test_a_key_is_not_taken_out_if_the_rest_makes_no_sense(self, store: Store) -> None:
        store.set("Day", "oncall", {"scale": {"max": {"work": 80}, "min": {"work": 50}}}, 0, "ann", "")
        with pytest.raises(
            ConfigError, match=r"without 'scale\.max\.work' of layer oncall, scale\.min would be 50 and"
        ):
            store.unset("Day", "oncall", ["scale.max.work"], 1, "ann", "")
        store.unset("Day", "oncall", ["scale"], 1, "ann", "")

    @pytest.mark.parametrize("for_s", [0, -1, float("nan"), float("inf"), 3.6e14])
    def test_a_time_that_makes_no_sense_is_refused(self, store: Store, for_s: float) -> None:
        with pytest.raises(ConfigError, match="give a time above 0 and at most 10000d, such as 2h"):
            store.set("Day", "oncall", tasks(20), 0, "ann", "", for_s=for_s)


class TestHistory:
    def test_it_says_who_why_before_and_after(self, store: Store) -> None:
        store.set("Day", "oncall", tasks(20), 0, "ann", "backfill")
        store.set("Day", "oncall", tasks(30), 1, "bob", "faster")
        last = store.log("Day").changes[-1]
        assert (last.layer, last.version, last.stamp.who, last.stamp.why) == ("oncall", 2, "bob", "faster")
        assert [(entry.value, entry.stamp.who) for entry in (*last.before, *last.after)] == [(20, "ann"), (30, "bob")]

    def test_a_layer_goes_back_to_a_version(self, store: Store) -> None:
        store.set("Day", "oncall", tasks(20), 0, "ann", "")
        store.set("Day", "oncall", {"role": "ads", **tasks(30)}, 1, "ann", "")
        view = store.revert("Day", "oncall", 1, 2, "bob", "it was better")
        assert view.versions["oncall"] == 3 and work(store) == (20, "oncall") and view.document.role == ""
        with pytest.raises(ConflictError, match="by bob in the meantime, but ann's change would leave it"):
            store.revert("Day", "oncall", 2, 2, "ann", "")

    def test_it_is_bounded(self, store: Store) -> None:
        for turn in range(stores.CHANGES_MAX + 5):
            store.set("Day", "oncall", tasks(1 + turn), turn, "ann", "")
        for turn in range(stores.DECISIONS_MAX + 5):
            store.decided("Day", "scaler", "work", f"not scaled: {turn}")
        log = store.log("Day")
        assert [change.version for change in log.changes] == list(range(6, stores.CHANGES_MAX + 6))
        assert [one.text for one in log.decisions] == [f"not scaled: {turn}" for turn in range(5, 105)]
        with pytest.raises(
            ConfigError, match="version 3 of layer oncall is not in the history; give one from 5 to 104"
        ):
            store.revert("Day", "oncall", 3, 105, "ann", "")

    def test_a_log_of_large_changes_loses_its_older_half(self, store: Store, state: MemoryStateManager) -> None:
        for turn in range(12):
            store.set("Day", "oncall", {"config": {f"k{n}": f"{turn}" * 2000 for n in range(20)}}, turn, "ann", "")
        store.set("Day", "oncall", tasks(3), 12, "ann", "")
        size = len(state.store.nodes[paths.job_log("Day")].data)
        assert 100_000 < size <= stores.LOG_BYTES_MAX
        assert [change.version for change in store.log("Day").changes][-2:] == [12, 13]

    def test_a_job_does_not_get_the_history_of_one_before_it(
        self, store: Store, clock: Clock, state: MemoryStateManager
    ) -> None:
        store.set("Day", "oncall", tasks(20), 0, "ann", "")
        left = state.get(paths.job_log("Day"))
        store.delete("Day")
        assert left and not state.exists(paths.job_log("Day"))
        state.set(paths.job_log("Day"), left[0])  # by a writer that was under way
        clock.now += 1
        make_job(state, clock)
        assert [change.layer for change in store.log("Day").changes] == ["provisioner"]

    @pytest.mark.parametrize(
        ("who", "why", "said"),
        [("", "", "has no name"), ("a\nb", "", "must be one line"), ("ann", "x" * 501, "at most 500 characters")],
    )
    def test_a_writer_has_a_name_and_a_reason_of_one_line(self, store: Store, who: str, why: str, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            store.set("Day", "oncall", tasks(20), 0, who, why)


class TestJobs:
    def test_all_layers_of_a_new_job_are_in_its_history(self, state: MemoryStateManager) -> None:
        store = Store(state, Clock())
        digest = store.define(definition_of("work"))
        view = store.create("Day", {"base": {"role": "ads"}, "provisioner": {"definition": digest}}, "ann", "first")
        assert view.document.role == "ads" and view.versions == {"base": 1, "provisioner": 1, "scaler": 0, "oncall": 0}
        assert [change.layer for change in store.log("Day").changes] == ["base", "provisioner"]

    def test_a_second_one_of_the_name_is_refused(self, store: Store, state: MemoryStateManager) -> None:
        with pytest.raises(NodeExistsError, match="job 'Day' exists; deploy the program to it, or choose another name"):
            make_job(state)
        with pytest.raises(ConfigError, match=r"the job name 'a/b' contains a slash; choose another name"):
            make_job(state, name="a/b")

    def test_one_that_is_not_there_names_the_nearest(self, store: Store) -> None:
        for ask in (lambda: store.get("Dy"), lambda: store.delete("Dy"), lambda: store.log("Dy")):
            with pytest.raises(NoNodeError, match=r"there is no job 'Dy'; did you mean 'Day'\?"):
                ask()
        with pytest.raises(NoNodeError, match="there is no job 'Dy'"):
            store.set("Dy", "oncall", tasks(3), 0, "ann", "")

    def test_one_of_a_topology_that_runs_is_what_it_was_from_its_first_moment(self, state: MemoryStateManager) -> None:
        """Also when its writer dies, or a syncer looks, before the second node is there."""
        store = Store(state)
        running = Running("", "Day1", (), {}, "IN_SYNC")
        layer = {"definition": store.define(definition_of("work"))}
        store.create("Day", {"provisioner": layer}, "ann", "", running)
        assert store.running("Day") == (running, 1)
        store.forget_running("Day")
        assert store.running("Day") == (running, 0)
        with pytest.raises(StateError, match="stop the job first"):
            store.delete("Day")
        assert store.release("Day") and store.running("Day")[0] == running

    def test_one_that_runs_is_not_deleted(self, store: Store, state: MemoryStateManager) -> None:
        node = paths.running_job("Day")
        state.create(node, msgspec.json.encode(Running("a", state="IN_SYNC")))
        with pytest.raises(StateError, match="job 'Day' is running or being changed; stop the job first"):
            store.delete("Day")
        assert store.names() == ["Day"]
        state.set(node, msgspec.json.encode(Running("a", state="STOPPED")))
        store.delete("Day")
        assert store.names() == [] and not state.exists(node)


class TestNews:
    def test_a_reader_hears_which_jobs_were_changed(self, store: Store, state: MemoryStateManager) -> None:
        number, names = store.news(0)
        assert names == ["Day"]
        assert store.news(number) == (number, [])
        make_job(state, name="Night")
        store.set("Day", "oncall", tasks(20), 0, "ann", "")
        store.set("Day", "oncall", tasks(21), 1, "ann", "")
        assert store.news(number) == (number + 3, ["Day", "Night"])

    def test_a_reader_that_is_too_far_behind_looks_at_all(self, store: Store, state: MemoryStateManager) -> None:
        number, _ = store.news(0)
        for turn in range(stores.NEWS_MAX + 1):
            store.set("Day", "oncall", tasks(20 + turn % 2), turn, "ann", "")
        assert store.news(number) == (number + stores.NEWS_MAX + 1, None)
        assert store.news(number + 1)[1] == ["Day"]
        assert store.news(10_000)[1] is None, "the list was made again"
        assert len(msgspec.json.decode(state.store.nodes[paths.JOB_NEWS].data)["names"]) == 1


class TestDefinitions:
    def test_equal_programs_have_one_digest(self, store: Store) -> None:
        one = definition_of("work", package="p", cluster="local")
        other = definition_of("work", cluster="local", package="p")
        assert store.define(one) == store.define(other)
        assert store.definition(store.define(one)) == one

    def test_one_that_is_damaged_says_what_to_do(self, store: Store, state: MemoryStateManager) -> None:
        digest = store.define(definition_of("work"))
        state.set(paths.definition(digest), b"other")
        with pytest.raises(DamagedStateError, match="is missing or damaged; deploy the program again"):
            store.definition(digest)

    def test_a_sweep_removes_what_nobody_names_twice(self, store: Store, state: MemoryStateManager) -> None:
        used = str(store.get("Day").document.definition)
        old, running, again = (store.define(definition_of(f"b{n}")) for n in range(3))
        state.create(paths.running_job("Day"), json.dumps({"definition": running}).encode())
        unused = store.sweep_definitions({})
        assert unused.keys() == {old, again} and len(state.children(paths.DEFINITIONS)) == 4
        assert store.define(definition_of("b2")) == again, "deployed again meanwhile"
        assert store.sweep_definitions(unused).keys() == {again}
        assert set(state.children(paths.DEFINITIONS)) == {used, running, again}
