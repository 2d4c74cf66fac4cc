"""A pipeline's metrics: the ledger's figures, which keepers report, and the counters of each task."""

from __future__ import annotations

from heronpy.api.metrics import MultiAssignableMetrics, MultiCountMetric
from heronpy.api.topology_context import TopologyContext
from heronpy.ingest.ledger.commands import Figures
from heronpy.ingest.ledger.requests import Settled
from heronpy.ingest.ledger.types import UnitState

#: Gauges of keepers. Each keeper reports for the whole pipeline, so the largest value is shown.
BACKLOG, WAITING, OLDEST = "units-backlog-bytes", "units-waiting-bytes", "units-oldest-seconds"
UNFINISHED, BAD_BYTES, BAD_RANGES = "units-unfinished-bytes", "units-bad-bytes", "units-bad-ranges"
STATES = {
    UnitState.READY: "units-ready",
    UnitState.LEASED: "units-leased",
    UnitState.COMMITTED: "units-committed",
    UnitState.FAILED: "units-failed",
}
GAUGES = (BACKLOG, WAITING, OLDEST, UNFINISHED, BAD_BYTES, BAD_RANGES, *STATES.values())
#: Gauges by site, labelled by pipeline and site with a "/" in between.
SITE_GAUGES = ("units-site-bytes", "units-site-workers", "units-site-leased", "units-site-silent-seconds")
#: Counters of keepers.
PUBLISHED = ("units-published", "units-published-bytes", "units-published-rows")
#: Counters of workers.
ATTEMPTS, TRIES_FAILED, IN_VAIN = "units-attempts", "units-tries-failed", "units-attempts-in-vain"
BACKUPS, BACKUPS_WON = "units-backups", "units-backups-won"
WORK = (ATTEMPTS, TRIES_FAILED, IN_VAIN, BACKUPS, BACKUPS_WON)
#: Interval in seconds at which the runtime collects these metrics.
_COLLECT_S = 1.0


class Counters:
    """Counters of one task, labelled by pipeline. Call `count_for` first to set the pipeline."""

    def __init__(self, context: TopologyContext, names: tuple[str, ...]) -> None:
        self._pipeline = ""
        self._metrics = {name: MultiCountMetric() for name in names}
        for name, metric in self._metrics.items():
            context.register_metric(name, metric, _COLLECT_S)

    def count_for(self, pipeline: str) -> None:
        """Label the counters with this pipeline from now on."""
        self._pipeline = pipeline
        for metric in self._metrics.values():
            metric.add_key(pipeline)

    def add(self, name: str, by: int = 1) -> None:
        self._metrics[name].incr(self._pipeline, by)


class KeeperFigures:
    """The figures that a keeper reports. Call `count_for` first to set the pipeline."""

    def __init__(self, context: TopologyContext) -> None:
        self._pipeline = ""
        self._counters = Counters(context, PUBLISHED)
        self._gauges = {name: MultiAssignableMetrics() for name in (*GAUGES, *SITE_GAUGES)}
        for name, gauge in self._gauges.items():
            context.register_metric(name, gauge, _COLLECT_S)

    def count_for(self, pipeline: str) -> None:
        """Report for this pipeline from now on."""
        self._pipeline = pipeline
        self._counters.count_for(pipeline)

    def published(self, settled: Settled) -> None:
        """Count units whose publication the ledger has just recorded."""
        for name, by in zip(PUBLISHED, (settled.units, settled.bytes, settled.rows), strict=True):
            self._counters.add(name, by)

    def show(self, figures: Figures, unfinished_bytes: int) -> None:
        """Report the ledger's current figures."""
        for name, value in values_of(figures, unfinished_bytes).items():
            self._gauges[name].update(self._pipeline, value)
        for site in figures.sites:
            for name, value in zip(
                SITE_GAUGES, (site.bytes, site.workers, site.leased, site.seen_s or 0.0), strict=True
            ):
                self._gauges[name].update(f"{self._pipeline}/{site.name}", value)


def backlog_of(figures: Figures) -> int:
    """Return the number of bytes that workers still have to process. Pure."""
    states = (UnitState.READY, UnitState.LEASED)
    return figures.waiting_bytes + sum(figures.units.get(state.value, (0, 0))[1] for state in states)


def values_of(figures: Figures, unfinished_bytes: int) -> dict[str, float]:
    """Return the gauges by name. Pure."""
    in_units = sum(size for state, (_, size) in figures.units.items() if state != UnitState.FAILED)
    return {
        BACKLOG: figures.waiting_bytes + in_units,
        WAITING: figures.waiting_bytes,
        OLDEST: figures.oldest_s or 0.0,
        UNFINISHED: unfinished_bytes,
        BAD_BYTES: figures.bad_bytes,
        BAD_RANGES: figures.bad_ranges,
        **{name: figures.units.get(state.value, (0, 0))[0] for state, name in STATES.items()},
    }
