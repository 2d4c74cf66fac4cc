"""Why a task ended, through real processes: separate budgets, only this task, and the cause where people look."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from heronpy.net.answers import read
from heronpy.proto import control_pb2
from heronpy.views.load import LoadAnswer
from tests.support.command import EXAMPLES, Heron
from tests.support.inside import ask_master, inside
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "exits.py"
VICTIM = "container_1_victim_2"
SIBLING = "container_1_sibling_3"
PATIENCE_S = 60.0


def words(**settings: object) -> list[str]:
    """`executor__restart_budget=3` and so on as options of the command."""
    pairs = (f"heron.{key.replace('__', '.')}={value}" for key, value in settings.items())
    return [word for pair in pairs for word in ("--config-property", pair)]


def submit(heron: Heron, out: Path, kind: str, **settings: object) -> None:
    heron.submit(PROGRAM, "exits", "--out", out, "--kind", kind, *words(**settings))


def record(heron: Heron, name: str = VICTIM) -> Any:
    return next(p for executor in inside(heron, "exits").executors for p in executor.processes if p.name == name)


def when_restarted(heron: Heron, times: int) -> Any:
    return wait_for(lambda: (now := record(heron)).restarts >= times and now, PATIENCE_S, f"{times} restarts")


def page(heron: Heron, container: int) -> str:
    port = next(one.metrics_port for one in inside(heron, "exits").executors if one.container == container)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


@pytest.mark.heavy
@pytest.mark.parametrize("limit", ["memory_limit_bytes", "memory_soft_limit_bytes"])
def test_a_leak_ends_only_its_own_task(heron: Heron, out: Path, limit: str) -> None:
    """F25: out of memory is the reason, with a metric, limit and peak; the neighbours do not notice."""
    size = "512MB" if limit == "memory_limit_bytes" else "200MB"
    submit(heron, out, "leak", **{f"instance__{limit}": size}, executor__usage_interval_s=0.1)
    neighbours = {name: heron.pid("exits", name) for name in (SIBLING, "container_1_source_1", "stmgr-1")}
    ended = when_restarted(heron, 2)
    assert ended.exit_reason == "oom"
    # Limit and peak of the same measure, once.
    if limit == "memory_limit_bytes":
        told = r"MemoryError: address space limit 512MB, peak \d[\d.]*MB"
    else:
        # "was" while the process is being stopped.
        told = r"its resident memory (was|peaked at) \d[\d.]*MB, above the limit of 200MB"
    assert re.fullmatch(told, ended.exit_detail), ended.exit_detail
    seen = (out / "seen").stat().st_size
    wait_for(lambda: (out / "seen").stat().st_size > seen, PATIENCE_S, "the neighbour going on")
    assert {name: heron.pid("exits", name) for name in neighbours} == neighbours
    [group] = heron("exceptions", "local", "exits", "--json").json()["groups"]
    assert group["tasks"] == [VICTIM] and group["count"] >= 2
    if limit == "memory_limit_bytes":
        assert group["type"] == "MemoryError" and group["where"].endswith(" in process"), group
        assert all(re.fullmatch(r"address space limit 512MB, peak \d[\d.]*MB", text) for text in group["messages"]), (
            group
        )
    else:
        assert (
            group["type"] == "OutOfMemory"
            and "ran out of memory: its resident memory peaked at" in group["messages"][0]
        )
        assert group["messages"][0].count("limit") == 1, group
    [line] = [line for line in page(heron, 1).splitlines() if "process_out_of_memory_total" in line and VICTIM in line]
    assert float(line.rsplit(" ", 1)[1]) >= 2


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group with 600 MB, to which processes can be added."""
    first = Path("/sys/fs/cgroup/memory")
    folder = (first if first.is_dir() else first.parent) / f"heron-test-{os.getpid()}"
    try:
        folder.mkdir()
        name = "memory.limit_in_bytes" if first.is_dir() else "memory.max"
        (folder / name).write_text(str(600 << 20))
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        pytest.skip(f"memory control groups cannot be made here: {error}")
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text(), PATIENCE_S, "the group being empty")
    folder.rmdir()


@pytest.mark.heavy
def test_the_kernels_kill_is_told_from_others(memory_group: Path, heron: Heron, out: Path) -> None:
    """F25: the kernel's counter says that this SIGKILL was for lack of memory."""
    join = {"preexec_fn": lambda: (memory_group / "cgroup.procs").write_text("0")}
    heron("submit", "local", PROGRAM, "exits", "--out", out, "--kind", "leak", **join).ok()

    def pid_of_neighbour() -> int:
        """Short of memory, the kernel takes the pages of everybody's code as well: nobody may answer for a while."""

        def answered() -> bool:
            return heron("status", "local", "exits", "--json").code == 0

        for _ in range(10):
            wait_for(answered, PATIENCE_S, "an answer")
            with suppress(AssertionError):  # it is gone again
                return heron.pid("exits", SIBLING)
        raise AssertionError("the topology master does not go on answering")

    neighbour = pid_of_neighbour()
    ended = when_restarted(heron, 1)
    assert (ended.exit_reason, pid_of_neighbour()) == ("oom", neighbour)
    told = r"signal SIGKILL; the control group's limit is 600MB, its peak \d[\d.]*MB, for all its processes"
    assert re.fullmatch(told, ended.exit_detail), ended.exit_detail
    heron.kill("exits")


def test_too_few_files_are_an_error_before_anything_starts(heron: Heron, out: Path) -> None:
    """F26."""
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))}
    refused = heron("submit", "local", PROGRAM, "exits", "--out", out, **few)
    refused.refused(2, "64 file descriptors in stmgr-1, but a process may open 48 files; raise 'ulimit -n'")
    assert heron.names() == [] and not heron.processes()


def test_the_host_of_the_containers_refuses_what_it_lacks(heron: Heron, out: Path, tmp_path: Path) -> None:
    """Whoever submits need not have the ports, the address or the Java: they are looked for where containers run."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        lacks = [
            (
                words(executor__metrics_port=port),
                f"port {port} of 127.0.0.1 for the metrics page of container 0 is taken",
            ),
            (words(security__transport="tcp", security__bind_host="203.0.113.9"), "cannot be bound on this machine"),
        ]
        for options, said in lacks:
            refused = heron("submit", "local", PROGRAM, "exits", "--out", out, *options)
            refused.refused(2, said)
            assert heron.names() == [] and not heron.processes()
    if all(find_spec(name) for name in ("pyspark", "pyarrow", "pandas")):
        away = {"env": {**heron.env, "JAVA_HOME": str(tmp_path)}}
        refused = heron("submit", "local", EXAMPLES / "spark_sink.py", "Demo", "--output", out / "table", **away)
        refused.refused(2, f"JAVA_HOME is {tmp_path} but", "correct or unset JAVA_HOME")
        assert heron.names() == [] and not heron.processes()


def test_an_end_is_known_to_every_view_as_soon_as_to_one(heron: Heron, out: Path) -> None:
    """Its task was RUNNING, and counted as up, until its stream manager had heard nothing of it for ten seconds."""
    submit(heron, out, "exit", executor__restart_backoff_s=50, stmgr__instance_lost_s=600)
    wait_for(lambda: record(heron).state == control_pb2.PROC_BACKOFF, PATIENCE_S, "the pause before the restart")
    status = inside(heron, "exits")
    [task] = [task for task in status.tasks if task.instance_id == VICTIM]
    assert task.state == control_pb2.TASK_LOST and task.error.startswith("its process has ended: "), task
    assert status.lifecycle == control_pb2.LIFE_DEGRADED
    load = read(ask_master(heron, "exits", control_pb2.GetLoad()), LoadAnswer).load
    assert {one.name: (one.up, one.tasks) for one in load.components}["victim"] == (0, 1)
    shown = heron("status", "local", "exits").out
    assert "2 of 3 up" in shown and f"{VICTIM}   BACKOFF" in shown and "task not up" not in shown, shown
    assert heron("list", "local", "--json").json()[0]["state"] == "DEGRADED"
    assert re.search(r"victim +bolt +0/1 ", heron("top", "local", "exits", "--once").out)
    told = json.loads(heron("doctor", "local", "exits", "--json").out)
    assert told["findings"][0]["verdict"] == "down" and told["findings"][0]["names"] == [VICTIM]
    [event] = heron.when_events("exits", "restart", 1)
    assert f"{VICTIM} will be restarted in " in event["text"]
    assert f"{VICTIM} has ended: " in heron("logs", "local", "exits", VICTIM).out


def test_a_crash_at_start_refuses_the_topology(heron: Heron, out: Path) -> None:
    """F11: submit says why, and leaves nothing behind."""
    options = words(executor__restart_budget=2, executor__restart_backoff_s=0.05)
    refused = heron("submit", "local", PROGRAM, "exits", "--out", out, "--kind", "exit at start", *options)
    assert refused.code == 1 and f"{VICTIM} failed: crashed: ended 3 times" in refused.err
    assert "user code ended the process with exit code 42" in refused.err
    assert heron.names() == []
