"""Formats and parses sizes and durations; formats counts, lists of names and lines of code. Pure.

KB, MB and so on are powers of 1024, as in Heron, and KiB, MiB mean the same. Durations are seconds as floats; a number
without a unit is in seconds. Other input raises a ConfigError that states the format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from heronpy.common.errors import ConfigError

KB = 1024
MB = 1024 * KB
GB = 1024 * MB
TB = 1024 * GB

_BYTE_UNITS = {"": 1, "B": 1, "K": KB, "M": MB, "G": GB, "T": TB}
#: Folders of Python and of installed packages, whose frames are not the user's code.
_INSTALLED = re.compile(r"^<frozen |/(site|dist)-packages/|/lib(64)?/python3")
_BYTE_UNITS |= {"KB": KB, "MB": MB, "GB": GB, "TB": TB, "KIB": KB, "MIB": MB, "GIB": GB, "TIB": TB}
_TIME_UNITS = {
    **dict.fromkeys(("ns",), 1e-9),
    **dict.fromkeys(("us", "µs"), 1e-6),
    **dict.fromkeys(("ms", "millis"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Zµ]*)\s*", re.ASCII)


def parse_bytes(value: float | str) -> int:
    """Parse bytes from a number or from text such as "512MB", "1.5 GB" or "4096"."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _bytes_error(value)
    if isinstance(value, int):
        amount: float | int = value
    elif isinstance(value, float):
        amount = value
    else:
        match = _AMOUNT.fullmatch(value)
        factor = _BYTE_UNITS.get(match.group(2).upper()) if match else None
        if match is None or factor is None:
            raise _bytes_error(value)
        digits = match.group(1)
        # Whole numbers stay integers: a float would round above 2**53.
        amount = int(digits) * factor if digits.isdigit() else float(digits) * factor
    if amount < 0 or not math.isfinite(amount):
        raise _bytes_error(value)
    return round(amount)


def parse_duration_s(value: float | str) -> float:
    """Parse seconds from a number or from text such as "250ms", "2s", "5m", "1h" or "1.5"."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _duration_error(value)
    if isinstance(value, str):
        match = _AMOUNT.fullmatch(value)
        factor = _TIME_UNITS.get(match.group(2).lower()) if match else None
        if match is None or factor is None:
            raise _duration_error(value)
        seconds = float(match.group(1)) * factor
    else:
        seconds = float(value)
    if seconds < 0 or not math.isfinite(seconds):
        raise _duration_error(value)
    return seconds


def format_bytes(count: int) -> str:
    """Format bytes with at most one digit after the point; exact if the size is a whole number of units."""
    sign = "-" if count < 0 else ""
    size = abs(count)
    for name, unit in (("TB", TB), ("GB", GB), ("MB", MB), ("KB", KB)):
        # 1023.95 and more would print as 1024.0 of the smaller unit.
        if size >= unit - unit // 20480:
            text = f"{size / unit:.1f}"
            return f"{sign}{text.removesuffix('.0')}{name}"
    return f"{sign}{size}B"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds: 250us, 12ms, 1.5s, 2m05s, 3h07m, 2d04h."""
    if math.isnan(seconds):
        return "unknown"
    if math.isinf(seconds):
        return "forever" if seconds > 0 else "-forever"
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 0.0009995:
        return f"{round(seconds * 1e6)}us" if seconds else "0s"
    if seconds < 0.9995:
        return f"{round(seconds * 1e3)}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for name, unit, small_name, small in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= unit:
            return f"{whole // unit}{name}{whole % unit // small:02d}{small_name}"
    return f"{whole}s"


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: '1 task', '2 tasks', '3 entries'."""
    many = f"{noun[:-1]}ies" if noun[-1] == "y" and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """List names in a sentence: the first `most` names, and the number of further names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _bytes_error(value: object) -> ConfigError:
    return ConfigError(f"{value!r} is not a size; write a number with B, KB, MB, GB or TB, like 512MB")


def _duration_error(value: object) -> ConfigError:
    return ConfigError(f"{value!r} is not a duration; write a number with us, ms, s, m, h or d, like 250ms")


def is_installed(file: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return bool(_INSTALLED.search(file))


def line_of(frames: Sequence[tuple[str, int, str]], is_foreign: Callable[[str], bool] = is_installed) -> str:
    """Describe the innermost line of the user's code and the library function that it calls; "" if there are no frames.

    A frame is (file, line, function), innermost first.
    """
    if not frames:
        return ""
    own = next((number for number, frame in enumerate(frames) if not is_foreign(frame[0])), 0)
    file, line, function = frames[own]
    called = f", which calls {frames[own - 1][2]}" if own else ""
    return f"{function} ({file.rpartition('/')[2]}:{line}){called}"
