"""What the topology master finds is no older than what has happened, and costs little."""

from __future__ import annotations

import pytest

from heronpy.health.signals import Signals
from heronpy.proto import control_pb2
from heronpy.tmaster import observatory
from heronpy.tmaster.observatory import FINDINGS_S, SOON_S, Observatory
from heronpy.views.findings import Finding, Verdict
from tests.tmaster.tmaster_world import World


def test_an_event_makes_findings_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A status said that a task was down for the tenth time, and below that it was restarted nine times."""
    w = World(containers=1).running()
    watched = Observatory(w.machine, w.settings, 0.0, resumed=False)
    cost_s, event_log, began = 0.0, w.machine.shared.event_log, w.now
    spent = iter(range(1_000_000))
    monkeypatch.setattr(observatory.time, "thread_time", lambda: cost_s * next(spent))

    def found_at(after_s: float) -> float:
        return watched.load(control_pb2.GetLoad(), began + after_s).found_at - began

    def happens() -> None:
        event_log.add(control_pb2.EVENT_RESTART, "a was started again", subject="a")

    assert found_at(0.0) == found_at(FINDINGS_S - 0.1) == 0.0
    happens()
    assert found_at(FINDINGS_S - 0.1) == pytest.approx(4.9)
    happens()
    assert found_at(4.9 + SOON_S - 0.1) == pytest.approx(4.9), "a crash loop does not keep it busy"
    assert found_at(4.9 + SOON_S) == pytest.approx(5.9)
    assert found_at(10.8) == pytest.approx(5.9), "nothing has happened"
    cost_s = 0.05
    assert found_at(10.9) == pytest.approx(10.9)
    happens()
    assert found_at(15.8) == pytest.approx(10.9), "what takes long is found a hundredth of the time"
    assert found_at(16.0) == pytest.approx(16.0)


def test_findings_are_made_each_minute_though_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cause that only the first minutes show was not known to who asked later."""
    w = World(containers=1).running()
    watched = Observatory(w.machine, w.settings, 0.0, resumed=False)
    asked: list[list[Finding]] = []

    def diagnose(signals: Signals, before: list[Finding]) -> list[Finding]:
        asked.append(before)
        return [Finding(Verdict.SLOW_TASK, figures={"rate": float(len(asked))})]

    monkeypatch.setattr("heronpy.health.diagnose.diagnose", diagnose)
    for second in range(125):
        watched.take(control_pb2.MetricsBatch(), 600.0 + second)
    assert [[one.figures["rate"] for one in before] for before in asked] == [[], [1.0]]
