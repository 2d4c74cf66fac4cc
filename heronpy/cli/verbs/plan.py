"""`heron plan`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import FORMATS, common_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("plan", cls=Reading)
@reading_target
@topology_argument
@click.argument("which", type=click.Choice(["logical", "packing", "physical"]), default="logical")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@json_flag
@common_flags
def plan_command(**flags: Any) -> None:
    """Show the logical plan (default), the packing plan or the physical plan."""
    from heronpy.cli.look.plans import show_plan

    show_plan(**flags)
