"""The wait loop of `heron submit --wait`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from heronpy.cli.look import pipelines
from heronpy.cli.look.top import LIVE_INTERVAL_S, live, samples
from heronpy.cli.output import clean, say
from heronpy.cli.render import summary
from heronpy.cli.render.summary import ComponentRow
from heronpy.cli.submit.waiting import TopologyFailed, exceptions_report
from heronpy.clusters.session import Session
from heronpy.common.states import has_failed, lifecycle_name
from heronpy.common.units import format_duration
from heronpy.proto import control_pb2, plan_pb2
from heronpy.views.progress import WRITING

LINE_INTERVAL_S = 2.0


class Watch:
    """Shows a bounded topology until it has finished."""

    def __init__(
        self,
        session: Session,
        record: plan_pb2.ExecutionState,
        progress: Callable[[], str] | None = None,
        done: Callable[[control_pb2.StatusReply], bool] = lambda status: False,
    ) -> None:
        """`progress` returns the progress of a batch run, which is shown instead of the counts of components. `done`
        returns True when the work is done although a task has not finished."""
        self._session, self._record, self._progress, self._done = session, record, progress, done
        #: The last status, however the wait ends; None if there was no status.
        self.last: control_pb2.StatusReply | None = None

    def until_finished(self) -> control_pb2.StatusReply:
        """Wait for the end of the topology, and return the last status.

        Raises TopologyFailed, with the exceptions of tasks, when the topology has failed. Any other Failure means that
        the topology cannot be watched any longer, and may still be running.
        """
        terminal = sys.stdout.isatty()
        looks = self._looks(LIVE_INTERVAL_S if terminal else LINE_INTERVAL_S)
        if terminal:
            live(self._session, looks)
        else:
            before: list[str] = []
            for status, rows in looks:
                units = pipelines.lines(pipelines.ask(self._session, status))
                if self._progress is None:
                    say(" | ".join(map(clean, [_line(status, rows), *units])))
                    continue
                told = self._progress()
                said = [summary.state_text(status), *units, told]
                # The same line is not repeated while Spark writes, which may take an hour.
                if not (told.endswith(WRITING) and said == before):
                    say(" | ".join(map(clean, [_line(status, [], with_cause=False), *units, told])))
                before = said
        assert self.last is not None
        return self.last

    def _looks(self, interval_s: float) -> Iterator[tuple[control_pb2.StatusReply, list[ComponentRow]]]:
        session, topology, topology_id = self._session, self._record.topology, self._record.topology_id
        for status, rows in samples(session, topology, interval_s, ended=self._is_over, topology_id=topology_id):
            self.last = status
            yield status, rows
            if has_failed(status):
                report = exceptions_report(session, topology, status)
                raise TopologyFailed(f"topology '{topology}' failed: {status.cause or 'see its logs'}", status, report)
            if self._is_over(status):
                return

    def _is_over(self, status: control_pb2.StatusReply) -> bool:
        return has_failed(status) or lifecycle_name(status.lifecycle) == "FINISHED" or self._done(status)


def _line(status: control_pb2.StatusReply, rows: list[ComponentRow], with_cause: bool = True) -> str:
    """Return a snapshot as one line, for an output without a terminal. `with_cause` includes the cause of a failure."""
    short = has_failed(status) and not with_cause
    state = lifecycle_name(status.lifecycle) if short else summary.state_text(status)
    parts = [f"{format_duration(status.uptime_s)} {clean(state)}"]
    for row in rows:
        counts = f"{row.emitted:,} emitted" if row.is_spout else f"{row.executed:,} executed"
        least = "at least " if row.at_least else ""
        rate = row.emitted_per_s if row.is_spout else row.executed_per_s
        failed = f", {row.failed:,} failed" if row.failed else ""
        parts.append(f"{clean(row.name)} {least}{counts} ({rate:,.0f}/s){failed}")
    parts += [clean(summary.culprit_text(culprit)) for culprit in status.culprits]
    parts += [clean(text) for text in summary.down_texts(status)]
    parts += summary.trouble_texts(status)
    return " | ".join(parts)
