"""A small full disk, and sinks that wait for free space."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a full file system of 512 KiB; a test can remove files from it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root can mount a file system")
    try:
        fill(folder / "ballast")
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


class Patience:
    """Records the outages that a sink reports; the third report frees space on the disk."""

    def __init__(self, patch: pytest.MonkeyPatch, delegate: type[Any], disk: Path) -> None:
        self.told: list[str] = []
        self._ballast = disk / "ballast"
        patch.setattr(delegate, "wait_outside", lambda _, outage, pause_s: self._wait(outage))

    def _wait(self, outage: str) -> None:
        self.told.append(outage)
        if outage and len([one for one in self.told if one]) == 3:
            self._ballast.unlink()

    def waited(self) -> str:
        """Return the outage of the three waits; check that work continued afterwards."""
        outages = [one for one in self.told if one]
        assert len(outages) == 3 and len(set(outages)) == 1 and self.told[-1] == "", self.told
        return outages[0]
