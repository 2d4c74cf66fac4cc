"""Recorded runs give the same diagnosis again, word by word.

Each file in `histories/` is the end of what `heron doctor --watch --window 60 --evidence FILE` wrote about a run of
`topologies/sick.py`, or of a topology that keeps up: `healthy` with idle tasks, `loaded` with tasks that are 40 to 90 %
busy on a machine that others use, too; `starved` is a leak on a machine where others use nearly all CPU. Those with two
words were recorded later, with looks at lines and keys, and with what all processes of the topology take: `saturated`
is the word count, which emits all it can, `update` the same under way to a task more, and the two of Spark are batches
that take 15 s, and more than a minute. The last ones are of `tests/support/troubled.py`; of those, `too-few`, `burst`,
`bad-update`, `late-acks` and `start-burst` are without the CPU pressure of their machine, which is that of others; all
but the last ran with priority over all else. In `crash-acks` two tasks of a topology with acks raise. `leak-early` and
`leak-once` are a leak before its first end and after it, with the memory of the last seconds. In `slow-held` the slow
task has held the spouts for longer than the window, so that no other task did anything. The sentences are those of the
last look.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.health.diagnose import diagnose
from heronpy.health.signals import Signals
from heronpy.health.texts import advice, sentence
from heronpy.views.findings import CALM, Verdict
from tests.support.histories import replay

HISTORIES = Path(__file__).parent / "histories"

_RESTART = "heron profile local Sick container_1_work_2; heron restart local Sick container_1_work_2"
_MEMORY = (
    "heron heap local Sick container_1_work_2 shows its objects; keep fewer objects, or raise the limit of its tasks"
    " (heron.instance.memory_soft_limit_bytes)"
)
_WAITS = (
    "check the calls of store (heron profile local Sick container_1_store_6); an AsyncBolt can wait for many calls at once;"
    " heron update local Sick --component-parallelism store:2 shows whether more tasks help"
)
_SKEW = "more tasks will not help: aggregate before the fields grouping, or group by one more field"
_SPARK = (
    "Spark's machine has no free CPU: use larger and fewer batches (heron.spark.batch_rows), or run Spark on another machine"
    " (heron.spark.master)"
)
#: Histories in which nothing needs action; and one in which, look by look, that comes and goes: the docs say so.
CALM_ONES, WAVERING = ("healthy", "loaded", "update", "no-input", "burst", "spare", "units"), ("saturated",)
#: Per history, the first sentence and what to do next.
SENTENCES = {
    "healthy": ("Sick is healthy: 473/s, spouts held back 0 % of the time, busiest task container_1_work_2 at 7 %", ""),
    "loaded": ("Sick is healthy: 464/s, spouts held back 0 % of the time, busiest task container_1_work_2 at 94 %", ""),
    "slow": ("container_1_work_2 is slow: while busy, it handles 39/s, and the other tasks of work handle 836/s each", _RESTART),
    "slow-held": (
        "container_1_work_2 is slow: while busy, it handles 21/s, and the other tasks of work wait for tuples: they are"
        " at most 0 % busy; 100 % of the time in process (sick.py:60), for 14m00s", _RESTART,
    ),
    "skew": (
        "data skew: container_1_work_3, one of 4 tasks, gets 85 % of the tuples (an even share is 25 %) and is 100 % busy,"
        " the others 8 %", _SKEW,
    ),
    "crash": (
        "container_1_work_2 was restarted 8 times: ValueError: order 49 of user 66 cannot be booked",
        "heron exceptions local Sick; heron logs local Sick container_1_work_2",
    ),
    "leak": (
        "container_1_work_2 ran out of memory 6 times: its resident memory peaked at 141.5MB, above the limit of 120MB",
        _MEMORY,
    ),
    "leak-early": (
        "memory of container_1_work_2 grows by 97.9MB per minute, for 41s: 119.3MB now, its siblings have 46.7MB; it is"
        " at its limit of 120MB", _MEMORY,
    ),
    "leak-once": (
        "container_1_work_2 ran out of memory once, growing by 97.9MB per minute: its resident memory peaked"
        " at 122.2MB, above the limit of 120MB", _MEMORY,
    ),
    "starved": (
        "container_1_work_2 ran out of memory 7 times: its resident memory peaked at 120.5MB, above the limit of 120MB",
        _MEMORY,
    ),
    "sink": ("store is waiting, not computing: 51ms per tuple, 578us of it CPU", _WAITS),
    "slow-line": (
        "container_1_work_2 is slow: while busy, it handles 34/s, and the other tasks of work handle 455/s each; 98 % of the time in"
        " process (sick.py:60)", _RESTART,
    ),
    "skew-key": (
        "data skew: container_1_work_3, one of 4 tasks, gets 54 % of the tuples (an even share is 25 %) and is 100 % busy,"
        " the others 13 %; 96 % of its tuples have user='big'", _SKEW,
    ),
    "crash-line": (
        "container_1_work_2 ended 17 times and is down: ValueError: order 49 of user 53 cannot be booked, in"
        " process (sick.py:65)", "heron exceptions local Sick; heron logs local Sick container_1_work_2",
    ),
    "crash-acks": (
        "container_1_price_2 was restarted 12 times: KeyError: 'no tariff for parcel 2413', in process (parcels.py:28)",
        "heron exceptions local raise; heron logs local raise container_1_price_2",
    ),
    "crash-starved": (
        "container_1_work_2 was restarted 2 times: ValueError: order 49 of user 41 cannot be booked, in process"
        " (sick.py:65)", "heron exceptions local Sick; heron logs local Sick container_1_work_2",
    ),
    "leak-limited": (
        "container_1_work_2 ran out of memory once: its resident memory peaked at 121.6MB, above the limit of 120MB",
        _MEMORY,
    ),
    "sink-line": (
        "store is waiting, not computing: 54ms per tuple, 238us of it CPU; 100 % of the time in process (sick.py:78),"
        " for 1m00s", _WAITS,
    ),
    "saturated": (
        "WordCount is healthy: 74,880/s, spouts held back 14 % of the time, busiest task container_1_split_2 at 96 %", "",
    ),
    "update": (
        "WordCount has changed (update done: 1 task added, 0 removed, 0 moved, 0 tuples discarded); its rates can be"
        " judged in 26s", "",
    ),
    "spark-late": ("Spark is behind: 2 batches wait, the oldest for 34s; a batch takes 15.5s", _SPARK),
    "spark-stuck": (
        "Spark is behind: 4 batches wait, the oldest for 2m26s; no batch was completed in the last 1m05s", _SPARK,
    ),
    "hung": (
        "container_1_work_2 has been in one call for 32s: process (troubled.py:100)",
        "heron stacks local Troubled container_1_work_2 shows its current line; if the task waits for a service, an"
        " AsyncBolt can wait for many calls at once",
    ),
    "limit": (
        "topology.max.spout.pending (20) limits the rate: the spouts wait for acks, and no bolt is busier than 5 %",
        "raise topology.max.spout.pending, or make the sinks ack sooner",
    ),
    "batches": (
        "topology.max.spout.pending (200) limits the rate: the spouts wait for acks 38 % of the time, and no bolt is busier"
        " than 6 %", "raise topology.max.spout.pending, or make the sinks ack sooner",
    ),
    "no-input": ("no input: source emitted nothing in the last 1m10s", ""),
    "units": ("slow is catching up: 581.7KB of log files are waiting, 1.7KB/s are published", ""),
    "declined": (
        "no checkpoint yet (one is due every 2s); the last checkpoint did not complete: checkpoint 70: task 4 of store declined:"
        " pre_save of task container_1_store_4 raised OSError: the disk is full",
        "heron checkpoints list local Troubled",
    ),
    "failed": (
        "Troubled has failed: container_1_work_2 failed: user exception: ended 10 times in 32 s without a healthy run in"
        " between: ValueError: number 19 is unlucky",
        "heron exceptions local Troubled; then heron restart local Troubled, or submit a corrected program",
    ),
    "silent": (
        "the only task of source is down (container_1_source_1): stmgr-1 has been silent for 10 s",
        "heron status local Troubled; heron exceptions local Troubled; heron logs local Troubled container_1_source_1",
    ),
    "too-few": (
        "work needs more tasks: about 392/s arrive; its only task handles 180/s, 100 % busy",
        "heron update local Troubled --component-parallelism work:4",
    ),
    "spare": (
        "3 of the 4 tasks of work suffice: in the last hour they were at most 36 % busy",
        "heron update local Troubled --component-parallelism work:3",
    ),
    "burst": ("work is catching up: its queues empty in 58s", ""),
    "start-burst": (
        "work needs more tasks: about 20/s arrive; its only task handles 16/s, 100 % busy",
        "heron update local Troubled --component-parallelism work:2",
    ),
    "bad-update": (
        "work processes 43 % less per busy second since the update to physical plan 3 5m28s ago (update done: 1 task added, 0 removed,"
        " 0 moved, 0 tuples discarded): 151/s per task instead of 266/s",
        "if the slowdown was not intended, go back to physical plan 2: heron update local Troubled"
        " --component-parallelism work:2; heron events local Troubled",
    ),
    "late-acks": (
        "Troubled is slower than usual: from emit to the full ack at source, p99 5s (usually 19ms); cause unknown",
        "heron top local Troubled; heron profile local Troubled TASK; heron doctor local Troubled --evidence FILE packs"
        " all evidence",
    ),
}  # fmt: skip


def looks(name: str) -> list[Signals]:
    path = HISTORIES / f"{name}.jsonl"
    return [signals for _, signals in replay(path.read_text(encoding="utf-8").splitlines())]


@pytest.mark.parametrize("name", SENTENCES)
def test_the_first_finding_is_the_cause(name: str) -> None:
    wanted, todo = SENTENCES[name]
    last = looks(name)[-1]
    found = diagnose(last)[0]
    assert sentence(found, last.topology) == wanted
    assert advice(found, "local", last.topology) == todo


@pytest.mark.parametrize("name", [name for name in SENTENCES if name not in WAVERING])
def test_a_topology_that_keeps_up_is_healthy_all_the_time_and_the_others_never(name: str) -> None:
    for signals in looks(name):
        first = diagnose(signals)[0]
        assert (first.verdict in CALM) == (name in CALM_ONES), sentence(first, signals.topology)


def test_a_task_that_waits_for_a_core_waits_for_no_service() -> None:
    """In the first seconds on a machine of which others take most, tasks had 9 % of a core: "waiting, not computing"."""
    for signals in looks("crash-starved"):
        assert Verdict.DEPENDENCY not in {one.verdict for one in diagnose(signals)}


def test_what_a_crash_explains_is_said_of_nothing_else() -> None:
    """Acks waited for tasks that raise: "raise topology.max.spout.pending", and "price is waiting, not computing"."""
    for signals in looks("crash-acks"):
        assert {one.verdict for one in diagnose(signals)} == {Verdict.CRASHING, Verdict.MACHINE}


def test_a_driver_is_the_topologys_own() -> None:
    """Its tasks report next to nothing; what Spark took was said to be of others."""
    for signals in looks("spark-stuck"):
        [host] = signals.hosts
        reported = sum(task.cpu or 0.0 for task in signals.tasks)
        assert reported < 0.15 < host.spark <= host.own


def test_more_tasks_are_not_advised_where_no_cpu_is_left() -> None:
    """All tasks of work were 88 % busy and more: waiting for a core."""
    found = diagnose(looks("starved")[-1])
    assert [one.verdict for one in found] == [Verdict.MEMORY, Verdict.MACHINE]


def test_what_had_waited_for_the_start_asks_for_no_tasks() -> None:
    """6,000 tuples at once, and 20 a second from then on: 69 tasks were advised after 7 s, where 2 or 3 suffice."""
    for signals in looks("start-burst"):
        found = diagnose(signals)[0]
        assert found.verdict is Verdict.UNDER_PROVISIONED and found.figures.get("needed", 2.0) in (2.0, 3.0)
        assert ("needed" in found.figures) == ("known_in_s" not in found.figures) == ((signals.age_s or 0.0) > 156.0)


def test_every_history_has_its_sentence() -> None:
    assert {path.stem for path in HISTORIES.glob("*.jsonl")} == SENTENCES.keys()
