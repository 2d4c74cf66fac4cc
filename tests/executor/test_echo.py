"""The logs of a container on the standard output of its first process: marked, bounded, and never waited for."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.common.setting_types import LoggingSettings
from heronpy.executor.child_logs import ChildLogs
from heronpy.executor.echo import PIECE_MAX_BYTES, WAITING_MAX_BYTES, Echo, open_echo
from tests.support.containers import at_endpoint, submitted, tmp
from tests.support.waiting import eventually, wait_for

__all__ = ["tmp"]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


def all_of(reader: int) -> list[str]:
    with open(os.dup(reader), encoding="utf-8") as file:
        return file.read().splitlines()


def test_each_line_is_behind_its_process_and_no_line_mixes_with_another(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    echo = Echo(writer, "executor-1", 1000)
    echo.put("word_1", b"one\n  | more of one\n")
    echo.put("word_2", b"x" * (PIECE_MAX_BYTES + 10) + b"\n")
    echo.handler("executor-1").handle(logging.makeLogRecord({"name": "heronpy", "msg": "its own", "levelname": "INFO"}))
    echo.close()
    first, second, third, rest, own = all_of(reader)
    assert (first, second) == ("word_1 | one", "word_1 |   | more of one")
    assert third.startswith("word_2 | x") and rest.startswith("word_2 | x") and len(third) == PIECE_MAX_BYTES - 1
    assert own.startswith("executor-1 | ") and own.endswith("INFO  executor-1 [heronpy] its own")
    assert echo.left_out == 0


def test_whoever_does_not_read_stops_nobody_and_is_told_what_is_missing(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    echo = Echo(writer, "executor-1", 1000)
    line = b"y" * 1000 + b"\n"
    total = 3 * WAITING_MAX_BYTES // len(line)
    for _ in range(total):
        echo.put("word_1", line)
    assert echo.left_out > total // 3
    found: list[str] = []

    def told() -> bool:
        os.set_blocking(reader, False)
        try:
            found.append(os.read(reader, 1 << 20).decode())
        except BlockingIOError:
            return False
        return "lines were left out" in "".join(found)

    wait_for(told, 20, "the number of lines that were left out")
    echo.close()
    text = "".join(found)
    assert f"executor-1 | echo: {echo.left_out} lines were left out" in text
    assert text.count("word_1 | y") + echo.left_out == total


def test_a_file_ends_at_the_size_of_the_log_files(tmp_path: Path) -> None:
    path = tmp_path / "7_1.out"
    for name in ("bootstrap-1", "executor-1"):
        echo = open_echo(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), name, 20_000, 2)
        assert echo is not None
        try:
            for number in range(5000):
                echo.put(name, f"line {number}\n".encode())
            echo.close(10)
            assert echo.left_out
        finally:
            logging.getLogger().handlers.pop()
    assert 30_000 < path.stat().st_size < 41_000
    assert "this file has reached its maximum size" in path.read_text()


def test_an_output_that_is_closed_ends_the_echo_alone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    echo = Echo(writer, "executor-1", 1000)

    def refused() -> int:
        echo.put("word_1", b"one\n")
        return echo.left_out

    wait_for(refused, 10, "lines that are left out")
    echo.close()


async def test_what_processes_print_is_in_their_logs_and_in_the_echo(tmp_path: Path, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    echo = Echo(writer, "executor-1", 1000)
    logs = ChildLogs(tmp_path, LoggingSettings(), echo.put)
    for name in ("word_1", "count_2"):
        with os.fdopen(logs.open_output(name), "wb") as out:
            out.write(f"{name} says\x1b[2J\n".encode())
    logs.close()
    echo.close()
    assert sorted(all_of(reader)) == ["count_2 | raw | count_2 says\\x1b[2J", "word_1 | raw | word_1 says\\x1b[2J"]
    assert (tmp_path / "word_1.log").read_text() == "raw | word_1 says\\x1b[2J\n"


@pytest.mark.parametrize("echo", [True, False])
async def test_the_first_process_hands_its_output_to_the_executor_if_it_is_asked_to(
    echo: bool, tmp_path: Path, tmp: Path
) -> None:
    output, settings = tmp_path / "output", {"logging": {"echo": echo}}
    async with at_endpoint(tmp, submitted=submitted(settings=settings)) as (endpoint, host):
        with open(output, "wb") as file:
            process = host.start(stdout=file)
        endpoint.activate(1, 1, 1)
        started = await host.acting()
        assert ("--echo-fd" in started["argv"]) is echo
        if echo:
            target = Path(f"/proc/{started['pid']}/fd/{started['argv'][started['argv'].index('--echo-fd') + 1]}")
            assert os.readlink(target) == str(output)
            await eventually(lambda: "bootstrap-1 | " in output.read_text(), 10, "its own log")
        process.terminate()
        await host.ended(process)
        assert ("the executor runs as process" in output.read_text()) is echo
