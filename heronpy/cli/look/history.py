"""`heron history`: the runs of topologies, read from files on this host without requests to processes."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from msgspec import to_builtins

from heronpy.batch.run import Run
from heronpy.cli import exits
from heronpy.cli.look import events, logs
from heronpy.cli.look.batch_runs import print_progress, print_units
from heronpy.cli.output import clean, command, moment, print_json, print_table, say, say_labelled
from heronpy.clusters.history import PastRun, find_run, past_runs
from heronpy.clusters.session import Session
from heronpy.clusters.summary import told_by, used_by
from heronpy.clusters.target import Common, Target
from heronpy.common.losses import given_up_text, losses_text
from heronpy.common.units import counted, format_bytes, format_duration
from heronpy.connectors.spark.requirements import RUN_PLAN
from heronpy.views.build_ended import doctor_of_ended
from heronpy.views.exception_groups import groups_of
from heronpy.views.overview import Topology
from heronpy.views.progress import table_of
from heronpy.views.units import Pipelines, pipelines_of

#: Events that `show` prints.
EVENTS = 10


def list_runs(target: Target, limit: int, as_json: bool, common: Common) -> None:
    """Print the newest runs as a table or JSON."""
    session = Session(target, common)
    found = [(run.name, run.summary()) for run in islice(past_runs(session), limit)]
    if as_json:
        print_json([{"run": run, **to_builtins(one)} for run, one in found])
    elif found:
        rows = [
            (one.name, run, one.state, moment(one.submitted_at), _lasted(one), one.cause.partition("\n")[0])
            for run, one in found
        ]
        print_table(("topology", "run", "state", "submitted", "lasted", "how it ended"), rows, right=("lasted",))
    else:
        say(f"No runs of topologies are kept in {session.target}")


def show_run(target: Target, run: str, as_json: bool, common: Common) -> None:
    """Print the known facts about one run."""
    session = Session(target, common)
    found = find_run(session, run)
    shown, used, units = found.summary(), used_by(found.kept), _units(found)
    _, happened, timeline = told_by(found.kept)
    findings = doctor_of_ended(shown, happened, timeline).findings if shown.ended_at is not None else []
    spark_plan = Run(found.folder).spark_plan if found.folder is not None else ""
    progress, raised = found.progress, groups_of(found.kept.last.exceptions.exceptions)
    if as_json:
        print_json(
            {
                "run": found.name, **to_builtins(shown), "used": to_builtins(used), "progress": to_builtins(progress),
                "units": to_builtins(units.pipelines), "spark_plan": spark_plan,
                "findings": to_builtins(findings), "exceptions": sum(one.count for one, _ in raised),
                "events": to_builtins(happened),
            }
        )  # fmt: skip
        return
    say(f"Run {clean(found.name)} of topology '{clean(shown.name)}' is {shown.state}")
    say_labelled("submitted", f"{moment(shown.submitted_at)} by {shown.submission_user}, release {shown.release}")
    if shown.ended_at is not None:
        when = "last seen" if found.listed else "ended"
        say_labelled(when, f"{moment(shown.ended_at)}, after {_lasted(shown)}")
    if shown.cause and not findings:
        say_labelled("cause", shown.cause)
    totals = shown.totals
    if totals is not None and (totals.acked or totals.failed or losses_text(totals) or totals.discarded):
        lost = f"; {given_up_text(totals)}" if losses_text(totals) else ""
        discarded = f"; {totals.discarded:,} discarded" if totals.discarded else ""
        say_labelled("tuples", f"{totals.acked:,} acked, {totals.failed:,} failed{lost}{discarded}")
    cpu = f"{format_duration(round(used.cpu_s, 1))} of CPU" if used.cpu_s is not None else ""
    memory = f"at most {format_bytes(used.memory_bytes)} of memory" if used.memory_bytes is not None else ""
    if cpu or memory:
        say_labelled("used", ", ".join(part for part in (cpu, memory) if part))
    for one in findings if progress is None else findings[:1]:  # figures of a stream do not apply to a batch
        say_labelled(one.verdict, one.sentence)
    if of_users := sum(not one.of_heronpy for one, _ in raised):
        kinds = f"{counted(of_users, 'kind')} of exceptions"
        say_labelled("raised", f"{kinds}: {command('heron', 'history', 'exceptions', target, found.name)}", whole=True)
    if progress is not None:
        say_labelled("read", progress.boundary or "the input of this run is unknown")
        print_units(table_of(progress))
        if spark_plan:
            say_labelled("Spark", f"the final plans are in {found.folder}/{RUN_PLAN}", whole=True)
            say(spark_plan.partition("\n\n")[0])
    elif units.pipelines:
        print_units(units.table)
    for event in happened[-EVENTS:]:
        say(events.event_line(event))


def show_progress(target: Target, run: str, as_json: bool, common: Common) -> None:
    """Print the progress of a run's work units at the time when the run ended."""
    found = find_run(Session(target, common), run)
    units, progress = _units(found), found.progress
    if as_json:
        shown = {"run": found.name, "progress": to_builtins(progress), "pipelines": to_builtins(units.pipelines)}
        print_json(shown)
    elif progress is not None:
        print_progress(progress)
    elif units.pipelines:
        print_units(units.table)
    else:
        raise exits.Failure(f"run {found.name} had no work units, or ended before its workers had reported any")


def show_exceptions(target: Target, run: str, summary: bool, everything: bool, as_json: bool, common: Common) -> None:
    """Print the exceptions of user code in a run."""
    kept = find_run(Session(target, common), run).kept
    events.print_exceptions(kept.record.topology, kept.last.exceptions, summary, everything, as_json)


def show_logs(
    target: Target,
    run: str,
    what: tuple[str, ...],
    level: str | None,
    lines: int | None,
    find: str | None,
    ignore_case: bool,
    as_json: bool,
    common: Common,
) -> None:
    """Print the logs of a run's processes."""
    session = Session(target, common)
    found = find_run(session, run)
    record, last = found.kept.record, found.kept.ended_at
    if not record.working_dir:
        raise exits.Failure(f"run {found.name} has no logs: only its results folder is kept")
    between = found.began_at, float("inf") if found.listed else last
    folder = Path(record.working_dir)
    logs.show_past_logs(session, folder, record.topology, between, what, level, lines, find, ignore_case, as_json)


def _units(run: PastRun) -> Pipelines:
    return pipelines_of(run.kept.last.counts)


def _lasted(one: Topology) -> str:
    return format_duration(round(one.uptime_s)) if one.uptime_s is not None else "-"
