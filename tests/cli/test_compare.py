"""`heron compare`: of folders, and what it refuses; tests/batch compares runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heronpy.batch.record import RunRecord, RunState
from heronpy.batch.run import Run
from tests.cli.conftest import Heron, word_count

PAST = {"cluster": "local", "role": "me", "environ": "default", "code": "c", "submitted_at": 1e9, "ended_at": 1e9 + 9}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders, whose files differ, with the same rows."""
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, texts in ((one, ["a\nb\n", "c\n"]), (other, ["c\nb\na\n"])):
        folder.mkdir()
        for number, text in enumerate(texts):
            (folder / f"part-{number}").write_text(text)
    return one, other


def run_of(home: Path, number: int, state: RunState, rows: dict[str, str], **more: str) -> None:
    """A batch run of wordy."""
    run = Run(home / "batch" / "local" / "wordy" / str(number))
    run.folder.mkdir(parents=True, mode=0o700)
    (run.folder / "topology").write_bytes(word_count().SerializeToString())
    (run.folder / "topology").chmod(0o600)
    run.write(RunRecord(topology="wordy", number=number, state=state, **PAST, **more))  # type: ignore[arg-type]
    for sink, text in rows.items():
        folder = run.folder / "1" / "unit=1-1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"sink-{sink}@.txt").write_text(text)


def test_folders_are_compared_by_rows(heron: Heron, folders: tuple[Path, Path]) -> None:
    one, other = map(str, folders)
    assert heron("compare", one, other) == (0, "equal: 3 rows\n", "")
    with open(folders[1] / "part-0", "a") as file:
        file.write("a\na\nx\x1b[31m\n")
    told = heron("compare", one, other)
    assert told.code == 1 and told.out.splitlines() == [
        f"different: 0 of 3 rows only in {one}, 3 of 6 rows only in {other}", "  + a  (2 times)", "  + x\\x1b[31m",
    ]  # fmt: skip
    found = json.loads(heron("compare", one, other, "--json").out)
    assert found["equal"] is False and found["sinks"][0]["only_second"] == 3
    assert found["sinks"][0]["differences"][0] == {"row": "a", "first": 1, "second": 3}


def test_runs_are_compared_sink_by_sink(heron: Heron, home: Path, folders: tuple[Path, Path]) -> None:
    run_of(home, 1, RunState.FINISHED, {"count": "a\nb\nc\n"}, boundary="1 file")
    run_of(home, 2, RunState.HELD, {"count": "b\na\nc\n", "word": "x\n"}, boundary="2 files")
    told = heron("compare", "wordy/1", "wordy/2")
    assert told.code == 1 and "sink count: equal: 3 rows\n" in told.out
    assert "sink word: different: 0 of 0 rows only in wordy/1, 1 of 1 row only in wordy/2\n  + x\n" in told.out
    assert "HELD, not published" in told.out and " 9s " in told.out
    assert "have not read the same input" in told.err
    assert heron("compare", "wordy/1", str(folders[0])).code == 0
    told = heron("compare", str(folders[0]), "wordy/2", "--cluster", "local")
    assert told.code == 1 and "run wordy/2 has several sinks (count, word); compare it with a run" in told.err


def test_what_cannot_be_compared_is_refused(heron: Heron, home: Path, folders: tuple[Path, Path]) -> None:
    run_of(home, 1, RunState.FAILED, {"count": "a\n"})
    one = str(folders[0])
    for what, code, said in (
        ("nothing", 2, "nothing is neither a folder nor a batch run such as visits/3"),
        (str(home / "batch" / "local" / "wordy" / "1" / "lists"), 2, "is neither a folder"),
        ("wordy/1", 1, "run wordy/1 is FAILED and has not finished; submit it again to continue it"),
        ("wordy/2", 3, "there is no record of a run 'wordy/2'"),
    ):
        told = heron("compare", one, what)
        assert (told.code, told.out) == (code, "") and said in told.err
    told = heron("compare", "wordy/1", "wordy/99")
    assert told.code == 3 and "there is no record of a run 'wordy/99'" in told.err
    run_of(home, 2, RunState.FINISHED, {"count": "a\n"})
    told = heron("compare", "wordy/2", "wordy/1")
    assert told.code == 1 and told.err == (
        "error: run wordy/1 is FAILED and has not finished; a later run has replaced it; compare another run\n"
    )
    (folders[0] / "part-0").unlink()
    (folders[0] / "part-1").rename(folders[0] / ".part-1")
    assert "contains no files with rows" in heron("compare", one, one).err
