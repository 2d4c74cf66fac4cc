"""The figures of a topology: collects the reports to the topology master, and answers requests for figures.

The findings are computed while clients request them, and otherwise once a minute, because a finding is repeated until
its cause is gone. The computation takes at most about 1 % of a CPU: the pause after a computation is 100 times its
duration.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from heronpy.common.host import clock_id
from heronpy.common.setting_types import InstanceSettings, TmasterSettings
from heronpy.health.gathering import METRICS, SERIES, signals_of, window_of
from heronpy.health.signals import AllHotSpots, Signals
from heronpy.health.times import TIMES
from heronpy.metrics.cache import MetricsCache
from heronpy.proto import control_pb2
from heronpy.tmaster.figures import Figures
from heronpy.tmaster.machine import TopologyMaster
from heronpy.tmaster.task_reports import TaskReports
from heronpy.tmaster.traces import Clocks, TraceStore
from heronpy.views.load import LoadAnswer
from heronpy.views.past import Timeline
from heronpy.views.traces import Traces

if TYPE_CHECKING:
    from heronpy.views.findings import Finding

#: Minimum seconds between two computations of the findings, normally and after an event.
FINDINGS_S, SOON_S = 5.0, 1.0
FINDINGS_MAX = 3
_PATIENCE = 100.0
#: A number higher than the version of any plan.
NO_PLAN = (1 << 64) - 1


class Observatory:
    def __init__(
        self,
        machine: TopologyMaster,
        settings: TmasterSettings,
        wall_offset_s: float,
        *,
        resumed: bool,
        instance: Callable[[str], InstanceSettings] = lambda component: InstanceSettings(),
        checkpoint_every_s: float | None = None,
    ) -> None:
        """`instance` returns the settings of a component's tasks."""
        self._machine = machine
        self._wall_offset_s = wall_offset_s
        self._every_s = checkpoint_every_s
        self.metrics = MetricsCache(settings.metrics_keep_s, settings.metrics_bucket_s, resumed=resumed)
        self.figures = Figures(machine, wall_offset_s, instance)
        self.tasks = TaskReports()
        self.clocks = Clocks(clock_id())
        self.traces = TraceStore(self.clocks)
        #: Names of the instances in the last stored packing plan.
        self._placed: set[str] = set()
        self._findings: list[Finding] = []
        #: The last findings, without the finding that the topology is changing.
        self._said: list[Finding] = []
        self._found_at = 0.0
        #: Earliest time of the next computation: normally, and if an event has happened since the last computation.
        self._due = self._due_by_event = float("-inf")
        self._known_event = 0

    def take(self, batch: control_pb2.MetricsBatch, now: float) -> None:
        """Take the reports of a container."""
        if self.figures.turn(now):
            self.metrics.add(self._own_report(), now)
            self._diagnose(now)
        for report in batch.reports:
            placed = not report.task_id or report.process in self._placed
            # The last report of a removed task may arrive after the plan that removed it.
            if placed or self.metrics.knows(report.process):
                self.metrics.add(report, now)
            if placed:
                self.figures.take(report, now)
                self.tasks.take(report, now)
                self.traces.take(report, now)

    def _own_report(self) -> control_pb2.MetricsReport:
        report = control_pb2.MetricsReport(process="tmaster", epoch=self._machine.epoch)
        report.samples.add(
            name="__tmaster/__timeline_bytes",
            type=control_pb2.Sample.GAUGE,
            value=float(self.figures.minutes.used_bytes),
        )
        report.samples.add(
            name="__tmaster/__discarded_spans", type=control_pb2.Sample.COUNTER, value=float(self.traces.discarded)
        )
        return report

    def place(self, now: float) -> None:
        """Drop the figures of processes that are no longer in the plan."""
        placed = {place.name for place in self._machine.shared.registry.places.values()}
        # A predecessor's figures may include tasks that were removed while there was no master.
        for gone in (self._placed | self.metrics.tasks()) - placed:
            self.metrics.forget(gone, now)
            self.figures.forget(gone)
            self.tasks.forget(gone)
        self._placed = placed

    def load(self, asked: control_pb2.GetLoad, now: float) -> LoadAnswer:
        """Return the figures, for a GetLoad request, with current findings if they were requested."""
        self._diagnose(now)
        figures = self.figures.reply(asked.plan_version, now)
        return replace(figures, findings=self._findings[:FINDINGS_MAX], found_at=self._found_at)

    def last_load(self, now: float) -> LoadAnswer:
        """Return the figures, with the findings from before the topology began to end."""
        return replace(self.figures.reply(NO_PLAN, now), findings=self._said[:FINDINGS_MAX])

    def _diagnose(self, now: float) -> None:
        """Compute the findings if they are due."""
        # Imported only when needed, after a minute or on request; tasks do not load these modules.
        from heronpy.health.diagnose import diagnose
        from heronpy.views.findings import Verdict

        last_event = self._machine.shared.event_log.last
        # Otherwise a view would show a task as down next to a finding from the time when it was up.
        if now >= (self._due if last_event == self._known_event else self._due_by_event):
            began = time.thread_time()
            self._findings = diagnose(self.signals(now), self._findings)
            if self._findings and self._findings[0].verdict is not Verdict.CHANGING:
                self._said = self._findings
            self._found_at, self._known_event = now + self._wall_offset_s, last_event
            patience_s = _PATIENCE * (time.thread_time() - began)
            self._due, self._due_by_event = now + max(FINDINGS_S, patience_s), now + max(SOON_S, patience_s)

    def hot_spots(self, asked: control_pb2.GetHotSpots, now: float) -> AllHotSpots:
        """Return the hot lines of tasks, for a GetHotSpots request."""
        exceptions = self._machine.shared.exceptions.select(asked.component, 0)
        return AllHotSpots(tasks=self.tasks.hot_spots(asked.component, exceptions, now))

    def traced(self, asked: control_pb2.GetTraces, now: float) -> Traces:
        """Return the latest traces, for a GetTraces request."""
        return self.traces.reply(asked, now, now + self._wall_offset_s)

    def timeline(self, asked: control_pb2.GetTimeline) -> Timeline:
        """Return series of minutes, for a GetTimeline request."""
        return self.figures.minutes.query(asked)

    def signals(self, now: float) -> Signals:
        """Return the signals of `heron doctor` for its default window."""
        machine = self._machine
        status, wall = machine.status(now), now + self._wall_offset_s
        known = machine.shared.event_log.after(0).events
        began = self.figures.loads.began
        age_s = now - began if began is not None else None
        interval_s = window_of(TIMES.window_s, age_s or 0.0, known, wall)
        asked = control_pb2.GetTimeline(names=SERIES, since=wall - TIMES.history_s)
        return signals_of(
            status,
            self.metrics.query(control_pb2.GetMetrics(names=METRICS, interval_s=interval_s), now),
            known,
            machine.checkpoints_reply(now) if machine.checkpoints is not None else None,
            self.timeline(asked),
            now=wall,
            age_s=age_s,
            checkpoint_every_s=self._every_s,
            hot_spots=self.hot_spots(control_pb2.GetHotSpots(), now).tasks,
            load=self.figures.reply(NO_PLAN, now),
        )
