"""What a container leaves when it ends: the ends of its logs at the door, and an exit code for its engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final

from heronpy.common import exit_codes
from heronpy.common.errors import DeadlineError, FencedError, RetryableError
from heronpy.executor.scheduler_link import SchedulerLink
from heronpy.executor.standing import End, Ending
from heronpy.storage.log_archive import LogArchive, Run, newest_first
from heronpy.storage.objects.port import ObjectsError

log = logging.getLogger("heronpy.executor")

LOG_END_MAX_BYTES: Final = 1 << 20


def archive_logs(archive: LogArchive, run: Run, folder: Path, archived: set[str]) -> None:
    """Put all logs of a container into the archive, the rotated ones last, and add to `archived` whose log is there.

    It may be left alone before it is done. A store that does not answer ends it: the door gets what is not archived.
    """
    try:
        for name in newest_first(path.name for path in folder.glob("*.log*")):
            archive.put(run, folder / name)
            if name.endswith(".log"):
                archived.add(name.removesuffix(".log"))
    except (ObjectsError, OSError) as error:
        log.warning("not all logs are in the archive %s: %s", archive.name, error)


async def send_logs(
    link: SchedulerLink, folder: Path, first: Sequence[str], kept_bytes: int, archived: Container[str] = ()
) -> None:
    """Send the end of each log, those of the processes in `first` before the others, until the door takes no more.

    Of those that are archived only the very first one sends its last line: by it the door knows why it ends.
    """
    for path in sorted(folder.glob("*.log"), key=lambda path: (path.stem not in first, path)):
        if path.stem in archived and path.stem != first[0]:
            continue
        try:
            data, is_cut = _end_of(path, kept_bytes)
        except OSError as error:
            log.warning("the end of %s is not kept: %s", path.name, error.strerror)
            continue
        if path.stem in archived:
            data, is_cut = b"\n" + data.rstrip(b"\n").rpartition(b"\n")[2], True
        if data and not await link.log_end(path.stem, data, is_cut):
            return


def _end_of(path: Path, count: int) -> tuple[bytes, bool]:
    """The last bytes of a file, and whether there are more before them."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, count, max(0, size - count)), size > count
    finally:
        os.close(descriptor)


def code_of(end: End) -> int:
    """The exit code, negative for the number of a signal: the executor's, where it ended by itself."""
    match end.ending:
        case Ending.EXECUTOR:
            return os.waitstatus_to_exitcode(end.status)
        case Ending.ASKED:
            return exit_codes.TERMINATED
        case Ending.FENCED:
            return exit_codes.FENCED
    return exit_codes.FAILURE


def code_of_error(error: Exception) -> int:
    """The exit code of a container that could not start."""
    if isinstance(error, FencedError):
        return exit_codes.FENCED
    if isinstance(error, RetryableError | DeadlineError):
        return exit_codes.UNAVAILABLE
    return exit_codes.STARTUP_FAILURE
