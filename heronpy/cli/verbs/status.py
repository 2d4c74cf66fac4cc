"""`heron status`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, json_flag, optional_topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("status", cls=Reading)
@reading_target
@optional_topology_argument
@json_flag
@common_flags
def status_command(**flags: Any) -> None:
    """Show a topology's state: what is down, what holds it back, what was restarted.

    TOPOLOGY may be omitted when only one runs.
    Exit code 1 when the topology has failed or none of its processes runs.
    """
    from heronpy.cli.look.status import show_status

    show_status(**flags)
