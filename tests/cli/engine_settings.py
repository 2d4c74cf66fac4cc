"""Settings of a cluster with an engine, for tests."""

from __future__ import annotations

from typing import Any

from heronpy.common.settings import Resolved, resolve


def settings(**rooms: dict[str, Any]) -> Resolved:
    overrides = [f"heron.{room}.{key}={value}" for room, fields in rooms.items() for key, value in fields.items()]
    return resolve("local", [], {}, {}, ["heron.engine.kind=slurm", *overrides])
