"""Data from the files of a topology: logs, dead letters, settings. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class LogFile(Struct, kw_only=True):
    """A process with a log."""

    #: `container_1_word_3`, `stmgr-1`, `tmaster`.
    process: str
    container: int
    bytes: int
    changed_at: float


class LogFiles(Struct, kw_only=True):
    """`GET /logs`: the processes that have a log."""

    files: list[LogFile]
    #: Containers whose files cannot be listed now, each with the reason.
    unreachable: dict[str, str]


class LogLine(Struct, kw_only=True):
    """One record of a log; a record may have several lines (a traceback)."""

    #: Time of the record; None if the line has no time, such as output of user code.
    at: float | None
    #: DEBUG, INFO, WARN, ERROR, FATAL; None for a line without level.
    level: str | None
    #: Name of the logger, which may be empty.
    logger: str
    text: str


class Logs(Struct, kw_only=True):
    """`GET /logs/{process}?offset|until&bytes&file&back`: a piece of one log, oldest line first. Scope `data`.

    Without an offset the piece is the tail of the log. `back` is the number of the rotated file; 0 is the newest.
    """

    process: str
    lines: list[LogLine]
    #: Begin and end of the piece in the file; pass `end` as `offset` to read on, or `begin` as `until` to read back.
    begin: int
    end: int
    #: Current size of the file.
    size: int
    #: Id of the file; pass it as `file` with the next offset.
    file: str
    #: Whether the log was rotated since `file` was returned, so that this piece is the end of the new file.
    rotated: bool


class LogHit(Struct, kw_only=True):
    """A log line that contains the searched text."""

    process: str
    container: int
    #: Time of the record that contains the line; None if no record was found near it.
    at: float | None
    #: See `LogLine`.
    level: str | None
    logger: str
    #: The message, or the line of the message that contains the text.
    text: str
    #: Lines around the hit, oldest first.
    before: list[str]
    after: list[str]


class LogHits(Struct, kw_only=True):
    """`GET /logs/search?text&what&context&since&level&limit`: newest first, over all processes. Scope `data`."""

    hits: list[LogHit]
    searched_bytes: int
    #: Why the search stopped early, such as `after 1,000 hits`; empty if the search is complete.
    stopped: str
    #: Containers whose logs were not searched completely, each with the reason.
    unreachable: dict[str, str]


class Letter(Struct, kw_only=True):
    """A dead letter: a tuple that failed permanently. Scope `data`."""

    at: float
    component: str
    instance: str
    source: str
    stream: str
    tries: int
    #: The values as JSON if possible, otherwise as texts.
    payload: Any
    traceback: str


class Letters(Struct, kw_only=True):
    """`GET /letters?component&limit`: newest first."""

    letters: list[Letter]
    #: Containers whose letters cannot be read now, each with the reason.
    unreachable: dict[str, str]


class Setting(Struct, kw_only=True):
    """A setting of the topology."""

    #: `heron.<room>.<field>`, or the key of the topology's own configuration.
    key: str
    #: Component of the setting; empty for the whole topology.
    component: str
    #: The value; `***` if it may be a secret.
    value: str
    #: Origin of the value: `default`, a file, `command line`, `topology`.
    origin: str
    redacted: bool


class Config(Struct, kw_only=True):
    """`GET /config`: the settings, sorted by key."""

    settings: list[Setting]
    package: str
    python: str
    release: str
