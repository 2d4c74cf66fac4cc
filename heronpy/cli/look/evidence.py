"""One file with all that is known about a topology, for somebody who has to find out why it is slow.

JSON lines: a history of signals, which gives its diagnoses again (`heronpy.health.recording`), and beside it the
findings, events, status, exceptions, settings and the ends of the logs. Everything is redacted before it is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from google.protobuf.json_format import MessageToDict

from heronpy.cli import exits
from heronpy.clusters.log_folders import log_dir
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.log_files import log_processes
from heronpy.common.redaction import redacted, redacted_text, redacted_texts
from heronpy.health import recording
from heronpy.health.findings import Finding
from heronpy.health.signals import Signals
from heronpy.health.texts import advice, sentence
from heronpy.proto import control_pb2

EVENTS_MAX, EXCEPTIONS_MAX, LOGS_MAX, LINES_MAX = 500, 20, 20, 50
_TAIL_BYTES = 64 << 10


def create(path: Path) -> TextIO:
    """A new file that only its owner can read; a Failure if it exists or cannot be written."""
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
    except FileExistsError:
        raise exits.Failure(f"{path} exists; name another file", exits.USAGE) from None
    except OSError as error:
        raise exits.Failure(f"cannot write {path}: {error.strerror}") from None


def look_line(signals: Signals, at: float) -> str:
    """One look, redacted. `of_key` is no secret, nor is the limit of a component of that name: it stays a history."""
    found = {"at": round(at, 1), "signals": redacted_texts(recording.to_json(signals))}
    return json.dumps(found, separators=(",", ":"))


def lines(session: Session, signals: Signals, findings: list[Finding], at: float) -> Iterator[str]:
    """The whole file, line by line."""
    name = signals.topology
    yield recording.head(name)
    yield look_line(signals, at)
    said = [
        {
            "verdict": one.verdict.value,
            "sentence": sentence(one, name),
            "next": advice(one, session.target.cluster, name),
            "figures": one.figures,
        }
        for one in findings
    ]
    yield json.dumps(redacted_texts({"findings": said}), separators=(",", ":"))
    for found in _parts(session, name, findings):
        yield json.dumps(redacted(found), separators=(",", ":"))


def _parts(session: Session, name: str, findings: list[Finding]) -> Iterator[dict[str, Any]]:
    for key, body in (
        ("events", control_pb2.GetEvents(limit=EVENTS_MAX)),
        ("exceptions", control_pb2.GetExceptions()),
        ("status", control_pb2.GetStatus()),
    ):
        try:
            yield {key: _message(session.ask(name, body))}  # type: ignore[call-overload]
        except HeronError as error:
            yield {key: f"cannot be asked: {error}"}
    yield {"settings": _settings(session, name)}
    yield from _logs(session, name, findings)


def _message(reply: Any) -> dict[str, Any]:
    if isinstance(reply, control_pb2.StatusReply):
        reply.plan.ClearField("topology")  # holds the user's objects; its configuration is with the settings
    if isinstance(reply, control_pb2.ExceptionsReply):
        del reply.exceptions[EXCEPTIONS_MAX:]
    found: dict[str, Any] = MessageToDict(reply, preserving_proto_field_name=True)
    return found


def _settings(session: Session, name: str) -> dict[str, Any]:
    launch = session.launch_of(session.find(name))
    plan = session.physical_plan(name)
    configs: dict[str, dict[str, str]] = {}
    if plan is not None:
        topology = plan.topology
        found = [*(spout.comp for spout in topology.spouts), *(bolt.comp for bolt in topology.bolts)]
        parts = [("", topology.topology_config), *((component.name, component.config) for component in found)]
        for component, config in parts:
            # Values that are not text are objects of the user.
            configs[component] = {item.key: item.value if item.HasField("value") else "(object)" for item in config.kvs}
    return {
        "release": launch.release,
        "settings": launch.settings,
        "components": launch.component_settings,
        "topology_config": configs,
    }


def _logs(session: Session, name: str, findings: list[Finding]) -> Iterator[dict[str, Any]]:
    folder = log_dir(session, name)
    known = log_processes(folder)
    concerned = [named for one in findings for named in (one.task, *one.names)]
    order = [*(p for p in concerned if p in known), *(p for p in known if p not in concerned)]
    for process in list(dict.fromkeys(order))[:LOGS_MAX]:
        yield {"log": process, "lines": _tail(folder / f"{process}.log")}


def _tail(path: Path) -> list[str]:
    """The last lines of a log."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]
    # Before it is taken apart: a private key has several lines.
    found = redacted_text(text).splitlines()
    return found[1:][-LINES_MAX:] if size > _TAIL_BYTES else found[-LINES_MAX:]


def write(file: TextIO, found: Iterable[str]) -> int:
    """Write the lines; returns their bytes. A Failure when the disk is full."""
    size = 0
    try:
        for text in found:
            size += file.write(text + "\n")
        file.flush()
    except OSError as error:
        raise exits.Failure(f"cannot write {file.name}: {error.strerror}") from None
    return size
