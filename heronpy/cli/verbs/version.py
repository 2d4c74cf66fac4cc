"""`heron version`."""

from __future__ import annotations

import platform
import sys

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import TargetType, json_flag
from heronpy.cli.output import print_json, say
from heronpy.common.release import release


@click.command("version", short_help="Show the version.")
@click.argument("target", type=TargetType(), metavar="[CLUSTER]", required=False, shell_complete=complete.clusters)
@json_flag
def version_command(target: object, as_json: bool) -> None:
    """Show the version of heron and of what it runs on."""
    facts = {"heron": release(), "python": platform.python_version(), "interpreter": sys.executable}
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        say(f"{name:<12} {value}")
