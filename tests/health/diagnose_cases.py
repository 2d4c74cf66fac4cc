"""Figures of topologies, and for each diagnosis a case: what the doctor sees, its verdict, how its sentence begins."""

from __future__ import annotations

from typing import Any

from heronpy.health.diagnose import diagnose
from heronpy.health.signals import HostSignals, HotSpots, Signals, TaskSignals
from heronpy.health.texts import sentence
from heronpy.proto import control_pb2
from heronpy.views.findings import Verdict

RUNNING = control_pb2.LIFE_RUNNING


def bolt(number: int, busy: float = 0.3, executed: float = 1000.0, **more: Any) -> TaskSignals:
    return TaskSignals(f"count-{number}", "count", False, True, executed=executed, busy=busy, cpu=more.pop("cpu", busy),
                       **more)  # fmt: skip


def signals(*bolts: TaskSignals, emitted: float = 4000.0, **more: Any) -> Signals:
    spout = TaskSignals("words-1", "words", True, True, emitted=emitted, pending=int(more.pop("pending", 0)),
                        at_limit=more.pop("at_limit", None))  # fmt: skip
    return Signals("wc", more.pop("lifecycle", RUNNING), more.pop("cause", ""), 60.0, [spout, *bolts], **more)


def units(backlog: float = 0.0, published: float = 0.0) -> Signals:
    """A pipeline of work units that writes a table, so that its worker emits nothing."""
    tasks = [
        TaskSignals(f"clicks-{kind}-1", f"clicks-{kind}", True, True, emits=False) for kind in ("worker", "keeper")
    ]
    return Signals("clicks", RUNNING, "", 60.0, tasks, units_backlog=backlog, units_published=published)


def first(found: Signals) -> tuple[Verdict, str]:
    finding = diagnose(found)[0]
    return finding.verdict, sentence(finding, found.topology)


def history(component: str = "count", minutes: int = 60, **series: Any) -> dict[str, dict[str, list[float | None]]]:
    """Each series a number for all minutes, or a list with the last of them."""
    found = {
        name: [float(value)] * minutes if isinstance(value, int | float) else [None] * (minutes - len(value)) + value
        for name, value in series.items()
    }
    return {component: found}


EVEN = [bolt(n) for n in (2, 3, 4, 5)]
SLOWED = [bolt(n, executed=75.0) for n in (2, 3, 4, 5)]
SKEWED = [bolt(2, 0.98, 6100), *(bolt(n, 0.31, 1300) for n in (3, 4, 5))]
HELD = {"held": 0.83, "culprits": ["count-2"]}
CASES: dict[str, tuple[Signals, Verdict, str]] = {
    "the function of a Spark sink raises": (
        signals(*EVEN, spark_waiting=2, spark_lag_s=5.0, spark_failed=13.0, spark_raised=55.0), Verdict.SPARK,
        "the function of a Spark sink raises exceptions: 55 times in the last 1m00s; of the sink's batches, 13 failed permanently and 0 were",
    ),
    "child processes that nobody ends": (
        signals(bolt(2, descendants=18_581, descendant_bytes=9 << 30), bolt(3, descendants=12), bolt(4, descendants=230)),
        Verdict.PROCESSES,
        "count-2 has 18,581 descendant processes with about 9GB of memory",
    ),
    "one child process with half of the memory": (
        signals(bolt(2, descendants=1, descendant_bytes=5 << 30, host="h1"), machine_memory={"h1": 8 << 30}),
        Verdict.PROCESSES, "count-2 has 1 descendant process with about 5GB of memory",
    ),
    "threads that nobody ends": (signals(bolt(2, threads=1200)), Verdict.PROCESSES, "count-2 has 1,200 threads"),
    "descriptors near their limit": (
        signals(bolt(2, descriptors=900, descriptors_max=1024), bolt(3, descriptors=20, descriptors_max=1024)),
        Verdict.DESCRIPTORS, "count-2 is close to its limit of file descriptors: 900 of 1,024 are open",
    ),
    "much log": (
        signals(bolt(2, log_per_s=1.17 * (1 << 20)), bolt(3, log_per_s=1e5)), Verdict.LOGGING,
        "count-2 writes 70.2MB of log per minute",
    ),
    "a disk that is nearly full": (
        signals(*EVEN, disks={"h1": (100 << 30, 512 << 20), "h2": (1 << 30, 1 << 29)}), Verdict.DISK,
        "the disk with the folder of wc on h1 is nearly full: 512MB of 100GB are left",
    ),
    "as much as a task may take": (
        signals(bolt(2, descendants=64, descendant_bytes=1 << 30, threads=300, descriptors=300, descriptors_max=1024,
                     log_per_s=1e5, host="h1"), disks={"h1": (10 << 40, 400 << 30)}, machine_memory={"h1": 8 << 30}),
        Verdict.HEALTHY, "wc is healthy: ",
    ),
    "healthy": (
        signals(*EVEN), Verdict.HEALTHY, "wc is healthy: 4,000/s, spouts held back 0 % of the time, busiest task count-2 at 30 %"
    ),
    "failed": (
        signals(lifecycle=control_pb2.LIFE_FAILED, cause="parse raises"), Verdict.FAILED, "wc has failed: parse raises"
    ),
    "updating": (
        signals(*EVEN, lifecycle=control_pb2.LIFE_UPDATING, cause="waiting"), Verdict.CHANGING, "wc is updating: waiting"
    ),
    "just updated": (
        signals(*SKEWED, **HELD, changed_s=20.0, change="update done"), Verdict.CHANGING,
        "wc has changed (update done); its rates can be judged in 40s",
    ),
    "just restored": (
        signals(*SKEWED, **HELD, changed_s=15.0, restored=True, change="1 task was restarted"), Verdict.CHANGING,
        "wc has changed (1 task was restarted); its rates can be judged in 5s",
    ),
    "down": (
        signals(bolt(2), TaskSignals("count-3", "count", False, False), restarted={"count-3": (1, "ValueError: x")}),
        Verdict.DOWN, "1 of 2 tasks of count is down (count-3): ValueError: x",
    ),
    "a process waits for a disk": (
        signals(*EVEN, lifecycle=control_pb2.LIFE_DEGRADED, outages=["keeper-1 waits: /ledger is full"]),
        Verdict.DOWN, "wc is degraded: keeper-1 waits: /ledger is full",
    ),
    "down between two restarts": (
        signals(bolt(2), TaskSignals("count-3", "count", False, False), restarted={"count-3": (4, "ValueError: x")}),
        Verdict.CRASHING, "count-3 ended 4 times and is down: ValueError: x",
    ),
    "down for want of memory": (
        signals(bolt(2), TaskSignals("count-3", "count", False, False), out_of_memory={"count-3": (1, "peak 70MB")}),
        Verdict.MEMORY, "count-3 ran out of memory once: peak 70MB",
    ),
    "hung": (signals(bolt(2, silent_s=31.0)), Verdict.HUNG, "count-2 has been in one call for 31s"),
    "memory": (
        signals(*EVEN, out_of_memory={"count-2": (3, "limit 64MB, peak 70MB")}), Verdict.MEMORY,
        "count-2 ran out of memory 3 times: limit 64MB, peak 70MB",
    ),
    "crashing": (
        signals(*EVEN, restarted={"count-2": (2, "killed")}), Verdict.CRASHING, "count-2 was restarted 2 times: killed"
    ),
    "skew": (
        signals(*SKEWED, **HELD), Verdict.SKEW,
        "data skew: count-2, one of 4 tasks, gets 61 % of the tuples (an even share is 25 %) and is 98 % busy,"
        " the others 31 %",
    ),
    "skew of one key": (
        signals(*SKEWED, **HELD, hot_spots={"count-2": HotSpots(keyed=100, key="user='big'", of_key=0.94)},
                history={**history("", held=[0.0, 0.1, 0.4, 0.5]), **history(busy=0.5)}),
        Verdict.SKEW,
        "data skew: count-2, one of 4 tasks, gets 61 % of the tuples (an even share is 25 %) and is 98 % busy,"
        " the others 31 %; 94 % of its tuples have user='big', for 1m00s",
    ),
    "slow in one line": (
        signals(bolt(2, 0.99, 50), *(bolt(n, 0.2, 800) for n in (3, 4, 5)), **HELD,
                hot_spots={"count-2": HotSpots(100, line="parse (orders.py:62)", at_line=0.97)}),
        Verdict.SLOW_TASK,
        "count-2 is slow: while busy, it handles 51/s, and the other tasks of count handle 4,000/s each; 97 % of the time in"
        " parse (orders.py:62)",
    ),
    "waiting in one line": (
        signals(bolt(2, 0.97, 19, cpu=0.01), **HELD, history=history(busy=[0.2, 0.95, 0.96, 0.97]),
                hot_spots={"count-2": HotSpots(40, line="process (sick.py:91), which calls recv", at_line=0.99)}),
        Verdict.DEPENDENCY,
        "count is waiting, not computing: 51ms per tuple, 526us of it CPU; 99 % of the time in process (sick.py:91),"
        " which calls recv, for 2m00s",
    ),
    "too few looks to name a line": (
        signals(bolt(2, 0.97, 19, cpu=0.01), **HELD, hot_spots={"count-2": HotSpots(4, line="process (sick.py:91)", at_line=1.0)}),
        Verdict.DEPENDENCY, "count is waiting, not computing: 51ms per tuple, 526us of it CPU",
    ),
    "hung in one line": (
        signals(bolt(2, silent_s=31.0), hot_spots={"count-2": HotSpots(30, line="process (sick.py:91)", at_line=1.0)}), Verdict.HUNG,
        "count-2 has been in one call for 31s: process (sick.py:91)",
    ),
    "crashing in one line": (
        signals(*EVEN, restarted={"count-2": (2, "ValueError: x")}, hot_spots={"count-2": HotSpots(raised="process (sick.py:62)")}),
        Verdict.CRASHING, "count-2 was restarted 2 times: ValueError: x, in process (sick.py:62)",
    ),
    "crashing for what is common to all crashes": (
        signals(*EVEN, restarted={"count-2": (9, "ValueError: order 49 of user 7")},
                hot_spots={"count-2": HotSpots(raised="process (sick.py:62)", alike="ValueError: order 49 of user …",
                                              alike_times=8, raised_times=9)}),
        Verdict.CRASHING,
        "count-2 was restarted 9 times: ValueError: order 49 of user … (8 of 9 times), in process (sick.py:62)",
    ),
    "ended otherwise than it had raised": (
        signals(*EVEN, restarted={"count-2": (2, "killed")},
                hot_spots={"count-2": HotSpots(raised="process (sick.py:62)", alike="ValueError: order 49",
                                              alike_times=8, raised_times=9)}),
        Verdict.CRASHING, "count-2 was restarted 2 times: killed",
    ),
    "memory runs out again and again": (
        signals(bolt(2, memory_bytes=90 << 20), bolt(3, memory_bytes=60 << 20), memory_limits={"count": 120 << 20},
                out_of_memory={"count-2": (5, "peak 121MB")}, memory_lasts_s={"count-2": 6.0}),
        Verdict.MEMORY,
        "count-2 ran out of memory 5 times, every 6s, growing by 600MB per minute: peak 121MB",
    ),
    "memory grows": (
        signals(bolt(2, memory_bytes=60 << 20), bolt(3, memory_bytes=300 << 20), memory_limits={"count": 512 << 20},
                history=history(largest_bytes=[float(n << 20) for n in (100, 150, 200, 250, 300)])),
        Verdict.MEMORY,
        "memory of count-3 grows by 50MB per minute, for 4m00s: 300MB now, its siblings have 60MB; at this rate it"
        " reaches its limit of 512MB in 4m14s",
    ),
    "memory grows towards the machine's": (
        signals(bolt(2, memory_bytes=300 << 20, host="h1"), machine_memory={"h1": 1 << 30},
                history=history(largest_bytes=[float(n << 20) for n in (100, 150, 200, 250, 300)])),
        Verdict.MEMORY,
        "memory of count-2 grows by 50MB per minute, for 4m00s: 300MB now; at this rate it reaches its limit of 1GB in"
        " 14m29s",
    ),
    "a leak of gigabytes an hour without a limit": (
        signals(bolt(2, memory_bytes=771 << 20, host="h1"), machine_memory={"h1": 24 << 30},
                history=history(largest_bytes=[float(n << 20) for n in (280, 400, 520, 640, 760)])),
        Verdict.MEMORY,
        "memory of count-2 grows by 120MB per minute, for 4m00s: 771MB now; at this rate it reaches its limit of 24GB in"
        " 3h18m",
    ),
    "memory has reached its limit": (
        signals(bolt(2, memory_bytes=512 << 20), memory_limits={"count": 512 << 20},
                history=history(largest_bytes=[float(n << 20) for n in (312, 362, 412, 462, 512)])),
        Verdict.MEMORY,
        "memory of count-2 grows by 50MB per minute, for 4m00s: 512MB now; it is at its limit of 512MB",
    ),
    "a cache that is half full, and fills ever more slowly": (
        signals(bolt(2, 0.3, memory_bytes=300 << 20), memory_limits={"count": 512 << 20},
                history=history(largest_bytes=[float(n << 20) for n in (180, 220, 252, 278, 298)])),
        Verdict.HEALTHY, "wc is healthy: 4,000/s, spouts held back 0 % of the time, busiest task count-2 at 30 %",
    ),
    "a leak that has time": (
        signals(bolt(2, 0.3, memory_bytes=771 << 20, host="h1"), machine_memory={"h1": 24 << 30},
                history=history(largest_bytes=[float(n << 20) for n in (720, 732, 745, 758, 771)])),
        Verdict.HEALTHY, "wc is healthy: 4,000/s, spouts held back 0 % of the time, busiest task count-2 at 30 %",
    ),
    "a backlog is enough": (
        signals(bolt(2, 0.98, 6100, lag_s=9.0), *(bolt(n, 0.31, 1300) for n in (3, 4, 5))), Verdict.SKEW, "data skew"
    ),
    "slow task": (
        signals(bolt(2, 0.99, 50), *(bolt(n, 0.2, 800) for n in (3, 4, 5)), **HELD), Verdict.SLOW_TASK,
        "count-2 is slow: while busy, it handles 51/s, and the other tasks of count handle 4,000/s each",
    ),
    "dependency": (
        signals(bolt(2, 0.97, 19, cpu=0.01), **HELD), Verdict.DEPENDENCY,
        "count is waiting, not computing: 51ms per tuple, 526us of it CPU",
    ),
    "too few": (
        signals(bolt(2, 0.95, 1000), bolt(3, 0.95, 1000), held=0.5, culprits=["count-2"]), Verdict.UNDER_PROVISIONED,
        "count needs more tasks: about 4,000/s arrive; its 2 tasks together handle 2,000/s, each at least 95 % busy",
    ),
    "limit": (
        signals(*EVEN, max_pending=1000, acking=True, pending=990), Verdict.LIMIT,
        "topology.max.spout.pending (1000) limits the rate",
    ),
    "checkpoints": (
        signals(*EVEN, checkpoint_every_s=10.0, checkpoint_age_s=300.0, checkpoint_failure="no answer from task 3",
                checkpoint_waits=["count-3"]),
        Verdict.CHECKPOINTS,
        "no checkpoint for 5m00s (one is due every 10s); a checkpoint is waiting for count-3; the last checkpoint did not complete:"
        " no answer",
    ),
    "spark": (
        signals(*EVEN, spark_waiting=7, spark_batch_s=3.2, spark_lag_s=21.0), Verdict.SPARK,
        "Spark is behind: 7 batches wait, the oldest for 21s; a batch takes 3.2s",
    ),
    "losses": (
        signals(*EVEN, given_up={"count": 9.0}), Verdict.LOSSES, "9 tuples of count became dead letters in the last 1m00s"
    ),
    "lost at most once": (signals(*EVEN, lost=9.0), Verdict.LOSSES, "about 9 tuples lost in transit in the last 1m00s"),
    "lost, and nobody has counted how much": (
        signals(*EVEN, lost=9.0, lost_unknown=True), Verdict.LOSSES,
        "an unknown number of tuples lost in transit in the last 1m00s",
    ),
    "lost at least once": (
        signals(*EVEN, lost=9.0, sends_again=True), Verdict.LOSSES,
        "about 9 tuples lost in transit in the last 1m00s; tuples with an id are replayed",
    ),
    "dropped upon backpressure": (
        signals(*EVEN, dropped={"count": 1234.0}, dropping=["count"]), Verdict.LOSSES,
        "count has too few tasks for its input: 1,234/s find no space in the queues of its 4 tasks",
    ),
    "dropped upon backpressure, and not any more": (
        signals(*EVEN, dropped={"count": 12.0}), Verdict.LOSSES,
        "count had too few tasks for its input: 720 tuples found no space in the queues of its 4 tasks in the last 1m00s, so they were discarded",
    ),
    "no input": (signals(*(bolt(n, 0.0, 0.0) for n in (2, 3)), emitted=0.0), Verdict.NO_INPUT, "no input: words"),
    "work units are published": (
        units(backlog=3e6, published=1e6), Verdict.HEALTHY,
        "clicks is healthy: 2.9MB of log files are waiting, 976.6KB/s are published, spouts held back 0 % of the time",
    ),
    "work units are behind": (
        units(backlog=1e9, published=1e6), Verdict.CATCHING_UP,
        "clicks is catching up: 953.7MB of log files are waiting, 976.6KB/s are published",
    ),
    "work units take long": (
        units(backlog=4096.0), Verdict.CATCHING_UP,
        "clicks is processing work units: 4KB of log files are waiting; nothing was published in the last 1m00s",
    ),
    "nothing waits for work units": (
        units(), Verdict.HEALTHY, "clicks is healthy: no bytes of log files are waiting, spouts held back 0 % of the time"
    ),
    "work units that go to bolts wait": (
        signals(*(bolt(n, 0.0, 0.0) for n in (2, 3)), emitted=0.0, units_backlog=10.0), Verdict.CATCHING_UP,
        "wc is processing work units: 10B of log files are waiting; nothing was published in the last 1m00s",
    ),
    "memory is nearly full": (
        signals(bolt(2, memory_bytes=10), bolt(3, memory_bytes=120_000_000), memory_limits={"count": 125_829_120},
                history=history(largest_bytes=[9e7, 1.15e8, 1.19e8, 1.2e8, 1.2e8])),
        Verdict.MEMORY, "count-3 is close to its memory limit: 114.4MB of 120MB",
    ),
    "bad update": (
        signals(*SLOWED, updated_s=600.0, changed_s=600.0, update="update done", history_age_s=30.0,
                history=history(busy=0.5, tasks=4, executed=[4000.0] * 50 + [2000.0] * 10)),
        Verdict.BAD_UPDATE,
        "count processes 50 % less per busy second since the update 10m00s ago (update done): 1,000/s per task instead of"
        " 2,000/s",
    ),
    "stopped": (
        signals(*EVEN, still_s={"words": 45.0}, held_now=1.0, held=0.1, culprits=["count-2"]), Verdict.STOPPED,
        "words has stopped: it has emitted nothing for 45s (16,000/s before); held back by count-2",
    ),
    "bad update to a plan that is known": (
        signals(*SLOWED, updated_s=600.0, changed_s=600.0, update="update done", history_age_s=30.0,
                history={**history(busy=0.5, tasks=[2.0] * 50 + [4.0] * 10, executed=[2000.0] * 50 + [2000.0] * 10),
                         **history("", plan_version=[6.0] * 50 + [7.0] * 10)}),
        Verdict.BAD_UPDATE,
        "count processes 50 % less per busy second since the update to physical plan 7 10m00s ago (update done): 1,000/s per task instead of",
    ),
    "slow host": (
        signals(*(bolt(n, 0.99, 100, host="h1") for n in (2, 3)), *(bolt(n, 0.4, 900, host="h2") for n in (4, 5)), **HELD),
        Verdict.SLOW_HOST,
        "the 2 tasks of count on h1 are slow: while busy, each handles 101/s, and the tasks on other machines 2,250/s",
    ),
    "machine": (
        signals(bolt(2, 0.95, 1000), bolt(3, 0.95, 1000), held=0.5, hosts=[HostSignals("h1", 4, 0.7, 3.95, 1.2)]),
        Verdict.MACHINE, "h1 has no free CPU: wc uses 1.2 of 4 cores, other processes 2.8",
    ),
    "machine that Spark takes": (
        signals(bolt(2, 0.95, 1000), bolt(3, 0.95, 1000), held=0.5, hosts=[HostSignals("h1", 4, 0.7, 3.95, 3.8, 2.9)]),
        Verdict.MACHINE, "h1 has no free CPU: wc uses 3.8 of 4 cores, 2.9 of them for Spark, other processes 0.2",
    ),
    "too few behind a limit of pending tuples": (
        signals(bolt(2, 0.95, 1000), bolt(3, 0.95, 1000), max_pending=1000, acking=True, pending=990),
        Verdict.UNDER_PROVISIONED, "count needs more tasks: about 2,000/s arrive; its 2 tasks together handle 2,000/s",
    ),
    "spark has done no batch": (
        signals(*EVEN, spark_waiting=2, spark_lag_s=95.0), Verdict.SPARK,
        "Spark is behind: 2 batches wait, the oldest for 1m35s; no batch was completed in the last 1m00s",
    ),
    "spark takes long for batches that grow": (
        signals(*EVEN, spark_waiting=1, spark_batch_s=15.0, spark_lag_s=34.0), Verdict.SPARK,
        "Spark is behind: 1 batch waits, the oldest for 34s; a batch takes 15s",
    ),
    "spark falls behind": (
        signals(*EVEN, spark_waiting=7, spark_batch_s=3.2, spark_lag_s=4.0,
                history=history("", spark_waiting=[3.0, 4.0, 5.0, 6.0, 7.0], spark_done=[0.3] * 5)),
        Verdict.SPARK,
        "Spark is behind: 7 batches wait, the oldest for 4s; batches come every 3.2s and take 3.2s each",
    ),
    "catching up": (
        signals(*(bolt(n, 0.95, lag_s=20.0) for n in (2, 3)), history=history(queue_bytes=[9e6, 8e6, 6e6, 4e6, 3e6])),
        Verdict.CATCHING_UP, "count is catching up: its queues empty in 2m00s",
    ),
    "over-provisioned": (
        signals(*EVEN, history=history(busy=0.2, tasks=4)), Verdict.OVER_PROVISIONED,
        "2 of the 4 tasks of count suffice: in the last hour they were at most 20 % busy",
    ),
    "late for no known reason": (
        signals(*EVEN, history=history(end_to_end_p99_s=[0.2] * 40 + [2.0, 2.1, 2.4])), Verdict.UNTRIAGED,
        "wc is slower than usual: from emit to count, p99 2.1s (usually 200ms); cause unknown",
    ),
    "late and held": (
        signals(*EVEN, held=0.5, culprits=["count-2"], history=history(complete_p99_s=[0.2] * 40 + [0.3] * 3)),
        Verdict.UNTRIAGED, "spouts are held back 50 % of the time by count-2, p99 300ms (usually 200ms); cause unknown",
    ),
    "late for want of CPU": (
        signals(*EVEN, history=history(end_to_end_p99_s=[0.2] * 40 + [2.0] * 3),
                hosts=[HostSignals("h1", 4, 0.7, 3.95, 1.2)]),
        Verdict.MACHINE, "h1 has no free CPU",
    ),
    "untriaged": (
        signals(*EVEN, held=0.5, culprits=["the link from stmgr-1 to stmgr-2"]), Verdict.UNTRIAGED,
        "spouts are held back 50 % of the time by the link from stmgr-1 to stmgr-2; cause unknown",
    ),
}  # fmt: skip
