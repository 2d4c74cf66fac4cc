"""`heron activate`, `deactivate`, `restart`, `drain` and `drill`: each verb waits for its effect and reports it."""

from __future__ import annotations

from heronpy.cli import exits
from heronpy.cli.output import clean, say
from heronpy.clusters import restarting
from heronpy.clusters.restarting import ANSWER_S
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target, caller
from heronpy.common.nearest import suggestion
from heronpy.common.units import format_duration, listed
from heronpy.procs.interrupts import interruptible
from heronpy.proto import control_pb2


def set_state(target: Target, topology: str, active: bool, timeout_s: float, common: Common) -> None:
    """Activate or pause all spouts, and wait until all of them are active or paused."""
    session = Session(target, common)
    session.refuse_job(topology, f"set {target} {topology} run={'running' if active else 'paused'}")
    session.ask(topology, control_pb2.SetState(active=active), timeout_s)
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
    """Restart the named part through the topology master or, without a topology master, through the scheduler."""
    # The text comes from a process of the topology.
    say(clean(restarting.restart(Session(target, common), topology, what, task, component, timeout_s, force)))


def check_engine(session: Session, topology: str, verb: str) -> str:
    """Return the kind of the topology's engine; raises a Failure when the topology does not exist or has no engine."""
    session.find(topology, pools=True)
    engine = session.engine_of(topology)
    if not engine:
        raise exits.Failure(
            f"topology '{topology}' runs on this machine without an engine, so there is nothing to {verb}", exits.USAGE
        )
    return engine


def drain(target: Target, topology: str, host: str, timeout_s: float, common: Common) -> None:
    """Let the scheduler move the containers away from a host, and wait until they have moved."""
    session = Session(target, common)
    check_engine(session, topology, "drain")
    found = session.ask_scheduler(topology, control_pb2.GetContainers(), ANSWER_S)
    known = {one.host for one in found.containers if one.host}
    if host not in known:
        hint = suggestion(host, known, f"; its containers are on {', '.join(sorted(known)) or 'no host yet'}")
        raise exits.Failure(f"topology '{topology}' has no container on host '{host}'{hint}", exits.USAGE)
    # The scheduler enforces the timeout: its answer names the unfinished steps.
    request = control_pb2.DrainHost(host=host, wait_s=timeout_s, by=caller())
    say(f"Successfully drained: {session.ask_scheduler(topology, request, timeout_s + ANSWER_S).text}")


def drill(target: Target, topology: str, what: str, kills: bool, stopped_s: float, common: Common) -> None:
    """Send a signal to the named processes, and print their names."""
    from heronpy.clusters import drilling  # the other verbs need no psutil

    found = drilling.find(Session(target, common), topology, what)
    names = listed([f"{name} (process {process.pid})" for name, process in found.items()])
    if kills:
        drilling.kill(found)
        say(f"Killed {names} of topology '{topology}'")
        return
    with interruptible():
        drilling.stop(found, stopped_s)
    say(f"Stopped {names} of topology '{topology}' for {format_duration(stopped_s)}")
