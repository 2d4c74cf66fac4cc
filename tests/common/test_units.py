"""Amounts of bytes and time, as people write and read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError
from heronpy.common.units import (
    GB,
    KB,
    MB,
    TB,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_s,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("4096", 4096),
        (4096, 4096),
        (1.5, 2),
        ("1B", 1),
        ("1KB", KB),
        ("512MB", 512 * MB),
        ("512 mb ", 512 * MB),
        ("1.5GB", 3 * GB // 2),
        ("2G", 2 * GB),
        ("2GiB", 2 * GB),
        ("1TB", TB),
        (".5K", 512),
        (str(2**63 + 1), 2**63 + 1),
    ],
)
def test_bytes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "MB",
        "1XB",
        "-1",
        "-1MB",
        "1 2",
        "1e3",
        "nan",
        "٣MB",
        -1,
        math.nan,
        math.inf,
        True,
        None,
        [],
    ],
)
def test_wrong_bytes_are_named(wrong: object) -> None:
    with pytest.raises(ConfigError, match="is not a size; write"):
        parse_bytes(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("1.5", 1.5),
        (2, 2.0),
        ("250ms", 0.25),
        ("50us", 50e-6),
        ("50µs", 50e-6),
        ("10 s", 10.0),
        ("5m", 300.0),
        ("2 hours", 7200.0),
        ("1d", 86400.0),
        ("3MIN", 180.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("wrong", ["", "ms", "1x", "-1s", "1s2", "inf", -1, math.nan, False, None])
def test_wrong_durations_are_named(wrong: object) -> None:
    with pytest.raises(ConfigError, match="is not a duration; write"):
        parse_duration_s(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (KB, "1KB"),
        (1536, "1.5KB"),
        (MB - 1, "1MB"),
        (512 * MB, "512MB"),
        (GB, "1GB"),
        (5 * TB, "5TB"),
        (-2 * KB, "-2KB"),
    ],
)
def test_bytes_are_shown(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (250e-6, "250us"),
        (0.012, "12ms"),
        (0.9999, "1s"),
        (1.5, "1.5s"),
        (59.99, "1m00s"),
        (125, "2m05s"),
        (3600 * 3 + 7 * 60, "3h07m"),
        (86400 * 2 + 4 * 3600, "2d04h"),
        (-1.5, "-1.5s"),
        (math.inf, "forever"),
        (math.nan, "unknown"),
    ],
)
def test_durations_are_shown(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, 2**60))
def test_shown_bytes_read_back_nearly(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.06)


@given(st.integers(0, 2**80))
def test_whole_numbers_are_exact(count: int) -> None:
    assert parse_bytes(str(count)) == count
    assert parse_bytes(f"{count}KB") == count * KB
