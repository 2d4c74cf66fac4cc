"""`heron kill`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, json_flag, target_argument, timeout_flag, topology_argument


@click.command("kill")
@target_argument
@topology_argument
@timeout_flag(30.0, "Seconds that the scheduler may take before the processes are killed without it.")
@json_flag
@common_flags
def kill_command(**flags: Any) -> None:
    """Stop a topology and remove it from the cluster; its log files and its checkpoints stay.

    A submit with --restore resumes from a checkpoint; 'heron checkpoints delete' removes them.
    Also works when the topology's scheduler is dead or a submit was interrupted, and with an invalid
    configuration: invalid settings are ignored.
    """
    from heronpy.cli.change.kill import kill

    kill(**flags)
