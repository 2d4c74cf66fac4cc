"""What was found is said until its cause has gone, and skew is of what was sent."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.health.diagnose import diagnose
from heronpy.health.gathering import signals_of
from heronpy.health.signals import Signals
from heronpy.health.texts import sentence
from heronpy.proto import control_pb2, topology_pb2
from heronpy.views.findings import Finding, Verdict
from tests.health.diagnose_cases import HELD, bolt, signals

#: One task of four is slow; and a window in which it held the spouts all the time, so that it alone did anything.
SLOW = [bolt(2, 1.0, 42), *(bolt(n, 0.4, 750) for n in (3, 4, 5))]
ALONE = [bolt(2, 1.0, 42), *(bolt(n, 0.0, 0) for n in (3, 4, 5))]
SKEWED = [bolt(2, 1.0, 2400, sent=2600.0), *(bolt(n, 0.1, 270, sent=290.0) for n in (3, 4, 5))]
WAITS = [bolt(2, 1.0, 20, cpu=0.02)]
MORE: dict[str, Any] = {**HELD, "keyed": []}
KEYED: dict[str, Any] = {**HELD, "keyed": ["count"]}


def verdicts(found: Signals, before: list[Finding] | None = None) -> list[Verdict]:
    return [one.verdict for one in diagnose(found, before or [])]


def test_without_a_key_there_is_no_skew() -> None:
    """A slow task behind a shuffle, when it alone had done anything for five minutes, was told as data skew."""
    found = signals(*ALONE, **MORE)
    assert verdicts(found) == [Verdict.SLOW_TASK]
    assert sentence(diagnose(found)[0], "wc") == (
        "count-2 is slow: while busy, it handles 42/s, and the other tasks of count wait for tuples: they are at most"
        " 0 % busy"
    )


def test_a_share_is_of_what_was_sent() -> None:
    for sent, verdict in (([750.0] * 4, Verdict.SLOW_TASK), ([2600.0, 290.0, 290.0, 290.0], Verdict.SKEW)):
        tasks = [bolt(n, float(n == 2), 42 if n == 2 else 0, sent=rate) for n, rate in zip((2, 3, 4, 5), sent)]
        assert verdicts(signals(*tasks, **KEYED)) == [verdict]


def test_too_few_tuples_tell_no_share() -> None:
    tasks = [bolt(2, 1.0, 42, sent=0.5), *(bolt(n, 0.0, 0, sent=0.0) for n in (3, 4, 5))]
    assert verdicts(signals(*tasks, **KEYED)) == [Verdict.UNTRIAGED]
    for cause in (diagnose(signals(*SLOW, **KEYED)), diagnose(signals(*SKEWED, **KEYED))):
        assert verdicts(signals(*tasks, **KEYED), cause) == [cause[0].verdict], "it is known what it was"


@pytest.mark.parametrize("tasks, more", [(SLOW, MORE), (SKEWED, KEYED), (WAITS, MORE)])
def test_a_cause_stays_until_it_has_gone(tasks: list[Any], more: dict[str, Any]) -> None:
    before = diagnose(signals(*tasks, **more))
    # Figures that tell nothing: the task is as busy as before, and the others do nothing.
    still = [bolt(2, 1.0, 0, cpu=None, sent=0.0), *(bolt(n, 0.0, 0, sent=0.0) for n in (3, 4, 5))][: len(tasks)]
    assert verdicts(signals(*still, **more), before)[0] is before[0].verdict
    assert diagnose(signals(*still, **more), before)[0].figures == before[0].figures
    # The spouts are free; an even share, an even rate, and CPU for all the time; the task was started again.
    even = [bolt(n, 0.95, 700, cpu=0.9, sent=700.0) for n in (2, 3, 4, 5)][: len(tasks)]
    assert before[0].verdict not in verdicts(signals(*still, keyed=more["keyed"]), before)
    assert before[0].verdict not in verdicts(signals(*even, **more), before)
    assert before[0].verdict not in verdicts(signals(*still, **more, restarted={"count-2": (1, "killed")}), before)
    assert verdicts(signals(*still, **more, changed_s=5.0, change="update done"), before) == [Verdict.CHANGING]


def test_a_task_that_was_slow_before_its_siblings_is_not_the_cause_when_their_host_is() -> None:
    hosts = ["h1", "h1", "h2", "h2"]
    rates = ([100, 500, 900, 900], [100, 100, 900, 900])
    first, then = (
        signals(*(bolt(n, 0.99, rate, host=host) for n, rate, host in zip((2, 3, 4, 5), each, hosts)), **HELD)
        for each in rates
    )
    before = diagnose(first)
    assert before[0].verdict is Verdict.SLOW_TASK
    assert [one.verdict for one in diagnose(then, before)][:1] == [Verdict.SLOW_HOST]


def test_what_is_left_of_a_cause_that_is_found_again_is_the_new_figures() -> None:
    before = diagnose(signals(*SLOW, **MORE))
    slower = [bolt(2, 1.0, 30), *SLOW[1:]]
    assert diagnose(signals(*slower, **MORE), before) == diagnose(signals(*slower, **MORE))


def test_stream_managers_say_what_was_sent() -> None:
    status = control_pb2.StatusReply(topology="wc", lifecycle=control_pb2.LIFE_RUNNING)
    for name, gtype in (("keyed", topology_pb2.FIELDS), ("spread", topology_pb2.SHUFFLE)):
        added = status.plan.topology.bolts.add()
        added.comp.name = name
        added.inputs.add(gtype=gtype).stream.component_name = "words"
        status.tasks.add(task_id=len(status.tasks) + 1, component=name, instance_id=f"{name}-1")
    metrics = control_pb2.MetricsReply(interval_s=10.0)
    # Of an earlier stream manager of the task as well.
    for stmgr, value in (("stmgr-1", 100.0), ("stmgr-2", 300.0)):
        metrics.reports.add(process=stmgr).samples.add(name="__tuples_by_instanceid", label="keyed-1", value=value)
    found = signals_of(status, metrics, now=0.0)
    assert found.keyed == ["keyed"]
    assert {task.name: task.sent for task in found.tasks} == {"keyed-1": 40.0, "spread-1": None}


def test_a_full_task_that_has_room_at_the_moment_of_the_look_is_still_avoided() -> None:
    """A verdict that it is slow would come and go with each tuple that it takes."""
    metrics = control_pb2.MetricsReply(interval_s=10.0)
    samples = metrics.reports.add(process="stmgr-1").samples
    for name, ms in (("work-2", 8_000.0), ("work-3", 900.0)):
        samples.add(name="__time_spent_avoiding_by_compid", label=name, value=ms)
    status = control_pb2.StatusReply(topology="wc", lifecycle=control_pb2.LIFE_RUNNING)
    samples.add(name="__time_spent_back_pressure_by_compid", label="work-4", value=2_900.0)
    found = signals_of(status, metrics, now=0.0)
    assert (found.avoided, found.held_by) == (["work-2"], ["work-4"])
