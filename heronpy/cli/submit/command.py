"""`heron submit`: from a user's program to a running topology, without leftovers on failure.

Modules that only some submissions need are imported where they are used, because imports take most of the time of a
small submission.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from heronpy.cli import exits
from heronpy.cli.output import clean, command, print_json, say, warn, warning
from heronpy.cli.render import summary
from heronpy.cli.submit.child import Child
from heronpy.cli.submit.loader import load
from heronpy.cli.submit.program import understand
from heronpy.cli.submit.waiting import TopologyFailed, exceptions_said, until_running
from heronpy.clusters.errors import NotThereError
from heronpy.clusters.records import Doing
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.engine_settings import BatchSettings
from heronpy.common.errors import HeronError, TopologyError
from heronpy.common.folders import heron_home
from heronpy.common.losses import losses_text
from heronpy.common.settings import settings_for
from heronpy.launching import submission
from heronpy.launching.model import Loaded, Planned, Started
from heronpy.launching.spawning import scheduler_died
from heronpy.packing.demand import asks, room_text
from heronpy.procs.interrupts import interruptible, uninterrupted
from heronpy.proto import control_pb2, topology_pb2
from heronpy.scheduler.teardown import keep_failure
from heronpy.tracker import place

if TYPE_CHECKING:
    from heronpy.cli.submit.batch_mode import BatchSubmit
    from heronpy.cli.submit.undone import Undone
    from heronpy.cli.submit.watching import Watch


class SubmitOptions(Struct, frozen=True):
    """The flags of `heron submit`, under the same names."""

    program: str
    words: tuple[str, ...]
    deploy_deactivated: bool
    detach: bool
    wait: bool
    kill_on_interrupt: bool
    foreground: bool
    timeout_s: float
    queue_timeout_s: float | None
    restore: str | None
    allow_dropped_state: bool
    mode: str
    like: str
    hold: bool
    resume: bool
    fresh: bool
    dry_run_format: str | None
    """Format for printing the plans instead of starting the topology; None starts it."""


def submit(target: Target, common: Common, options: SubmitOptions, child: Child) -> None:
    """Start the topology of a program that the child runs, or print its plans.

    If the command ends early, it undoes its steps.
    """
    session = Session(target, common)
    session.check_cluster()
    with interruptible():
        begun_at = time.monotonic()
        with _scratch_folder() as scratch:
            planned, started, batch = _prepare(session, options, child, scratch)
        if started is None:
            if batch is not None and options.dry_run_format not in ("json", "raw"):
                batch.print_plan()
            _print_plans(planned, options.dry_run_format or "table")
            return
        with _taken_down_on_failure(session, started):
            if not options.detach:
                _wait(session, planned, started, options, begun_at, batch)
        # The topology runs from here on, even if stdout is closed.
        _say_launched(session, planned, started, options)
        if batch is not None:
            batch.say_begun()
        if options.wait:
            last = _watch(session, started, options, batch)
            exceptions = exceptions_said(session, planned.topology.name)
            from heronpy.cli.submit.undone import undone_of

            undone = undone_of(session, started.record, last)
            if not undone.kept:
                _take_down(session, started, Doing.FINISHING)
            for said in exceptions:  # the exceptions are removed together with the topology
                warning(f"while running: {clean(said)}")
            if batch is not None and batch.is_batch:
                batch.say_ended(session)
            else:
                _say_tuples(last)
            _say_how_it_ended(session, planned.topology.name, last, undone)
        elif options.foreground:
            _stay(session, started, options)


def _stay(session: Session, started: Started, options: SubmitOptions) -> None:
    """Wait until the scheduler ends. The scheduler is a child of this command, because some hosts kill users' daemons.

    An interrupt ends the scheduler but not the containers, which the next scheduler adopts. With `kill_on_interrupt`
    an interrupt removes the topology.
    """
    name, target = started.record.topology, session.target
    if not options.kill_on_interrupt:
        say("The scheduler runs in the foreground; Ctrl-C ends it, and the containers keep running")
    try:
        code = started.scheduler.wait()
    except KeyboardInterrupt:
        if options.kill_on_interrupt:
            warn(f"interrupted: removing topology '{name}'")
            _remove_interrupted(session, started)
        else:
            with uninterrupted():
                started.scheduler.terminate()
                started.scheduler.wait()
            warn(f"interrupted: the containers of '{name}' keep running, and containers that end are not replaced")
            warn(f"  resume: {command('heron', 'scheduler', 'start', target, name)}")
            warn(f"  end:   {command('heron', 'kill', target, name)}")
        raise click.exceptions.Exit(exits.INTERRUPTED) from None
    if options.kill_on_interrupt:
        return
    record = session.record(name)
    if record is None or record.topology_id != started.record.topology_id:
        say(f"Topology '{name}' was killed")
    elif code:
        raise scheduler_died(started.spec, started.scheduler)
    else:
        say(f"The scheduler of '{name}' was stopped; its containers keep running")


def _wait(
    session: Session,
    planned: Planned,
    started: Started,
    options: SubmitOptions,
    begun_at: float,
    batch: BatchSubmit | None,
) -> None:
    try:
        until_running(session, started, planned.tasks, options.timeout_s, begun_at, options.queue_timeout_s)
    except TopologyFailed as failed:
        if options.wait:
            _say_tuples(failed.status)
        if batch is not None:
            raise batch.failure(session, failed) from None
        raise
    except KeyboardInterrupt:
        name = planned.topology.name
        warn(f"interrupted: topology '{name}' had not started; removing it")
        raise


def _say_launched(session: Session, planned: Planned, started: Started, options: SubmitOptions) -> None:
    name = planned.topology.name
    say(f"Successfully launched topology '{name}'" + (" (its tasks are still starting)" if options.detach else ""))
    if planned.engine or asks(planned.packing_plan):
        say(f"  room:   {room_text(submission.requests(planned), planned.engine)}")
    say(f"  logs:   {started.spec.log_dir}")
    say(f"  status: {command('heron', 'status', session.target, name)}")
    record = started.record
    page = place.page_if_running(heron_home(), record.cluster, record.role, record.environ, name)
    if page:
        say(f"  page:   {page}")
    if planned.restore is not None:
        say(f"  state:  of checkpoint {planned.restore.checkpoint}, {planned.restore.location}")
        for component in planned.restore.starting_empty:
            say(f"          component '{component}' is new and starts empty")


def _watch(
    session: Session, started: Started, options: SubmitOptions, batch: BatchSubmit | None
) -> control_pb2.StatusReply:
    """Wait for the end of a topology, and return its last status.

    A failed topology is removed. Any other end of the wait leaves the topology running, except an interrupt with
    `kill_on_interrupt`.
    """
    from heronpy.cli.submit.watching import Watch

    name, watch = started.record.topology, Watch(session, started.record)
    if batch is not None and batch.is_batch:
        watch = Watch(session, started.record, batch.progress, batch.is_done)
    try:
        with nullcontext() if batch is not None and batch.is_batch else _tuples_at_an_early_end(watch):
            return watch.until_finished()
    except TopologyFailed as found:
        failed = found if batch is None else batch.failure(session, found)
        with uninterrupted():
            _take_down(session, started, Doing.FINISHING)
        raise failed from None
    except KeyboardInterrupt:
        if options.kill_on_interrupt:
            warn(f"interrupted: removing topology '{name}'")
            _remove_interrupted(session, started)
        else:
            _say_detached(session, name)
        raise click.exceptions.Exit(exits.INTERRUPTED) from None


@contextmanager
def _tuples_at_an_early_end(watch: Watch) -> Iterator[None]:
    """If the block raises before the topology has ended, print the outcome of the tuples so far."""
    try:
        yield
    except BaseException:
        # The next step must happen even if stdout is closed.
        with uninterrupted(), suppress(OSError):
            if watch.last is not None:
                _say_tuples(watch.last)
        raise


def _say_tuples(last: control_pb2.StatusReply) -> None:
    say(f"  tuples: {summary.totals_text(last)}")
    twice = summary.counted_twice_text(last)
    if twice:
        warning(twice)


def _say_how_it_ended(session: Session, name: str, last: control_pb2.StatusReply, undone: Undone) -> None:
    """Print how the topology ended; raises a Failure if the result is incomplete."""
    left = undone.sentence(session.target, name)
    if left:
        say(f"Topology '{name}' FINISHED, but some parts failed" + ("" if undone.kept else "; it is removed"))
        raise exits.Failure(left, exits.LOSSES)
    lost = losses_text(last.totals)
    if not lost:
        say(f"Topology '{name}' has finished and is removed")
        return
    say(f"Topology '{name}' FINISHED WITH LOSSES: {lost}; it is removed")
    raise exits.Failure(summary.losses_sentence(session.target, name, last.totals), exits.LOSSES)


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Create a temporary folder for the block; a second Ctrl-C does not prevent its removal."""
    folder = Path(tempfile.mkdtemp(prefix="heron-submit-"))
    try:
        yield folder
    finally:
        with uninterrupted():
            shutil.rmtree(folder, ignore_errors=True)


def _prepare(
    session: Session, options: SubmitOptions, child: Child, scratch: Path
) -> tuple[Planned, Started | None, BatchSubmit | None]:
    """Load, check and start the topology; in a dry run, return None instead of the started topology."""
    begun_at = time.time()
    what = understand(options.program, options.words, scratch)
    paused = options.deploy_deactivated
    loaded = load(child, what, session.target, paused, scratch, options.timeout_s)
    loaded.topology.state = topology_pb2.PAUSED if paused else topology_pb2.RUNNING
    if options.mode == "stream":
        return *_start(session, options, loaded, begun_at), None
    from heronpy.cli.submit.batch_mode import begun

    words, dry = (options.program, *options.words), options.dry_run_format is not None
    flags = {"hold": options.hold, "resume": options.resume, "fresh": options.fresh, "dry": dry}
    with begun(session, loaded, words, options.mode, options.like, **flags) as batch:
        return *_start(session, options, batch.loaded, begun_at), batch


def _start(session: Session, options: SubmitOptions, loaded: Loaded, begun_at: float) -> tuple[Planned, Started | None]:
    planned = submission.plan(session, loaded.topology, warning)
    if options.restore is not None:
        from heronpy.launching.restoring import choose

        try:
            planned.restore = choose(
                planned, options.restore, options.allow_dropped_state, lambda text: warning(clean(text))
            )
        except NotThereError:
            try:
                _refuse_unfinished(session, planned, options)
            except TopologyError as why:
                raise NotThereError(str(why)) from None
            raise
        if planned.restore is not None:
            _refuse_unfinished(session, planned, options)
    if options.dry_run_format is not None:
        return planned, None
    for flag, given in (("--foreground", options.foreground), ("--queue-timeout", options.queue_timeout_s)):
        if given and not planned.engine:
            raise exits.Failure(
                f"{flag} is for clusters with an engine, and {session.target.cluster} has none; leave the flag out",
                exits.USAGE,
            )
    session.refuse_job(planned.topology.name, f"deploy {session.target} {planned.topology.name} PROGRAM")
    say(f"Launching topology: '{planned.topology.name}'")
    return planned, submission.start(session, planned, loaded, options.foreground, begun_at, warn)


def _refuse_unfinished(session: Session, planned: Planned, options: SubmitOptions) -> None:
    if options.restore == "latest":
        from heronpy.batch.run import refuse_unfinished, runs_folder

        folder = runs_folder(settings_for(planned.resolved, BatchSettings), session.target.cluster)
        refuse_unfinished(folder, planned.topology.name, planned.restore.taken_at if planned.restore else None)


def _print_plans(planned: Planned, form: str) -> None:
    from heronpy.cli.render.plans import show_logical, show_packing
    from heronpy.views.heron_plans import logical_plan, packing_plan

    if form == "json":
        print_json(
            {
                "logical_plan": logical_plan(planned.topology),
                "packing_plan": packing_plan(planned.packing_plan),
                "restore": planned.restore.location if planned.restore is not None else None,
            }
        )
    elif form == "raw":
        say(f"{planned.topology}\n{planned.packing_plan}".rstrip())
    else:
        start = f" from {planned.restore.location}" if planned.restore is not None else ""
        say(f"Topology '{planned.topology.name}' would be launched{start} as follows; nothing was started.\n")
        show_logical(planned.topology, coloured=form == "colored_table")
        show_packing(planned.packing_plan, coloured=form == "colored_table")


@contextmanager
def _taken_down_on_failure(session: Session, started: Started) -> Iterator[None]:
    """Remove everything when a submission fails, times out or is interrupted before the topology runs."""
    try:
        yield
    except KeyboardInterrupt:
        _remove_interrupted(session, started)
        raise click.exceptions.Exit(exits.INTERRUPTED) from None
    except BaseException as error:
        with uninterrupted():
            if isinstance(error, (exits.Failure, HeronError)):
                _keep_failure(session, started, str(error))
            _take_down(session, started)
        raise


def _keep_failure(session: Session, started: Started, why: str) -> None:
    """Record in the history why the topology did not start, unless it was removed meanwhile."""
    name = started.record.topology
    with suppress(HeronError):
        if session.record(name) is not None:
            keep_failure(started.record, why.removeprefix(f"topology '{name}' ").removeprefix("failed: "))


def _remove_interrupted(session: Session, started: Started) -> None:
    with uninterrupted():
        removed = _take_down(session, started)
    name = started.record.topology
    if removed:
        warn(f"topology '{name}' was removed; its logs: {command('heron', 'logs', session.target, name)}")


def _say_detached(session: Session, name: str) -> None:
    """Print how to inspect or end a topology that keeps running."""
    warn(f"interrupted: topology '{name}' keeps running, and is not removed when it has finished")
    for what, verb in (("look:  ", "status"), ("watch: ", "top"), ("end:   ", "kill")):
        warn(f"  {what} {command('heron', verb, session.target, name)}")


def _take_down(session: Session, started: Started, doing: Doing = Doing.CLEANING_UP) -> bool:
    """Remove the topology, and warn about remaining parts; return whether nothing remains."""
    remains = submission.take_down(session, started, doing, warn)
    if remains:
        again = command("heron", "kill", session.target, started.record.topology)
        warning(f"not removed: {', '.join(remains)}; run: {again}")
    return not remains
