"""`heron heap`: the objects of a process by type."""

from __future__ import annotations

import sys

import click
import msgspec

from heronpy.cli import exits
from heronpy.cli.output import clean, print_json, print_table, say
from heronpy.clusters.live_evidence import find_process, pause_text, take
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.units import format_bytes
from heronpy.proto import control_pb2
from heronpy.views.build_evidence import heap_of


def show_heap(
    target: Target, topology: str, what: str, top: int, limit_s: float, yes: bool, as_json: bool, common: Common
) -> None:
    """Say how long the process stops, have that confirmed, and print its objects by type."""
    session = Session(target, common)
    process = find_process(topology, session.status(topology), what)
    size = f" (it has {format_bytes(process.rss_bytes)})" if process.rss_bytes else ""
    announced = clean(pause_text(process.name, limit_s)) + size
    if not yes:
        if not sys.stdin.isatty():
            raise exits.Failure(f"{announced}; say --yes to do it", exits.USAGE)
        click.confirm(f"{announced}. Continue?", abort=True, err=True)
    elif not as_json:
        say(announced)
    request = control_pb2.Heap(name=process.name, top=top, limit_s=limit_s)
    reply = take(session, topology, process, request, limit_s)
    assert isinstance(reply, control_pb2.HeapReply)
    found = heap_of(reply)
    if as_json:
        about = {"topology": topology, "process": process.name, "pid": process.pid}
        print_json(about | msgspec.to_builtins(found))
        return
    rows = [
        (one.name, one.count, format_bytes(one.bytes), f"{one.bytes / (found.bytes or 1):.0%}") for one in found.types
    ]
    print_table(("type", "objects", "bytes", "share"), rows, right=("objects", "bytes", "share"))
    say(
        f"{found.objects:,} objects of {found.kinds:,} types have {format_bytes(found.bytes)}; the process has"
        f" {format_bytes(found.memory_bytes)}, with code and what C extensions hold."
        f" It stood still for {found.paused_s:.2f} s"
    )
    if found.share < 1:
        say(f"These are estimates from {found.share:.1%} of the objects; --limit lets it look longer")
