"""Files that stay open: what is in them now is read, and never what another process has written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from heronpy.procs.usage import KeptFiles


def open_files() -> set[str]:
    return {
        os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if Path(f"/proc/self/fd/{fd}").exists()
    }


def test_what_is_in_a_file_now_is_read(tmp_path: Path) -> None:
    file = tmp_path / "figures"
    file.write_text("one")
    files = KeptFiles()
    assert files.read(str(file)) == b"one"
    file.write_text("two and more")
    assert files.read(str(file)) == b"two and more"
    assert str(file) in open_files()
    files.forget(str(file))
    assert str(file) not in open_files()
    assert files.read(str(file)) == b"two and more"
    del files
    assert str(file) not in open_files(), "nothing stays open"


def test_a_process_that_has_ended_reads_nothing() -> None:
    files = KeptFiles()
    started = subprocess.Popen(["sleep", "60"])
    try:
        stat = f"/proc/{started.pid}/stat"
        assert files.read(stat).startswith(f"{started.pid} ".encode())
    finally:
        started.kill()
        started.wait()
    with pytest.raises(OSError):
        files.read(stat)
    assert stat not in open_files()
