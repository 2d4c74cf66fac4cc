"""This machine as an implementation of the engine contract: a container is a process that outlives its scheduler.

A shell starts a container's first process, waits for the process to end, and writes the exit code. The folder
engines/local/TOPOLOGY_ID in HERON_HOME contains the files of each submission: NAME.json (the shell's process), NAME.out
(the output), NAME.code (the exit code), NAME.cancelled (the time at which remaining processes are killed). The next
scheduler reads them.

Invariants: a container gets its join token after its record has been written, so that every acting container is listed.
A container's processes inherit the path of the files; an end is confirmed once no process with this path is left. The
memory of a container is not limited, except by the slot if the container runs in a pool.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, json

from heronpy.common import exit_codes
from heronpy.common.clock import boot_s
from heronpy.common.errors import ConfigError
from heronpy.common.folders import heron_home, open_private, replace_file
from heronpy.common.host import KnownProcess, Life, this_host
from heronpy.engines.contract import (
    Ended,
    EngineAwayError,
    EngineFatalError,
    EnginePhase,
    Explained,
    Found,
    NodeSize,
    Request,
    Seen,
    Traits,
)
from heronpy.engines.shared import end_of, polling
from heronpy.net.private import make_private
from heronpy.procs.exit_reason import ExitHints, classify, describe_status

if TYPE_CHECKING:
    import psutil

#: Environment variable of each process of a container: the path of its files, without their endings.
MARK: Final = "HERON_LOCAL_CONTAINER"
#: The first process of a container dies with its parent, which must not be the scheduler.
_SHELL: Final = '"$@"; echo $? >"$0"'
#: A shell adds this to the number of the signal that ended a process.
_SIGNALLED: Final = 128
#: How long the files of a container are kept after its end.
KEPT_S: Final = 3600.0


class LocalEngine:
    """The processes of one topology. Each container runs `command` with the join token as standard input."""

    traits = Traits(avoids_hosts=False)

    def __init__(self, topology_id: str, command: Sequence[str], poll_s: float = 2.0) -> None:
        self._topology_id = topology_id
        self._command = tuple(command)
        self._poll_s = poll_s
        self._folder = _root() / topology_id
        #: Shells whose end this process has to collect.
        self._shells: list[subprocess.Popen[bytes]] = []
        #: Containers without living processes.
        self._over: set[str] = set()

    # ---- commands -------------------------------------------------------------------------------
    def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
        """Start a process for each request. See `Engine.submit`."""
        try:
            _remove_old()
            make_private(self._folder)
            return {(one.container, one.submission): self._start(one) for one in requests}
        except ConfigError as error:
            raise EngineFatalError(str(error)) from None
        except OSError as error:
            raise EngineAwayError(f"a container cannot be started: {error}") from None

    def _start(self, request: Request) -> str:
        file = self._folder / f"{request.container}-{request.submission}"
        if file.with_suffix(".json").exists():
            return file.name
        host, command = self._placed(request)
        own = {
            MARK: str(file), "HERON_HOST": host, "HERON_TOPOLOGY_ID": self._topology_id,
            "HERON_CONTAINER": str(request.container), "HERON_SUBMISSION": str(request.submission),
        }  # fmt: skip
        # A container must not use the launch file of the scheduler.
        inherited = {name: value for name, value in os.environ.items() if name != "HERON_LAUNCH"}
        with open(open_private(file.with_suffix(".out"), os.O_WRONLY | os.O_APPEND), "wb") as out:
            shell = subprocess.Popen(
                ["sh", "-c", _SHELL, str(file.with_suffix(".code")), *command],
                env={**inherited, **own}, cwd="/", stdin=subprocess.PIPE, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self._shells.append(shell)
        assert shell.stdin is not None
        with suppress(BrokenPipeError), shell.stdin:
            replace_file(file.with_suffix(".json"), json.encode(KnownProcess.of(shell.pid)))
            shell.stdin.write(request.token.encode())
        return file.name

    def _placed(self, request: Request) -> tuple[str, Sequence[str]]:
        """The host of a container, and the command of its shell."""
        return this_host().name, self._command

    def cancel(self, engine_ids: Sequence[str], grace_s: float) -> None:
        """See `Engine.cancel`; the next `list` kills processes that remain after `grace_s`."""
        try:
            for file in self._files():
                if file.name in engine_ids:
                    kill_at, mark = boot_s() + grace_s, file.with_suffix(".cancelled")
                    replace_file(mark, str(min(kill_at, _number(mark) or kill_at)).encode())
                    self._terminate(file)
        except OSError as error:
            raise EngineAwayError(f"a container cannot be cancelled: {error}") from None

    def _terminate(self, file: Path) -> None:
        """Send SIGTERM to the first process of a container, which is the child of its shell."""
        shell = _shell(file).pid
        _signal(file, signal.SIGTERM, lambda one: one.ppid() == shell)

    # ---- lists ------------------------------------------------------------------------------------
    def list(self) -> Sequence[Seen]:
        """List the containers, and kill containers whose grace has expired. See `Engine.list`."""
        self._shells = [one for one in self._shells if one.poll() is None]
        try:
            return [self._seen(file) for file in self._files()]
        except (OSError, DecodeError) as error:
            raise EngineAwayError(f"the records in {self._folder} cannot be used: {error}") from None

    def _files(self) -> Sequence[Path]:
        return [file.with_suffix("") for file in sorted(self._folder.glob("*.json"))]

    def _seen(self, file: Path) -> Seen:
        container, submission = map(int, file.name.split("-"))
        shell, kill_at = _shell(file), _number(file.with_suffix(".cancelled"))
        phase = EnginePhase.RUNNING if kill_at is None else EnginePhase.ENDING
        seen = Seen(file.name, container, submission, phase, shell.host_name, cancelled=kill_at is not None)
        life = shell.life()
        if life is Life.UNKNOWN:
            words = f"it was started on host {shell.host_name}, whose processes are not visible from this host"
            return replace(seen, phase=EnginePhase.ENDED, ended=Ended.UNCONFIRMED, words=words)
        if life is Life.LIVES:
            if kill_at is not None and boot_s() >= kill_at:
                # The shell writes the exit code, unless it was stopped.
                if not _signal(file, signal.SIGKILL, lambda one: one.pid != shell.pid):
                    _signal(file, signal.SIGCONT)
            return seen
        if life is Life.ENDED and file.name not in self._over and _signal(file, signal.SIGKILL):
            return replace(seen, phase=EnginePhase.ENDING)
        self._over.add(file.name)
        code = _code(file, life)
        status = code - _SIGNALLED if code > _SIGNALLED else code << 8
        exit_code = code if code <= _SIGNALLED else None
        ended = replace(seen, phase=EnginePhase.ENDED, ended=Ended.CONFIRMED, exit_code=exit_code)
        return replace(ended, reason=classify(status, ExitHints()), words=describe_status(status))

    def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `changed` every `poll_s`."""
        return polling(self._poll_s, changed)

    def termination_report(self, engine_id: str) -> str:
        return end_of(self._folder / f"{engine_id}.out")

    def explain(self, engine_id: str) -> Explained:
        """Empty, because containers never wait on this machine."""
        return Explained("")

    def look_command(self) -> str:
        return f"pgrep -u $USER -af {self._folder}/"

    def topologies(self) -> dict[str, int]:
        shells = [(file.parent.name, _shell(file)) for file in _root().glob("*/*.json")]
        return dict(Counter(topology_id for topology_id, shell in shells if shell.life() is Life.LIVES))

    # ---- the machine ------------------------------------------------------------------------------
    def reach(self) -> tuple[str, ...]:
        """The loopback address, because all containers are on this machine."""
        return ("127.0.0.1",)

    def ready(self, hosts: Collection[str]) -> set[str]:
        return {*hosts} & {this_host().name}

    def node_sizes(self) -> Sequence[NodeSize]:
        """Empty, because nothing is reserved on this machine, so no container is too large."""
        return []

    def check(self) -> Sequence[Found]:
        """Check whether the files of containers can be written."""
        try:
            make_private(_root())
        except (ConfigError, OSError) as error:
            return [Found("containers", False, str(error), "set HERON_HOME to a folder that you own")]
        return [Found("containers", True, f"their files are in {_root()}")]


def _root() -> Path:
    return heron_home() / "engines" / "local"


def _shell(file: Path) -> KnownProcess:
    return json.decode(file.with_suffix(".json").read_bytes(), type=KnownProcess)


def _number(file: Path) -> float | None:
    """The number that a file contains; None if the file is missing or incomplete."""
    with suppress(FileNotFoundError, ValueError):
        return float(file.read_bytes())
    return None


def _signal(file: Path, signum: int, chosen: Callable[[psutil.Process], bool] = lambda one: True) -> bool:
    """Send a signal to this user's living processes that `chosen` selects; returns whether there were any."""
    import psutil

    found = False
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            # If this user is root, another user's process may carry the mark, too.
            is_own = one.uids().real == os.getuid() and one.environ().get(MARK) == str(file)
            if is_own and one.status() != psutil.STATUS_ZOMBIE and chosen(one):
                found = True
                one.send_signal(signum)
    return found


def _code(file: Path, life: Life) -> int:
    """The exit code that a container's shell wrote; without one, UNAVAILABLE after a reboot, else that of SIGKILL."""
    known = _number(file.with_suffix(".code"))
    if known is None:
        known = exit_codes.UNAVAILABLE if life is Life.REBOOTED else _SIGNALLED + signal.SIGKILL
        replace_file(file.with_suffix(".code"), str(int(known)).encode())
    return int(known)


def _remove_old() -> None:
    """Remove the files of containers that ended long ago, for all topologies."""
    for code in _root().glob("*/*.code"):
        if time.time() - code.stat().st_mtime > KEPT_S:
            for one in code.parent.glob(f"{code.stem}.*"):
                one.unlink(missing_ok=True)
            with suppress(OSError):  # it has files of other containers
                code.parent.rmdir()
