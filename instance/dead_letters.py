"""The destinations of the tuples that a task abandons: a file, a metric, and a stream of the component.

A component may declare an output stream `dead_letters` with the fields payload, traceback, task and tries. Each
abandoned tuple is then also emitted on this stream, with itself as the anchor. Invariant: a letter that cannot be
written never makes a task fail; it is logged and counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from heronpy.common.errors import TopologyError
from heronpy.plan.launch import LaunchSpec
from heronpy.storage.dead_letters import TRACEBACK_MAX_CHARS, DeadLetterFile, encode_payload
from heronpy.task.name import TaskName
from heronpy.task.outlets import OutStream
from heronpy.task.tuples import HeronTuple
from heronpy.wire.codec import Undecodable

from .metrics import TaskMetrics
from .progress import Progress

log = logging.getLogger("heron.instance")

STREAM = "dead_letters"
FIELDS = ("payload", "traceback", "task", "tries")


def headline(why: str) -> str:
    """Return the type of a traceback's final exception and the first line of its text; else the traceback's last line.

    Lines of a traceback are indented, and the text of an exception may have many lines, so the headline is the first
    unindented line after the last header.
    """
    lines = why.strip().splitlines() or ["no reason is known"]
    headers = [number for number, line in enumerate(lines) if line == "Traceback (most recent call last):"]
    if not headers:
        return lines[-1]
    return next((line for line in lines[headers[-1] + 1 :] if line and not line[0].isspace()), lines[-1])


class DeadLetters:
    """The dead letters of one bolt task, with the counts of the tuples that it abandons."""

    def __init__(
        self, name: TaskName, launch: LaunchSpec, max_bytes: int, metrics: TaskMetrics, progress: Progress
    ) -> None:
        """Keep only the newest letters, at most `max_bytes` in total."""
        self._name = name
        self._launch = launch
        self._metrics = metrics
        self._progress = progress
        self._file = DeadLetterFile(launch.working_dir, name.instance_id, max_bytes)
        # The last status may be lost, together with all processes that had received it.
        progress.letters_before = self._file.last_number(launch.topology_id)
        self._emit: Callable[..., Any] | None = None

    def emit_by(self, emit: Callable[..., Any], out: OutStream | None) -> None:
        """Also `emit` each letter to the stream `out`, if given. Raises TopologyError if the stream has other
        fields."""
        if out is None:
            return
        if tuple(out.fields) != FIELDS:
            raise TopologyError(
                f"the stream {STREAM!r} of component {self._name.component} has the fields {', '.join(out.fields)};"
                f" dead letters need {', '.join(FIELDS)}: declare these fields, or rename the stream"
            )
        self._emit = emit

    def count_damaged(self, lost: bool) -> None:
        """Count a tuple with a value that cannot be decoded; `lost` means that the tuple has no dead letter."""
        self._metrics.count("__malformed-tuples", "", 1)
        if lost:
            self._progress.lost += 1

    def bury(self, tup: HeronTuple, why: str, tries: int, known: bool = False) -> None:
        """Abandon a tuple; a `known` tuple already has a letter in the file."""
        if not known:
            payload, truncated = encode_payload(_shown(tup))
            self._write(tup.component, tup.stream, tup.task, payload, truncated, why, tries)
        if self._emit is not None:
            self._send(self._emit, tup, why, tries)

    def bury_unseen(self, mark: dict[str, Any], why: str, tries: int) -> None:
        """Abandon a tuple that is known only from the record of an ended process."""
        source, stream = str(mark.get("component", "")), str(mark.get("stream", ""))
        self._write(source, stream, int(mark.get("task", 0)), [mark.get("payload")], True, why, tries)

    def _write(
        self, component: str, stream: str, task: int, payload: list[Any], truncated: bool, why: str, tries: int
    ) -> None:
        mine, progress = self._name, self._progress
        self._metrics.count("__dead-letters", f"{component}/{stream}", 1)
        letter = {
            "at": time.time(),
            "topology": self._launch.topology,
            "topology_id": self._launch.topology_id,
            "component": mine.component,
            "task": mine.task_id,
            "number": progress.letters_before + progress.dead_letters + 1,
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
        log.error("a tuple from %s/%s failed %s and becomes a dead letter: %s", component, stream, times, reason)
        try:
            self._file.append(letter)
            progress.dead_letters += 1
        except OSError as error:
            progress.lost += 1
            log.error("the dead letter cannot be written to %s: %s", self._file.path, error.strerror or error)

    def _send(self, emit: Callable[..., Any], tup: HeronTuple, why: str, tries: int) -> None:
        text = why[-TRACEBACK_MAX_CHARS:]
        for payload in (_shown(tup), ["too large, or of a type that cannot be sent"]):
            try:
                emit([payload, text, self._name.task_id, tries], STREAM, [tup])
            except Exception as error:
                log.warning("a dead letter cannot be emitted: %s", error)
            else:
                return


def _shown(tup: HeronTuple) -> list[Any]:
    """Return the values; for a value that cannot be decoded, the received bytes."""
    return [value.data if type(value) is Undecodable else value for value in tup.values]
