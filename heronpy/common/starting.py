"""The phases of a topology's start: each begins where the one before has ended, so their sum is the whole. Pure."""

from __future__ import annotations

from heronpy.common.units import format_duration
from heronpy.proto import control_pb2

#: Each with the field of StartTimes at which it ends, and what is done.
PHASES = {
    "package": ("packaged_at", "the program is loaded, planned and packed"),
    "launch": ("launched_at", "scheduler, containers and topology master start"),
    "register": ("registered_at", "all stream managers register"),
    "plan": ("planned_at", "the physical plan is made"),
    "initialise": ("running_at", "the tasks start and initialise"),
}


def phases(start: control_pb2.StartTimes) -> dict[str, float]:
    """Seconds of each phase that is over, in order. Clocks of two hosts may differ: then a phase may be negative."""
    found: dict[str, float] = {}
    before = start.begun_at
    for name, (field, _) in PHASES.items():
        ended_at = getattr(start, field)
        if not ended_at:
            break
        found[name], before = ended_at - before, ended_at
    return found


def text(start: control_pb2.StartTimes) -> str:
    """`5.2s: package 1.3s, launch 1s, ...`."""
    took = phases(start)
    parts = ", ".join(f"{name} {format_duration(round(seconds, 2))}" for name, seconds in took.items())
    return f"{format_duration(round(sum(took.values()), 2))}: {parts}"
