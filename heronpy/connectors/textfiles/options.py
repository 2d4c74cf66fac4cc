"""The configuration of a `TextFileSpout`, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from heronpy.api.api_constants import TOPOLOGY_MAX_SPOUT_PENDING
from heronpy.connectors.textfiles.following import FORGET_S
from heronpy.connectors.textfiles.line_share import absolute_patterns
from heronpy.growing.chunks import BLOCK_BYTES, LINE_BYTES_MAX
from heronpy.growing.patterns import parse
from heronpy.growing.scan import INTERVAL_S

PATHS = "textfile.paths"
SKIP_HEADER = "textfile.skip_header"
ENCODING = "textfile.encoding"
DECODE_ERRORS = "textfile.decode_errors"
EMIT_OFFSET = "textfile.emit_offset"
LINES_PER_CALL = "textfile.lines_per_call"
PENDING_MAX = "textfile.pending_max"
REPLAYS_MAX = "textfile.replays_max"
BLOCK = "textfile.block_bytes"
LINE_MAX = "textfile.line_bytes_max"
FOLLOW = "textfile.follow"
SCAN_S = "textfile.scan_s"
FORGET_DAYS = "textfile.forget_days"
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class TextFileOptions:
    """What the keys say; their meaning is in the docstring of `TextFileSpout`."""

    paths: list[str]
    skip_header: int
    encoding: str
    decode_errors: str
    emit_offset: bool
    lines_per_call: int
    pending_max: int
    replays_max: int
    block_bytes: int
    line_bytes_max: int
    follow: bool
    scan_s: float
    forget_s: float

    @classmethod
    def from_config(cls, config: dict[str, Any], component: str) -> TextFileOptions:
        """ValueError or TypeError names what is wrong."""
        if PATHS not in config:
            raise ValueError(
                f"spout {component} needs {PATHS} in its configuration; give the path or glob of the text files"
            )
        pending_max = _positive(config, PENDING_MAX, 100_000)
        spout_pending = int(config.get(TOPOLOGY_MAX_SPOUT_PENDING, 0))
        follow = flag(config.get(FOLLOW, False))
        paths = absolute_patterns(config[PATHS])
        if follow:
            check_followed(paths)
        return cls(
            paths=paths,
            skip_header=_positive(config, SKIP_HEADER, 0, least=0),
            encoding=str(config.get(ENCODING, "utf-8")),
            decode_errors=str(config.get(DECODE_ERRORS, "strict")),
            emit_offset=flag(config.get(EMIT_OFFSET, False)),
            lines_per_call=_positive(config, LINES_PER_CALL, 200),
            pending_max=min(pending_max, spout_pending) if spout_pending > 0 else pending_max,
            replays_max=_positive(config, REPLAYS_MAX, 0, least=0),
            block_bytes=_positive(config, BLOCK, BLOCK_BYTES),
            line_bytes_max=_positive(config, LINE_MAX, LINE_BYTES_MAX),
            follow=follow,
            scan_s=_amount(config, SCAN_S, INTERVAL_S),
            forget_s=_amount(config, FORGET_DAYS, FORGET_S / _DAY_S) * _DAY_S,
        )


def check_followed(paths: list[str]) -> None:
    """ValueError when a pattern cannot be followed."""
    for path in paths:
        parse(path)


def flag(value: Any) -> bool:
    """Whether a value of a configuration says yes."""
    return str(value).lower() in ("true", "1")


def _positive(config: dict[str, Any], key: str, default: int, least: int = 1) -> int:
    value = config.get(key, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{key} must be a whole number, given: {value!r}") from None
    if number < least:
        raise ValueError(f"{key} must be at least {least}, given: {number}")
    return number


def _amount(config: dict[str, Any], key: str, default: float) -> float:
    value = config.get(key, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{key} must be a number, given: {value!r}") from None
    if not 0 < number < math.inf:
        raise ValueError(f"{key} must be more than 0, given: {value}")
    return number
