"""What jobs in a pool do when there is not room for all: they wait, shrink, are stopped, and come back."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from heronpy.clusters.errors import RequestError
from heronpy.jobs import allotting, manager
from heronpy.jobs.allotting import Allotting, Needs, clipped
from heronpy.jobs.documents import Leaves
from heronpy.jobs.manager import SOON_S, Syncing
from heronpy.jobs.plans import Seen, Step
from heronpy.jobs.report import row, shown
from heronpy.jobs.store import Store
from heronpy.scaling.capacity import BACK_S, Allotted, Amount
from tests.jobs.job_worlds import Clock, make_job, make_pool
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


def test_jobs_share_a_pool_by_priority(cluster: Cluster) -> None:
    cluster.make("Low", 8)
    assert cluster.round() == {"Low": ("IN_SYNC", 8)}
    cluster.make("High", 6, priority=200)
    cluster.round()
    cluster.round()
    assert cluster.round() == {"High": ("IN_SYNC", 6), "Low": ("IN_SYNC", 4)}
    assert row(cluster.store, "Low")["why"].startswith("work gets 4 of 8 tasks: jobs may have 10 cores")
    assert shown(cluster.store, "Low")["document"]["parallelism"]["work"] == 4

    # Another one for which the last has to stop, by a savepoint.
    cluster.make("Higher", 3, priority=300, scale={})
    cluster.store.set("High", "oncall", {"scale": {"min": {"work": 6}}}, 0, "me", "")
    for _ in range(3):
        found = cluster.round()
    assert found == {"Higher": ("IN_SYNC", 3), "High": ("IN_SYNC", 6), "Low": ("PREEMPTED", 0)}
    assert cluster.worlds["Low"].performed[-1] == "Stop"
    assert "it needs 2 cores" in row(cluster.store, "Low")["why"]
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
        RequestError, match=r"'Low' would not run in pool 'small': it needs 7 cores.* set parallelism.work=6, "
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
