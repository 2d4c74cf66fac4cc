"""Slow tasks and large tuples, real processes: memory stays bounded, the culprit is named, nothing is lost."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from heronpy.proto import control_pb2
from tests.acceptance.test_operations import counting, stored
from tests.runtime.programs.sizes import SIZES
from tests.support.command import Heron
from tests.support.inside import ask_master, inside
from tests.support.waiting import wait_for

PROGRAMS = Path(__file__).parent / "programs"
#: No process of these topologies may need more; an idle one has about 45 MB.
RSS_MAX = 130 << 20


def largest(heron: Heron) -> int:
    return max(process.memory_info().rss for process in heron.processes())


def when_pressed(heron: Heron, name: str) -> None:
    """A worker is named as too slow, and spouts are stopped because of it."""
    status = heron.when(name, lambda s: s["backpressure"], "backpressure")
    assert {row["component"] for row in status["backpressure"]} <= {"work"}
    wait_for(lambda: any(beat.clamped for beat in inside(heron, name).stmgrs), 30, "a clamped spout")


def test_slow_bolt_stops_the_spouts_and_its_cure_loses_nothing(heron: Heron, out: Path) -> None:
    count = 20_000
    counting(heron, out, "slow", count=count, spouts=2, stores=2, pad=1000, work_pause_ms=30)
    when_pressed(heron, "slow")
    rss = largest(heron)
    done = sum(stored(out).values())
    wait_for(lambda: sum(stored(out).values()) > done + 60, 30, "some progress")
    assert largest(heron) < max(RSS_MAX, rss + (20 << 20))
    # Bounded in tuples, too: at 1 KB each some megabytes wait (windows, marks, in-queues), not the 20 that could.
    assert heron.status("slow")["components"][0]["emitted"] < 16_000
    heron("update", "local", "slow", "--runtime-config", "work:work_pause_ms:0").ok()
    heron.when_state("slow", "FINISHED")
    assert stored(out) == Counter(range(count))
    assert heron.status("slow")["discarded_tuples"] == 0


@pytest.mark.heavy
def test_the_death_of_the_announcing_stream_manager_clamps_nobody_for_ever(heron: Heron, out: Path) -> None:
    count = 12_000
    late = {"guarantee": "ATLEAST_ONCE", "pending": 5000, "message_timeout": 10}
    counting(heron, out, "slow", count=count, spouts=2, stores=2, pad=1000, work_pause_ms=20, containers=2, **late)
    when_pressed(heron, "slow")
    announcer = heron.status("slow")["backpressure"]
    number = announcer[0]["stmgr_id"].rpartition("-")[2] if announcer else "1"
    os.kill(heron.pid("slow", f"stmgr-{number}"), signal.SIGKILL)
    done = sum(stored(out).values())
    wait_for(lambda: sum(stored(out).values()) > done + 60, 30, "some progress")
    heron("update", "local", "slow", "--runtime-config", "work:work_pause_ms:0").ok()
    heron.when_state("slow", "FINISHED")
    assert set(stored(out)) == set(range(count))
    assert not any(beat.clamped for beat in inside(heron, "slow").stmgrs)


@pytest.mark.heavy
def test_tuples_of_every_size_pass_or_are_refused_and_the_links_survive(heron: Heron) -> None:
    heron.submit(PROGRAMS / "sizes.py", "sizes")
    heron.when_state("sizes", "FINISHED")
    text = heron.log_text("sizes")
    small = {size for size in SIZES if size < 32 << 20}
    assert {int(n) for n in re.findall(r"received (\d+)", text)} == small
    assert {int(n) for n in re.findall(r"acked (\d+)", text)} == small
    for size in set(SIZES) - small:
        assert re.search(
            rf"refused {size}: TopologyError: component blobs emitted a tuple of {size + 14} bytes on stream "
            r"'default'; the limit is 33554432 \(heron.instance.tuple_max_bytes",
            text,
        )
    restarts = [p["restarts"] for c in heron.status("sizes")["containers"] for p in c["processes"]]
    assert not any(restarts)
    assert psutil.pid_exists(heron.pid("sizes", "stmgr-1"))


#: An aligned barrier waits for what is queued, which is bounded by twice `heron.stmgr.queue_target_ms`.
ALIGNED_S = 3.0
#: How much longer than without overload a verb may take: an aligned checkpoint for those that take one.
LATER_S = {"savepoint": ALIGNED_S, "update": ALIGNED_S, "kill": 2.0}


def verbs(heron: Heron, out: Path, name: str, *words: object) -> dict[str, float]:
    """How long an aligned checkpoint and verbs take, on a topology with state that is killed at the end."""
    folder = out / name
    folder.mkdir()
    heron.submit(PROGRAMS / "stateful.py", name, "--out", folder, "--keys", 100, *words,
                 *("--config-property", "heron.checkpoint.aligned_timeout_s=3600"),
                 *("--config-property", "heron.checkpoint.interval_s=3600"))  # fmt: skip
    if name == "overload":
        when_pressed(heron, name)

    def took(*verb: object) -> float:
        began = time.monotonic()
        heron(*verb).ok()
        return time.monotonic() - began

    # What came before the pace of `work` was known is in front of the first one.
    found = {}
    for what in ("first aligned checkpoint", "aligned checkpoint"):
        heron("checkpoints", "trigger", "local", name).ok()
        found[what] = ask_master(heron, name, control_pb2.GetCheckpoints()).complete[-1].duration_s
    found["savepoint"] = took("checkpoints", "savepoint", "local", name)
    found["update"] = took("update", "local", name, "--container-number", 2)
    found["kill"] = took("kill", "local", name)
    return found


@pytest.mark.heavy
def test_aligned_checkpoints_and_verbs_are_as_fast_under_overload(heron: Heron, out: Path) -> None:
    """Printed with and without; the verbs take no longer than the barrier that some of them wait for."""
    without = verbs(heron, out, "calm", "--source-pause-ms", 20)
    under = verbs(heron, out, "overload", "--work-pause-ms", 2)
    for what, seconds in without.items():
        print(f"{what}: {seconds:.2f} s without overload, {under[what]:.2f} s with it")
    assert under["aligned checkpoint"] <= ALIGNED_S
    late = {verb: under[verb] for verb, later_s in LATER_S.items() if under[verb] > without[verb] + later_s}
    assert not late, f"without overload: {without}"
