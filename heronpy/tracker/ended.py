"""Topologies that have ended, read from the files that `scheduler.teardown` has kept in their working folders.

Such a file contains the topology master's last answers, so an ended topology has the same routes as a running one. A
request for data that was not kept raises EndedError.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from heronpy.clusters.ended import kept_files, read_kept
from heronpy.clusters.masters import Master, NoMasterError
from heronpy.clusters.session import Session
from heronpy.clusters.summary import last_load, last_minutes, summary_of
from heronpy.common.errors import ConfigError
from heronpy.common.folders import heron_home
from heronpy.executor.file_service import ContainerFiles
from heronpy.net.answers import packed
from heronpy.plan.launch import Here, LaunchSpec, Submitted, checkpoints_dir
from heronpy.proto import control_pb2
from heronpy.tracker.sources import Diagnosis, Watched
from heronpy.views.load import Tasks, tasks_of
from heronpy.views.overview import Topology
from heronpy.views.past import Events, event_of
from heronpy.views.plan import Plan, plan_of
from heronpy.views.quotes import without_values
from heronpy.views.saved import GATEWAY

#: Maximum number of listed topologies, newest first, and of files that are kept in memory for pages.
LISTED_MAX, OPEN_MAX = 200, 8
#: The state of a task or process whose last known state is not one of `_OVER`.
ENDED_STATE, _OVER = "ENDED", frozenset(("FINISHED", "FAILED", "STOPPED"))

#: Inode, time and size, which identify the content of a file.
_Mark = tuple[int, int, int]


class EndedError(NoMasterError):
    """The topology has ended, so it cannot answer."""


# ---- answers from files ---------------------------------------------------------------


class _Kept(Master):
    """Repeats the topology master's last answers, and reads logs and dead letters from the working folder."""

    def __init__(self, session: Session, kept: control_pb2.EndedTopology, why: str) -> None:
        super().__init__(session, kept.record)
        self._kept, self._why = kept, why
        self._answers: dict[type, Callable[[Any], Message | None]] = {
            control_pb2.GetEvents: self._events,
            control_pb2.GetTimeline: lambda asked: packed(last_minutes(kept).query(asked)),
            control_pb2.GetExceptions: self._exceptions,
            control_pb2.GetMetrics: self._metrics,
            control_pb2.GetStatus: lambda asked: self._last("status"),
            control_pb2.GetCheckpoints: lambda asked: self._last("checkpoints"),
        }

    async def ask(self, body: Message, timeout_s: float = 0.0) -> Any:
        """Return the topology master's last answer. Raises EndedError if it was not kept."""
        answer = self._answers.get(type(body))
        found = answer(body) if answer is not None else None
        if found is None:
            raise EndedError(f"{self._why}; this information was not kept")
        return found

    def _last(self, name: str) -> Any:
        return getattr(self._kept.last, name) if self._kept.last.HasField(name) else None  # type: ignore[arg-type]

    def _events(self, asked: control_pb2.GetEvents) -> Message:
        known = self._kept.events
        newer = [event_of(one) for one in known.events if one.number > asked.after]
        return packed(Events(events=newer[-asked.limit :], last=known.last, forgotten=0, start=None))

    def _exceptions(self, asked: control_pb2.GetExceptions) -> control_pb2.ExceptionsReply | None:
        known: control_pb2.ExceptionsReply | None = self._last("exceptions")
        if known is None:
            return None
        chosen = [
            one
            for one in known.exceptions
            if asked.component in ("", one.component) and asked.task_id in (0, one.task_id)
        ]
        return control_pb2.ExceptionsReply(exceptions=chosen, discarded=known.discarded)

    def _metrics(self, asked: control_pb2.GetMetrics) -> control_pb2.MetricsReply | None:
        if list(asked.instances) != [GATEWAY]:
            known: control_pb2.MetricsReply | None = self._last("tasks" if asked.interval_s else "counts")
            return known
        # The gateway's last report lacks the counts of earlier gateways; the topology master's report may be older.
        reports = [one for one in self._kept.last.counts.reports if one.process == GATEWAY]
        reports += [self._kept.spark] if self._kept.HasField("spark") else []
        return control_pb2.MetricsReply(reports=[max(reports, key=_rows)]) if reports else None

    async def launch(self) -> LaunchSpec:
        """Return how the topology was launched. Raises EndedError if the submitted settings were not kept."""
        record = self.record
        try:
            submitted = Submitted.from_bytes(self._kept.launch, f"the kept submission of {record.topology_id}")
        except ConfigError:
            raise EndedError(f"{self._why}; its settings were not kept") from None
        checkpoints = str(checkpoints_dir(record.cluster))
        return LaunchSpec(submitted, Here(record.working_dir, sockets_dir="", python="", checkpoints=checkpoints))

    async def ask_executor(self, container: int, request: Message, timeout_s: float = 0.0) -> Any:
        """Answer requests for a container's files from the working folder. Raises EndedError for other requests."""
        if not isinstance(request, control_pb2.ListFiles | control_pb2.ReadFile):
            raise EndedError(self._why)
        return await asyncio.to_thread(ContainerFiles(self.record.working_dir, container).answer, request)


def _rows(report: control_pb2.MetricsReport) -> float:
    return sum(one.value for one in report.samples if one.name == "spark-rows-committed")


class EndedTopology(Watched):
    """A topology that has ended. It has the interface of a running topology, and answers from files."""

    def __init__(self, session: Session, kept: control_pb2.EndedTopology) -> None:
        super().__init__(session, kept.record)
        self._summary = summary_of(kept)
        self.ended_at = kept.ended_at
        self.gone = without_values(self._summary).cause  # errors are shown to every client that may read the topology
        self.master = _Kept(session, kept, self.gone)
        self.reply = last_load(kept)
        if kept.HasField("topology") and kept.HasField("packing"):
            self.definition, self.packing, self.physical = kept.topology, kept.packing, kept.physical
            hosts = {one.container: one.host for one in kept.physical.stmgrs if one.host}
            self._plan = plan_of(kept.topology, kept.packing, kept.physical, hosts)

    @property
    def answers(self) -> bool:
        """True: kept answers are always available."""
        return True

    async def refresh(self, fresh_s: float | None = None) -> None:
        """Do nothing, because the figures no longer change."""

    def summary(self) -> Topology:
        return self._summary

    async def read_plan(self) -> Plan:
        """Return the last plan. Raises EndedError if it was not kept."""
        if self._plan is None:
            raise EndedError(f"{self.gone}; its plan was not kept")
        return self._plan

    async def _ask_tasks(self) -> Tasks:
        """Return the last figures of the tasks. Tasks and processes that were still running get the state ENDED."""
        status = await self.master.ask(control_pb2.GetStatus())
        report = await self.master.ask(control_pb2.GetMetrics(interval_s=1.0))
        version = self.packing.version if self.packing is not None else 0
        found = await asyncio.to_thread(tasks_of, status, report, version, self.ended_at or 0.0)
        for task in found.tasks:
            if task.state not in _OVER:
                task.state, task.up = ENDED_STATE, False
        for process in found.processes:
            if process.state not in _OVER:
                process.state = ENDED_STATE
        return found

    async def diagnosis(self) -> Diagnosis:
        """Raise EndedError, because an ended topology cannot be examined."""
        raise EndedError(self.gone)


# ---- the list ---------------------------------------------------------------------------------


class Ended:
    """The ended topologies of all clusters whose working folders are on this machine."""

    def __init__(self) -> None:
        #: The files that were listed last.
        self._known: dict[Path, tuple[_Mark, Topology | None]] = {}
        #: The files that were used last.
        self._open: OrderedDict[Path, tuple[_Mark, EndedTopology]] = OrderedDict()

    def listed(self, clusters: Collection[str], running: Collection[str]) -> list[Topology]:
        """Return the newest ended topologies, newest first. `running` contains the ids of topologies that have not
        ended. Blocking.
        """
        marks = sorted(
            ((mark, path) for cluster in clusters for path, mark in _marked(cluster) if path.name not in running),
            key=lambda one: -one[0][1],
        )[:LISTED_MAX]
        known, found = self._known, dict[Path, tuple[_Mark, Topology | None]]()
        for mark, path in marks:
            before = known.get(path)
            if before is None or before[0] != mark:
                kept = read_kept(path)
                before = mark, summary_of(kept) if kept is not None else None
            found[path] = before
        self._known = found
        shown = [one for _, one in found.values() if one is not None]
        return sorted(shown, key=lambda one: -(one.ended_at or 0.0))

    def find(
        self, session: Session, role: str, environ: str, name: str, running: Collection[str]
    ) -> EndedTopology | None:
        """Return the ended topology with this id, or the last one with this name; None if no file exists. Blocking."""
        candidates = [
            (path.name == name, mark[1], path, mark)
            for path, mark in _marked(session.target.cluster)
            if path.name not in running and _role(path) == role and name in (path.name, path.parent.parent.name)
        ]
        for _, _, path, mark in sorted(candidates, reverse=True):
            found = self._opened(session, path, mark)
            if found is not None and found.record.environ == environ:
                return found
        return None

    def _opened(self, session: Session, path: Path, mark: _Mark) -> EndedTopology | None:
        before = self._open.pop(path, None)
        if before is None or before[0] != mark:
            kept = read_kept(path)
            if kept is None:
                return None
            before = mark, EndedTopology(session, kept)
        self._open[path] = before
        while len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)
        return before[1]


def _marked(cluster: str) -> Iterator[tuple[Path, _Mark]]:
    for path in kept_files(heron_home(), cluster):
        try:
            status = path.lstat()
        except OSError:
            continue
        yield path, (status.st_ino, status.st_mtime_ns, status.st_size)


def _role(path: Path) -> str:
    return path.parent.parent.parent.name
