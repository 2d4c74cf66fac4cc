"""`heron drain`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, target_argument, timeout_flag, topology_argument


@click.command("drain")
@target_argument
@topology_argument
@click.option("--host", required=True, metavar="HOST", help="The host, as 'heron status' names it.")
@timeout_flag(600.0, "Seconds to wait until the containers have moved, queue included.")
@common_flags
def drain_command(**flags: Any) -> None:
    """Move the containers of a topology away from a host, one at a time, and give it no others for a while.

    For topologies on an engine. How long the host gets no containers is heron.engine.avoid_s.
    """
    from heronpy.cli.change.lifecycle import drain

    drain(**flags)
