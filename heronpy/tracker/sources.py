"""The tracker's data about its clusters, requested only while there are viewers, and once for all viewers.

A topology master that does not answer is polled less and less often, down to once every 10 s. A caller
waits for at most one request.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from google.protobuf.message import DecodeError
from msgspec.structs import replace

from heronpy.clusters.masters import Master, NoMasterError
from heronpy.clusters.records import Doing
from heronpy.clusters.session import Session
from heronpy.clusters.summary import DEAD, NO_ANSWER, NO_MASTER, SENTENCES, STARTING, how_ended, topology_of
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.statemgr import paths
from heronpy.tmaster.minutes import MINUTE_S
from heronpy.tracker.samples import Samples
from heronpy.views.load import TASK_METRICS, Load, LoadAnswer, Tasks, tasks_of
from heronpy.views.overview import Topology
from heronpy.views.past import Timeline
from heronpy.views.plan import Plan, plan_of

if TYPE_CHECKING:
    from heronpy.health.signals import Signals
    from heronpy.views.findings import Finding

T = TypeVar("T")
Diagnosis: TypeAlias = "tuple[Signals, list[Finding]]"

#: The maximum age of an answer that is reused for another caller.
FRESH_S = 1.9
ASK_S = 2.0
#: The longest pause between two requests to a topology master that does not answer.
PAUSE_MAX_S = 10.0
#: Rates and quantiles of tasks cover this period.
TASK_WINDOW_S = 10.0
#: The windows of `heron doctor`.
DIAGNOSIS_WINDOW_S, DIAGNOSIS_FRESH_S = 300.0, 5.0
#: The state of a topology while a command removes it, and how such commands describe their activity.
KILLING = "KILLING"
_REMOVING = frozenset(doing.value for doing in Doing)
#: Seconds between the points of `recent_per_s`, and number of kept points.
RECENT_S, RECENT_MAX = 10.0, 30


class Shared(Generic[T]):
    """A request that several callers share: at most one request is in flight, and all callers use its answer."""

    def __init__(self, ask: Callable[[], Awaitable[T]], fresh_s: float = FRESH_S) -> None:
        self._ask = ask
        self._fresh_s = fresh_s
        self._under_way: asyncio.Task[T] | None = None
        self._answer: tuple[float, T] | None = None

    async def get(self, fresh_s: float | None = None) -> T:
        """Return the answer, at most `fresh_s` old (by default, the usual age). Raises the error of the request."""
        fresh_s = self._fresh_s if fresh_s is None else fresh_s
        if self._answer is not None and time.monotonic() - self._answer[0] < fresh_s:
            return self._answer[1]
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.ensure_future(self._do())
        # A client that disconnects must not cancel the request for other clients.
        return await asyncio.shield(self._under_way)

    async def _do(self) -> T:
        answer = await self._ask()
        self._answer = (time.monotonic(), answer)
        return answer


class Watched:
    """One topology, from when it is submitted until it is removed."""

    def __init__(self, session: Session, record: plan_pb2.ExecutionState) -> None:
        self.session = session
        self.record = record
        self.master = Master(session, record)
        #: Why the topology is gone; empty while it exists.
        self.gone = ""
        #: Time of the end; None if the topology has not ended.
        self.ended_at: float | None = None
        self.reply: LoadAnswer | None = None
        self.definition: topology_pb2.Topology | None = None
        self.packing: plan_pb2.PackingPlan | None = None
        self.physical: plan_pb2.PhysicalPlan | None = None
        self._plan: Plan | None = None
        #: Whether the topology passes batches to Spark.
        self._spark: bool | None = None
        self._job = False
        self._node = 0
        self._absent, self._cause = STARTING, ""
        self._heard_at: float | None = None
        self._ask_at = self._pause_s = 0.0
        #: The last minutes' figures of running topologies.
        self.samples = Samples()
        self._recent: deque[float | None] = deque(maxlen=RECENT_MAX)
        self._recent_at = 0.0
        self._load: Shared[None] = Shared(self._ask_load)
        self._tasks: Shared[Tasks] = Shared(self._ask_tasks)
        self._diagnosis: Shared[Diagnosis] = Shared(self._examine, DIAGNOSIS_FRESH_S)

    @property
    def name(self) -> str:
        return self.record.topology

    @property
    def place(self) -> str:
        """Cluster, role, environ and name."""
        return f"{self.record.cluster}/{self.record.role}/{self.record.environ}/{self.record.topology}"

    @property
    def silent_s(self) -> float | None:
        """Seconds since the topology master last answered; 0 while it answers, None if it never did."""
        if self._heard_at is None:
            return None
        age_s = time.monotonic() - self._heard_at
        return 0.0 if age_s < 2 * ASK_S + FRESH_S else float(round(age_s))

    @property
    def answers(self) -> bool:
        """Whether the topology master answered the last request."""
        return self.reply is not None and not self._absent

    # ---- figures ----------------------------------------------------------------------------

    async def refresh(self, fresh_s: float | None = None) -> None:
        """Request the figures from the topology master, unless requests were sent a moment ago or have just failed."""
        await self._load.get(fresh_s)

    async def _ask_load(self) -> None:
        if time.monotonic() < self._ask_at:
            return
        known = self.physical.version if self.physical is not None else 0
        try:
            reply = await self.master.look(control_pb2.GetLoad(plan_version=known), LoadAnswer, ASK_S)
            plan = plan_pb2.PhysicalPlan.FromString(reply.plan) if reply.plan is not None else None
        except NoMasterError as error:
            self._away(*await asyncio.to_thread(self._why, NO_MASTER, str(error)))
            return
        except (HeronError, DecodeError) as error:
            self._away(*await asyncio.to_thread(self._why, NO_ANSWER, str(error)))
            return
        if reply.topology_id not in ("", self.record.topology_id):
            self._away(NO_ANSWER, "another topology with this name answers")
            return
        if plan is not None:
            self.physical = plan
        await self._follow_plan(plan is not None)
        self.reply, self._absent, self._cause = reply, "", ""
        self._heard_at, self._ask_at, self._pause_s = time.monotonic(), 0.0, 0.0
        await self._note_rate(reply.load.at)
        self.samples.see(self.load() or reply.load)

    def _away(self, state: str, cause: str) -> None:
        self._absent, self._cause = state, cause
        self._pause_s = min(max(ASK_S, 2 * self._pause_s), PAUSE_MAX_S)
        self._ask_at = time.monotonic() + self._pause_s

    def _why(self, absent: str, text: str) -> tuple[str, str]:
        """Return state and cause of a topology whose master does not answer (NO_ANSWER) or does not exist. Blocking."""
        try:
            doing = self.session.state.get(paths.operation(self.name))
            if doing is not None and doing[0].decode(errors="replace") in _REMOVING:
                return KILLING, f"topology '{self.name}' is being killed"  # it may not answer while it is being killed
            if absent == NO_ANSWER:
                return absent, text
            waits_for = self.session.starting(self.record)
            if waits_for is not None:
                return STARTING, waits_for.value
            if self.session.scheduler_location(self.name) is not None:
                return NO_MASTER, text
            return DEAD, f"no process of topology '{self.name}' is running; {self.session.cure_of_dead(self.name)}"
        except HeronError as error:
            return absent, text if absent == NO_ANSWER else str(error)

    async def _follow_plan(self, newer: bool) -> None:
        """Read the plan if it has changed. When an update ends, only the plan's version changes."""
        try:
            node = await asyncio.to_thread(self._plan_node)
            if newer or self._plan is None or node != self._node:
                await self.read_plan()
                self._node = node
        except HeronError:
            return  # the figures are shown without it; the next answer reads it again

    def _plan_node(self) -> int:
        """Return the version of the packing plan's node; 0 without a node. Blocking."""
        found = self.session.state.get(paths.packing_plan(self.name))
        return found[1] if found is not None else 0

    async def read_plan(self) -> Plan:
        """Return the current plan from the state manager."""
        definition = await asyncio.to_thread(self.session.topology, self.name)
        packing = await asyncio.to_thread(self.session.packing_plan, self.name)
        submitted = await asyncio.to_thread(self.session.submitted, self.name)
        self._spark = submitted.needs_spark if submitted is not None else None
        self._job = await asyncio.to_thread(self.session.state.exists, paths.job(self.name))
        self.definition, self.packing = definition, packing
        stmgrs = self.physical.stmgrs if self.physical is not None else ()
        hosts = {stmgr.container: stmgr.host for stmgr in stmgrs if stmgr.host}
        self._plan = plan_of(definition, packing, self.physical, hosts)
        return self._plan

    async def _note_rate(self, at: float) -> None:
        now = time.monotonic()
        if now - self._recent_at < RECENT_S:
            return
        if not self._recent_at or now - self._recent_at >= 2 * MINUTE_S:
            self._recent.extend(await self._rates_before(at))
        else:
            self._recent.extend([None] * (int((now - self._recent_at) / RECENT_S) - 1))
        self._recent.append(self.summary().emitted_per_s)
        self._recent_at = now

    async def _rates_before(self, at: float) -> list[float | None]:
        """Return the points of `recent_per_s` before a time.

        There were no viewers then, so each point is the mean of its minute.
        """
        asked = control_pb2.GetTimeline(components=[""], names=["emitted"], since=at - RECENT_MAX * RECENT_S)
        try:
            told = await self.master.look(asked, Timeline, ASK_S)
        except HeronError:
            return []
        values = told.series[0].values if told.series else []
        return [value for value in values for _ in range(int(MINUTE_S / RECENT_S))]

    # ---- views ------------------------------------------------------------------------------

    def summary(self) -> Topology:
        return topology_of(
            self.record, self.reply, self.definition, self.packing,
            absent=self._absent, cause=self._cause, recent=list(self._recent), spark=self._spark, job=self._job,
        )  # fmt: skip

    async def plan(self) -> Plan:
        """Return the plan. Raises HeronError if the state manager cannot be read."""
        return self._plan if self._plan is not None else await self.read_plan()

    def known_plan(self) -> Plan | None:
        """Return the plan, if it has been read."""
        return self._plan

    def load(self) -> Load | None:
        """Return the newest figures; the same object until newer figures arrive, and None before the first figures."""
        if self.reply is None:
            return None
        # A page compares this version with that of the plan.
        version = self.packing.version if self.packing is not None else 0
        if self.reply.load.plan_version != version:
            self.reply = replace(self.reply, load=replace(self.reply.load, plan_version=version))
        return self.reply.load

    async def tasks(self) -> Tasks:
        """Return the figures of all tasks. Raises HeronError if the topology master does not answer."""
        return await self._tasks.get()

    async def _ask_tasks(self) -> Tasks:
        metrics = control_pb2.GetMetrics(names=TASK_METRICS, interval_s=TASK_WINDOW_S)
        status, report = await asyncio.gather(self.master.ask(control_pb2.GetStatus()), self.master.ask(metrics))
        version = self.packing.version if self.packing is not None else 0
        # In a thread, because this takes a long time for many tasks, and other requests must not wait.
        return await asyncio.to_thread(tasks_of, status, report, version, time.time())

    async def diagnosis(self) -> Diagnosis:
        """Return the doctor's diagnosis. Raises HeronError if the topology master does not answer."""
        return await self._diagnosis.get()

    async def _examine(self) -> Diagnosis:
        # A diagnosis sends a dozen requests, one after the other, like the command.
        return await asyncio.to_thread(_look, self.session, self.name)

    def close(self, why: str) -> None:
        """Record that the topology is gone."""
        self.gone = why
        self.master.close()


def _look(session: Session, name: str) -> Diagnosis:
    """Examine a topology. Blocking."""
    from heronpy.clusters.examining import look  # imported here, because it takes as long as all other imports

    return look(session, name, DIAGNOSIS_WINDOW_S)


class ClusterSource:
    """The topologies of one cluster."""

    def __init__(self, name: str, common: Common) -> None:
        self.name = name
        self._common = common
        self.session = Session(Target(name), common)
        self.topologies: dict[str, Watched] = {}
        #: Why the cluster cannot be read now; empty if it can be read.
        self.trouble = ""
        self._records: Shared[None] = Shared(self._read)

    @contextmanager
    def own_session(self) -> Iterator[Session]:
        """Yield a separate session for a single change, because locks belong to a session; blocking."""
        session = Session(Target(self.name), self._common)
        try:
            yield session
        finally:
            if "state" in session.__dict__:
                session.state.close()

    async def refresh(self) -> None:
        """Read the list of topologies, unless it was read a moment ago."""
        await self._records.get()

    async def _read(self) -> None:
        try:
            records = await asyncio.to_thread(self.session.topologies)
        except (HeronError, OSError) as error:
            self.trouble = str(error)
            return
        self.trouble = ""
        found = {record.topology: record for record in records}
        for name, watched in list(self.topologies.items()):
            record = found.get(name)
            if record is None:
                last = watched.reply.load.state if watched.reply is not None else ""
                self._forget(name, f"topology '{name}' {SENTENCES[how_ended(last.lower())]}")
            elif record.topology_id != watched.record.topology_id:
                self._forget(name, f"topology '{name}' was killed and submitted again")
        for name, record in found.items():
            if name not in self.topologies:
                self.topologies[name] = Watched(self.session, record)

    def _forget(self, name: str, why: str) -> None:
        self.topologies.pop(name).close(why)

    def close(self) -> None:
        """Close all connections and the state manager."""
        for name in list(self.topologies):
            self._forget(name, "the tracker is stopping")
        if "state" in self.session.__dict__:
            self.session.state.close()
