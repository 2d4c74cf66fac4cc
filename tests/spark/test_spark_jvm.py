"""The JVM's properties file, and what is kept of what it says; with a shell script in its place."""

from __future__ import annotations

import logging
import os
import struct
import time
from pathlib import Path

import psutil
import pytest

from heronpy.spark.jvm import Jvm, JvmError, write_properties
from heronpy.spark.session import connect
from tests.support.waiting import wait_for


def start(script: str) -> Jvm:
    return Jvm.start(["/bin/sh", "-c", script], os.environ)


def test_properties_are_private_and_arrive_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "p"
    write_properties(path, {"spark.a": "x=y: z\\n", "spark.b c": " two\nlines", "spark.d": "#é"})
    assert path.stat().st_mode & 0o777 == 0o600
    expected = ["spark.a=x=y: z\\\\n", "spark.b\\ c=\\ two\\nlines", "spark.d=#é"]
    assert path.read_text(encoding="utf-8").splitlines() == expected


def test_what_it_says_is_logged_with_its_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jvm")
    jvm = start(
        "echo out; echo '26/11/22 02:48:22 ERROR Context: bad' >&2; echo '	at x.Y' >&2; echo plain; printf cut"
    )
    jvm.process.wait(10)
    jvm.end()
    said = {record.getMessage(): record.levelno for record in caplog.records}
    assert said["out"] == logging.INFO and said["plain"] == logging.INFO and said["cut"] == logging.INFO
    assert said["26/11/22 02:48:22 ERROR Context: bad"] == logging.ERROR
    assert said["\tat x.Y"] == logging.ERROR, "a line of a trace belongs to what it explains"


def test_an_end_at_the_start_is_told_in_its_own_words(tmp_path: Path) -> None:
    jvm = start("echo 'WARNING: Using incubator modules: x'; echo 'Invalid maximum heap size' >&2; exit 1")
    with pytest.raises(
        JvmError, match=r"ended with exit code 1 while it was starting: Invalid maximum heap size$"
    ) as caught:
        jvm.listen(tmp_path / "info", time.monotonic() + 30)
    assert not caught.value.killed
    jvm.end()


def test_an_exit_code_of_0_is_an_end_too(tmp_path: Path) -> None:
    jvm = start("exit 0")
    with pytest.raises(JvmError, match="ended with exit code 0 while it was starting: no output"):
        jvm.listen(tmp_path / "info", time.monotonic() + 30)
    jvm.end()


def test_one_that_was_killed_may_be_tried_again(tmp_path: Path) -> None:
    jvm = start("kill -9 $$")
    with pytest.raises(JvmError, match="killed by signal 9") as caught:
        jvm.listen(tmp_path / "info", time.monotonic() + 30)
    assert caught.value.killed
    jvm.end()


def test_one_that_never_listens_is_given_up(tmp_path: Path) -> None:
    jvm = start("echo loading; exec sleep 100")
    with pytest.raises(JvmError, match="its last lines: loading"):
        jvm.listen(tmp_path / "info", time.monotonic() + 1)
    jvm.end()
    assert jvm.process.poll() is not None


def test_where_it_listens(tmp_path: Path) -> None:
    info = tmp_path / "info"
    info.write_bytes(struct.pack(">ii", 4711, 3) + b"abc")
    jvm = start("exec sleep 100")
    jvm.listen(info, time.monotonic() + 30)
    assert (jvm.port, jvm.secret) == (4711, "abc")
    jvm.end()


def test_a_gateway_that_is_killed_while_its_jvm_starts_leaves_nothing_but_in_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next gateway removes that folder; nobody would remove one among the temporary files."""
    submit, local = tmp_path / "spark" / "bin" / "spark-submit", tmp_path / "local"
    for folder in (submit.parent, local):
        folder.mkdir(parents=True)
    submit.write_text("#!/bin/sh\nexec sleep 60\n")
    submit.chmod(0o700)
    monkeypatch.setenv("SPARK_HOME", str(submit.parents[1]))
    places: list[Path] = []

    def killed(jvm: Jvm) -> None:
        process = psutil.Process(jvm.process.pid)
        # Until the child has executed the program, its environment is that of this process.
        found = wait_for(lambda: process.environ().get("_PYSPARK_DRIVER_CONN_INFO_PATH"))
        places.append(Path(found))
        assert places[0].parent.is_dir()
        jvm.end()
        raise InterruptedError

    with pytest.raises(InterruptedError):
        connect(local / "spark.properties", time.monotonic() + 60.0, killed)
    assert places[0].is_relative_to(local) and os.listdir(local) == []
