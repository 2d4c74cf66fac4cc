"""Installs and runs the programs of peers in separate interpreters, and measures their resources."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from heronpy.loadtest.processes import Tree

ROOT = Path(__file__).resolve().parents[1]
PEERS = Path(__file__).with_name("peers")
TIMEOUT_S = 600
POLL_S = 0.05
INSTALL_S = 1800


class Unavailable(Exception):
    """A contender cannot be measured; the text is the reason."""


def watched(command: Sequence[str], look: Callable[[Tree], None], every_s: float) -> float:
    """Run a program to its end, and sample its process tree; return wall seconds. Raises Unavailable if it fails."""
    with tempfile.TemporaryFile() as log:
        began = time.monotonic()
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=tempfile.gettempdir()
        )
        tree = Tree(psutil.Process(child.pid))
        while child.poll() is None:
            tree.refresh()
            look(tree)
            if time.monotonic() - began > TIMEOUT_S:
                for process in [*tree.root.children(recursive=True), tree.root]:
                    process.kill()
                child.wait()
                raise Unavailable(f"did not end within {TIMEOUT_S} s")
            time.sleep(every_s)
        wall = time.monotonic() - began
        if child.returncode:
            log.seek(0)
            lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
            telling = [line for line in lines if "Caused by" in line or "Error:" in line] or lines
            raise Unavailable(f"failed: {shortened(telling[-1]) if telling else f'exit code {child.returncode}'}")
    return wall


def shortened(text: str) -> str:
    """Return a log line without the folder names of this machine."""
    return text.strip().replace(str(ROOT), ".").replace(str(Path.home()), "~")[:200]


def python_of(cache: Path, package: str, version: str) -> str:
    """Install a peer if needed; return its interpreter. Raises Unavailable with pip's error."""
    folder = cache / f"{package}-{version}-py{sys.version_info.major}{sys.version_info.minor}"
    python = folder / "bin" / "python"
    if not (folder / "installed").is_file():
        print(f"installing {package} {version} ...", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", f"{package}=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["pip failed"]
            raise Unavailable(f"cannot be installed: {shortened(lines[-1].removeprefix('ERROR: '))}")
        (folder / "installed").touch()
    return str(python)
