"""A room of settings: a frozen struct that also keeps the documentation and the range of each field."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from msgspec import Struct, StructMeta

#: A value of a setting, as YAML and JSON have it.
SettingValue: TypeAlias = "bool | int | float | str | dict[str, SettingValue]"


class Described(Struct, frozen=True):
    """The default of a field, its documentation, and which values it may have."""

    default: Any
    doc: str
    low: float
    high: float | None
    choices: tuple[str, ...]
    absolute: bool


def setting(
    default: Any,
    doc: str,
    *,
    low: float = 0,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    absolute: bool = False,
) -> Any:
    """A field of a room with its documentation and range; no number may be negative. `absolute`: a path."""
    return Described(default, doc, low, high, choices, absolute)


class RoomType(StructMeta):
    """Makes a struct of the defaults, and keeps the descriptions."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> RoomType:
        described = {key: value for key, value in namespace.items() if isinstance(value, Described)}
        defaults = {key: value.default for key, value in described.items()}
        return super().__new__(mcs, name, bases, {**namespace, **defaults, "described": described}, **options)


class Room(Struct, frozen=True, metaclass=RoomType):
    """What the classes of settings have in common."""

    described: ClassVar[dict[str, Described]]
