"""Evidence of a process: from py-spy or from itself; otherwise one sentence."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.errors import InvalidRpcError, RetryableRpcError, RpcError
from heronpy.executor import evidence
from heronpy.executor.evidence import AT_ONCE_MAX, ITSELF, PY_SPY, Evidence
from heronpy.net.answers import read
from heronpy.proto.control_pb2 import DumpStacks, Heap, Profile
from heronpy.views import evidence as evidence_of
from tests.support.waiting import eventually

NAME = "container_1_word_1"
CHILD = """
import sys
from heronpy.procs import sampler
kept = [bytearray(1000) for _ in range(1000)]
sampler.install(sys.argv[1])
print("ready", flush=True)
def burn():
    while True:
        sum(range(1000))
burn()
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", CHILD, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.fixture
def spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a shell script as py-spy; an empty one: none is installed."""

    def install(script: str) -> None:
        path = tmp_path / "py-spy"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        monkeypatch.setattr(evidence, "py_spy", lambda: str(path) if script else None)

    return install


def service(folder: Path, process: subprocess.Popen[str]) -> Evidence:
    async def stacks(name: str, ask: Callable[[], None]) -> str | None:
        return 'Thread 0x1 (most recent call first):\n  File "a.py", line 3 in f\n'

    return Evidence(
        "executor-1",
        str(folder),
        lambda name: process.pid if name == NAME and process.poll() is None else 0,
        os.kill,
        stacks,
    )


def profile(**more: Any) -> Profile:
    return Profile(**{"name": NAME, "duration_s": 0.5, "rate": 100, **more})


async def test_without_py_spy_the_process_samples_itself_and_counts_its_objects(
    tmp_path: Path, child: subprocess.Popen[str], spy: Callable[[str], None]
) -> None:
    spy("")
    found = read(await service(tmp_path, child).profile(profile(duration_s=1.0)), evidence_of.Profile)
    assert (found.sampler, found.note) == (ITSELF, "")
    heaviest = [found.frames[number] for number in found.stacks[0].stack]
    assert heaviest[0] == "MainThread" and any(name.startswith("burn ") for name in heaviest)
    counted = read(await service(tmp_path, child).heap(Heap(name=NAME, top=3, limit_s=5.0)), evidence_of.Heap)
    assert len(counted.types) == 3 and counted.kinds > 3
    [kept] = [one for one in counted.types if one.name == "bytearray"]
    assert kept.count == 1000 and kept.bytes > 1_000_000
    assert counted.memory_bytes > kept.bytes and counted.paused_s > 0
    assert (await service(tmp_path, child).dump_stacks(DumpStacks(name=NAME))).text.startswith("Thread 0x1")
    assert not list(tmp_path.glob("sample-*")), "nothing is left"
    with pytest.raises(RpcError, match="needs py-spy, which is not installed"):
        await service(tmp_path, child).profile(profile(native=True))


SLOW_TO_RETURN = """
import time
from heronpy.procs import sampler
answer = sampler._answer
sampler._answer = lambda *words: (answer(*words), time.sleep(1))
"""


async def test_who_has_an_answer_may_ask_again_at_once(tmp_path: Path, spy: Callable[[str], None]) -> None:
    spy("")
    words = [sys.executable, "-c", SLOW_TO_RETURN + CHILD, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        one = service(tmp_path, process)
        for _ in range(2):
            assert read(await one.profile(profile()), evidence_of.Profile).sampler == ITSELF
            assert read(await one.heap(Heap(name=NAME, top=3, limit_s=5.0)), evidence_of.Heap).kinds > 3
        process.kill()


async def test_py_spy_samples_when_it_may(
    tmp_path: Path, child: subprocess.Popen[str], spy: Callable[[str], None]
) -> None:
    spy(
        'while [ "$1" ]; do [ "$1" = --output ] && out="$2"; shift; done; echo "f (/a/b/c.py:3);g (x.py:1) 50" > "$out"'
    )
    found = read(await service(tmp_path, child).profile(profile()), evidence_of.Profile)
    assert found.sampler == PY_SPY and found.frames == ["f (b/c.py:3)", "g (x.py:1)"]
    assert found.stacks[0].seconds == 0.5 and not list(tmp_path.glob("spy-*"))


async def test_py_spy_that_is_refused_is_named_and_does_without(
    tmp_path: Path, child: subprocess.Popen[str], spy: Callable[[str], None]
) -> None:
    spy("echo 'Error: Permission Denied: try with sudo' >&2; exit 1")
    found = read(await service(tmp_path, child).profile(profile()), evidence_of.Profile)
    assert found.sampler == ITSELF and "py-spy is not permitted to attach" in found.note
    with pytest.raises(RpcError, match="py-spy is not permitted to attach"):
        await service(tmp_path, child).profile(profile(native=True))


@pytest.mark.parametrize("script", ["", "exec sleep 30"])
async def test_a_process_that_ends_meanwhile(
    script: str, tmp_path: Path, child: subprocess.Popen[str], spy: Callable[[str], None]
) -> None:
    spy(script)
    one = service(tmp_path, child)
    task = asyncio.ensure_future(one.profile(profile(duration_s=30)))
    await eventually(lambda: list(tmp_path.glob("sample-*.ask")) or one.spies)
    with pytest.raises(RetryableRpcError, match="already being collected"):
        await one.heap(Heap(name=NAME, top=3, limit_s=1.0))
    child.kill()
    child.wait()
    one.close()  # as the executor when it ends: py-spy would notice by itself
    with pytest.raises(RpcError, match=f"{NAME} ended while being sampled"):
        await task
    with pytest.raises(InvalidRpcError, match="is not running in this container"):
        await one.profile(profile())


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Profile(name=NAME, duration_s=0, rate=10), "the duration is 0 s"),
        (Profile(name=NAME, duration_s=301, rate=10), "from 0.1 to 300"),
        (Profile(name=NAME, duration_s=float("nan"), rate=10), "the duration is nan"),
        (Profile(name=NAME, duration_s=1, rate=0), "the rate is 0"),
        (Profile(name=NAME, duration_s=1, rate=1001), "from 1 to 1000"),
        (Heap(name=NAME, top=3, limit_s=60), "take 0.05 to 5 s"),
        (Heap(name=NAME, top=0, limit_s=1), "1 to 500 types"),
        (DumpStacks(name="../x"), "is not running in this container"),
    ],
)  # fmt: skip
async def test_what_makes_no_sense_is_refused(
    request_: Any, said: str, tmp_path: Path, child: subprocess.Popen[str], spy: Callable[[str], None]
) -> None:
    spy("")
    one = service(tmp_path, child)
    do = {"Profile": one.profile, "Heap": one.heap, "DumpStacks": one.dump_stacks}[type(request_).__name__]
    with pytest.raises(InvalidRpcError, match=said):
        await do(request_)


async def test_few_at_once(tmp_path: Path, child: subprocess.Popen[str], spy: Callable[[str], None]) -> None:
    spy("exec sleep 30")
    one = Evidence("executor-1", str(tmp_path), lambda name: child.pid, os.kill, lambda name, ask: asyncio.sleep(0, ""))
    tasks = [
        asyncio.ensure_future(one.profile(profile(name=f"task {number}", native=True))) for number in range(AT_ONCE_MAX)
    ]
    await eventually(lambda: len(one.spies) == AT_ONCE_MAX)
    with pytest.raises(RetryableRpcError, match=f"of {AT_ONCE_MAX} processes"):
        await one.profile(profile())
    one.close()
    for answer in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(answer, RpcError) and "py-spy could not sample" in str(answer)
    with pytest.raises(RpcError, match="printed no stacks"):
        await one.dump_stacks(DumpStacks(name=NAME))


async def test_the_executor_shows_its_own_stacks(tmp_path: Path, child: subprocess.Popen[str]) -> None:
    text = (await service(tmp_path, child).dump_stacks(DumpStacks(name="executor-1"))).text
    assert "most recent call first" in text and "dump_stacks" in text
