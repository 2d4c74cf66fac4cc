"""The space that is kept for a full disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from heronpy.common.disk_space import Reserve, full_folder


def test_a_write_without_space_gets_some_of_the_reserve(tmp_path: Path) -> None:
    file = tmp_path / "reserve"
    reserve = Reserve(file, 65536)
    reserve.keep()
    assert file.stat().st_size == 65536 and file.stat().st_blocks * 512 >= 65536
    assert file.stat().st_mode & 0o077 == 0

    def write() -> str:
        if file.stat().st_size > 40000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return "written"

    assert reserve.during(write, 1000) == "written"
    assert 0 < file.stat().st_size <= 40000
    reserve.keep()
    assert file.stat().st_size == 65536


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_when_the_reserve_is_used_up_the_error_stands(tmp_path: Path, number: int) -> None:
    file = tmp_path / "reserve"
    reserve = Reserve(file, 65536)
    reserve.keep()

    def write() -> None:
        raise OSError(number, "full")

    with pytest.raises(OSError, match="full"):
        reserve.during(write, 10)
    assert file.stat().st_size == 0


def test_other_errors_take_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "reserve"
    reserve = Reserve(file, 65536)
    reserve.keep()

    def write() -> None:
        raise PermissionError(errno.EACCES, "not yours")

    with pytest.raises(PermissionError):
        reserve.during(write, 10)
    assert file.stat().st_size == 65536


def test_a_folder_that_is_not_there_is_not_full(tmp_path: Path) -> None:
    assert full_folder(tmp_path / "nothing", tmp_path) is None
