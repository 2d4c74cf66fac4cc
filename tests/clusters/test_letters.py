"""Dead letters through file services: each is told once, whatever happens to its file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.clusters import letters
from heronpy.clusters.file_services import EitherFileService, FileService, LocalFileService
from heronpy.clusters.letters import Letters
from heronpy.common.errors import DeadlineError
from heronpy.proto import control_pb2
from heronpy.storage.dead_letters import FOLDER, DeadLetterFile

NAMES = ("container_1_work_2", "container_1_work_3", "container_2_store_4")


class Shut:
    """A service that does not answer."""

    async def ask(self, request: Any) -> Any:
        assert isinstance(request, control_pb2.ListFiles), "what was not listed is not read"
        raise DeadlineError("the executor of container 1 did not answer within 5 s")


def letter(number: int, name: str = NAMES[0], topology_id: str = "t-1") -> dict[str, object]:
    component = name.split("_")[2]
    return {"at": float(number), "number": number, "instance": name, "component": component,
            "topology_id": topology_id, "payload": ["x" * (number % 40)]}  # fmt: skip


def local(folder: Path) -> dict[int, FileService]:
    return {1: LocalFileService(folder, 1), 2: LocalFileService(folder, 2)}


def numbers(found: list[letters.Letter]) -> list[int]:
    return [int(one["number"]) for one in found]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=30), st.integers(40, 4000))
@settings(max_examples=40, deadline=None)
def test_each_letter_is_told_once_and_in_order(
    tmp_path_factory,
    steps: list[tuple[str, bool]],
    piece: int,  # type: ignore[no-untyped-def]
) -> None:
    """Files are rotated between looks, and read in pieces of any size."""
    folder: Path = tmp_path_factory.mktemp("letters")
    before, letters.PIECE_BYTES = letters.PIECE_BYTES, piece
    try:
        reader, told, begun = Letters(lambda: local(folder)), list[int](), 0
        files = {name: DeadLetterFile(folder, name, 1500) for name in NAMES}
        for number, (name, look) in enumerate(steps, 1):
            files[name].append(letter(number, name))
            begun += 1
            # So small are the files that what is not looked at soon is rotated away.
            if look or begun == 3:
                now = numbers(asyncio.run(reader.new()))
                assert now == sorted(now)
                told += now
                begun = 0
        told += numbers(asyncio.run(reader.new()))
        assert sorted(told) == list(range(1, len(steps) + 1))
        assert asyncio.run(reader.new()) == []
    finally:
        letters.PIECE_BYTES = before


def test_a_line_that_is_still_written_is_told_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / FOLDER / f"{NAMES[0]}.jsonl"
    file.parent.mkdir()
    line = json.dumps(letter(1))
    file.write_text(line[:20])
    reader = Letters(lambda: local(tmp_path))
    assert asyncio.run(reader.new()) == []
    file.write_text(f"{line}\nnot a letter\n")
    assert numbers(asyncio.run(reader.new())) == [1]


def test_other_components_and_runs_are_left_out(tmp_path: Path) -> None:
    for number, (name, run) in enumerate(((NAMES[0], "t-1"), (NAMES[2], "t-1"), (NAMES[0], "t-0")), 1):
        DeadLetterFile(tmp_path, name, 10_000).append(letter(number, name, run))
    assert numbers(asyncio.run(Letters(lambda: local(tmp_path), "work", "t-1").new())) == [1]
    assert numbers(asyncio.run(Letters(lambda: local(tmp_path)).new())) == [1, 2, 3]


def test_a_shut_service_is_told_unless_the_files_are_here(tmp_path: Path) -> None:
    reader = Letters(
        lambda: {1: EitherFileService(Shut(), LocalFileService(tmp_path, 1)), 2: LocalFileService(tmp_path, 2)}
    )
    DeadLetterFile(tmp_path, NAMES[2], 10_000).append(letter(7, NAMES[2]))
    assert numbers(asyncio.run(reader.new())) == [7]
    assert reader.unreachable == {1: "the executor of container 1 did not answer within 5 s"}
    DeadLetterFile(tmp_path, NAMES[0], 10_000).append(letter(8))
    assert numbers(asyncio.run(reader.new())) == [8]
    assert reader.unreachable == {}
