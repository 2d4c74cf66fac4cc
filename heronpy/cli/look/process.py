"""`heron stacks`, `heap` and `profile`: the current activity of a running task or other process."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from heronpy.cli import exits
from heronpy.cli.look.flame import flame_graph, speedscope
from heronpy.cli.output import clean, print_json, print_table, say, say_wrapped
from heronpy.clusters.live_evidence import find_process, pause_text, take
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.folders import make_output
from heronpy.common.units import counted, format_bytes
from heronpy.net.answers import read
from heronpy.proto import control_pb2
from heronpy.views.evidence import Heap, Profile, rows_of

#: format -> suffix of its file
FORMATS = {"flamegraph": ".svg", "speedscope": ".speedscope.json"}


def show_stacks(target: Target, topology: str, what: str, as_json: bool, common: Common) -> None:
    """Print the stack of each thread of a process."""
    session = Session(target, common)
    process = find_process(topology, session.status(topology), what)
    reply = take(session, topology, process, control_pb2.DumpStacks(name=process.name), 0.0)
    assert isinstance(reply, control_pb2.DumpStacksReply)
    if as_json:
        print_json({"topology": topology, "process": process.name, "pid": process.pid, "stacks": reply.text})
    else:
        for line in reply.text.rstrip().split("\n"):
            say_wrapped(line, len(line) - len(line.lstrip()) + 4)


def show_heap(
    target: Target, topology: str, what: str, top: int, limit_s: float, yes: bool, as_json: bool, common: Common
) -> None:
    """Print for how long the process will be paused, ask for confirmation, and print the process's objects by type."""
    session = Session(target, common)
    process = find_process(topology, session.status(topology), what)
    size = f" (it uses {format_bytes(process.rss_bytes)})" if process.rss_bytes else ""
    announced = clean(pause_text(process.name, limit_s)) + size
    if not yes:
        if not sys.stdin.isatty():
            raise exits.Failure(f"{announced}; add --yes to confirm", exits.USAGE)
        click.confirm(f"{announced}. Continue?", abort=True, err=True)
    elif not as_json:
        say(announced)
    request = control_pb2.Heap(name=process.name, top=top, limit_s=limit_s)
    found = read(take(session, topology, process, request, limit_s), Heap)
    if as_json:
        about = {"topology": topology, "process": process.name, "pid": process.pid}
        print_json(about | msgspec.to_builtins(found))
        return
    rows = [
        (one.name, one.count, format_bytes(one.bytes), f"{one.bytes / (found.bytes or 1):.0%}") for one in found.types
    ]
    print_table(("type", "objects", "bytes", "share"), rows, right=("objects", "bytes", "share"))
    say(
        f"{found.objects:,} objects of {found.kinds:,} types use {format_bytes(found.bytes)}; the process uses"
        f" {format_bytes(found.memory_bytes)}, including code and the memory of C extensions."
        f" The process was stopped for {found.paused_s:.2f} s"
    )
    if found.share < 1:
        say(f"These are estimates from {found.share:.1%} of the objects; a larger --limit covers more")


def profile(
    target: Target,
    topology: str,
    what: str,
    duration_s: int,
    rate: int,
    form: str,
    native: bool,
    idle: bool,
    out: Path,
    common: Common,
) -> None:
    """Sample a process and write the result as files."""
    session = Session(target, common)
    process = find_process(topology, session.status(topology), what)
    make_output(out)
    files = {name: out / f"{topology}-{process.name}{FORMATS[name]}" for name in FORMATS if form in (name, "both")}
    say(f"Sampling {clean(process.name)} (pid {process.pid}) for {counted(duration_s, 'second')}")
    request = control_pb2.Profile(name=process.name, duration_s=duration_s, rate=rate, idle=idle, native=native)
    found = read(take(session, topology, process, request, duration_s), Profile)
    if not found.stacks:
        raise exits.Failure(f"{process.name} used no CPU while it was sampled; --idle also counts threads that wait")
    title, rows = f"{topology} {process.name}", rows_of(found)
    for name, path in files.items():
        make = flame_graph if name == "flamegraph" else speedscope
        path.write_text(make(title, rows), encoding="utf-8")
        say(f"  {name}: {path}")
    say(f"  {found.seconds:.1f} s of {'all threads' if idle else 'threads that ran'}, sampled by {found.sampler}")
    if found.note:
        say(f"  {clean(found.note)}")
    if found.left_out_s:
        say(f"  {found.left_out_s:.1f} s of rare stacks are left out")
