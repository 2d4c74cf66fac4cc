"""`heron kill`: stop a topology and remove it; its logs and checkpoints stay."""

from __future__ import annotations

from heronpy.cli.output import command, print_json, say, warning
from heronpy.clusters.killing import remove
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target


def kill(target: Target, topology: str, timeout_s: float, as_json: bool, common: Common) -> None:
    """Stop a topology, remove it, and say what stays."""
    session = Session(target, common, lenient=True, warn=warning)
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
