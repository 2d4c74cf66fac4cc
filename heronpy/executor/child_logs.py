"""The output of a container's processes: log files, the final messages of ended processes, and stacks on request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from heronpy.common.setting_types import LoggingSettings
from heronpy.procs.child_log import ChildLog
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.supervision import Ended
from heronpy.proto import control_pb2

#: Reasons for which a process ends without a chance to log a final message.
_SPEECHLESS = frozenset({ExitReason.OOM, ExitReason.KILLED, ExitReason.HUNG, ExitReason.CRASHED})
#: The request for stacks is repeated, because a process that has just started ignores it until it can print stacks.
STACKS_TIMES, STACKS_WAIT_S, STACKS_QUIET_S = 5, 1.0, 0.1
#: What faulthandler prints for each thread.
STACKS_MARK = b"most recent call first"
DETAIL_MAX = 1024
#: Texts that the interpreter and libraries print when memory runs out.
MEMORY_WORDS = ("MemoryError", "OUT OF MEMORY", "std::bad_alloc", "Cannot allocate memory")


class ChildLogs:
    """One log for each process name, shared by all incarnations; not thread-safe. `echo` also receives all lines."""

    def __init__(
        self, folder: Path, settings: LoggingSettings, echo: Callable[[str, bytes], None] | None = None
    ) -> None:
        self._echo = echo
        self._folder = folder
        self._settings = settings
        self._logs: dict[str, ChildLog] = {}

    def open_output(self, name: str) -> int:
        """Open a pipe into the log of a new process; returns the writing end, which the caller must close."""
        child_log = self._logs.get(name)
        if child_log is None:
            path, limits = self._folder / f"{name}.log", self._settings
            child_log = ChildLog(str(path), limits.file_max_bytes, limits.files_max, name, self._echo)
            self._logs[name] = child_log
        return child_log.open_pipe()

    def logged(self, name: str) -> int:
        """The number of bytes that a process has logged so far, in all its incarnations."""
        child_log = self._logs.get(name)
        return child_log.logged if child_log is not None else 0

    def termination_report(
        self, name: str, exception: control_pb2.ExceptionReport | None, killed: bool
    ) -> tuple[str, bool]:
        """Why a process ended, as shown by its output, and whether it ran out of memory.

        `exception` is the last exception that the process reported; if there is none, the last line of output is used.
        If a signal ended the process, it could not report a reason, and the exception shows only whether memory ran
        out.
        """
        child_log = self._logs.get(name)
        last_line = child_log.last_line() if child_log else ""
        if exception is None:
            memory = child_log is not None and child_log.mentions(MEMORY_WORDS)
            return "" if killed else last_line[:DETAIL_MAX], memory
        if killed and not exception.out_of_memory:
            return "", False
        words = f"{exception.type}: {exception.message}" if exception.message else exception.type
        return words[:DETAIL_MAX], exception.out_of_memory

    def ended(self, effect: Ended) -> None:
        """If a process was killed before it could log the reason, write the reason into its log."""
        child_log = self._logs.get(effect.spec.name)
        if child_log is not None and effect.reason in _SPEECHLESS and not effect.raised:
            why = effect.reason.value.replace("_", " ")
            child_log.note(f"{effect.spec.name} has ended: {why}{f': {effect.detail}' if effect.detail else ''}")

    async def stacks(self, name: str, ask: Callable[[], None]) -> str | None:
        """The stacks that a process prints when `ask` is called; "" if it prints none, None if it has no log."""
        child_log = self._logs.get(name)
        if child_log is None:
            return None
        printed = ""
        for _ in range(STACKS_TIMES):
            ask()
            printed += await child_log.capture(STACKS_MARK, STACKS_WAIT_S, STACKS_QUIET_S)
            if STACKS_MARK.decode() in printed:
                break
        return printed

    def forget(self, name: str) -> None:
        """Forget a process that will not start again."""
        child_log = self._logs.pop(name, None)
        if child_log is not None:
            child_log.close()

    def close(self) -> None:
        """Read all remaining output and close the files."""
        for child_log in self._logs.values():
            child_log.close()
