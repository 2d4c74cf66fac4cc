"""Pools, as a user has them: the topologies of jobs in shared slots, whoever dies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from heronpy.engines.local.engine import MARK
from heronpy.verify import topology as judged
from heronpy.verify.run import Run
from heronpy.verify.stream import InputSpec
from tests.acceptance.test_checkpoints import EXAMPLE, counts, expected, when_checkpoints
from tests.acceptance.test_jobs import in_state, job, jobs, kill_process, tasks, words
from tests.runtime.test_container_limits import can_write
from tests.support.command import EXISTS, FAILED, NOT_FOUND, USAGE, Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(420)]

__all__ = ["jobs"]


#: A sixth of the usual times of leases.
FAST = ("engine.lost_s=10", "engine.fence_s=6", "engine.renew_s=1", "tmaster.drain_timeout_s=5")


@pytest.fixture
def pool(jobs: Heron, request: pytest.FixtureRequest) -> Iterator[Heron]:
    """A cluster with a pool of three slots, and settings as parameter; its slots are ended after the test."""
    given = [word for one in getattr(request, "param", ()) for word in ("--config-property", f"heron.{one}")]
    made = jobs("pool", "create", "local", "small", "--slots", 3, "--cpu", 4, "--ram", "4GB", *given).ok()
    assert "Created pool 'small': 3 slots of 4 cores and 4GB on engine local" in made.out
    yield jobs
    if (shown := jobs("pool", "show", "local", "small", "--json")).code == 0:
        for name in shown.json()["topologies"]:
            jobs("job", "stop", "local", name)
        jobs("scheduler", "start", "local", "small")
        jobs("pool", "delete", "local", "small").ok()


def slots(heron: Heron) -> dict[int, Any]:
    return {one["slot"]: one for one in heron("pool", "show", "local", "small", "--json").json()["slots"]}


def used(heron: Heron) -> dict[int, int]:
    """Slots that run something to their containers."""
    return {slot: one["containers"] for slot, one in slots(heron).items() if one["containers"]}


def in_slots(heron: Heron, slot: int | None = None) -> list[psutil.Process]:
    """The processes in the slots, or in one."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            mark = Path(one.environ().get(MARK, "/"))
            if heron.home in mark.parents and (slot is None or mark.name.startswith(f"{slot}-")):
                found.append(one)
    return found


def slot_of(heron: Heron, pid: int) -> int:
    """The slot that runs a process."""
    return next(slot for slot in slots(heron) if pid in {one.pid for one in in_slots(heron, slot)})


def all_up(heron: Heron, but_not: int = 0) -> bool:
    status = heron("status", "local", "Counts", "--json")
    states = [task["state"] for task in status.json()["tasks"]] if status.code == 0 else []
    return bool(states) and set(states) == {"RUNNING"} and but_not not in used(heron)


def executor(heron: Heron) -> int:
    title = f"heron: {job(heron)['topology_id']}/1"
    return next((one.pid for one in in_slots(heron) if runs(one, title)), 0)


def runs(process: psutil.Process, module: str) -> bool:
    """Whether it was started as this module, and lives."""
    with contextlib.suppress(psutil.Error):
        return module in process.cmdline()
    return False


def test_a_job_in_a_pool_counts_exactly_whoever_dies(pool: Heron, tmp_path: Path) -> None:
    heron, out = pool, tmp_path / "out"
    rate = ("--config-property", "heron.checkpoint.interval_s=0.5")
    # All of it fits into two slots.
    small = (
        "--config-property",
        "heron.packing.instance_cpu=0.5",
        "--config-property",
        "heron.packing.instance_ram_bytes=500MB",
    )
    heron("job", "create", "local", EXAMPLE, *words(out), "--pool", "small", *rate, *small).ok()
    first = in_state(heron, "IN_SYNC")["topology_id"]
    wait_for(lambda: all_up(heron), 60.0, "all tasks")
    when_checkpoints(heron, 1)
    if can_write():
        limited = Path(f"/proc/{executor(heron)}/cgroup").read_text()
        assert f"/heron.{first}.1" in limited, "its memory is limited to what it asks for"

    # A slot is killed: what ran in it is in the others, unless its successor was faster than the pool's scheduler.
    before = wait_for(lambda: executor(heron), 10.0, "the executor of container 1")
    lost = slot_of(heron, before)
    for one in in_slots(heron, lost):
        if runs(one, "heronpy.executor.bootstrap"):
            one.kill()
    wait_for(lambda: all_up(heron) and executor(heron) not in (0, before), 60.0, "all tasks in another slot")
    heron("job", "set", "local", "Counts", "parallelism.split=3").ok()
    assert tasks(heron)["split"] == 3 and job(heron)["topology_id"] == first

    # Without the pool's scheduler the slots go on, and restart what is theirs.
    scheduler = heron.scheduler_pid("small")
    guardian = psutil.Process(scheduler).ppid()
    for pid in (guardian, scheduler):
        os.kill(pid, signal.SIGKILL)
    old = executor(heron)
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: executor(heron) not in (0, old), 30.0, "another executor")
    assert "scheduler is not running, but the slots keep running" in heron("pool", "show", "local", "small").ok().out
    heron("job", "stop", "local", "Counts", "--timeout", 3).refused(FAILED, "heron scheduler start")
    heron("job", "start", "local", "Counts", "--detach").ok()
    heron("scheduler", "start", "local", "small").ok()
    wait_for(lambda: all_up(heron), 60.0, "all tasks")
    assert job(heron)["topology_id"] == first

    # A slot is drained, the pool gets smaller, and the topology leaves the pool.
    full = max(used(heron))
    heron("pool", "drain", "local", "small", full).ok()
    wait_for(lambda: all_up(heron, full), 60.0, f"all tasks outside of slot {full}")
    heron("pool", "drain", "local", "small", full, "--lift").ok()
    heron("pool", "resize", "local", "small", "--slots", 2).ok()
    wait_for(lambda: set(slots(heron)) == {1, 2} and all_up(heron), 60.0, "two slots")
    heron("pool", "delete", "local", "small").refused(FAILED, "contains 1 topology: Counts")
    when_checkpoints(heron, 1)
    heron("job", "unset", "local", "Counts", "place", "--as", "provisioner").ok()
    wait_for(lambda: used(heron) == {}, 30.0, "the slots being empty")
    assert job(heron)["topology_id"] != first
    heron("job", "set", "local", "Counts", "component_config.line.counts.rate=0", "--detach").ok()
    in_state(heron, "FINISHED")
    assert counts(out) == expected()


def test_a_slot_that_crashes_while_nobody_schedules_goes_on_by_its_disk(pool: Heron, tmp_path: Path) -> None:
    heron = pool
    heron("job", "create", "local", EXAMPLE, *words(tmp_path / "out"), "--pool", "small", "--detach").ok()
    old = wait_for(lambda: executor(heron), 120.0, "the executor of container 1")
    scheduler = heron.scheduler_pid("small")
    for pid in (psutil.Process(scheduler).ppid(), scheduler):
        os.kill(pid, signal.SIGKILL)
    for one in in_slots(heron):
        if runs(one, "heronpy.executor.slot") and old in {child.pid for child in one.children(recursive=True)}:
            one.kill()
    wait_for(lambda: executor(heron) not in (0, old), 60.0, "an executor of the slot that was started again")
    logs = heron.home.rglob("executor-*.log")
    assert any("on its disk" in log.read_text(errors="replace") for log in logs)
    heron("scheduler", "start", "local", "small").ok()
    wait_for(lambda: all_up(heron), 90.0, "all tasks")
    again = [slot_of(heron, one.pid) for one in in_slots(heron) if runs(one, "--life")]
    assert again == [slot_of(heron, executor(heron))], "one slot was started again, in its epoch"
    found = json.loads(heron("pool", "show", "local", "small", "--json").ok().out)["slots"]
    assert [(one["slot"], one["exit_reason"]) for one in found if one["restarts"]] == [(again[0], "process ended")]


def test_what_a_pool_cannot_do_is_one_sentence(pool: Heron, tmp_path: Path) -> None:
    heron, out = pool, tmp_path / "out"
    heron("pool", "create", "local", "small", "--slots", 1).refused(EXISTS, "has a pool 'small'")
    heron("pool", "create", "local", "other", "--slots", 0).refused(USAGE, "cannot have 0 slots")
    heron("pool", "show", "local", "smal").refused(NOT_FOUND, "did you mean 'small'")
    heron("kill", "local", "small").refused(NOT_FOUND, "'small' is a pool of topologies")
    heron("submit", "local", EXAMPLE, "small", *words(out)[2:]).refused(EXISTS, "has a pool 'small'")
    heron("pool", "drain", "local", "small", 9).refused(USAGE, "has no slot 9; its slots are 1 to 3")
    heron("job", "create", "local", EXAMPLE, *words(out), "--pool", "large").refused(NOT_FOUND, "no pool 'large'")
    assert heron.names() == []
    large = ("--config-property", "heron.packing.instance_cpu=5")
    made = heron("job", "create", "local", EXAMPLE, *words(out), "--pool", "small", *large)
    made.refused(
        USAGE, "job 'Counts' cannot run in pool 'small'", "a task of line is larger than a slot", "which has 4 cores"
    )
    assert heron("job", "list", "local", "--json").json() == []
    small = ("--config-property", "heron.packing.instance_cpu=0.5")
    heron("job", "create", "local", EXAMPLE, *words(out), "--pool", "small", *small, "--detach").ok()
    heron("job", "set", "local", "Counts", "settings.heron.packing.instance_cpu=3.5").refused(
        USAGE, "job 'Counts' would not run in pool 'small': it needs", "jobs may have 10.8 cores"
    )
    heron("job", "set", "local", "Counts", "parallelism.split=50").refused(
        USAGE,
        "job 'Counts' would not run in pool 'small': it needs",
        "jobs may have 10.8 cores",
        "set parallelism.split=",
    )
    heron("job", "stop", "local", "Counts").ok()
    heron("job", "delete", "local", "Counts").ok()
    assert kill_process(heron, "heronpy.nothing") == 0 and used(heron) == {}


def test_its_tuples_are_exact_while_it_is_rescaled_and_moved_and_both_managers_die(pool: Heron, tmp_path: Path) -> None:
    heron, out = pool, tmp_path / "out"
    out.mkdir(mode=0o700)
    given = Run(
        mode="EFFECTIVELY_ONCE", containers=2, tasks=3, message_timeout_s=15,
        input=InputSpec(seed=7, partitions=3, count=0, keys=50, payload_bytes=50, rate=200.0),
    )  # fmt: skip
    (out / "spec").write_text(json.dumps({**asdict(given), "name": "Counts", "out": str(out)}))
    (out / "topology.py").write_bytes(Path(judged.__file__).read_bytes())
    small = ("checkpoint.interval_s=1", "packing.instance_cpu=0.2", "packing.instance_ram_bytes=100MB")
    heron(
        "job", "create", "local", out / "topology.py", "-", "--spec", out / "spec", "--pool", "small",
        *(word for one in small for word in ("--config-property", f"heron.{one}")), "--slo", "lag=5s", "--max", "work=8",
    ).ok()  # fmt: skip
    first = in_state(heron, "IN_SYNC")["topology_id"]

    def rescaled(n: int) -> None:
        heron("job", "set", "local", "Counts", f"parallelism.work={n}", f"parallelism.source={n}", "--detach").ok()
        wait_for(lambda: tasks(heron)["work"] == tasks(heron)["source"] == n and all_up(heron), 90.0, f"{n} tasks")

    wait_for(lambda: heron("manager", "status", "local", "--json").json()["acting"]["scaler"], 60.0, "a scaler")
    heron("job", "set", "local", "Counts", "parallelism.work=7", "parallelism.source=7", "--detach").ok()
    assert kill_process(heron, "heronpy.jobs") >= 3, "syncer, scaler and guardians, in the middle of it"
    heron("manager", "start", "local").ok()
    rescaled(7)
    full = max(used(heron))
    heron("pool", "drain", "local", "small", full).ok()
    wait_for(lambda: all_up(heron, full), 90.0, f"all tasks outside of slot {full}")
    rescaled(2)
    assert job(heron)["topology_id"] == first, "the topology was not submitted again"
    heron("verify", "end", out).ok()
    in_state(heron, "FINISHED")
    verdict = heron("verify", "check", out, "--mode", "EFFECTIVELY_ONCE", "--json").json()
    assert verdict["ok"] and verdict["expected"] > 5000, verdict


@pytest.mark.parametrize("pool", [FAST], indirect=True)
@pytest.mark.parametrize("stopped", ["the source", "the targets"])
def test_a_slot_that_is_stopped_while_containers_move_is_ended_and_they_go_on_elsewhere(
    pool: Heron, tmp_path: Path, stopped: str
) -> None:
    heron, short = pool, ("--config-property", "heron.tmaster.drain_timeout_s=5")
    heron("job", "create", "local", EXAMPLE, *words(tmp_path / "out"), "--pool", "small", *short).ok()
    known = in_state(heron, "IN_SYNC")["topology_id"]
    wait_for(lambda: all_up(heron), 90.0, "all tasks")

    def places() -> dict[str, set[int]]:
        """The slots that have a process of a container, by the container, also one that is stopped."""
        found = []
        for slot in (1, 2, 3):
            for one in in_slots(heron, slot):
                found += [(f"heron: {known}/{number}", slot, one) for number in range(3)]
        # One of which the predecessor has ended meanwhile is not in two slots.
        there = [(title, slot) for title, slot, one in found if runs(one, title)]
        return {title: {slot for other, slot in there if other == title} for title, _ in there}

    source = slot_of(heron, wait_for(lambda: executor(heron), 30.0, "the executor of container 1"))
    frozen = {source} if stopped == "the source" else {*slots(heron)} - {source}
    before = [one for slot in frozen for one in in_slots(heron, slot) if runs(one, "heronpy.executor.slot")]
    assert len(before) == len(frozen) and len(places()) > 1
    for one in before:
        one.suspend()
    heron("pool", "drain", "local", "small", source).ok()

    def moved() -> bool:
        overlaps = {title: where for title, where in places().items() if len(where) > 1}
        assert not overlaps, overlaps
        return all_up(heron, source)

    wait_for(moved, 120.0, f"all tasks outside of slot {source}")
    assert any(not one.is_running() for one in before), "a slot that does nothing is ended"
    assert job(heron)["topology_id"] == known
