"""Reads the kept files of ended topologies in the working folders on this machine.

A kept file contains the last state of a topology. The scheduler writes it when the topology ends (see
`scheduler.teardown`).
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from google.protobuf.message import DecodeError

from heronpy.clusters.session import Session
from heronpy.common.errors import ConfigError
from heronpy.common.folders import heron_home, read_own
from heronpy.proto import control_pb2, plan_pb2
from heronpy.scheduler.teardown import ENDED
from heronpy.statemgr.base import MAX_BYTES


def kept_files(home: Path, cluster: str) -> Iterator[Path]:
    """The paths of the kept files of ended topologies; a file's name is the topology's id. Blocking."""
    for path in (home / "topologies" / cluster).glob(f"*/*/{ENDED}/*"):
        with suppress(OSError):
            if not path.name.startswith(".") and stat.S_ISREG(path.lstat().st_mode):
                yield path


def read_kept(path: Path) -> control_pb2.EndedTopology | None:
    """The content of a kept file; None if it is missing, damaged, or in the folder of another topology."""
    kept = control_pb2.EndedTopology()
    try:
        kept.ParseFromString(read_own(path, MAX_BYTES))
    except (OSError, ConfigError, DecodeError):
        return None
    record, place = kept.record, [one.name for one in path.parents[1:4]]
    is_here = place == [record.topology, record.role, record.cluster] and record.topology_id == path.name
    return kept if is_here else None


def kept_of_last(session: Session, topology: str) -> control_pb2.EndedTopology | None:
    """The content of the kept file of the topology's last ended run, in the session's role and environ if given."""
    target = session.target
    found: control_pb2.EndedTopology | None = None
    for path in kept_files(heron_home(), target.cluster):
        if path.parent.parent.name != topology or (target.role and path.parent.parent.parent.name != target.role):
            continue
        kept = read_kept(path)
        if kept is None or (target.environ and kept.record.environ != target.environ):
            continue
        if found is None or kept.ended_at > found.ended_at:
            found = kept
    return found


def last_ended(session: Session, topology: str) -> plan_pb2.ExecutionState | None:
    """The execution state of the last ended run of this topology; None if there is no kept file."""
    kept = kept_of_last(session, topology)
    return kept.record if kept is not None else None
