"""`heron kill`: stop a topology and remove it; its logs and checkpoints stay."""

from __future__ import annotations

from heronpy.cli import exits
from heronpy.cli.change import takedown
from heronpy.cli.change.takedown import Outcome
from heronpy.cli.checkpoints.view import newest_location
from heronpy.cli.cluster.session import Session
from heronpy.cli.cluster.target import Common, Target
from heronpy.cli.output import command, print_json, say
from heronpy.proto import plan_pb2


def kill(target: Target, topology: str, timeout_s: float, as_json: bool, common: Common) -> None:
    """Stop a topology, remove it, and say what stays."""
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
        say(f"  to resume from it:  {command('heron', 'submit', target, 'PROGRAM', '--restore', 'latest')}")
        say(f"  to delete them:     {command('heron', 'checkpoints', 'delete', target, topology, '--all')}")


def remove(
    session: Session, topology: str, timeout_s: float, topology_id: str = ""
) -> tuple[plan_pb2.ExecutionState, Outcome, str]:
    """Stop and remove a topology; its record, what happened, and its newest checkpoint. A Failure if something is left.

    With an id, another topology of the same name is left alone.
    """
    session.find(topology)
    with session.operation(topology, timeout_s + 30.0):
        # Looked up again: another kill may have held the lock until now.
        record = session.find(topology)
        if topology_id not in ("", record.topology_id):
            raise exits.Failure(f"topology '{topology}' was killed and submitted again meanwhile; nothing was stopped")
        newest = newest_location(session, topology)
        outcome = takedown.take_down(session, record, timeout_s)
        newest = outcome.checkpoint or newest
    if outcome.remains:
        raise exits.Failure(
            f"topology '{topology}' is not removed, because {', '.join(outcome.remains)} cannot be stopped;"
            " stop it and run the command again",
            exits.PARTIAL,
        )
    return record, outcome, newest
