"""What the scaler is told: the figures of a topology at one look, what was measured on other days, its aims. Pure.

A look is taken each minute. Its rates and shares are over a window that has no older configuration in it, as those of
`heronpy.health` are. A figure that was not reported is None, never 0.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from heronpy.views.findings import Finding


class Figures(Struct, frozen=True, kw_only=True):
    """One component, all its tasks together unless it says otherwise."""

    name: str
    is_spout: bool
    #: That run now.
    tasks: int
    #: Calls that each task makes at once; 1 unless it is asynchronous.
    concurrency: int = 1
    asynchronous: bool = False
    #: Tuples per second that it has processed; of a spout, that it has emitted.
    processed: float | None = None
    #: Tuples per second that each component has emitted to it, by the component's name.
    inputs: dict[str, float] = {}
    #: Share of the time in which its threads, or places for calls, were in use, from 0 to 1: the mean of its tasks.
    busy: float | None = None
    #: Standard deviation of the rates of its tasks over their mean.
    spread: float | None = None
    #: Tuples that wait for it: of a spout in its source, of a bolt in its queues.
    backlog: float | None = None
    #: Age of what it processes, seconds; None: as `Look.end_to_end_s` and the backlog say.
    lag_s: float | None = None
    #: Bytes of a task: the mean, the largest, and the limit of each; None: there is no limit.
    memory_mean: float | None = None
    memory_max: float | None = None
    memory_limit: int | None = None
    #: Keys that a task holds state for: the mean.
    keys: float | None = None
    #: Whether it has held the spouts back in the window.
    saturated: bool = False
    #: Why its tasks cannot be changed, as one sentence without a full stop; "": they can.
    fixed: str = ""
    #: Wall time of a busy thread for a tuple in the healthy minutes of a day, seconds.
    usual_s: float | None = None


class Past(Struct, frozen=True):
    """What a component was asked for on other days at this clock time, tuples per second."""

    #: Of the last 14 days those that have minutes in the hours compared.
    days: int = 0
    #: The most in any minute of the next 8 hours on those days, and the keys of all tasks then.
    ahead: float | None = None
    ahead_keys: float | None = None
    #: The mean of the last half hour on those days, and now.
    usual: float | None = None
    recent: float | None = None


class Look(Struct, frozen=True, kw_only=True):
    """A topology at one moment; without components, when it did not answer."""

    topology: str
    #: Wall time, seconds since 1970.
    at: float
    components: tuple[Figures, ...] = ()
    #: Of `heronpy.health.diagnose`, the most urgent first.
    findings: tuple[Finding, ...] = ()
    #: The digest of its program, which a deploy changes; "": it is not known.
    program: str = ""
    #: Wall time of its last update; None: no update is known.
    updated_at: float | None = None
    #: Seconds that rates and shares are over.
    window_s: float = 300.0
    #: Share of the window in which the spouts were held back.
    held: float = 0.0
    #: From a spout to the end of a tuple, 99th percentile.
    end_to_end_s: float | None = None
    #: How long the last rescale let nothing pass.
    rescale_s: float = 2.0
    #: Bytes of the smallest slot or host that tasks may be placed on.
    room_bytes: int | None = None
    #: By component.
    past: dict[str, Past] = {}

    @property
    def by_name(self) -> dict[str, Figures]:
        """The components by their names."""
        return {one.name: one for one in self.components}


class Goal(Struct, frozen=True):
    """What a job promises and what may be done for it, as its document says (`slo`, `scale`)."""

    #: 0: nothing is promised.
    lag_s: float = 0.0
    mode: Literal["act", "advise", "off"] = "act"
    #: Only components with a maximum are scaled.
    max: dict[str, int] = {}
    min: dict[str, int] = {}
    #: Seconds, of a day of 24 hours, within which a backlog is to be gone.
    drain_s: float = 1800.0

    def clamped(self, component: str, tasks: int) -> int:
        """The number of tasks that the limits allow."""
        return max(self.min.get(component, 1), min(tasks, self.max.get(component, tasks)))


class Times(Struct, frozen=True):
    """All the times that decisions use, seconds. A shorter day shortens all of them alike, down to their floors."""

    day_s: float = 86_400.0
    look_s: float = 60.0
    window_s: float = 300.0
    #: After a change its effect can be judged.
    settle_s: float = 180.0
    #: How long more must have been wanted before it is given.
    sure_s: float = 120.0
    #: How long fewer tasks must have sufficed, and the least time between two reductions.
    spare_s: float = 3600.0
    shrink_s: float = 12 * 3600.0
    #: How long a change that had no effect is not tried again; it doubles each time.
    bar_s: float = 3600.0
    #: Of the past: what comes, and what is compared with the present.
    ahead_s: float = 8 * 3600.0
    recent_s: float = 1800.0
    #: A change that is not seen by then was not made.
    apply_s: float = 600.0

    @classmethod
    def of(cls, day_s: float) -> Times:
        """The times of a day of this length: a look takes at least 5 s, a window 15 s, to settle 10 s."""
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
        """In how many seconds a backlog is to be gone."""
        return max(self.window_s, goal.drain_s * self.day_s / 86_400.0)
