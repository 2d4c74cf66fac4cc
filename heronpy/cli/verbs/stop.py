"""`heron stop`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, json_flag, target_argument, timeout_flag, topology_argument


@click.command("stop")
@target_argument
@topology_argument
@click.option("--drain", is_flag=True, help="Process all tuples in flight and finish the bolts, then end.")
@click.option("--savepoint", is_flag=True, help="Take a savepoint to resume from, then end; EFFECTIVELY_ONCE only.")
@timeout_flag(300.0, "Seconds that the drain or the savepoint may take.")
@click.option("--force", is_flag=True, help="Kill the topology even if the drain or the savepoint fails.")
@json_flag
@common_flags
def stop_command(drain: bool, savepoint: bool, **flags: Any) -> None:
    """End a topology gracefully and remove it from the cluster; its logs and checkpoints stay.

    Its spouts are deactivated. --drain waits until no tuple is in flight and then finishes every bolt, as at the
    end of bounded input: windows fire, sinks publish. --savepoint keeps the tuples in flight in a savepoint, from
    which a submit with --restore resumes; it needs EFFECTIVELY_ONCE.

    If that fails or takes too long, nothing is killed, and the spouts are activated again if they were active.
    """
    if drain and savepoint:
        raise click.UsageError("--drain and --savepoint exclude each other; leave out one of them")
    if not drain and not savepoint:
        raise click.UsageError("say how to stop: --drain or --savepoint; 'heron kill' stops at once")
    from heronpy.cli.change.stop import stop

    stop(savepoint=savepoint, **flags)
