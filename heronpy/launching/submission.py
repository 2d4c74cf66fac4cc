"""The steps of a submit between a loaded topology and a running one. If a step fails, the earlier steps are undone.

The steps that can refuse the topology come first and have no side effects (validate, settings, pack). Then the package
is cached. Then, under the lock of the topology's operations, the execution state reserves the name, the launch file and
the plans are written, and the scheduler is started. The scheduler refuses a topology that does not fit its host before
it publishes its location. Until then, the submit undoes its changes; afterwards, `takedown.take_down` does so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec.structs import asdict

from heronpy.clusters import takedown
from heronpy.clusters.errors import ClusterError, NotThereError
from heronpy.clusters.records import Doing
from heronpy.clusters.session import Session
from heronpy.clusters.takedown_outcome import what_may_run
from heronpy.clusters.target import unix_user
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError, HeronError, NodeExistsError, NoNodeError, PackageError, TopologyError
from heronpy.common.folders import check_root, heron_home, make_folders
from heronpy.common.host import this_host
from heronpy.common.log_files import divide_logs
from heronpy.common.setting_types import CheckpointSettings, PackingSettings, SecuritySettings, SparkSettings
from heronpy.common.settings import Resolved, prefer, settings_for
from heronpy.common.version import VERSION
from heronpy.connectors.spark import needs_spark
from heronpy.connectors.spark.requirements import dispatch_homes, spark_sinks
from heronpy.ingest.keys import has_units
from heronpy.launching.model import Kept, Loaded, Planned, Started, Warn, unheard
from heronpy.launching.spawning import spawn_child, spawn_scheduler, wait_scheduler
from heronpy.net import curve, private, transport
from heronpy.packing import pack
from heronpy.packing.demand import ResourceRequest, requests_of
from heronpy.plan.component_config import (
    add_our_names,
    config_of,
    keys_without_effect,
    reliability_mode,
    unsupported_problems,
)
from heronpy.plan.launch import (
    SLOT,
    LaunchSpec,
    Submitted,
    checkpoints_dir,
    make_here,
    packages_dir,
    save_here,
    save_submitted,
    settings_anywhere,
)
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import key_group_problems, validate, warnings
from heronpy.procs.interrupts import heed, uninterrupted
from heronpy.proto import checkpoint_pb2, components_of, control_pb2, plan_pb2, topology_pb2
from heronpy.statemgr import paths
from heronpy.storage.packages import PackageStore, archive_in
from heronpy.storage.roots import check_folders
from heronpy.storage.stores import check_stores, object_store
from heronpy.storage.wheelhouse import digest_of, wheels_of

CLEAN_UP_S = 15.0
_ENVIRONMENT = "heron.engine.environment"
#: Properties of Spark whose files its driver serves.
_HANDED_OUT: Final = frozenset(("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles"))


def plan(session: Session, topology: topology_pb2.Topology, warn: Warn = unheard) -> Planned:
    """Validate, resolve settings and pack; raises TopologyError or ConfigError. `warn` receives warnings."""
    add_our_names(topology)
    logical = LogicalPlan.from_topology(topology)
    validate(logical)
    for text in warnings(logical):
        warn(f"{text[:1].lower()}{text[1:]}")
    _check_support(topology, warn)
    configs = {name: config_of(part) for name, part in components_of(topology).items()}
    resolved = session.resolve(config_of(topology), configs)
    for text in resolved.ignored:
        warn(text)
    session.pin_folders(resolved)
    if reliability_mode(topology) == "EFFECTIVELY_ONCE":
        found = key_group_problems(logical, settings_for(resolved, CheckpointSettings).key_groups)
        if found:
            raise TopologyError("\n".join(found))
        check_stores(settings_for(resolved, CheckpointSettings))
    else:
        resolved.settings["checkpoint"]["replica"] = ""  # nothing is copied, so no process is needed
        if object_store(settings_for(resolved, CheckpointSettings)) is not None:
            resolved.settings["checkpoint"]["root"] = ""  # nothing is stored, so no process needs it
    if needs_spark(topology):
        _warn_of_files(settings_for(resolved, SparkSettings).conf, warn)
        linger_for_spark(topology, logical, resolved)
    if has_units(topology):
        from heronpy.launching import on_units

        on_units.settle(topology, resolved, warn)
    engine = ""
    if settings_for(resolved, EngineSettings).kind:
        from heronpy.launching import on_engine

        engine = on_engine.settle(topology, resolved, session.state_place(resolved)[0])
    transport.check(settings_for(resolved, SecuritySettings))
    check_environment(settings_for(resolved, EngineSettings))
    if engine and needs_spark(topology):
        from heronpy.launching import on_engine

        on_engine.check_spark_of(resolved)
    settings = settings_for(resolved, PackingSettings)
    return Planned(topology, logical, pack(topology, settings, None), resolved, bool(needs_spark(topology)), engine)


def linger_for_spark(topology: topology_pb2.Topology, logical: LogicalPlan, resolved: Resolved) -> None:
    """Make the components whose tuples go only to Spark send less often, unless a user has set the interval.

    A frame costs the same whether it has one tuple or hundreds, and the tuples wait for a Spark batch anyway.
    """
    for component in sorted(only_for(logical, spark_sinks(topology))):
        prefer(resolved, component, "thrift", "linger_max_us", "every tuple waits for a Spark batch")


def only_for(logical: LogicalPlan, sinks: frozenset[str]) -> set[str]:
    """Return the sinks, and the components whose tuples end only in these sinks. Pure."""
    found = set(sinks)
    growing = bool(found)
    while growing:
        fresh = {
            name
            for name in logical.components
            if name not in found and (after := logical.downstream(name)) and found.issuperset(after)
        }
        found |= fresh
        growing = bool(fresh)
    return found


def check_environment(engine: EngineSettings) -> None:
    """Raise ConfigError or PackageError if a wheelhouse is set that the hosts could not install."""
    if not engine.environment:
        return
    if not engine.kind:
        raise ConfigError(
            f"{_ENVIRONMENT} is for clusters with an engine, but this cluster has no engine (heron.engine.kind);"
            " install the dependencies into the Python that runs heron"
        )
    archive = Path(engine.environment)
    if not archive.is_absolute():
        raise ConfigError(
            f"{_ENVIRONMENT} {archive} must be an absolute path, because hosts read it from other working folders"
        )
    if ".." in archive.parts or not any(
        archive.is_relative_to(folder) for folder in engine.shared.split(":") if folder
    ):
        raise ConfigError(
            f"{_ENVIRONMENT} {archive} is not below a folder of heron.engine.shared, so hosts may not find it; move it"
            " there"
        )
    wheels_of(archive)


def environment_digest(engine: EngineSettings) -> str:
    """Return the digest of the wheelhouse; "" if there is none."""
    check_environment(engine)
    return digest_of(Path(engine.environment)) if engine.environment else ""


def _warn_of_files(conf: Mapping[str, object], warn: Warn) -> None:
    """Warn about files that Spark's driver sends to any client without authentication."""
    named = sorted(_HANDED_OUT.intersection(conf))
    if named:
        warn(
            f"heron.spark.conf contains {', '.join(named)}: Spark serves these files to everyone who can reach its"
            " driver, including other users of that machine, so they must contain no secrets"
        )


def _check_support(topology: topology_pb2.Topology, warn: Warn) -> None:
    """Warn once about features that this release lacks, and about settings without effect."""
    owners = [(f"topology '{topology.name}'", config_of(topology))]
    owners += [(f"component '{name}'", config_of(part)) for name, part in components_of(topology).items()]
    for owner, config in owners:
        for problem in unsupported_problems(config, owner):
            warn(problem)
    mode = reliability_mode(topology)
    ignored = sorted(set().union(*(keys_without_effect(config, mode) for _, config in owners)))
    if ignored:
        warn(f"these settings have no effect in a topology of mode {mode}: {', '.join(ignored)}")


def requests(planned: Planned) -> dict[int, ResourceRequest]:
    """Return the resources that each container of a topology needs on its host."""
    heap = 0
    if planned.needs_spark:
        from heronpy.spark.tuning import driver_bytes

        heap = driver_bytes(settings_for(planned.resolved, SparkSettings))
    return requests_of(planned.packing_plan, planned.topology, settings_for(planned.resolved, PackingSettings), heap)


def start(
    session: Session,
    planned: Planned,
    loaded: Loaded | Kept,
    foreground: bool = False,
    begun_at: float = 0.0,
    warn: Warn = unheard,
) -> Started:
    """Create the topology's state and start its scheduler. A failure undoes everything.

    With `foreground` the scheduler ends with this process. The submit began at the wall time `begun_at`.
    """
    heed()
    if planned.engine:
        from heronpy.launching import on_engine

        on_engine.check_engine(planned.engine, planned.resolved, planned.topology.id, requests(planned))
    with _made(session, planned, loaded, begun_at, warn) as (record, spec, undo, undone):
        if planned.engine:
            # This runs when the scheduler is gone, because the scheduler may have begun to submit containers.
            undo.callback(undone.end_on_engine, spec.submitted)
        # Registered first, because an interrupt may come after the start of the process and before its handle is known.
        undo.callback(takedown.kill_leftovers, record.launch_file)
        scheduler = (spawn_child if foreground else spawn_scheduler)(spec, record.launch_file)
        wait_scheduler(session, record, spec, scheduler)
    return Started(record, spec, scheduler)


def start_in_pool(
    session: Session, planned: Planned, kept: Kept, begun_at: float = 0.0, warn: Warn = unheard
) -> plan_pb2.ExecutionState:
    """Create the topology's state and let the slots of its pool run it. A failure undoes everything."""
    from heronpy.launching import in_pool

    in_pool.check(session, planned, requests(planned))
    with _made(session, planned, kept, begun_at, warn) as (record, spec, undo, _):
        save_here(spec.here, record.launch_file)  # the topology has no scheduler of its own that would do it
        undo.callback(in_pool.leave, session, record, planned.pool)
        in_pool.join(session, record, planned.pool)
    return record


@contextmanager
def _made(
    session: Session, planned: Planned, loaded: Loaded | Kept, begun_at: float, warn: Warn
) -> Iterator[tuple[plan_pb2.ExecutionState, LaunchSpec, ExitStack, _Undone]]:
    """Create the topology's state, keys and files, under the operations lock; remove them if the block fails."""
    topology, state = planned.topology, session.state
    with session.operation(topology.name), _undone_on_failure() as undo, _marked(session, topology.name):
        submitted = submitted_of(session, planned, keep(loaded) if isinstance(loaded, Loaded) else kept_here(loaded))
        record = _execution_state(submitted)
        record.begun_at = begun_at
        # Only for steps on this host before the scheduler starts, which creates its own specification.
        spec = LaunchSpec(submitted, make_here(submitted, record.launch_file))
        try:
            state.create(paths.execution_state(topology.name), record.SerializeToString())
        except NodeExistsError:
            refuse_taken(session, topology.name)
            raise
        # Registered before the first step that leaves anything behind; callbacks run in reverse order.
        undone = _Undone(session, record, warn)
        undo.push(undone.say)
        undo.callback(undone.remove_state)
        check_folders(spec)
        make_folders(spec.log_dir)
        # The divider is dated shortly before the submit, because logs are shown from the time of the submit on.
        divide_logs(spec.log_dir, record.submitted_at - 0.002, _divider(record))
        make_private(Path(spec.sockets_dir))
        undo.callback(takedown.remove_sockets, session, record)
        if planned.pool or planned.slot is not None:
            from heronpy.launching import in_pool
        if planned.pool:
            in_pool.take_keys(session, spec)
        else:
            _make_keys(spec)
        save_submitted(submitted, record.launch_file)
        state.set(paths.launch(topology.name), submitted.to_bytes())
        for path, message in (
            (paths.topology(topology.name), topology),
            (paths.packing_plan(topology.name), planned.packing_plan),
        ):
            # Nodes of an earlier topology with this name, whose removal was interrupted, are replaced.
            state.set(path, message.SerializeToString())
        _write_checkpoint_log(session, planned)
        if planned.slot is not None:
            undo.callback(in_pool.unmake_pool, session, planned)
            in_pool.make_pool(session, planned)
        yield record, spec, undo, undone


@contextmanager
def _marked(session: Session, name: str) -> Iterator[None]:
    """Publish, if the name is free, that a topology is being submitted, which would look dead without a scheduler."""
    # Under the lock, no other command submits or kills the topology, so this result is final.
    refuse_taken(session, name)
    with closing(session.open_state()) as state:  # closing it removes its ephemerals
        state.create(paths.submission(name), b"", ephemeral=True)
        yield


@contextmanager
def _undone_on_failure() -> Iterator[ExitStack]:
    """Yield an ExitStack that is unwound if the block fails or is interrupted."""
    undo = ExitStack()
    try:
        yield undo
    except BaseException as error:
        with uninterrupted():
            undo.__exit__(type(error), error, error.__traceback__)
        raise


class _Undone:
    """Undoes a submit that fails. If containers may still be running on an engine, the state is kept, so that
    `heron kill` can end them.
    """

    def __init__(self, session: Session, record: plan_pb2.ExecutionState, warn: Warn) -> None:
        self._session = session
        self._record = record
        self._warn = warn
        self._remains: list[str] = []

    def end_on_engine(self, submitted: Submitted) -> None:
        outcome = takedown.end_unstarted(submitted, self._warn)
        self._remains = outcome.remains
        if self._remains:
            name = self._record.topology
            again = f"heron kill {self._session.target} {name}"
            self._warn(f"topology '{name}' is not removed: {what_may_run(outcome)}; run: {again}")

    def remove_state(self) -> None:
        if not self._remains:
            takedown.remove_state(self._session, self._record)

    def say(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        """Report that an interrupted submit was undone; a failed submit has been reported already."""
        if kind is KeyboardInterrupt and not self._remains:
            self._warn(f"interrupted: topology '{self._record.topology}' had not started; it is removed")


def take_down(session: Session, started: Started, doing: Doing = Doing.CLEANING_UP, warn: Warn = unheard) -> list[str]:
    """Remove a topology that was started here, unless another topology has its name. Returns the parts that remain."""
    name = started.record.topology
    record = session.record(name)
    if record is not None and record.topology_id != started.record.topology_id:
        return []
    with session.operation(name, doing=doing):
        limit_s = takedown.limit_s(session, name) if started.spec.submitted.engine else CLEAN_UP_S
        outcome = takedown.take_down(session, started.record, limit_s, waits=warn)
    started.scheduler.poll()
    return outcome.remains


def refuse_taken(session: Session, name: str, instead: str = "") -> None:
    """Raise NodeExistsError if a topology with that name exists. The result is final only under the operations lock.

    `instead` is appended to the error about a running topology.
    """
    record = session.record(name)
    if record is None:
        return
    # Read before the location of the scheduler: when a submit is over, its scheduler is known.
    starts = session.state.exists(paths.submission(name))
    cluster = session.target.cluster
    again = f"submit again after heron kill {cluster} {name}"
    if record.program == SLOT:
        raise NodeExistsError(f"cluster {cluster} has a pool '{name}'; choose another name")
    if session.scheduler_location(name) is None:
        if starts:
            raise NodeExistsError(
                f"topology '{name}' in cluster {cluster} is being started by another command; wait for it, or choose"
                " another name"
            )
        with suppress(NotThereError):
            if (busy := session.under_way(name)) is not None:
                raise NodeExistsError(str(busy))
        if session.record(name) is None:
            return  # another command has removed it
        raise NodeExistsError(f"topology '{name}' in cluster {cluster} is dead but not removed; {again}")
    status = None
    with suppress(HeronError):
        status = session.poll(name)
    if status is not None and status.lifecycle in (control_pb2.LIFE_FINISHED, control_pb2.LIFE_FAILED):
        how = "finished" if status.lifecycle == control_pb2.LIFE_FINISHED else "failed"
        raise NodeExistsError(
            f"topology '{name}' in cluster {cluster} has {how} but has not been removed; {again},"
            " which keeps its checkpoints"
        )
    raise NodeExistsError(
        f"topology '{name}' is already running in cluster {cluster}; kill it first or choose another name{instead}"
    )


def make_private(folder: Path) -> None:
    """Create the sockets folder. Refuses a folder that another user has created in the shared temporary folder."""
    check_root(folder.parent.parent, "the folder for temporary files", sticky=True)
    for part in (folder.parent, folder):
        try:
            private.make_private(part)
        except ConfigError as error:
            raise ClusterError(f"{error}, or set TMPDIR to a folder that you own") from None


def _make_keys(spec: LaunchSpec) -> None:
    """Create new keys for this submission; none if no process listens on the network."""
    curve.remove(spec.working_dir)
    if transport.choose(settings_for(spec, SecuritySettings)) is transport.Transport.TCP:
        curve.generate(spec.working_dir)
    if spec.submitted.engine:
        from heronpy.net import endpoint_keys

        endpoint_keys.make(spec.working_dir)


def _write_checkpoint_log(session: Session, planned: Planned) -> None:
    """Write the checkpoint log that the topology master reads first: the checkpoint to start from, and ids that
    continue from it.
    """
    node, restore = paths.checkpoints(planned.topology.name), planned.restore
    if restore is None:
        with suppress(NoNodeError):  # a node of an earlier topology of this name, whose removal was cut short
            session.state.delete(node)
        return
    log = checkpoint_pb2.CheckpointLog(
        topology_id=planned.topology.id, next_checkpoint=restore.checkpoint + 1, restore_from=restore.location
    )
    session.state.set(node, log.SerializeToString())


def keep(loaded: Loaded) -> Kept:
    """Store the package of a topology on this host."""
    stored = None
    if loaded.package is not None:
        stored = Path(PackageStore(packages_dir()).add(loaded.package, archived=not loaded.is_folder).dir)
    return Kept(
        stored.name if stored else None,
        loaded.main_file if stored else None,
        archive_in(stored).name if stored and not loaded.is_folder else None,
        loaded.source,
        list(loaded.argv),
        loaded.argv_names_topology,
    )


def kept_here(kept: Kept, cure: str = "deploy the program again") -> Kept:
    """Return the stored package of a topology. Raises PackageError with the fix if it is not on this host."""
    if kept.package is not None and not (packages_dir() / kept.package).is_dir():
        raise PackageError(f"package {kept.package[:12]} is not stored on this host; {cure}")
    return kept


def submitted_of(session: Session, planned: Planned, kept: Kept) -> Submitted:
    """Return the data that every process of the topology needs."""
    target, topology, resolved = session.target, planned.topology, planned.resolved
    kind, root = session.state_place(resolved)
    return Submitted(
        topology=topology.name,
        topology_id=topology.id,
        cluster=target.cluster,
        role=target.role_or_user,
        environ=target.environ_or_default,
        submission_user=unix_user(),
        release=VERSION,
        state_type=kind,
        state_root="" if kind == "local" else root,
        environment=environment_digest(settings_for(resolved, EngineSettings)),
        engine=planned.engine,
        program=SLOT if planned.slot is not None else "",
        pool=planned.pool,
        needs_spark=planned.needs_spark,
        dispatch_homes=dispatch_homes(topology),
        # Hosts of an engine have another HERON_HOME, so they need the path of a folder on this host.
        settings=resolved.settings
        if planned.engine and reliability_mode(topology) == "EFFECTIVELY_ONCE"
        else settings_anywhere(resolved.settings, str(checkpoints_dir(target.cluster))),
        origins=resolved.origins,
        component_settings=resolved.component_settings,
        **asdict(kept),
    )


def _execution_state(spec: Submitted) -> plan_pb2.ExecutionState:
    home = heron_home() / "topologies" / spec.cluster / spec.role / spec.topology
    return plan_pb2.ExecutionState(
        topology=spec.topology,
        topology_id=spec.topology_id,
        cluster=spec.cluster,
        role=spec.role,
        environ=spec.environ,
        submission_user=spec.submission_user,
        submitted_at=time.time(),
        release=spec.release,
        program=spec.program,
        working_dir=str(home),
        launch_file=str(home / "launch.json"),
        host=this_host().to_text(),
    )


def _divider(record: plan_pb2.ExecutionState) -> str:
    """Return the line that separates the logs of an earlier topology with this name from the logs of this topology."""
    what = f"topology '{record.topology}' was submitted again ({record.topology_id})"
    return f"{what}; the lines above belong to the earlier topology"
