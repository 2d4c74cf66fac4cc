"""The socket to which the processes of a container push their metrics and exceptions.

Invariants: at most one report per process and `EXCEPTIONS_MAX` exceptions wait for the topology master. The newest
report is kept, with the spans of the reports that it replaces. Excess exceptions and invalid messages are dropped and
counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import zmq

from heronpy.net.rpc import body_of, parse
from heronpy.net.transport import bind
from heronpy.net.zsock import LoopSocket, configure
from heronpy.proto import control_pb2

EXCEPTIONS_MAX = 1024
#: Maximum number of waiting spans of one process.
SPANS_MAX = 100
#: Maximum number of unsent last reports of replaced or removed processes.
ENDED_MAX = 256
_DRAIN_MAX = 1000
#: Messages within this time are read together, because the tasks of a host report at the same moments.
PAUSE_S = 0.05


class MetricsInbox:
    """Binds the socket and keeps the received reports."""

    def __init__(
        self,
        endpoint: str,
        container: int,
        is_known: Callable[[str], bool],
        on_report: Callable[[control_pb2.MetricsReport], None],
        on_exception: Callable[[], None],
    ) -> None:
        self._container = container
        self._is_known = is_known
        self._on_report = on_report
        self._on_exception = on_exception
        self._sock = configure(zmq.Context.instance().socket(zmq.PULL), heartbeat=False)
        bind(self._sock, endpoint)
        self._reports: dict[str, control_pb2.MetricsReport] = {}
        self._fresh: set[str] = set()
        self._ended: deque[control_pb2.MetricsReport] = deque(maxlen=ENDED_MAX)
        #: The last report of the previous incarnation of each process. It has figures that the last topology master may
        #: not have stored, so a new topology master gets it.
        self._told: dict[str, control_pb2.MetricsReport] = {}
        self._exceptions: deque[control_pb2.ExceptionReport] = deque()
        self._last_exception: dict[str, control_pb2.ExceptionReport] = {}
        self.exceptions_discarded = 0
        #: Spans of replaced reports for which there was no room.
        self.spans_discarded = 0
        self.invalid = 0
        self._socket = LoopSocket(self._sock, self.receive, pause_s=PAUSE_S)

    def receive(self, parts: list[bytes]) -> None:
        """Handle one message: a report or an exception from a process of this container. Never raises."""
        envelope = parse(parts[0]) if len(parts) == 1 else None
        field, body = body_of(envelope) if envelope is not None else ("", None)
        if body is None or field not in ("metrics_report", "exception_report"):
            self.invalid += 1
            return
        if not self._is_known(body.process):
            self.invalid += 1
            return
        body.container = self._container
        if field == "metrics_report":
            previous = self._reports.get(body.process)
            if previous is not None and previous.epoch > body.epoch:
                return
            if previous is not None and previous.epoch < body.epoch:
                self._keep_last(body.process)
            if previous is not None and body.process in self._fresh:
                self._carry(previous, body)
            self._reports[body.process] = body
            self._fresh.add(body.process)
            self._on_report(body)
        else:
            self._last_exception[body.process] = body
            self.add(body)

    def add(self, report: control_pb2.ExceptionReport) -> None:
        """Queue an exception for the topology master."""
        if len(self._exceptions) >= EXCEPTIONS_MAX:
            self._exceptions.popleft()
            self.exceptions_discarded += 1
        self._exceptions.append(report)
        self._on_exception()

    def drain(self) -> None:
        """Read all received messages, so that a dead process's last reports are available."""
        for _ in range(_DRAIN_MAX):
            try:
                parts = self._sock.recv_multipart(zmq.DONTWAIT)
            except zmq.ZMQError:
                break
            self.receive(parts)
        self._socket.rearm()

    def last_exception(self, process: str) -> control_pb2.ExceptionReport | None:
        """The last exception of a process's current incarnation."""
        return self._last_exception.get(process)

    def begin(self, process: str) -> None:
        """Record the start of an incarnation, so that earlier exceptions do not explain its end."""
        self._last_exception.pop(process, None)

    def _carry(self, earlier: control_pb2.MetricsReport, later: control_pb2.MetricsReport) -> None:
        """Add the spans of an unsent report to the report that replaces it, up to `SPANS_MAX`."""
        if earlier.epoch == later.epoch and earlier.spans:
            spans = [*earlier.spans, *later.spans]
            self.spans_discarded += max(0, len(spans) - SPANS_MAX)
            del later.spans[:]
            later.spans.extend(spans[-SPANS_MAX:])

    def _keep_last(self, process: str) -> None:
        if process in self._fresh:
            self._ended.append(self._reports[process])

    def forget(self, process: str) -> None:
        """Discard all data, except the last report, of a process that was removed from the container."""
        self._keep_last(process)
        self._reports.pop(process, None)
        self._last_exception.pop(process, None)
        self._fresh.discard(process)

    def reports(self) -> list[control_pb2.MetricsReport]:
        return [self._reports[name] for name in sorted(self._reports)]

    def take_batch(self) -> control_pb2.MetricsBatch | None:
        """Return the reports and exceptions that the topology master has not received yet; None if there are none."""
        if not self._fresh and not self._exceptions and not self._ended:
            return None
        batch = control_pb2.MetricsBatch(container=self._container)
        # The last reports of ended processes come first, before the first reports of their successors.
        batch.reports.extend(self._ended)
        for report in self._ended:
            self._told.pop(report.process, None)
            self._told[report.process] = report
        while len(self._told) > ENDED_MAX:
            del self._told[next(iter(self._told))]
        batch.reports.extend(self._reports[name] for name in sorted(self._fresh))
        self._ended.clear()
        batch.exceptions.extend(self._exceptions)
        self._fresh.clear()
        self._exceptions.clear()
        return batch

    def repeat(self) -> None:
        """Send the last reports of ended processes again, to a new topology master, which skips known reports."""
        self._ended = deque([*self._told.values(), *self._ended], maxlen=ENDED_MAX)

    def put_back(self, batch: control_pb2.MetricsBatch) -> None:
        """Put back a batch that could not be sent. Newer reports take precedence, and exceptions stay in order."""
        for report in reversed(batch.reports):
            newest = self._reports.get(report.process)
            if newest is not None and newest.epoch == report.epoch:
                if report.process in self._fresh:  # a newer report has arrived, or this is the newest report
                    self._carry(report, newest)
                self._fresh.add(report.process)
            elif len(self._ended) < ENDED_MAX:
                self._ended.appendleft(report)
        for exception in reversed(batch.exceptions):
            if len(self._exceptions) >= EXCEPTIONS_MAX:
                self.exceptions_discarded += 1
            else:
                self._exceptions.appendleft(exception)

    def close(self) -> None:
        self._socket.close()
