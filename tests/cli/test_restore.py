"""`heron submit --restore`: what it starts from is chosen and checked before anything starts (F33)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from heronpy.proto import checkpoint_pb2
from heronpy.statemgr import open_state, paths
from heronpy.storage.checkpoints import CheckpointStore
from tests.cli.conftest import Heron, Result
from tests.cli.test_checkpoints import SPOILERS, earlier, root
from tests.support.checkpoints import new_id, write_checkpoint

TOPOLOGY = """
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.topology import TopologyBuilder

class Words(Spout):
    outputs = ["word"]

class Count(Bolt):
    pass

builder = TopologyBuilder("wordy")
builder.set_config({CONFIG})
word = builder.add_spout("word", Words, par=WORDS)
builder.add_bolt("count", Count, par=COUNTS, inputs=[word])
builder.build_and_submit()
"""
EXACTLY = '{"topology.reliability.mode": "EFFECTIVELY_ONCE"'


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """Writes the topology with this number of tasks and this configuration."""

    def write(words: int = 1, counts: int = 2, config: str = EXACTLY + "}", extra: str = "") -> str:
        path = tmp_path / "topo.py"
        text = TOPOLOGY.replace("{CONFIG}", config).replace("WORDS", str(words)).replace("COUNTS", str(counts))
        path.write_text(text.replace("builder.build", f"{extra}\nbuilder.build"), encoding="utf-8")
        return str(path)

    return write


def dry(heron: Heron, program: str, *words: str) -> Result:
    return heron("submit", "local", program, "--dry-run", "--dry-run-format", "json", *words)


def chosen(heron: Heron, program: str, *words: str) -> str:
    result = dry(heron, program, *words)
    assert result.code == 0, result
    return str(json.loads(result.out)["restore"])


# ---- which one ------------------------------------------------------------------------------


def test_latest_an_id_and_paths(heron: Heron, home: Path, program: Any) -> None:
    earlier(home, 8)
    folder = earlier(home, 1, 2, 3, taken_at=1.5e9)
    for wanted, number in (
        ("latest", 3),
        ("2", 2),
        (f"{folder}/chk-1", 1),
        (f"{folder}/chk-1/metadata", 1),
        (str(folder), 3),
        (str(root(home)), 3),
    ):
        assert chosen(heron, program(), "--restore", wanted) == f"{folder}/chk-{number}", wanted
    assert chosen(heron, program()) == "None"


def test_a_replica_or_a_moved_tree_restores(heron: Heron, home: Path, program: Any, tmp_path: Path) -> None:
    """The path of a copy is enough, also when the store is gone."""
    folder = earlier(home, 1, 2)
    replica = tmp_path / "site 2"
    shutil.move(root(home), replica)
    assert chosen(heron, program(), "--restore", str(replica)) == f"{replica}/{folder.name}/chk-2"
    assert chosen(heron, program(), "--restore", str(replica / folder.name)) == f"{replica}/{folder.name}/chk-2"
    gone = dry(heron, program(), "--restore", "latest")
    assert gone.code == 3 and "there is no checkpoint of 'wordy' in" in gone.err


def test_several_stores_are_looked_through(heron: Heron, program: Any, tmp_path: Path) -> None:
    """Which store a run had is found out, not asked for."""
    folders = []
    for name in "ab":
        folders.append(tmp_path / name / new_id("wordy"))
        write_checkpoint(folders[-1], 4, taken_at=1e9 + len(folders))
    stores = json.dumps({name: str(tmp_path / name) for name in "ab"})
    config = "--config-property", f"heron.checkpoint.stores={stores}"
    assert chosen(heron, program(), "--restore", "latest", *config) == f"{folders[1]}/chk-4"
    twice = dry(heron, program(), "--restore", "4", *config)
    assert twice.code == 2 and "checkpoint 4 of 'wordy' is in 2 places; give one of these paths" in twice.err


def test_what_the_topology_has_gone_back_behind_is_passed_over(heron: Heron, home: Path, program: Any) -> None:
    """By number it can be had, unless sinks have taken back what belongs to it: nobody would write that again."""
    folder = earlier(home, 1)
    write_checkpoint(folder, 2)
    write_checkpoint(folder, 3, publishes=True)
    store = CheckpointStore(folder)
    for number in (2, 3):
        store.mark_abandoned(number, True)
    latest = dry(heron, program(), "--restore", "latest")
    assert json.loads(latest.out)["restore"] == f"{folder}/chk-1"
    assert latest.err.count("its topology was later restored from an older checkpoint") == 2
    assert chosen(heron, program(), "--restore", "2") == f"{folder}/chk-2"
    refused = dry(heron, program(), "--restore", "3")
    assert refused.code == 1 and "sinks may have removed the output that belongs to it; restore an older" in refused.err
    store.mark_abandoned(3, False)
    assert chosen(heron, program(), "--restore", "latest") == f"{folder}/chk-3"


@pytest.mark.parametrize("spoil", SPOILERS)
def test_latest_names_a_damaged_one_and_takes_the_one_before(
    heron: Heron, home: Path, program: Any, spoil: Any
) -> None:
    """F23. A byte that only a checksum shows to be wrong is found by the restore itself."""
    folder = earlier(home, 1)
    write_checkpoint(folder, 2, shared=b"other keys")
    path = spoil(folder, 2)
    if spoil.__name__ == "spoil_shared":
        assert chosen(heron, program(), "--restore", "latest") == f"{folder}/chk-2"
        return
    result = dry(heron, program(), "--restore", "latest")
    assert result.code == 0 and json.loads(result.out)["restore"] == f"{folder}/chk-1"
    assert path in result.err and f"skipped checkpoint 2 in {folder}" in result.err
    for wanted in ("2", f"{folder}/chk-2"):
        refused = dry(heron, program(), "--restore", wanted)
        assert refused.code == 1 and path in refused.err and "is damaged" in refused.err


def test_when_all_are_damaged_nothing_starts_unless_empty_is_allowed(heron: Heron, home: Path, program: Any) -> None:
    """F23: refuses to start when none is left."""
    folder = earlier(home, 1, 2)
    (folder / "chk-1" / "metadata").write_bytes(b"")
    (folder / "chk-2" / "metadata").write_bytes(b"")
    refused = dry(heron, program(), "--restore", "latest")
    assert refused.code == 1 and "every checkpoint of 'wordy' is damaged" in refused.err
    empty = dry(heron, program(), "--restore", "latest", "--config-property", "heron.checkpoint.allow_empty=true")
    assert empty.code == 0 and json.loads(empty.out)["restore"] is None
    assert (
        "no checkpoint of 'wordy' can be restored; starting empty, because heron.checkpoint.allow_empty is set"
        in empty.err
    )


def test_what_is_not_there_is_not_found(heron: Heron, home: Path, program: Any, tmp_path: Path) -> None:
    earlier(home, 3)
    missing = dry(heron, program(), "--restore", "9")
    assert missing.code == 3 and "'wordy' has no checkpoint 9; there are: 3" in missing.err
    nothing = dry(heron, program(), "--restore", str(tmp_path / "nothing"))
    assert nothing.code == 3 and "contains no checkpoint" in nothing.err


# ---- whether it fits --------------------------------------------------------------------------


def refused(heron: Heron, program: str, *words: str) -> str:
    """The error of a submit that must not start anything."""
    result = heron("submit", "local", program, "--restore", "latest", *words)
    assert result.code == 2 and "Launching" not in result.out, result
    return result.err


def test_a_checkpoint_that_does_not_fit_is_refused_before_anything_starts(
    heron: Heron, home: Path, program: Any
) -> None:
    """F33."""
    earlier(home, 1)
    assert "component 'word' has plain State of 1 task in checkpoint 1" in refused(heron, program(words=2))
    rescaled = program(counts=5)
    assert chosen(heron, rescaled, "--restore", "latest").endswith("chk-1"), "keyed state goes with any parallelism"
    groups = refused(heron, program(), "--config-property", "heron.checkpoint.key_groups=64")
    assert "set heron.checkpoint.key_groups to 1024" in groups


def test_dropped_state_must_be_allowed_and_new_components_start_empty(heron: Heron, home: Path, program: Any) -> None:
    folder = root(home) / new_id("wordy")
    write_checkpoint(folder, 1, parallelism={"word": 1, "count": 2, "gone": 1})
    assert "has state of component 'gone'" in refused(heron, program())
    assert chosen(heron, program(), "--restore", "latest", "--allow-dropped-state") == f"{folder}/chk-1"
    assert heron("submit", "local", program(), "--allow-dropped-state").code == 2


def test_other_modes_and_a_clean_start_contradict_a_restore(heron: Heron, home: Path, program: Any) -> None:
    earlier(home, 1)
    mode = refused(heron, program(config='{"topology.reliability.mode": "ATLEAST_ONCE"}'))
    assert "is ATLEAST_ONCE and has no checkpoints; leave out --restore" in mode
    clean = program(config=EXACTLY + ', "topology.stateful.start.clean": True}')
    assert "contradict each other" in refused(heron, clean)
    assert chosen(heron, clean) == "None"


# ---- what the topology is told ----------------------------------------------------------------


def test_the_log_is_there_before_the_scheduler_starts(
    heron: Heron, home: Path, program: Any, runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids go on above the restored one."""
    from heronpy.launching import submission

    folder = earlier(home, 7)
    runtime("running")
    seen: list[checkpoint_pb2.CheckpointLog] = []
    spawn = submission.spawn_scheduler

    def look(spec: Any, launch_file: str) -> Any:
        state = open_state("local", str(home / "state" / "local"))
        found = state.get(paths.checkpoints("wordy"))
        state.close()
        assert found is not None
        seen.append(checkpoint_pb2.CheckpointLog.FromString(found[0]))
        return spawn(spec, launch_file)

    monkeypatch.setattr(submission, "spawn_scheduler", look)
    result = heron(
        "submit", "local", program(extra='builder.add_bolt("more", Count, par=1, inputs=[word])'), "--restore", "7"
    )
    assert result.code == 0, result
    assert f"of checkpoint 7, {folder}/chk-7" in result.out and "component 'more' is new and starts empty" in result.out
    [log] = seen
    assert (log.restore_from, log.next_checkpoint) == (f"{folder}/chk-7", 8)
    assert log.topology_id.startswith("wordy") and log.topology_id != folder.name
    busy = heron("checkpoints", "delete", "local", "wordy", "7")
    assert busy.code == 1 and "a running topology would be restored from this checkpoint" in busy.err
    killed = heron("kill", "local", "wordy")
    assert killed.code == 0 and f"the newest is {folder}/chk-7" in killed.out
    assert heron("checkpoints", "verify", "local", "wordy").code == 0


def test_without_restore_there_is_no_log(heron: Heron, home: Path, program: Any, runtime: Any) -> None:
    """One that an earlier kill left behind is not taken over."""
    state = open_state("local", str(home / "state" / "local"))
    state.create(
        paths.checkpoints("wordy"), checkpoint_pb2.CheckpointLog(restore_from="/old/chk-1").SerializeToString()
    )
    runtime("running")
    assert heron("submit", "local", program()).code == 0
    assert state.get(paths.checkpoints("wordy")) is None
    state.close()
    assert heron("kill", "local", "wordy").code == 0


def test_more_tasks_than_key_groups_are_refused(heron: Heron, program: Any) -> None:
    """A key group belongs to one task."""
    config = "--config-property", "heron.checkpoint.key_groups=2"
    result = dry(heron, program(counts=3), *config)
    assert result.code == 2 and "bolt 'count' has 3 tasks, more than the 2 key groups" in result.err
    assert dry(heron, program(counts=2), *config).code == 0
    assert dry(heron, program(counts=3, config="{}"), *config).code == 0


def test_apache_herons_interval_sets_ours(heron: Heron, program: Any) -> None:
    key = '"topology.stateful.checkpoint.interval.seconds"'
    assert dry(heron, program(config=EXACTLY + f", {key}: 30}}")).code == 0
    low = dry(heron, program(config=EXACTLY + f", {key}: 0.06}}"))
    assert low.code == 2 and "heron.checkpoint.interval_min_s (0.1, default) must not exceed" in low.err
    floor = dry(heron, program(config=EXACTLY + ', "heron.checkpoint.interval_min_s": 0.05}'))
    assert floor.code == 2 and "protects other topologies" in floor.err
    idle = dry(heron, program(config=f"{{{key}: 30}}"))
    assert (
        idle.code == 0 and f"these settings have no effect in a topology of mode ATMOST_ONCE: {key[1:-1]}" in idle.err
    )


# ---- the replica ----------------------------------------------------------------------------


def test_latest_takes_the_replica_when_the_store_is_lost(
    heron: Heron, home: Path, program: Any, tmp_path: Path
) -> None:
    folder = earlier(home, 1, 2)
    replica = tmp_path / "site b"
    shutil.move(root(home), replica)
    configured = "--config-property", f"heron.checkpoint.replica={replica}"
    for wanted, number in (("latest", 2), ("1", 1)):
        result = dry(heron, program(), "--restore", wanted, *configured)
        assert result.code == 0, result
        assert json.loads(result.out)["restore"] == f"{replica}/{folder.name}/chk-{number}"
        assert "contains no checkpoint" in result.err and str(replica) in result.err
    root(home).mkdir(parents=True)  # there again, but empty
    assert chosen(heron, program(), "--restore", "latest", *configured) == f"{replica}/{folder.name}/chk-2"
    shutil.rmtree(replica)
    gone = dry(heron, program(), "--restore", "latest", *configured)
    assert gone.code == 3 and f"nor in the replica {replica}" in gone.err


def test_a_whole_copy_stands_in_for_a_damaged_checkpoint(
    heron: Heron, home: Path, program: Any, tmp_path: Path
) -> None:
    """The store has the last word while it is whole: a replica lags behind it."""
    folder = earlier(home, 1, 2)
    replica = tmp_path / "replica"
    shutil.copytree(root(home), replica)
    configured = "--config-property", f"heron.checkpoint.replica={replica}"
    assert chosen(heron, program(), "--restore", "latest", *configured) == f"{folder}/chk-2"
    (folder / "chk-2" / "metadata").write_bytes(b"rubbish")
    result = dry(heron, program(), "--restore", "latest", *configured)
    assert json.loads(result.out)["restore"] == f"{replica}/{folder.name}/chk-2"
    assert "skipped checkpoint 2" in result.err and "copy in the replica" in result.err
