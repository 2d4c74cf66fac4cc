"""A wheelhouse: the wheels of a topology's dependencies in one zip file, from which each host builds its environment.

`pack` resolves the requirements once, on the submitting host; other hosts use no package index. Only wheels are
accepted, so no host needs a compiler, and no code of a dependency runs during packing. Equal wheels give equal files.
The file's name contains its digest, which is also the name of the environment on every host.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from heronpy.common.errors import ConfigError, DeadlineError, PackageError

WHEELS_MAX: Final = 2000
BYTES_MAX: Final = 8 * 1024**3
_WHEEL: Final = re.compile(r"[A-Za-z0-9_.+!]+(-[A-Za-z0-9_.+!]+){4,5}\.whl")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_REGULAR: Final = 0o100644 << 16
_DIGITS: Final = 12
_PIECE_BYTES: Final = 1 << 20


def pack(requirements: Path, into: Path, timeout_s: float) -> Path:
    """Download the wheels that a requirements file names, and write them to `<into>-<digest>.zip`; return this path.

    The wheels are for this Python and platform. Raises PackageError with pip's reason, or DeadlineError after
    `timeout_s`.
    """
    if not requirements.is_file():
        raise ConfigError(f"there is no requirements file {requirements}")
    if not into.parent.is_dir():
        raise ConfigError(f"there is no folder {into.parent} for the wheelhouse; create it first")
    stem = into.name.removesuffix(".zip")
    if not stem:
        raise ConfigError(f"{into} does not name a file for the wheelhouse, such as env.zip")
    with tempfile.TemporaryDirectory(prefix=f".{stem}-", dir=into.parent) as scratch:
        wheels = Path(scratch) / "wheels"
        wheels.mkdir()
        options = ["download", "--only-binary=:all:", "--dest", str(wheels), "--requirement", str(requirements)]
        run_pip([*options], timeout_s, f"the requirements in {requirements} cannot be packed")
        draft = Path(scratch) / "draft.zip"
        _write(wheels, draft, requirements)
        target = into.with_name(f"{stem}-{digest_of(draft)[:_DIGITS]}.zip")
        draft.chmod(0o644)
        os.replace(draft, target)
    return target


def _write(wheels: Path, file: Path, requirements: Path) -> None:
    names = sorted(os.listdir(wheels))
    if not names:
        raise PackageError(f"{requirements} contains no requirement that can be packed")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = _REGULAR
            with open(wheels / name, "rb") as wheel, archive.open(info, "w", force_zip64=True) as written:
                shutil.copyfileobj(wheel, written, _PIECE_BYTES)


def digest_of(archive: Path) -> str:
    """Return the digest (sha256, hex) of a wheelhouse. Raises PackageError if the file is not a wheelhouse."""
    wheels_of(archive)
    found = hashlib.sha256()
    try:
        with open(archive, "rb") as file:
            while piece := file.read(_PIECE_BYTES):
                found.update(piece)
    except OSError as error:
        raise _unreadable(archive, error) from None
    return found.hexdigest()


def wheels_of(archive: Path) -> list[str]:
    """Return the names of the wheels. Raises PackageError if the file contains other entries, or too many."""
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
    except OSError as error:
        raise _unreadable(archive, error) from None
    except zipfile.BadZipFile:
        raise PackageError(f"{archive} is not a wheelhouse; create one with 'heron env pack'") from None
    names = [entry.filename for entry in entries]
    strange = next((name for name in names if not _WHEEL.fullmatch(name)), "")
    if strange or not names or len(set(names)) != len(names):
        what = f"contains {strange[:100]!r}, which is not a wheel" if strange else "contains no wheel, or a wheel twice"
        raise PackageError(f"{archive} {what}; create a wheelhouse with 'heron env pack'")
    if len(names) > WHEELS_MAX or sum(entry.file_size for entry in entries) > BYTES_MAX:
        raise PackageError(f"{archive} has more than {WHEELS_MAX} wheels or {BYTES_MAX} bytes; use fewer dependencies")
    return names


def unpack(archive: Path, into: Path) -> list[Path]:
    """Write the wheels of a wheelhouse, whose names were checked, into a folder."""
    names = wheels_of(archive)
    try:
        with zipfile.ZipFile(archive) as opened:
            for name in names:
                with opened.open(name) as wheel, open(into / name, "xb") as written:
                    shutil.copyfileobj(wheel, written, _PIECE_BYTES)
    except zipfile.BadZipFile as error:
        raise PackageError(f"{archive} is damaged: {error}; copy it again") from None
    except OSError as error:
        raise _unreadable(archive, error) from None
    return [into / name for name in names]


def run_pip(arguments: Sequence[str], timeout_s: float, trouble: str) -> None:
    """Run this interpreter's pip. Raises PackageError with pip's reason, or DeadlineError after the timeout."""
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise DeadlineError(f"{trouble}: pip took more than {timeout_s:g} s") from None
    if ran.returncode:
        raise PackageError(f"{trouble}: {_reason(ran.stderr)}")


def _reason(text: str) -> str:
    """Return pip's first error in one line. This error names the requirement; later errors only repeat it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    found = next(iter(errors), lines[-1] if lines else "pip gave no reason")
    return found[:500].rstrip(".")


def _unreadable(archive: Path, error: OSError) -> PackageError:
    return PackageError(f"the wheelhouse {archive} cannot be read: {error.strerror or error}")
