"""An executor that follows the file `$TMPDIR/act` and records how it was started.

It accepts the arguments of `python -m heronpy.executor`, dies with its parent, and reports that it is alive.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from heronpy.executor.__main__ import parse
from heronpy.procs.linux import die_with_parent


def main() -> int:
    arguments = parse(None)
    assert die_with_parent(signal.SIGKILL, arguments.parent)
    folder = Path(os.environ["TMPDIR"])
    stubborn = (folder / "stubborn").exists()
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A process that leaves the session and its parent.
    escaped = subprocess.Popen(
        [sys.executable, "-c", "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(300)"],
        stdout=subprocess.DEVNULL,
    )
    escaped.wait()
    print("the small executor runs", flush=True)
    launch = Path(arguments.launch)
    (launch.parent / "log-files" / "container_1_word_1.log").write_text("a line\n" * 1000)
    started = {
        "pid": os.getpid(),
        "epoch": arguments.epoch,
        "argv": sys.orig_argv,
        "environ": dict(os.environ),
        "stdin": os.readlink("/proc/self/fd/0"),
        "session": os.getsid(0),
        "folder": str(launch.parent),
    }
    draft = folder / ".started"
    draft.write_text(json.dumps(started))
    draft.rename(folder / f"started-{arguments.container}-{arguments.epoch}")
    act = folder / "act"
    while True:
        os.write(arguments.signs_fd, b".")
        if act.exists():
            text = act.read_text()
            act.unlink()
            if text.startswith("exit "):
                return int(text[5:])
            os.kill(os.getpid(), int(text.removeprefix("signal ")))
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
