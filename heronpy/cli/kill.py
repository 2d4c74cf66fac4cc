"""`heron kill`: stop a topology and remove every trace of it but its logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from heronpy.cli import exits
from heronpy.cli.output import command, print_json, say
from heronpy.cli.target import Common, Target, common_flags, json_flag, target_argument, topology_argument

if TYPE_CHECKING:
    from heronpy.cli.cleanup import Outcome
    from heronpy.cli.session import Session
    from heronpy.proto import plan_pb2 as plans


@click.command("kill")
@target_argument
@topology_argument
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Seconds that the scheduler may take before the processes are killed without it.",
)
@json_flag
@common_flags
def kill_command(target: Target, topology: str, timeout_s: float, as_json: bool, common: Common) -> None:
    """Stop a topology and remove it from the cluster; its log files and its checkpoints stay.

    A submit with --restore goes on from a checkpoint; 'heron checkpoints delete' removes them.
    Works also when the topology's scheduler is dead or a submit was cut short, and whatever the configuration says:
    a setting that is wrong is left out.
    """
    from heronpy.cli.session import Session

    session = Session(target, common, lenient=True)
    record, outcome, newest = remove(session, topology, timeout_s)
    if as_json:
        print_json(
            {
                "topology": topology,
                "killed": True,
                "by_scheduler": outcome.by_scheduler,
                "processes_killed": outcome.processes_killed,
                "log_dir": f"{record.working_dir}/log-files",
                "checkpoint": newest or None,
            }
        )
        return
    if not outcome.by_scheduler:
        say(f"The scheduler of '{topology}' was gone; stopped {outcome.processes_killed} left processes")
    say(f"Successfully killed topology '{topology}'")
    say(f"  logs stay in {record.working_dir}/log-files")
    if newest:
        say(f"  checkpoints stay; the newest is {newest}")
        say(f"  to go on from it:  {command('heron', 'submit', target, 'PROGRAM', '--restore', 'latest')}")
        say(f"  to delete them:    {command('heron', 'checkpoints', 'delete', target, topology, '--all')}")


def remove(
    session: Session, topology: str, timeout_s: float, topology_id: str = ""
) -> tuple[plans.ExecutionState, Outcome, str]:
    """Stop and remove a topology: its record, what happened, and its newest checkpoint; a Failure when some is left.

    With an id, another topology of that name is left alone.
    """
    from heronpy.cli import cleanup
    from heronpy.cli.checkpoint_view import newest_location

    session.find(topology)
    with session.operation(topology, timeout_s + 30.0):
        # Looked up again: another kill may have had the lock until now.
        record = session.find(topology)
        if topology_id not in ("", record.topology_id):
            raise exits.Failure(f"topology '{topology}' was killed and submitted anew meanwhile; nothing was stopped")
        newest = newest_location(session, topology)
        outcome = cleanup.take_down(session, record, timeout_s)
        newest = outcome.checkpoint or newest
    if outcome.remains:
        raise exits.Failure(
            f"topology '{topology}' is not removed, because {', '.join(outcome.remains)} cannot be stopped;"
            " stop it and run the command again",
            exits.PARTIAL,
        )
    return record, outcome, newest
