"""`heron job` and `heron manager`."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, BinaryIO

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import Duration, timeout_flag, together, verb

_job = click.argument("job", shell_complete=complete.jobs)
_why = click.option("--why", default="", metavar="TEXT", help="The reason, for the history of the job.")
_layer = click.option("--as", "layer", default="oncall", show_default=True, metavar="LAYER",
                      help="The layer to change: provisioner, or oncall, which overrides it.")  # fmt: skip
_waits = together(
    click.option("--detach", is_flag=True, help="Return once the change is written, without waiting for its effect."),
    timeout_flag(600.0, "Seconds to wait for the effect of the change; the manager continues after that."),
)
_words = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[NAME|CLASS|-] [ARGS]...")
_program = together(click.argument("program"), _words)
_UNKNOWN = {"ignore_unknown_options": True}


@click.group("job")
def job_command() -> None:
    """Manage jobs. A job describes a topology in layers of settings, and a manager applies them.

    A job is a program and its settings, in two layers: provisioner (written by create and deploy) and oncall, which
    overrides it. The cluster's manager changes the topology until it matches the layers. A topology that has died is
    started again from its latest checkpoint.
    """


def _verb(name: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    return verb(name, job_command, topology=_job, json=False, **settings)


@verb("create", job_command, topology=None, json=False, context_settings=_UNKNOWN)
@_program
@click.option("--slo", metavar="lag=TIME", help="The promise (SLO) of the job, such as lag=5s.")
@click.option("--max", "most", multiple=True, metavar="COMPONENT=N",
              help="Maximum number of tasks that the scaler may give a component; repeatable."
                   " Components without this limit are not scaled.")  # fmt: skip
@click.option("--pool", metavar="POOL", help="The pool in whose slots the job runs; see heron pool.")
@_why
@_waits
def create_command(**flags: Any) -> None:
    """Create a job from a program, and start it; the job has the name of the program's topology.

    The command also starts the manager if none is active. PROGRAM and its arguments have the same form as for
    'heron submit'. --config-property sets settings of the job.
    """
    from heronpy.cli.submit.deploying import create

    create(**flags)


@verb("adopt", job_command, json=False)
@_why
@_waits
def adopt_command(**flags: Any) -> None:
    """Make a job from a running topology, without a restart.

    The job takes over the topology's current program, settings and numbers of tasks.
    """
    from heronpy.cli.submit.deploying import adopt

    adopt(**flags)


@_verb("deploy", context_settings=_UNKNOWN)
@_program
@click.option("--allow-dropped-state", is_flag=True, help="Drop the state of components that the new program lacks.")
@_why
@_waits
def deploy_command(**flags: Any) -> None:
    """Give a job another program: the topology is stopped with a savepoint, and started again from it.

    A program that cannot be imported, or does not fit the state, is refused, and the old one keeps running. If the
    new program fails within 30 s after its start, the topology is stopped, and the old program runs again from the
    savepoint.
    """
    from heronpy.cli.submit.deploying import deploy

    deploy(**flags)


@verb("list", job_command, topology=None)
def list_command(**flags: Any) -> None:
    """List the jobs, and show whether each topology matches its job."""
    from heronpy.cli.change.jobs import list_jobs

    list_jobs(**flags)


@verb("show", job_command, topology=_job)
@click.option("--watch", is_flag=True, help="Show the job again whenever it changes, until Ctrl-C.")
@click.option("--origin", is_flag=True, help="Show for each key its layer, its author, and the reason.")
def show_command(**flags: Any) -> None:
    """Show the intended state of a job, the layers that set it, and the manager's current steps."""
    from heronpy.cli.change.jobs import show

    show(**flags)


@_verb("set")
@click.argument("words", nargs=-1, required=True, metavar="KEY=VALUE...")
@_layer
@click.option("--for", "for_s", type=Duration(), metavar="TIME", help="How long the change is in effect, such as 2h.")
@_why
@_waits
def set_command(**flags: Any) -> None:
    """Set keys of a job, such as parallelism.COMPONENT=4; 'heron job schema' lists them.

    A change to settings stops the topology and starts it again. Numbers of tasks, resources, concurrency and
    configuration change while the topology runs.
    """
    from heronpy.cli.change.jobs import set_keys

    set_keys(**flags)


@_verb("unset")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@_layer
@_why
@_waits
def unset_command(**flags: Any) -> None:
    """Remove keys from a layer, with all keys below them: parallelism.work, or parallelism.

    A configuration key that no other layer sets keeps its last value.
    """
    from heronpy.cli.change.jobs import unset_keys

    unset_keys(**flags)


@verb("apply", job_command, topology=None, json=False)
@click.option("-f", "--file", type=click.File("rb"), required=True, metavar="FILE",
              help="YAML or JSON: one document for each job; - is standard input.")  # fmt: skip
@_layer
@click.option("--dry-run", is_flag=True, help="Print the differences, and write nothing.")
@_why
@_waits
def apply_command(**flags: Any) -> None:
    """Replace a layer of each job in a file with the content of that file, which may be kept in git.

    Each document has the name of a job (job: NAME) and the keys of the layer; 'heron job schema' lists them. Keys of
    the layer that are missing from the file are unset. All documents are checked before the first is written.
    """
    from heronpy.cli.change.job_files import apply

    apply(**flags)


@verb("schema", job_command, target=lambda function: function, topology=None, common=False)
def schema_command(as_json: bool) -> None:
    """List the keys that a layer of a job may contain."""
    from heronpy.cli.change.job_files import schema

    schema(as_json)


@verb("explain", job_command, topology=_job)
@click.option("--record", type=click.Path(path_type=pathlib.Path), metavar="FILE",
              help="Write the scaler's measurements of the last day to a new file, for heron job replay.")  # fmt: skip
def explain_command(**flags: Any) -> None:
    """Show for each component the scaler's figures, its decision, and the reason."""
    from heronpy.cli.change.job_evidence import explain

    explain(**flags)


@verb("slo", job_command, topology=_job)
def slo_command(**flags: Any) -> None:
    """Show for what share of the time a job kept its promise, and when it did not."""
    from heronpy.cli.change.job_evidence import slo

    slo(**flags)


@verb("replay", job_command, target=lambda function: function, topology=None, common=False)
@click.argument("file", type=click.File("rb"))
def replay_command(file: BinaryIO, as_json: bool) -> None:
    """Print the scaler's decisions for a file from 'heron job explain --record'.

    With the same release, these are the decisions that were made at the time. Each line of the file has the limits and
    the promise that were then in effect: change them to see other decisions.
    """
    from heronpy.cli.change.job_evidence import replay

    replay(file, as_json)


@_verb("stop")
@_why
@_waits
def stop_command(**flags: Any) -> None:
    """Stop the topology of a job, after a savepoint under EFFECTIVELY_ONCE, otherwise after a drain."""
    from heronpy.cli.change.jobs import set_run

    set_run(stop=True, **flags)


@_verb("start")
@_why
@_waits
def start_command(**flags: Any) -> None:
    """Start the stopped topology of a job from its latest checkpoint."""
    from heronpy.cli.change.jobs import set_run

    set_run(stop=False, **flags)


@_verb("revert")
@click.option("--as", "layer", default="provisioner", show_default=True, metavar="LAYER", help="The layer to change.")
@click.option(
    "--to",
    type=click.IntRange(min=1),
    metavar="VERSION",
    help="Version to restore; default: the previous version, or after a failed change the version that ran last.",
)
@_why
@_waits
def revert_command(**flags: Any) -> None:
    """Restore an earlier version of a layer of a job; for provisioner, this restores the earlier program."""
    from heronpy.cli.change.jobs import revert

    revert(**flags)


@_verb("release")
@_waits
def release_command(**flags: Any) -> None:
    """Retry a job that the manager has abandoned (QUARANTINED) or postponed (WAITING)."""
    from heronpy.cli.change.jobs import release

    release(**flags)


@_verb("delete")
def delete_command(**flags: Any) -> None:
    """Remove a stopped job; the checkpoints and logs of its topology are kept."""
    from heronpy.cli.change.jobs import delete

    delete(**flags)


@click.group("manager")
def manager_command() -> None:
    """Start, stop or show the manager, which makes topologies match their jobs.

    The manager consists of two processes, the syncer and the scaler. Topologies keep running without the manager.
    """


@verb("start", manager_command, topology=None, json=False)
@click.option(
    "--unit", is_flag=True, help="Print a template of systemd user units that run the manager; start nothing."
)
def manager_start_command(**flags: Any) -> None:
    """Start the manager on this host.

    The 'heron job' verbs also start the manager. After a reboot, the manager restarts the topologies.
    """
    from heronpy.cli.change.jobs import start_manager

    start_manager(**flags)


@verb("stop", manager_command, topology=None, json=False)
@timeout_flag(30.0, "Seconds that the manager may take to finish a step.")
def manager_stop_command(**flags: Any) -> None:
    """Stop all processes of the manager on this host, including standbys; topologies keep running."""
    from heronpy.cli.change.jobs import stop_manager

    stop_manager(**flags)


@verb("status", manager_command, topology=None)
def manager_status_command(**flags: Any) -> None:
    """Show whether a manager is active, and where."""
    from heronpy.cli.change.jobs import manager_status

    manager_status(**flags)
