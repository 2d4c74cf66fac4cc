"""The exceptions that user code has raised, as kept by the topology master. Pure.

Exceptions of one task with equal type, message and traceback share one entry with a count. Exceptions of one type
without a traceback also share an entry, with the last message. At most `limit` entries are kept: the least recently
seen entry is evicted, and its occurrences are counted as discarded.
"""

from __future__ import annotations

from collections import OrderedDict

from heronpy.proto import control_pb2

TRACEBACK_MAX_CHARS = 64 * 1024
MESSAGE_MAX_CHARS = 16 * 1024
#: Largest value of a report's counter.
COUNT_MAX = (1 << 64) - 1

_Key = tuple[str, int, str, str, str]


class ExceptionStore:
    __slots__ = ("_entries", "_limit", "_startup", "discarded", "seen")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        #: The entries, least recently seen first.
        self._entries: OrderedDict[_Key, control_pb2.ExceptionReport] = OrderedDict()
        self._startup: dict[int, _Key] = {}
        #: Number of occurrences in evicted entries.
        self.discarded = 0
        #: Number of all occurrences since this topology master started.
        self.seen = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, report: control_pb2.ExceptionReport) -> None:
        """Add a report; a count of 0 means one occurrence."""
        kept = control_pb2.ExceptionReport()
        kept.CopyFrom(report)
        kept.message = _clip(kept.message, MESSAGE_MAX_CHARS)
        kept.traceback = _clip(kept.traceback, TRACEBACK_MAX_CHARS)
        kept.count = max(1, kept.count)
        self.seen = min(self.seen + kept.count, COUNT_MAX)
        # A report without a traceback is about the end of a process; the numbers in its message differ each time.
        message = kept.message if kept.traceback else ""
        key = (kept.process, kept.task_id, kept.type, message, kept.traceback)
        known = self._entries.get(key)
        if known is None:
            self._entries[key] = kept
        else:
            known.count = min(known.count + kept.count, COUNT_MAX)
            known.first_at = min(known.first_at, kept.first_at)
            known.last_at = max(known.last_at, kept.last_at)
            known.startup = known.startup or kept.startup
            known.message = kept.message
            self._entries.move_to_end(key)
        if kept.startup:
            self._startup[kept.task_id] = key
        while len(self._entries) > self._limit:
            oldest, entry = self._entries.popitem(last=False)
            self.discarded += entry.count
            if self._startup.get(oldest[1]) == oldest:
                del self._startup[oldest[1]]

    def select(self, component: str = "", task_id: int = 0) -> list[control_pb2.ExceptionReport]:
        """Return the reports, newest first; an empty component and task 0 select everything."""
        return [
            entry
            for entry in reversed(self._entries.values())
            if (not component or entry.component == component) and (not task_id or entry.task_id == task_id)
        ]

    def startup_of(self, task_id: int) -> control_pb2.ExceptionReport | None:
        """Return the last exception that a task raised before it was initialised; None if there is none."""
        key = self._startup.get(task_id)
        return self._entries[key] if key is not None else None

    def startup_tasks(self) -> list[int]:
        return sorted(self._startup)

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        assert len(self._entries) <= self._limit
        assert all(key in self._entries for key in self._startup.values())


def last_line(report: control_pb2.ExceptionReport) -> str:
    """Return the last line that Python prints for the exception, with the type and the message."""
    lines = [line for line in report.traceback.splitlines() if line.strip()]
    if lines and report.type.rpartition(".")[2] in lines[-1]:
        return lines[-1].strip()
    first = report.message.strip().splitlines()[:1]
    return f"{report.type}: {first[0]}" if first else report.type


def _clip(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    # The end of a traceback is the most useful part.
    return f"[{len(text) - limit} characters left out]\n{text[-limit:]}"
