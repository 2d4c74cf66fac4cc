"""What a submit does for `--mode batch` and `--mode auto`: it chooses the mode and the run, and undoes what it made.

Everything that can refuse comes before the folder of a run is made or changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from heronpy.batch.choice import choose, hands_over
from heronpy.batch.mending import mend
from heronpy.batch.record import RunRecord, RunState, Wanted, code_digest, goes_on
from heronpy.batch.run import Run, Runs, runs_folder
from heronpy.batch.stages import BatchRefusedError, Stage, divide
from heronpy.batch.topology import run_topology
from heronpy.clusters.session import Session
from heronpy.common.engine_settings import BatchSettings, EngineSettings
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.launching import submission
from heronpy.launching.model import Loaded
from heronpy.plan.component_config import config_of, reliability_mode
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import validate
from heronpy.proto import components_of
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
    logical = LogicalPlan.from_topology(topology)
    validate(logical)
    configs = {name: config_of(part) for name, part in components_of(topology).items()}
    resolved = session.resolve(config_of(topology), configs)
    session.pin_folders(resolved)
    settings = settings_for(resolved, BatchSettings)
    why = ""
    if flags.mode == "auto":
        choice = choose(topology, settings.auto_allow, settings.auto_deny, settings.auto_percent)
        if choice.mode == "stream":
            yield Begun(loaded, why=choice.why)
            return
        why = choice.why
    stages = divide(topology)
    if not settings_for(resolved, EngineSettings).on_one_host:
        raise BatchRefusedError(
            f"topology '{topology.name}' cannot run as a batch on several hosts: the ledger of a run is a file of one"
            " host; submit it to a cluster whose containers run on this machine"
        )
    submission.refuse_taken(session, topology.name)
    workers = settings.workers or os.cpu_count() or 1
    if flags.dry:
        yield Begun(replace(loaded, topology=run_topology(topology, "", workers)), None, stages, workers, why=why)
        return
    runs = Runs(runs_folder(settings, session.target.cluster), topology.name)
    checkpoint = settings_for(resolved, CheckpointSettings)
    with runs.locked():
        if flags.like:
            runs.named(flags.like)
        package = submission.keep(loaded).package or ""
        wanted = Wanted(code_digest(package, topology), flags.resume, flags.fresh, flags.like, flags.hold)
        newest = runs.newest()
        before = newest.record if newest is not None and not flags.fresh else None
        continues = goes_on(before, wanted)
        if continues and newest is not None and before is not None:
            run = newest
            if divide(run.topology) != stages:
                raise BatchRefusedError(
                    f"run {before.run} has not finished, and the program has other stages since; give --fresh to begin"
                    " another run"
                )
            run.replace_topology(topology)
            mend(run, stages)
            run.write(replace(before, code=wanted.code, state=RunState.RUNNING, cause="", ended_at=None,
                              topology_ids=(*before.topology_ids, topology.id)))  # fmt: skip
        else:
            record = RunRecord(
                topology=topology.name,
                number=0,
                cluster=session.target.cluster,
                role=session.target.role_or_user,
                environ=session.target.environ_or_default,
                code=wanted.code,
                submitted_at=time.time(),
                topology_ids=(topology.id,),
                like=flags.like,
                hold=flags.hold,
                saves=hands_over(topology),
                savepoints=str(store_roots(checkpoint)[0]),
                key_groups=checkpoint.key_groups if reliability_mode(topology) == "EFFECTIVELY_ONCE" else 0,
            )
            run = runs.begin(record, topology)
        try:
            made = run_topology(topology, str(run.folder), workers)
            yield Begun(replace(loaded, topology=made), run, stages, workers, continues, why)
        except BaseException:
            if not continues:
                runs.remove(run)
            elif before is not None:
                run.write(before)
            raise
        runs.forget(settings.keep_runs, besides=flags.like)
