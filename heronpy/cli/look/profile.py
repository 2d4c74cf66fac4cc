"""`heron profile`: where a task or another process of a topology spends its time, while it runs.

Its executor samples it: with py-spy, which attaches from outside and changes neither the topology nor its code, or
without it by letting the process sample itself in its main thread: the same stacks, at the cost of some CPU time.
(cProfile would slow down every call of the hot path, and records pairs of callers, not the stacks a flame graph needs.)
"""

from __future__ import annotations

from pathlib import Path

from heronpy.cli import exits
from heronpy.cli.look.flame import flame_graph, speedscope
from heronpy.cli.output import clean, say
from heronpy.clusters.live_evidence import find_process, take
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.folders import make_output
from heronpy.common.units import counted
from heronpy.proto import control_pb2
from heronpy.views.build_evidence import profile_of, rows_of

#: format -> suffix of its file
FORMATS = {"flamegraph": ".svg", "speedscope": ".speedscope.json"}


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
    reply = take(session, topology, process, request, duration_s)
    assert isinstance(reply, control_pb2.ProfileReply)
    found = profile_of(reply)
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
