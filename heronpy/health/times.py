"""The time constants of all rules. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Times:
    """The time constants, in seconds."""

    window_s: float = 300.0  # the requested window of a diagnosis
    settle_s: float = 180.0  # figures mix two configurations until this time after a change
    restored_s: float = 20.0  # figures mix a pause and a catch-up until this time after a restore
    spare_s: float = 3600.0  # fewer tasks must have sufficed for this time
    drains_s: float = 300.0  # a backlog that is gone within this time needs no action
    drain_s: float = 1800.0  # enough tasks work off a backlog within this time
    #: Pipelines of work units are catching up if publishing their backlog takes longer than this, because bytes always
    #: wait for a unit, and a unit for its publication.
    units_behind_s: float = 60.0
    history_s: float = 3720.0  # the requested length of series
    behind_s: float = 2.0  # a queue that takes this long to process is a backlog
    late_s: float = 0.1  # tuples that take less than this are never late
    hung_s: float = 10.0  # in one call
    young_s: float = 10.0  # a younger topology is not called healthy: its tasks have hardly reported
    still_s: float = 15.0  # a spout that is held has stopped after this time,
    quiet_s: float = 90.0  # and a spout that is free to emit after this time
    checkpoint_waits_s: float = 5.0  # a checkpoint in progress for this time waits for a task
    spark_late_s: float = 30.0  # a batch is late if it has waited for this time, and for longer than two batches take
    full_s: float = 3600.0  # memory that continues to grow at its rate reaches its limit within this time
    # the same for the machine's limit, which only a growth of gigabytes per hour reaches within this time
    machine_full_s: float = 6 * 3600.0
    warm_s: float = 3.5  # left out at the start of a process's memory trail
    seen_s: float = 30.0  # minimum time that a memory trail must cover

    def of_day(self, day_s: float) -> Times:
        """Return the constants, scaled to a day of another length, but not below their minimum."""
        part = day_s / DAY_S
        return replace(self, **{name: max(least, getattr(self, name) * part) for name, least in _LEAST.items()})


#: The constants that scale with the length of the day, and their minimum.
_LEAST: Final = {"window_s": 15.0, "settle_s": 10.0, "spare_s": 15.0, "drains_s": 15.0, "drain_s": 15.0,
                 "units_behind_s": 10.0}  # fmt: skip
TIMES: Final = Times()
