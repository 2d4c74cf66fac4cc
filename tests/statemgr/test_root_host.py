"""Whose host a state in files is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.common.errors import ConfigError
from heronpy.common.host import Host, this_host
from heronpy.statemgr import file_locks, open_state

OTHER = Host("elsewhere", "00112233", "44556677")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    open_state("local", str(folder)).close()
    return folder


def recorded(root: Path) -> Host | None:
    return Host.from_text((root / file_locks.FILE).read_text())


def test_a_host_knows_itself_again() -> None:
    me = this_host()
    assert me.boot and Host.from_text(me.to_text()) == me
    assert Host.from_text(Host("two words", "", "").to_text()) == Host("two words", "", "")
    assert Host.from_text("") is None
    assert me.is_same(Host("renamed", "", me.boot)), "a container of this kernel"
    assert Host("a", "m", "1").is_same(Host("a", "m", "2")), "started again"
    assert not Host("a", "m", "1").is_same(Host("b", "m", "2")), "a copy of its image"
    assert not Host("a", "", "").is_same(Host("a", "", "")), "nothing proves it"


def test_another_host_is_refused_where_both_can_be(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recorded(root) == this_host()
    (root / file_locks.FILE).write_text(OTHER.to_text())
    monkeypatch.setattr(file_locks, "file_system_of", lambda _: "nfs4")
    with pytest.raises(
        ConfigError, match=rf"{root} belongs to host elsewhere, .* set heron.statemgr.type to zookeeper"
    ):
        open_state("local", str(root))
    assert recorded(root) == OTHER
    (root / file_locks.FILE).unlink()  # as the sentence says
    open_state("local", str(root)).close()
    assert recorded(root) == this_host()


def test_a_disk_that_moved_follows(root: Path) -> None:
    assert file_locks.file_system_of(root) in file_locks.OF_ONE_HOST, "the tests run on a disk"
    for text in (OTHER.to_text(), "", "damaged"):
        (root / file_locks.FILE).write_text(text)
        open_state("local", str(root)).close()
        assert recorded(root) == this_host()


def test_the_first_of_two_hosts_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "file_system_of", lambda _: "nfs4")
    link = os.link

    def later(source: Path, target: Path) -> None:
        Path(target).write_text(OTHER.to_text())
        link(source, target)

    monkeypatch.setattr(os, "link", later)
    with pytest.raises(ConfigError, match="belongs to host elsewhere"):
        open_state("local", str(tmp_path / "state"))


def test_the_mount_that_holds_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(file_locks, "MOUNTS", str(mounts))
    lines = [
        ("/", "ext4"), (f"{tmp_path}/a", "nfs4"), (f"{tmp_path}/a\\040b", "xfs"), (f"{tmp_path}/a/c", "ext4"),
        (f"{tmp_path}/a/c", "fuse.sshfs"),
    ]  # fmt: skip
    mounts.write_text("".join(f"1 2 0:1 / {point} rw - {kind} x rw\n" for point, kind in lines) + "strange\n")
    for folder, kind in (("", "ext4"), ("a/x", "nfs4"), ("a b/x", "xfs"), ("a/c/d", "fuse.sshfs"), ("ab", "ext4")):
        assert file_locks.file_system_of(tmp_path / folder) == kind
    mounts.unlink()
    assert file_locks.file_system_of(tmp_path) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes hosts of namespaces")
def test_two_hosts_of_one_file_system(root: Path, tmp_path: Path) -> None:
    """A second host, made of namespaces, that sees the folder over a network."""
    (tmp_path / "boot").write_text("another-boot\n")
    (tmp_path / "id").write_text("another-machine\n")
    (tmp_path / "mounts").write_text("1 2 0:1 / / rw - nfs4 server:/ rw\n")
    script = (
        "hostname elsewhere && mount --bind $1/boot /proc/sys/kernel/random/boot_id"
        " && { [ ! -e /etc/machine-id ] || mount --bind $1/id /etc/machine-id; }"
        ' && mount --bind $1/mounts /proc/$$/mountinfo && exec "$2" -c "$3" "$4"'
    )
    program = "import sys; from heronpy.statemgr import open_state; open_state('local', sys.argv[1])"
    command = ["unshare", "--mount", "--uts", "sh", "-c", script, "sh", str(tmp_path), sys.executable, program]
    result = subprocess.run([*command, str(root)], capture_output=True, text=True, timeout=30)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    name = os.uname().nodename
    assert f"belongs to host {name}" in last and "host elsewhere does not open it" in last
    assert recorded(root) == this_host()
