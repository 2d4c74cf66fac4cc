"""`heron drill`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import Duration, common_flags, target_argument, topology_argument


@click.command("drill")
@target_argument
@topology_argument
@click.argument("what", metavar="TASK|COMPONENT|CONTAINER|PROCESS", shell_complete=complete.restartable)
@click.option("--signal", "signal_name", type=click.Choice(["KILL", "STOP"], case_sensitive=False), default="KILL",
              show_default=True, help="KILL ends the processes at once; STOP halts them for a while.")  # fmt: skip
@click.option("--for", "stopped_s", type=Duration(), metavar="TIME",
              help="How long STOP halts them, such as 30s.  [default: 3s]")  # fmt: skip
@common_flags
def drill_command(signal_name: str, stopped_s: float | None, **flags: Any) -> None:
    """Kill or stop processes of a topology on this machine, to see that it recovers.

    TASK is an instance id or a name such as count-2. A COMPONENT means all of its tasks. A CONTAINER is a number and
    means all of its processes. PROCESS is scheduler, master (the topology master), stmgr (all stream managers), or a
    name such as stmgr-1 or executor-1.

    KILL sends SIGKILL; STOP sends SIGSTOP, waits, and sends SIGCONT. The signals go to processes of this topology and
    of this user only. 'heron status' and 'heron events' show what follows; the page on guarantees says what is lost.
    """
    if stopped_s is not None and signal_name != "STOP":
        raise click.UsageError("--for says how long STOP halts processes; add --signal STOP")
    from heronpy.cli.change.drill import drill

    drill(stopped_s=3.0 if stopped_s is None else stopped_s, kills=signal_name == "KILL", **flags)
