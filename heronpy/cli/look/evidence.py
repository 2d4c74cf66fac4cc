"""Writes one file with all the information that is needed to diagnose a slow topology.

The file contains JSON lines: a history of signals, from which `heronpy.health.recording` repeats the diagnosis, and the
findings, events, status, exceptions, settings and the last log lines. Everything is redacted before it is written.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict

from heronpy.cli import exits
from heronpy.cli.output import picked
from heronpy.clusters.log_ends import End, log_ends
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.redaction import redacted, redacted_text, redacted_texts
from heronpy.health import recording
from heronpy.health.doctor import finding_of
from heronpy.health.signals import Signals
from heronpy.proto import control_pb2
from heronpy.views.findings import Finding
from heronpy.views.past import Events

EVENTS_MAX, EXCEPTIONS_MAX, LOGS_MAX, LINES_MAX = 500, 20, 20, 50
_TAIL_BYTES = 64 << 10


class NewFile:
    """A file that only its owner can read, and that gets its final name when it is complete.

    Until then it has another name in the same folder; `close` removes a file that was not kept. Raises a Failure if the
    file exists already or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._kept = path, False
        if os.path.lexists(path):
            raise self._exists()
        self._part = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
        try:
            descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise exits.Failure(f"cannot write {path}: {error.strerror}") from None
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")

    def _exists(self) -> exits.Failure:
        return exits.Failure(f"{self._path} exists; name another file", exits.USAGE)

    def write(self, found: Iterable[str]) -> int:
        """Write the lines and return their size in bytes; raises a Failure when the disk is full."""
        size = 0
        try:
            for text in found:
                size += self._file.write(text + "\n")
            self._file.flush()
        except OSError as error:
            raise exits.Failure(f"cannot write {self._path}: {error.strerror}") from None
        return size

    def keep(self) -> None:
        """Give the file its final name; later writes are appended."""
        try:
            os.link(self._part, self._path)  # unlike a rename, a link never replaces another file
        except FileExistsError:
            raise self._exists() from None
        except OSError:  # a file system without links
            os.replace(self._part, self._path)
        else:
            os.unlink(self._part)
        self._kept = True

    def close(self) -> None:
        """Close the file, and remove it if it was not kept. Idempotent."""
        with suppress(OSError):  # a full disk was already reported by `write`
            self._file.close()
        if not self._kept:
            with suppress(FileNotFoundError):
                os.unlink(self._part)


def look_line(signals: Signals, at: float) -> str:
    """Return one measurement as JSON with redacted texts. Here, a field whose name contains `key` is not a secret."""
    found = {"at": round(at, 1), "signals": redacted_texts(recording.to_json(signals))}
    return json.dumps(found, separators=(",", ":"))


def lines(session: Session, signals: Signals, findings: list[Finding], at: float) -> Iterator[str]:
    """Yield all lines of the file."""
    name = signals.topology
    yield recording.head(name)
    yield look_line(signals, at)
    told = [finding_of(one, session.target.cluster, name, signals.job) for one in findings]
    said = [picked(one, "verdict", "sentence", "next", "figures") for one in told]
    yield json.dumps(redacted_texts({"findings": said}), separators=(",", ":"))
    for found in _parts(session, name, findings):
        yield json.dumps(redacted(found), separators=(",", ":"))


def _parts(session: Session, name: str, findings: list[Finding]) -> Iterator[dict[str, Any]]:
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "events": lambda: msgspec.to_builtins(session.look(name, control_pb2.GetEvents(limit=EVENTS_MAX), Events)),
        "exceptions": lambda: _message(session.ask(name, control_pb2.GetExceptions())),
        "status": lambda: _message(session.status(name)),
    }
    for key, told in parts.items():
        try:
            yield {key: told()}
        except HeronError as error:
            yield {key: f"cannot be requested: {error}"}
    try:
        yield {"settings": _settings(session, name)}
    except HeronError as error:
        yield {"settings": f"cannot be read: {error}"}
    yield from _logs(session, name, findings)


def _message(reply: Any) -> dict[str, Any]:
    if isinstance(reply, control_pb2.StatusReply):
        reply.plan.ClearField("topology")  # holds the user's objects; the configuration is among the settings
    if isinstance(reply, control_pb2.ExceptionsReply):
        del reply.exceptions[EXCEPTIONS_MAX:]
    found: dict[str, Any] = MessageToDict(reply, preserving_proto_field_name=True)
    return found


def _settings(session: Session, name: str) -> dict[str, Any]:
    # Read before the launch file, which exists only on the submitting host.
    submitted = session.submitted(name) or session.launch_of(session.find(name)).submitted
    plan = session.physical_plan(name)
    configs: dict[str, dict[str, str]] = {}
    if plan is not None:
        topology = plan.topology
        found = [*(spout.comp for spout in topology.spouts), *(bolt.comp for bolt in topology.bolts)]
        parts = [("", topology.topology_config), *((component.name, component.config) for component in found)]
        for component, config in parts:
            # A value that is not text is an object of the user, and is left out.
            configs[component] = {item.key: item.value if item.HasField("value") else "(object)" for item in config.kvs}
    return {
        "release": submitted.release,
        "settings": submitted.settings,
        "components": submitted.component_settings,
        "topology_config": configs,
    }


def _logs(session: Session, name: str, findings: list[Finding]) -> Iterator[dict[str, Any]]:
    concerned = [named for one in findings for named in (one.task, *one.names)]
    try:
        ends = asyncio.run(log_ends(session, session.find(name), concerned, LOGS_MAX, _TAIL_BYTES))
    except HeronError as error:
        yield {"logs": f"cannot be read: {error}"}
        return
    for process, end in ends.found.items():
        yield {"log": process, "lines": _lines(end)}
    for container, why in sorted(ends.unreachable.items()):
        yield {"logs_of_container": container, "logs": f"cannot be read: {why}"}


def _lines(end: End) -> list[str]:
    if end.error:
        return [f"cannot be read: {end.error}"]
    # Redacted before it is split into lines, because a private key has several lines.
    found = redacted_text(end.data.decode("utf-8", errors="replace")).splitlines()
    return found[1:][-LINES_MAX:] if end.cut else found[-LINES_MAX:]
