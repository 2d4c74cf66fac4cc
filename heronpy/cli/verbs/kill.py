"""`heron kill`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, json_flag, target_argument, timeout_flag, topology_argument


@click.command("kill")
@target_argument
@topology_argument
@timeout_flag(
    None,
    "Seconds that the scheduler may take before the processes are killed without it, or, with an engine, until the"
    " command tells what may still run  [default: 30, with an engine lost_s and the stop grace more]",
)
@click.option("--force", is_flag=True, help="Remove it although containers on an engine may still run.")
@json_flag
@common_flags
def kill_command(**flags: Any) -> None:
    """Stop a topology and remove it from the cluster; its log files and its checkpoints stay.

    A submit with --restore resumes from a checkpoint; 'heron checkpoints delete' removes them.
    With an engine it waits for the confirmed end of every container. What may still run is named, with the command that
    looks for it, and the topology is not removed; its scheduler goes on ending it, and 'heron kill' finishes the next
    time.

    Also works when the topology's scheduler is dead or a submit was interrupted, and with an invalid
    configuration: invalid settings are ignored.
    """
    from heronpy.cli.change.kill import kill

    kill(**flags)
