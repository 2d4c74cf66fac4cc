"""A topology that has ended: what is kept of it, in the history and in its working folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from heronpy.clusters.ended import read_kept
from heronpy.clusters.masters import Master, NoMasterError
from heronpy.clusters.session import Session
from heronpy.common.losses import WITH_LOSSES, missing_text, state_label
from heronpy.executor.files_door import ContainerFiles
from heronpy.health.findings import Verdict
from heronpy.plan.component_config import reliability_mode
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import control_pb2, plan_pb2
from heronpy.scheduler.teardown import ENDED, last_life
from heronpy.tmaster.minutes import MINUTE_S, Minutes
from heronpy.tmaster.totals import Totals
from heronpy.tracker.history import SENTENCES, how_ended, rows_of_ledger, timeline
from heronpy.tracker.history_store import Run, Store
from heronpy.tracker.sources import Diagnosis, Watched
from heronpy.views.build_overview import topology_of, totals_of
from heronpy.views.load import Load, Tasks
from heronpy.views.overview import Topology
from heronpy.views.past import Event, Timeline, event_of, timeline_of
from heronpy.views.plan import Plan, plan_of
from heronpy.views.quotes import without_values
from heronpy.views.saved import Batches, batches_of

T = TypeVar("T")

#: Kinds of documents: each is what the route of this name would answer.
TOPOLOGY, PLAN, LOAD, TASKS, SAMPLES, BATCHES = "topology", "plan", "load", "tasks", "samples", "batches"
#: Seen running so short a time ago, a topology that is not there any more has ended now.
SEEN_S = 90.0
POINTS_MAX = 1_000
NO_NUMBER = (1 << 63) - 1
#: The state of a task or process that ran, or was silent, when it was seen last; those of others stay.
ENDED_STATE, _OVER = "ENDED", frozenset(("FINISHED", "FAILED", "STOPPED"))


class EndedError(NoMasterError):
    """The topology has ended, so nobody can be asked."""


class History:
    """The history of one tracker: one thread uses its store."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self._thread = ThreadPoolExecutor(1, "history")

    async def do(self, what: Callable[[Store], T]) -> T:
        """Use the store without holding the event loop up."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, what, self.store)

    def close(self) -> None:
        """Wait for what is being written, and close the file."""
        self._thread.submit(self.store.close)
        self._thread.shutdown()

    # ---- the past of a topology that runs, or not ---------------------------------------------

    async def minutes(
        self, run: str, asked: control_pb2.GetTimeline, told: control_pb2.TimelineReply | None, until: float
    ) -> control_pb2.TimelineReply | None:
        """What to answer: what the topology master has told if it reaches as far, else what is kept; None: nothing."""
        span = await self.do(lambda store: store.span(run))
        if span is None:
            return told
        first_at = span[0] * MINUTE_S
        if told is not None and told.known_since:
            if asked.since < told.known_since - 2 * MINUTE_S and first_at < told.known_since - 2 * MINUTE_S:
                pass
            else:
                told.known_since = min(told.known_since, first_at)
                return told
        first, end = int(max(asked.since, 0.0) // MINUTE_S), int((asked.until or until) // MINUTE_S) + 1

        def look(store: Store) -> control_pb2.TimelineReply:
            rows = store.minutes(run, first, end)
            return timeline(rows, asked.components, asked.names, min(asked.points or POINTS_MAX, POINTS_MAX))

        reply = await self.do(look)
        reply.known_since = first_at
        return reply

    async def samples(self, run: str, components: list[str], metrics: list[str]) -> Timeline | None:
        """What was seen each few seconds of a topology that was short; None when that is not kept."""
        found = decoded(await self.do(lambda store: store.document(run, SAMPLES)), Timeline)
        if found is None or (metrics and not {one.metric for one in found.series} & set(metrics)):
            return None
        found.series = [
            one
            for one in found.series
            if (not components or one.component in components) and (not metrics or one.metric in metrics)
        ]
        return found


def decoded(body: bytes | None, kind: type[T]) -> T | None:
    """A document; None when there is none, or another release wrote it."""
    try:
        return msgspec.json.decode(body, type=kind) if body is not None else None
    except msgspec.DecodeError:
        return None


def record_of(run: Run) -> plan_pb2.ExecutionState:
    """The execution state of a run."""
    record = plan_pb2.ExecutionState(topology=run.name, topology_id=run.id, cluster=run.cluster)
    with suppress(DecodeError):
        record.ParseFromString(run.record)
    return record


# ---- how it ended -----------------------------------------------------------------------------


def finish(store: Store, run: Run, now: float) -> None:
    """Keep how a topology has ended, and what its working folder still tells, unless that is done. Blocking."""
    record = record_of(run)
    known = decoded(store.document(run.id, TOPOLOGY), Topology)
    if known is not None and known.ended_at is not None:
        # Whoever asks for it had looked before somebody else did it.
        store.see(Run(run.id, run.cluster, run.name, run.record, run.seen_at, known.ended_at))
        return
    kept = read_kept(Path(record.working_dir, ENDED, run.id)) if record.working_dir else None
    documents: list[tuple[str, bytes]] = []
    last = known.state.removesuffix(WITH_LOSSES).lower() if known is not None else ""
    if kept is not None:
        last = last_life(kept).reason or last
        store.add_events(run.id, [event_of(one) for one in kept.events.events])
        store.add_minutes(run.id, rows_of_ledger(kept.minutes))
        if store.document(run.id, PLAN) is None and kept.HasField("topology") and kept.HasField("packing"):
            plan = plan_of(kept.topology, kept.packing, kept.physical, _hosts(kept.physical))
            documents.append((PLAN, msgspec.json.encode(plan)))
    documents += _batches(store, run, kept)
    seen = now - run.seen_at < SEEN_S
    ended_at = kept.ended_at if kept is not None else now if seen else run.seen_at
    how = how_ended(last) if kept is not None or seen or last in ("finished", "failed") else "ended"
    summary = _summary(record, known, kept, how, ended_at)
    documents.append((TOPOLOGY, msgspec.json.encode(summary)))
    if store.put(run.id, documents):
        store.see(Run(run.id, run.cluster, run.name, run.record, run.seen_at, ended_at))


def _batches(store: Store, run: Run, kept: control_pb2.EndedTopology | None) -> list[tuple[str, bytes]]:
    """The batches as the Spark gateway has left them, unless more is known of a gateway before it."""
    known = decoded(store.document(run.id, BATCHES), Batches)
    last = batches_of(control_pb2.MetricsReply(reports=[kept.spark]), "") if kept and kept.HasField("spark") else None
    if last is None or (known is not None and _rows(known) > _rows(last)):
        last = known
    if last is None:
        return []
    last.spark_ui = None  # it has ended, too
    return [(BATCHES, msgspec.json.encode(last))]


def _rows(batches: Batches) -> int:
    return sum(sink.rows for sink in batches.sinks)


def told_by(kept: control_pb2.EndedTopology) -> tuple[Topology, list[Event], Timeline]:
    """How a topology ended, its events and its last minutes, by what its working folder keeps alone."""
    shown = _summary(kept.record, None, kept, how_ended(last_life(kept).reason), kept.ended_at)
    minutes = Minutes()
    minutes.take_over(kept.minutes, kept.record.topology_id)
    return shown, [event_of(one) for one in kept.events.events], timeline_of(minutes.query(control_pb2.GetTimeline()))


def _hosts(physical: plan_pb2.PhysicalPlan) -> dict[int, str]:
    return {one.container: one.host for one in physical.stmgrs if one.host}


def _summary(
    record: plan_pb2.ExecutionState,
    known: Topology | None,
    kept: control_pb2.EndedTopology | None,
    how: str,
    ended_at: float,
) -> Topology:
    if known is None:
        definition = kept.topology if kept is not None and kept.HasField("topology") else None
        packing = kept.packing if kept is not None and kept.HasField("packing") else None
        known = topology_of(record, None, definition, packing)
    totals = known.totals
    if kept is not None and kept.HasField("totals"):
        counts = Totals.of(kept.totals, record.topology_id)
        mode = reliability_mode(kept.topology) if kept.HasField("topology") else known.mode
        summed = counts.summed(mode=mode or "")
        # What was answered last may be newer than what the topology master has written last.
        if totals is None or summed.acked + summed.failed >= totals.acked + totals.failed:
            totals = totals_of(summed)
    # A Spark gateway leaves a last report; nobody may have looked while there was one.
    spark = known.spark if known.spark is not None or kept is None else kept.HasField("spark")
    failure = known.cause if known.state == "FAILED" else ""
    if not failure and kept is not None and how == "failed":
        failure = last_life(kept).text.partition(": ")[2]
    lost = missing_text(totals) if how == "finished" and totals is not None else ""
    text = f"topology '{known.name}' {SENTENCES[how]}" + (f" with losses: {lost}" if lost else "")
    cause = f"{text}: {failure}" if failure else text
    # Of a topology that has failed the doctor has said the same.
    known = _with_last_words(known if how != "failed" else said_nothing(known), cause)
    return msgspec.structs.replace(
        known, state=state_label(how.upper(), totals), cause=cause, next=None,
        rank=4 if how == "failed" else 2 if lost else 0,
        uptime_s=max(0.0, ended_at - record.submitted_at),
        tasks_up=None, emitted_per_s=None, held=None, latency_p99_s=None, totals=totals, recent_per_s=[],
        ended_at=ended_at, spark=spark,
    )  # fmt: skip


def said_last(shown: Topology, said: Topology | None) -> Topology:
    """The summary with the last finding that is told of a topology that has ended."""
    if said is None:
        return shown
    return msgspec.structs.replace(
        shown, verdict=said.verdict, sentence=said.sentence, calm=said.calm, next=said.next, component=said.component,
        task=said.task, host=said.host, unquoted=said.unquoted,
    )  # fmt: skip


def said_nothing(shown: Topology) -> Topology:
    """The summary without a finding."""
    return msgspec.structs.replace(
        shown, verdict=None, sentence=None, calm=None, next=None, component="", task="", host="", unquoted=""
    )


def _with_last_words(known: Topology, cause: str) -> Topology:
    """How it ended, and what the doctor had said last, as one sentence; and the same without values."""
    if known.sentence is None or known.verdict == Verdict.CHANGING.value:
        return said_nothing(known)
    said, plain = f"{cause}; the doctor said last: {known.sentence}", cause.partition(": ")[0]
    unquoted = f"{plain}; the doctor said last: {known.unquoted or known.sentence}"
    return msgspec.structs.replace(known, sentence=said, unquoted=unquoted if unquoted != said else "")


# ---- asked as if it were there ----------------------------------------------------------------


class _Files(Master):
    """Its log files and dead letters, as far as they are on this machine; nobody else answers."""

    def __init__(self, session: Session, record: plan_pb2.ExecutionState, why: str) -> None:
        super().__init__(session, record)
        self._why = why

    async def ask(self, body: Message, timeout_s: float = 0.0) -> Any:
        raise EndedError(self._why)

    async def launch(self) -> LaunchSpec:
        raise EndedError(self._why)

    async def _at_door(self, container: int, body: Message, timeout_s: float) -> Any:
        files = ContainerFiles(self.record.working_dir, container)
        if isinstance(body, control_pb2.ListFiles):
            return await asyncio.to_thread(files.listed)
        if isinstance(body, control_pb2.ReadFile):
            return await asyncio.to_thread(files.read, body)
        raise EndedError(self._why)


class EndedTopology(Watched):
    """A topology that has ended: the same questions, answered from what is kept."""

    def __init__(
        self, session: Session, record: plan_pb2.ExecutionState, summary: Topology, plan: Plan | None, load: Load | None
    ) -> None:
        super().__init__(session, record)
        self.ended_at = summary.ended_at
        self.gone = without_values(summary).cause  # an error is said to all who may ask
        self.master = _Files(session, record, self.gone)
        self._summary, self._plan_kept, self._load_kept = summary, plan, load
        self.tasks_kept: Tasks | None = None

    @property
    def answers(self) -> bool:
        """What is kept is always there."""
        return True

    async def refresh(self, fresh_s: float | None = None) -> None:
        """Nothing changes any more."""

    def summary(self) -> Topology:
        """What is known of its end."""
        return self._summary

    async def plan(self) -> Plan:
        """The last plan; EndedError when none was seen."""
        return await self.read_plan()

    async def read_plan(self) -> Plan:
        """The last plan; EndedError when none was seen."""
        if self._plan_kept is None:
            raise EndedError(f"{self.gone}; its plan is not kept")
        return self._plan_kept

    def known_plan(self) -> Plan | None:
        """The last plan."""
        return self._plan_kept

    def load(self) -> Load | None:
        """The last figures while it ran."""
        return self._load_kept

    async def tasks(self) -> Tasks:
        """The last figures of its tasks; EndedError when none were seen."""
        if self.tasks_kept is None:
            raise EndedError(f"{self.gone}; the figures of its tasks are not kept")
        return self.tasks_kept

    async def diagnosis(self) -> Diagnosis:
        """Nobody examines what has ended."""
        raise EndedError(self.gone)


async def ended_topology(history: History, session: Session, run: Run) -> EndedTopology:
    """What is kept of a run; its end is noted first, if nobody has."""

    def look(store: Store) -> tuple[bytes | None, ...]:
        if run.ended_at is None:
            finish(store, run, time.time())
        return tuple(store.document(run.id, kind) for kind in (TOPOLOGY, PLAN, LOAD, TASKS))

    summary, plan, load, tasks = await history.do(look)
    record = record_of(run)
    known = decoded(summary, Topology)
    if known is None or known.ended_at is None:
        known = _summary(record, known, None, "ended", run.ended_at or run.seen_at)
    found = EndedTopology(session, record, known, decoded(plan, Plan), decoded(load, Load))
    found.tasks_kept = _as_ended(decoded(tasks, Tasks))
    return found


def _as_ended(tasks: Tasks | None) -> Tasks | None:
    """With the states of what ran when it was seen last, and has ended since."""
    if tasks is None:
        return None
    for task in tasks.tasks:
        if task.state not in _OVER:
            task.state, task.up = ENDED_STATE, False
    for process in tasks.processes:
        if process.state not in _OVER:
            process.state = ENDED_STATE
    return tasks
