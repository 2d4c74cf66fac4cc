"""The topology master's last answers, for requests after it has ended. Pure.

All rates of a finished topology are 0, so the figures are kept as they were when it began to finish. Exceptions, tasks
and minutes beyond their limits are omitted or truncated.
"""

from __future__ import annotations

from heronpy.metrics.names import BATCH_METRICS, CPU_METRICS, UNIT_METRICS
from heronpy.net.answers import packed
from heronpy.proto import components_of, control_pb2
from heronpy.tmaster.machine import TopologyMaster
from heronpy.tmaster.minutes import KEPT_MAX
from heronpy.tmaster.observatory import Observatory
from heronpy.views.load import TASK_METRICS, LoadAnswer

EXCEPTIONS_BYTES_MAX, TASKS_BYTES_MAX, MINUTES_BYTES_MAX = 256 << 10, 1 << 20, 1 << 20
#: Window in seconds for the figures of tasks.
WINDOW_S = 10.0
_FINISHING = (control_pb2.LIFE_FINISHING, control_pb2.LIFE_FINISHED)
_ENDING = (*_FINISHING, control_pb2.LIFE_FAILED)


class LastAnswers:
    def __init__(self, machine: TopologyMaster, observatory: Observatory) -> None:
        self._machine = machine
        self._observatory = observatory
        #: The last handled event, and the lifecycle state after it.
        self._event, self._life = 0, control_pb2.LIFE_STARTING
        self._ends = 0
        #: The figures at the time when the topology began to finish; None before.
        self._figures: tuple[LoadAnswer, control_pb2.MetricsReply] | None = None

    @property
    def changes(self) -> int:
        """A number that increases with each exception, and when the topology begins to end."""
        return self._machine.shared.exceptions.seen + self._ends

    @property
    def growth(self) -> int:
        """A number that increases as work units are processed. Work after the last write is missing from the totals if
        all processes die.
        """
        return self._observatory.metrics.units

    def look(self, now: float) -> None:
        """Keep the figures if the topology begins to finish. Call this after each event."""
        newest = self._machine.shared.event_log.last
        if newest == self._event:
            return
        self._event, before, self._life = newest, self._life, self._machine.lifecycle
        if self._life in _ENDING and self._life != before:
            self._ends += 1
        if self._life not in _FINISHING:
            self._figures = None
        elif self._figures is None:
            self._figures = self._figures_now(now)

    def message(self, now: float, at_end: bool) -> control_pb2.LastAnswers:
        """Build the `LastAnswers` message, with the minutes if `at_end`: then no more reports are accepted."""
        machine, metrics = self._machine, self._observatory.metrics
        load, tasks = self._figures or self._figures_now(now)
        counts = metrics.query(control_pb2.GetMetrics(names=(*UNIT_METRICS, *BATCH_METRICS, *CPU_METRICS)), now)
        found = control_pb2.LastAnswers(topology_id=load.topology_id, load=packed(load), exceptions=self._exceptions())
        found.counts.resumed_s = counts.resumed_s
        found.counts.reports.extend(one for one in counts.reports if one.samples)
        status = machine.status(now)
        for part in components_of(status.plan.topology).values():
            part.comp.ClearField("serialized_object")
        if tasks.ByteSize() + status.ByteSize() <= TASKS_BYTES_MAX:
            found.tasks.CopyFrom(tasks)
            found.status.CopyFrom(status)
        if machine.checkpoints is not None:
            found.checkpoints.CopyFrom(machine.checkpoints_reply(now))
        if at_end:
            figures = self._observatory.figures
            figures.end(now)
            ledger = figures.minutes.ledger(machine.shared.book.topology.id, KEPT_MAX, MINUTES_BYTES_MAX)
            found.minutes.CopyFrom(ledger)
        return found

    def _figures_now(self, now: float) -> tuple[LoadAnswer, control_pb2.MetricsReply]:
        asked = control_pb2.GetMetrics(names=TASK_METRICS, interval_s=WINDOW_S)
        return self._observatory.last_load(now), self._observatory.metrics.query(asked, now)

    def _exceptions(self) -> control_pb2.ExceptionsReply:
        """Return the newest exceptions, up to `EXCEPTIONS_BYTES_MAX`; the others count as discarded."""
        store = self._machine.shared.exceptions
        reply, size = control_pb2.ExceptionsReply(discarded=store.discarded), 0
        for one in store.select():
            size += one.ByteSize()
            if size <= EXCEPTIONS_BYTES_MAX:
                reply.exceptions.append(one)
            else:
                reply.discarded += one.count
        return reply
