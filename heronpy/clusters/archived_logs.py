"""Makes the archived logs of containers that have ended available as folders on this host.

Logs in a shared folder are read in place. Logs in an object store are copied, newest runs first, up to
`COPIED_MAX_BYTES` in total.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from heronpy.clusters.records import Records
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.folders import make_folders, open_private
from heronpy.common.setting_types import LoggingSettings
from heronpy.common.settings import settings_for
from heronpy.common.units import format_bytes
from heronpy.plan.launch import Submitted, load_submitted
from heronpy.proto import plan_pb2
from heronpy.storage.log_archive import FOLDER, LogArchive, Run, newest_first

COPIED_MAX_BYTES: Final = 256 << 20


def not_reached(session: Session, record: plan_pb2.ExecutionState) -> str:
    """A sentence that names the logs that this host cannot read and their folder; "" if this host can read all logs.

    Without an archive, the logs of ended containers are in a folder on the scheduler's host, with the scheduler's log.
    """
    at = session.elsewhere(record)
    if session.by_endpoint(record) is None or (at and Path(record.launch_file).exists()):
        return ""
    submitted = _submitted(session, record.topology, Path(record.working_dir))
    is_archived = submitted is not None and bool(settings_for(submitted, LoggingSettings).archive)
    whose = "the log of the scheduler is" if is_archived else "the logs of the scheduler and of ended containers are"
    host = f"host {at}" if at else "its scheduler's host"
    return f"{whose} not readable from this host; search on {host}, in {Path(record.working_dir, FOLDER)}"


def archived_runs(
    records: Records, topology: str, working_dir: Path, into: Path, said: Callable[[str], None]
) -> dict[Run, Path]:
    """Map each archived run to a folder that has its logs in `log-files`; empty if there is no archive.

    `into` is the caller's private, empty folder; `said` is called with messages about unreadable and omitted logs.
    """
    submitted = _submitted(records, topology, working_dir)
    place = settings_for(submitted, LoggingSettings).archive if submitted is not None else ""
    if submitted is None or not submitted.engine or not place:
        return {}
    try:
        return _runs(LogArchive(place, submitted.topology_id), into, said)
    except HeronError as error:
        said(f"the log archive {place} cannot be read: {error}")
        return {}


def _submitted(records: Records, topology: str, working_dir: Path) -> Submitted | None:
    try:
        found = records.submitted(topology)
        # A killed run has left its launch file next to its logs.
        return found if found is not None else load_submitted(working_dir / "launch.json")
    except HeronError:
        return None


def _runs(archive: LogArchive, into: Path, said: Callable[[str], None]) -> dict[Run, Path]:
    found, copied, left_out = dict[Run, Path](), 0, 0
    for run, files in sorted(archive.runs().items(), key=lambda one: (-one[0].submission, one[0])):
        here = archive.folder_of(run)
        if here is not None:
            found[run] = here
            continue
        found[run] = into / run.name
        make_folders(into / run.name / FOLDER)
        for name in newest_first(files):
            if copied + files[name] > COPIED_MAX_BYTES:
                left_out += 1
                continue
            copied += files[name]
            with open(open_private(into / run.name / FOLDER / name, os.O_WRONLY | os.O_EXCL), "wb") as file:
                file.write(archive.get(run, name))
    if left_out:
        said(
            f"{left_out} logs of {archive.name} were not copied, because the limit is {format_bytes(COPIED_MAX_BYTES)};"
            " read them in the archive"
        )
    return found
