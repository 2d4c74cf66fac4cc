"""The waiting of `heron submit --wait`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from heronpy.cli import exits
from heronpy.cli.look.top import LIVE_INTERVAL_S, live, samples
from heronpy.cli.output import clean, say
from heronpy.cli.render import summary
from heronpy.cli.render.summary import ComponentRow
from heronpy.cli.submit.waiting import exceptions_report
from heronpy.clusters.session import Session
from heronpy.common.states import has_failed, lifecycle_name
from heronpy.common.units import format_duration
from heronpy.proto import control_pb2, plan_pb2

LINE_INTERVAL_S = 2.0


class TopologyFailed(exits.Failure):
    """The topology is FAILED: nothing runs that could still finish."""


def watch_until_finished(session: Session, record: plan_pb2.ExecutionState) -> control_pb2.StatusReply:
    """Show a bounded topology until it has finished; returns the last status.

    TopologyFailed, with its exceptions, when it has failed; another Failure when it cannot be watched any longer, which
    says nothing of the topology itself.
    """
    topology, terminal = record.topology, sys.stdout.isatty()
    last: list[control_pb2.StatusReply] = []

    def over(status: control_pb2.StatusReply) -> bool:
        return has_failed(status) or lifecycle_name(status.lifecycle) == "FINISHED"

    def until_end() -> Iterator[tuple[control_pb2.StatusReply, list[ComponentRow]]]:
        interval_s = LIVE_INTERVAL_S if terminal else LINE_INTERVAL_S
        for status, rows in samples(session, topology, interval_s, ended=over, topology_id=record.topology_id):
            last[:] = [status]
            yield status, rows
            if has_failed(status):
                raise TopologyFailed(
                    f"topology '{topology}' failed: {status.cause or 'see its logs'}",
                    report=exceptions_report(session, topology, status),
                )
            if over(status):
                return

    if terminal:
        live(session, until_end())
    else:
        for status, rows in until_end():
            say(_line(status, rows))
    return last[0]


def _line(status: control_pb2.StatusReply, rows: list[ComponentRow]) -> str:
    """One line per snapshot, for outputs that are not terminals."""
    parts = [f"{format_duration(status.uptime_s)} {clean(summary.state_text(status))}"]
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
