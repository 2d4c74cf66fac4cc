"""Runs the user's program in a child process and reads the topology that it built.

No user code runs in the CLI itself. The child writes only below a temporary folder that the caller owns.
The child shares the terminal, so its output and traceback appear unchanged. Only a child that succeeds
yields a topology.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from heronpy.api.api_constants import TOPOLOGY_NAME
from heronpy.cli import exits
from heronpy.cli.output import warning
from heronpy.cli.submit import package_files
from heronpy.cli.submit.child import Child
from heronpy.cli.submit.program import Program
from heronpy.clusters.target import Target, unix_user
from heronpy.common.ids import topology_name_problem
from heronpy.launching.model import Loaded
from heronpy.proto import topology_pb2

#: The end of an error about a program that fails.
NOT_STARTED = "no topology was started"
SENTENCE = 3  # exit code of load_topology when its report has the error


def load(child: Child, program: Program, target: Target, paused: bool, scratch: Path, timeout_s: float) -> Loaded:
    """Run the program in the child. Raises a Failure if it fails or does not build exactly one topology."""
    out = scratch / "definitions"
    out.mkdir()
    options = {
        "cmdline.topologydefn.tmpdirectory": str(out),
        "cmdline.topology.initial.state": "PAUSED" if paused else "RUNNING",
        "cmdline.topology.cluster": target.cluster,
        "cmdline.topology.role": target.role_or_user,
        "cmdline.topology.environment": target.environ_or_default,
        "cmdline.topology.file_name": program.shown,
        "cmdline.topology.class_name": program.class_name or "-",
        "cmdline.topology.submit_user": unix_user(),
    }
    packed = ",".join(f"{key}={value}".replace(" ", "%%%%") for key, value in options.items())
    _run(child, program, scratch, _request(program, scratch, out, packed), timeout_s)
    report = json.loads((scratch / "report.json").read_text(encoding="utf-8"))
    topology = _the_topology(program, out)
    for text in report["warnings"]:
        warning(text)
    package = _package(program, report, scratch)
    source = str(program.archive or program.root) if package is not None else ""
    return Loaded(
        topology,
        package,
        _main_file(program, topology, report, package),
        source=source,
        is_folder=program.needs_whole_root and program.archive is None,
        argv=(program.shown, *program.args),
        argv_names_topology=program.name_argument,
        plain=tuple(report["plain"]),
    )


def _request(program: Program, scratch: Path, out: Path, options: str) -> bytes:
    request: dict[str, Any] = {
        "kind": program.kind,
        "root": str(program.root),
        "sys_path": [str(program.root)],
        "program": program.shown,
        "source": str(program.source or ""),
        "module": program.module,
        "class": program.class_name,
        "args": list(program.args),
        "name_argument": program.name_argument,
        "out": str(out),
        "report": str(scratch / "report.json"),
        "options": options,
    }
    return json.dumps(request).encode()


def _run(child: Child, program: Program, scratch: Path, request: bytes, timeout_s: float) -> None:
    started = time.monotonic()
    try:
        code = child.run(request, timeout_s)
    except subprocess.TimeoutExpired:
        raise exits.Failure(
            f"{program.shown} has not built its topology after {time.monotonic() - started:.0f} s;"
            " make the program exit after building, or increase --timeout",
            exits.TIMED_OUT,
        ) from None
    if code == 0:
        return
    if code == SENTENCE:
        report = json.loads((scratch / "report.json").read_text(encoding="utf-8"))
        if "sentence" in report:
            raise exits.Failure(report["sentence"], exits.USAGE)
        raise exits.Failure(f"{program.shown} {report['failed']}; {NOT_STARTED}")
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    raise exits.Failure(f"{program.shown} {how}; {NOT_STARTED}")


def _the_topology(program: Program, out: Path) -> topology_pb2.Topology:
    """Return the written topology, with the name that the user gave, if any."""
    found = []
    for path in sorted(out.glob("*.defn")):
        try:
            found.append(topology_pb2.Topology.FromString(path.read_bytes()))
        except DecodeError:
            raise exits.Failure(f"{program.shown} wrote {path.name}, which is not a topology", exits.USAGE) from None
    if not found:
        raise exits.Failure(
            f"{program.shown} ended without building a topology; call build_and_submit() or define a Topology class",
            exits.USAGE,
        )
    if len(found) > 1:
        found = [topology for topology in found if topology.name == program.name]
        if len(found) != 1:
            names = ", ".join(sorted(path.stem for path in out.glob("*.defn")))
            raise exits.Failure(
                f"{program.shown} builds several topologies ({names}); give one of these names after {program.shown}",
                exits.USAGE,
            )
    topology = found[0]
    if program.name is not None:
        rename(topology, program.name)
    problem = topology_name_problem(topology.name)
    if problem:
        raise exits.Failure(f"topology name '{topology.name}' {problem}; choose another name", exits.USAGE)
    return topology


def rename(topology: topology_pb2.Topology, name: str) -> None:
    """Rename a topology, including its id and configuration."""
    old, topology.name = topology.name, name
    if topology.id.startswith(old):
        topology.id = name + topology.id[len(old) :]
    for item in topology.topology_config.kvs:
        if item.key == TOPOLOGY_NAME:
            item.value = name


def _package(program: Program, report: dict[str, Any], scratch: Path) -> Path | None:
    if program.needs_whole_root:
        return program.archive or program.root
    package = scratch / "package"
    files = [Path(path) for path in report["files"]]
    if program.source is not None:
        files.append(program.source)
    package_files.copy_needed(program.root, files, package)
    return package if package.is_dir() else None


def _main_file(
    program: Program, topology: topology_pb2.Topology, report: dict[str, Any], package: Path | None
) -> str | None:
    """Return the path in the package of the file that tasks must load as `__main__`; None if no task needs it."""
    ran = report["main_file"]
    if ran is None or package is None or not Path(ran).is_relative_to(program.root):
        return None
    if not re.search(rb"__main__\b", topology.SerializeToString()):
        return None
    return str(Path(ran).relative_to(program.root))
