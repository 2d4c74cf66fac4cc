"""`heron progress` and `heron plan --mode batch`."""

from __future__ import annotations

import msgspec

from heronpy.batch.run import Run, Runs, runs_folder
from heronpy.batch.stages import Exchange, Stage, divide
from heronpy.batch.topology import run_folder
from heronpy.cli import exits
from heronpy.cli.output import clean, print_json, print_table, say, say_labelled
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.engine_settings import BatchSettings
from heronpy.common.settings import settings_for
from heronpy.proto import topology_pb2
from heronpy.views.progress import Progress, stopped, table_of
from heronpy.views.units import Table


def show_progress(target: Target, topology: str, as_json: bool, common: Common) -> None:
    """Print the stages of a batch run."""
    name, _, number = topology.partition("/")
    session = Session(target, common)
    runs, own = _runs(session, name), _running(session, name)
    if own is not None and topology in (name, own.record.run):
        run: Run | None = own
    else:
        run = runs.named(topology) if number else runs.newest()
    if run is None:
        raise exits.Failure(f"topology '{name}' has no batch runs yet; start one: heron submit --mode batch")
    works = run is own and _works(session, name)
    found = run.progress
    if not works:
        found = stopped(found, session.cure_of_dead(name) if run is own else "")
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        print_progress(found)
        if works and run.waits_for:
            say_labelled("waits", run.waits_for)


def print_progress(found: Progress) -> None:
    """Print the run's input and stages, and why the run failed, if it did."""
    began = f" and reads {found.boundary}" if found.boundary else ""
    say(f"Batch run {clean(found.run)} is {found.state}{clean(began)}")
    print_units(table_of(found))
    for one in found.stages:
        if found.ended_at is None and one.state == "running" and one.waits_for:
            say_labelled("waits", one.waits_for)
    if found.cause:
        say_labelled("cause", found.cause)


def print_units(found: Table) -> None:
    """Print a table of work units."""
    print_table(found.titles, found.rows)


def show_stages(target: Target, topology: str, as_json: bool, common: Common) -> None:
    """Print the stages of a running topology, or of a topology's newest batch run."""
    session = Session(target, common)
    running = session.record(topology) is not None
    found = session.topology(topology) if running else None
    run = _running(session, topology) if running else _runs(session, topology).newest()
    if run is not None:
        found = run.topology
    if found is None:
        session.find(topology)  # raises an error that lists the existing topologies
        raise exits.Failure(f"there is no topology '{topology}' in {target}")
    print_stages(found, divide(found), as_json)


def print_stages(topology: topology_pb2.Topology, stages: tuple[Stage, ...], as_json: bool = False) -> None:
    """Print stages, their exchanges, and why a stage gets no backups."""
    if as_json:
        print_json({"topology": topology.name, "stages": msgspec.to_builtins(stages)})
        return
    say(f"As a batch run, topology '{clean(topology.name)}' has these stages, which run one after the other")
    rows = [
        (
            f"{one.number} {clean(', '.join(one.components))}",
            _SOURCES[one.source],
            "; ".join(map(_exchange, one.inputs)),
            clean(", ".join(one.sinks)),
            f"no: {one.no_backups}" if one.no_backups else "yes",
        )
        for one in stages
    ]
    print_table(("stage", "unit contains", "reads", "sinks", "backups"), rows)


def _exchange(one: Exchange) -> str:
    grouping = topology_pb2.Grouping.Name(one.grouping)
    return f"{clean(one.producer)}:{clean(one.stream)} of stage {one.producing}, {grouping}"


_SOURCES = {
    "lines": "lines of files",
    "splits": "splits",
    "spout": "a task of the spout",
    "buckets": "buckets of an exchange",
}


def _running(session: Session, topology: str) -> Run | None:
    """Return the current run of a topology, even if the run is outside the cluster's folder of runs."""
    folder = run_folder(session.topology(topology)) if session.record(topology) is not None else ""
    return Run(folder) if folder else None


def _works(session: Session, topology: str) -> bool:
    """Whether a process of a topology is running or starting; with an engine, where this may be unknown, True."""
    if session.tmaster_location(topology) is not None or session.engine_of(topology):
        return True
    record = session.record(topology)
    return record is not None and (
        session.starting(record) is not None or session.scheduler_location(topology) is not None
    )


def _runs(session: Session, topology: str) -> Runs:
    return Runs(runs_folder(settings_for(session.resolve(), BatchSettings), session.target.cluster), topology)
