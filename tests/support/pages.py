"""Runs the documentation: writes the files that a page shows, runs its commands, and compares their output.

A page is Markdown. A fenced block is one of:

    ```python counts.py     the word after the language is a file name: the block is appended to that file
    ```console              `$ command` lines, each with the output that the page promises
    ```text                 shown only

Each line that the page shows must be in a command's output. Other lines are allowed only where the page shows `...`.
Times, durations, sizes, addresses, large numbers and numbers in tables are not compared, because they vary.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from heronpy.clusters.target import unix_user

REPO = Path(__file__).resolve().parents[2]
DOCS = REPO / "docs"
#: Read-only commands whose output shows a change only after a moment; they are repeated until the output matches.
READERS = (
    "heron logs",
    "heron stacks",
    "heron heap",
    "heron top",
    "heron status",
    "heron metrics",
    "heron list",
    "heron exceptions",
    "heron checkpoints list",
    "grep",
    "curl",
)
PATIENCE_S = 30.0
COMMAND_S = 600.0

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+\d\d:?\d\d)?")
_AMOUNT = re.compile(r"\b\d[\d,.]*\s?(ns|us|ms|s|B|KB|MB|GB|/s)\b")
_BIG = re.compile(r"0x[0-9a-f]+|\d{4,}")
_NUMBER = re.compile(r"\d[\d,.]*")
_IN_TABLE = re.compile(r"\S {3,}\S")


@dataclass(slots=True)
class Command:
    """A `$` line, and the output that the page shows below it."""

    line: int
    text: str
    shown: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    name: str
    text: str

    def commands(self) -> list[Command]:
        found: list[Command] = []
        for offset, line in enumerate(self.text.splitlines(), start=1):
            if found and found[-1].text.endswith("\\"):
                found[-1].text = found[-1].text[:-1] + line.strip()
            elif line.startswith("$ "):
                found.append(Command(self.line + offset, line[2:]))
            elif found:
                found[-1].shown.append(line)
        return found


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    start = None
    for number, line in enumerate(lines, start=1):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
            continue
        words = lines[start - 1][3:].split()
        found.append(Block(start, *(words + ["", ""])[:2], "\n".join(lines[start : number - 1]) + "\n"))
        start = None
    assert start is None, f"{page}:{start}: this block has no end"
    return found


class PageRun:
    """Runs a page in a separate folder and HERON_HOME."""

    def __init__(self, page: Path, folder: Path, home: Path) -> None:
        self.page = page
        self.folder = folder
        self.home = home
        programs = folder / ".bin"
        programs.mkdir(parents=True)
        heron = programs / "heron"
        heron.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m heronpy.cli "$@"\n', encoding="utf-8")
        heron.chmod(0o755)
        self.env = {
            **os.environ,
            "HERON_HOME": str(home),
            "HERON_CONFIG_HOME": str(home / "client"),
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "PYTHONPATH": str(REPO),
            "COLUMNS": "150",
        }
        self.env.pop("HERON_CONF", None)

    def run(self) -> None:
        """Run all blocks in order; then kill the remaining topologies."""
        try:
            for block in blocks_of(self.page):
                self._run_block(block)
        finally:
            self._kill_all()

    def _run_block(self, block: Block) -> None:
        where = f"{self.page.name}:{block.line}"
        if block.language == "console":
            commands = block.commands()
            assert commands, f"{where}: a console block needs a line that begins with '$ '"
            for command in commands:
                self._run_command(command)
        elif block.name:
            path = self.folder / block.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(block.text)
        else:
            assert block.language == "text", f"{where}: give this block a file name, or call it text"

    def _run_command(self, command: Command) -> None:
        deadline = time.monotonic() + (PATIENCE_S if command.text.startswith(READERS) else 0)
        while True:
            done = subprocess.run(
                ["bash", "-c", command.text],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_S,
            )
            problem = f"exit code {done.returncode}" if done.returncode else self._difference(command, done.stdout)
            if not problem:
                return
            if time.monotonic() >= deadline:
                raise AssertionError(
                    f"{self.page.name}:{command.line}: $ {command.text}\n{problem}; it printed:\n{done.stdout}"
                )
            time.sleep(0.1)

    def _difference(self, command: Command, printed: str) -> str:
        """Return how the output differs from the page; "" if it matches."""
        actual = [line for text in printed.splitlines() if (line := self._plain(text))]
        shown = [line for text in command.shown if (line := self._plain(text))]
        missing = Counter(line for line in shown if line != "...") - Counter(actual)
        if missing:
            return f"the page shows {next(iter(missing))!r}"
        if "..." not in shown and len(shown) != len(actual):
            return f"the page shows {len(shown)} lines of {len(actual)}"
        return ""

    def _plain(self, line: str) -> str:
        """Return a line without the values that vary between runs."""
        in_table = _IN_TABLE.search(line.strip()) is not None
        line = line.replace(str(self.home), "/home/you/.herondata").replace(str(self.folder), "/home/you")
        line = line.replace(socket.gethostname(), "host")
        line = re.sub(rf"\b(local|hpc|k8s|sparky)/{re.escape(unix_user())}\b", r"\1/you", line)
        line = _AMOUNT.sub("#", _TIME.sub("#", _UUID.sub("#", line)))
        line = (_NUMBER if in_table else _BIG).sub("#", line)
        return " ".join(re.sub("─+", "─", line).split())

    def _kill_all(self) -> None:
        """Kill the topologies that the page has left running, as a reader would."""
        script = (
            "heron list local --json"
            " | python -c 'import json, sys; print(*[row[\"name\"] for row in json.load(sys.stdin)])'"
            " | xargs -r -n 1 heron kill local"
        )
        subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.env, capture_output=True, timeout=COMMAND_S)
