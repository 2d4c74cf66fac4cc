"""`heron activate`, `deactivate` and `restart`: each waits for its effect and says what it did."""

from __future__ import annotations

from heronpy.cli.output import clean, say
from heronpy.clusters import restarting
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.proto import control_pb2


def set_state(target: Target, topology: str, active: bool, timeout_s: float, common: Common) -> None:
    """Let the spouts emit, or pause them; returns when all have done so."""
    Session(target, common).ask(topology, control_pb2.SetState(active=active), timeout_s)
    say(f"Successfully {'activated' if active else 'deactivated'} topology '{topology}'")


def restart(
    target: Target,
    topology: str,
    what: str | None,
    task: int | None,
    component: str | None,
    force: bool,
    timeout_s: float,
    common: Common,
) -> None:
    """Restart what is named, through the topology master or, if there is none, the scheduler."""
    # Its end is what a process of the topology has answered.
    say(clean(restarting.restart(Session(target, common), topology, what, task, component, timeout_s, force)))
