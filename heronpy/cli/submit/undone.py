"""Unfinished work of a finished topology: failed batches of Spark sinks and failed work units."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from heronpy.clusters.session import Session
from heronpy.clusters.target import Target
from heronpy.common.errors import HeronError
from heronpy.connectors.spark.requirements import spark_sinks
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import control_pb2, plan_pb2

_BATCHES: Final = "spark-batches-failed"
_UNITS: Final = "units-failed"


class Undone(Struct, frozen=True):
    """Counts of unfinished work; all are zero by default."""

    #: Failed batches and their rows, which are kept until they are tried again.
    kept: int = 0
    kept_rows: int = 0
    #: Failed batches whose rows are lost.
    lost: int = 0
    units: int = 0

    def sentence(self, target: Target, name: str) -> str:
        """Return a sentence about the unfinished work, with the fix; "" if all work is done."""
        if self.kept:
            return (
                f"topology '{name}' has finished, but {_batches(self.kept)} with {self.kept_rows:,} rows failed; the"
                f" topology is not removed, so that you can retry them: heron exceptions {target} {name} shows the"
                f" exceptions; then heron batches {target} {name} --retry, and heron kill {target} {name}"
            )
        texts = []
        if self.lost:
            texts.append(f"{_batches(self.lost)} failed; under ATMOST_ONCE their rows are lost")
        if self.units:
            noun = "work unit" if self.units == 1 else "work units"
            texts.append(
                f"{self.units:,} {noun} failed; heron units list shows them, and heron units retry retries them"
            )
        return f"topology '{name}' has finished, but {'; '.join(texts)}" if texts else ""


def _batches(count: int) -> str:
    return f"{count:,} Spark {'batch' if count == 1 else 'batches'}"


def undone_of(session: Session, record: plan_pb2.ExecutionState, last: control_pb2.StatusReply) -> Undone:
    """Return the unfinished work, from the topology master and the records; empty if there is no answer."""
    try:
        reply = session.ask(record.topology, control_pb2.GetMetrics(names=(_BATCHES, _UNITS)))
    except HeronError:
        return Undone()
    # Batches of work units are retried as units.
    sinks = spark_sinks(last.plan.topology)
    batches = 0.0
    units: dict[str, float] = {}
    for sample in (sample for report in reply.reports for sample in report.samples):
        if sample.name == _BATCHES:
            batches += sample.value if sample.label in sinks else 0.0
        elif "/" not in sample.label:  # each keeper reports its whole pipeline
            units[sample.label] = max(units.get(sample.label, 0.0), sample.value)
    kept: list[dict[str, Any]] = []
    mode = reliability_mode(last.plan.topology)
    if batches and mode == "EFFECTIVELY_ONCE":
        from heronpy.cli.look.batches import failed_of

        kept = failed_of(session, record)
    return Undone(
        kept=len(kept),
        kept_rows=sum(one["rows"] for one in kept),
        # Under ATLEAST_ONCE the tuples of failed batches fail, and are replayed.
        lost=int(batches) if mode == "ATMOST_ONCE" else 0,
        units=int(sum(units.values())),
    )
