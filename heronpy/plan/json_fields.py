"""Structs as JSON files: strict about the fields of a file and their types, whole or absent on disk."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.common.folders import make_folders, read_own

_MAX_BYTES = 16 * 1024 * 1024
_AGAIN = "submit the topology again"

T = TypeVar("T", bound=Struct)


def dump(item: Struct) -> str:
    """A struct as the text of a file."""
    content = {name: getattr(item, name) for name in item.__struct_fields__}
    return json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"


def parse(kind: type[T], text: str, source: str) -> T:
    """The struct of this kind; ConfigError, which names `source`, unless the text has exactly its fields."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source} is not valid JSON ({error}); {_AGAIN}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{source} must hold a JSON object; {_AGAIN}")
    known = {name: kind.__annotations__[name] for name in kind.__struct_fields__}
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise ConfigError(
            f"{source} has unknown field {unknown[0]!r}; it was written by another release of heronpy: {_AGAIN}"
        )
    missing = sorted(set(known) - set(content))
    if missing:
        raise ConfigError(f"{source} lacks field {missing[0]!r}; {_AGAIN}")
    for name, declared in known.items():
        if not _has_type(content[name], declared):
            raise ConfigError(
                f"field {name!r} of {source} must be {declared} but is {type(content[name]).__name__}; {_AGAIN}"
            )
    return kind(**content)


def read(kind: type[T], path: str | os.PathLike[str], what: str) -> T:
    """The struct in a file that only this user can have written; `what` names the file in errors."""
    try:
        text = read_own(path, _MAX_BYTES).decode()
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; {_AGAIN}") from None
    return parse(kind, text, str(path))


def write(item: Struct, path: str | os.PathLike[str], durable: bool = True) -> None:
    """Write the file: whole or not at all, readable by its owner only.

    A file that is not `durable` is written anew after a crash of the machine, so nothing waits for the disk.
    """
    target = Path(path)
    make_folders(target.parent)
    # mkstemp creates with mode 0600, so the content is never readable by others.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(dump(item))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if not durable:
        return
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _has_type(value: Any, declared: str) -> bool:
    """Whether a JSON value fits a declared field type."""
    if declared == "str | None":
        return value is None or isinstance(value, str)
    if declared == "str":
        return isinstance(value, str)
    if declared == "bool":
        return isinstance(value, bool)
    if declared == "list[str]":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if not isinstance(value, dict):
        return False
    if declared == "dict[str, str]":
        return all(isinstance(item, str) for item in value.values())
    return all(isinstance(item, dict) for item in value.values())
