"""`heron activate`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, target_argument, timeout_flag, topology_argument


@click.command("activate")
@target_argument
@topology_argument
@timeout_flag(90.0, "Seconds to wait until it is done.")
@common_flags
def activate_command(**flags: Any) -> None:
    """Let the spouts of a topology emit; returns when every spout does."""
    from heronpy.cli.change.lifecycle import set_state

    set_state(active=True, **flags)
