"""A field of a room of settings: its default with documentation and range."""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeAlias

#: A value of a setting, as YAML and JSON have it.
SettingValue: TypeAlias = "bool | int | float | str | dict[str, SettingValue]"


def setting(
    default: Any,
    doc: str,
    *,
    low: float = 0,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    absolute: bool = False,
) -> Any:
    """A field with its documentation and range; no number may be negative. `absolute`: of a path."""
    metadata = {"doc": doc, "low": low, "high": high, "choices": choices, "absolute": absolute}
    return field(default=default, metadata=metadata)
