"""`heron checkpoints` on real checkpoint folders, with and without a (fake) topology master."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.errors import RpcError
from heronpy.proto import checkpoint_pb2, control_pb2, topology_pb2
from heronpy.statemgr import paths
from heronpy.storage.checkpoints import CheckpointStore, files_of
from heronpy.storage.locations import location_of, open_location
from tests.cli.conftest import FakeTopology, Heron, word_count
from tests.support.checkpoints import new_id, write_checkpoint


def root(home: Path) -> Path:
    return home / "checkpoints" / "local"


def earlier(home: Path, *numbers: int, taken_at: float = 1e9, **options: Any) -> Path:
    """The folder of an instance that is gone, with these checkpoints."""
    folder = root(home) / new_id("wordy")
    for number in numbers:
        write_checkpoint(folder, number, taken_at=taken_at + number, **options)
    return folder


def listed(heron: Heron) -> list[dict[str, Any]]:
    result = heron("checkpoints", "list", "local", "wordy", "--json")
    assert result.code == 0, result.err
    rows: list[dict[str, Any]] = json.loads(result.out)["checkpoints"]
    return rows


@pytest.fixture
def running(home: Path, wordy: FakeTopology) -> FakeTopology:
    """Topology 'wordy' runs in EFFECTIVELY_ONCE and has checkpoints 3 and 4, and savepoint 2."""
    topology = word_count()
    topology.topology_config.kvs.add(key="topology.reliability.mode", value="EFFECTIVELY_ONCE")
    set_topology(wordy, topology)
    folder = root(home) / "wordy-1"
    log = checkpoint_pb2.CheckpointLog(topology_id="wordy-1", next_checkpoint=5)
    for number in (2, 3, 4):
        metadata = write_checkpoint(folder, number, savepoint=number == 2, taken_at=2e9 + number)
        log.complete.add(
            checkpoint=number, kind=metadata.kind, location=location_of(folder, number), taken_at=metadata.taken_at,
            total_bytes=300, uploaded_bytes=120, duration_s=0.25,
        )  # fmt: skip
    wordy.state.set(paths.checkpoints("wordy"), log.SerializeToString())
    reply = control_pb2.CheckpointsReply(complete=log.complete, completed=3)
    reply.regions.add(components=["word", "count"], attempt=2, checkpoint=3, started=True)
    wordy.answers["get_checkpoints"] = reply
    return wordy


def set_topology(wordy: FakeTopology, topology: topology_pb2.Topology) -> None:
    wordy.state.set(paths.topology("wordy"), topology.SerializeToString())
    wordy.status.plan.topology.CopyFrom(topology)


# ---- list and show --------------------------------------------------------------------------


def test_checkpoints_of_a_topology_that_is_gone_are_listed(heron: Heron, home: Path) -> None:
    """Retained, the newest run first and in it the newest checkpoint."""
    old, new = earlier(home, 8, 9), earlier(home, 1, 2, taken_at=1.5e9)
    assert [row["location"] for row in listed(heron)] == [
        f"{new}/chk-2",
        f"{new}/chk-1",
        f"{old}/chk-9",
        f"{old}/chk-8",
    ]
    text = heron("checkpoints", "list", "local", "wordy").out
    assert "earlier run" in text and f"{new}/chk-2" in text and "250ms" in text


def test_other_topologies_and_leftovers_are_not_listed(heron: Heron, home: Path) -> None:
    folder = earlier(home, 1)
    write_checkpoint(root(home) / new_id("wordy2"), 5, topology="wordy2")
    (folder / "chk-2").mkdir()  # not a checkpoint without metadata
    assert [row["checkpoint"] for row in listed(heron)] == [1]


def test_a_topology_without_any_is_not_found(heron: Heron, wordy: FakeTopology) -> None:
    missing = heron("checkpoints", "list", "local", "wordi")
    assert missing.code == 3 and "no topology 'wordi' and no checkpoints of it; did you mean 'wordy'?" in missing.err
    assert heron("checkpoints", "list", "local", "wordy").out == (
        "No checkpoint of 'wordy' is complete; it is ATMOST_ONCE and has no checkpoints\n"
    )


def test_the_list_of_a_running_topology_has_what_its_master_knows(
    heron: Heron, running: FakeTopology, home: Path
) -> None:
    reply = running.answers["get_checkpoints"]
    assert isinstance(reply, control_pb2.CheckpointsReply)
    reply.pending, reply.pending_s, reply.pending_tasks, reply.last_failure = 5, 1.5, 7, "task 3 was late"
    reply.pending_names.extend(f"container_1_count_{number}" for number in range(2, 9))
    reply.complete[1].damaged, reply.complete[1].damage = True, "file x has changed"
    earlier(home, 1)
    rows = {row["checkpoint"]: row for row in listed(heron)}
    assert [rows[number]["current"] for number in (1, 2, 3, 4)] == [False, True, True, True]
    assert [rows[number]["in_use"] for number in (1, 2, 3, 4)] == [False, False, False, True]
    assert rows[2]["kind"] == "savepoint" and rows[3]["damage"] == ["file x has changed"]
    text = heron("checkpoints", "list", "local", "wordy").out
    assert "checkpoint 5 has been in progress for 1.5s; 7 tasks outstanding: container_1_count_2," in text
    assert "container_1_count_6 and 2 more" in text and "container_1_count_7" not in text
    assert "checkpoint 3 is damaged: file x has changed" in text and "last failure: task 3 was late" in text
    assert "3 completed, 0 aborted, 0 failed" in text


def test_a_record_whose_files_are_gone_is_listed_as_damaged(heron: Heron, running: FakeTopology, home: Path) -> None:
    shutil.rmtree(root(home) / "wordy-1" / "chk-4")
    rows = {row["checkpoint"]: row for row in listed(heron)}
    assert rows[4]["damaged"] and "chk-4" in rows[4]["damage"][0]


def test_the_files_that_show_names_are_all_that_a_copy_needs(heron: Heron, home: Path, tmp_path: Path) -> None:
    """Copying exactly this set gives a checkpoint that is whole, at another place."""
    folder = earlier(home, 3, 4)
    shown = json.loads(heron("checkpoints", "show", "local", "wordy", "4", "--json").out)
    assert shown["checkpoint"] == 4 and [task["component"] for task in shown["tasks"]] == ["word", "count", "count"]
    copy = tmp_path / "elsewhere" / folder.name
    for file in shown["files"]:
        (copy / file["path"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / file["path"], copy / file["path"])
    assert heron("checkpoints", "verify", "local", str(copy)).code == 0
    shutil.rmtree(copy)
    for file in shown["files"][1:]:
        (copy / file["path"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / file["path"], copy / file["path"])
    assert heron("checkpoints", "verify", "local", str(copy)).code == 1


def test_show_has_figures_by_component_and_task(heron: Heron, home: Path) -> None:
    folder = earlier(home, 3)
    text = heron("checkpoints", "show", "local", "wordy", "3", "--files").out
    assert "Checkpoint 3 of 'wordy'" in text and "300B, 120B of it newly written" in text
    assert "counts" in text and "shared/" in text and "chk-3/metadata" in text
    assert heron("checkpoints", "show", "local", "wordy", f"{folder}/chk-3").out in text
    gone = heron("checkpoints", "show", "local", "wordy", "9")
    assert gone.code == 3 and "'wordy' has no checkpoint 9; there are: 3" in gone.err


def test_an_id_of_two_runs_needs_a_path(heron: Heron, home: Path) -> None:
    first, second = earlier(home, 3), earlier(home, 3, taken_at=1.5e9)
    both = heron("checkpoints", "show", "local", "wordy", "3")
    assert both.code == 2 and f"{second}/chk-3" in both.err and f"{first}/chk-3" in both.err


# ---- verify ---------------------------------------------------------------------------------


def spoil_shared(folder: Path, number: int) -> str:
    """Flip a byte of a shared file of a checkpoint."""
    _, metadata = open_location(location_of(folder, number))
    path = next(folder / ref.path for ref in files_of(metadata) if ref.path.startswith("shared/"))
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    return str(path)


def spoil_size(folder: Path, number: int) -> str:
    _, metadata = open_location(location_of(folder, number))
    path = next(folder / ref.path for ref in files_of(metadata) if ref.path.startswith("shared/"))
    path.write_bytes(path.read_bytes()[:-1])
    return str(path)


def spoil_missing(folder: Path, number: int) -> str:
    _, metadata = open_location(location_of(folder, number))
    path = next(folder / ref.path for ref in files_of(metadata) if ref.path.startswith(f"chk-{number}/"))
    path.unlink()
    return str(path)


def spoil_metadata(folder: Path, number: int) -> str:
    path = folder / f"chk-{number}" / "metadata"
    path.write_bytes(path.read_bytes()[:-1])
    return str(path)


def spoil_empty(folder: Path, number: int) -> str:
    path = folder / f"chk-{number}" / "metadata"
    path.write_bytes(b"")
    return str(path)


def spoil_swapped(folder: Path, number: int) -> str:
    """The metadata of another checkpoint."""
    write_checkpoint(folder, number + 100)
    path = folder / f"chk-{number}" / "metadata"
    shutil.copyfile(folder / f"chk-{number + 100}" / "metadata", path)
    CheckpointStore(folder).delete(number + 100)
    return str(path)


SPOILERS = [spoil_shared, spoil_size, spoil_missing, spoil_metadata, spoil_empty, spoil_swapped]


@pytest.mark.parametrize("spoil", SPOILERS)
def test_verify_names_the_damaged_file(heron: Heron, home: Path, spoil: Any) -> None:
    """F23: a flipped byte, a truncated, deleted, empty or swapped file."""
    folder = earlier(home, 1)
    write_checkpoint(folder, 2, shared=b"other keys")
    assert heron("checkpoints", "verify", "local", "wordy").code == 0
    path = spoil(folder, 2)
    result = heron("checkpoints", "verify", "local", "wordy")
    assert result.code == 1 and path in result.out, result
    assert result.err == f"error: 1 of 2 checkpoints cannot be restored: {folder}/chk-2\n"
    found = json.loads(heron("checkpoints", "verify", "local", "wordy", "--json").out)
    assert [(item["checkpoint"], item["damaged"]) for item in found] == [(2, True), (1, False)]
    assert heron("checkpoints", "verify", "local", "wordy", "1").code == 0


def test_verify_reads_stores_and_copies(heron: Heron, home: Path, tmp_path: Path) -> None:
    folder = earlier(home, 1)
    write_checkpoint(root(home) / new_id("other"), 1, topology="other")
    for path, count in ((root(home), 2), (folder, 1), (folder / "chk-1", 1)):
        assert len(json.loads(heron("checkpoints", "verify", "local", str(path), "--json").out)) == count
    assert heron("checkpoints", "verify", "local", str(tmp_path)).code == 3
    assert heron("checkpoints", "verify", "local", str(folder), "x").code == 2


# ---- copy -------------------------------------------------------------------------------------


def test_a_copy_is_whole_in_another_store_and_what_is_there_is_not_copied_again(
    heron: Heron, home: Path, tmp_path: Path
) -> None:
    folder, store = earlier(home, 1, 2), tmp_path / "store"
    store.mkdir(mode=0o700)
    copied = heron("checkpoints", "copy", "local", "wordy", "2", str(store))
    assert copied.code == 0 and f"{store}/{folder.name}/chk-2" in copied.out, copied
    assert heron("checkpoints", "verify", "local", str(store)).code == 0
    again = json.loads(heron("checkpoints", "copy", "local", "wordy", str(folder / "chk-1"), str(store), "--json").out)
    assert again["checkpoint"] == 1 and again["files_there"] > 0, again
    assert CheckpointStore(store / folder.name).checkpoints() == [1, 2], "nothing is removed"
    refused = heron("checkpoints", "copy", "local", "wordy", "1", str(root(home)))
    assert refused.code == 2 and "is already in" in refused.err, refused
    spoiled = next(path for path in (folder / "shared").rglob("*") if path.is_file())
    spoiled.write_bytes(b"x" * spoiled.stat().st_size)
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    refused = heron("checkpoints", "copy", "local", "wordy", "1", str(other))
    assert refused.code == 1 and "Traceback" not in refused.err, refused
    assert CheckpointStore(other / folder.name).checkpoints() == [], "half a copy is not a checkpoint"


# ---- savepoint, trigger, restore --------------------------------------------------------------


def test_a_savepoint_is_waited_for_and_its_location_printed(heron: Heron, running: FakeTopology) -> None:
    record = checkpoint_pb2.CheckpointRecord(
        checkpoint=5,
        kind=checkpoint_pb2.SAVEPOINT,
        location="/s/chk-5",
        total_bytes=2048,
        uploaded_bytes=1024,
        duration_s=0.5,
    )
    running.answers["take_checkpoint"] = control_pb2.TakeCheckpointReply(record=record)
    text = heron("checkpoints", "savepoint", "local", "wordy").out
    assert text.splitlines() == [
        "Savepoint 5 of 'wordy' is complete",
        "  2KB of state, 1KB of it written, in 500ms",
        "  /s/chk-5",
    ]
    assert running.asked[-1][1] == control_pb2.TakeCheckpoint(savepoint=True)
    shown = json.loads(heron("checkpoints", "trigger", "local", "wordy", "--json").out)
    assert running.asked[-1][1] == control_pb2.TakeCheckpoint(savepoint=False)
    assert shown["location"] == "/s/chk-5" and shown["checkpoint"] == 5


def test_what_the_master_refuses_is_one_sentence(heron: Heron, running: FakeTopology) -> None:
    running.answers["take_checkpoint"] = RpcError("savepoint 5 was aborted: task 3 was late")
    result = heron("checkpoints", "savepoint", "local", "wordy")
    assert (result.code, result.err) == (1, "error: savepoint 5 was aborted: task 3 was late\n")


@pytest.mark.parametrize("verb", ["savepoint", "trigger", "restore"])
def test_other_modes_have_no_checkpoints(heron: Heron, wordy: FakeTopology, verb: str) -> None:
    result = heron("checkpoints", verb, "local", "wordy")
    assert result.code == 2 and "topology 'wordy' is ATMOST_ONCE and has no checkpoints" in result.err
    assert not wordy.asked
    assert heron("checkpoints", verb, "local", "nothing").code == 3


def test_restore_waits_until_every_region_goes_on(heron: Heron, running: FakeTopology) -> None:
    before = running.answers["get_checkpoints"]
    assert isinstance(before, control_pb2.CheckpointsReply)
    looks = 0

    def on_ask(name: str) -> None:
        nonlocal looks
        if name == "restore_checkpoint":
            before.regions[0].attempt, before.regions[0].checkpoint, before.regions[0].started = 3, 2, False
        looks += name == "get_checkpoints"
        if looks == 3:
            before.regions[0].started = True

    running.on_ask = on_ask
    result = heron("checkpoints", "restore", "local", "wordy", "--checkpoint", "2")
    assert (result.code, result.out) == (0, "Topology 'wordy' has resumed from checkpoint 2\n"), result
    assert control_pb2.RestoreCheckpoint(checkpoint=2) in [body for _, body in running.asked] and looks == 3


def test_a_restore_that_does_not_end_is_late(heron: Heron, running: FakeTopology) -> None:
    result = heron("checkpoints", "restore", "local", "wordy", "--timeout", "0.3")
    assert result.code == 5 and "was not restored within 0.3 s" in result.err


def test_a_restore_that_fails_says_why(heron: Heron, running: FakeTopology) -> None:
    running.status.lifecycle, running.status.cause = control_pb2.LIFE_FAILED, "no checkpoint can be read"
    result = heron("checkpoints", "restore", "local", "wordy")
    assert result.code == 1 and "no checkpoint can be read" in result.err


# ---- delete ---------------------------------------------------------------------------------


def shared_files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "shared").glob("*")}


def test_delete_removes_what_nothing_else_needs(heron: Heron, home: Path) -> None:
    folder = earlier(home, 1)
    write_checkpoint(folder, 2, shared=b"newer keys")
    kept = write_checkpoint(folder, 3, shared=b"newer keys")
    assert len(shared_files(folder)) == 2
    result = heron("checkpoints", "delete", "local", "wordy", "1")
    assert result.code == 0 and result.out.endswith("Deleted 1 checkpoint of 'wordy'\n")
    assert len(shared_files(folder)) == 1
    assert heron("checkpoints", "delete", "local", "wordy", f"{folder}/chk-2").code == 0
    assert heron("checkpoints", "verify", "local", "wordy").code == 0
    assert shared_files(folder) == {Path(ref.path).name for ref in files_of(kept) if ref.path.startswith("shared/")}
    assert heron("checkpoints", "delete", "local", "wordy", "--all").code == 0
    assert not folder.exists()
    assert heron("checkpoints", "delete", "local", "wordy", "--all").code == 3


def test_shared_files_stay_where_a_remaining_metadata_cannot_be_read(heron: Heron, home: Path) -> None:
    folder = earlier(home, 1, 2)
    spoil_metadata(folder, 2)
    before = shared_files(folder)
    assert heron("checkpoints", "delete", "local", "wordy", "1").code == 0
    assert shared_files(folder) == before
    assert heron("checkpoints", "delete", "local", "wordy", "2").code == 0
    assert not folder.exists()


def test_old_ones_are_deleted_by_age(heron: Heron, home: Path) -> None:
    import time

    folder = earlier(home, 1, 2, taken_at=time.time() - 10 * 86400)
    write_checkpoint(folder, 3, taken_at=time.time() - 60)
    result = heron("checkpoints", "delete", "local", "wordy", "--older-than", "7d", "--json")
    assert json.loads(result.out)["deleted"] == [f"{folder}/chk-2", f"{folder}/chk-1"]
    assert [row["checkpoint"] for row in listed(heron)] == [3]


def test_what_is_deleted_must_be_said(heron: Heron, home: Path) -> None:
    earlier(home, 1)
    for words in ((), ("1", "--all"), ("--all", "--older-than", "1d")):
        result = heron("checkpoints", "delete", "local", "wordy", *words)
        assert result.code == 2 and "give the id, path or URL of a checkpoint, or --all, or --older-than" in result.err
    assert heron("checkpoints", "delete", "local", "wordy", "--older-than", "soon").code == 2
    assert [row["checkpoint"] for row in listed(heron)] == [1]


def test_the_one_in_use_is_refused_and_others_are_the_masters(heron: Heron, running: FakeTopology, home: Path) -> None:
    folder = root(home) / "wordy-1"
    refused = heron("checkpoints", "delete", "local", "wordy", "4")
    assert (
        refused.code == 1
        and "a running topology would be restored from this checkpoint; kill the topology first" in refused.err
    )
    result = heron("checkpoints", "delete", "local", "wordy", "--all")
    assert result.code == 0 and "kept checkpoint 4" in result.err
    assert running.asked[-1][1] == control_pb2.DeleteCheckpoints(checkpoints=[2, 3])
    # The topology master deletes; the command has touched nothing of a run that goes on.
    assert CheckpointStore(folder).checkpoints() == [2, 3, 4]


def test_a_checkpoint_that_another_topology_starts_from_is_in_use(
    heron: Heron, running: FakeTopology, home: Path
) -> None:
    """Until its own first checkpoint a topology needs the one that it was restored from."""
    folder = earlier(home, 8, 9)
    plan = running.status.plan
    plan.regions.add(components=["word", "count"], location=f"{folder}/chk-9")
    running.state.set(paths.physical_plan("wordy"), plan.SerializeToString())
    assert heron("checkpoints", "delete", "local", "wordy", "9").code == 1
    assert heron("checkpoints", "delete", "local", "wordy", "8").code == 0
    assert CheckpointStore(folder).checkpoints() == [9]
    plan.regions[-1].started = True
    running.state.set(paths.physical_plan("wordy"), plan.SerializeToString())
    running.state.set(paths.checkpoints("wordy"), b"")
    assert heron("checkpoints", "delete", "local", "wordy", "9").code == 1, "it has none of its own yet"
    log = checkpoint_pb2.CheckpointLog(
        complete=[checkpoint_pb2.CheckpointRecord(checkpoint=10, location="/own/chk-10")]
    )
    running.state.set(paths.checkpoints("wordy"), log.SerializeToString())
    assert heron("checkpoints", "delete", "local", "wordy", "9").code == 0


# ---- status, top, kill ------------------------------------------------------------------------


def test_status_and_top_say_how_checkpoints_go(heron: Heron, running: FakeTopology) -> None:
    reply = running.answers["get_checkpoints"]
    assert isinstance(reply, control_pb2.CheckpointsReply)
    for verb in (("status",), ("top", "-n", "1", "--interval", "0.1")):
        text = heron(verb[0], "local", "wordy", *verb[1:]).out
        assert "last checkpoint 4, " in text and "300B, 120B of it written, in 250ms" in text
    reply.restores, reply.last_restore = 1, "task 2 was lost"
    reply.regions[0].started = False
    for verb in (("status",), ("top", "-n", "1", "--interval", "0.1")):
        text = heron(verb[0], "local", "wordy", *verb[1:]).out
        assert "restoring word, count from checkpoint 3 (attempt 2): task 2 was lost" in text
        shown = json.loads(heron(verb[0], "local", "wordy", *verb[1:], "--json").out)
        assert shown["mode"] == "EFFECTIVELY_ONCE" and shown["checkpoints"]["last"]["checkpoint"] == 4
        assert shown["checkpoints"]["regions"][0]["started"] is False


def test_other_modes_are_named_and_not_asked_for_checkpoints(heron: Heron, wordy: FakeTopology) -> None:
    assert "mode       ATMOST_ONCE" in heron("status", "local", "wordy").out
    assert json.loads(heron("status", "local", "wordy", "--json").out)["checkpoints"] is None
    assert {name for name, _ in wordy.asked} == {"get_status", "get_load"}


def test_kill_names_the_newest_checkpoint_and_keeps_all(heron: Heron, running: FakeTopology, home: Path) -> None:
    """The record goes, complete checkpoints stay, what an unfinished one has written goes."""
    folder = root(home) / "wordy-1"
    CheckpointStore(folder).put_exclusive(5, "task-1-state", b"half")
    running.launch.submitted.settings["checkpoint"]["root"] = str(root(home))
    running.launch.save(Path(running.record.launch_file))
    result = heron("kill", "local", "wordy", "--timeout", "1")
    assert result.code == 0 and f"checkpoints are kept; the newest is {folder}/chk-4" in result.out
    assert running.state.get(paths.checkpoints("wordy")) is None
    assert CheckpointStore(folder).checkpoints() == [2, 3, 4] and not (folder / "chk-5").exists()
    assert [row["current"] for row in listed(heron)] == [False, False, False]


def with_replica(running: FakeTopology, home: Path, replica: Path) -> Path:
    """The settings of the topology name the replica, which has the savepoint alone; the replica's folder."""
    running.launch.submitted.settings["checkpoint"] |= {"root": str(root(home)), "replica": str(replica)}
    running.launch.save(Path(running.record.launch_file))
    write_checkpoint(replica / "wordy-1", 2, savepoint=True, taken_at=2e9 + 2)
    return replica / "wordy-1"


def test_kill_completes_the_replica(heron: Heron, running: FakeTopology, home: Path, tmp_path: Path) -> None:
    folder = with_replica(running, home, tmp_path / "replica")
    result = heron("kill", "local", "wordy", "--timeout", "1")
    assert result.code == 0 and "replica" not in result.err, result
    assert CheckpointStore(folder).checkpoints() == [2, 4]
    assert heron("checkpoints", "verify", "local", str(folder)).code == 0


def test_kill_says_what_the_replica_lacks(heron: Heron, running: FakeTopology, home: Path, tmp_path: Path) -> None:
    folder = with_replica(running, home, tmp_path / "replica")
    for path in (root(home) / "wordy-1" / "shared").rglob("*"):
        if path.is_file():
            path.write_bytes(b"x" * path.stat().st_size)
    shutil.rmtree(folder / "shared", ignore_errors=True)
    result = heron("kill", "local", "wordy", "--timeout", "1", "--json")
    assert result.code == 0, result
    for said in (result.err, json.loads(result.out)["replica_lacks"]):
        assert f"the replica {tmp_path / 'replica'} lacks" in said and "its newest checkpoint is 2" in said, result
    assert CheckpointStore(folder).checkpoints() == [2]
