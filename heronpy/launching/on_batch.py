"""Begins `heron submit` in mode `batch` or `auto`: chooses the mode and the run, and undoes changes on a failure.

All checks come before the folder of a run is made or changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from heronpy.batch.choice import Choice, choose, hands_over
from heronpy.batch.record import RunRecord, RunState, Wanted, code_digest, goes_on
from heronpy.batch.run import Run, Runs, runs_folder
from heronpy.batch.stages import BatchRefusedError, Stage, divide
from heronpy.batch.topology import left_out, run_folder, run_topology, worker_config
from heronpy.clusters import killing, takedown
from heronpy.clusters.engines import is_shared, shared_folders
from heronpy.clusters.session import Session
from heronpy.clusters.target import unix_user
from heronpy.common.engine_settings import BatchSettings, EngineSettings, IngestSettings
from heronpy.common.errors import ConfigError, HeronError, TopologyError
from heronpy.common.folders import heron_home
from heronpy.common.setting_types import CheckpointSettings, PackingSettings, SparkSettings
from heronpy.common.settings import Resolved, settings_for
from heronpy.connectors.spark.requirements import check_master, check_spark, spark_sinks
from heronpy.ingest.keys import has_only_units, until_now
from heronpy.ingest.ledger.reaching import urls_of
from heronpy.launching import submission
from heronpy.launching.batch_places import (
    check_input,
    check_output,
    refuse_again,
    refuse_other_input,
    refuse_other_paths,
)
from heronpy.launching.model import Loaded, Warn, unheard
from heronpy.launching.old_runs import forget
from heronpy.launching.on_engine import SQLITE, file_problems, store_problems
from heronpy.launching.on_units import ledger_of
from heronpy.packing.demand import demand_of
from heronpy.plan.component_config import add_our_names, config_of, reliability_mode
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import validate
from heronpy.proto import components_of, topology_pb2
from heronpy.statemgr import paths
from heronpy.storage.stores import store_roots


class Flags(Struct, frozen=True):
    """The flags of `heron submit` that concern the mode and the run."""

    mode: str
    like: str = ""
    hold: bool = False
    resume: bool = False
    fresh: bool = False
    #: Whether to check only, without creating a run.
    dry: bool = False


class Begun(Struct, frozen=True):
    """The topology to start, and its run."""

    loaded: Loaded
    #: None if the topology runs as a stream, or as a batch of pipelines of work units (see `units`).
    run: Run | None = None
    stages: tuple[Stage, ...] = ()
    workers: int = 0
    #: Whether the topology continues an unfinished run.
    goes_on: bool = False
    #: With --mode auto: the reason for the mode.
    why: str = ""
    #: Whether the topology is a batch of pipelines of work units. Their ledgers record which units are done.
    units: bool = False


@contextmanager
def begun(session: Session, loaded: Loaded, flags: Flags, warn: Warn = unheard) -> Iterator[Begun]:
    """Yield the topology to start for these flags. If the block fails, a new run is removed."""
    topology = loaded.topology
    resolved = checked_settings(session, topology)
    settings = settings_for(resolved, BatchSettings)
    why = ""
    if flags.mode == "auto":
        choice = choose(topology, settings.auto_allow, settings.auto_deny, settings.auto_percent)
        if choice.mode == "batch":
            try:
                shared_ledger(topology, resolved, settings)
            except (TopologyError, ConfigError) as error:
                choice = Choice("stream", str(error).partition("\n")[0])
        if choice.mode == "batch" and (problem := _sinks_problem(topology)):
            choice = Choice("stream", problem)
        why = choice.why
        if choice.mode == "stream":
            if flags.like or flags.hold or flags.resume or flags.fresh:
                raise BatchRefusedError(
                    f"topology '{topology.name}' runs as a stream, because {why}; leave out the flags of batch runs"
                )
            yield Begun(loaded, why=why)
            return
    if has_only_units(topology):
        if flags.like or flags.hold or flags.resume or flags.fresh:
            raise BatchRefusedError(
                f"topology '{topology.name}' has pipelines of LogUnits, which continue from their own ledgers and have"
                " no runs; leave out --as, --hold, --resume and --fresh"
            )
        yield Begun(replace(loaded, topology=until_now(topology)), why=why, units=True)
        return
    stages = divide(topology)
    check_sinks(topology, resolved, flags.hold)
    if not flags.hold:
        check_output(topology)
    ledger = shared_ledger(topology, resolved, settings)
    if not flags.dry:
        remove_dead(session, topology.name, warn)
    submission.refuse_taken(session, topology.name)
    workers = settings.workers or os.cpu_count() or 1
    demand = demand_of(topology, settings_for(resolved, PackingSettings), None, share_requested=True)
    worker = worker_config(demand, resolved.component_settings)
    if said := left_out(resolved.component_settings, resolved.origins):
        warn(said)
    if flags.dry:
        made = run_topology(topology, "", workers, worker, not flags.hold)
        yield Begun(replace(loaded, topology=made), None, stages, workers, why=why)
        return
    folder = runs_folder(settings, session.target.cluster)
    runs = Runs(folder, topology.name)
    with runs.locked():
        # Check again, because a command that held the lock until now may have started the topology.
        submission.refuse_taken(session, topology.name)
        runs.refuse_full()
        if flags.like:
            like = runs.named(flags.like)
            check_like(like, stages)
            refuse_other_paths(flags.like, like.topology, topology, stages)
        code, argv = code_digest(submission.keep(loaded).package or "", topology), loaded.argv[1:]
        newest = runs.newest() if not flags.fresh else None
        before = newest.record if newest is not None else None
        if newest is not None and before is not None and not (before.has_ended or before.like or flags.like):
            refuse_other_input(before.run, newest.topology, topology, stages, flags.resume)
        if before is not None and before.has_ended and not flags.hold:
            refuse_again(runs, topology, argv)
        continues = goes_on(before, Wanted(code, flags.resume, flags.fresh, flags.like, flags.hold))
        if newest is not None and before is not None and continues:
            run = newest
            record = replace(before, component_settings=resolved.component_settings, argv=argv)
            _continue(run, record, code, topology, stages)
        else:
            if not flags.like:
                check_input(topology, stages)
            record = _new_record(session, topology, resolved, code, flags)
            run = runs.begin(replace(record, ledger=ledger, argv=argv), topology)
        try:
            made = run_topology(topology, str(run.folder), workers, worker, not flags.hold)
            yield Begun(replace(loaded, topology=made), run, stages, workers, continues, why)
        except BaseException:
            if before is not None and continues:
                run.write(before)
            else:
                runs.remove(run)
            raise
        forget(session, folder, topology.name, settings.keep_runs, flags.like)


def remove_dead(session: Session, name: str, warn: Warn) -> None:
    """Remove the remains of a batch topology whose processes are all dead, so that its command can be repeated.

    A topology is kept if one of its processes may still be running (on an engine, on another host or here), or if
    another user has submitted it.
    """
    record = session.record(name)
    # The submit is looked up before the scheduler: when a submit is over, its scheduler is known.
    if record is None or session.state.exists(paths.submission(name)):
        return
    if session.scheduler_location(name) is not None or session.tmaster_location(name) is not None:
        return
    if record.submission_user != unix_user() or session.elsewhere(record) or session.engine_of(name):
        return
    if takedown.leftovers(record.launch_file):
        return  # a guardian may be about to restart the scheduler
    with suppress(HeronError):  # if this fails, `refuse_taken` says what the user can do
        if run_folder(session.topology(name)):
            killing.remove(session, name, topology_id=record.topology_id)
            warn(f"no process of topology '{name}' was running; its remains were removed")


def _sinks_problem(topology: topology_pb2.Topology) -> str:
    """Return why the SparkSinks of a topology cannot run in a batch, as a clause; "" if they can."""
    if not spark_sinks(topology):
        return ""
    from heronpy.connectors.spark.units import sinks_problem  # it needs pyarrow

    return sinks_problem(topology)


def check_sinks(topology: topology_pb2.Topology, resolved: Resolved, hold: bool) -> None:
    """Raise BatchRefusedError if a SparkSink cannot run in a batch, and ConfigError if Spark cannot run. A held run
    needs no Spark.
    """
    if problem := _sinks_problem(topology):
        raise BatchRefusedError(f"topology '{topology.name}' cannot run as a batch: {problem}")
    if spark_sinks(topology) and not hold:
        master = settings_for(resolved, SparkSettings).master
        check_spark(master)
        check_master(master)


def checked_settings(session: Session, topology: topology_pb2.Topology) -> Resolved:
    """Validate a topology as if it ran as a stream, and return its settings."""
    add_our_names(topology)
    validate(LogicalPlan.from_topology(topology))
    configs = {name: config_of(part) for name, part in components_of(topology).items()}
    resolved = session.resolve(config_of(topology), configs)
    session.pin_folders(resolved)
    return resolved


def shared_ledger(topology: topology_pb2.Topology, resolved: Resolved, settings: BatchSettings) -> str:
    """Return the ledger of a run on several hosts; "" if the run uses one host. Raises TopologyError if some hosts
    cannot access the files of the run.
    """
    if settings_for(resolved, EngineSettings).on_one_host:
        return ""
    shared = shared_folders(resolved)
    problems = file_problems(topology, shared)
    if reliability_mode(topology) == "EFFECTIVELY_ONCE":
        problems += store_problems(resolved)
    folder = settings.folder or str(heron_home() / "batch")
    if not is_shared(folder, shared):
        problems.append(
            f"a batch run on several hosts needs a folder that all of them can access, but {folder} is a folder on this"
            " host; set heron.batch.folder to a folder below heron.engine.shared"
        )
    problems += [
        f"SparkSink '{name}' cannot end a batch run on several hosts, because Spark gets the rows through files that"
        " only one host may lock; submit to a cluster of one machine, such as local, or write with a FileSink"
        for name in sorted(spark_sinks(topology))
    ]
    ledger = ledger_of(settings_for(resolved, IngestSettings).ledger)
    if not ledger or any(url.startswith("sqlite:") for url in urls_of(ledger)):
        problems.append(f"a batch run {SQLITE}")
    elif len(urls_of(ledger)) > 1:
        problems.append("a batch run has one ledger, but heron.ingest.ledger names several; name only one")
    if problems:
        raise TopologyError("\n".join(problems))
    return ledger


def check_like(like: Run, stages: Sequence[Stage]) -> None:
    """Raise BatchRefusedError unless an earlier run can provide its input to these stages."""
    record = like.record
    if not record.has_ended:
        raise BatchRefusedError(
            f"run {record.run} has not finished, so its input may not be complete; finish it, or leave out --as"
        )
    known = {(one.spout, one.source) for one in divide(like.topology)}
    for stage in stages:
        if stage.spout and (stage.spout, stage.source) not in known:
            raise BatchRefusedError(f"run {record.run} has no input for spout '{stage.spout}'; leave out --as")


def _continue(
    run: Run, record: RunRecord, code: str, topology: topology_pb2.Topology, stages: tuple[Stage, ...]
) -> None:
    if divide(run.topology) != stages:
        raise BatchRefusedError(
            f"run {record.run} has not finished, and the stages of the program have changed since; give --fresh to"
            " start a new run"
        )
    # Imported only here, because the imports take longer than the rest of a submit.
    from heronpy.batch.mending import mend

    run.replace_topology(topology)
    mend(run, stages)
    topology_ids = (*record.topology_ids, topology.id)
    run.write(replace(record, code=code, state=RunState.RUNNING, cause="", ended_at=None, topology_ids=topology_ids))


def _new_record(
    session: Session, topology: topology_pb2.Topology, resolved: Resolved, code: str, flags: Flags
) -> RunRecord:
    checkpoint = settings_for(resolved, CheckpointSettings)
    return RunRecord(
        topology=topology.name,
        number=0,
        cluster=session.target.cluster,
        role=session.target.role_or_user,
        environ=session.target.environ_or_default,
        code=code,
        submitted_at=time.time(),
        topology_ids=(topology.id,),
        like=flags.like,
        hold=flags.hold,
        saves=hands_over(topology),
        savepoints=str(store_roots(checkpoint)[0]),
        component_settings=resolved.component_settings,
        key_groups=checkpoint.key_groups if reliability_mode(topology) == "EFFECTIVELY_ONCE" else 0,
    )
