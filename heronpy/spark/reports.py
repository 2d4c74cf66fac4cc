"""The gateway's reports to its executor: exceptions and metrics, sent without blocking and without a reply."""

from __future__ import annotations

import logging
import math
import os
import time
from bisect import bisect_left
from itertools import accumulate
from typing import Any

import zmq

from heronpy.net.rpc import seal, wrap
from heronpy.net.transport import connect
from heronpy.net.zsock import configure
from heronpy.proto import control_pb2
from heronpy.spark.worker import first_line, full_traceback

log = logging.getLogger("heronpy.spark")

PROCESS = "spark-gateway"
#: Upper bounds of the histogram buckets, in seconds.
BOUNDS_S = (*(float(f"{m}e{e}") for e in range(-3, 3) for m in (1, 2, 5)), 1000.0)


class Times:
    """A histogram of durations in seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._sum += seconds

    def sample(self, name: str, label: str) -> control_pb2.Sample:
        """Return the histogram as a metric."""
        below = list(accumulate(self._counts))
        sample = control_pb2.Sample(
            name=name, label=label, type=control_pb2.Sample.HISTOGRAM, value=self._sum, sum=self._sum, count=below[-1]
        )
        for bound, count in zip((*BOUNDS_S, math.inf), below, strict=True):
            sample.buckets.add(le=bound, count=count)
        return sample


class Reports:
    """Sends reports to the executor of container 0, through a PUSH socket."""

    def __init__(self, sockets_dir: str, epoch: int) -> None:
        self._epoch = epoch
        self._sock = configure(zmq.Context.instance().socket(zmq.PUSH), heartbeat=False)
        # The last report of a process that cannot start must arrive; the executor is on this host.
        self._sock.setsockopt(zmq.LINGER, 500)
        connect(self._sock, f"ipc://{os.path.join(sockets_dir, 'executor-0.metrics')}")
        #: The outage that batches wait for, or "".
        self.waits_for = ""
        #: Maps name and label to the value.
        self._counters: dict[tuple[str, str], float] = {}
        self._times: dict[tuple[str, str], Times] = {}

    def add(self, name: str, amount: float = 1.0, label: str = "") -> None:
        """Add to a counter; for a sink's figures, the label is the component."""
        self._counters[name, label] = self._counters.get((name, label), 0.0) + amount

    def observe(self, name: str, seconds: float, label: str) -> None:
        """Add to a histogram; for a sink's figures, the label is the component."""
        times = self._times.get((name, label))
        if times is None:
            times = self._times[name, label] = Times()
        times.observe(seconds)

    def send_metrics(self, gauges: dict[tuple[str, str], float]) -> None:
        """Send all counters and histograms, and the given gauges (by name and label)."""
        self.send(self.metrics(gauges))

    def metrics(self, gauges: dict[tuple[str, str], float]) -> control_pb2.MetricsReport:
        """Return all counters and histograms, and the given gauges (by name and label)."""
        kinds = ((control_pb2.Sample.COUNTER, self._counters), (control_pb2.Sample.GAUGE, gauges))
        samples = [
            control_pb2.Sample(name=name, label=label, type=kind, value=value)
            for kind, values in kinds
            for (name, label), value in values.items()
        ]
        samples += [times.sample(name, label) for (name, label), times in self._times.items()]
        return control_pb2.MetricsReport(
            process=PROCESS, epoch=self._epoch, pid=os.getpid(), samples=samples, waits_for=self.waits_for
        )

    def send_exception(self, error: BaseException, component: str = "", startup: bool = False) -> None:
        now = time.time()
        self.send(
            control_pb2.ExceptionReport(
                process=PROCESS,
                component=component,
                instance_id=PROCESS,
                type=type(error).__name__,
                message=first_line(error),
                traceback=full_traceback(error),
                first_at=now,
                last_at=now,
                count=1,
                startup=startup,
            )
        )

    def send(self, body: Any) -> None:
        """Send a report; drop it if no executor accepts it."""
        try:
            self._sock.send(seal(wrap(body)), zmq.DONTWAIT)
        except zmq.Again:
            log.debug("no executor accepts reports now")

    def close(self) -> None:
        self._sock.close()
