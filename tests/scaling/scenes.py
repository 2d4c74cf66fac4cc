"""A topology of a spout and two bolts under the scaler, and what became of it."""

from __future__ import annotations

from typing import Any

from heronpy.loadtest.jobs.model import Fault, Part
from heronpy.loadtest.jobs.scenarios import HOUR


def parts(work: dict[str, Any] | None = None, store: dict[str, Any] | None = None) -> list[Part]:
    """Spout read, bolts work (1,000/s a task) and store (4,000/s a task)."""
    return [
        Part(name="read", per_s=60_000.0),
        Part(**({"name": "work", "per_s": 1000.0, "tasks": 4, "inputs": {"read": 1.0}} | (work or {}))),
        Part(**({"name": "store", "per_s": 4000.0, "tasks": 2, "inputs": {"work": 1.0}} | (store or {}))),
    ]


def fault(kind: str, part: str = "work", since_h: float = 1.0, much: float = 0.3, for_h: float = 1e6) -> Fault:
    return Fault(kind, part, since_h * HOUR, (since_h + for_h) * HOUR, much)
