"""`heron drill`: kill or stop processes of a topology, on purpose."""

from __future__ import annotations

from heronpy.cli.output import say
from heronpy.clusters import drilling
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.units import format_duration, listed
from heronpy.procs.interrupts import interruptible


def drill(target: Target, topology: str, what: str, kills: bool, stopped_s: float, common: Common) -> None:
    """Signal the named processes, and print which ones."""
    found = drilling.find(Session(target, common), topology, what)
    names = listed([f"{name} (process {process.pid})" for name, process in found.items()])
    if kills:
        drilling.kill(found)
        say(f"Killed {names} of topology '{topology}'")
        return
    with interruptible():
        drilling.stop(found, stopped_s)
    say(f"Stopped {names} of topology '{topology}' for {format_duration(stopped_s)}")
