"""The runs of a cluster's topologies, as far as this host keeps them, with or without any process of them.

A run is a submit of a topology: one that has ended has a kept file; one that has not, or whose processes are all gone,
is in the state manager. A batch run is named by its topology and number, such as visits/3, and may have taken several
submits; its folder outlives them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from heronpy.clusters.ended import kept_files, read_kept
from heronpy.clusters.errors import NotThereError
from heronpy.clusters.how_ended import summary_of
from heronpy.clusters.session import Session
from heronpy.clusters.summary import DEAD
from heronpy.common.folders import heron_home
from heronpy.common.losses import state_label
from heronpy.common.nearest import suggestion
from heronpy.proto import control_pb2
from heronpy.scheduler.teardown import FAILED, known_of, last_life
from heronpy.views.overview import Topology

_FINISHED = "finished"


class PastRun(Struct, frozen=True):
    """One submit of a topology."""

    kept: control_pb2.EndedTopology
    #: It is still in the state manager.
    listed: bool = False
    #: One of its processes is registered.
    runs: bool = False

    @property
    def id(self) -> str:
        """The id of the topology."""
        return self.kept.record.topology_id

    def summary(self) -> Topology:
        """How it ended, or what it was doing when that was written last."""
        found = summary_of(self.kept)
        if not self.listed:
            return found
        last, record = last_life(self.kept).reason, self.kept.record
        if last in (_FINISHED, FAILED):
            return replace(found, ended_at=None) if self.runs else found
        if self.runs:
            state = state_label(last.upper() or "STARTING", found.totals)
            uptime_s = time.time() - record.submitted_at
            return replace(found, state=state, cause="", rank=0, ended_at=None, uptime_s=uptime_s)
        gone = f"none of its processes runs; 'heron kill {record.cluster} {record.topology}' removes what is left"
        return replace(found, state=DEAD, cause=gone, rank=4)


def past_runs(session: Session, word: str = "") -> Iterator[PastRun]:
    """The runs of a cluster, a role or an environ, or those with this id or topology, the newest first. Blocking."""
    listed = [one for one in _listed(session) if word in ("", one.id, one.kept.record.topology)]
    yield from sorted(listed, key=lambda one: -one.kept.record.submitted_at)
    known, dated = {one.id for one in listed}, list[tuple[float, Path]]()
    for path in _files(session):
        if path.name not in known and word in ("", path.name, path.parents[1].name):
            with suppress(OSError):
                dated.append((path.lstat().st_mtime, path))
    for _, path in sorted(dated, reverse=True):
        kept = read_kept(path)
        if kept is not None and session.target.environ in (None, kept.record.environ):
            yield PastRun(kept)


def find_run(session: Session, word: str) -> PastRun:
    """The run with this id, or the newest of the topology of this name; NotThereError if there is none. Blocking."""
    found = next(past_runs(session, word), None)
    if found is not None:
        return found
    ended = {name for path in _files(session) for name in (path.name, path.parents[1].name)}
    hint = suggestion(word, {*ended, *session.names()}, f"; 'heron history list {session.target}' shows all runs")
    raise NotThereError(f"nothing is kept of a run '{word}' in cluster {session.target.cluster}{hint}")


def _files(session: Session) -> Iterator[Path]:
    role = session.target.role
    return (path for path in kept_files(heron_home(), session.target.cluster) if role in (None, path.parents[2].name))


def _listed(session: Session) -> Iterator[PastRun]:
    for record in session.topologies():
        name = record.topology
        kept = known_of(session.state, name)
        if kept is not None and kept.record.topology_id == record.topology_id:
            runs = session.tmaster_location(name) is not None or session.scheduler_location(name) is not None
            kept.ended_at = max((one.at for one in kept.events.events), default=record.submitted_at)
            yield PastRun(kept, listed=True, runs=runs)
