"""Frames per second and tuples per frame of a task's link, between two reports. Pure."""

from __future__ import annotations

from msgspec import Struct

#: Two reports closer together than this, such as the last one of a task, say nothing about a rate.
APART_MIN_S = 0.5


class Traffic(Struct, frozen=True):
    """Frames with tuples that have passed over a link, and the tuples in them, up to a moment."""

    at: float
    """Monotonic seconds."""
    sent_frames: int
    sent_tuples: int
    consumed_frames: int
    consumed_tuples: int


def gauges_between(before: Traffic, now: Traffic) -> dict[str, float] | None:
    """The gauges by name; None when the two moments are too close together.

    Tuples per frame are 0 while no frame passes.
    """
    seconds = now.at - before.at
    if seconds < APART_MIN_S:
        return None
    sent, sent_tuples = now.sent_frames - before.sent_frames, now.sent_tuples - before.sent_tuples
    consumed, consumed_tuples = (
        now.consumed_frames - before.consumed_frames,
        now.consumed_tuples - before.consumed_tuples,
    )
    return {
        "__gateway-sent-packets-per-sec": sent / seconds,
        "__gateway-sent-tuples-per-packet": sent_tuples / sent if sent else 0.0,
        "__gateway-consumed-packets-per-sec": consumed / seconds,
        "__gateway-consumed-tuples-per-packet": consumed_tuples / consumed if consumed else 0.0,
    }
