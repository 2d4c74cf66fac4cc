"""Slow tasks and large tuples, real processes: memory stays bounded, the culprit is named, nothing is lost."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.runtime.programs.sizes import SIZES
from tests.support.command import Heron
from tests.support.inside import inside
from tests.support.waiting import wait_for

PROGRAMS = Path(__file__).parent / "programs"
#: No process of these topologies may need more; an idle one has about 45 MB.
RSS_MAX = 130 << 20


def stored(out: Path) -> Counter[int]:
    return Counter(int(line) for path in out.glob("stored.*") for line in path.read_text().split())


def largest(heron: Heron) -> int:
    return max(process.memory_info().rss for process in heron.processes())


def when_pressed(heron: Heron, name: str) -> None:
    """A worker is named as too slow, and spouts are stopped because of it."""
    status = heron.when(name, lambda s: s["backpressure"], "backpressure")
    assert {row["component"] for row in status["backpressure"]} <= {"work"}
    wait_for(lambda: any(beat.clamped for beat in inside(heron, name).stmgrs), 30, "a clamped spout")


def test_slow_bolt_stops_the_spouts_and_its_cure_loses_nothing(heron: Heron, out: Path) -> None:
    count = 20_000
    heron.submit(PROGRAMS / "faults.py", "slow", "--out", out, "--count", count, "--mode", "ATMOST_ONCE",
                 "--pad", 1000, "--work-pause-ms", 30)  # fmt: skip
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
    heron.submit(PROGRAMS / "faults.py", "slow", "--out", out, "--count", count, "--pad", 1000, "--containers", 2,
                 "--work-pause-ms", 20, "--pending", 5000, "--message-timeout", 10)  # fmt: skip
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
