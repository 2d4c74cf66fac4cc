"""Observes topologies and performs the steps of plans in a syncer's process; see `syncer.Driver`.

Topologies start from stored definitions, so this process runs no user code; only `Check` runs user code, in a child.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from heronpy.clusters import scaling, update_outcome
from heronpy.clusters.errors import NotThereError, RequestError
from heronpy.clusters.killing import remove
from heronpy.clusters.pools import has_member
from heronpy.clusters.room import size_problem, slot_sizes
from heronpy.clusters.session import Session
from heronpy.clusters.stopping import EFFECTIVELY_ONCE, Stop
from heronpy.clusters.takedown import leftovers
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import (
    ConfigError,
    DamagedStateError,
    HeronError,
    NoNodeError,
    PackageError,
    TopologyError,
)
from heronpy.common.folders import heron_home
from heronpy.common.setting_types import PackingSettings
from heronpy.common.settings import settings_for
from heronpy.common.states import UP_STATES, has_failed, lifecycle_name, task_name
from heronpy.common.topology_keys import (
    TOPOLOGY_COMPONENT_CPU,
    TOPOLOGY_COMPONENT_PARALLELISM,
    TOPOLOGY_COMPONENT_RAM,
)
from heronpy.common.units import MB, counted, parse_bytes
from heronpy.engines.contract import NodeSize
from heronpy.jobs import plans
from heronpy.jobs.differ import Difference
from heronpy.jobs.documents import ALLOW_DROPPED, EMPTY, Leaves, Path, Value, name_of
from heronpy.jobs.merge import values_of
from heronpy.jobs.plans import Seen, Step
from heronpy.jobs.store import PLAIN, Definition, Store, View
from heronpy.jobs.syncer import Running, StepError
from heronpy.launching import importing, in_pool, submission
from heronpy.launching.model import Kept, Planned, Restore, Warn, unheard
from heronpy.launching.restoring import LATEST, choose
from heronpy.packing import pack
from heronpy.packing.demand import ResourceRequest, padding_of, requests_of, size_text
from heronpy.plan.component_config import ASYNC_CONCURRENCY, auto_typed, config_of, reliability_mode, set_key
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.packing_plan import tasks_by_component
from heronpy.proto import components_of, control_pb2, plan_pb2, topology_pb2
from heronpy.scaling.capacity import Amount
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager
from heronpy.views.exception_groups import short_line

log = logging.getLogger("heronpy.jobs")

POLL_S: Final = 2.0
STATE_S: Final = 90.0
UPDATE_S: Final = 300.0
STOP_S: Final = 300.0
#: A task that was restarted this many times during `Prove` counts as crashing.
STARTS_MAX: Final = 2
#: Errors that recur when the step is retried.
_FATAL: Final = (ConfigError, TopologyError, PackageError, RequestError, DamagedStateError)
#: Field of a definition, in addition to its package: the role of the topology.
#: Beginning of the decision to restore a checkpoint.
STARTS_FROM: Final = "the topology starts from checkpoint"
ROLE: Final = "role"
ENVIRON: Final = "environ"


def topology_of(definition: Definition) -> topology_pb2.Topology:
    """Return the topology of a program as it was deployed."""
    return topology_pb2.Topology.FromString(definition.topology)


def definition_of(
    topology: topology_pb2.Topology, kept: Kept, role: str, environ: str, plain: tuple[str, ...] = ()
) -> Definition:
    """Return the definition to store for a program whose package is already stored.

    `plain` contains the components that are known to keep a plain State.
    """
    stored = topology_pb2.Topology()
    stored.CopyFrom(topology)
    stored.id, stored.state = "", topology_pb2.RUNNING
    place: dict[str, Any] = {ROLE: role, ENVIRON: environ, **({PLAIN: list(plain)} if plain else {})}
    return Definition(stored.SerializeToString(deterministic=True), {**msgspec.structs.asdict(kept), **place})


def own_leaves(topology: topology_pb2.Topology, known: Mapping[Path, Value]) -> Leaves:
    """Return the program's own values, the weakest layer.

    `known` contains the job's last leaves, overridden by the leaves of its layers. If the program does not set a size
    or concurrency, its value is 0, which means the submitted value.
    """
    own: Leaves = {("run",): "running"}
    for component in LogicalPlan.from_topology(topology).definitions:
        own["parallelism", component.name] = component.parallelism
    for path, value in known.items():
        text = _text_at(topology, path)
        if text is not None:
            own[path] = _value(path, text, value)
        elif path[0] in _SUBMITTED and _config_at(topology, path) is not None:
            own[path] = 0
    return own


class Wish(NamedTuple):
    """The desired state of a job, with the program's own values."""

    leaves: Leaves
    versions: dict[str, int]
    """The version of each layer of the job."""
    ends_at: float = math.inf
    """When the first temporary change ends."""


def wished_of(store: Store, job: str, running: Running) -> Wish:
    """Return the current desired state of a job; STOPPED if the job does not exist."""
    try:
        return wish_of(store, store.get(job), running)
    except NoNodeError:
        return Wish(plans.STOPPED, {})


def wish_of(store: Store, view: View, running: Running) -> Wish:
    """Return the desired state of a job with this view."""
    leaves = values_of(view.found)
    topology = topology_of(store.definition(str(leaves["definition",])))
    ends = [at for found in view.found.values() if (at := found.entry.stamp.until) is not None]
    own = own_leaves(topology, dict(running.leaves) | leaves)
    return Wish(own | leaves, view.versions, min(ends, default=math.inf))


#: Leaves of a component and their configuration keys. If the configuration of the component lacks the key, the value
#: from the submission applies.
_SUBMITTED: Final = ("resources", "concurrency")
_KEYS: Final = {
    ("parallelism", ""): TOPOLOGY_COMPONENT_PARALLELISM,
    ("concurrency", ""): ASYNC_CONCURRENCY,
    ("resources", "ram"): TOPOLOGY_COMPONENT_RAM,
    ("resources", "cpu"): TOPOLOGY_COMPONENT_CPU,
}


def _config_at(topology: topology_pb2.Topology, path: Path) -> tuple[topology_pb2.Config, str] | None:
    """Return the configuration that contains a leaf, and the leaf's key in it; None if the leaf has no such key."""
    if path[0] == "config":
        return topology.topology_config, path[-1]
    key = path[-1] if path[0] == "component_config" else _KEYS.get((path[0], "".join(path[2:])))
    part = components_of(topology).get(path[1]) if key is not None else None
    return (part.comp.config, str(key)) if part is not None else None


def _text_at(topology: topology_pb2.Topology, path: Path) -> str | None:
    """Return the configured text of a leaf; None if it is not configured."""
    found = _config_at(topology, path)
    return _texts(found[0]).get(found[1]) if found is not None else None


def _texts(config: topology_pb2.Config) -> dict[str, str]:
    return {item.key: item.value for item in config.kvs if not item.HasField("serialized_value")}


def _value(path: Path, text: str, like: Value | None) -> Value:
    """Parse a configured text; returns `like` if it has the same text."""
    if path[0] == "resources":
        return parse_bytes(text) if path[2] == "ram" else float(text)
    return like if like is not None and str(like) == text else auto_typed(text)


@dataclass(slots=True)
class _Calm:
    """Measures how long a topology has run without trouble."""

    topology_id: str
    since: float
    epochs: dict[int, int] = field(default_factory=dict)
    starts: Counter[int] = field(default_factory=Counter)


class TopologyDriver:
    """The driver for a cluster's jobs. Safe to call from several threads, but only one call at a time may concern
    the same job.
    """

    def __init__(
        self, target: Target, common: Common, state: StateManager, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._target, self._common, self._state, self._clock = target, common, state, clock
        self._store = Store(state)
        #: Map from job to its time without trouble.
        self._calm: dict[str, _Calm] = {}
        #: Schedulers that this process started and must reap.
        self._started: list[subprocess.Popen[bytes]] = []

    # ---- looking ----------------------------------------------------------------------------

    def see(self, job: str, leaves: Leaves) -> Seen:
        """Observe the topology with this name. Raises HeronError if its state cannot be determined now."""
        self._started = [process for process in self._started if process.poll() is None]
        session = self._session()
        record = session.record(job)
        if record is None:
            self._calm.pop(job, None)
            return Seen()
        status = session.poll(job, POLL_S)
        life = lifecycle_name(status.lifecycle) if status is not None else ""
        finished = life == "FINISHED"
        alive = not finished and life != "FAILED" and is_alive(session, record)
        running_s, trouble = self._look(session, record, status)
        if not alive:
            return Seen(record.topology_id, finished=finished, trouble="" if finished else trouble)
        packing = session.packing_plan(job)
        return Seen(
            record.topology_id,
            alive=True,
            leaves=_seen_leaves(current_topology(session, record), packing, leaves),
            plan_version=packing.version,
            running_s=running_s,
            trouble=trouble,
            waits="" if trouble or running_s else _waits(session.containers(job), status),
        )

    def _look(
        self, session: Session, record: plan_pb2.ExecutionState, status: control_pb2.StatusReply | None
    ) -> tuple[float, str]:
        """Return how many seconds the topology has run without trouble, and its current trouble or ""."""
        now, name = self._clock(), record.topology
        calm = self._calm.get(name)
        if calm is None or calm.topology_id != record.topology_id:
            calm = self._calm[name] = _Calm(record.topology_id, now)
        if status is None:
            calm.since = now
            failed = session.failed_container(name)
            return 0.0, f"{failed.name} failed: {failed.exit_detail}" if failed is not None else ""
        # A topology master that has just started, as after a move, has not received reports of all tasks.
        known = [task for task in status.tasks if task.epoch]
        again = [task for task in known if task.epoch != calm.epochs.setdefault(task.task_id, task.epoch)]
        for task in again:
            calm.epochs[task.task_id] = task.epoch
            calm.starts[task.task_id] += 1
        runs = lifecycle_name(status.lifecycle) in ("RUNNING", "PAUSED", "FINISHING")
        if again or not runs or not all(task.state in UP_STATES for task in status.tasks):
            calm.since = now
        if has_failed(status):
            first = next(iter(status.startup_exceptions), None)
            said = f"{first.instance_id or first.process}: {first.type}: {first.message.strip()}" if first else ""
            return 0.0, " ".join((said or status.cause or f"topology '{name}' has failed").split())[:500]
        crashing = next((task for task in status.tasks if calm.starts[task.task_id] >= STARTS_MAX), None)
        if crashing is not None:
            starts = f"{task_name(crashing)} has started {calm.starts[crashing.task_id] + 1} times"
            return 0.0, ended_text(status, self._raised(session, name)) or starts
        return now - calm.since, ""

    def _raised(self, session: Session, name: str) -> list[control_pb2.ExceptionReport]:
        """Return the exceptions that a topology's user code raised; none if the topology master does not answer."""
        with suppress(HeronError):
            return list(session.ask(name, control_pb2.GetExceptions(), POLL_S).exceptions)
        return []

    # ---- performing -------------------------------------------------------------------------

    def perform(self, job: str, step: Step) -> Mapping[str, int]:
        """Perform a step. Raises StepError if it fails."""
        log.info("job %s: %s", job, type(step).__name__.lower())
        try:
            match step:
                case plans.Check():
                    self._check(job, step)
                case plans.Start():
                    self._start(job, step)
                case plans.Stop():
                    return self._stop(job, step)
                case plans.End():
                    self._end(job, step.topology_id)
                case plans.Configure():
                    self._configure(job, step)
                case plans.SetState():
                    active = step.differences[0].new != "paused"
                    self._session().ask(job, control_pb2.SetState(active=active), STATE_S)
                case plans.Update() | plans.Resize():
                    return self._update(job, step)
        except HeronError as error:
            raise StepError(" ".join(str(error).split())[:1000], isinstance(error, _FATAL)) from error
        except OSError as error:
            place = f": {error.filename}" if error.filename else ""
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                place += f"; free space on the disk of {error.filename or heron_home()}"
            raise StepError(f"{error.strerror}{place}") from error
        return {}

    def _check(self, job: str, step: plans.Check) -> None:
        session, planned, kept = self.prepared(job, dict(step.leaves), "")
        if planned.pool:
            in_pool.check(session, planned, submission.requests(planned))
        submitted = submission.submitted_of(session, planned, submission.kept_here(kept))
        record, restore = session.record(job), str(dict(step.leaves).get(("restore",), LATEST))
        if record is None:  # no topology is stopped for this start, and the tasks report failed imports
            _chosen(planned, restore)
        else:  # the running topology will be stopped with a savepoint
            importing.check(submitted, planned.topology)
            _chosen(planned, restore, record.topology_id, _counts(session.packing_plan(job)))

    def _start(self, job: str, step: plans.Start) -> None:
        session, planned, kept = self.prepared(job, dict(step.leaves), step.topology_id)
        record = session.record(job)
        if record is not None and record.topology_id == step.topology_id:
            if is_alive(session, record):
                return
            remove(session, job, topology_id=step.topology_id)
        planned.restore = _chosen(planned, step.restore, step.savepoint_of, warn=log.warning)
        if planned.restore is not None:
            self._store.decided(job, "manager", "", f"{STARTS_FROM} {planned.restore.checkpoint}")
        if planned.pool:
            submission.start_in_pool(session, planned, kept, time.time(), log.warning)
            return
        self._started.append(submission.start(session, planned, kept, begun_at=time.time(), warn=log.warning).scheduler)

    def _stop(self, job: str, step: plans.Stop) -> Mapping[str, int]:
        session = self._session()
        status = session.status(job)
        # a topology in these states has processed nothing yet
        if lifecycle_name(status.lifecycle) not in ("STARTING", "WAITING"):
            stop = Stop(session, job, time.monotonic() + STOP_S, STOP_S)
            ends = lifecycle_name(status.lifecycle) in ("FINISHING", "FINISHED")
            savepoint = reliability_mode(session.topology(job)) == EFFECTIVELY_ONCE and not ends
            stop.check(savepoint)
            with stop.spouts_at_rest():
                if savepoint:
                    stop.take_savepoint()
                else:
                    stop.drain()
        self._end(job, step.topology_id)
        return Counter(task.component for task in status.tasks) if step.again is not None else {}

    def _end(self, job: str, topology_id: str) -> None:
        session = self._session()
        record = session.record(job)
        if record is not None and record.topology_id == topology_id:
            remove(session, job, topology_id=topology_id, waits=log.info)

    def _configure(self, job: str, step: plans.Configure) -> None:
        session, keys = self._session(), {"concurrency": f":{ASYNC_CONCURRENCY}"}
        texts = [
            f"{':'.join(one.path[1:])}{keys.get(one.path[0], '')}:{one.new}"
            for one in step.differences
            if one.new is not None
        ]
        for one in step.differences:
            if one.new is None and one.old is not None:  # a running task cannot lose a key
                text = f"nothing sets {name_of(one.path)} any more; its value {one.old} applies until the next start"
                self._store.decided(job, "manager", "", text)
        if texts:
            scaling.check_runtime_config(session.topology(job), tuple(texts))
            update_outcome.configure(session, job, control_pb2.RuntimeConfig(settings=texts), STATE_S, log.warning)

    def _update(self, job: str, step: plans.Update | plans.Resize) -> Mapping[str, int]:
        session = self._session()
        before, old = session.status(job), session.packing_plan(job)
        if step.replaces not in (0, old.version):
            raise StepError(f"topology '{job}' was changed by another user or program in the meantime")

        def texts(differences: tuple[Difference, ...], *kind: str) -> tuple[str, ...]:
            those = (one for one in differences if one.path[::2] == kind and one.new is not None)
            return tuple(f"{one.path[1]}:{one.new}" for one in those)

        def planned(differences: tuple[Difference, ...]) -> tuple[topology_pb2.Topology, plan_pb2.PackingPlan]:
            sizes = texts(differences, "resources", "ram"), texts(differences, "resources", "cpu")
            counts = texts(differences, "parallelism")
            topology, new = scaling.replan(session, job, old, counts, None, *sizes)
            submitted = session.submitted(job) if isinstance(step, plans.Update) else None
            if submitted is None or not submitted.pool:
                return topology, new
            packing = settings_for(submitted, PackingSettings)
            fitted = in_pool.fitted(
                session,
                submitted.pool,
                new,
                lambda count: scaling.replan(session, job, old, counts, count, *sizes)[1],
                lambda plan: requests_of(plan, topology, packing),
            )
            if fitted is new:
                return topology, new
            return scaling.replan(session, job, old, counts, len(fitted.containers), *sizes)

        topology, new = planned(step.differences)
        if isinstance(step, plans.Resize) and new == old:
            # An earlier driver may have ended between the update and the replacement of the containers.
            _, smaller = planned(tuple(one.back for one in step.differences))
            scaling.renew(session, job, topology, smaller, new, UPDATE_S)
        else:
            scaling.scale(session, job, old, topology, new, 0.0, UPDATE_S, log.warning)
        epochs = {task.task_id: task.epoch for task in before.tasks}
        after = session.status(job).tasks
        return Counter(task.component for task in after if epochs.get(task.task_id, task.epoch) != task.epoch)

    def needs(self, job: str, leaves: Leaves) -> tuple[dict[str, Amount], Amount]:
        """Return the resources of one task of each component in a pool, and what the job needs in addition.

        Raises RequestError if a container fits into no slot.
        """
        session, planned, _ = self.prepared(job, leaves, "")
        settings, requests = settings_for(planned.resolved, PackingSettings), submission.requests(planned)
        if problem := size_problem(requests, slot_sizes(session, planned.pool)):
            raise RequestError(too_large(planned, requests, slot_sizes(session, planned.pool), settings) or problem)
        factor = 1 + padding_of(config_of(planned.topology), settings)[0] / 100
        tasks = [task for container in planned.packing_plan.containers for task in container.instances]
        each = {
            task.component: Amount(
                task.resource.cpu or settings.instance_cpu, task.resource.ram_bytes or settings.instance_ram_bytes
            ).times(factor)
            for task in tasks
        }
        asked = sum((Amount(one.cpu, one.ram_bytes) for one in requests.values()), Amount())
        return each, asked - sum((each[task.component] for task in tasks), Amount())

    # ---- parts ------------------------------------------------------------------------------

    def _session(self, definition: Definition | None = None, settings: tuple[str, ...] = ()) -> Session:
        target, common = self._target, self._common
        if definition is not None:
            role, environ = definition.submitted[ROLE], definition.submitted[ENVIRON]
            target = Target(target.cluster, role, environ)
            common = msgspec.structs.replace(common, config_property=(*common.config_property, *settings))
        session = Session(target, common)
        session.state = self._state
        return session

    def prepared(self, job: str, leaves: Leaves, topology_id: str) -> tuple[Session, Planned, Kept]:
        """Return the session, the plan and the package for starting a topology with these leaves."""
        definition = self._store.definition(str(leaves["definition",]))
        fields = {name: value for name, value in definition.submitted.items() if name not in (ROLE, ENVIRON, PLAIN)}
        kept = msgspec.convert(fields, Kept)
        topology = topology_of(definition)
        topology.id = topology_id or topology.id or job
        topology.state = topology_pb2.PAUSED if leaves.get(("run",)) == "paused" else topology_pb2.RUNNING
        settings = []
        for path, value in leaves.items():
            found = _config_at(topology, path)
            if found is not None and not (path[0] in _SUBMITTED and not value):
                set_key(*found, str(value))
            elif path[0] == "settings":
                settings.append(f"{path[1]}={json.dumps(value) if isinstance(value, bool | dict) else value}")
        pool = str(leaves.get(("place", "pool"), ""))
        if pool:
            settings.append(f"heron.engine.kind={in_pool.engine_of(self._session(), pool)}")
        session = self._session(definition, tuple(settings))
        planned = submission.plan(session, topology, log.warning)
        if pool:
            planned.pool, settings_ = pool, settings_for(planned.resolved, PackingSettings)
            planned.packing_plan = in_pool.fitted(
                session,
                pool,
                planned.packing_plan,
                lambda count: pack(topology, settings_, count),
                lambda plan: requests_of(plan, topology, settings_),
            )
        return session, planned, kept


#: Exit reasons that are not the fault of the task.
_NO_FAULT: Final = frozenset(
    {
        control_pb2.EXIT_NONE,
        control_pb2.EXIT_OK,
        control_pb2.EXIT_FINISHED,
        control_pb2.EXIT_PREEMPTED,
        control_pb2.EXIT_REWOUND,
        control_pb2.EXIT_MOVED,
        control_pb2.EXIT_RESTARTED,
    }
)


def _waits(told: control_pb2.ContainersReply | None, status: control_pb2.StatusReply | None) -> str:
    """Return what a topology waits for before it runs; "" if it does not wait."""
    queued = next((one for one in (told.containers if told is not None else ()) if one.phase == "QUEUED"), None)
    if queued is not None and not queued.exit_reason:
        return f"{queued.name} is in the queue" + (f": {queued.exit_detail}" if queued.exit_detail else "")
    waits = status is not None and lifecycle_name(status.lifecycle) == "WAITING"
    return (status.cause or "the topology is WAITING") if waits and status is not None else ""


def ended_text(status: control_pb2.StatusReply, raised: Collection[control_pb2.ExceptionReport]) -> str:
    """Return which task has failed, and why; "" if no task is known to have failed.

    A restore ends all tasks of a topology, so the number of starts does not identify the failed task.
    """
    ended = [
        process
        for executor in status.executors
        for process in executor.processes
        if process.task_id and process.restarts and process.exit not in _NO_FAULT
    ]
    one = max(ended, key=lambda process: process.restarts, default=None)
    theirs = [report for report in raised if one is None or report.instance_id == one.name]
    newest = max(theirs, key=lambda report: (report.count, report.last_at), default=None)
    line = short_line(newest.traceback) if newest is not None and newest.traceback else ""
    where = f" in {line}" if line else ""
    if one is not None:
        why = ": ".join(part for part in (one.exit_reason.replace("_", " "), one.exit_detail) if part)
        return f"{one.name} has been restarted {counted(one.restarts, 'time')}, the last time after {why}{where}"
    if newest is None:
        return ""
    text = f"{newest.type}: {next(iter(newest.message.splitlines()), '')}".rstrip(": ")
    return f"{newest.instance_id or newest.process} has raised {text}{where}"


def is_alive(session: Session, record: plan_pb2.ExecutionState) -> bool:
    """Whether a topology is running, is being submitted, or is being restarted by its guardian or engine.

    Raises ClusterError if the topology's scheduler, on another host, is gone: only that host can see the guardian.
    """
    name = record.topology
    if session.scheduler_location(name) is not None or session.state.exists(paths.submission(name)):
        return True
    if has_member(session, name, record.topology_id):
        return True
    session.check_here(record, "its guardian can be seen")
    # The guardian of a scheduler on this host restarts it.
    return any("heronpy.scheduler" in _command(process) for process in leftovers(record.launch_file))


def _command(process: Any) -> list[str]:
    try:
        return list(process.cmdline())
    except Exception:  # the scheduler has ended in the meantime
        return []


def too_large(
    planned: Planned,
    requests: Mapping[int, ResourceRequest],
    sizes: Sequence[NodeSize],
    settings: PackingSettings,
) -> str:
    """Describe a task that is alone in its container but does not fit into a slot, with the largest value that fits."""
    factor = 1 + padding_of(config_of(planned.topology), settings)[0] / 100
    for container in planned.packing_plan.containers:
        (task, *others), asked = container.instances, requests[container.id]
        if others or not size_problem({container.id: asked}, sizes):
            continue
        size = max(sizes, key=lambda one: (one.ram_bytes, one.cpu))
        ram = task.resource.ram_bytes or settings.instance_ram_bytes
        cpu = task.resource.cpu or settings.instance_cpu
        ram_fits = int(ram + (size.ram_bytes - asked.ram_bytes) / factor) // MB
        cpu_fits = int((cpu + (size.cpu - asked.cpu) / factor) * 100) / 100
        if min(ram_fits, cpu_fits) <= 0:
            continue
        values = [f"resources.{task.component}.ram={ram_fits}MB"] if asked.ram_bytes > size.ram_bytes else []
        values += [f"resources.{task.component}.cpu={cpu_fits:g}"] if asked.cpu > size.cpu else []
        return (
            f"a task of {task.component} is larger than a slot of {size.where}, which has"
            f" {size_text(size.cpu, size.ram_bytes, None)}; set at most {' and '.join(values)}"
        )
    return ""


def _chosen(
    planned: Planned, restore: str, run: str = "", stopping: Mapping[str, int] | None = None, warn: Warn = unheard
) -> Restore | None:
    """Return the latest checkpoint of a run, or else of any run with the topology's name; None to start empty."""
    if restore == EMPTY or reliability_mode(planned.topology) != EFFECTIVELY_ONCE:
        return None
    for one in dict.fromkeys((run, "")):
        with suppress(NotThereError):
            return choose(planned, LATEST, restore == ALLOW_DROPPED, warn, one, stopping)
    return None


def _counts(packing: plan_pb2.PackingPlan) -> dict[str, int]:
    return {component: len(tasks) for component, tasks in tasks_by_component(packing).items()}


def current_topology(session: Session, record: plan_pb2.ExecutionState) -> topology_pb2.Topology:
    """Return the topology with the latest changes by its topology master."""
    plan = session.physical_plan(record.topology)
    known = plan is not None and plan.topology.id == record.topology_id
    return plan.topology if plan is not None and known else session.topology(record.topology)


def _seen_leaves(topology: topology_pb2.Topology, packing: plan_pb2.PackingPlan, leaves: Leaves) -> Leaves:
    seen: Leaves = {("run",): "paused" if topology.state == topology_pb2.PAUSED else "running"}
    sizes = {task.component: task.resource for container in packing.containers for task in container.instances}
    for path, value in leaves.items():
        text = _text_at(topology, path)
        if text is not None:
            seen[path] = _value(path, text, value)
        elif path[0] in _SUBMITTED:
            seen[path] = 0
        if path[0] == "resources" and seen[path]:  # the packing plan has the real sizes of the tasks
            size = sizes.get(path[1], plan_pb2.Resource())
            seen[path] = size.ram_bytes if path[2] == "ram" else size.cpu
    return seen | {("parallelism", component): count for component, count in _counts(packing).items()}
