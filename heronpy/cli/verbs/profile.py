"""`heron profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("profile", cls=Reading)
@reading_target
@topology_argument
@click.argument("what", metavar="TASK|PROCESS", shell_complete=complete.instances)
@click.option("--duration", "duration_s", type=click.IntRange(1, 300), default=5, show_default=True, metavar="S",
              help="Seconds to sample.")  # fmt: skip
@click.option("--rate", type=click.IntRange(1, 1000), default=200, show_default=True, help="Samples per second.")
@click.option(
    "--format", "form", type=click.Choice(["flamegraph", "speedscope", "both"]), default="both", show_default=True
)
@click.option("--native", is_flag=True, help="Also show frames of C extensions; needs py-spy.")
@click.option("--idle", is_flag=True, help="Also count threads that wait.")
@click.option("--out", type=click.Path(path_type=Path), default=".", metavar="DIR", help="Folder for the files.")
@common_flags
def profile_command(**flags: Any) -> None:
    """Record where a running task spends its time: a flame graph (SVG) and a file for speedscope.app.

    TASK is a task's number, its instance id, its name on the pages (count-2), or a component that has one task only;
    PROCESS is a name such as stmgr-1, tmaster or executor-1. Its executor samples it, on any host: with py-spy if that
    is installed and may attach, else the process samples itself.
    """
    from heronpy.cli.look.process import profile

    profile(**flags)
