"""`heron doctor`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("doctor", cls=Reading)
@reading_target
@topology_argument
@click.option("--window", "window_s", type=click.FloatRange(min=10.0, max=3600.0), default=300.0, show_default=True,
              metavar="SECONDS", help="Measure rates and shares over this time.")  # fmt: skip
@click.option("-w", "--watch", is_flag=True, help="Repeat every five seconds; Ctrl-C ends it.")
@click.option("--evidence", is_flag=False, flag_value="", metavar="[FILE]",
              help="Also pack signals, events, status, settings and the ends of the logs into a new file, without"
              " passwords and keys; without FILE, into one of this folder that is named. With --watch, each look is"
              " added.")  # fmt: skip
@json_flag
@common_flags
def doctor_command(**flags: Any) -> None:
    """Say what holds a topology back, with the evidence, and what to do next.

    The most urgent finding comes first. Exit code 0: nothing needs action; 1: something does. Of a topology that has
    ended it says what its last minutes and events still tell.
    """
    from heronpy.cli.look.doctor import examine

    examine(**flags)
