"""`python -Pm heronpy.executor.bootstrap`: the first process of a container on a host of a cluster.

The engine passes the join token as standard input, or as a mounted secret in the folder HERON_JOIN_TOKEN_FOLDER, and
the submission number in the environment. The process ends with its executor's exit code or signal, so that the engine
shows the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import signal
import sys
import time

from heronpy.common import exit_codes
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError, HeronError
from heronpy.common.ids import bootstrap_id, name_problem
from heronpy.common.logs import setup
from heronpy.executor.container import Container, Who
from heronpy.net.join_token import TEXT_MAX_CHARS, JoinToken
from heronpy.net.private import is_mounted, read_mounted
from heronpy.procs.linux import become_subreaper, die_with_parent


def main(argv: list[str] | None = None, executor_module: str = "heronpy.executor") -> int:
    """Run the container; returns its exit code, or the negative number of a signal."""
    begun_at = time.time()
    parser = argparse.ArgumentParser(prog="heronpy.executor.bootstrap", description="Run one container on this host.")
    parser.add_argument(
        "--start-s",
        type=float,
        default=EngineSettings().start_s,
        help="seconds within which the scheduler must admit the container (default: %(default)g)",
    )
    arguments = parser.parse_args(argv)
    with contextlib.suppress(PermissionError):  # already the leader of its session's group
        os.setsid()
    become_subreaper()
    # When the engine's process ends, this process gets SIGHUP and ends in an orderly way. The kernel also sends SIGHUP
    # if only the thread that started this process ends, so `Container` checks whether the parent has ended.
    parent = os.getppid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if os.getpid() != 1:
        die_with_parent(signal.SIGHUP, parent)
    try:
        who = _who()
        setup(bootstrap_id(who.container), descriptor=2)
        token = _token(who)
    except HeronError as error:
        print(f"bootstrap: {error}", file=sys.stderr, flush=True)
        return exit_codes.USAGE
    return asyncio.run(Container(token, who, executor_module, arguments.start_s, begun_at, parent).run())


def _who() -> Who:
    found = [os.environ.get(name, "") for name in ("HERON_TOPOLOGY_ID", "HERON_CONTAINER", "HERON_SUBMISSION")]
    topology_id, *numbers = found
    if name_problem(topology_id) or not all(one.isascii() and one.isdigit() for one in numbers):
        raise ConfigError(
            "HERON_TOPOLOGY_ID, HERON_CONTAINER and HERON_SUBMISSION do not identify this container; containers are"
            " started by the engine of a cluster, not by hand"
        )
    return Who(topology_id, *map(int, numbers))


def _token(who: Who) -> JoinToken:
    folder = os.environ.get("HERON_JOIN_TOKEN_FOLDER", "")
    text, source = (_mounted(folder), folder) if folder else (_piped(), "standard input")
    token = JoinToken.from_text(text.decode(errors="replace"), source)
    if token.topology_id != who.topology_id:
        raise ConfigError(f"{source} contains the join token of a different topology, not of {who.topology_id}")
    return token


def _mounted(folder: str) -> bytes:
    if not is_mounted(folder):
        raise ConfigError(f"{folder} is not a mounted secret: it must belong to root or you, and be read-only")
    return read_mounted(folder, "join_token", TEXT_MAX_CHARS)


def _piped() -> bytes:
    """Read standard input, and replace it with /dev/null so that no child process can read it."""
    text = os.read(0, 0)
    while len(text) <= TEXT_MAX_CHARS and (piece := os.read(0, TEXT_MAX_CHARS)):
        text += piece
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return text


def leave(code: int) -> None:
    """End this process with an exit code or, if the code is negative, by that signal, without waiting for threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        # The executor has already written a core file if core files are enabled.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        code = 128 - code  # process 1 of a container cannot kill itself with a signal
    os._exit(code)


if __name__ == "__main__":
    leave(main())
