"""Small programs that tests run in child processes: `main([what, ...])`."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from heronpy.procs import exit_notice


def main(argv: list[str] | None = None) -> int:
    what, *rest = argv if argv is not None else sys.argv[1:]
    if what == "exit":
        print(rest[1])
        return int(rest[0])
    if what == "raise":
        raise RuntimeError("broken")
    if what == "sys_exit":
        sys.exit(int(rest[0]))
    if what == "announce":
        announce(*rest)
    if what == "segfault":
        ctypes.string_at(0)
    if what == "describe":
        return describe()
    if what in ("with_subprocess", "with_escaped_subprocess"):
        child = subprocess.Popen(["sleep", "300"], start_new_session=what == "with_escaped_subprocess")
        write(Path(rest[0]), child.pid)
    if what == "nested_owner":
        own(Path(rest[0]), "outer-server", ("nested", ("own_escaped", rest[0])))
    if what == "own_escaped":
        write(Path(rest[0]) / "nested", os.getpid())
        own(Path(rest[0]), "inner-server", ("inner", ("note_and_escape", rest[0])))
    if what == "note_and_escape":
        write(Path(rest[0]) / "inner", os.getpid())
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        write(Path(rest[0]) / "pid", child.pid)
    time.sleep(60)
    return 0


def announce(how: str, said: str, code: str) -> None:
    """Announce an exit code to the fork server by some method, and exit with the same or another code."""
    exit_notice.claim()
    if how == "in a copy":
        child = os.fork()
        if child == 0:
            exit_notice.leave(int(said))
        os.waitpid(child, 0)
    elif how == "in a thread":
        thread = threading.Thread(target=exit_notice.announce, args=(int(said),))
        thread.start()
        thread.join()
    elif how == "by a program":
        # Pass all open files to the program.
        told = f"import os\nfor n in range(3, 256):\n try: os.write(n, bytes([{said}]))\n except OSError: pass"
        subprocess.run([sys.executable, "-c", told], close_fds=False, check=True)
    elif how == "by itself":
        exit_notice.announce(int(said))
    os._exit(int(code))


def write(path: Path, pid: int) -> None:
    draft = path.parent.parent / f"{path.parent.name}.{path.name}.new"
    draft.write_text(str(pid))
    draft.rename(path)


def own(folder: Path, title: str, command: tuple[str, tuple[str, ...]]) -> None:
    from heronpy.procs.forkserver import Command, ForkServer

    server = ForkServer.start(title, ())

    async def run() -> None:
        server.attach(lambda _: None)
        write(folder / title, server.pid)
        server.spawn(Command(command[0], "tests.support.programs", command[1]), 2)
        await asyncio.sleep(60)

    asyncio.run(run())


def describe() -> int:
    fds = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            os.fstat(int(name))
        except OSError:
            continue
        fds.append(name)
    print("fds", *fds)
    print("leader", os.getsid(0) == os.getpid() == os.getpgid(0))
    print("sigterm", "default" if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else "changed")
    print("cwd", os.getcwd())
    print("main", [name for name in vars(sys.modules["__main__"]) if not name.startswith("__")])
    print("random", random.random())
    print("title", Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
