"""Reads the output of `heron doctor --evidence`, from which each diagnosis can be repeated."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from heronpy.health.recording import FORMAT, VERSION
from heronpy.health.signals import HostSignals, HotSpots, Signals, TaskSignals


def replay(lines: Iterable[str]) -> Iterator[tuple[float, Signals]]:
    """Yield the measurements of a history, with their wall times."""
    first, *parts = map(json.loads, lines)
    assert (first["format"], first["version"]) == (FORMAT, VERSION)
    for part in parts:
        if "signals" in part:
            yield part["at"], from_json(part["signals"])


def from_json(found: Any, kind: Any = Signals) -> Any:
    """Parse the output of `to_json`. Missing fields get their defaults."""
    hints = typing.get_type_hints(kind)
    fields = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    return kind(**{fields[name]: _value(hints[fields[name]], value) for name, value in found.items() if name in fields})


def _value(hint: Any, value: Any) -> Any:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (TaskSignals, HostSignals, HotSpots):
        return from_json(value, hint)
    if origin is types.UnionType:
        return None if value is None else _value(parts[0], value)
    if origin is list:
        return [_value(parts[0], item) for item in value]
    if origin is tuple:
        return tuple(_value(part, item) for part, item in zip(parts, value, strict=True))
    if origin is dict:
        return {key: _value(parts[1], item) for key, item in value.items()}
    return float(value) if hint is float else value
