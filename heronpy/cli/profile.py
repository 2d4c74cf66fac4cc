"""`heron profile`: where a task or another process of a topology spends its time, while it runs.

py-spy attaches to the process from outside; neither the topology nor its code is changed. It samples
twice, once for each format, because it writes one format at a time.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heronpy.cli import exits
from heronpy.cli.output import clean, counted, say
from heronpy.cli.target import Common, Target, common_flags, target_argument, topology_argument

if TYPE_CHECKING:
    from heronpy.proto import control_pb2 as control

#: format -> suffix of its file
FORMATS = {"flamegraph": ".svg", "speedscope": ".speedscope.json"}
#: py-spy needs a moment to attach and to write.
SLACK_S = 30.0


@click.command("profile")
@target_argument
@topology_argument
@click.argument("what", metavar="TASK|PROCESS")
@click.option("--duration", "duration_s", type=click.IntRange(min=1), default=5, show_default=True, metavar="S",
              help="Seconds to sample, for each format.")  # fmt: skip
@click.option("--rate", type=click.IntRange(1, 1000), default=200, show_default=True, help="Samples a second.")
@click.option("--format", "form", type=click.Choice([*FORMATS, "both"]), default="both", show_default=True)
@click.option("--native", is_flag=True, help="Show frames of C extensions, too.")
@click.option("--idle", is_flag=True, help="Count threads that wait, too.")
@click.option("--out", type=click.Path(path_type=Path), default=".", metavar="DIR", help="Folder for the files.")
@common_flags
def profile_command(
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
    """Record where a running task spends its time: a flame graph (SVG) and a file for speedscope.app.

    TASK is a task's number or its instance id; PROCESS is a name such as stmgr-1 or tmaster.
    """
    from heronpy.cli.session import Session

    session = Session(target, common)
    executor, process = find_process(topology, session.status(topology), what)
    if executor.host not in ("", "localhost", "127.0.0.1", socket.gethostname(), socket.getfqdn()):
        raise exits.Failure(f"{process.name} runs on {executor.host}; run 'heron profile' there")
    program = _py_spy()
    out.mkdir(parents=True, exist_ok=True)
    flags = [*(["--native"] if native else []), *(["--idle"] if idle else [])]
    say(f"Sampling {clean(process.name)} (pid {process.pid}) for {counted(duration_s, 'second')} per format")
    for name in FORMATS if form == "both" else (form,):
        path = out / f"{topology}-{process.name}{FORMATS[name]}"
        _record(program, process, name, path, duration_s, [*flags, "--rate", str(rate)])
        say(f"  {name}: {path}")


def find_process(
    topology: str, status: control.StatusReply, what: str
) -> tuple[control.RegisterExecutor, control.ProcessRecord]:
    """The process that is meant, and its executor; a Failure that names the nearest one."""
    from heronpy.proto import control_pb2 as control

    known = {process.name: (executor, process) for executor in status.executors for process in executor.processes}
    for executor, process in known.values():
        if process.name == what or (what.isdecimal() and process.task_id == int(what) > 0):
            if process.state != control.PROC_RUNNING or not process.pid:
                raise exits.Failure(f"{process.name} is not running just now; see 'heron status'")
            return executor, process
    hint = exits.nearest(what, known, f"; it has {', '.join(sorted(known))}")
    raise exits.Failure(f"topology '{topology}' has no task or process '{what}'{hint}", exits.USAGE)


def _py_spy() -> str:
    """The program; a Failure when it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.is_file() else shutil.which("py-spy")
    if found is None:
        raise exits.Failure("heron profile needs py-spy, which is not installed; run 'pip install py-spy'")
    return found


def _record(
    program: str, process: control.ProcessRecord, form: str, path: Path, duration_s: int, flags: list[str]
) -> None:
    command = [program, "record", "--pid", str(process.pid), "--duration", str(duration_s)]
    command += ["--format", form, "--output", str(path), *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=duration_s + SLACK_S)
    except subprocess.TimeoutExpired:
        raise exits.Failure(
            f"py-spy was not done with {process.name} after {duration_s + SLACK_S:g} s", exits.TIMED_OUT
        ) from None
    if done.returncode or not path.is_file():
        raise exits.Failure(_reason(process.name, done.stderr))


def _reason(name: str, said: str) -> str:
    """What py-spy complained about, as one sentence."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    text = clean(
        next((line for line in lines if "rror" in line or "denied" in line), lines[-1] if lines else "no reason")
    )
    if "ermission" in said or "ptrace" in said:
        return f"py-spy may not attach to {name}; run heron profile as root or set kernel.yama.ptrace_scope to 0"
    return f"py-spy could not sample {name}: {text}"
