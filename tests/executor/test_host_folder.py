"""The folders of a container on its host, and what dead ones have left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from heronpy.common.errors import ConfigError
from heronpy.common.host import Host
from heronpy.executor import host_folder
from heronpy.executor.host_folder import HostFolder, home_of


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hb", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield home_of("")


def opened(home: Path, container: int, submission: int = 1) -> HostFolder:
    folder = HostFolder(home, "wc-1", container, submission)
    folder.open()
    return folder


def abandon(folder: HostFolder) -> None:
    """As if its process were dead: the kernel gives its lock back."""
    lock = str(folder.path / "lock")
    (descriptor,) = [fd for fd in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{fd}") == lock]
    os.close(int(descriptor))


def test_it_is_private_and_gone_when_it_is_closed(home: Path) -> None:
    folder = opened(home, 1)
    assert home == Path(tempfile.gettempdir()) / f"heron-{os.getuid()}"
    for path in (home, folder.path, folder.packages, folder.sockets):
        assert path.stat().st_mode & 0o777 == 0o700, path
    longest = folder.sockets / "container_1234_bootstrap_1234.0123456789abcdef.control"
    assert len(os.fsencode(longest)) <= 107
    (folder.path / "log-files").mkdir()
    (folder.path / "log-files" / "a.log").write_text("x")
    assert folder.close() == [] == folder.close()
    assert sorted(os.listdir(home)) == ["containers", "packages"] and os.listdir(home / "containers") == [".lock"]


def test_what_a_dead_one_left_is_removed_and_nothing_else(home: Path) -> None:
    dead, living, elsewhere, half = (opened(home, container) for container in range(1, 5))
    (dead.sockets / "x").touch()
    (elsewhere.path / "lock").write_text(Host("n9", "m" * 16, "b" * 16).to_text())
    for folder in (dead, elsewhere, half):
        abandon(folder)
    (half.path / "lock").unlink()
    new = opened(home, 1, 2)
    assert not dead.path.exists() and not dead.sockets.exists() and not half.path.exists()
    assert living.path.exists() and elsewhere.path.exists(), "another host's says nothing here"
    with pytest.raises(ConfigError, match="another process runs this submission"):
        opened(home, 2)
    for folder in (living, new):
        assert folder.close() == []


def test_what_another_host_is_just_making_in_a_shared_home_is_left_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock file is not there yet, or has no line yet; and a lock there excludes nobody here."""
    here = host_folder.this_host()
    monkeypatch.setattr(host_folder, "this_host", lambda: replace(here, name="n9"))
    making, named = opened(home, 1), opened(home, 2)
    for folder in (making, named):
        abandon(folder)
    (making.path / "lock").unlink()
    (named.path / "lock").write_text("")
    monkeypatch.setattr(host_folder, "this_host", lambda: here)
    mine = opened(home, 1)
    assert making.path.exists() and named.path.exists()
    assert mine.path != making.path, "each host has its own, whatever the other has left"
    assert mine.close() == []


@pytest.mark.parametrize("given", ["relative/folder", "."])
def test_a_home_that_is_no_place_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"heron.engine.home is .* must be an absolute path"):
        home_of(given)


def test_a_home_that_cannot_be_made_is_named_with_the_reason_and_the_setting(home: Path) -> None:
    fix = "set heron.engine.home to a folder that you can write to on every host"
    with pytest.raises(ConfigError, match=rf"/proc/nohome cannot be created: No such file or directory; {fix}"):
        home_of("/proc/nohome")
    (home / "packages").touch()
    with pytest.raises(ConfigError, match=rf"{home}/packages cannot be created or used: File exists; {fix}"):
        opened(home, 1)


def test_a_home_that_is_not_ours_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    (tmp_path / "file").touch()
    for name in ("open", "link", "file"):
        with pytest.raises(ConfigError, match=name):
            home_of(str(tmp_path / name))
    with pytest.raises(ConfigError, match=r"file is not a folder"):
        home_of(str(tmp_path / "file" / "home"))
