"""Converts tuples to lines: JSON or text, exactly one line per tuple. Pure.

A tuple that cannot be written as one line raises UnfitError with the reason; other tuples are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from heronpy.api.batch import Batch

JSON = "jsonl"
TEXT = "text"


class UnfitError(ValueError):
    """A tuple cannot be written as one line."""


def write_each(write: Callable[[Sequence[Any]], None], batch: Batch) -> dict[int, str]:
    """Write the tuples of a batch one by one; return the indices of tuples that do not fit, with the reasons."""
    unfit = {}
    for place, values in enumerate(batch.rows()):
        try:
            write(values)
        except UnfitError as error:
            unfit[place] = str(error)
    return unfit


def line_writer(format_name: str, fields: Sequence[str]) -> Callable[[Sequence[Any]], bytes]:
    """Return a function that converts a tuple's values to a line.

    JSON gives an object if the field names are known, otherwise an array. Text gives the values joined
    by tabs.
    """
    names = list(fields)
    if format_name == TEXT:
        return lambda values: _text(_checked(values, names))
    encode = msgspec.json.Encoder().encode

    def as_json(values: Sequence[Any]) -> bytes:
        checked = _checked(values, names)
        try:
            return encode(dict(zip(names, checked, strict=True)) if names else list(checked)) + b"\n"
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UnfitError(f"the row cannot be written as JSON ({error})") from None

    return as_json


def _checked(values: Sequence[Any], names: list[str]) -> Sequence[Any]:
    if names and len(values) != len(names):
        raise UnfitError(f"the row has {len(values)} values, but the sink has {len(names)} fields")
    return values


def _text(values: Sequence[Any]) -> bytes:
    line = "\t".join(map(str, values))
    if "\n" in line or "\r" in line:
        raise UnfitError("the text contains a line break; use format='jsonl'")
    try:
        return line.encode() + b"\n"
    except UnicodeEncodeError as error:
        raise UnfitError(f"the value is not text ({error})") from None
