"""A spout that falls silent is told, with what holds it; one that has nothing to do is not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.health.diagnose import diagnose
from heronpy.health.gathering import signals_of
from heronpy.health.signals import Signals, TaskSignals
from heronpy.health.texts import advice, sentence
from heronpy.proto import control_pb2
from heronpy.views.findings import Verdict
from tests.health.diagnose_cases import EVEN, RUNNING, bolt, first, history, signals
from tests.support.views import load_answer


def still(still_s: float = 45.0, **more: Any) -> Signals:
    more.setdefault("emitted", 1000.0 * max(0.0, 60.0 - still_s) / 60.0)
    return signals(*more.pop("bolts", EVEN), still_s={"words": still_s}, **more)


def with_spout(found: Signals, **changes: Any) -> Signals:
    found.tasks[0] = replace(found.tasks[0], **changes)
    return found


def verdicts(found: Signals) -> list[Verdict]:
    return [one.verdict for one in diagnose(found)]


USUAL = history("words", emitted=[1000.0] * 20)


def test_what_holds_it_is_said() -> None:
    cases = {
        "held back by count-2": still(culprits=["count-2"]),
        "held back by spout backpressure": still(held_now=0.99),
        "its user code does not return from a call": with_spout(still(), silent_s=44.0),
        "1,000 tuples wait for acks, which is the limit": still(acking=True, max_pending=1000, pending=1000),
        "1,000 tuples wait for acks, which is the limit; 4 of Spark's batches wait": still(
            acking=True, max_pending=1000, pending=1000, spark_waiting=4.0
        ),
        "a checkpoint waits for count-3": still(checkpoint_waits=["count-3"]),
        "nothing holds the spout back, so its source delivers no data": still(120.0, history=USUAL),
    }
    for cause, found in cases.items():
        [finding] = [one for one in diagnose(found) if one.verdict is Verdict.STOPPED]
        assert sentence(finding, "wc").startswith("words has stopped: it has emitted nothing for ")
        assert sentence(finding, "wc").endswith(f" (1,000/s before); {cause}")
        assert advice(finding, "local", "wc").startswith(("heron ", "look ", "find ", "check "))


@pytest.mark.parametrize(
    "found",
    [
        still(10.0, culprits=["count-2"]),
        still(45.0, emitted=0.1, culprits=["count-2"]),
        still(lifecycle=control_pb2.LIFE_PAUSED, culprits=["count-2"]),
        still(lifecycle=control_pb2.LIFE_WAITING),
        still(lifecycle=control_pb2.LIFE_FINISHING),
        still(changed_s=5.0, change="update done", culprits=["count-2"]),
        with_spout(still(culprits=["count-2"]), ended=True),
        still(60.0, history=USUAL),
        still(120.0, history=history("words", emitted=[1000.0] * 5)),
        still(120.0, history=history("words", emitted=[1000.0, 0.0] * 10)),
        signals(*EVEN, culprits=["count-2"]),
    ],
    ids=["a moment", "a tuple a minute", "paused", "waits for Spark", "finishing", "just updated", "input ended",
         "rests", "young", "reads now and then", "never seen to emit"],
)  # fmt: skip
def test_what_has_not_stopped(found: Signals) -> None:
    assert Verdict.STOPPED not in verdicts(found)


def test_the_cause_comes_before_the_stop() -> None:
    waits = bolt(2, 0.97, 19, cpu=0.01)
    assert verdicts(still(bolts=[waits], held=0.8, culprits=["count-2"])) == [Verdict.DEPENDENCY, Verdict.STOPPED]
    hangs = bolt(2, silent_s=44.0)
    assert verdicts(still(bolts=[hangs], held=0.8, culprits=["count-2"])) == [Verdict.HUNG, Verdict.STOPPED]


def test_a_limit_is_not_to_be_raised_where_no_ack_comes() -> None:
    found = still(acking=True, max_pending=1000, pending=1000, at_limit=0.8)
    assert verdicts(found) == [Verdict.STOPPED]


def test_input_that_dries_up_is_told_until_it_is_usual() -> None:
    """A source that gave a thousand tuples a second all the time, and then none: nothing needed action."""
    assert verdicts(still(100.0, history=USUAL))[0] is Verdict.STOPPED
    long = still(1800.0, emitted=0.0, history=history("words", emitted=[900.0] * 30 + [0.0] * 30), history_age_s=20.0)
    assert first(long)[1] == (
        "words has stopped: it has emitted nothing for 30m00s (900/s before); nothing holds the spout back, so its source delivers no data"
    )
    hour = still(3700.0, emitted=0.0, history=history("words", emitted=[0.0] * 60))
    assert verdicts(hour) == [Verdict.NO_INPUT]


def test_input_that_has_ended_is_told_as_that() -> None:
    done = with_spout(signals(*EVEN, emitted=0.0), ended=True)
    assert first(done)[0] is Verdict.HEALTHY and first(done)[1].endswith("; the input of words has ended")
    finishing = signals(*EVEN, lifecycle=control_pb2.LIFE_FINISHING)
    assert first(finishing) == (
        Verdict.CHANGING, "the input of wc has ended, and the remaining tuples are being processed"
    )  # fmt: skip


def test_what_the_topology_master_answers_is_read() -> None:
    status = control_pb2.StatusReply(topology="wc", lifecycle=RUNNING)
    for number, name in enumerate(("words", "lines"), 1):
        status.plan.topology.spouts.add().comp.name = name
        state = control_pb2.TASK_EXHAUSTED if name == "lines" else control_pb2.TASK_RUNNING
        status.tasks.add(task_id=number, component=name, instance_id=f"{name}-{number}", state=state)
    load = load_answer(held=0.75, still_s={"words": 20.5})
    found = signals_of(status, control_pb2.MetricsReply(interval_s=60.0), now=0.0, load=load)
    assert found.still_s == {"words": 20.5} and found.held_now == 0.75
    assert [task.ended for task in found.tasks] == [False, True]


def test_spouts_whose_input_has_ended_do_not_hide_one_that_waits_for_acks() -> None:
    """Six of seven had ended, and the last one emitted 20/s at its limit: the topology was called healthy."""
    limited = with_spout(signals(*EVEN, max_pending=100, acking=True), at_limit=0.99)
    others = [TaskSignals(f"words-{n}", "words", True, True, ended=True, at_limit=0.0) for n in range(2, 8)]
    limited.tasks += others
    assert verdicts(limited)[0] is Verdict.LIMIT
    for task in others:
        task.ended = False
    assert Verdict.LIMIT not in verdicts(limited), "the others emit freely"
