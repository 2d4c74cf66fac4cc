"""The containers of a topology that an engine runs, as its scheduler tells them (pure but for the local time zone)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from heronpy.cli.output import picked
from heronpy.proto import control_pb2
from heronpy.scheduler.containers import container_of

RUNNING = "RUNNING"
QUEUED = "QUEUED"
SHOWN = 5
_DAY_S = 86_400.0


def number_of(record: control_pb2.ProcessRecord) -> int:
    """The container whose record it is."""
    return container_of(record.name)


def late(containers: Iterable[control_pb2.ProcessRecord]) -> list[control_pb2.ProcessRecord]:
    """Those that do not run; none of a topology whose containers are on this machine, because they have no phase."""
    return [one for one in containers if one.phase not in ("", RUNNING)]


def text(record: control_pb2.ProcessRecord, now: float) -> str:
    """`container 2 QUEUED job 812_2: Resources, starts about 14:05`; `now` is wall time."""
    # A name says of itself what it is; a number does not.
    job = f"{' job' if record.engine_id[0].isdigit() else ''} {record.engine_id}" if record.engine_id else ""
    host = f" on {record.host}" if record.host else ""
    said = [part for part in (record.words, _starts(record.starts_at, now)) if part]
    return f"container {number_of(record)} {record.phase}{job}{host}" + (f": {', '.join(said)}" if said else "")


def texts(containers: Iterable[control_pb2.ProcessRecord], now: float) -> list[str]:
    """A line for each of the first that do not run."""
    waiting = late(containers)
    found = [text(one, now) for one in waiting[:SHOWN]]
    return [*found, f"and {len(waiting) - SHOWN} more"] if len(waiting) > SHOWN else found


def _starts(at: float, now: float) -> str:
    if not at:
        return ""
    when = datetime.datetime.fromtimestamp(at).astimezone()
    far = abs(at - now) > _DAY_S
    return f"starts about {when.isoformat(sep=' ', timespec='minutes')[:16] if far else when.strftime('%H:%M')}"


def as_json(record: control_pb2.ProcessRecord) -> dict[str, Any]:
    """The fields that a container of an engine has besides those of any container."""
    return {
        "container": number_of(record),
        **picked(record, "host", "engine_id", "phase", "words", "submission", "restarts", "epoch"),
        "starts_at": record.starts_at or None,
    }
