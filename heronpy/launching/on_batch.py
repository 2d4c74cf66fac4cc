"""What a submit does for `--mode batch` and `--mode auto`: it chooses the mode and the run, and undoes what it made.

Everything that can refuse comes before the folder of a run is made or changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from heronpy.batch.choice import Choice, choose, hands_over
from heronpy.batch.mending import mend
from heronpy.batch.record import RunRecord, RunState, Wanted, code_digest, goes_on
from heronpy.batch.run import Run, Runs, runs_folder
from heronpy.batch.stages import BatchRefusedError, Stage, divide
from heronpy.batch.topology import run_topology
from heronpy.clusters.session import Session
from heronpy.common.engine_settings import BatchSettings, EngineSettings
from heronpy.common.setting_types import CheckpointSettings, SparkSettings
from heronpy.common.settings import Resolved, settings_for
from heronpy.connectors.spark.requirements import check_master, check_spark, spark_sinks
from heronpy.launching import submission
from heronpy.launching.model import Loaded
from heronpy.plan.component_config import add_our_names, config_of, reliability_mode
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import validate
from heronpy.proto import components_of, topology_pb2
from heronpy.storage.stores import store_roots


class Flags(Struct, frozen=True):
    """The flags of a submit that are about modes."""

    mode: str
    like: str = ""
    hold: bool = False
    resume: bool = False
    fresh: bool = False
    #: Only look: no run is made.
    dry: bool = False


class Begun(Struct, frozen=True):
    """What will be started."""

    loaded: Loaded
    #: None: the topology runs as a stream.
    run: Run | None = None
    stages: tuple[Stage, ...] = ()
    workers: int = 0
    #: Whether it goes on with a run that had not finished.
    goes_on: bool = False
    #: With --mode auto: why it has this mode.
    why: str = ""


@contextmanager
def begun(session: Session, loaded: Loaded, flags: Flags) -> Iterator[Begun]:
    """The topology to start for these flags; when the block fails, no new run stays behind."""
    topology = loaded.topology
    resolved = _checked(session, topology)
    settings = settings_for(resolved, BatchSettings)
    why = ""
    if flags.mode == "auto":
        choice = choose(topology, settings.auto_allow, settings.auto_deny, settings.auto_percent)
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
    stages = divide(topology)
    check_sinks(topology, resolved, flags.hold)
    if not settings_for(resolved, EngineSettings).on_one_host:
        raise BatchRefusedError(
            f"topology '{topology.name}' cannot run as a batch on several hosts: the ledger of a run is a file of one"
            " host; submit it to a cluster whose containers run on this machine"
        )
    submission.refuse_taken(session, topology.name)
    workers = settings.workers or os.cpu_count() or 1
    if flags.dry:
        yield Begun(
            replace(loaded, topology=run_topology(topology, "", workers, not flags.hold)),
            None,
            stages,
            workers,
            why=why,
        )
        return
    runs = Runs(runs_folder(settings, session.target.cluster), topology.name)
    with runs.locked():
        if flags.like:
            check_like(runs.named(flags.like), stages)
        code = code_digest(submission.keep(loaded).package or "", topology)
        newest = runs.newest() if not flags.fresh else None
        before = newest.record if newest is not None else None
        continues = goes_on(before, Wanted(code, flags.resume, flags.fresh, flags.like, flags.hold))
        if newest is not None and before is not None and continues:
            run = newest
            _continue(run, before, code, topology, stages)
        else:
            run = runs.begin(_new_record(session, topology, resolved, code, flags), topology)
        try:
            made = run_topology(topology, str(run.folder), workers, not flags.hold)
            yield Begun(replace(loaded, topology=made), run, stages, workers, continues, why)
        except BaseException:
            if before is not None and continues:
                run.write(before)
            else:
                runs.remove(run)
            raise
        runs.forget(settings.keep_runs, besides=flags.like)


def _sinks_problem(topology: topology_pb2.Topology) -> str:
    """Why the SparkSinks of a topology cannot run in a batch, as a clause; "" if they can."""
    if not spark_sinks(topology):
        return ""
    from heronpy.connectors.spark.units import sinks_problem  # it needs pyarrow

    return sinks_problem(topology)


def check_sinks(topology: topology_pb2.Topology, resolved: Resolved, hold: bool) -> None:
    """BatchRefusedError if a SparkSink cannot run in a batch, ConfigError if Spark cannot; a held run needs none."""
    if problem := _sinks_problem(topology):
        raise BatchRefusedError(f"topology '{topology.name}' cannot run as a batch: {problem}")
    if spark_sinks(topology) and not hold:
        master = settings_for(resolved, SparkSettings).master
        check_spark(master)
        check_master(master)


def _checked(session: Session, topology: topology_pb2.Topology) -> Resolved:
    """The settings of a valid topology, as for a stream."""
    add_our_names(topology)
    validate(LogicalPlan.from_topology(topology))
    configs = {name: config_of(part) for name, part in components_of(topology).items()}
    resolved = session.resolve(config_of(topology), configs)
    session.pin_folders(resolved)
    return resolved


def check_like(like: Run, stages: Sequence[Stage]) -> None:
    """BatchRefusedError unless a run can give its input to these stages."""
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
    """Prepare a run that has not finished for the topology that goes on with it."""
    if divide(run.topology) != stages:
        raise BatchRefusedError(
            f"run {record.run} has not finished, and the program has other stages since; give --fresh to begin another"
            " run"
        )
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
        key_groups=checkpoint.key_groups if reliability_mode(topology) == "EFFECTIVELY_ONCE" else 0,
    )
