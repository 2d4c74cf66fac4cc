"""Runs the `heron` command as a user does, in a separate process, and checks exit code and output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support import warm
from tests.support.waiting import wait_for

REPO = Path(__file__).resolve().parents[2]
PLAIN = (sys.executable, "-m", "heronpy.cli")
EXAMPLES = REPO / "topologies"
#: Deadline for actions that take a second on an idle machine.
PATIENCE_S = 60.0
WORD_COUNT = str(EXAMPLES / "word_count.py")
FAILED, USAGE, NOT_FOUND, EXISTS, TIMED_OUT = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command."""

    command: str
    code: int
    out: str
    err: str

    def ok(self) -> Result:
        assert self.code == 0, f"{self}"
        return self

    def json(self) -> Any:
        return json.loads(self.ok().out)

    def refused(self, code: int, *words: str) -> str:
        """Check the exit code, and that stderr is one sentence with these words; return the sentence."""
        assert self.code == code, f"{self}"
        lines = self.err.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) == 1 and lines[-1] == errors[0], f"not one sentence: {self}"
        for word in words:
            assert word in errors[0], f"{word!r} is missing: {self}"
        return errors[0]

    def __str__(self) -> str:
        return f"$ {self.command}\n{self.out}{self.err}(exit code {self.code})"


class Heron:
    """Runs `heron` with a separate HERON_HOME."""

    def __init__(self, home: Path, argv: Sequence[str] = PLAIN) -> None:
        self.home = home
        self.argv = list(argv)
        self.cwd = home.parent
        self.env = {**os.environ, "HERON_HOME": str(home), "HERON_CONFIG_HOME": str(home / "client"), "COLUMNS": "200"}
        self.env.pop("HERON_CONF", None)
        self.env["PYTHONPATH"] = str(REPO)

    # ---- commands -----------------------------------------------------------------------------
    def __call__(self, *words: object, timeout_s: float = PATIENCE_S * 2, **options: Any) -> Result:
        told = list(map(str, words))
        line = " ".join(["heron", *told])
        options = {"cwd": self.cwd, "env": self.env, **options}
        if (
            warm.here
            and told[:1]
            and told[0] in warm.VERBS
            and self.argv == [*PLAIN]
            and options.keys() == {"cwd", "env"}
        ):
            return Result(line, *warm.here.run(told, **options, timeout_s=timeout_s))
        done = subprocess.run(
            [*self.argv, *told], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, **options
        )
        return Result(line, done.returncode, done.stdout, done.stderr)

    def start(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        """Start the command without waiting for its end."""
        options = {"cwd": self.cwd, "env": self.env, **options}
        return subprocess.Popen(
            [*self.argv, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def submit(self, *words: object) -> Result:
        return self("submit", "local", *words).ok()

    def kill(self, name: str) -> Result:
        return self("kill", "local", name).ok()

    # ---- what runs ----------------------------------------------------------------------------
    def status(self, name: str) -> dict[str, Any]:
        return self("status", "local", name, "--json").json()

    def names(self) -> list[str]:
        return [row["name"] for row in self("list", "local", "--json").json()]

    def when(
        self,
        name: str,
        condition: Callable[[dict[str, Any]], object],
        what: str,
        timeout_s: float = PATIENCE_S,
    ) -> dict[str, Any]:
        """Wait for a status that meets the condition; ignore failed requests."""
        last: Any = None

        def look() -> dict[str, Any] | None:
            nonlocal last
            result = self("status", "local", name, "--json")
            last = str(result)
            try:
                status = json.loads(result.out)
            except ValueError:
                status = None
            if status is not None and condition(status):
                return status  # type: ignore[no-any-return]
            time.sleep(0.1)  # each request takes CPU that the topology needs
            return None

        try:
            return wait_for(look, timeout_s, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; last: {last}\n{self.log_text(name)[-6000:]}") from None

    def when_state(self, name: str, state: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        return self.when(name, lambda status: status["lifecycle"] == state, f"{name} being {state}", timeout_s)

    def when_events(self, name: str, kind: str, count: int, timeout_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Wait until `heron events` shows `count` events of one kind; return them."""

        def told() -> list[dict[str, Any]]:
            events: list[dict[str, Any]] = self("events", "local", name, "--kind", kind, "--json").json()["events"]
            return events[count - 1 :] and events

        return wait_for(told, timeout_s, f"{count} events of kind {kind}")

    # ---- logs ---------------------------------------------------------------------------------
    def log_dir(self, name: str) -> Path:
        [folder] = self.home.glob(f"topologies/local/*/{name}/log-files")
        return folder

    def log_text(self, name: str, process: str = "*") -> str:
        files = sorted(self.log_dir(name).glob(f"{process}.log"))
        return "".join(path.read_text(errors="replace") for path in files)

    def when_logged(
        self, name: str, pattern: str, process: str = "*", count: int = 1, timeout_s: float = PATIENCE_S
    ) -> list[Any]:
        """Wait until the logs contain a pattern `count` times; return all matches."""

        def look() -> list[Any]:
            found = re.findall(pattern, self.log_text(name, process))
            return found if len(found) >= count else []

        return wait_for(look, timeout_s, f"{count} times {pattern!r} in the log of {process}")

    # ---- what is left -------------------------------------------------------------------------
    def processes(self) -> list[psutil.Process]:
        """Return the running processes of this home."""
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.pid != os.getpid() and process.environ().get("HERON_HOME") == str(self.home)
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def pid(self, name: str, process: str) -> int:
        """Return the pid of a topology's process, from the status."""
        if process.startswith("executor-"):
            pids = {f"executor-{item['container']}": item["pid"] for item in self.status(name)["containers"]}
            return int(pids[process])
        for container in self.status(name)["containers"]:
            for item in container["processes"]:
                if item["name"] == process:
                    return int(item["pid"])
        raise AssertionError(f"{name} has no process {process}")

    def scheduler_pid(self, name: str) -> int:
        """Return the pid of the scheduler, not of its guardian."""
        from heronpy.proto import plan_pb2
        from heronpy.statemgr import open_state, paths

        state = open_state("local", str(self.home / "state" / "local"))
        try:
            found = state.get(paths.scheduler(name))
        finally:
            state.close()
        assert found is not None, f"{name} has no scheduler"
        return int(plan_pb2.SchedulerLocation.FromString(found[0]).pid)

    def state_nodes(self) -> list[str]:
        root = self.home / "state" / "local"
        files = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
        # The next owner removes the files that show whether owners of nodes are alive.
        return sorted(
            str(path)
            for path in files
            if path.name not in (".lock", ".reserve", ".host") and path.parts[0] != ".owners"
        )

    def leftovers(self) -> list[str]:
        """Return processes, state nodes and sockets that remain although no topology should exist."""
        found = [f"process {process.pid} {' '.join(process.cmdline())}" for process in self.processes()]
        found += [f"state node {node}" for node in self.state_nodes()]
        sockets = Path(os.environ["TMPDIR"])
        found += [f"sockets folder {folder}" for folder in sockets.glob("heron-*/*")]
        found += [f"temporary {path}" for path in sockets.iterdir() if not path.name.startswith("heron-")]
        return found

    def check_clean(self) -> None:
        """Wait briefly, then check that only logs remain, and that they contain no errors of an event loop."""
        last: list[str] = []

        def clean() -> bool:
            nonlocal last
            last = self.leftovers()
            return not last

        try:
            wait_for(clean, 5.0)
        except AssertionError:
            raise AssertionError(f"left behind: {'; '.join(last)}") from None
        # Errors of an event loop, such as a failed callback or an unawaited task, are never caused by user code.
        logs = self.home.glob("topologies/*/*/*/log-files/*.log")
        wrong = [f"{log.name}: {line}" for log in logs for line in log.read_text(errors="replace").splitlines()
                 if "ERROR" in line and "[asyncio]" in line]  # fmt: skip
        assert not wrong, "\n".join(wrong)


def component(status: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in status["components"] if row["name"] == name)


def refused_before_start(heron: Heron, code: int, program: object, *words: str, flags: tuple[object, ...] = ()) -> str:
    """Check that a submit is refused before it starts a process or writes a file."""
    result = heron("submit", "local", program, *flags)
    sentence = result.refused(code, *words)
    assert "Launching" not in result.out
    assert heron.names() == []
    assert not (heron.home / "topologies").exists(), "something was written"
    heron.check_clean()
    return sentence
