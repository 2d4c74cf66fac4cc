"""The findings of the doctor on an ended topology, from its last minutes, events and totals. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from heronpy.common.losses import UNKNOWN, given_up_text, losses_text
from heronpy.common.units import counted, format_duration
from heronpy.views.advice import Doctor, Finding
from heronpy.views.overview import Topology
from heronpy.views.past import Event, Timeline
from heronpy.views.quotes import without_values

#: Seconds before the end that figures cover, as for a running topology, and that events cover.
FIGURES_S, EVENTS_S = 300.0, 1800.0
#: The doctor's limits for a running topology: shares above which spouts count as held back, and a task as full.
HELD, FULL = 0.2, 0.8
NEVER_KEPT = "the last figures of each task, the tasks' stacks and the load of the machine are no longer known"
NO_FIGURES = "no figures of the last minutes were kept, because the topology master ended before it wrote them"


class _Window:
    """The mean figures of the last known minutes."""

    def __init__(self, timeline: Timeline, ended_at: float) -> None:
        known = [
            place
            for place in range(len(timeline.times))
            if any(one.values[place] is not None for one in timeline.series)
        ]
        last = timeline.times[known[-1]] if known else ended_at
        self._places = [place for place in known if timeline.times[place] > last - FIGURES_S]
        self._series = {(one.component, one.metric): one.values for one in timeline.series}
        #: Seconds.
        self.over_s = last + timeline.step_s - timeline.times[self._places[0]] if self._places else 0.0

    def mean(self, component: str, metric: str) -> float | None:
        """Return the mean; None if nothing was reported."""
        values = self._series.get((component, metric))
        found = [value for place in self._places if values and (value := values[place]) is not None]
        return sum(found) / len(found) if found else None

    def components(self) -> list[str]:
        """Return the components that reported any figures."""
        return list(dict.fromkeys(component for component, _ in self._series if component))

    def emitted(self) -> float | None:
        """Return the tuples per second that the spouts emitted; a component that executes nothing counts as a spout."""
        rates = [
            rate
            for name in self.components()
            if (name, "executed_per_s") not in self._series and (rate := self.mean(name, "emitted_per_s")) is not None
        ]
        return sum(rates) if rates else None


def doctor_of_ended(shown: Topology, events: Sequence[Event], timeline: Timeline) -> Doctor:
    """Return the answer to `GET /doctor` for an ended topology; `shown` has its outcome and end time."""
    found = _doctor(shown, events, timeline)
    plain = _doctor(without_values(shown), without_values(list(events)), timeline)
    found.findings = [
        replace(one, unquoted=other.sentence if other.sentence != one.sentence else "")
        for one, other in zip(found.findings, plain.findings)
    ]
    return found


def _doctor(shown: Topology, events: Sequence[Event], timeline: Timeline) -> Doctor:
    ended_at = shown.ended_at or 0.0
    window, where = _Window(timeline, ended_at), f"{shown.cluster} {shown.name}"
    late = [event for event in events if event.at >= ended_at - EVENTS_S]
    emitted, held = window.emitted(), window.mean("", "held")
    said = _said_last(shown)
    found = [
        *said,
        _ended(shown, where),
        *_memory(late, where),
        *_restarts(late, where),
        *_losses(shown, where),
        *_discarded(shown),
        # These figures have less information than the doctor had for its last finding.
        *(() if said else _held(held, late, window, ended_at)),
        *(() if said else _busiest(window)),
    ]
    if len(found) == 1 and window.over_s:
        rate = f": the spouts emitted {emitted:,.0f} tuples a second" if emitted is not None else ""
        found.append(_finding("healthy", True, f"nothing stood out in the run's last {_span(window)}{rate}"))
    return Doctor(
        topology=shown.name,
        healthy=all(finding.calm for finding in found),
        window_s=window.over_s,
        findings=found,
        emitted_per_s=emitted or 0.0,
        held=held or 0.0,
        tasks=[],
        events_known=bool(events),
        ended_at=shown.ended_at,
        not_known=NEVER_KEPT if window.over_s else f"{NO_FIGURES}; {NEVER_KEPT}",
    )


def _finding(verdict: str, calm: bool, sentence: str, advice: str = "", component: str = "", task: str = "",
             figures: dict[str, float] | None = None) -> Finding:  # fmt: skip
    return Finding(
        verdict=verdict, calm=calm, sentence=sentence, next=advice, component=component, task=task,
        figures=figures or {}, names=[],
    )  # fmt: skip


def _span(window: _Window) -> str:
    return format_duration(round(window.over_s))


def _said_last(shown: Topology) -> list[Finding]:
    """Return the doctor's last finding, unless it needs no action."""
    if shown.sentence is None or shown.verdict is None or shown.calm:
        return []
    return [_finding(shown.verdict, False, shown.sentence, component=shown.component, task=shown.task)]


def _ended(shown: Topology, where: str) -> Finding:
    after = f", after {format_duration(round(shown.uptime_s))}" if shown.uptime_s else ""
    failed = shown.state == "FAILED"
    advice = f"the topology's last errors: heron logs {where} --level ERROR" if failed else ""
    return _finding("ended", not failed, f"{shown.cause}{after}", advice)


def _memory(events: Iterable[Event], where: str) -> list[Finding]:
    times = _times(events, "oom")
    return [
        _finding(
            "memory", False, f"{name} ran out of memory {counted(count, 'time')} in the run's last half hour",
            f"the output before that: heron logs {where} {name}", figures={"times": float(count)},
        )
        for name, count in times.most_common(1)
    ]  # fmt: skip


def _restarts(events: Sequence[Event], where: str) -> list[Finding]:
    times = _times((event for event in events if event.warning), "restart")
    found = []
    for name, count in times.most_common(1):
        last = next(event for event in reversed(events) if event.kind == "restart" and event.subject == name)
        why = ": ".join(part for part in (last.reason.replace("_", " "), last.detail) if part)
        others = f", as were {len(times) - 1} other processes" if len(times) > 1 else ""
        sentence = f"{name} was restarted {counted(count, 'time')} in the run's last half hour{others}"
        found.append(
            _finding("crashing", False, f"{sentence}; last reason: {why}" if why else sentence,
                     f"heron logs {where} {name} --level ERROR", figures={"times": float(count)})
        )  # fmt: skip
    return found


def _times(events: Iterable[Event], kind: str) -> Counter[str]:
    """Return how often this kind of event occurred, by subject."""
    times = Counter[str]()
    for event in events:
        if event.kind == kind:
            times[event.subject or "the topology"] += max(event.times, 1)
    return times


def _losses(shown: Topology, where: str) -> list[Finding]:
    totals = shown.totals
    if totals is None or not losses_text(totals):
        return []
    advice = f"heron dead-letters {where}" if totals.dead_letters else ""
    figures = {"dead_letters": float(totals.dead_letters), "lost": float(totals.lost)}
    lack = "may not be" if losses_text(totals) == UNKNOWN else "are not"
    sentence = f"the topology's results {lack} complete: {given_up_text(totals)}"
    return [_finding("losses", False, sentence, advice, figures=figures)]


def _discarded(shown: Topology) -> list[Finding]:
    count = shown.totals.discarded if shown.totals is not None else 0
    if not count:
        return []
    sentence = f"tuples for full tasks were discarded, as configured: {count:,}"
    return [_finding("losses", True, sentence, figures={"discarded": float(count)})]


def _held(held: float | None, events: Iterable[Event], window: _Window, ended_at: float) -> list[Finding]:
    if held is None or held < HELD:
        return []
    spans: dict[str, float] = {}
    for event in events:
        if event.kind == "backpressure" and not event.reason and event.at >= ended_at - window.over_s:
            spans[event.subject] = spans.get(event.subject, 0.0) + (event.lasted_s or 0.0)
    name = max(spans, key=lambda one: spans[one], default="")
    by = f", mostly by {name}" if name else "; the component that caused it is no longer known"
    sentence = f"the spouts were held back for {held * 100:.0f} % of the run's last {_span(window)}{by}"
    return [_finding("held", False, sentence, figures={"held": held})]


def _busiest(window: _Window) -> list[Finding]:
    shares = {name: share for name in window.components() if (share := window.mean(name, "busy_max")) is not None}
    name = max(shares, key=lambda one: shares[one], default="")
    if not name or shares[name] < FULL:
        return []
    mean = window.mean(name, "busy")
    rest = f", all its tasks {mean * 100:.0f} % on average" if mean is not None else ""
    sentence = f"the busiest task of {name} was {shares[name] * 100:.0f} % busy in the run's last {_span(window)}{rest}"
    return [_finding("busy", False, sentence, component=name, figures={"busy": shares[name]})]
