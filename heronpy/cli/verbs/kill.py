"""`heron kill` and `heron stop`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import timeout_flag, verb


@verb("kill")
@timeout_flag(
    None,
    "Seconds after which the processes are killed without the scheduler or, with an engine, the command reports what"
    " may still be running  [default: 30; with an engine, lost_s and the stop grace are added]",
)
@click.option("--force", is_flag=True, help="Remove the topology even if containers on an engine may still be running.")
def kill_command(**flags: Any) -> None:
    """Stop a topology and remove it from the cluster; its logs and checkpoints are kept.

    'heron submit --restore' resumes from a checkpoint; 'heron checkpoints delete' removes checkpoints. With an engine,
    the command waits until the end of every container is confirmed. If that takes too long, it names the containers
    that may still be running, with the command that shows them, and does not remove the topology. The scheduler
    continues to end these containers; run 'heron kill' again to finish.

    Also works when the topology's scheduler is dead, when 'heron submit' was interrupted, and with an invalid
    configuration: invalid settings are ignored.
    """
    from heronpy.cli.change.kill import kill

    kill(**flags)


@verb("stop")
@click.option("--drain", is_flag=True, help="Process all tuples in flight, finish the bolts, and end.")
@click.option("--savepoint", is_flag=True, help="Take a savepoint to resume from, then end; EFFECTIVELY_ONCE only.")
@timeout_flag(300.0, "Seconds that the drain or the savepoint may take.")
@click.option("--force", is_flag=True, help="Kill the topology even if the drain or the savepoint fails.")
def stop_command(drain: bool, savepoint: bool, **flags: Any) -> None:
    """End a topology gracefully and remove it from the cluster; its logs and checkpoints are kept.

    The spouts are deactivated. --drain waits until no tuple is in flight and then finishes every bolt, as at the
    end of bounded input: windows fire, sinks publish. --savepoint keeps the tuples in flight in a savepoint, from
    which 'heron submit --restore' resumes; it needs EFFECTIVELY_ONCE.

    If the drain or the savepoint fails or takes too long, nothing is killed, and spouts that were active are activated
    again.
    """
    if drain and savepoint:
        raise click.UsageError("--drain and --savepoint are mutually exclusive; leave out one of them")
    if not drain and not savepoint:
        raise click.UsageError("choose how to stop: --drain or --savepoint; 'heron kill' stops immediately")
    from heronpy.cli.change.stop import stop

    stop(savepoint=savepoint, **flags)
