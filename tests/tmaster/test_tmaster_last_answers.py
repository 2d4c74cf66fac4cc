"""What a topology master leaves for those who ask when it is gone."""

from __future__ import annotations

import pytest

from heronpy.net.answers import read
from heronpy.proto import control_pb2
from heronpy.tmaster import events, last_answers
from heronpy.tmaster.last_answers import LastAnswers
from heronpy.tmaster.observatory import Observatory
from heronpy.views.findings import Finding, Verdict
from heronpy.views.load import LoadAnswer
from tests.tmaster.tmaster_world import World

FINDINGS = [[Finding(Verdict.SLOW_TASK, component="count")], [Finding(Verdict.CHANGING, names=("finishing",))]]


class Kept:
    """A topology of one container, and its last answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.findings = FINDINGS[0]
        monkeypatch.setattr("heronpy.health.diagnose.diagnose", lambda signals, before: self.findings)
        self.world = World(containers=1).running()
        self.watched = Observatory(self.world.machine, self.world.settings, 0.0, resumed=False)
        self.answers = LastAnswers(self.world.machine, self.watched)

    def report(self, executed: float) -> None:
        """Every task has executed this many tuples."""
        batch = control_pb2.MetricsBatch(container=1)
        for task in self.world.tasks():
            name = f"container_1_{task.status.component}_{task.status.task_id}"
            one = batch.reports.add(process=name, component=task.status.component, task_id=task.status.task_id, pid=7)
            one.samples.add(name="__execute-count", label="x", type=control_pb2.Sample.COUNTER, value=executed)
            one.samples.add(name="units-published", label="p", type=control_pb2.Sample.COUNTER, value=executed)
        self.watched.place(self.world.now)
        self.watched.take(batch, self.world.now)

    def work(self) -> None:
        """Ten seconds in which each task executes a hundred tuples a second."""
        for second in range(11):
            self.report(100.0 * second)
            self.world.round()
            self.answers.look(self.world.now)
        self.watched.load(control_pb2.GetLoad(), self.world.now)

    def message(self, at_end: bool = True) -> control_pb2.LastAnswers:
        return self.answers.message(self.world.now, at_end)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch)


def rates(answer: LoadAnswer) -> list[float]:
    return [one.executed_per_s or 0.0 for one in answer.load.components]


def test_a_topology_that_is_killed_leaves_its_figures_and_minutes(kept: Kept) -> None:
    kept.work()
    kept.world.machine.shared.book.plan.topology.spouts[0].comp.serialized_object = b"code"
    found = kept.message()
    assert not any(one.comp.serialized_object for one in found.status.plan.topology.spouts)
    load = read(found.load, LoadAnswer)
    assert rates(load) == pytest.approx([200.0, 200.0]) and found.topology_id == load.topology_id == "wc-1"
    assert [one.verdict for one in load.findings] == [Verdict.SLOW_TASK]
    assert len(found.status.tasks) == len(found.tasks.reports) == 4
    assert sum(sample.value for one in found.counts.reports for sample in one.samples) == 4000.0
    assert {sample.name for one in found.counts.reports for sample in one.samples} == {"units-published"}
    executed = control_pb2.GetTimeline(components=["count"], names=["executed"])
    assert len(found.minutes.minutes) >= 1 and kept.watched.timeline(executed).series[0].values[-1] is not None


def test_the_minutes_are_told_at_the_end_only(kept: Kept) -> None:
    """The minute that has begun is closed with them, and would be again."""
    kept.work()
    known = len(kept.watched.figures.minutes)
    assert not kept.message(at_end=False).HasField("minutes") and len(kept.watched.figures.minutes) == known


def test_a_topology_that_has_finished_leaves_the_figures_of_before(kept: Kept) -> None:
    kept.work()
    for task in kept.world.tasks():
        if task.spout:
            task.status.state = control_pb2.TASK_EXHAUSTED
    before = kept.answers.changes
    kept.findings = FINDINGS[1]
    for _ in range(40):
        kept.report(1000.0)
        kept.world.round()
        kept.answers.look(kept.world.now)
        kept.watched.load(control_pb2.GetLoad(), kept.world.now)
    assert kept.world.life == control_pb2.LIFE_FINISHED and kept.answers.changes > before
    found = kept.message()
    load = read(found.load, LoadAnswer)
    assert min(rates(load)) > 0 and max(rates(kept.watched.load(control_pb2.GetLoad(), kept.world.now))) == 0
    assert [one.verdict for one in load.findings] == [Verdict.SLOW_TASK], "not that it finishes"
    assert found.tasks.reports[0].samples[0].value > 0


def test_what_exceeds_its_limit_is_left_out(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.work()
    before = kept.answers.changes
    for number in range(5):
        report = control_pb2.ExceptionReport(
            process="p", task_id=3, component="count", type=f"E{number}", traceback="x" * 1000, count=2
        )
        kept.world.feed(events.ExceptionsReported((report,)))
    assert kept.answers.changes == before + 10
    monkeypatch.setattr(last_answers, "EXCEPTIONS_BYTES_MAX", 2500)
    monkeypatch.setattr(last_answers, "TASKS_BYTES_MAX", 10)
    found = kept.message()
    assert [one.type for one in found.exceptions.exceptions] == ["E4", "E3"] and found.exceptions.discarded == 6
    assert not found.HasField("tasks") and not found.HasField("status")
