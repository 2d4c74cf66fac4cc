"""The current and ended runs of a cluster's topologies whose files are on this host.

A run is one submission of a topology. An ended run has a kept file with its last state. A run that has not ended, or
whose processes have all died, is in the state manager. A batch run is named by its topology and number, such as
visits/3. A batch run may need several submissions; the last one represents the run, and the run's folder is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from heronpy.batch.record import RunRecord, RunState
from heronpy.batch.run import BatchRunError, Run, run_folders, runs_folder
from heronpy.batch.topology import run_folder
from heronpy.clusters.ended import kept_files, read_kept
from heronpy.clusters.errors import NotThereError
from heronpy.clusters.records import cure_of_dead
from heronpy.clusters.session import Session
from heronpy.clusters.summary import DEAD, summary_of
from heronpy.common.engine_settings import BatchSettings
from heronpy.common.folders import heron_home
from heronpy.common.losses import state_label
from heronpy.common.nearest import suggestion
from heronpy.common.settings import settings_for
from heronpy.proto import control_pb2
from heronpy.scheduler.teardown import FAILED, known_of, last_life
from heronpy.views.overview import Topology
from heronpy.views.progress import Progress, stopped

_FINISHED = "finished"


class PastRun(Struct, frozen=True):
    #: The last state of the last submit; for a batch run without a known submit, only the run's own record.
    kept: control_pb2.EndedTopology
    #: Whether the topology is still in the state manager.
    listed: bool = False
    #: Whether one of the topology's processes is registered.
    runs: bool = False
    #: The record of a batch run.
    batch: RunRecord | None = None
    folder: Path | None = None

    @property
    def name(self) -> str:
        """The name of the batch run, such as visits/3, or the id of the topology."""
        return self.batch.run if self.batch is not None else self.kept.record.topology_id

    @property
    def began_at(self) -> float:
        """Time of the first submit."""
        return self.batch.submitted_at if self.batch is not None else self.kept.record.submitted_at

    def summary(self) -> Topology:
        """The summary of the run: how it ended, or its last stored state."""
        found = self._of_submit()
        if self.batch is None or self.batch.state is RunState.RUNNING:
            return found
        told = {"state": self.batch.state.value, "cause": self._cause(), "submitted_at": self.batch.submitted_at}
        ended_at = self.batch.ended_at or self.kept.ended_at
        uptime_s = max(0.0, ended_at - self.batch.submitted_at)
        rank = 4 if self.batch.state is RunState.FAILED else 0
        return replace(found, **told, rank=rank, ended_at=ended_at, uptime_s=uptime_s, sentence=None, verdict=None)

    def _cause(self) -> str:
        assert self.batch is not None
        match self.batch.state:
            case RunState.FINISHED:
                return f"batch run {self.batch.run} has finished"
            case RunState.HELD:
                return f"batch run {self.batch.run} has finished and is held: nothing is published"
            case _:
                return f"batch run {self.batch.run} has failed: {self.batch.cause}"

    def _of_submit(self) -> Topology:
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
        # While a batch run is running, its progress is written each second.
        ended_at = max(self.kept.ended_at, self.progress.at if self.progress is not None else 0.0)
        uptime_s = max(0.0, ended_at - self.began_at)
        gone = f"no process of topology '{record.topology}' is running; {self._cure_of_dead()}"
        return replace(found, state=DEAD, cause=gone, rank=4, ended_at=ended_at, uptime_s=uptime_s)

    @property
    def progress(self) -> Progress | None:
        """The progress of a batch run; None for a stream."""
        with suppress(BatchRunError):
            if self.folder is not None:
                found = Run(self.folder).progress
                return found if self.runs else stopped(found, self._cure_of_dead() if self.listed else "")
        return None

    def _cure_of_dead(self) -> str:
        run = self.batch.run if self.batch is not None and not self.batch.has_ended else ""
        return cure_of_dead(self.kept.record.cluster, self.kept.record.topology, run)


def past_runs(session: Session, word: str = "") -> Iterator[PastRun]:
    """The runs of the session's target, newest first; `word` selects a run, an id or a topology. Blocking."""
    shown = set[str]()
    for run in _submits(session, word.partition("/")[0]):
        run = _of_batch(run)
        if word in ("", run.name, run.kept.record.topology_id, run.kept.record.topology) and run.name not in shown:
            shown.add(run.name)
            yield run
    batches = runs_folder(settings_for(session.resolve(), BatchSettings), session.target.cluster)
    for record, folder in run_folders(batches):
        if record.run not in shown and word in ("", record.run, record.topology) and _is_meant(session, record):
            try:
                run = _of_record(record, folder)
            except BatchRunError:
                continue  # a submit has removed it meanwhile
            yield run


def find_run(session: Session, word: str) -> PastRun:
    """The run with this name or id, or the newest run of this topology; NotThereError if there is none. Blocking."""
    found = next(past_runs(session, word), None)
    if found is not None:
        return found
    known = {name for run in past_runs(session) for name in (run.name, run.kept.record.topology)}
    hint = suggestion(word, known, f"; 'heron history list {session.target}' shows all runs")
    raise NotThereError(f"there is no record of a run '{word}' in cluster {session.target.cluster}{hint}")


def submits_of(session: Session, record: RunRecord) -> list[control_pb2.EndedTopology]:
    """The records of the submits that have processed a batch run. Blocking."""
    return [
        one.kept for one in _submits(session, record.topology) if one.kept.record.topology_id in record.topology_ids
    ]


def _submits(session: Session, word: str) -> Iterator[PastRun]:
    """The submits of the session's target, newest first; `word` selects an id or a topology, "" selects all."""
    listed = [one for one in _listed(session) if word in ("", one.name, one.kept.record.topology)]
    yield from sorted(listed, key=lambda one: -one.began_at)
    target, known, dated = session.target, {one.name for one in listed}, list[tuple[float, Path]]()
    for path in kept_files(heron_home(), target.cluster):
        here = target.role in (None, path.parents[2].name) and word in ("", path.name, path.parents[1].name)
        if here and path.name not in known:
            with suppress(OSError):
                dated.append((path.lstat().st_mtime, path))
    for _, path in sorted(dated, reverse=True):
        kept = read_kept(path)
        if kept is not None and target.environ in (None, kept.record.environ):
            yield PastRun(kept)


def _listed(session: Session) -> Iterator[PastRun]:
    for record in session.topologies():
        name = record.topology
        kept = known_of(session.state, name)
        if kept is not None and kept.record.topology_id == record.topology_id:
            runs = session.tmaster_location(name) is not None or session.scheduler_location(name) is not None
            kept.ended_at = _last_sign(kept)
            yield PastRun(kept, listed=True, runs=runs)


def _last_sign(kept: control_pb2.EndedTopology) -> float:
    """Wall time of a topology's last activity: its submission, an event, metrics of a minute, or a write to a log."""
    signs = [kept.record.submitted_at, *(one.at for one in kept.events.events)]
    signs += [60.0 * one.number for one in (*kept.minutes.minutes, *kept.last.minutes.minutes)]
    for log in Path(kept.record.working_dir, "log-files").glob("*.log"):
        with suppress(OSError):
            signs.append(log.lstat().st_mtime)
    return max(signs)


def _of_batch(run: PastRun) -> PastRun:
    """The run, to which the record of its batch run is added if there is one."""
    folder = run_folder(run.kept.topology)
    if folder:
        with suppress(BatchRunError):
            record = Run(folder).record
            if run.kept.record.topology_id in record.topology_ids:
                return PastRun(run.kept, run.listed, run.runs, record, Path(folder))
    return run


def _is_meant(session: Session, record: RunRecord) -> bool:
    target = session.target
    return target.role in (None, record.role) and target.environ in (None, record.environ)


def _of_record(record: RunRecord, folder: Path) -> PastRun:
    """A batch run for which no submit is known."""
    kept = control_pb2.EndedTopology(ended_at=record.ended_at or Run(folder).progress.at)
    kept.record.cluster, kept.record.role, kept.record.environ = record.cluster, record.role, record.environ
    kept.record.topology, kept.record.submitted_at = record.topology, record.submitted_at
    kept.record.topology_id = next(reversed(record.topology_ids), "")
    return PastRun(kept, batch=record, folder=folder)
