"""Finding text in all logs of a topology: newest first over all processes, bounded, and honest about what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.clusters import searching
from heronpy.clusters.errors import NotThereError
from heronpy.clusters.searching import Match, Search, Wanted
from heronpy.common.errors import ConfigError, RetryableRpcError, RpcError
from heronpy.common.log_format import format_record
from heronpy.executor.file_service import ContainerFiles
from heronpy.proto import control_pb2


class FileService:
    """The files of a folder; refuses each question `busy` times first, or always with `refusal`."""

    def __init__(self, folder: Path, container: int, busy: int = 0, refusal: str = "", hangs: bool = False) -> None:
        self._files = ContainerFiles(folder, container)
        self._busy, self._refusal, self._hangs = busy, refusal, hangs
        self.asked = 0

    async def ask(self, request: Any) -> Any:
        if self._refusal:
            raise RpcError(self._refusal)
        if isinstance(request, control_pb2.ListFiles):
            return self._files.listed()
        self.asked += 1
        if self._hangs:
            await asyncio.Event().wait()
        if self.asked <= self._busy:
            raise RetryableRpcError("the executor is reading other files; try again")
        return self._files.answer(request)


def write(folder: Path, process: str, *texts: tuple[float, str], back: int = 0) -> None:
    (folder / "log-files").mkdir(exist_ok=True, parents=True)
    lines = [format_record(at, "ERROR" if "!" in text else "INFO", process, "user", text) + "\n" for at, text in texts]
    (folder / "log-files" / f"{process}.log{f'.{back}' if back else ''}").write_text("".join(lines))


def find(services: Mapping[int, searching.FileService], wanted: Wanted) -> tuple[Search, list[Match]]:
    search = Search(wanted)

    async def run() -> list[Match]:
        return [match async for match in search.run(services)]

    return search, asyncio.run(run())


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["a", "b", "needle"])), max_size=40),
    page=st.integers(1, 4),
    limit=st.integers(1, 30),
)
def test_matches_of_all_processes_come_newest_first(
    tmp_path_factory: pytest.TempPathFactory, times: list[tuple[int, str]], page: int, limit: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    for container in (1, 2):
        for task in (1, 2):
            mine = [(1e9 + at, text) for at, (number, text) in enumerate(times) if number == 2 * container + task - 2]
            write(folder, f"container_{container}_word_{task}", *mine[len(mine) // 2 :])
            write(folder, f"container_{container}_word_{task}", *mine[: len(mine) // 2], back=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "PAGE", page)
        search, found = find({n: FileService(folder, n) for n in (1, 2)}, Wanted("needle", limit=limit))
    wanted = [1e9 + at for at, (_, text) in enumerate(times) if text == "needle"][::-1]
    assert [match.hit.at for match in found] == wanted[:limit]
    assert bool(search.stopped) == (len(wanted) > limit)


def test_words_level_and_time_choose(tmp_path: Path) -> None:
    write(tmp_path, "container_1_word_1", (1e9, "needle!"), (1e9 + 50, "needle"), (1e9 + 60, "needle!"))
    write(tmp_path, "container_1_count_2", (1e9 + 55, "needle"))
    services = {1: FileService(tmp_path, 1)}
    texts = [match.hit.at for match in find(services, Wanted("needle", what=("word",), level="ERROR"))[1]]
    assert texts == [1e9 + 60, 1e9]
    of_task = find(services, Wanted("needle", what=("count-2",)))[1]
    assert [one.hit.process for one in of_task] == ["container_1_count_2"]
    assert len(find(services, Wanted("needle", since=1e9 + 51))[1]) == 2
    with pytest.raises(NotThereError, match="no log of 'wrod'; did you mean 'word'"):
        find(services, Wanted("needle", what=("wrod",)))
    with pytest.raises(ConfigError, match="unknown log level"):
        find(services, Wanted("needle", level="LOUD"))


def test_a_container_that_does_not_answer_is_named_and_the_others_are_searched(tmp_path: Path) -> None:
    write(tmp_path, "container_1_word_1", (1e9, "needle"))
    services = {1: FileService(tmp_path, 1), 2: FileService(tmp_path, 2, refusal="it is down")}
    search, found = find(services, Wanted("needle"))
    assert len(found) == 1 and search.unreachable == {2: "it is down"} and not search.stopped
    assert search.searched_bytes == (tmp_path / "log-files" / "container_1_word_1.log").stat().st_size


def test_a_busy_service_is_asked_again(tmp_path: Path) -> None:
    write(tmp_path, "container_1_word_1", (1e9, "needle"))
    service = FileService(tmp_path, 1, busy=3)
    assert len(find({1: service}, Wanted("needle"))[1]) == 1 and service.asked == 4


def test_at_the_deadline_what_was_found_is_given(tmp_path: Path) -> None:
    write(tmp_path, "container_1_word_1", (1e9, "needle"), (1e9 + 1, "needle"))
    write(tmp_path, "container_2_word_2", (1e9, "needle"))
    services = {1: FileService(tmp_path, 1), 2: FileService(tmp_path, 2, hangs=True)}
    search, found = find(services, Wanted("needle", seconds=0.3))
    assert [match.hit.at for match in found] == [1e9 + 1, 1e9] and search.stopped == "after 0.3 s"


def test_a_log_that_is_rotated_meanwhile_is_searched_once(tmp_path: Path) -> None:
    write(tmp_path, "container_1_word_1", (2e9, "needle"))
    write(tmp_path, "container_1_word_1", (1e9, "needle"), back=1)
    logs = tmp_path / "log-files"

    class Rotating(FileService):
        async def ask(self, request: Any) -> Any:
            reply = await super().ask(request)
            if not isinstance(request, control_pb2.ListFiles):
                return reply
            (logs / "container_1_word_1.log.1").rename(logs / "container_1_word_1.log.2")
            (logs / "container_1_word_1.log").rename(logs / "container_1_word_1.log.1")
            write(tmp_path, "container_1_word_1", (3e9, "needle"))
            return reply

    assert [match.hit.at for match in find({1: Rotating(tmp_path, 1)}, Wanted("needle"))[1]] == [2e9, 1e9]
