"""What jobs in a pool do when there is not room for all: they wait, shrink, are stopped, and come back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.clusters.errors import RequestError
from heronpy.common.errors import StateError
from heronpy.common.units import GB
from heronpy.jobs import allotting, manager
from heronpy.jobs.alerting import Alert
from heronpy.jobs.allotting import Allotting, Needs, check_fixed, check_maximum, clipped, goal_within, jobs_of
from heronpy.jobs.documents import Leaves
from heronpy.jobs.manager import SOON_S, Syncing
from heronpy.jobs.plans import Seen, Step
from heronpy.jobs.report import row, shown
from heronpy.jobs.store import Scaled, Store, View
from heronpy.jobs.syncer import Running
from heronpy.pools.nodes import read_pool
from heronpy.scaling.capacity import BACK_S, Allotted, Amount
from heronpy.scaling.figures import Figures, Observation
from tests.jobs.job_worlds import Clock, definition_of, make_job, make_pool
from tests.jobs.test_job_syncer import World
from tests.support.memory_state import MemoryStateManager, MemoryStore

CORE = Amount(1.0, 100)


class Cluster:
    """A pool with ten cores for jobs, whose time is its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = MemoryStateManager(MemoryStore())
        self.store = Store(self.state)
        self.worlds: dict[str, World] = {}
        self.now = 1_000_000.0
        self.resize(10)
        for module in (manager, allotting):
            monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now))
        self.take_over()

    def take_over(self) -> None:
        self.allotting = Allotting(self.store, self.state, self.needs)
        self.syncing = Syncing(self.store, self, f"m{self.now}", self.allotting)

    def resize(self, cores: float) -> None:
        make_pool(self.state, cores)

    def needs(self, job: str, leaves: Leaves) -> Needs:
        if int(str(leaves.get(("resources", "work", "ram"), 0))) > GB:
            raise RequestError("container 1 requests 6GB")
        return {"read": Amount(), "work": CORE, "call": Amount()}, Amount()

    def see(self, job: str, leaves: Leaves) -> Seen:
        return self.worlds.setdefault(job, World()).see()

    def perform(self, job: str, step: Step) -> Mapping[str, int]:
        return self.worlds[job].perform(step)

    def make(self, job: str, work: int, **given: object) -> None:
        layer = {
            "parallelism": {"work": work},
            "scale": {"max": {"work": 20}, "min": {"work": 2}},
            "place": {"pool": "small"},
        }
        make_job(self.state, Clock(self.now), job, given={**layer, **given})
        self.worlds[job] = World()

    def round(self, seconds: float = 30.0) -> dict[str, tuple[str, int]]:
        """State and running tasks of each job after a round."""
        self.now += seconds
        self.pauses = {job: self.syncing.sync(job) for job in self.store.names()}
        return {job: (row(self.store, job)["state"], self.tasks(job)) for job in self.store.names()}

    def tasks(self, job: str) -> int:
        world = self.worlds[job]
        return int(str(world.leaves["parallelism", "work"])) if world.alive else 0


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_a_manager_that_does_not_know_the_quotas_leaves_each_job_its_tasks(cluster: Cluster) -> None:
    cluster.allotting.quotas = {"ads": Amount(2.0, 1e12)}
    cluster.make("Ad", 9, role="ads", priority=200)
    cluster.make("Web", 8)
    for _ in range(2):
        cluster.round()
    before = {"Ad": ("IN_SYNC", 2), "Web": ("IN_SYNC", 8)}
    assert cluster.round() == before
    cluster.take_over()
    cluster.allotting.frozen = True
    cluster.store.set("Web", "oncall", {"parallelism": {"work": 9}}, 0, "me", "")
    cluster.make("New", 2, scale={})
    for _ in range(20):
        found = cluster.round()
    assert found == before | {"New": ("WAITING", 0)}
    assert row(cluster.store, "New")["why"] == "the quotas in jobs.yaml cannot be read"
    cluster.allotting.frozen = False
    cluster.allotting.quotas = {"ads": Amount(2.0, 1e12)}
    for _ in range(20):
        found = cluster.round()
    assert found == {"Ad": ("IN_SYNC", 2), "New": ("IN_SYNC", 2), "Web": ("IN_SYNC", 6)}


def test_jobs_share_a_pool_by_priority(cluster: Cluster) -> None:
    cluster.make("Low", 8)
    assert cluster.round() == {"Low": ("IN_SYNC", 8)}
    cluster.make("High", 6, priority=200)
    cluster.round()
    cluster.round()
    assert cluster.round() == {"High": ("IN_SYNC", 6), "Low": ("IN_SYNC", 4)}
    assert row(cluster.store, "Low")["why"].startswith("work gets 4 of 8 tasks: jobs may have 10 cores")
    assert shown(cluster.store, "Low")["document"]["parallelism"]["work"] == 4
    goal = goal_within(cluster.store.get("Low").document, cluster.store.running("Low")[0])
    assert goal.max == {"work": 20} and goal.allotted == {"work": 4}
    assert goal.short.startswith("in pool 'small' work gets 4 of 8 tasks: jobs may have 10 cores")

    # Another one for which the last has to stop, by a savepoint.
    cluster.make("Higher", 3, priority=300, scale={})
    cluster.store.set("High", "oncall", {"scale": {"min": {"work": 6}}}, 0, "me", "")
    for _ in range(3):
        found = cluster.round()
    assert found == {"Higher": ("IN_SYNC", 3), "High": ("IN_SYNC", 6), "Low": ("PREEMPTED", 0)}
    assert cluster.worlds["Low"].performed[-1] == "Stop"
    assert "it needs at least 2 cores" in row(cluster.store, "Low")["why"]
    assert cluster.allotting.changed() == set(), "all are at rest"

    # Back, by another syncer, once there was room for five minutes.
    cluster.store.set("Higher", "oncall", {"run": "stopped"}, 0, "me", "")
    cluster.round()
    assert cluster.round()["Low"] == ("PREEMPTED", 0) and cluster.pauses["Low"] == SOON_S
    assert row(cluster.store, "Low")["why"].startswith(
        "there are free resources; the job gets them after they have been free for 5m"
    )
    version = cluster.store.running("Low")[1]
    assert cluster.round()["Low"] == ("PREEMPTED", 0) and cluster.store.running("Low")[1] == version
    cluster.take_over()
    cluster.round(BACK_S - 90)
    assert cluster.round(29)["Low"] == ("PREEMPTED", 0)
    assert cluster.round()["Low"] == ("IN_SYNC", 4) and cluster.worlds["Low"].performed[-1] == "Start"


def test_a_job_without_room_waits_and_starts_when_there_is(cluster: Cluster) -> None:
    cluster.make("First", 8, scale={})
    cluster.make("Second", 4, role="ads", scale={})
    assert cluster.round() == {"First": ("IN_SYNC", 8), "Second": ("WAITING", 0)}
    why = "it needs at least 4 cores and 400B of memory; jobs may have 10 cores"
    assert row(cluster.store, "Second")["why"].startswith(why) and not cluster.worlds["Second"].performed
    cluster.resize(20)
    assert cluster.round()["Second"] == ("IN_SYNC", 4)
    cluster.allotting.quotas = {"ads": Amount(3, 1e9)}
    assert cluster.round()["Second"] == ("PREEMPTED", 0)
    assert "jobs of role ads may have 3 cores" in shown(cluster.store, "Second")["capacity"]
    cluster.store.set("Second", "oncall", {"run": "stopped"}, 0, "me", "")
    assert cluster.round()["Second"] == ("STOPPED", 0)
    cluster.store.delete("Second")


def test_tasks_for_which_there_is_no_room_are_refused_with_the_number_that_fits(cluster: Cluster) -> None:
    cluster.make("High", 4, priority=200, scale={})
    cluster.make("Low", 3, scale={})
    cluster.round()

    def check(job: str, work: int) -> None:
        view, _ = cluster.store.apply(job, "oncall", {"parallelism": {"work": work}}, 0, "me", "", write=False)
        Allotting(cluster.store, cluster.state, cluster.needs).check_tasks(job, view, ["work"])

    check("Low", 6)
    check("High", 10)  # the other one stops for it
    with pytest.raises(
        RequestError, match=r"'Low' would not run in pool 'small': it needs at least 7 cores.* set parallelism.work=6, "
    ):
        check("Low", 7)
    with pytest.raises(RequestError, match=r"set parallelism.work=10, which fits, or add slots"):
        check("High", 50)
    assert cluster.round() == {"High": ("IN_SYNC", 4), "Low": ("IN_SYNC", 3)}, "nothing was written"


def test_a_job_that_leaves_a_pool_is_none_of_its_business(cluster: Cluster) -> None:
    cluster.make("First", 8, scale={})
    cluster.round()
    cluster.store.set("First", "oncall", {"run": "stopped"}, 0, "me", "")
    cluster.make("Second", 8, scale={})
    cluster.round()
    assert cluster.round() == {"First": ("STOPPED", 0), "Second": ("IN_SYNC", 8)}


def test_what_a_job_should_be_now() -> None:
    wish: Leaves = {("run",): "running", ("parallelism", "work"): 5, ("parallelism", "read"): 1}
    assert clipped(wish, None) is wish and clipped(wish, Allotted()) == wish
    assert clipped(wish, Allotted("SHRUNK", {"work": 3, "gone": 1}))["parallelism", "work"] == 3
    assert clipped(wish, Allotted("WAITING"))[("run",)] == "stopped"


def check(cluster: Cluster, job: str, edit: str, what: Any) -> list[str]:
    """Write a change of layer oncall or provisioner by a person if it is accepted; returns the jobs that it stops."""
    stops: list[str] = []

    def checked(job: str, before: View | None, after: View) -> None:
        check_maximum(job, before, after)
        stops.extend(Allotting(cluster.store, cluster.state, cluster.needs).check_change(job, before, after))

    store = Store(cluster.state, Clock(cluster.now), checked)
    versions = store.get(job).versions
    if edit == "set":
        store.set(job, "oncall", what, versions["oncall"], "me", "")
    else:
        store.unset(job, "provisioner", what, versions["provisioner"], "me", "")
    return stops


def test_a_change_names_the_other_jobs_that_it_stops(cluster: Cluster) -> None:
    cluster.make("Day", 6, scale={})
    cluster.make("Night", 4, scale={})
    cluster.make("Week", 3, scale={}, priority=90)
    for _ in range(2):
        assert cluster.round() == {"Day": ("IN_SYNC", 6), "Night": ("IN_SYNC", 4), "Week": ("WAITING", 0)}
    assert check(cluster, "Day", "set", {"slo": {"lag_s": 5}}) == []
    assert check(cluster, "Week", "set", {"priority": 300}) == ["Night"]
    for _ in range(3):
        found = cluster.round()
    assert found == {"Day": ("IN_SYNC", 6), "Night": ("PREEMPTED", 0), "Week": ("IN_SYNC", 3)}
    with pytest.raises(StateError, match="'Night' waits for capacity to start again; stop the job first"):
        cluster.store.delete("Night")
    cluster.store.set("Night", "oncall", {"run": "stopped"}, 0, "me", "")
    cluster.round()
    cluster.store.delete("Night")


@pytest.mark.parametrize(
    ("edit", "what", "said"),
    [
        ("set", {"parallelism": {"work": 21}}, r"parallelism\.work=21, but scale\.max\.work is 20; set at most 20 tasks"),
        ("set", {"parallelism": {"work": 15}}, r"work gets 10 of 15 tasks.* set parallelism\.work=10, which fits"),
        ("set", {"place": {"pool": "nopool"}}, r"with place\.pool=nopool: there is no pool 'nopool'; create it"),
        ("set", {"scale": {"min": {"work": 11}}}, r"would not run in pool 'small': it needs at least 11 cores"),
        ("set", {"resources": {"work": {"ram": "6GB"}}}, r"with resources\.work\.ram=6GB: container 1 requests 6GB"),
        ("unset", ["scale.max", "scale.min"], r"it needs at least 12 cores.*; set parallelism\.work=10, which fits"),
    ],
)  # fmt: skip
def test_a_change_after_which_a_job_does_not_run_is_refused(cluster: Cluster, edit: str, what: Any, said: str) -> None:
    cluster.make("Day", 12)
    for _ in range(2):
        assert cluster.round() == {"Day": ("IN_SYNC", 10)}
    before = cluster.store.get("Day").versions
    with pytest.raises(RequestError, match=said):
        check(cluster, "Day", edit, what)
    assert cluster.store.get("Day").versions == before


def test_a_job_that_lacks_room_may_still_be_changed(cluster: Cluster) -> None:
    cluster.make("Day", 12, scale={})
    assert cluster.round() == {"Day": ("WAITING", 0)}
    for given in ({"slo": {"lag_s": 5}}, {"parallelism": {"work": 11}}, {"run": "stopped"}):
        check(cluster, "Day", "set", given)
    with pytest.raises(RequestError, match="cannot run in pool 'small' with run=running: it needs at least 11 cores"):
        check(cluster, "Day", "set", {"run": "running"})


def test_what_is_left_of_a_temporary_change_is_held_if_the_pool_is_too_small_by_then(cluster: Cluster) -> None:
    told: list[Alert] = []
    cluster.make("Day", 8, scale={})
    cluster.store = Store(cluster.state, lambda: cluster.now)
    cluster.allotting = Allotting(cluster.store, cluster.state, cluster.needs)
    cluster.syncing = Syncing(cluster.store, cluster, "m", cluster.allotting, told.extend)
    assert cluster.round() == {"Day": ("IN_SYNC", 8)}
    cluster.store.set("Day", "oncall", {"parallelism": {"work": 2}}, 0, "me", "", for_s=600)
    assert cluster.round() == {"Day": ("IN_SYNC", 2)}
    cluster.resize(4)
    assert cluster.round() == {"Day": ("IN_SYNC", 2)} and told == []
    for _ in range(3):
        found = cluster.round(300)
    assert found == {"Day": ("PREEMPTED", 0)} and cluster.worlds["Day"].performed[-1] == "Stop"
    assert [one.cause for one in told] == ["preempted"] and "it needs at least 8 cores" in told[0].text


def test_a_minimum_for_which_the_pool_has_no_capacity_is_refused(cluster: Cluster) -> None:
    cluster.make("First", 7, scale={})
    cluster.make("Late", 1)
    cluster.round()
    with pytest.raises(RequestError, match=r"job 'Late' would not run in pool 'small': .*; set parallelism\.work=3"):
        check(cluster, "Late", "set", {"scale": {"min": {"work": 4}}})
    assert check(cluster, "Late", "set", {"scale": {"min": {"work": 3}}}) == []
    pinned = {"scale": {"min": {"work": 4}}, "parallelism": {"work": 1}}
    assert check(cluster, "Late", "set", pinned) == [], "the scaler leaves a pinned component alone"


def test_a_new_job_waits_for_room_unless_the_pool_can_never_have_it(cluster: Cluster) -> None:
    cluster.make("First", 8, scale={})
    cluster.round()
    digest = cluster.store.get("First").document.definition
    checks = Allotting(cluster.store, cluster.state, cluster.needs).check_change
    store = Store(cluster.state, Clock(cluster.now), checks)

    def make(name: str, work: int) -> None:
        layer = {"definition": digest, "parallelism": {"work": work}, "place": {"pool": "small"}}
        store.create(name, {"provisioner": layer}, "me", "")

    make("Waits", 10)
    with pytest.raises(
        RequestError, match=r"cannot run in pool 'small' with parallelism\.work=11, place\.pool=small: it"
    ):
        make("Never", 11)
    assert "Never" not in store.names()


def test_a_quota_that_is_too_small_is_to_be_raised(cluster: Cluster) -> None:
    cluster.make("Second", 2, role="ads", scale={})
    cluster.round()
    allotting = Allotting(cluster.store, cluster.state, cluster.needs)
    allotting.quotas = {"ads": Amount(3, 1e9)}
    store = Store(cluster.state, Clock(cluster.now), allotting.check_change)
    digest = store.get("Second").document.definition
    raise_it = "raise the quota of role 'ads' in the cluster's jobs.yaml"
    with pytest.raises(RequestError, match=rf"set parallelism.work=3, which fits, or {raise_it}"):
        store.set("Second", "oncall", {"parallelism": {"work": 4}}, 0, "me", "")
    layer = {"definition": digest, "parallelism": {"work": 4}, "place": {"pool": "small"}, "role": "ads"}
    with pytest.raises(RequestError, match=rf"reduce its resources, or {raise_it}"):
        store.create("Never", {"provisioner": layer}, "me", "")


def test_the_jobs_that_a_smaller_pool_would_stop_are_named(cluster: Cluster) -> None:
    cluster.make("Day", 4, scale={})
    cluster.make("Night", 3, priority=50)
    cluster.round()
    allotting = Allotting(cluster.store, cluster.state, cluster.needs)
    pool = read_pool(cluster.state, "small")
    assert pool is not None
    assert allotting.stopped_by("small", replace(pool, slots=1)) == ["Night"]
    assert allotting.stopped_by("small", replace(pool, drained=(2,))) == ["Night"]
    assert allotting.stopped_by("small", pool) == allotting.stopped_by("small", replace(pool, slots=9)) == []
    assert jobs_of(cluster.store, "small") == ["Day", "Night"]
    cluster.store.set("Night", "oncall", {"run": "stopped"}, 0, "me", "")
    assert jobs_of(cluster.store, "small") == ["Day"] and jobs_of(cluster.store, "other") == []


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ({"max": {"work": 1}}, r"scale\.max\.work=1, but the program has 2 tasks of work; set at least scale\.max\.work=2"),
        ({"min": {"work": 9}}, r"scale\.min\.work=9 without a maximum, which has no effect; set scale\.max\.work too"),
        ({"min": {"work": 2}, "max": {"work": 2}}, ""),
    ],
)  # fmt: skip
def test_limits_that_do_not_fit_the_program_or_each_other_are_refused(scale: Any, said: str) -> None:
    state = MemoryStateManager(MemoryStore())
    make_job(state, given={})

    def checked(job: str, before: View | None, after: View) -> None:
        check_maximum(job, before, after, {"work": 2})

    with pytest.raises(RequestError, match=said) if said else nullcontext():
        Store(state, Clock(), checked).set("Day", "oncall", {"scale": scale}, 0, "ann", "")


def test_a_program_with_more_tasks_than_the_maximum_is_refused() -> None:
    state = MemoryStateManager(MemoryStore())
    tasks = {"work": 2}
    make_job(state, given={"scale": {"max": {"work": 4}}})

    def checked(job: str, before: View | None, after: View) -> None:
        check_maximum(job, before, after, tasks, {"work": 2})

    store = Store(state, Clock(), checked)
    store.set("Day", "oncall", {"priority": 3}, 0, "ann", "")
    tasks["work"] = 5
    with pytest.raises(RequestError, match=r"scale\.max\.work=4, but the program has 5 tasks of work; set at least"):
        store.set("Day", "oncall", {"priority": 4}, 1, "ann", "")


def test_a_component_that_cannot_be_rescaled_keeps_its_tasks() -> None:
    state = MemoryStateManager(MemoryStore())
    store = make_job(state, given={"parallelism": {"work": 2}})
    view = store.get("Day")
    read = Figures(name="read", is_spout=True, tasks=1, fixed="the State of read belongs to single tasks")
    work = Figures(name="work", is_spout=False, tasks=1)
    figures = tuple(replace(one, pinned=f"layer oncall sets parallelism.{one.name}") for one in (read, work))
    look = Observation(topology="Day", at=1.0, components=figures, program=view.document.definition)
    store.put_scaled("Day", Scaled(view.created, look=look), 0)
    checked = Store(state, Clock(), lambda job, before, after: check_fixed(store, job, before or after, after))
    for given, said in (
        ({"parallelism": {"read": 2}}, "parallelism"),
        ({"scale": {"max": {"read": 3}}}, r"scale\.max"),
    ):
        with pytest.raises(RequestError, match=rf"cannot have {said}\.read=.: the State of read belongs"):
            checked.set("Day", "oncall", given, 0, "me", "")
    for number, given in enumerate(({"parallelism": {"work": 3, "read": 1}}, {"scale": {"max": {"work": 3}}})):
        checked.set("Day", "oncall", given, number, "me", "")


def test_a_new_job_gets_no_maximum_for_a_component_whose_state_belongs_to_single_tasks() -> None:
    store = Store(MemoryStateManager(MemoryStore()), check=lambda *change: check_fixed(store, *change))
    digest = store.define(definition_of("work", plain=["read"]))

    def make(**most: int) -> None:
        store.create("Day", {"provisioner": {"definition": digest, "scale": {"max": most}}}, "me", "")

    with pytest.raises(RequestError, match=r"job 'Day' cannot have scale\.max\.read=3: the State of read belongs to"):
        make(read=3)
    assert store.names() == []
    make(read=1, work=8)
    with pytest.raises(RequestError, match=r"job 'Day' cannot have scale\.max\.read=2: the State of read belongs to"):
        store.set("Day", "oncall", {"scale": {"max": {"read": 2}}}, 0, "me", "")


def test_a_state_of_single_tasks_keeps_their_number_also_before_the_scaler_has_seen_it() -> None:
    store = Store(MemoryStateManager(MemoryStore()), check=lambda *change: check_fixed(store, *change))
    digest, other = (store.define(definition_of("work", plain=["read"], package=name)) for name in "ab")
    layer = {"definition": digest, "parallelism": {"read": 3}}
    store.create("Day", {"provisioner": layer}, "me", "")
    store.set("Day", "provisioner", {"parallelism": {"read": 2}}, 1, "me", "it has never run")
    ran = {("definition",): digest, ("parallelism", "read"): 2, ("parallelism", "work"): 1}
    store.put_running("Day", Running("", "Day-1", tuple(ran.items()), {}, "IN_SYNC"), 0)
    for wrong in ({"parallelism": {"read": 4, "work": 2}}, {"scale": {"max": {"read": 4}}}):
        with pytest.raises(
            RequestError, match=r"job 'Day' cannot have .*\.read=4: the State of read belongs to individual"
        ):
            store.set("Day", "oncall", wrong, 0, "me", "")
    store.set("Day", "oncall", {"parallelism": {"read": 2, "work": 4}}, 0, "me", "")
    store.set("Day", "oncall", {"restore": "empty", "parallelism": {"read": 4}}, 1, "me", "without its state")
    store.set("Day", "provisioner", {"definition": other, "parallelism": {"read": 5}}, 2, "me", "deployed")
