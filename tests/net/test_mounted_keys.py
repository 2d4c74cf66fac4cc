"""Keys from a secret that an orchestrator mounts: root's, read-only, and all links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.net import curve

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")

#: Mounts the secret as Kubernetes does, then reads it as the user of a container.
PROGRAM = """
import os, shutil, subprocess, sys
from heronpy.common.errors import ConfigError
from heronpy.net import curve
working, source, mode, change, remount = sys.argv[1:]
keys = f"{working}/keys"
os.mkdir(keys)
subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "secret", keys], check=True)
os.mkdir(f"{keys}/..2026", 0o755)
for name in ("server.key", "client.key"):
    shutil.copy(f"{source}/{name}", f"{keys}/..2026/{name}")
    os.chown(f"{keys}/..2026/{name}", 0, 4242)
    os.chmod(f"{keys}/..2026/{name}", int(mode, 8))
    os.symlink(f"..data/{name}", f"{keys}/{name}")
os.symlink("..2026", f"{keys}/..data")
if change == "out":
    os.remove(f"{keys}/client.key")
    os.symlink(f"{source}/client.key", f"{keys}/client.key")
elif change == "large":
    with open(f"{keys}/..2026/client.key", "ab") as file:
        file.write(b"x" * 4096)
elif change == "gone":
    os.remove(f"{keys}/..2026/client.key")
if remount == "ro":
    subprocess.run(["mount", "-o", "remount,ro", keys], check=True)
os.setgroups([4242])
os.setgid(65534)
os.setuid(65534)
try:
    print(curve.load(working, "wc-1").client.public.decode())
except ConfigError as error:
    sys.exit(f"refused: {error}")
"""


def read(tmp_path: Path, mode: str, change: str = "", mounted: str = "ro") -> subprocess.CompletedProcess[str]:
    source, working = tmp_path / "source", tmp_path / "work"
    for folder in (source, working):
        folder.mkdir()
        folder.chmod(0o755)
    for above in (tmp_path, *tmp_path.parents[:3]):
        above.chmod(above.stat().st_mode | 0o011)  # the user of the container can reach it
    curve.generate(str(tmp_path))
    for file in (tmp_path / "keys").iterdir():
        file.rename(source / file.name)
    command = ["unshare", "--mount", sys.executable, "-c", PROGRAM, str(working), str(source), mode, change, mounted]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("mode", ["0440", "0640"])
def test_a_mounted_secret_is_read(tmp_path: Path, mode: str) -> None:
    done = read(tmp_path, mode)
    public = (tmp_path / "source" / "client.key").read_text().split()[1]
    assert done.stdout.strip() == public, done.stderr


@pytest.mark.parametrize(
    ("mode", "change", "mounted", "said"),
    [
        ("0444", "", "ro", "of mode 0444; mount it so that only its owner and its group can read it"),
        ("0460", "", "ro", "of mode 0460; mount it so that only its owner and its group can read it"),
        ("0400", "", "ro", "cannot read .*: Permission denied"),
        ("0440", "out", "ro", "client.key is a link that leads out of"),
        ("0440", "large", "ro", "larger than 1024 bytes"),
        ("0440", "gone", "ro", "cannot read .*client.key: No such file"),
        ("0440", "", "rw", "does not belong to you alone: it belongs to another user"),
    ],
)
def test_what_others_could_have_put_there_is_not(
    tmp_path: Path, mode: str, change: str, mounted: str, said: str
) -> None:
    done = read(tmp_path, mode, change, mounted)
    assert done.returncode == 1 and done.stderr.startswith("refused: ")
    assert re.search(said, done.stderr), done.stderr
