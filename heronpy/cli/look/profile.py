"""`heron profile`: where a task or another process of a topology spends its time, while it runs.

py-spy, if installed, attaches to the process from outside; neither the topology nor its code is
changed. It samples twice, once per format, because it writes one format at a time. Without it the
process samples itself in a thread: the same stacks, at the cost of some of its CPU time. (cProfile
would slow down every call of the hot path, and records pairs of callers, not the stacks a flame graph needs.)
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from heronpy.cli import exits
from heronpy.cli.look.flame import flame_graph, speedscope
from heronpy.cli.output import clean, say
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.folders import make_output
from heronpy.common.nearest import suggestion
from heronpy.common.units import counted
from heronpy.procs.sampler import paths_of
from heronpy.proto import control_pb2

#: format -> suffix of its file
FORMATS = {"flamegraph": ".svg", "speedscope": ".speedscope.json"}
#: Time that the sampler needs to start and to write.
SLACK_S = 30.0
LOOK_S = 0.05


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
    executor, process = find_process(topology, session.status(topology), what)
    if executor.host not in ("", "localhost", "127.0.0.1", socket.gethostname(), socket.getfqdn()):
        raise exits.Failure(f"{process.name} runs on {executor.host}; run 'heron profile' there")
    program = py_spy()
    if native and program is None:
        raise exits.Failure("--native needs py-spy, which is not installed; run 'pip install py-spy'")
    make_output(out)
    files = {name: out / f"{topology}-{process.name}{FORMATS[name]}" for name in FORMATS if form in (name, "both")}
    about = f"Sampling {clean(process.name)} (pid {process.pid}) for {counted(duration_s, 'second')}"
    if program is None:
        say(f"{about}, from inside (py-spy samples from outside: pip install py-spy)")
        folder = session.launch_of(session.find(topology)).sockets_dir
        _write(f"{topology} {process.name}", sample_inside(process, folder, duration_s, rate, idle), files)
    else:
        say(f"{about} per format")
        flags = [*(["--native"] if native else []), *(["--idle"] if idle else []), "--rate", str(rate)]
        for name, path in files.items():
            _record(program, process, name, path, duration_s, flags)
    for name, path in files.items():
        say(f"  {name}: {path}")


def find_process(
    topology: str, status: control_pb2.StatusReply, what: str
) -> tuple[control_pb2.RegisterExecutor, control_pb2.ProcessRecord]:
    """The process of this name, and its executor; a Failure that names the nearest one."""
    known = {process.name: (executor, process) for executor in status.executors for process in executor.processes}
    for executor, process in known.values():
        if process.name == what or (what.isdecimal() and process.task_id == int(what) > 0):
            if process.state != control_pb2.PROC_RUNNING or not process.pid:
                raise exits.Failure(f"{process.name} is not running now; see 'heron status'")
            return executor, process
    hint = suggestion(what, known, f"; it has {', '.join(sorted(known))}")
    raise exits.Failure(f"topology '{topology}' has no task or process '{what}'{hint}", exits.USAGE)


def py_spy() -> str | None:
    """The program, if it is installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def sample_inside(
    process: control_pb2.ProcessRecord, folder: str, duration_s: float, rate: int, idle: bool
) -> list[tuple[tuple[str, ...], float]]:
    """Stacks and their seconds, sampled by the process itself; a Failure when it cannot."""
    ask, answer = paths_of(folder, process.pid)
    answer.unlink(missing_ok=True)
    ask.write_text(json.dumps({"duration_s": duration_s, "rate": rate, "idle": idle}), encoding="utf-8")
    try:
        if not _listens(process.pid):
            raise exits.Failure(f"{process.name} cannot sample itself; run 'pip install py-spy'")
        os.kill(process.pid, signal.SIGUSR2)
        deadline = time.monotonic() + duration_s + SLACK_S
        while not answer.exists():
            if not _listens(process.pid):
                raise exits.Failure(f"{process.name} ended while it was sampled")
            if time.monotonic() > deadline:
                raise exits.Failure(
                    f"{process.name} did not sample itself within {duration_s + SLACK_S:g} s: its main thread is in"
                    " native code, or it is being sampled already; py-spy can do it (pip install py-spy)",
                    exits.TIMED_OUT,
                )
            time.sleep(LOOK_S)
        found = json.loads(answer.read_text(encoding="utf-8"))
    finally:
        for path in (ask, answer):
            with suppress(OSError):
                path.unlink()
    return [(tuple(row["stack"]), row["seconds"]) for row in found["rows"]]


def _listens(pid: int) -> bool:
    """Whether the process handles the signal, which would otherwise end it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGUSR2 - 1) & 1)


def _write(title: str, rows: list[tuple[tuple[str, ...], float]], files: dict[str, Path]) -> None:
    if not rows:
        raise exits.Failure(f"{title} used no CPU while it was sampled; --idle also counts threads that wait")
    for name, path in files.items():
        make = flame_graph if name == "flamegraph" else speedscope
        path.write_text(make(title, rows), encoding="utf-8")


def _record(
    program: str, process: control_pb2.ProcessRecord, form: str, path: Path, duration_s: int, flags: list[str]
) -> None:
    command = [program, "record", "--pid", str(process.pid), "--duration", str(duration_s)]
    command += ["--format", form, "--output", str(path), *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=duration_s + SLACK_S)
    except subprocess.TimeoutExpired:
        raise exits.Failure(
            f"py-spy had not finished with {process.name} after {duration_s + SLACK_S:g} s", exits.TIMED_OUT
        ) from None
    if done.returncode or not path.is_file():
        raise exits.Failure(_reason(process.name, done.stderr))


def _reason(name: str, said: str) -> str:
    """py-spy's error as one sentence."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    text = clean(
        next((line for line in lines if "rror" in line or "denied" in line), lines[-1] if lines else "no reason")
    )
    if "ermission" in said or "ptrace" in said:
        return f"py-spy may not attach to {name}; run heron profile as root or set kernel.yama.ptrace_scope to 0"
    return f"py-spy could not sample {name}: {text}"
