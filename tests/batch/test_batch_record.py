"""What a command does with the newest run of its topology, and the topology that works on a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from heronpy.batch.record import RunRecord, RunState, Wanted, code_digest, goes_on
from heronpy.batch.run import BatchRunError, Runs, run_folders
from heronpy.batch.topology import KEEPER, WORKER, run_topology
from heronpy.common.errors import TopologyError
from heronpy.plan.component_config import config_of, reliability_mode
from tests.batch.programs.visits import topology

NEWEST = RunRecord(
    topology="visits", number=3, cluster="local", role="me", environ="default", code="one", submitted_at=1.0
)


def test_runs_of_the_same_name_have_different_ids_and_keep_them() -> None:
    """A removed folder of runs, or another cluster, gives the same numbers again."""
    one, other = (replace(NEWEST, topology_ids=(id_,)) for id_ in ("visits-a", "visits-b"))
    assert one.run == other.run and one.id != other.id
    assert replace(one, topology_ids=(*one.topology_ids, "visits-c")).id == one.id


def test_what_is_no_run_is_passed_over_and_a_damaged_topology_is_named(tmp_path: Path) -> None:
    (tmp_path / "a-note").touch()
    runs = Runs(tmp_path, "visits")
    with runs.locked():
        run = runs.begin(NEWEST, topology("visits", "/logs", "/out").build())
    assert [record.run for record, _ in run_folders(tmp_path)] == ["visits/1"]
    (run.folder / "topology").write_bytes(b"\xff")
    with pytest.raises(BatchRunError, match=r"visits/1/topology cannot be read .*; give --fresh"):
        _ = run.topology


@pytest.mark.parametrize(
    ("newest", "wanted", "expected"),
    [
        (None, Wanted("one"), False),
        (NEWEST, Wanted("one"), True),
        (replace(NEWEST, state=RunState.FAILED), Wanted("one"), True),
        (replace(NEWEST, state=RunState.FINISHED), Wanted("one"), False),
        (replace(NEWEST, state=RunState.HELD, hold=True), Wanted("one"), False),
        (NEWEST, Wanted("two", fresh=True), False),
        (NEWEST, Wanted("two", resume=True), True),
        (NEWEST, Wanted("two"), "visits/3 has not finished, and the program has changed"),
        (NEWEST, Wanted("one", hold=True), "neither --as nor --hold"),
        (replace(NEWEST, like="visits/1"), Wanted("one"), "--as visits/1"),
        (NEWEST, Wanted("one", resume=True, fresh=True), "exclude each other"),
        (None, Wanted("one", resume=True), "no run of this topology"),
        (replace(NEWEST, state=RunState.FINISHED), Wanted("one", resume=True), "nothing left to do in run visits/3"),
    ],
)
def test_a_command_goes_on_begins_anew_or_says_why_it_cannot(
    newest: RunRecord | None, wanted: Wanted, expected: bool | str
) -> None:
    if isinstance(expected, bool):
        assert goes_on(newest, wanted) is expected
        return
    with pytest.raises(TopologyError, match=expected):
        goes_on(newest, wanted)


def test_a_program_is_the_same_without_its_ids_and_another_with_another_configuration() -> None:
    one, again = (topology("visits", "/logs/*.log", "/out").build() for _ in range(2))
    assert one.id != again.id
    assert code_digest("package", one) == code_digest("package", again)
    other = topology("visits", "/logs/*.log", "/out", broken="nobody").build()
    assert len({code_digest("package", one), code_digest("other", one), code_digest("package", other)}) == 3


def test_workers_and_keepers_have_the_name_and_settings_of_the_topology() -> None:
    given = topology("visits", "/logs/*.log", "/out").build()
    made = run_topology(given, "/runs/visits/1", 4)
    assert (made.id, made.name) == (given.id, given.name)
    assert [spout.comp.name for spout in made.spouts] == [WORKER, KEEPER] and not made.bolts
    assert [int(config_of(spout)["topology.component.parallelism"]) for spout in made.spouts] == [4, 2]
    config = config_of(made)
    # Backups run in another container; nothing is checkpointed.
    assert (config["topology.stmgrs"], reliability_mode(made)) == (2, "ATMOST_ONCE")
    assert config["heron.batch.unit_bytes"] == 20_000
