"""Signals as JSON, for a file of evidence. Pure.

A history is a file of JSON lines; each line with "signals" is one measurement, in order, and all other lines are
evidence for human readers. `tests/support/histories.py` reads it.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from msgspec import to_builtins

from heronpy.health.signals import Signals

FORMAT = "heron-history"
VERSION = 1
#: Digits that are kept of a number; they suffice for every sentence.
_DIGITS = 5


def to_json(signals: Signals) -> dict[str, Any]:
    """Return the signals as JSON, with rounded numbers."""
    found: dict[str, Any] = _rounded(to_builtins(signals))
    # constants of the rules, and figures of the scaler from which the signals are made
    del found["times"], found["load"]
    return found


def head(topology: str) -> str:
    """Return the first line of a file, without its newline."""
    return json.dumps({"format": FORMAT, "version": VERSION, "topology": topology}, separators=(",", ":"))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
