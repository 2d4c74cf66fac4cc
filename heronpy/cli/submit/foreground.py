"""`heron submit --foreground`: the scheduler stays a child of the command, where daemons of users are killed."""

from __future__ import annotations

import click

from heronpy.cli import exits
from heronpy.cli.interrupts import uninterrupted
from heronpy.cli.output import command, say, warn
from heronpy.cli.submit.model import Started
from heronpy.cli.submit.submission import scheduler_died
from heronpy.clusters.session import Session


def stay(session: Session, started: Started) -> None:
    """Wait until the scheduler ends; an interrupt ends it, and leaves the containers to whoever starts another one."""
    name, target = started.record.topology, session.target
    say("The scheduler stays in the foreground; Ctrl-C ends it, and the containers run on")
    try:
        code = started.scheduler.wait()
    except KeyboardInterrupt:
        with uninterrupted():
            started.scheduler.terminate()
            started.scheduler.wait()
        warn(f"interrupted: the containers of '{name}' run on, and nobody replaces one that ends")
        warn(f"  go on: {command('heron', 'scheduler', 'start', target, name)}")
        warn(f"  end:   {command('heron', 'kill', target, name)}")
        raise click.exceptions.Exit(exits.INTERRUPTED) from None
    record = session.record(name)
    if record is not None and record.topology_id == started.record.topology_id:
        if code:
            raise scheduler_died(started.spec, started.scheduler)
        say(f"The scheduler of '{name}' was asked to end; its containers run on")
        return
    say(f"Topology '{name}' was killed")
