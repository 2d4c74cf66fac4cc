"""What a pool refuses: a topology that its slots cannot run, and commands from other hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.cli.change import pools as verbs
from heronpy.clusters.errors import ClusterError, NotThereError, RequestError
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import DeadlineError, HeronError, TopologyError
from heronpy.common.host import Host, this_host
from heronpy.common.setting_types import PackingSettings
from heronpy.common.topology_keys import TOPOLOGY_COMPONENT_RAM, TOPOLOGY_RELIABILITY_MODE
from heronpy.common.units import GB, MB
from heronpy.engines.contract import NodeSize
from heronpy.jobs import driver
from heronpy.jobs.driver import TopologyDriver
from heronpy.launching import in_pool
from heronpy.packing import pack
from heronpy.packing.demand import ResourceRequest, requests_of
from heronpy.plan.component_config import set_key
from heronpy.plan.launch import SLOT
from heronpy.pools.nodes import read_pool
from heronpy.pools.shards import Size
from heronpy.proto import components_of, plan_pb2
from heronpy.scaling.capacity import Amount
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.base import StateManager
from tests.cli.conftest import home, word_count
from tests.jobs.job_worlds import make_job, make_pool
from tests.support.launch import launch_spec

__all__ = ["home"]

OTHER = Host("elsewhere", "00112233", "44556677")


def submitted(state: StateManager, tmp_path: Path, name: str, host: Host, **fields: Any) -> None:
    """Store what a submit on this host would."""
    record = plan_pb2.ExecutionState(
        topology=name, topology_id=f"{name}-1", cluster="local", role="me", environ="default", host=host.to_text(),
        program=fields.get("program", ""), working_dir=str(tmp_path / name),
        launch_file=str(tmp_path / name / "launch.json"),
    )  # fmt: skip
    topology = word_count(name)
    set_key(topology.topology_config, TOPOLOGY_RELIABILITY_MODE, "ATLEAST_ONCE")
    state.create(paths.execution_state(name), record.SerializeToString())
    state.create(paths.topology(name), topology.SerializeToString())
    state.create(paths.launch(name), launch_spec(name, f"{name}-1", tmp_path, **fields).submitted.to_bytes())


@pytest.fixture
def state(home: Path) -> Iterator[StateManager]:
    """Two slots of 5.6 cores, without their scheduler."""
    state = open_state("local", str(home / "state" / "local"))
    make_pool(state, 10)
    yield state
    state.close()


def check(mode: str = "ATLEAST_ONCE", engine: str = "slurm", cores: float = 1.0) -> None:
    """Whether pool small takes a topology of three containers of this size."""
    topology = word_count("Night")
    set_key(topology.topology_config, TOPOLOGY_RELIABILITY_MODE, mode)
    planned: Any = SimpleNamespace(pool="small", engine=engine, topology=topology)
    in_pool.check(Session(Target("local")), planned, {n: ResourceRequest(cores, 100, 0) for n in range(1, 4)})


def test_a_topology_that_the_slots_cannot_run(state: StateManager, tmp_path: Path) -> None:
    submitted(state, tmp_path, "small", this_host(), program=SLOT, engine="slurm")
    with pytest.raises(
        ClusterError, match="the scheduler of pool 'small' is not running; start it: heron scheduler start"
    ):
        check()
    state.create(paths.scheduler("small"), plan_pb2.SchedulerLocation(topology="small").SerializeToString())
    check()
    with pytest.raises(RequestError, match="pool 'small' is on engine 'slurm', but the topology is for 'local'; set"):
        check(engine="local")
    with pytest.raises(
        TopologyError, match="'Night' is ATMOST_ONCE, but pool 'small' fences by epoch: a lost slot may"
    ):
        check("ATMOST_ONCE")
    with pytest.raises(RequestError, match=r"requests 6 cores.*pool 'small' has 5\.5"):
        check(cores=6.0)
    with pytest.raises(ClusterError, match=r"'Night' needs 15 cores .* but pool 'small' has 11\.11 cores .*add slots"):
        check(cores=5.0)


@pytest.mark.parametrize(
    ("name", "slots", "said"),
    [
        ("Day", 1, "a job of cluster local has the name 'Day'; choose another name"),
        ("a/b", 1, "the name of the pool, 'a/b', contains a slash"),
        ("new", 0, "a pool cannot have 0 slots; give 1 to 2000"),
    ],
)
def test_a_pool_that_cannot_be_made(state: StateManager, name: str, slots: int, said: str) -> None:
    state.create(paths.job("Day"), b"{}")
    with pytest.raises(HeronError, match=said):
        in_pool.plan_pool(Session(Target("local")), name, slots, Size(1.0, 1 << 30))


def test_a_topology_is_not_started_in_a_pool_of_another_host(state: StateManager, tmp_path: Path) -> None:
    submitted(state, tmp_path, "small", OTHER, program=SLOT, engine="slurm")
    said = "topology 'small' was submitted on host elsewhere, where its scheduler serves the packages"
    with pytest.raises(ClusterError, match=said):
        check()


def test_a_topology_in_a_pool_of_another_host_is_not_reached(state: StateManager, tmp_path: Path) -> None:
    submitted(state, tmp_path, "Day", OTHER, engine="slurm", pool="small")
    session = Session(Target("local"))
    said = (
        "topology 'Day' runs in pool 'small', .* only from the host of its scheduler; run the command on host elsewhere"
    )
    with pytest.raises(ClusterError, match=said):
        session.by_endpoint(session.record("Day"))


def test_a_pool_in_which_jobs_should_run_is_neither_deleted_nor_made_too_small_nor_drained(
    state: StateManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"read": Amount(), "work": Amount(1.0, 100), "call": Amount()}, Amount()
    monkeypatch.setattr(TopologyDriver, "needs", lambda self, job, leaves: needs)
    submitted(state, tmp_path, "small", this_host(), program=SLOT, engine="local")
    state.create(paths.scheduler("small"), plan_pb2.SchedulerLocation(topology="small").SerializeToString())
    store = make_job(state, given={"parallelism": {"work": 7}, "place": {"pool": "small"}})
    with pytest.raises(ClusterError, match=r"pool 'small' is used by job 'Day'; stop each .* heron job stop local Day"):
        verbs.delete(Target("local"), "small", Common())
    with pytest.raises(RequestError, match="1 slot is too few for pool 'small': job 'Day' would be stopped"):
        verbs.resize(Target("local"), "small", 1, Common())
    said = "without slot 2, pool 'small' is too small: job 'Day' would be stopped; first .* heron job stop local Day"
    with pytest.raises(RequestError, match=said):
        verbs.drain(Target("local"), "small", 2, False, 0.0, Common())
    pool = read_pool(state, "small")
    assert pool is not None and pool.slots == 2 and not pool.drained
    verbs.resize(Target("local"), "small", 3, Common())
    with pytest.raises(DeadlineError, match="slot 2 of pool 'small' is not empty yet"):  # no scheduler moves anything
        verbs.drain(Target("local"), "small", 2, False, 0.0, Common())
    verbs.drain(Target("local"), "small", 2, True, 0.0, Common())
    store.set("Day", "oncall", {"run": "stopped"}, 0, "me", "")
    verbs.resize(Target("local"), "small", 1, Common())


@pytest.mark.parametrize("verb", [verbs.delete, lambda *given: verbs.resize(*given[:2], 3, given[2])])
def test_a_pool_that_is_not_there_is_not_to_be_created_to_be_deleted(
    state: StateManager, tmp_path: Path, verb: Any
) -> None:
    submitted(state, tmp_path, "small", this_host(), program=SLOT, engine="local")
    with pytest.raises(NotThereError, match=r"^cluster local has no pool 'missing'; its pools are small$"):
        verb(Target("local"), "missing", Common())


def test_a_task_that_is_larger_than_a_slot_is_told_the_largest_value_that_fits() -> None:
    topology, settings = word_count("Day"), PackingSettings()
    part = next(iter(components_of(topology).values())).comp
    set_key(part.config, TOPOLOGY_COMPONENT_RAM, str(8 * GB))
    sizes = [NodeSize(4.0, 4 * GB, None, "pool 'small'")]

    def said(containers: int) -> str:
        packed = pack(topology, settings, containers)
        planned: Any = SimpleNamespace(topology=topology, packing_plan=packed)
        return driver.too_large(planned, requests_of(packed, topology, settings), sizes, settings)

    assert said(1) == "", "more containers may help"
    tasks = sum(len(one.instances) for one in pack(topology, settings).containers)
    text = said(tasks)
    assert text.startswith(f"a task of {part.name} is larger than a slot of pool 'small', which has 4 cores and 4GB of")
    most = re.search(rf"set at most resources\.{part.name}\.ram=(\d+)MB$", text)
    assert most is not None, text
    for more_mb, fits in ((0, True), (8, False)):
        set_key(part.config, TOPOLOGY_COMPONENT_RAM, str((int(most[1]) + more_mb) * MB))
        assert (said(tasks) == "") == fits


def test_a_drain_names_the_slots_that_it_overloads() -> None:
    slots = [{"slot": 1, "load": 2.05}, {"slot": 2, "load": 0.0}, {"slot": 3, "load": 1.1}]
    assert verbs.overloaded(slots, "small") == (
        "slot 1 is 205% full, slot 3 is 110% full; add a slot to pool 'small', or reduce the tasks of its jobs"
    )
    assert verbs.overloaded(slots[1:2], "small") == ""


def test_a_slot_needs_memory_for_a_task() -> None:
    with pytest.raises(
        RequestError, match="a slot cannot have 4B of memory; give at least 256MB, with a unit, such as"
    ):
        verbs.create(Target("local"), "tiny", 1, 4.0, "4", Common())
