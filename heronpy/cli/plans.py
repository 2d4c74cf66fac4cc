"""`heron plan`: the logical, packing or physical plan of a topology."""

from __future__ import annotations

import click

from heronpy.cli import exits
from heronpy.cli.output import print_json, say
from heronpy.cli.reading import Reading, reading_target
from heronpy.cli.target import Common, Target, common_flags, json_flag, topology_argument

WHICH = ("logical", "packing", "physical")


@click.command("plan", cls=Reading)
@reading_target
@topology_argument
@click.argument("which", type=click.Choice(WHICH), default="logical")
@click.option(
    "--format", "form", type=click.Choice(["table", "colored_table", "json", "raw"]), default="table", show_default=True
)
@json_flag
@common_flags
def plan_command(target: Target, topology: str, which: str, form: str, as_json: bool, common: Common) -> None:
    """Show the logical plan (default), the packing plan or the physical plan."""
    from heronpy.cli import render_logical, render_packing, render_physical
    from heronpy.cli.session import Session

    session = Session(target, common)
    session.find(topology)
    form = "json" if as_json else form
    coloured = form == "colored_table"
    if which == "logical":
        logical = session.topology(topology)
        if form == "json":
            print_json(render_logical.as_json(logical))
        elif form == "raw":
            say(str(logical).rstrip())
        else:
            render_logical.show(logical, coloured)
    elif which == "packing":
        packing = session.packing_plan(topology)
        if form == "json":
            print_json(render_packing.as_json(packing))
        elif form == "raw":
            say(str(packing).rstrip())
        else:
            render_packing.show(packing, coloured)
    else:
        physical = session.physical_plan(topology)
        if physical is None:
            raise exits.Failure(
                f"topology '{topology}' has no physical plan yet; see 'heron status {target} {topology}' for what it"
                " waits for"
            )
        if form == "json":
            print_json(render_physical.as_json(physical))
        elif form == "raw":
            say(str(physical).rstrip())
        else:
            render_physical.show(physical, coloured)
