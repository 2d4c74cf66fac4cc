"""Flags and help of the verbs that change a running topology, except those that end it."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import (
    FORMATS,
    Duration,
    optional_topology_argument,
    timeout_flag,
    verb,
)
from heronpy.clusters.target import Common, Target


@verb("deactivate", json=False)
@timeout_flag(90.0, "Seconds to wait for completion.")
def deactivate_command(**flags: Any) -> None:
    """Pause the spouts of a topology; tuples already emitted are still processed."""
    from heronpy.cli.change.lifecycle import set_state

    set_state(active=False, **flags)


@verb("activate", json=False)
@timeout_flag(90.0, "Seconds to wait for completion.")
def activate_command(**flags: Any) -> None:
    """Let the spouts of a topology emit tuples; returns when all spouts are active."""
    from heronpy.cli.change.lifecycle import set_state

    set_state(active=True, **flags)


@verb("restart", json=False, context_settings={"ignore_unknown_options": True})
@click.argument("what", required=False, metavar="[CONTAINER|COMPONENT|INSTANCE]",
                shell_complete=complete.restartable)  # fmt: skip
@click.option("--task", type=click.IntRange(min=1), metavar="ID", help="Restart the task with this id only.",
              shell_complete=complete.tasks)  # fmt: skip
@click.option("--component", metavar="NAME", help="Restart all tasks of this component only.",
              shell_complete=complete.components)  # fmt: skip
@click.option(
    "--force",
    is_flag=True,
    help="On an engine: submit the containers again, at their current size, even if it cannot be confirmed that the"
    " old ones have ended.",
)
@timeout_flag(90.0, "Seconds to wait for completion.")
def restart_command(what: str | None, task: int | None, component: str | None, force: bool, **flags: Any) -> None:
    """Restart a topology, one container (its number), all tasks of a component (its name) or one task (count-2).

    -1, or no argument, means all containers; container 0 holds the topology master. The tasks of a component restart
    together, and their stream managers keep the tuples in flight to them. If the host of a
    container on an engine does not respond, the restart may need --force; the container's line in 'heron status' then
    says so. Use --force only if you are sure that the host is gone.
    """
    if sum(one is not None for one in (what, task, component)) > 1:
        raise click.UsageError("give only one of: a container, component or instance; --task; --component")
    from heronpy.cli.change.lifecycle import restart

    restart(what=what, task=task, component=component, force=force, **flags)


@verb("update")
@click.option(
    "--component-parallelism",
    "parallelism",
    multiple=True,
    metavar="NAME:N",
    help="New number of tasks of a component; may be repeated.",
    shell_complete=complete.parallelism,
)
@click.option("--container-number", type=click.IntRange(min=1), metavar="N", help="New number of containers.")
@click.option("--component-ram", "ram", multiple=True, metavar="NAME:SIZE",
              help="New memory of each task of a component, such as count:256MB. The packing plan uses it, and a task"
              " that exceeds it is restarted as out of memory. 0 restores the submitted value. May be repeated.",
              shell_complete=complete.parallelism)  # fmt: skip
@click.option("--component-cpu", "cpu", multiple=True, metavar="NAME:CORES",
              help="New number of cores of each task of a component in the packing plan, such as count:0.5. 0 restores"
              " the submitted value. May be repeated.",
              shell_complete=complete.parallelism)  # fmt: skip
@click.option(
    "--runtime-config",
    multiple=True,
    metavar="[COMPONENT:]KEY:VALUE",
    help="New value of a configuration key; may be repeated, but not combined with the options above. The only heron.*"
    " setting that can change is heron.instance.async_concurrency of an asynchronous bolt, to at most 512.",
)
@click.option(
    "--drain-timeout",
    "drain_timeout_s",
    type=click.FloatRange(min=0),
    metavar="S",
    help="Seconds that removed tasks may take to finish their queued tuples.",
)
@timeout_flag(300.0, "Seconds to wait until the update is done.")
@click.option("--dry-run", is_flag=True, help="Print what would change and change nothing.")
@click.option("--dry-run-format", type=click.Choice(FORMATS), default="table", show_default=True)
def update_command(target: Target, common: Common, topology: str, **flags: Any) -> None:
    """Change a running topology without stopping it; new sizes and new configuration do not restart tasks.

    \b
    heron update local word_count --component-parallelism count:4
    heron update local word_count --container-number 2
    heron update local word_count --component-ram count:256MB --component-cpu count:0.5
    heron update local word_count --runtime-config count:limit:10
    """
    plans = flags["parallelism"] or flags["container_number"] or flags["ram"] or flags["cpu"]
    if flags["runtime_config"] and plans:
        raise click.UsageError(
            "--runtime-config cannot be used with --component-parallelism, --container-number, --component-ram or"
            " --component-cpu; run two updates"
        )
    if not (flags["runtime_config"] or plans):
        raise click.UsageError(
            "nothing to change; give --component-parallelism, --container-number, --component-ram, --component-cpu or"
            " --runtime-config"
        )
    from heronpy.cli.change.update import UpdateOptions, update

    update(target, common, topology, UpdateOptions(**flags))


@verb("drain", json=False)
@click.option("--host", required=True, metavar="HOST", help="Host to drain, as shown by 'heron status'.")
@timeout_flag(600.0, "Seconds to wait until the containers have moved, including time in the engine's queue.")
def drain_command(**flags: Any) -> None:
    """Move the containers of a topology away from a host, one at a time, and avoid the host for a while.

    The topology must run on an engine. The host gets no containers for heron.engine.avoid_s.
    """
    from heronpy.cli.change.lifecycle import drain

    drain(**flags)


@click.group("scheduler")
def scheduler_command() -> None:
    """Restart the scheduler of a topology on an engine, or keep schedulers running.

    The scheduler is the process that replaces the topology's containers.
    """


@verb("start", scheduler_command, json=False)
def start_command(**flags: Any) -> None:
    """Restart the scheduler of a topology, for example after a reboot of the submitting host.

    The scheduler adopts the running containers and restarts none. Run it on the host where the topology was submitted.
    """
    from heronpy.cli.submit.scheduler import start

    start(**flags)


@verb("keep", scheduler_command, topology=None, json=False)
def keep_command(**flags: Any) -> None:
    """Keep the schedulers of all topologies that were submitted on this host running, until interrupted.

    Use it as the main process of a pod from which topologies are submitted. The command restarts schedulers that have
    died, and stops all schedulers when it is stopped. Containers keep running.
    """
    from heronpy.cli.submit.scheduler import keep

    keep(**flags)


@verb("drill", json=False)
@click.argument("what", metavar="TASK|COMPONENT|CONTAINER|PROCESS", shell_complete=complete.restartable)
@click.option("--signal", "signal_name", type=click.Choice(["KILL", "STOP"], case_sensitive=False), default="KILL",
              show_default=True, help="KILL ends the processes immediately; STOP halts them for a while.")  # fmt: skip
@click.option("--for", "stopped_s", type=Duration(), metavar="TIME",
              help="How long STOP halts the processes, such as 30s.  [default: 3s]")  # fmt: skip
def drill_command(signal_name: str, stopped_s: float | None, **flags: Any) -> None:
    """Kill or stop processes of a topology on this machine, to check that it recovers.

    TASK is an instance id or a name such as count-2. A COMPONENT means all of its tasks. A CONTAINER is a number and
    means all of its processes. PROCESS is scheduler, master (the topology master), stmgr (all stream managers), or a
    name such as stmgr-1 or executor-1.

    KILL sends SIGKILL; STOP sends SIGSTOP, waits, and sends SIGCONT. The signals go to processes of this topology and
    of this user only. 'heron status' and 'heron events' show the effects; the page on guarantees lists the losses.
    """
    if stopped_s is not None and signal_name != "STOP":
        raise click.UsageError("--for sets how long STOP halts processes; add --signal STOP")
    from heronpy.cli.change.lifecycle import drill

    drill(stopped_s=3.0 if stopped_s is None else stopped_s, kills=signal_name == "KILL", **flags)


@verb("clean", topology=optional_topology_argument)
@click.option("--older-than", "older_than_s", type=Duration(), default="7d", show_default=True, metavar="TIME",
              help="Remove folders that were not written to for this time; 0s: all folders.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="List the folders that would be removed, and remove nothing.")
def clean_command(**flags: Any) -> None:
    """Remove the logs and working folders of topologies that have ended, from this machine.

    With TOPOLOGY, remove only folders of this name. The folders are below HERON_HOME. Afterwards, the last run is no
    longer shown by 'heron logs', 'heron events' and 'heron dead-letters'. A topology that runs, or has not been killed,
    is left unchanged. Checkpoints and batches not yet handed to Spark are kept, because 'heron submit --restore' needs
    them.
    """
    from heronpy.cli.change.clean import clean

    clean(**flags)
