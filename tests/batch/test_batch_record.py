"""What a command does with the newest run of its topology, and the topology that works on a run."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from heronpy.batch.record import RunRecord, RunState, Wanted, code_digest, goes_on
from heronpy.batch.run import BatchRunError, Runs, run_folders
from heronpy.batch.stages import BatchRefusedError
from heronpy.batch.topology import KEEPER, WORKER, left_out, run_topology, worker_config
from heronpy.clusters.session import Session
from heronpy.common.errors import NodeExistsError, TopologyError
from heronpy.common.setting_types import InstanceSettings, PackingSettings
from heronpy.common.settings import resolve, settings_for
from heronpy.common.units import MB
from heronpy.launching import on_batch
from heronpy.launching.batch_places import publishes_again
from heronpy.launching.model import Loaded
from heronpy.packing.demand import demand_of
from heronpy.plan.component_config import config_of, reliability_mode, shown_mode
from heronpy.proto import topology_pb2
from tests.batch.programs import splits
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


def test_what_a_command_left_that_died_is_removed_and_its_number_is_not_used_again(tmp_path: Path) -> None:
    runs, built = Runs(tmp_path, "visits"), topology("visits", "/logs", "/out").build()
    with runs.locked():
        left = [runs.begin(NEWEST, built).folder for _ in range(2)]
        (left[1] / "run.json").unlink()
        os.utime(left[1], (1.0, 1.0))
        assert runs.begin(NEWEST, built).record.run == "visits/3"
    assert left[0].exists() and not left[1].exists()


def test_a_command_leaves_a_run_alone_that_another_one_has_just_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    built, answers = topology("visits", "/logs", "/out").build(), iter([None])

    def refuse(session: Session, name: str) -> None:
        if next(answers, self := object()) is self:
            raise NodeExistsError("topology 'visits' is already running")

    monkeypatch.setattr(on_batch.submission, "refuse_taken", refuse)
    monkeypatch.setattr(on_batch, "checked_settings", lambda *_: resolve("local", (), {}, {}, ()))
    runs = Runs(tmp_path / "batch" / "local", "visits")
    with runs.locked():
        run = runs.begin(NEWEST, built)
    session = cast(Session, SimpleNamespace(target=SimpleNamespace(cluster="local"), record=lambda _: None))
    before = run.record
    with (
        pytest.raises(NodeExistsError),
        on_batch.begun(session, Loaded(built, None, None), on_batch.Flags("batch", fresh=True)),
    ):
        pass
    assert runs.numbers() == [1] and run.record == before


def test_a_repeated_command_with_other_input_is_refused_and_leaves_the_run_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    monkeypatch.setattr(on_batch.submission, "refuse_taken", lambda *_: None)
    monkeypatch.setattr(on_batch, "checked_settings", lambda *_: resolve("local", (), {}, {}, ()))
    runs = Runs(tmp_path / "batch" / "local", "visits")
    with runs.locked():
        run = runs.begin(replace(NEWEST, state=RunState.FAILED), topology("visits", "/logs/*.log", "/tmp").build())
    session = cast(Session, SimpleNamespace(target=SimpleNamespace(cluster="local"), record=lambda _: None))
    before, other = run.record, topology("visits", "/others/*.log", "/tmp").build()
    for flags in (on_batch.Flags("batch"), on_batch.Flags("batch", resume=True)):
        with (
            pytest.raises(BatchRefusedError, match=r"visits/1 .* reads /logs/\*\.log, but .* gives /others/\*\.log;"),
            on_batch.begun(session, Loaded(other, None, None), flags),
        ):
            pass
    assert runs.numbers() == [1] and run.record == before


@pytest.mark.parametrize(
    ("flags", "out", "refused"),
    [
        (on_batch.Flags("batch"), "/tmp", True),
        (on_batch.Flags("auto"), "/tmp", True),
        (on_batch.Flags("batch", fresh=True), "/tmp", False),
        (on_batch.Flags("batch", like="visits/1", hold=True), "/tmp", False),
        (on_batch.Flags("batch", like="visits/1"), "/tmp", True),
        (on_batch.Flags("batch"), "/var/tmp", False),
    ],
)
def test_a_finished_run_is_repeated_only_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: on_batch.Flags, out: str, refused: bool
) -> None:
    """Also if a held run came after it, and although the program has changed: its rows would be published twice."""
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    monkeypatch.setattr(on_batch.submission, "refuse_taken", lambda *_: None)
    monkeypatch.setattr(on_batch, "checked_settings", lambda *_: resolve("local", (), {}, {}, ()))
    monkeypatch.setattr(on_batch, "forget", lambda *_: None)
    (tmp_path / "a.log").touch()
    logs = f"{tmp_path}/*.log"
    runs = Runs(tmp_path / "batch" / "local", "visits")
    with runs.locked():
        for record in (
            replace(NEWEST, state=RunState.FINISHED, ended_at=86400.0, sinks={"store": "/tmp"}),
            replace(NEWEST, state=RunState.HELD, ended_at=90000.0, hold=True),
        ):
            runs.begin(record, topology("visits", logs, "/tmp").build())
    target = SimpleNamespace(cluster="local", role_or_user="me", environ_or_default="default")
    session = cast(Session, SimpleNamespace(target=target, record=lambda _: None))
    given = Loaded(topology("visits", logs, out, broken="nobody").build(), None, None)
    said = r"^run visits/1 has finished and has published its output at 1970-01-0\d .*; give --fresh to run it again$"
    with pytest.raises(BatchRefusedError, match=said) if refused else nullcontext():
        with on_batch.begun(session, given, flags) as begun:
            assert begun.run is not None and begun.run.record.number == 3 and not begun.goes_on
    assert runs.numbers() == ([1, 2] if refused else [1, 2, 3])


def test_a_run_that_takes_the_input_of_another_names_the_same_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    monkeypatch.setattr(on_batch.submission, "refuse_taken", lambda *_: None)
    monkeypatch.setattr(on_batch, "checked_settings", lambda *_: resolve("local", (), {}, {}, ()))
    runs = Runs(tmp_path / "batch" / "local", "visits")
    with runs.locked():
        runs.begin(replace(NEWEST, state=RunState.FINISHED), topology("visits", "/logs/*.log", "/tmp").build())
    session = cast(Session, SimpleNamespace(target=SimpleNamespace(cluster="local"), record=lambda _: None))
    other = Loaded(topology("visits", "/others/*.log", "/tmp").build(), None, None)
    said = r"input of visits/1, in which spout 'lines' reads /logs/\*\.log, but .* gives /others/\*\.log; .* leave out --as"
    with pytest.raises(BatchRefusedError, match=said):
        with on_batch.begun(session, other, on_batch.Flags("batch", like="visits/1", hold=True)):
            pass
    assert runs.numbers() == [1]


def test_a_finished_run_has_the_arguments_of_the_command_that_continued_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Splits may depend on them, so a repeated command is recognised by them."""
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    monkeypatch.setattr(on_batch.submission, "refuse_taken", lambda *_: None)
    monkeypatch.setattr(on_batch, "checked_settings", lambda *_: resolve("local", (), {}, {}, ()))
    monkeypatch.setattr(on_batch, "forget", lambda *_: None)
    built = splits.topology("visits", "/tmp", "4", "30").build()
    runs = Runs(tmp_path / "batch" / "local", "visits")
    with runs.locked():
        run = runs.begin(replace(NEWEST, state=RunState.FAILED, argv=("old",)), built)
    session = cast(Session, SimpleNamespace(target=SimpleNamespace(cluster="local"), record=lambda _: None))
    for program, refused in (("/one/splits.py", False), ("other/splits.py", True)):
        loaded = Loaded(built, None, None, argv=(program, "new"))
        with pytest.raises(BatchRefusedError, match="visits/1 has finished at ") if refused else nullcontext():
            with on_batch.begun(session, loaded, on_batch.Flags("batch", resume=not refused)) as begun:
                assert begun.goes_on
        run.write(replace(run.record, state=RunState.FINISHED, ended_at=86400.0))
    assert run.record.argv == ("new",) and runs.numbers() == [1]


def test_rows_are_published_twice_by_the_same_input_and_a_common_sink() -> None:
    def visits(logs: str, out: str, **given: str) -> topology_pb2.Topology:
        return topology("visits", logs, out, **given).build()

    before = visits("/logs", "/out")
    assert publishes_again(before, visits("/logs", "/out", broken="nobody", tasks="5"), False)
    assert not publishes_again(before, visits("/logs/*", "/out"), True)
    assert not publishes_again(before, visits("/logs", "/other"), True)
    spark = visits("/logs", "/out", spark="1")
    assert publishes_again(spark, visits("/logs", "/out", spark="1"), True)
    assert not publishes_again(spark, visits("/logs", "/other", spark="1"), True)
    # Splits may depend on the arguments of the program.
    one, same, other = (splits.topology("sums", "/out", count, "30").build() for count in ("4", "4", "5"))
    assert publishes_again(one, same, True) and not publishes_again(one, same, False)
    assert not publishes_again(one, other, True)


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
        (NEWEST, Wanted("two"), "visits/3 has not finished, and the program or its arguments have changed"),
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
    assert shown_mode(made) == "BATCH", "not the mode of its workers"
    assert [int(config_of(spout)["topology.component.parallelism"]) for spout in made.spouts] == [4, 2]
    config = config_of(made)
    # Backups run in another container; nothing is checkpointed.
    assert (config["topology.stmgrs"], reliability_mode(made)) == (2, "ATMOST_ONCE")
    assert config["heron.batch.unit_bytes"] == 20_000
    # The end of a run is one step, and a keeper that is killed in it begins it again.
    resolved = resolve("local", (), config, {spout.comp.name: config_of(spout) for spout in made.spouts}, ())
    of_both = [settings_for(resolved, InstanceSettings, name).hang_timeout_s for name in (WORKER, KEEPER)]
    assert of_both == [60, 3600]


def test_a_worker_gets_the_most_that_any_component_asks_for() -> None:
    builder = topology("visits", "/logs/*.log", "/out")
    builder.set_config({"topology.component.rammap": "parse:100MB,count:300MB"})
    given = builder.build()
    own = {"heron.instance.hang_timeout_s": 600, "heron.instance.slow_ms": 5, "heron.instance.batch_tuples": 7}
    resolved = resolve("local", (), {}, {"parse": own, "count": {"heron.instance.hang_timeout_s": 0}}, ())
    demand = demand_of(given, PackingSettings(), None, share_requested=True)
    assert worker_config(demand, resolved.component_settings) == {
        "topology.component.ram": 300 * MB, "heron.instance.hang_timeout_s": 0,
    }  # fmt: skip
    said = left_out(resolved.component_settings, resolved.origins)
    assert said == "a batch run does not accept heron.instance.slow_ms of 'parse'"
    made = config_of(run_topology(given, "/runs/visits/1", 4, {"topology.component.ram": 5}).spouts[0])
    assert made["topology.component.ram"] == 5
