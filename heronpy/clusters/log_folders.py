"""Locates the logs of a topology, and finds the processes that own them."""

from __future__ import annotations

import re
from pathlib import Path

from heronpy.clusters.client_config import known_clusters
from heronpy.clusters.errors import NotThereError, RequestError
from heronpy.clusters.records import Records
from heronpy.clusters.session import Session
from heronpy.common.folders import heron_home
from heronpy.common.ids import is_called, parse_instance_id
from heronpy.common.log_files import log_processes
from heronpy.common.nearest import suggestion
from heronpy.net.access_place import folder_of

_OF_CONTAINER = re.compile(r"(?:stmgr|executor)-(\d{1,9})")


def log_dir(records: Records, topology: str) -> Path:
    """The folder of a topology's logs, even after the topology was killed."""
    record = records.record(topology)
    if record is not None:
        folder = Path(records.find(topology).working_dir) / "log-files"
        if isinstance(records, Session) and records.by_endpoint(record) is not None:
            # Files at this path on this host belong to another topology, unless the hosts share the folder.
            shared = records.elsewhere(record) and Path(record.launch_file).exists()
            return folder if shared else folder_of(records.target.cluster) / "log-files"
        if not folder.is_dir():
            records.check_here(record, f"its logs are in {folder}")
        return folder
    found = records.logs_of_ended(topology)
    if len(found) > 1:
        owners = ", ".join(path.parent.parent.name for path in found)
        raise RequestError(
            f"several roles had a topology '{topology}' ({owners}); name one as {records.target.cluster}/ROLE"
        )
    if not found:
        base = heron_home() / "topologies" / records.target.cluster
        roles = [records.target.role] if records.target.role else _folders(base)
        known = {name for role in roles for name in _folders(base / role)}.union(records.names())
        if records.target.implied:  # the user may have meant the word as the cluster
            known.update(known_clusters())
        hint = suggestion(topology, known, f"; run 'heron list {records.target}'")
        raise NotThereError(f"cluster {records.target.cluster} has no logs of a topology '{topology}'{hint}")
    return found[0]


def _folders(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir() if entry.is_dir()] if path.is_dir() else []


def component_of(process: str) -> str | None:
    """The component of an instance id; None for other processes."""
    try:
        return parse_instance_id(process)[1]
    except ValueError:
        return None


def is_meant(process: str, word: str) -> bool:
    """Whether a word names a process, its task or its component."""
    return is_called(process, word) or component_of(process) == word


def container_of(process: str) -> int:
    """The container whose file service lists the log of a process; 0 for processes without a container."""
    match = _OF_CONTAINER.fullmatch(process)
    if match is not None:
        return int(match[1])
    try:
        return int(parse_instance_id(process)[0])
    except ValueError:
        return 0


def words_of(folder: Path) -> set[str]:
    """The names of processes that have logs in a folder, and of the processes' components."""
    known = log_processes(folder)
    return {*known, *(component for name in known if (component := component_of(name)))}
