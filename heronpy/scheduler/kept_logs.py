"""Stores the last parts of logs in the topology's log folder. Containers on other hosts send them when they end.

Each process has one file, `<process>.log`, where `heron logs` looks for it; the scheduler is the only process on this
host that writes the file. The last part of a log is appended after a line that names the host. A file that would grow
beyond `FILE_MAX_BYTES` is first emptied. A container may send only the logs of its own processes. Each line that is not
a record of the named process is escaped and marked as raw output, as a supervisor does with its children's output.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from heronpy.common.errors import InvalidRpcError
from heronpy.common.folders import open_private
from heronpy.common.ids import executor_id, parse_instance_id, part_name_problem
from heronpy.common.log_format import CONTINUATION, RAW, escape, format_record, parse_line, word
from heronpy.common.log_seal import Line
from heronpy.common.units import format_bytes

FILES_MAX = 2000
FILE_MAX_BYTES = 4 << 20
END_MAX_BYTES = 1 << 20
#: Maximum length of a process's name, which leaves room for ".log" in the file name.
_NAME_MAX_BYTES = 240
_OWN = re.compile(r"scheduler(\..*)?")
_NUMBERED = re.compile(r"(?:executor|stmgr|bootstrap)-(\d+)")
#: A standby topology master may run in any container.
_STANDBY = re.compile(r"tmaster-standby-\d+")


class KeptLogs:
    """The stored log files of one topology. Only one call may run at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, process: str, container: int, submission: int, host: str, data: bytes, cut: bool) -> None:
        """Append the last part of a log; raises InvalidRpcError for an invalid request, OSError if writing fails."""
        too_long = len(process.encode()) > _NAME_MAX_BYTES
        if too_long or part_name_problem(process[:_NAME_MAX_BYTES]) or _OWN.fullmatch(process):
            raise InvalidRpcError(f"{process[:80]!r} is not the name of a container's process")
        if _container_of(process, container) != container:
            raise InvalidRpcError(f"{process} is not a process of container {container}")
        if len(data) > END_MAX_BYTES:
            raise InvalidRpcError(
                f"the last part of a log has {format_bytes(len(data))}; send at most {format_bytes(END_MAX_BYTES)}"
            )
        what = "the last part of the log" if cut else "the log"
        where = f"on host {host or 'unknown'}, container {container}, submission {submission}"
        if cut:
            data = data.partition(b"\n")[2]  # the text before it is the rest of a line
        self._append(process, "INFO", f"{what} of {process} {where}:", _marked(process, data))

    def lost(self, container: int, submission: int, host: str) -> None:
        """Note in the executor's log that the logs of a submission did not arrive; raises OSError if writing fails."""
        on = f"are on host {host}, if they still exist" if host else "did not arrive"
        said = f"container {container}, submission {submission}, has ended without sending its logs; they {on}"
        self._append(executor_id(container), "WARNING", said, b"")

    def _append(self, process: str, level: str, said: str, data: bytes) -> None:
        path = self._folder / f"{process}.log"
        there = path.exists()
        if not there and len(os.listdir(self._folder)) >= FILES_MAX:
            raise InvalidRpcError(f"the topology already keeps {FILES_MAX} log files; remove some from {self._folder}")
        head = format_record(time.time(), level, process, "heronpy.scheduler", said)
        flags = os.O_WRONLY | os.O_APPEND
        if there and path.stat().st_size + len(data) > FILE_MAX_BYTES:
            flags |= os.O_TRUNC
        with open(open_private(path, flags), "ab") as file:
            file.write(f"{head}\n".encode() + data + (b"" if data.endswith(b"\n") or not data else b"\n"))


def _container_of(process: str, sender: int) -> int:
    """The container number in a process's name; `sender` for a standby, and 0 for all other names."""
    numbered = _NUMBERED.fullmatch(process)
    if numbered is not None:
        return int(numbered[1])
    if _STANDBY.fullmatch(process):
        return sender
    try:
        return int(parse_instance_id(process)[0])
    except ValueError:
        return 0


def _marked(process: str, data: bytes) -> bytes:
    """The lines of a log, with records of the process unchanged and all other lines marked as raw output."""
    lines, in_record = list[bytes](), False
    for line in data.removesuffix(b"\n").split(b"\n") if data else ():
        text = escape(line.decode("utf-8", "backslashreplace").removesuffix("\r"))
        if not (in_record and text.startswith(CONTINUATION)):
            record = parse_line(text)
            in_record = record is not None and record.process == word(process)
        lines.append(Line(text.removeprefix(RAW), raw=not in_record).logged)
    # Escaping may have made the log longer than the limit; then only its end is kept.
    kept = b"".join(lines)
    return kept if len(kept) <= FILE_MAX_BYTES else kept[-FILE_MAX_BYTES:].partition(b"\n")[2]
