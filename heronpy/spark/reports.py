"""The gateway's reports to its executor: exceptions and metrics, one way, never blocking."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import zmq

from heronpy.net.rpc import seal, wrap
from heronpy.net.transport import connect
from heronpy.net.zsock import configure
from heronpy.proto import control_pb2
from heronpy.spark.worker import first_line, full_traceback

log = logging.getLogger("heronpy.spark")

PROCESS = "spark-gateway"


class Reports:
    """A PUSH socket to the executor of container 0."""

    def __init__(self, sockets_dir: str, epoch: int) -> None:
        self._epoch = epoch
        self._sock = configure(zmq.Context.instance().socket(zmq.PUSH))
        # The last report of a process that cannot start must get out; the executor is on this host.
        self._sock.setsockopt(zmq.LINGER, 500)
        connect(self._sock, f"ipc://{os.path.join(sockets_dir, 'executor-0.metrics')}")
        #: By name and label.
        self._counters: dict[tuple[str, str], float] = {}

    def add(self, name: str, amount: float = 1.0, label: str = "") -> None:
        """Count something; the label of what belongs to a sink is its component."""
        self._counters[name, label] = self._counters.get((name, label), 0.0) + amount

    def send_metrics(self, gauges: dict[tuple[str, str], float]) -> None:
        """Send the counts so far, and gauges by name and label."""
        kinds = ((control_pb2.Sample.COUNTER, self._counters), (control_pb2.Sample.GAUGE, gauges))
        samples = [
            control_pb2.Sample(name=name, label=label, type=kind, value=value)
            for kind, values in kinds
            for (name, label), value in values.items()
        ]
        self._send(control_pb2.MetricsReport(process=PROCESS, epoch=self._epoch, pid=os.getpid(), samples=samples))

    def send_exception(self, error: BaseException, component: str = "", startup: bool = False) -> None:
        now = time.time()
        self._send(
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

    def _send(self, body: Any) -> None:
        try:
            self._sock.send(seal(wrap(body)), zmq.DONTWAIT)
        except zmq.Again:
            log.debug("no executor takes reports now")

    def close(self) -> None:
        self._sock.close()
