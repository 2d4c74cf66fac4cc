"""`heron stacks`, `profile` and `heap`: what they ask an executor's file service for, and what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message
from msgspec.structs import replace

from heronpy.common.errors import InvalidRpcError, RpcError
from heronpy.net.answers import packed
from heronpy.net.rpc import body_of
from heronpy.proto import control_pb2
from heronpy.views.evidence import Heap, HeapType, Profile, WeightedStack
from tests.cli.conftest import FakeTopology, Heron, Server

TASK = "container_1_count_2"
PROFILE = Profile(frames=[], stacks=[], seconds=0.0, left_out_s=0.0, sampler="py-spy", note="")
HEAP = Heap(types=[], kinds=1, objects=1, bytes=8, share=1.0, paused_s=0.5, memory_bytes=9)


class Service:
    """The file service of wordy's executor."""

    def __init__(self, wordy: FakeTopology) -> None:
        self.answers: dict[str, Message | Exception] = {}
        self.asked: list[Message] = []
        self.server = Server(self.answer)
        executor = wordy.status.executors.add(container=1, host="elsewhere", file_service=self.server.endpoint, pid=5)
        running = control_pb2.PROC_RUNNING
        executor.processes.add(name=TASK, task_id=2, state=running, pid=12, rss_bytes=64 << 20)
        executor.processes.add(name="container_1_count_3", task_id=3, state=control_pb2.PROC_BACKOFF)
        executor.processes.add(name="stmgr-1", state=running, pid=11)

    def answer(self, _: bytes, envelope: object) -> Message:
        name, body = body_of(envelope)  # type: ignore[arg-type]
        self.asked.append(body)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def service(wordy: FakeTopology) -> Iterator[Service]:
    found = Service(wordy)
    yield found
    found.server.close()


def test_stacks_of_a_task_on_any_host(heron: Heron, service: Service) -> None:
    service.answers["dump_stacks"] = control_pb2.DumpStacksReply(text='Thread 0x1:\n  File "\x1b[31m", line 3 in f\n')
    shown = heron("stacks", "local", "wordy", "2")
    assert shown.code == 0 and "Thread 0x1:\n" in shown.out and "\x1b" not in shown.out
    assert service.asked == [control_pb2.DumpStacks(name=TASK)]
    found = json.loads(heron("stacks", "local", "wordy", "stmgr-1", "--json").out)
    assert (found["process"], found["pid"]) == ("stmgr-1", 11) and found["stacks"].startswith("Thread")
    assert heron("stacks", "local", "wordy", "executor-1").code == 0


def test_stacks_break_no_word_on_a_terminal(heron: Heron, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = '  File "/home/me/topologies/orders/a_module_of_a_long_name.py", line 162 in process_the_order'
    service.answers["dump_stacks"] = control_pb2.DumpStacksReply(text=f"Thread 0x1:\n{frame}\n  File short\n")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert heron("stacks", "local", "wordy", "2").out.splitlines() == [
        "Thread 0x1:", frame.removesuffix(" process_the_order"), "      process_the_order", "  File short",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["count-2", "count_2", "count (task 2)", "task 2"])
def test_a_task_has_the_names_that_views_give_it(name: str, heron: Heron, service: Service, tmp_path: Path) -> None:
    service.answers["dump_stacks"] = control_pb2.DumpStacksReply(text="Thread 0x1:\n")
    service.answers["heap"] = packed(HEAP)
    service.answers["profile"] = packed(
        replace(PROFILE, frames=["main"], stacks=[WeightedStack(stack=[0], seconds=1.0)], seconds=1.0)
    )
    for words in (("stacks",), ("heap", "--yes"), ("profile", "--out", str(tmp_path))):
        shown = heron(words[0], "local", "wordy", name, *words[1:])
        assert shown.code == 0, shown.err
    assert [body.name for body in service.asked] == 3 * [TASK]  # type: ignore[attr-defined]


def test_a_name_of_two_tasks_is_refused(heron: Heron, wordy: FakeTopology, service: Service) -> None:
    wordy.status.executors[-1].processes.add(
        name="container_1_count-2_4", task_id=4, state=control_pb2.PROC_RUNNING, pid=13
    )
    wordy.status.tasks.add(task_id=4, component="count-2", instance_id="container_1_count-2_4")
    refused = heron("stacks", "local", "wordy", "count-2")
    assert refused.code == 2 and service.asked == []
    assert refused.err == (
        "error: the name 'count-2' of topology 'wordy' has 2 tasks; name one of them:"
        " container_1_count-2_4, container_1_count_2\n"
    )


def test_a_profile_is_written_as_files(heron: Heron, service: Service, tmp_path: Path) -> None:
    stacks = [WeightedStack(stack=[0, 1], seconds=2.0)]
    found = Profile(
        frames=["main", "f (a.py:1)"], stacks=stacks, seconds=2.2, left_out_s=0.2, sampler="the process itself",
        note="py-spy is not permitted to",
    )  # fmt: skip
    service.answers["profile"] = packed(found)
    said = heron(
        "profile", "local", "wordy", TASK, "--duration", "1", "--rate", "50", "--idle", "--out", str(tmp_path / "o")
    )
    assert said.code == 0, said.err
    assert (
        "2.2 s of all threads, sampled by the process itself" in said.out and "py-spy is not permitted to" in said.out
    )
    assert "0.2 s of rare stacks are left out" in said.out
    assert service.asked == [control_pb2.Profile(name=TASK, duration_s=1, rate=50, idle=True)]
    assert "f (a.py:1): 2.000 s" in (tmp_path / "o" / f"wordy-{TASK}.svg").read_text()
    speedscope = json.loads((tmp_path / "o" / f"wordy-{TASK}.speedscope.json").read_text())
    assert speedscope["profiles"][0]["weights"] == [2.0]
    service.answers["profile"] = packed(PROFILE)
    nothing = heron("profile", "local", "wordy", TASK, "--out", str(tmp_path))
    assert nothing.code == 1 and "used no CPU" in nothing.err


def test_a_heap_is_announced_before_the_task_stops(
    heron: Heron, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = [HeapType(name="dict", count=4000, bytes=1024)]
    heap = replace(HEAP, types=types, kinds=90, objects=5000, bytes=2048, share=0.25, memory_bytes=70 << 20)
    service.answers["heap"] = packed(heap)
    refused = heron("heap", "local", "wordy", "2")
    announced = f"{TASK} stops for up to 2 s while its objects are counted (it uses 64MB)"
    assert refused.code == 2 and announced in refused.err and "--yes" in refused.err and service.asked == []
    shown = heron("heap", "local", "wordy", "2", "--yes", "--top", "5", "--limit", "1.5")
    assert shown.code == 0 and "stops for up to 1.5 s" in shown.out.splitlines()[0]
    [row] = [line.split() for line in shown.out.splitlines() if line.strip().startswith("dict ")]
    assert row == ["dict", "4,000", "1KB", "50%"]
    assert "5,000 objects of 90 types use 2KB" in shown.out and "estimates from 25.0%" in shown.out
    assert service.asked == [control_pb2.Heap(name=TASK, top=5, limit_s=1.5)]
    found = json.loads(heron("heap", "local", "wordy", "2", "--yes", "--json").out)
    assert found["types"] == [{"name": "dict", "count": 4000, "bytes": 1024}] and found["share"] == 0.25


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("stacks", "local", "wordy", "container_1_cuont_2"), 2, "did you mean 'container_1_count_2'"),
        (("stacks", "local", "wordy", "7"), 2, "has no task or process '7'; it has container_1_count_2"),
        (("heap", "local", "wordy", "3", "--yes"), 1, "container_1_count_3 is not running"),
        (("profile", "local", "wordy", "2", "--duration", "301"), 2, "--duration must be a whole number from 1 to 300"),
        (("heap", "local", "wordy", "2", "--limit", "9"), 2, "--limit must be a number from 0.05 to 5"),
        (("stacks", "local", "wordz", "2"), 3, "did you mean 'wordy'"),
    ],
)
def test_bad_input_gets_one_sentence(
    words: tuple[str, ...], code: int, said: str, heron: Heron, service: Service
) -> None:
    result = heron(*words)
    assert result.code == code and said in result.err, result.err


def test_what_the_executor_says_is_told(heron: Heron, service: Service, tmp_path: Path) -> None:
    service.answers["profile"] = RpcError(f"{TASK} ended while being sampled")
    result = heron("profile", "local", "wordy", "2", "--out", str(tmp_path))
    assert result.code == 1 and result.err == f"error: {TASK} ended while being sampled\n"
    service.answers["dump_stacks"] = InvalidRpcError(f"{TASK} is not running in this container")
    assert "is not running in this container" in heron("stacks", "local", "wordy", "2").err
