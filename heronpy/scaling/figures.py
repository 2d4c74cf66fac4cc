"""The input of the scaler: the figures of a topology at one look, measurements of other days, and the goal. Pure.

A look is taken each minute. Its rates and shares cover a window that begins after the last change of configuration, as
in `heronpy.health`. A figure that was not reported is None, never 0.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from heronpy.views.findings import Finding


class Figures(Struct, frozen=True, kw_only=True):
    """Figures of one component, over all its tasks unless stated otherwise."""

    name: str
    is_spout: bool
    #: Number of running tasks.
    tasks: int
    #: Simultaneous calls of each task; 1 unless the component is asynchronous.
    concurrency: int = 1
    asynchronous: bool = False
    #: Tuples per second that a bolt has processed or a spout has emitted.
    processed: float | None = None
    #: Map from emitting component to the tuples per second that it has emitted to this component.
    inputs: dict[str, float] = {}
    #: Share of the time, from 0 to 1, in which threads or call slots were in use: the mean of the tasks.
    busy: float | None = None
    #: Standard deviation of the rates of the tasks, divided by their mean.
    spread: float | None = None
    #: Number of waiting tuples: in the source of a spout, or in the queues of a bolt.
    backlog: float | None = None
    #: Age of the processed tuples in seconds; None: derived from `Observation.end_to_end_s` and the backlog.
    lag_s: float | None = None
    #: Bytes of memory: mean of the tasks, largest task, and limit of each task (None if there is no limit).
    memory_mean: float | None = None
    memory_max: float | None = None
    memory_limit: int | None = None
    #: Mean number of keys for which a task has state.
    keys: float | None = None
    #: Whether the component has held the spouts back in the window.
    saturated: bool = False
    #: Why the number of tasks cannot be changed, as one sentence without a full stop; "" if it can.
    fixed: str = ""
    #: Which layer sets a value that the scaler would change, as one sentence without a full stop; "" if none does.
    pinned: str = ""
    #: Seconds that a busy thread needs for a tuple in the healthy minutes of a day.
    usual_s: float | None = None
    #: CPU seconds per second, over all tasks.
    cpu: float | None = None

    @property
    def kept(self) -> str:
        """All reasons why the scaler leaves the component alone, as one sentence; "" if there is none."""
        return ", and ".join(filter(None, (self.pinned, self.fixed)))


class Past(Struct, frozen=True):
    """The demand on a component on other days at this time of day, in tuples per second."""

    #: Number of days among the last 14 with minutes in the compared hours.
    days: int = 0
    #: Highest demand in any minute of the next 8 hours on those days, and the keys of all tasks at that time.
    ahead: float | None = None
    ahead_keys: float | None = None
    #: Mean demand of the last half hour on those days, and today.
    usual: float | None = None
    recent: float | None = None


class Observation(Struct, frozen=True, kw_only=True):
    """A topology at one moment; it has no components if the topology master did not answer."""

    topology: str
    #: Wall time in seconds since 1970.
    at: float
    components: tuple[Figures, ...] = ()
    #: Results of `heronpy.health.diagnose`, most urgent first.
    findings: tuple[Finding, ...] = ()
    #: Digest of the program, which a deploy changes; "": unknown.
    program: str = ""
    #: Wall time of the last update; None if no update is known.
    updated_at: float | None = None
    #: Seconds covered by rates and shares.
    window_s: float = 300.0
    #: Share of the window in which the spouts were held back.
    held: float = 0.0
    #: 99th percentile of the time from a spout to the end of a tuple, in seconds.
    end_to_end_s: float | None = None
    #: Seconds until the slowest task of a bolt has processed its queue.
    queue_s: float | None = None
    #: Seconds for which the last rescale stopped the tuples.
    rescale_s: float = 2.0
    #: Bytes of the smallest slot or host for tasks.
    room_bytes: int | None = None
    #: Map from component to its past demand.
    past: dict[str, Past] = {}

    @property
    def by_name(self) -> dict[str, Figures]:
        return {one.name: one for one in self.components}


class Goal(Struct, frozen=True):
    """The objective of a job and the permitted actions, from its document (`slo`, `scale`)."""

    #: Promised lag in seconds; 0: no promise.
    lag_s: float = 0.0
    mode: Literal["act", "advise", "off"] = "act"
    #: Only components with a maximum are scaled.
    max: dict[str, int] = {}
    min: dict[str, int] = {}
    #: Seconds within which a backlog must be gone, for a day of 24 h.
    drain_s: float = 1800.0
    #: Why the scaler may only observe now, as a clause; "" if it may act as `mode` says.
    barred: str = ""
    #: Number of tasks that the pool allots to each component that gets fewer than desired.
    allotted: dict[str, int] = {}
    #: Why the pool allots no more, as a clause; "" if it allots all tasks.
    short: str = ""

    def most(self, component: str, tasks: int) -> int:
        """Return this number of tasks, or the smaller maximum or allotment of the component."""
        return min(tasks, self.max.get(component, tasks), self.allotted.get(component, tasks))

    def least(self, component: str) -> int:
        """Return the minimum of a component that is scaled, or 1 if it has none or the pool does not allot it."""
        least = self.min.get(component, 1) if component in self.max else 1
        return least if self.most(component, least) == least else 1

    def is_short(self, component: str) -> bool:
        """Whether the pool, and not the maximum, limits the component."""
        return component in self.allotted and self.allotted[component] < self.max.get(component, 0)

    def clamped(self, component: str, tasks: int) -> int:
        """Clamp a number of tasks to the limits of the component."""
        return max(self.min.get(component, 1), self.most(component, tasks))


class Times(Struct, frozen=True):
    """The times that decisions use, in seconds. A shorter day shortens all times in proportion, down to a minimum."""

    day_s: float = 86_400.0
    look_s: float = 60.0
    window_s: float = 300.0
    #: Seconds after the last detection of a cause until its alert is cleared.
    clear_s: float = 300.0
    #: Time until the effect of a change can be judged.
    settle_s: float = 180.0
    #: Seconds for which more tasks must have been needed before tasks are added.
    sure_s: float = 120.0
    #: Seconds for which fewer tasks must have sufficed, and minimum seconds between two reductions.
    spare_s: float = 3600.0
    shrink_s: float = 12 * 3600.0
    #: Seconds for which a change without effect is not repeated; the time doubles with each repetition.
    bar_s: float = 3600.0
    #: Length of the window that is compared with other days, and of the window that predicts the next hours.
    ahead_s: float = 8 * 3600.0
    recent_s: float = 1800.0
    #: Seconds after which a change that is still not visible counts as not made.
    apply_s: float = 600.0

    @classmethod
    def of(cls, day_s: float) -> Times:
        """Return the times for a day of this length; minimums are 5 s for a look, 15 s for a window, 10 s to settle."""
        day = cls()
        share = day_s / day.day_s
        shared = replace(day, **{name: getattr(day, name) * share for name in day.__struct_fields__})
        look_s = max(5.0, shared.look_s)
        return replace(
            shared,
            look_s=look_s,
            window_s=max(15.0, shared.window_s),
            clear_s=max(60.0, shared.clear_s),
            settle_s=max(10.0, shared.settle_s),
            sure_s=max(2 * look_s, shared.sure_s),
            spare_s=max(6 * look_s, shared.spare_s),
            recent_s=max(3 * look_s, shared.recent_s),
            apply_s=max(60.0, shared.apply_s),
        )

    def drain_s(self, goal: Goal) -> float:
        """Return the seconds within which a backlog must be gone."""
        return max(self.window_s, goal.drain_s * self.day_s / 86_400.0)
