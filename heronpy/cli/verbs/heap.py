"""`heron heap`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


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
