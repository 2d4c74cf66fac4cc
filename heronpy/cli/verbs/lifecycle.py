"""`heron activate`, `deactivate` and `restart`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, target_argument, timeout_flag, topology_argument


@click.command("deactivate")
@target_argument
@topology_argument
@timeout_flag(90.0, "Seconds to wait until it is done.")
@common_flags
def deactivate_command(**flags: Any) -> None:
    """Pause the spouts of a topology; tuples already emitted are still processed."""
    from heronpy.cli.change.lifecycle import set_state

    set_state(active=False, **flags)


@click.command("activate")
@target_argument
@topology_argument
@timeout_flag(90.0, "Seconds to wait until it is done.")
@common_flags
def activate_command(**flags: Any) -> None:
    """Let the spouts of a topology emit; returns when every spout does."""
    from heronpy.cli.change.lifecycle import set_state

    set_state(active=True, **flags)


@click.command("restart", context_settings={"ignore_unknown_options": True})
@target_argument
@topology_argument
@click.argument("what", required=False, metavar="[CONTAINER|COMPONENT|INSTANCE]",
                shell_complete=complete.restartable)  # fmt: skip
@click.option("--task", type=click.IntRange(min=1), metavar="ID", help="Restart the task with this id only.",
              shell_complete=complete.tasks)  # fmt: skip
@click.option("--component", metavar="NAME", help="Restart all tasks of this component only.",
              shell_complete=complete.components)  # fmt: skip
@click.option(
    "--force",
    is_flag=True,
    help="Of an engine: submit containers anew, with the size that they ask for now, although nobody may be able to"
    " confirm that the old ones have ended.",
)
@timeout_flag(90.0, "Seconds to wait until it is done.")
@common_flags
def restart_command(what: str | None, task: int | None, component: str | None, force: bool, **flags: Any) -> None:
    """Restart a topology, one container (its number), all tasks of a component (its name) or one task (as count-2).

    -1, or no argument, means all containers; container 0 holds the topology master. The tasks of a component restart
    together, and their stream managers keep the tuples in flight to them. A container of an engine whose host is silent
    may wait for --force, see its line in heron status: make sure that its host is gone.
    """
    if sum(one is not None for one in (what, task, component)) > 1:
        raise click.UsageError("give only one of a container, component or instance, --task and --component")
    from heronpy.cli.change.lifecycle import restart

    restart(what=what, task=task, component=component, force=force, **flags)
