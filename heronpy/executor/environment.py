"""The environment of a topology's dependencies on this host, made once from its wheelhouse.

`<home>/environments/<digest>/` is a virtual environment that also sees what the interpreter that makes it sees, such
as heronpy. Invariants: an entry appears by one rename, so it is complete or absent, even after a crash; processes that
need the same one make it once; nothing is downloaded, and no index is asked.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from heronpy.common.errors import DeadlineError, PackageError
from heronpy.common.folders import make_folders
from heronpy.statemgr.file_locks import holder, try_lock, unlock
from heronpy.storage.wheelhouse import digest_of, run_pip, unpack

#: For all of it, waiting for another process that makes the same one included.
BUILD_MAX_S: Final = 900.0
_LOOK_S: Final = 0.1
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def build(home: Path, archive: Path, digest: str, timeout_s: float = BUILD_MAX_S) -> Path:
    """The interpreter of the environment of a wheelhouse, which is made now unless this host has it.

    PackageError, one sentence, when it cannot be made; DeadlineError when that takes too long.
    """
    if not _SHA256.fullmatch(digest):
        raise PackageError(f"{digest[:80]!r} is no digest of a wheelhouse; submit the topology again")
    folder = home / "environments"
    entry = folder / digest
    deadline = time.monotonic() + timeout_s
    try:
        for name in (".tmp", ".locks"):
            make_folders(folder / name)
        if not _is_whole(entry):
            with _locked(folder / ".locks" / digest, deadline):
                if not _is_whole(entry):
                    _build(folder / ".tmp" / digest, entry, archive, digest, deadline)
    except OSError as error:
        where = error.filename or folder
        raise PackageError(f"no environment can be made below {folder}: {where}: {error.strerror or error}") from None
    return entry / "bin" / "python"


def _is_whole(entry: Path) -> bool:
    return (entry / "bin" / "python").exists()


def _build(scratch: Path, entry: Path, archive: Path, digest: str, deadline: float) -> None:
    shutil.rmtree(scratch, ignore_errors=True)  # left by a process that died
    try:
        if digest_of(archive) != digest:
            raise PackageError(f"{archive} is another wheelhouse than was submitted; submit the topology again")
        wheels, made = scratch / "wheels", scratch / "made"
        make_folders(wheels)
        files = unpack(archive, wheels)
        trouble = f"the environment of {archive.name} cannot be made on this host"
        _make(made, deadline, trouble)
        options = ["--python", str(made / "bin" / "python"), "--isolated", "install", "--no-index", "--quiet"]
        where = ["--find-links", str(wheels), *map(str, files)]
        run_pip([*options, *where], _left(deadline), trouble)
        _name_scripts(made, entry)
        if os.path.lexists(entry):
            shutil.rmtree(entry)  # it has lost its interpreter
        with contextlib.suppress(FileExistsError):  # another process was faster: a host whose locks do not hold
            os.rename(made, entry)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _make(made: Path, deadline: float, trouble: str) -> None:
    """A virtual environment, without a pip of its own, that sees what this interpreter sees."""
    command = [sys.executable, "-P", "-m", "venv", "--system-site-packages", "--without-pip", str(made)]
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_left(deadline), text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise DeadlineError(f"{trouble}: venv took too long") from None
    if ran.returncode:
        reason = (ran.stderr or ran.stdout).strip().splitlines()
        raise PackageError(f"{trouble}: {reason[-1] if reason else 'venv gave no reason'}")
    if sys.prefix != sys.base_prefix:
        # This interpreter is of a virtual environment itself, whose packages the new one does not see.
        ours = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in ours)
        (_site_packages(made) / "heron-interpreter.pth").write_text(lines)


def _site_packages(made: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(made), "platbase": str(made)}))


def _name_scripts(made: Path, entry: Path) -> None:
    """Commands name their interpreter by its path, which is going to change."""
    for file in (made / "bin").iterdir():
        if file.is_symlink() or not file.is_file():
            continue
        content = file.read_bytes()
        if bytes(made) in content and b"\0" not in content:
            file.write_bytes(content.replace(bytes(made), bytes(entry)))


@contextmanager
def _locked(file: Path, deadline: float) -> Iterator[None]:
    """Of the processes of this host, one makes an environment."""
    while (descriptor := try_lock(file)) < 0:
        if time.monotonic() >= deadline:
            raise DeadlineError(f"{holder(file)} has not made environment {file.name[:12]} in time; look what it does")
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        unlock(descriptor)


def _left(deadline: float) -> float:
    return max(1.0, deadline - time.monotonic())
