"""An environment on a host: made once from a wheelhouse, whole or not at all, with heronpy in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.common.errors import DeadlineError, PackageError
from heronpy.common.flock import unlock
from heronpy.executor.arriving import build
from heronpy.statemgr.file_locks import try_lock
from heronpy.storage.wheelhouse import digest_of
from tests.support.wheels import house, make_wheel

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120.0
BUILD = """
import sys
from pathlib import Path
from heronpy.executor.arriving import build
print(build(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
"""


def run(*command: object) -> str:
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_environment_has_its_wheels_and_what_the_host_has(tmp_path: Path) -> None:
    file = house(tmp_path / "env.zip", make_wheel(tmp_path, "alpha", requires="beta"), make_wheel(tmp_path, "beta"))
    digest, home = digest_of(file), tmp_path / "home"
    python = build(home, file, digest)
    entry = home / "environments" / digest
    assert python == entry / "bin" / "python"
    code = "import alpha, beta, heronpy, sys; print(alpha.VERSION, beta.VERSION, sys.prefix)"
    assert run(python, "-P", "-c", code) == f"1.0 1.0 {entry}"
    assert run(entry / "bin" / "alpha-says") == "alpha 1.0"
    assert (home / "environments").stat().st_mode & 0o077 == 0
    file.unlink()  # it is there, so nothing is read again
    assert build(home, file, digest) == python
    assert not list((home / "environments" / ".tmp").iterdir()) and not list(
        (home / "environments" / ".locks").iterdir()
    )


def test_processes_that_need_the_same_one_make_it_once(tmp_path: Path) -> None:
    file = house(tmp_path / "env.zip", make_wheel(tmp_path, "alpha"))
    digest, home = digest_of(file), tmp_path / "home"
    left = home / "environments" / ".tmp" / digest / "made" / "half"
    left.mkdir(parents=True)  # of a process that died
    command = [sys.executable, "-c", BUILD, str(home), str(file), digest]
    makers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        for _ in range(3)
    ]
    found = {maker.communicate(timeout=DEADLINE_S)[0].strip() for maker in makers}
    assert found == {str(home / "environments" / digest / "bin" / "python")}
    assert [maker.returncode for maker in makers] == [0, 0, 0]
    assert sorted(path.name for path in (home / "environments").iterdir()) == sorted([".locks", ".tmp", digest])
    assert run(*found, "-c", "import alpha; print(alpha.VERSION)") == "1.0"


def test_a_failure_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    incomplete = house(tmp_path / "incomplete.zip", make_wheel(tmp_path, "alpha", requires="nowhere"))
    foreign = house(tmp_path / "foreign.zip", make_wheel(tmp_path, "beta", tag="cp27-cp27m-win32"))
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(incomplete.read_bytes().replace(b"VERSION", b"VERSIEN"))
    for file, reason in ((incomplete, "nowhere"), (foreign, "not a supported wheel"), (damaged, "is damaged")):
        with pytest.raises(PackageError, match=reason) as raised:
            build(home, file, digest_of(file))
        assert "\n" not in str(raised.value) and file.name in str(raised.value)
        assert sorted(path.name for path in (home / "environments").iterdir()) == [".locks", ".tmp"]
        assert not list((home / "environments" / ".tmp").iterdir())
    with pytest.raises(PackageError, match="is not the wheelhouse that was submitted"):
        build(home, incomplete, "0" * 64)
    with pytest.raises(PackageError, match="is not the digest"):
        build(home, incomplete, "../../etc")
    with pytest.raises(PackageError, match="cannot be read"):
        build(home, tmp_path / "missing.zip", "0" * 64)


def test_waiting_for_another_process_ends(tmp_path: Path) -> None:
    file = house(tmp_path / "env.zip", make_wheel(tmp_path, "alpha"))
    digest, home = digest_of(file), tmp_path / "home"
    (home / "environments" / ".locks").mkdir(parents=True)
    lock = try_lock(home / "environments" / ".locks" / digest)
    try:
        with pytest.raises(
            DeadlineError, match=f"process {os.getpid()} has not created environment {digest[:12]} in time"
        ):
            build(home, file, digest, timeout_s=0.2)
    finally:
        unlock(lock)
