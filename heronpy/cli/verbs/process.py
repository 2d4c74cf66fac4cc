"""`heron stacks`, `heap` and `profile`: what a process of a topology does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("stacks", cls=Reading)
@reading_target
@topology_argument
@click.argument("what", metavar="TASK|PROCESS", shell_complete=complete.instances)
@json_flag
@common_flags
def stacks_command(**flags: Any) -> None:
    """Show what each thread of a running task or process does at this moment, the innermost call first.

    TASK is a task's number, its instance id, its name on the pages (count-2), or a component that has one task only;
    PROCESS is a name such as stmgr-1, tmaster or executor-1. The process goes on; it also works while user code hangs
    or is in a C extension. The stacks go to the process's log, too.
    """
    from heronpy.cli.look.process import show_stacks

    show_stacks(**flags)


@click.command("heap", cls=Reading)
@reading_target
@topology_argument
@click.argument("what", metavar="TASK|PROCESS", shell_complete=complete.instances)
@click.option("--top", type=click.IntRange(1, 500), default=30, show_default=True, metavar="N",
              help="The N types with the most bytes.")  # fmt: skip
@click.option("--limit", "limit_s", type=click.FloatRange(0.05, 5.0), default=2.0, show_default=True, metavar="S",
              help="Stop the process for about S seconds at most; a large one is estimated.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask before the process is stopped.")
@json_flag
@common_flags
def heap_command(**flags: Any) -> None:
    """Show the objects of a running task or process by type: how many, how large; never their values.

    The process stops while they are counted, for at most about --limit seconds; you are asked first. TASK is a task's
    number, its instance id, its name on the pages (count-2), or a component that has one task only; PROCESS is a name
    such as stmgr-1 or tmaster. Memory of C extensions and what the process shares with its siblings is not listed.
    """
    from heronpy.cli.look.process import show_heap

    show_heap(**flags)


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
