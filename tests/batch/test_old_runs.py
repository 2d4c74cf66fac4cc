"""Old runs are removed with their savepoints, unless something needs them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from heronpy.batch.finalise import savepoint_folder
from heronpy.batch.record import RunRecord, RunState
from heronpy.batch.run import Run, Runs
from heronpy.common.errors import StateError
from heronpy.launching import old_runs
from heronpy.proto.checkpoint_pb2 import SAVEPOINT, Metadata
from heronpy.scheduler.teardown import ENDED_MAX, KEPT_S
from heronpy.storage.locations import location_of, open_store

NOW = time.time()


def record_of(number: int, age_s: float, topology: str = "visits") -> RunRecord:
    return RunRecord(
        topology=topology, number=number, cluster="local", role="me", environ="default", code="", saves=True,
        submitted_at=NOW - age_s - 5, ended_at=NOW - age_s, state=RunState.FINISHED, topology_ids=(f"{topology}-{number}",),
    )  # fmt: skip


def test_a_run_is_too_old_by_age_beyond_the_newest_ones_or_by_number() -> None:
    ages = [0.0, *[KEPT_S + 60] * ENDED_MAX]
    found = [(record_of(number, age), Path(f"/runs/visits/{number}")) for number, age in zip(range(9, 0, -1), ages)]
    other = [(record_of(1, KEPT_S * 9, "other"), Path("/runs/other/1"))]
    assert old_runs.too_old([*found, *other], "visits", 10, NOW) == [found[-1]]
    assert old_runs.too_old([*found, *other], "visits", 2, NOW) == found[2:]


class Session:
    """A cluster with some topologies."""

    def __init__(self, *ids: str) -> None:
        self._ids = ids

    def topologies(self) -> Sequence[object]:
        return [type("Record", (), {"topology_id": one}) for one in self._ids]


def test_what_something_needs_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, records = tmp_path / "runs", list[RunRecord]()
    for number in range(1, 7):
        record = replace(record_of(number, 60.0), savepoints=str(tmp_path / "checkpoints"))
        place = savepoint_folder(record)
        store = open_store(place)
        metadata = Metadata(checkpoint=1, kind=SAVEPOINT, topology="visits", topology_id=Path(str(place)).name)
        metadata.tasks.add(component="count").state_file.CopyFrom(store.put_shared(1, b"state"))
        store.write_metadata(metadata)
        records.append(replace(record, savepoint=location_of(place, 1)))
    records[5] = replace(records[5], state=RunState.FAILED, like="visits/1")  # its command will go on with it
    for record in records:
        run = Run(folder / "visits" / str(record.number))
        run.folder.mkdir(parents=True, mode=0o700)
        run.write(record)
    monkeypatch.setattr(old_runs, "used_locations", lambda session: {records[1].savepoint})
    old_runs.forget(Session("visits-3"), folder, "visits", 1, "visits/4")  # type: ignore[arg-type]
    left = [number for number in range(1, 7) if (folder / "visits" / str(number)).exists()]
    # The input of another run, a savepoint that is used, a topology that is not removed, --as, the newest.
    assert left == [1, 2, 3, 4, 6]
    assert [number for number, one in enumerate(records, 1) if Path(str(savepoint_folder(one))).exists()] == left


def test_a_run_that_is_gone_on_with_meanwhile_stays_and_no_error_ends_a_started_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, "visits")
    for number in range(1, 4):
        runs.of(number).folder.mkdir(parents=True, mode=0o700)
        runs.of(number).write(replace(record_of(number, 60.0), saves=False))

    def going_on(session: object) -> set[str]:
        runs.of(1).write(replace(runs.of(1).record, topology_ids=("visits-1", "visits-9")))
        return set()

    monkeypatch.setattr(old_runs, "used_locations", going_on)
    old_runs.forget(Session(), tmp_path, "visits", 1, "")  # type: ignore[arg-type]
    assert runs.numbers() == [1, 3]

    def away(session: object) -> set[str]:
        raise StateError("the state manager does not answer")

    monkeypatch.setattr(old_runs, "used_locations", away)
    old_runs.forget(Session(), tmp_path, "visits", 1, "")  # type: ignore[arg-type]
    assert runs.numbers() == [1, 3]


def test_runs_that_another_command_is_choosing_from_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(tmp_path, "other")
    for number in range(1, ENDED_MAX + 2):
        run = runs.of(number)
        run.folder.mkdir(parents=True, mode=0o700)
        run.write(replace(record_of(number, KEPT_S + 60 - number, "other"), saves=False))
    monkeypatch.setattr(old_runs, "used_locations", lambda session: set())
    with runs.locked():
        old_runs.forget(Session(), tmp_path, "visits", 10, "")  # type: ignore[arg-type]
    assert len(runs.numbers()) == ENDED_MAX + 1
    old_runs.forget(Session(), tmp_path, "visits", 10, "")  # type: ignore[arg-type]
    assert runs.numbers() == list(range(2, ENDED_MAX + 2))
