"""Stacks, profiles and heaps over REST: asked for by POST, given by GET, one per process at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from google.protobuf.message import Message

from heronpy.common.errors import DeadlineError, HeronError, InvalidRpcError, RetryableRpcError, RpcError
from heronpy.net.answers import packed
from heronpy.proto import control_pb2
from heronpy.tracker.evidence_cache import AT_ONCE_MAX, KEPT_MAX, Entry, EvidenceCache
from heronpy.views.evidence import Evidence, Heap, HeapType, Profile, WeightedStack
from tests.cli.conftest import FakeTopology
from tests.tracker.conftest import WORDY, Asking

TASK = f"{WORDY}/tasks/container_1_count_2"
PROOF = {"X-Heron": "1"}


@pytest.fixture
def running(busy: FakeTopology) -> FakeTopology:
    """wordy with its processes."""
    executor = busy.status.executors.add(container=1, host="here", file_service="ipc:///nowhere", pid=5)
    for name, task, pid in (("container_1_count_2", 2, 12), ("container_1_count_3", 3, 0), ("stmgr-1", 0, 11)):
        state = control_pb2.PROC_RUNNING if pid else control_pb2.PROC_BACKOFF
        reason = "" if pid else "oom"
        executor.processes.add(name=name, task_id=task, state=state, pid=pid, exit_reason=reason)
    return busy


class Service:
    """Stands for the executor: answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[Message] = []
        self.answer: Message | HeronError = control_pb2.DumpStacksReply(text="Thread 0x1 ...\n")
        self.go = asyncio.Event()

    async def take(self, master: object, container: int, request: Message, timeout_s: float) -> Message:
        self.asked.append(request)
        assert container == 1 and timeout_s > 0
        await self.go.wait()
        if isinstance(self.answer, HeronError):
            raise self.answer
        return self.answer


def with_service(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, test: Callable[[httpx.AsyncClient, Service], Awaitable[None]]
) -> None:
    async def do(client: httpx.AsyncClient, tracker: object) -> None:
        service = Service()
        monkeypatch.setattr("heronpy.clusters.masters.Master.take", lambda *words: service.take(*words))
        client.headers.update(PROOF)
        await test(client, service)

    asking.within(do)


async def result(client: httpx.AsyncClient, path: str) -> httpx.Response:
    """The answer once nothing is under way."""
    async with asyncio.timeout(10):
        while True:
            answer = await client.get(path)
            if answer.status_code != 200 or not answer.json()["under_way"]:
                return answer
            await asyncio.sleep(0)


def test_stacks_are_asked_for_and_given(
    asking: Asking, running: FakeTopology, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "heronpy.tracker")

    async def test(client: httpx.AsyncClient, service: Service) -> None:
        assert (await client.get(f"{TASK}/stacks")).json()[
            "title"
        ] == "stacks of 'container_1_count_2' was not requested"
        begun = (await client.post(f"{WORDY}/tasks/2/stacks", json={})).json()
        assert (begun["process"], begun["kind"], begun["under_way"]) == ("container_1_count_2", "stacks", True)
        assert (await client.get(f"{TASK}/stacks")).json()["under_way"]
        again = await client.post(f"{TASK}/profile", json={})
        assert again.status_code == 409 and "is already being collected: stacks" in again.json()["title"]
        service.go.set()
        found = (await result(client, f"{TASK}/stacks")).json()
        assert found["stacks"] == "Thread 0x1 ...\n" and found["profile"] is None and found["at"] > 0
        for name in ("2", "count-2", "count_2"):
            assert (await client.get(f"{WORDY}/tasks/{name}/stacks")).json() == found, "by all names of the task"
        assert [type(one).__name__ for one in service.asked] == ["DumpStacks"]

    with_service(asking, monkeypatch, test)
    assert "requested stacks of container_1_count_2 of local/me/default/wordy: done" in caplog.text


def test_a_profile_and_a_heap_have_their_shapes(
    asking: Asking, running: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        service.go.set()
        stacks = [WeightedStack(stack=[0, 1], seconds=2.0)]
        service.answer = packed(
            Profile(
                frames=["main", "<b>f</b> (a.py:1)"], stacks=stacks, seconds=2.5, left_out_s=0.5, sampler="py-spy",
                note="",
            )
        )  # fmt: skip
        assert (await client.post(f"{TASK}/profile", json={"duration_s": 2, "idle": True})).json()["takes_s"] == 2
        profile = (await result(client, f"{TASK}/profile")).json()["profile"]
        assert profile["stacks"] == [{"stack": [0, 1], "seconds": 2.0}] and profile["seconds"] == 2.5
        asked = service.asked[-1]
        assert isinstance(asked, control_pb2.Profile) and asked.idle and asked.duration_s == 2 and asked.rate == 200
        types = [HeapType(name="dict", count=5, bytes=60)]
        service.answer = packed(
            Heap(types=types, kinds=2, objects=7, bytes=70, share=0.5, paused_s=0.1, memory_bytes=100)
        )  # fmt: skip
        unsaid = await client.post(f"{TASK}/heap", json={})
        assert unsaid.status_code == 428 and "stops for up to 2 s" in unsaid.json()["title"]
        assert len(service.asked) == 1, "nothing stops before it is known that it will"
        await client.post(f"{TASK}/heap", json={"pause": True, "top": 5})
        heap = (await result(client, f"{TASK}/heap")).json()["heap"]
        assert heap["types"] == [{"name": "dict", "count": 5, "bytes": 60}] and heap["share"] == 0.5
        await client.post(f"{WORDY}/tasks/stmgr-1/heap", json={"pause": True})
        assert (await result(client, f"{WORDY}/tasks/stmgr-1/heap")).json()["process"] == "stmgr-1"

    with_service(asking, monkeypatch, test)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RpcError("container_1_count_2 ended while being sampled"), 409, "refused"),
        (RpcError("py-spy is not permitted to attach; run the topology as root"), 409, "refused"),
        (RetryableRpcError("evidence of container_1_count_2 is already being collected"), 409, "busy"),
        (DeadlineError("the executor of container 1 did not answer within 55 s"), 503, "no-answer"),
    ],
)
def test_what_fails_is_one_sentence_and_can_be_tried_again(
    error: HeronError, status: int, kind: str, asking: Asking, running: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        service.answer = error
        service.go.set()
        await client.post(f"{TASK}/profile", json={})
        for _ in range(2):
            answer = await result(client, f"{TASK}/profile")
            assert answer.headers["content-type"] == "application/problem+json"
            assert (answer.status_code, answer.json()["type"], answer.json()["title"]) == (status, kind, str(error))
        empty = Profile(frames=[], stacks=[], seconds=0.0, left_out_s=0.0, sampler="py-spy", note="")
        service.answer = packed(empty)
        assert (await client.post(f"{TASK}/profile", json={})).status_code == 200
        assert (await result(client, f"{TASK}/profile")).status_code == 200

    with_service(asking, monkeypatch, test)


@pytest.mark.parametrize(
    ("state", "pid", "said"),
    [
        (control_pb2.PROC_BACKOFF, 0, "has ended and is about to be restarted (oom)"),
        (control_pb2.PROC_RUNNING, 13, "has ended in the meantime (oom), and was restarted; try again"),
        (control_pb2.PROC_FAILED, 0, "has ended and will not be restarted (oom)"),
        (control_pb2.PROC_RUNNING, 12, "has ended, and may be about to be restarted"),
    ],
    ids=["between two starts", "started again", "for good", "not told yet"],
)
def test_of_a_task_that_ends_meanwhile_that_is_said(
    state: control_pb2.ProcessState, pid: int, said: str, asking: Asking, running: FakeTopology,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    async def test(client: httpx.AsyncClient, service: Service) -> None:
        service.answer = InvalidRpcError("container_1_count_2 is not running in this container")
        assert (await client.post(f"{TASK}/stacks", json={})).status_code == 200
        process = running.status.executors[-1].processes[0]
        process.state, process.pid, process.exit_reason = state, pid, "oom"
        service.go.set()
        answer = await result(client, f"{TASK}/stacks")
        assert (answer.status_code, answer.json()["title"]) == (409, f"container_1_count_2 {said}")

    with_service(asking, monkeypatch, test)


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("tasks/container_1_cuont_2/stacks", {}, 404, "did you mean 'container_1_count_2'"),
        ("tasks/99/stacks", {}, 404, "has no task or process '99'"),
        ("tasks/..%2F..%2Fetc/stacks", {}, 404, "there is no page or route"),
        ("tasks/3/stacks", {}, 409, "container_1_count_3 has ended and is about to be restarted (oom)"),
        ("tasks/count-3/profile", {}, 409, "container_1_count_3 has ended and is about to be restarted (oom)"),
        ("tasks/2/profile", {"duration_s": 1e9}, 400, "from 0.5 to 60"),
        ("tasks/2/profile", {"rate": 0}, 400, "rate is 0"),
        ("tasks/2/heap", {"top": 10**6, "pause": True}, 400, "from 1 to 500"),
        ("tasks/2/heap", {"colour": 1}, 400, "the body is invalid"),
        ("tasks/2/trace", {}, 404, "there is no page or route"),
    ],
)
def test_bad_input_gets_one_sentence(
    path: str, body: dict[str, Any], status: int, said: str, asking: Asking, running: FakeTopology
) -> None:
    answer = asking.ask("POST", f"{WORDY}/{path}", json=body, headers=PROOF)
    assert answer.status_code == status and said in answer.json()["title"], answer.text


def test_what_is_kept_is_bounded() -> None:
    async def go() -> None:
        evidence = EvidenceCache()
        gate = asyncio.Event()

        async def take(found: Evidence) -> Evidence:
            await gate.wait()
            return found

        def begin(number: int) -> None:
            found = Evidence(process=str(number), kind="stacks", under_way=True, at=0, takes_s=0)
            evidence.begin(Entry("id", str(number), "stacks", found), take(found))

        for number in range(AT_ONCE_MAX):
            assert not evidence.is_full
            begin(number)
        assert evidence.is_full and evidence.busy("id", "0") and not evidence.busy("other", "0")
        gate.set()
        for number in range(AT_ONCE_MAX, KEPT_MAX + 5):
            begin(number)
            async with asyncio.timeout(10):
                while evidence.busy("id", str(number)):
                    await asyncio.sleep(0)
        kept = [number for number in range(KEPT_MAX + 5) if evidence.find("id", str(number), "stacks")]
        assert len(kept) == KEPT_MAX and kept[-1] == KEPT_MAX + 4, "the oldest are forgotten"
        evidence.close()

    asyncio.run(go())
