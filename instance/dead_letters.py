"""Where a task's given-up tuples go: file, metric, and the component's own stream.

A component that declares an output stream `dead_letters` with the fields payload, traceback, task and
tries also sends each of them there, anchored to the tuple. Invariant: writing a letter never fails a task;
what could not be written is logged and counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import InstanceSettings
from heronpy.plan.launch import LaunchSpec
from heronpy.storage.dead_letters import TRACEBACK_MAX_CHARS, DeadLetterFile, encode_payload
from heronpy.wire.codec import Undecodable

from .metrics import TaskMetrics
from .outlets import OutStream
from .tuples import HeronTuple

log = logging.getLogger("heron.instance")

STREAM = "dead_letters"
FIELDS = ("payload", "traceback", "task", "tries")


def headline(why: str) -> str:
    """The type of the exception that a traceback ends with and the first line of its text; else the last line.

    Lines of a traceback are indented, and the text of an exception may have many lines, so it is the first line
    after the last header that is not indented.
    """
    lines = why.strip().splitlines() or ["no reason is known"]
    headers = [number for number, line in enumerate(lines) if line == "Traceback (most recent call last):"]
    if not headers:
        return lines[-1]
    return next((line for line in lines[headers[-1] + 1 :] if line and not line[0].isspace()), lines[-1])


class Given(Protocol):
    """Where the tuples that are given up are counted."""

    dead_letters: int
    lost: int


class Streams(Protocol):
    """What a task sends, by stream."""

    @property
    def streams(self) -> Mapping[str, OutStream]: ...


class Owner(Protocol):
    """The task whose letters these are."""

    task_id: int
    component: str
    instance_id: str
    launch: LaunchSpec
    settings: InstanceSettings
    metrics: TaskMetrics

    @property
    def progress(self) -> Given: ...

    @property
    def emitter(self) -> Streams: ...


class DeadLetters:
    """The dead letters of one bolt task; `emit` is that of its user code."""

    def __init__(self, task: Owner, emit: Callable[..., Any]) -> None:
        self._task = task
        self._emit_tuple = emit
        launch = task.launch
        self._file = DeadLetterFile(launch.working_dir, task.instance_id, task.settings.dead_letters_max_bytes)
        out = task.emitter.streams.get(STREAM)
        self._emits = out is not None
        if out is not None and tuple(out.fields) != FIELDS:
            raise TopologyError(
                f"the stream {STREAM!r} of component {task.component} has the fields {', '.join(out.fields)};"
                f" dead letters need {', '.join(FIELDS)}: declare these, or rename the stream"
            )

    def bury(self, tup: HeronTuple, why: str, tries: int, known: bool = False) -> None:
        """Give up a tuple; one that is `known` has a letter in the file already."""
        if not known:
            payload, truncated = encode_payload(_shown(tup))
            self._write(tup.component, tup.stream, tup.task, payload, truncated, why, tries)
        if self._emits:
            self._emit(tup, why, tries)

    def bury_unseen(self, mark: dict[str, Any], why: str, tries: int) -> None:
        """Give up a tuple that is known only by the mark of a dead process."""
        source, stream = str(mark.get("component", "")), str(mark.get("stream", ""))
        self._write(source, stream, int(mark.get("task", 0)), [mark.get("payload")], True, why, tries)

    def _write(
        self, component: str, stream: str, task: int, payload: list[Any], truncated: bool, why: str, tries: int
    ) -> None:
        mine = self._task
        self._task.metrics.count("__dead-letters", f"{component}/{stream}", 1)
        letter = {
            "at": time.time(),
            "topology": mine.launch.topology,
            "topology_id": mine.launch.topology_id,
            "component": mine.component,
            "task": mine.task_id,
            "instance": mine.instance_id,
            "source_component": component,
            "source_stream": stream,
            "source_task": task,
            "payload": payload,
            "truncated": truncated,
            "traceback": why[-TRACEBACK_MAX_CHARS:],
            "tries": tries,
        }
        times = "once" if tries == 1 else f"{tries} times"
        reason = headline(why)
        log.error("a tuple of %s/%s failed %s and goes to the dead letters: %s", component, stream, times, reason)
        try:
            self._file.append(letter)
            mine.progress.dead_letters += 1
        except OSError as error:
            mine.progress.lost += 1
            log.error("the dead letter cannot be written to %s: %s", self._file.path, error.strerror or error)

    def _emit(self, tup: HeronTuple, why: str, tries: int) -> None:
        task = self._task
        text = why[-TRACEBACK_MAX_CHARS:]
        for payload in (_shown(tup), ["too large, or of a type that cannot be sent"]):
            try:
                self._emit_tuple([payload, text, task.task_id, tries], STREAM, [tup])
            except Exception as error:
                log.warning("a dead letter cannot be emitted: %s", error)
            else:
                return


def _shown(tup: HeronTuple) -> list[Any]:
    """The values; the received bytes for one that cannot be decoded."""
    return [value.data if type(value) is Undecodable else value for value in tup.values]
