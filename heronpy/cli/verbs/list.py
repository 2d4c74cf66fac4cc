"""`heron list`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, json_flag
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("list", cls=Reading)
@reading_target
@json_flag
@common_flags
def list_command(**flags: Any) -> None:
    """List the topologies of a cluster, of a role or of an environ."""
    from heronpy.cli.look.topologies import list_topologies

    list_topologies(**flags)
