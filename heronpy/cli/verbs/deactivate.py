"""`heron deactivate`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, target_argument, timeout_flag, topology_argument


@click.command("deactivate")
@target_argument
@topology_argument
@timeout_flag(90.0, "Seconds to wait until it is done.")
@common_flags
def deactivate_command(**flags: Any) -> None:
    """Pause the spouts of a topology; tuples already emitted are still processed."""
    from heronpy.cli.change.lifecycle import set_state

    set_state(active=False, **flags)
