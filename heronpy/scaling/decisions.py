"""Decisions of the scaler, each with its figures and a sentence, and alerts, one per cause. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.units import format_bytes, format_duration
from heronpy.health.sizing import AIM
from heronpy.scaling.estimate import ENDLESS_S
from heronpy.scaling.figures import Times

#: Maximum number of open causes.
ALERTS_MAX = 64


class Changed(Struct, frozen=True, tag=True):
    """A change to a value of layer scaler, which is only recommended in mode `advise`. `key` is `parallelism`,
    `concurrency` or `ram`.
    """

    component: str
    key: str
    before: int
    after: int
    figures: dict[str, float]
    text: str


class Refused(Struct, frozen=True, tag=True):
    """A refused step for a component, which is reported again only when the reason changes."""

    component: str
    cause: str
    text: str


class Judged(Struct, frozen=True, tag=True):
    """The effect of a change, as a share of the planned effect."""

    component: str
    effect: float
    barred_until: float | None
    text: str


class Alerted(Struct, frozen=True, tag=True):
    """A problem that scaling cannot solve."""

    component: str
    cause: str
    text: str


class Cleared(Struct, frozen=True, tag=True):
    """The cause of an alert is gone."""

    component: str
    cause: str
    text: str


Decision: TypeAlias = Changed | Refused | Judged | Alerted | Cleared


class Alert(Struct, frozen=True):
    """A cause that exists or existed recently."""

    component: str
    cause: str
    text: str
    #: Whether scaling is suspended while the alert is open.
    vetoes: bool = False
    #: Seconds for which the cause must persist before it is reported; it suspends scaling immediately.
    waits_s: float = 0.0
    told: bool = False
    since: float = 0.0
    seen: float = 0.0


def watched(
    opened: Mapping[str, Alert], found: Iterable[Alert], now: float, clear_s: float, explained: Collection[str] = ()
) -> tuple[dict[str, Alert], list[Decision]]:
    """Return the open alerts after a look, and the decisions to report. Alerts not seen for `clear_s` are cleared.

    The first cause usually explains the later causes, so only the first cause opens an alert. `explained` has the keys
    of alerts for which another cause was found.
    """
    after, said = dict(opened), list[Decision]()
    for number, one in enumerate(found):
        key = f"{one.cause}:{one.component}"
        if key not in after and (number or len(after) >= ALERTS_MAX):
            continue
        after[key] = open_one = replace(after.get(key) or replace(one, since=now), text=one.text, seen=now)
        if not open_one.told and now - open_one.since >= one.waits_s:
            said.append(Alerted(one.component, one.cause, one.text))
            after[key] = replace(open_one, told=True)
    for key, one in opened.items():
        if not 0 <= now - after[key].seen < clear_s:
            why = "another cause was found" if key in explained else "over"
            said += [Cleared(one.component, one.cause, f"{why}: {one.text}")] if one.told else []
            del after[key]
    return after, said


def closed(alerts: Iterable[Alert]) -> list[Cleared]:
    """Return the decisions that close the reported alerts of a job that is no longer observed."""
    return [Cleared(one.component, one.cause, f"no longer checked: {one.text}") for one in alerts if one.told]


def lag_text(lag_s: float) -> str:
    """Format a lag, such as `lag 2m05s`, or `stalled` if no tuples are processed."""
    return "stalled" if lag_s >= ENDLESS_S else f"lag {format_duration(lag_s)}"


def rate_text(per_s: float) -> str:
    """Format a rate, such as `2,310/s`."""
    return f"{per_s:,.0f}/s" if per_s >= 10 or not per_s else f"{per_s:.1f}/s"


def size_text(component: str, key: str, figures: Mapping[str, float], times: Times) -> str:
    """Explain why a component needs this number of tasks or of simultaneous calls.

    Example: `work 3 -> 5 tasks: 2,310/s arrive; a task handles 902/s, and should be 70 % busy`.
    """
    n = {name: rate_text(value) for name, value in figures.items()}
    comes = [f"{n['asked']} arrive"]
    if figures.get("waits"):
        drain = format_duration(round(figures["drain_s"]))
        comes.append(f"{figures['waits']:,.0f} tuples wait and should be processed within {drain}")
    if "ahead" in figures:
        comes.append(f"{n['ahead']} arrived within the next {format_duration(times.ahead_s)} on other days")
    what = "calls at once" if key == "concurrency" else "tasks"
    each = "a call" if key == "concurrency" else "a task"
    of = f"{component} {figures['before']:.0f} -> {figures['after']:.0f} {what}"
    return f"{of}: {', '.join(comes)}; {each} handles {n['each']}, and should be {AIM * 100:.0f} % busy"


def memory_text(component: str, before: int, after: int, used: float | None) -> str:
    """Explain why the memory limit is raised."""
    uses = f": its largest task uses {format_bytes(int(used))}" if used is not None else ""
    return f"{component} {format_bytes(before)} -> {format_bytes(after)} of memory for each task{uses}"
