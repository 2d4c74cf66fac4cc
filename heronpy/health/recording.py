"""Signals as a line of JSON, and back: a recorded history gives its diagnoses again. Pure.

A history is a file of JSON lines; each line with "signals" is one measurement, in order, and all other lines are
evidence for people. Unknown fields of a later release are ignored, and missing fields have their default.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any

from msgspec import to_builtins

from heronpy.common.errors import ConfigError
from heronpy.health.signals import HostSignals, HotSpots, Signals, TaskSignals

FORMAT = "heron-history"
VERSION = 1
#: Digits that are kept of a number; they suffice for every sentence.
_DIGITS = 5


def to_json(signals: Signals) -> dict[str, Any]:
    """The signals as JSON, with rounded numbers."""
    found: dict[str, Any] = _rounded(to_builtins(signals))
    # constants of the rules, and figures of the scaler from which the signals are made
    del found["times"], found["load"]
    return found


def line(signals: Signals, at: float) -> str:
    """One measurement at this wall time as a line, without its line end."""
    return json.dumps({"at": round(at, 1), "signals": to_json(signals)}, separators=(",", ":"))


def head(topology: str) -> str:
    """The first line of a file, without its line end."""
    return json.dumps({"format": FORMAT, "version": VERSION, "topology": topology}, separators=(",", ":"))


def replay(lines: Iterable[str], name: str) -> Iterator[tuple[float, Signals]]:
    """The measurements of a history with their wall times. ConfigError names a file that is not a history, and the
    line.
    """
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            found = json.loads(text)
        except ValueError:
            raise ConfigError(f"line {number} of {name} is not JSON; the file is damaged") from None
        if number == 1 and not (isinstance(found, dict) and found.get("format") == FORMAT):
            raise ConfigError(f"{name} is not a history; 'heron doctor --evidence FILE' writes one")
        if number == 1 and found.get("version") != VERSION:
            raise ConfigError(f"{name} was written by another release (version {found.get('version')}, not {VERSION})")
        if isinstance(found, dict) and "signals" in found:
            try:
                at = found.get("at", 0.0)
                yield float(at), from_json(found["signals"])
            except (TypeError, ValueError, KeyError) as error:
                raise ConfigError(f"line {number} of {name} has wrong signals: {error}; the file is damaged") from None


def from_json(found: Any) -> Signals:
    """The signals of `to_json`; ValueError, TypeError or KeyError if they are invalid."""
    signals: Signals = _build(Signals, found)
    return signals


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value


def _build(kind: Any, found: Any) -> Any:
    """A struct from its JSON."""
    if not isinstance(found, dict):
        raise TypeError(f"{kind.__name__} is not an object")
    hints = typing.get_type_hints(kind)
    fields = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    return kind(
        **{fields[name]: _value(hints[fields[name]], value, name) for name, value in found.items() if name in fields}
    )


def _value(hint: Any, value: Any, name: str) -> Any:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (TaskSignals, HostSignals, HotSpots):
        return _build(hint, value)
    if origin is types.UnionType:
        return None if value is None else _value(parts[0], value, name)
    if origin is list and isinstance(value, list):
        return [_value(parts[0], item, name) for item in value]
    if origin is tuple and isinstance(value, list) and len(value) == len(parts):
        return tuple(_value(part, item, name) for part, item in zip(parts, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {str(key): _value(parts[1], item, name) for key, item in value.items()}
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, str):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if hint is float and number:
        return float(value)
    if hint not in (str, bool, float) and origin is None and number and value == int(value):
        return int(value)  # int, and the lifecycle state
    raise TypeError(f"{name} is {str(value)[:40]!r}")
