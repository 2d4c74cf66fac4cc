"""Samples of the last minutes of a topology, taken every few seconds by a tracker. Pure.

Samples that are at least `SAMPLE_S` apart are kept. A topology that is young or has viewers therefore has a sample
every two seconds, and any other topology has one every ten seconds. Invariants: Times increase. At most `SAMPLES_MAX`
samples are kept, and none is older than `KEPT_S` before the newest. NaN means unknown.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable
from math import ceil, isnan, nan
from operator import attrgetter

from heronpy.views.load import Load
from heronpy.views.past import Series, Timeline
from heronpy.views.saved import Batches, spark_figures

#: Minimum seconds between two samples; a page of a topology has new figures every two seconds.
SAMPLE_S = 1.9
#: A chart shows ten minutes. One more minute is kept, so that the ten minutes are complete.
KEPT_S, SAMPLES_MAX = 660.0, 330
#: Minimum seconds between two readings of batches, whose difference gives the rates.
BATCHES_S = 1.0
#: Figures of each component, by their names in its row.
_OF_COMPONENT = (
    "emitted_per_s", "executed_per_s", "acked_per_s", "failed_per_s", "busy", "busy_max", "blocked", "idle",
    "queue_bytes", "queue_bytes_max", "latency_p50_s", "latency_p99_s", "end_to_end_p50_s", "end_to_end_p99_s",
    "complete_p50_s", "complete_p99_s", "memory_bytes", "memory_bytes_max", "cpu",
)  # fmt: skip
_figures = attrgetter(*_OF_COMPONENT)
_LONGEST = _OF_COMPONENT.index("queue_bytes_max")
_OF_SPARK = ("spark_waiting", "spark_lag_s", "spark_done", "spark_batch_s")
#: Figures of the topology, whose component is "".
_OF_TOPOLOGY = ("held", *_OF_SPARK)


class Samples:
    def __init__(self) -> None:
        self._times: list[float] = []
        #: For each time, one value per figure, by component.
        self._rows: dict[str, array[float]] = {}
        #: The last reading of the batches of Spark with its time, and the figures between the last two readings.
        self._batches: tuple[Batches, float] | None = None
        self._spark: dict[str, float | None] = {}

    def see_batches(self, found: Batches, at: float) -> None:
        """Record Spark's batches, unless some were recorded a moment ago. The next figures include these batches."""
        before = self._batches
        if before is not None and at - before[1] < BATCHES_S:
            return
        self._spark = spark_figures(found, before[0] if before else None, at - before[1] if before else 0.0)
        self._batches = found, at

    def see(self, load: Load) -> None:
        """Record figures, unless the last sample is younger than `SAMPLE_S`."""
        if self._times and load.at < self._times[-1] - KEPT_S:
            self._times, self._rows = [], {}  # the clock was set back
        if self._times and load.at - self._times[-1] < SAMPLE_S:
            return
        self._note("", (load.held, *map(self._spark.get, _OF_SPARK)))
        for row in load.components:
            figures = list(_figures(row))
            if row.queue_bytes == 0 and figures[_LONGEST] is None:
                figures[_LONGEST] = 0  # if all queues are empty, no queue is the longest
            self._note(row.name, figures)
        self._times.append(load.at)
        count = len(self._times)
        old = max(count - SAMPLES_MAX, bisect_left(self._times, load.at - KEPT_S))
        del self._times[:old]
        for name, values in list(self._rows.items()):
            width = len(_names(name))
            values.extend([nan] * (count * width - len(values)))  # the component no longer exists
            del values[: old * width]
            if all(map(isnan, values)):
                del self._rows[name]

    def _note(self, component: str, values: Iterable[float | None]) -> None:
        row = self._rows.setdefault(component, array("f"))
        width = len(_names(component))
        row.extend([nan] * (len(self._times) * width - len(row)))
        row.extend([nan if value is None else value for value in values])

    def timeline(
        self, since: float = 0.0, points: int = 0, components: Collection[str] = (), metrics: Collection[str] = ()
    ) -> Timeline:
        """Return the samples since a time, thinned out to at most `points` (0: no limit). Empty lists select all
        components and series. The steps differ in length.
        """
        first, count = bisect_left(self._times, since), len(self._times)
        step = ceil((count - first) / points) if points and first < count else 1
        first += (count - first - 1) % step if first < count else 0
        series = []
        for component, row in self._rows.items():
            names = _names(component)
            for column, metric in enumerate(names):
                if (not components or component in components) and (not metrics or metric in metrics):
                    values = row[first * len(names) + column :: step * len(names)]
                    if not all(map(isnan, values)):
                        series.append(Series(component=component, metric=metric, values=list(map(_short, values))))
        kept_from = self._times[0] if self._times else None
        return Timeline(times=self._times[first::step], step_s=SAMPLE_S, series=series, kept_from=kept_from)


def _short(value: float) -> float | None:
    """Return the value with the digits of a float32; more digits would make up most of an answer's bytes."""
    return None if isnan(value) else round(value, 7 if value < 1 else 3)


def _names(component: str) -> tuple[str, ...]:
    return _OF_COMPONENT if component else _OF_TOPOLOGY
