"""`heron submit`: from a user's program to a running topology, or to nothing at all."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heronpy.cli import complete, exits
from heronpy.cli.output import command, say, warn, warning
from heronpy.cli.target import Common, Target, common_flags, target_argument

if TYPE_CHECKING:
    from heronpy.cli.session import Session
    from heronpy.cli.submission import Planned, Started
    from heronpy.proto import control_pb2 as control

FORMATS = ("table", "colored_table", "json", "raw")
CLEAN_UP_S = 15.0


@click.command("submit", context_settings={"ignore_unknown_options": True})
@target_argument
@click.argument("program", metavar="PROGRAM")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[NAME|CLASS|-] [ARGS]...")
@click.option("--deploy-deactivated", is_flag=True, help="Start with paused spouts; 'heron activate' lets them emit.")
@click.option("--detach", is_flag=True, help="Return once the scheduler runs, without waiting for the tasks.")
@click.option("--wait", is_flag=True, help="Stay until a bounded topology has finished, then remove it.")
@click.option("--kill-on-interrupt", is_flag=True, help="With --wait: Ctrl-C ends the topology, not only the waiting.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds that it may take until every task runs; what its sinks wait for then has a limit of its own.",
)
@click.option(
    "--restore",
    metavar="latest|ID|PATH",
    shell_complete=complete.restores,
    help="Start from a checkpoint of an earlier run: the newest one, the one of this id, or the one at this path.",
)
@click.option(
    "--allow-dropped-state", is_flag=True, help="With --restore: forget the state of components that are gone."
)
@click.option("--dry-run", is_flag=True, help="Print the plans and start nothing.")
@click.option("--dry-run-format", type=click.Choice(FORMATS), default="table", show_default=True)
@common_flags
def submit_command(
    target: Target,
    program: str,
    words: tuple[str, ...],
    deploy_deactivated: bool,
    detach: bool,
    wait: bool,
    kill_on_interrupt: bool,
    timeout_s: float,
    restore: str | None,
    allow_dropped_state: bool,
    dry_run: bool,
    dry_run_format: str,
    common: Common,
) -> None:
    """Start a topology and wait until every task has initialised.

    PROGRAM is a .py file, a folder with __main__.py, a .zip, .pex or .tar.gz of one, or module:Class.
    It runs in a process of its own and builds the topology.

    \b
    heron submit local topo.py                     run topo.py, or use its Topology class
    heron submit local topo.py Name [ARGS]...      choose a class, or give the topology this name
    heron submit local topo.py - [ARGS]...         run topo.py with ARGS as they are
    heron submit local topo.pex - Name             run the main program of a .pex
    heron submit local topo.pex module.Class Name  use a class of a .pex, .zip or folder
    heron submit local package.module:Class        use a class of an installed module

    An EFFECTIVELY_ONCE topology starts empty unless --restore names the checkpoint to go on from. A PATH is the
    folder of a checkpoint (chk-ID), of a topology's checkpoints, or of a copy of them.

    Ctrl-C before the topology runs removes it. Once it runs, Ctrl-C ends the waiting of --wait alone.

    Flags that heron does not know go to PROGRAM; so does everything after '--'.
    """
    if detach and wait:
        raise click.UsageError("--detach and --wait exclude each other; leave out one of them")
    if kill_on_interrupt and not wait:
        raise click.UsageError("--kill-on-interrupt says what Ctrl-C does while --wait waits; give --wait, too")
    if allow_dropped_state and restore is None:
        raise click.UsageError("--allow-dropped-state says what --restore may do; give --restore, too")
    from heronpy.cli import cleanup
    from heronpy.cli.session import Session

    _refuse_early_option(program)
    session = Session(target, common)
    session.check_cluster()
    form = dry_run_format if dry_run else None
    with cleanup.interruptible():
        _submit(
            session,
            program,
            words,
            deploy_deactivated,
            detach,
            _Wait(wait, kill_on_interrupt),
            timeout_s,
            form,
            (restore, allow_dropped_state),
        )


@dataclass(slots=True)
class _Wait:
    """Whether a submit stays until the topology has finished, and whether an interrupt then ends that as well."""

    wanted: bool
    kill_on_interrupt: bool
    #: The topology runs: from now on an interrupt ends the waiting alone, unless it is to kill.
    began: bool = False

    @property
    def outlived(self) -> bool:
        return self.began and not self.kill_on_interrupt


def _submit(
    session: Session,
    program: str,
    words: tuple[str, ...],
    deploy_deactivated: bool,
    detach: bool,
    wait: _Wait,
    timeout_s: float,
    form: str | None,
    restore: tuple[str | None, bool],
) -> None:
    """The steps of a submit; whatever ends them early undoes them."""
    with _scratch_folder() as scratch:
        deadline = time.monotonic() + timeout_s
        planned, started = _prepare(
            session, program, words, deploy_deactivated, form, Path(scratch), timeout_s, restore
        )
    if started is None:
        _print_plans(planned, form or "table")
        return
    name = planned.topology.name
    tasks = sum(len(container.instances) for container in planned.packing_plan.containers)
    with _taken_down_on_failure(session, started, wait):
        if not detach:
            from heronpy.cli import waiting

            waiting.until_running(session, started, tasks, max(deadline - time.monotonic(), 1.0))
        say(f"Successfully launched topology '{name}'" + (" (its tasks are still starting)" if detach else ""))
        say(f"  logs:   {started.spec.log_dir}")
        say(f"  status: {command('heron', 'status', session.target, name)}")
        if planned.restore is not None:
            say(f"  state:  of checkpoint {planned.restore.checkpoint}, {planned.restore.location}")
            for component in planned.restore.starting_empty:
                say(f"          component '{component}' is new and starts empty")
        if wait.wanted:
            from heronpy.cli.top import watch_until_finished

            wait.began = True
            last = watch_until_finished(session, name)
    if wait.wanted:
        _take_down(session, started)
        _say_how_it_ended(session, name, last)


def _say_how_it_ended(session: Session, name: str, last: control.StatusReply) -> None:
    """The end of --wait: what became of all tuples; a Failure when some are missing from the result."""
    from heronpy.cli import summary

    say(f"  tuples: {summary.totals_text(last)}")
    lost = summary.losses_text(last.totals)
    if not lost:
        say(f"Topology '{name}' has finished and is removed")
        return
    say(f"Topology '{name}' FINISHED WITH LOSSES: {lost}; it is removed")
    where = f"; 'heron dead-letters {session.target} {name}' shows those given up" if last.totals.dead_letters else ""
    raise exits.Failure(
        f"topology '{name}' gave up tuples ({summary.given_up_text(last.totals)}): its results are not complete{where}",
        exits.LOSSES,
    )


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A temporary folder; a second Ctrl-C does not keep it from being removed."""
    from heronpy.cli import cleanup

    folder = Path(tempfile.mkdtemp(prefix="heron-submit-"))
    try:
        yield folder
    finally:
        with cleanup.uninterrupted():
            shutil.rmtree(folder, ignore_errors=True)


def _refuse_early_option(program: str) -> None:
    """Unknown flags belong to the user's program only behind it; before it they are mistakes."""
    if program.startswith("-") and program != "-":
        ctx = click.get_current_context()
        known = [option for param in ctx.command.params for option in param.opts if option.startswith("--")]
        hint = exits.nearest(program.partition("=")[0], known, "; flags of the program come after it")
        raise click.UsageError(f"no such option: {program}{hint}", ctx)


def _prepare(
    session: Session,
    program: str,
    words: tuple[str, ...],
    paused: bool,
    dry_form: str | None,
    scratch: Path,
    timeout_s: float,
    restore: tuple[str | None, bool],
) -> tuple[Planned, Started | None]:
    """Load, check and start; what was started is None for a dry run."""
    from heronpy.cli import loader, restoring, submission
    from heronpy.cli.program import understand
    from heronpy.proto import topology_pb2 as api

    what = understand(program, words, scratch)
    # A plan that a program reads must stand alone on stdout.
    output = sys.stderr.fileno() if dry_form in ("json", "raw") else None
    loaded = loader.load(what, session.target, paused, scratch, timeout_s, output)
    loaded.topology.state = api.PAUSED if paused else api.RUNNING
    planned = submission.plan(session, loaded.topology)
    wanted, allow_dropped = restore
    if wanted is not None:
        planned.restore = restoring.choose(planned, wanted, allow_dropped)
    if dry_form is not None:
        return planned, None
    submission.check_host(planned)
    say(f"Launching topology: '{planned.topology.name}'")
    return planned, submission.start(session, planned, loaded)


def _print_plans(planned: Planned, form: str) -> None:
    from heronpy.cli import render_logical, render_packing
    from heronpy.cli.output import print_json

    if form == "json":
        print_json(
            {
                "logical_plan": render_logical.as_json(planned.topology),
                "packing_plan": render_packing.as_json(planned.packing_plan),
                "restore": planned.restore.location if planned.restore is not None else None,
            }
        )
    elif form == "raw":
        say(f"{planned.topology}\n{planned.packing_plan}".rstrip())
    else:
        start = f" from {planned.restore.location}" if planned.restore is not None else ""
        say(f"Topology '{planned.topology.name}' would be launched{start} as follows; nothing was started.\n")
        render_logical.show(planned.topology, coloured=form == "colored_table")
        render_packing.show(planned.packing_plan, coloured=form == "colored_table")


@contextmanager
def _taken_down_on_failure(session: Session, started: Started, wait: _Wait) -> Iterator[None]:
    """A submit that fails, is late or is interrupted leaves nothing behind; but who only waited can go."""
    try:
        yield
    except BaseException as error:
        from heronpy.cli import cleanup

        if isinstance(error, KeyboardInterrupt) and wait.outlived:
            _say_detached(session, started.record.topology)
            raise click.exceptions.Exit(exits.INTERRUPTED) from None

        with cleanup.uninterrupted():
            if isinstance(error, KeyboardInterrupt):
                name = started.record.topology
                early = f"topology '{name}' had not started; removing it, so that nothing is left"
                warn(f"interrupted: removing topology {name!r}" if wait.began else f"interrupted: {early}")
            _take_down(session, started)
        raise


def _say_detached(session: Session, name: str) -> None:
    """How to come back to a topology that runs on, in words and commands."""
    warn(f"interrupted: topology '{name}' runs on, and stays when it has finished")
    for what, verb in (("look:  ", "status"), ("watch: ", "top"), ("end:   ", "kill")):
        warn(f"  {what} {command('heron', verb, session.target, name)}")


def _take_down(session: Session, started: Started) -> None:
    from heronpy.cli import cleanup

    name = started.record.topology
    record = session.record(name)
    if record is not None and record.topology_id != started.record.topology_id:
        return  # somebody killed it and submitted another one of that name
    with session.operation(name):
        outcome = cleanup.take_down(session, started.record, CLEAN_UP_S)
    started.scheduler.poll()
    if outcome.remains:
        again = command("heron", "kill", session.target, name)
        warning(f"not removed: {', '.join(outcome.remains)}; run: {again}")
