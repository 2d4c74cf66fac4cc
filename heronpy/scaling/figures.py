"""The input of the scaler: the figures of a topology at one look, measurements of other days, and its aims. Pure.

A look is taken each minute. Its rates and shares cover a window without any older configuration, like those of
`heronpy.health`. A figure that was not reported is None, never 0.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from heronpy.views.findings import Finding


class Figures(Struct, frozen=True, kw_only=True):
    """One component; figures cover all its tasks unless stated otherwise."""

    name: str
    is_spout: bool
    #: Number of running tasks.
    tasks: int
    #: Simultaneous calls of each task; 1 unless it is asynchronous.
    concurrency: int = 1
    asynchronous: bool = False
    #: Tuples per second that it has processed; for a spout, that it has emitted.
    processed: float | None = None
    #: Tuples per second that each component has emitted to it, by the component's name.
    inputs: dict[str, float] = {}
    #: Share of the time in which its threads, or places for calls, were in use, from 0 to 1: the mean of its tasks.
    busy: float | None = None
    #: Standard deviation of the rates of its tasks over their mean.
    spread: float | None = None
    #: Tuples that wait for it: in the source of a spout, or in the queues of a bolt.
    backlog: float | None = None
    #: Age of the tuples that it processes, in seconds; None: derived from `Observation.end_to_end_s` and the backlog.
    lag_s: float | None = None
    #: Bytes of a task: the mean, the largest, and the limit of each; None if there is no limit.
    memory_mean: float | None = None
    memory_max: float | None = None
    memory_limit: int | None = None
    #: Mean number of keys for which a task holds state.
    keys: float | None = None
    #: Whether it has held the spouts back in the window.
    saturated: bool = False
    #: Why its tasks cannot be changed, as one sentence without a full stop; "" if they can.
    fixed: str = ""
    #: Wall time of a busy thread for a tuple in the healthy minutes of a day, seconds.
    usual_s: float | None = None


class Past(Struct, frozen=True):
    """The demand on a component on other days at this clock time, in tuples per second."""

    #: The number of the last 14 days that have minutes in the compared hours.
    days: int = 0
    #: The highest demand in any minute of the next 8 hours on those days, and the keys of all tasks then.
    ahead: float | None = None
    ahead_keys: float | None = None
    #: The mean of the last half hour on those days, and today.
    usual: float | None = None
    recent: float | None = None


class Observation(Struct, frozen=True, kw_only=True):
    """A topology at one moment; without components if it did not answer."""

    topology: str
    #: Wall time, seconds since 1970.
    at: float
    components: tuple[Figures, ...] = ()
    #: Results of `heronpy.health.diagnose`, most urgent first.
    findings: tuple[Finding, ...] = ()
    #: The digest of its program, which a deploy changes; "": unknown.
    program: str = ""
    #: Wall time of its last update; None if no update is known.
    updated_at: float | None = None
    #: Seconds covered by rates and shares.
    window_s: float = 300.0
    #: Share of the window in which the spouts were held back.
    held: float = 0.0
    #: 99th percentile of the time from a spout to the end of a tuple, in seconds.
    end_to_end_s: float | None = None
    #: How long the last rescale stopped the tuples, in seconds.
    rescale_s: float = 2.0
    #: Bytes of the smallest slot or host for tasks.
    room_bytes: int | None = None
    #: By component.
    past: dict[str, Past] = {}

    @property
    def by_name(self) -> dict[str, Figures]:
        """The components by their names."""
        return {one.name: one for one in self.components}


class Goal(Struct, frozen=True):
    """The promise of a job and the permitted actions, from its document (`slo`, `scale`)."""

    #: 0: no promise.
    lag_s: float = 0.0
    mode: Literal["act", "advise", "off"] = "act"
    #: Only components with a maximum are scaled.
    max: dict[str, int] = {}
    min: dict[str, int] = {}
    #: Seconds within which a backlog must be gone, for a day of 24 hours.
    drain_s: float = 1800.0

    def clamped(self, component: str, tasks: int) -> int:
        """The number of tasks that the limits allow."""
        return max(self.min.get(component, 1), min(tasks, self.max.get(component, tasks)))


class Times(Struct, frozen=True):
    """All times of decisions, in seconds. A shorter day shortens all of them alike, down to their minimums."""

    day_s: float = 86_400.0
    look_s: float = 60.0
    window_s: float = 300.0
    #: Time until the effect of a change can be judged.
    settle_s: float = 180.0
    #: How long more tasks must have been wanted before they are given.
    sure_s: float = 120.0
    #: How long fewer tasks must have sufficed, and the minimum time between two reductions.
    spare_s: float = 3600.0
    shrink_s: float = 12 * 3600.0
    #: How long a change without effect is not repeated; it doubles each time.
    bar_s: float = 3600.0
    #: The part of other days that is compared with the present, and the part that predicts the next hours.
    ahead_s: float = 8 * 3600.0
    recent_s: float = 1800.0
    #: A change that is not visible after this time was not made.
    apply_s: float = 600.0

    @classmethod
    def of(cls, day_s: float) -> Times:
        """The times for a day of this length, with minimums: 5 s for a look, 15 s for a window, 10 s to settle."""
        day = cls()
        share = day_s / day.day_s
        shared = replace(day, **{name: getattr(day, name) * share for name in day.__struct_fields__})
        look_s = max(5.0, shared.look_s)
        return replace(
            shared,
            look_s=look_s,
            window_s=max(15.0, shared.window_s),
            settle_s=max(10.0, shared.settle_s),
            sure_s=max(2 * look_s, shared.sure_s),
            spare_s=max(6 * look_s, shared.spare_s),
            recent_s=max(3 * look_s, shared.recent_s),
            apply_s=max(60.0, shared.apply_s),
        )

    def drain_s(self, goal: Goal) -> float:
        """Seconds within which a backlog must be gone."""
        return max(self.window_s, goal.drain_s * self.day_s / 86_400.0)
