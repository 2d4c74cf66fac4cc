"""Another user of the machine: a process with the uid of nobody, which only root can start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

#: What nobody can reach below the folders of the arguments, as a JSON list of [what, path].
WALK = """
import json, os, socket, stat, sys
found = []
def can(what, path, action):
    try:
        action()
        found.append([what, path])
    except OSError:
        pass
def look(path):
    try:
        status = os.lstat(path)
    except OSError:
        return
    if stat.S_ISDIR(status.st_mode):
        can("list", path, lambda: os.listdir(path))
        def plant():
            name = os.path.join(path, "planted")
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os.unlink(name)
        can("write", path, plant)
        can("swap", path, lambda: (os.rename(path, path + ".swapped"), os.rename(path + ".swapped", path)))
        try:
            names = os.listdir(path)
        except OSError:
            names = []
        for name in names:
            look(os.path.join(path, name))
    elif stat.S_ISSOCK(status.st_mode):
        def connect():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.connect(path)
        can("connect", path, connect)
    else:
        can("read", path, lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)))
        can("write", path, lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)))
# Look up names, too: a folder that cannot be listed may still give access to known names.
for path in sys.argv[1:]:
    look(path)
for path in json.load(sys.stdin):
    look(path)
print(json.dumps(found))
"""


def run_as_nobody(code: str, *arguments: object, text: str = "") -> str:
    """What a program prints that runs as nobody, without our environment; it has to end well."""
    # It drops its rights itself: nobody may not be allowed to execute this interpreter.
    drop = f"import json, os, socket, stat, sys\nos.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", drop + code, *map(str, arguments)],
        input=text, capture_output=True, text=True, timeout=60, cwd="/", env={},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def reached(*folders: object, known: list[str]) -> list[tuple[str, str]]:
    """What nobody can list, read, write, swap or connect to, also when told the names of everything."""
    found: Any = json.loads(run_as_nobody(WALK, *folders, text=json.dumps(known)))
    return sorted({(what, path) for what, path in found})
