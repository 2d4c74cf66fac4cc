"""`heron stacks`."""

from __future__ import annotations

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
