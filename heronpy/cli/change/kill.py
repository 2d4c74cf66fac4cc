"""`heron kill`: stop a topology and remove it; its logs and checkpoints are kept."""

from __future__ import annotations

from heronpy.cli.output import command, print_json, say, warn, warning
from heronpy.clusters.killing import remove
from heronpy.clusters.session import Session
from heronpy.clusters.takedown_outcome import some, unseen
from heronpy.clusters.target import Common, Target
from heronpy.common.units import counted


def kill(target: Target, topology: str, timeout_s: float | None, force: bool, as_json: bool, common: Common) -> None:
    """Stop a topology, remove it, and print where its logs and checkpoints are kept."""
    session = Session(target, common, lenient=True, warn=warning)
    session.refuse_job(topology, f"stop {target} {topology}", kills=True)
    record, outcome, newest = remove(session, topology, timeout_s, force=force, waits=warn)
    if outcome.unswept:
        warning(f"files of unfinished checkpoints remain in the store: {outcome.unswept}")
    if outcome.replica_lacks:
        warning(outcome.replica_lacks)
    if outcome.may_run:
        look = f"; look for it with: {outcome.look}" if outcome.look else ""
        warning(f"the end of {', '.join(outcome.may_run)} could not be confirmed{look}")
    if as_json:
        print_json(
            {
                "topology": topology,
                "killed": True,
                "by_scheduler": outcome.by_scheduler,
                "processes_killed": outcome.processes_killed,
                **({"ended_on_engine": outcome.ended_on_engine} if outcome.ended_on_engine else {}),
                **({"files_on": outcome.files_on} if outcome.files_on else {}),
                **({"unconfirmed": outcome.may_run} if outcome.may_run else {}),
                "unseen_host": outcome.unseen_host or None,
                "log_dir": f"{record.working_dir}/log-files",
                "checkpoint": newest or None,
                "replica_lacks": outcome.replica_lacks or None,
            }
        )
        return
    if outcome.unseen_host and outcome.ended_on_engine:
        say(f"Topology '{topology}' had no scheduler; heron stopped {counted(outcome.ended_on_engine, 'container')}")
    elif outcome.unseen_host and not outcome.by_scheduler:
        warning(unseen(topology, outcome.unseen_host))
    elif not outcome.by_scheduler:
        ended = f" and {counted(outcome.ended_on_engine, 'container')}" if outcome.ended_on_engine else ""
        killed = f"{outcome.processes_killed} remaining processes{ended}"
        say(f"Topology '{topology}' had no scheduler; heron stopped {killed}")
    say(f"Successfully killed topology '{topology}'")
    where = f" on host {outcome.unseen_host}" if outcome.unseen_host else ""
    if outcome.files_on:
        say(
            "  if a container was killed before it cleaned up, its folder remains on its host"
            f" ({some(outcome.files_on)}) until your next container on that host removes the folder"
        )
    say(f"  logs are kept in {record.working_dir}/log-files{where}")
    if newest:
        say(f"  checkpoints are kept; the newest is {newest}{where if newest.startswith('/') else ''}")
        say(f"  to resume from it:  {command('heron', 'submit', target, 'PROGRAM', '--restore', 'latest')}")
        say(f"  to delete them:     {command('heron', 'checkpoints', 'delete', target, topology, '--all')}")
