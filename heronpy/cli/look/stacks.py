"""`heron stacks`: what each thread of a process does right now."""

from __future__ import annotations

from heronpy.cli.output import print_json, say_wrapped
from heronpy.clusters.live_evidence import find_process, take
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.proto import control_pb2


def show_stacks(target: Target, topology: str, what: str, as_json: bool, common: Common) -> None:
    """Print the stacks of a process."""
    session = Session(target, common)
    process = find_process(topology, session.status(topology), what)
    reply = take(session, topology, process, control_pb2.DumpStacks(name=process.name), 0.0)
    assert isinstance(reply, control_pb2.DumpStacksReply)
    if as_json:
        print_json({"topology": topology, "process": process.name, "pid": process.pid, "stacks": reply.text})
    else:
        for line in reply.text.rstrip().split("\n"):
            say_wrapped(line, len(line) - len(line.lstrip()) + 4)
