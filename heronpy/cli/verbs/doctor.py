"""`heron doctor`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("doctor", cls=Reading)
@reading_target
@topology_argument
@click.option("--window", "window_s", type=click.FloatRange(min=10.0, max=3600.0), default=60.0, show_default=True,
              metavar="SECONDS", help="Measure rates and shares over this time.")  # fmt: skip
@click.option("-w", "--watch", is_flag=True, help="Repeat every five seconds; Ctrl-C ends it.")
@json_flag
@common_flags
def doctor_command(**flags: Any) -> None:
    """Say what holds a topology back, with the evidence, and what to do next.

    The most urgent finding comes first. Exit code 0: healthy, changing or without input; 1: anything else.
    """
    from heronpy.cli.look.doctor import examine

    examine(**flags)
