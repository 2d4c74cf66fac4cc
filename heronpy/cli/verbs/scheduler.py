"""`heron scheduler`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, target_argument, topology_argument


@click.group("scheduler")
def scheduler_command() -> None:
    """The scheduler of a topology on an engine: the process that replaces its containers."""


@scheduler_command.command("start")
@target_argument
@topology_argument
@common_flags
def start_command(**flags: Any) -> None:
    """Start the scheduler of a topology again, as after a reboot of the host where it was submitted.

    It adopts the containers that run and restarts none. Run it on the host where the topology was submitted.
    """
    from heronpy.cli.submit.scheduler_start import start

    start(**flags)


@scheduler_command.command("keep")
@target_argument
@common_flags
def keep_command(**flags: Any) -> None:
    """Keep the schedulers of all topologies of a cluster running that were submitted on this host, until it is ended.

    For the first process of a pod from which topologies are submitted: it starts the schedulers again that are gone,
    and ends them when it is ended; containers run on.
    """
    from heronpy.cli.submit.scheduler_keep import keep

    keep(**flags)
