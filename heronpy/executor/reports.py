"""The executor's reports about its container, for the topology master and for its metrics page."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from heronpy.common.ids import child_epoch, executor_id
from heronpy.executor.desired import SPARK_GATEWAY, Place
from heronpy.executor.metrics_inbox import MetricsInbox
from heronpy.executor.records import end_report, health, own_report, process_record
from heronpy.executor.sinks import Sinks
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.footprints import FootprintMeter, TreeMeter
from heronpy.procs.supervision import Ended, Overgrown, ProcessState, ProcessView
from heronpy.procs.supervisor import Supervisor
from heronpy.procs.usage import HostMeter, UsageMeter
from heronpy.proto import control_pb2, endpoint_pb2

if TYPE_CHECKING:
    from heronpy.metrics.prometheus import Page

#: If processes wait for a CPU for this share of the time, the CPU use of this container is measured.
PRESSED = 0.1


class Reports:
    """Measures and describes the processes. `started_at` maps each process to the wall time of its start."""

    def __init__(
        self,
        place: Place,
        supervisor: Supervisor,
        started_at: dict[str, float],
        inbox: MetricsInbox,
        usage_interval_s: float,
        sinks: Sinks,
        footprints: FootprintMeter,
        clock: Callable[[], control_pb2.ClockOffset | None] = lambda: None,
    ) -> None:
        """`clock` returns the offset between the clocks of this host and of the topology master."""
        self._place = place
        self._clock = clock
        self._supervisor = supervisor
        self._started_at = started_at
        self._inbox = inbox
        self._sinks = sinks
        self._usage = UsageMeter(usage_interval_s)
        self._host = HostMeter()
        self._footprints = footprints
        self._own, self._spark = TreeMeter(), TreeMeter()
        #: Number of out-of-memory ends, by process.
        self._out_of_memory: Counter[str] = Counter()
        self._page: Page | None = None

    @property
    def calm(self) -> bool:
        """Whether every process is running, idle except for its reports, and without a memory limit."""
        views = self._supervisor.views()
        limits = any(view.spec.memory_max_bytes for view in views)
        return self._usage.calm and not limits and all(view.state is ProcessState.RUNNING for view in views)

    def measure(self) -> list[Overgrown]:
        """Measure all processes; returns the processes that exceed their memory limit."""
        views = [view for view in self._supervisor.views() if view.pid]
        self._usage.measure([os.getpid(), *(view.pid for view in views)], time.monotonic())
        self._host.measure()
        self._footprints.measure({view.spec.name: view.pid for view in views if view.spec.task_id}, time.monotonic())
        self._host.usage.disk_bytes, self._host.usage.disk_free_bytes = self._footprints.disk
        self._measure_own(views)
        used = [(view, self._usage.of(view.pid).rss_bytes, view.spec.memory_max_bytes) for view in views]
        return [Overgrown(view.spec.name, view.number, size, limit) for view, size, limit in used if 0 < limit < size]

    def _measure_own(self, views: list[ProcessView]) -> None:
        """On a busy machine, also measure the CPU use of this container and its Spark processes."""
        usage, now = self._host.usage, time.monotonic()
        if usage.cpu_pressure < PRESSED:
            self._own.forget()
            self._spark.forget()
            return
        # All other processes are children of this process.
        own = self._own.rate([os.getpid()], now)
        gateways = [view.pid for view in views if view.spec.role == SPARK_GATEWAY]
        spark = self._spark.rate(gateways, now) if gateways else None
        if own is not None:
            usage.own_used = own
        if spark is not None:
            usage.spark_used = spark

    def ended(self, effect: Ended) -> None:
        """Count the end of a process that should be running, and report the reason to the topology master."""
        name = effect.spec.name
        self._out_of_memory[name] += effect.reason is ExitReason.OOM
        explained = self._inbox.last_exception(name) is not None
        report = end_report(effect, self._place.container, time.time(), explained)
        if report is not None:
            self._inbox.add(report)

    def forget(self, name: str) -> None:
        del self._out_of_memory[name]

    def registration(self, metrics_host: str, metrics_port: int, file_service: str) -> control_pb2.RegisterExecutor:
        """The registration of this executor, with the addresses of its metrics page and file service."""
        return control_pb2.RegisterExecutor(
            container=self._place.container,
            epoch=self._place.epoch,
            pid=os.getpid(),
            host=socket.gethostname(),
            metrics_host=metrics_host,
            metrics_port=metrics_port,
            file_service=file_service,
            processes=self._records(),
            usage=self._host.usage,
            not_limited=self._place.not_limited,
            after=endpoint_pb2.Cause(reason=self._place.after, text=self._place.after_text)
            if self._place.after
            else None,
        )

    def heartbeat(self) -> control_pb2.ExecutorHeartbeat:
        return control_pb2.ExecutorHeartbeat(
            container=self._place.container,
            epoch=self._place.epoch,
            processes=self._records(),
            usage=self._host.usage,
            clock=self._clock(),
        )

    def metrics_text(self) -> tuple[str, str]:
        """Content type and body of /metrics."""
        # Imported here, because few executors get such requests.
        from heronpy.metrics import prometheus

        if self._page is None:
            self._page = prometheus.Page(self._place.launch.topology)
        return prometheus.CONTENT_TYPE, self._page.text(self.all())

    def all(self) -> list[control_pb2.MetricsReport]:
        """The newest report from every process of the container; the executor's report is last."""
        return [*self._inbox.reports(), *self._own_reports()]

    def health_text(self, registered: bool) -> tuple[str, str]:
        """Content type and body of /health."""
        return "application/json", json.dumps(health(self._records(), registered)) + "\n"

    def _own_reports(self) -> list[control_pb2.MetricsReport]:
        container = self._place.container
        found = [own_report(record, container, self._out_of_memory[record.name]) for record in self._records()]
        usage = self._usage.of(os.getpid())
        own = own_report(
            control_pb2.ProcessRecord(
                name=executor_id(container),
                pid=os.getpid(),
                state=control_pb2.PROC_RUNNING,
                cpu_s=usage.cpu_s,
                rss_bytes=usage.rss_bytes,
                uss_bytes=usage.uss_bytes,
            ),
            container,
        )
        for name, value in (
            ("__executor/__exceptions_discarded", self._inbox.exceptions_discarded),
            ("__executor/__messages_invalid", self._inbox.invalid),
            ("__executor/__spans_discarded", self._inbox.spans_discarded),
        ):
            own.samples.add(name=name, type=control_pb2.Sample.COUNTER, value=value)
        for name, counts in (
            ("__executor/__sink_samples_written", self._sinks.written),
            ("__executor/__sink_samples_discarded", self._sinks.discarded),
        ):
            for sink, value in counts.items():
                own.samples.add(name=name, label=sink, type=control_pb2.Sample.COUNTER, value=value)
        return [*found, own]

    def _records(self) -> list[control_pb2.ProcessRecord]:
        now = time.monotonic()
        return [
            process_record(
                view,
                self._usage.of(view.pid),
                self._started_at.get(view.spec.name, 0.0),
                child_epoch(self._place.epoch, view.number),
                now,
                self._footprints.of(view.spec.name),
            )
            for view in self._supervisor.views()
        ]
