"""The last lines of a process's log, through the file service of its executor or on this machine."""

from __future__ import annotations

from contextlib import suppress

from heronpy.clusters.errors import ClusterError
from heronpy.clusters.log_folders import container_of
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.log_format import CONTINUATION, escape, parse_line
from heronpy.executor.file_service import ContainerFiles
from heronpy.proto import control_pb2

#: How much of the file is read, and how much of it is shown.
TAIL_BYTES, LINES_MAX, LINE_MAX = 32 * 1024, 200, 1000


def log_tail(
    session: Session, topology: str, status: control_pb2.StatusReply, process: str, timeout_s: float
) -> list[str]:
    """The newest lines, oldest first; blocking. HeronError when neither the executor nor this machine has them."""
    container = container_of(process)
    request = control_pb2.ReadFile(name=f"log-files/{process}.log", bytes=TAIL_BYTES, from_end=True)
    service = next((one.file_service for one in status.executors if one.container == container), "")
    try:
        if not service:
            raise ClusterError(
                f"the executor of container {container} is not registered, so its logs cannot be read now"
            )
        reply: control_pb2.ReadFileReply = session.ask_executor(topology, container, service, request, timeout_s)
    except HeronError:
        record = session.record(topology)
        with suppress(HeronError, OSError):
            if record is not None:  # the executor of a task that is down may be down as well
                return lines_of(ContainerFiles(record.working_dir, container).read(request))
        raise
    return lines_of(reply)


def lines_of(reply: control_pb2.ReadFileReply) -> list[str]:
    """The lines of the end of a log: of a record its time of day (UTC), level and message."""
    data = reply.data
    if reply.offset:  # the piece begins within a line
        data = data.partition(b"\n")[2] or data
    found = []
    for line in data.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")[-LINES_MAX:]:
        if line.startswith(CONTINUATION):
            shown = f"    {line.removeprefix(CONTINUATION)}"
        else:
            record = parse_line(line)
            shown = f"{line[11:19]} {record.level:<5} {record.message}" if record is not None else line
        found.append(escape(shown[:LINE_MAX]))
    return found if data else []
