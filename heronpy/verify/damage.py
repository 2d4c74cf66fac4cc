"""Full disks, damaged checkpoints in a folder or an object store, and damaged state nodes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from heronpy.loadtest.errors import LabError
from heronpy.proto import control_pb2
from heronpy.proto.checkpoint_pb2 import CheckpointLog, CheckpointRecord
from heronpy.statemgr import paths
from heronpy.storage.checkpoint_layout import METADATA, folder_name, number_of
from heronpy.storage.checkpoints import files_of
from heronpy.storage.locations import open_location, open_store
from heronpy.storage.objects.opening import COMMAND_S, open_objects
from heronpy.storage.objects.url import Place, place_of
from heronpy.verify.acts import BETWEEN, repeated
from heronpy.verify.verbs import check_gone, other_name, other_spec
from heronpy.verify.world import BACK_S, EXACT, Fault, Target, World

#: An unknown field as a future version might write it: number 2000 with the text "later".
UNKNOWN = b"\x82\x7d\x05later"
#: Seconds for which Spark's disk stays full; longer than four attempts at a batch.
SPARK_FULL_S = 20.0


def fill(world: World, what: str) -> None:
    """Fill the small disk."""
    if world.disk is None:
        raise LabError("this fault needs a small disk in the home of its run")
    world.disk.fill()
    world.note(what, disruptive=False)


def empty(world: World) -> None:
    assert world.disk is not None
    world.disk.empty()
    world.note("space is available again", disruptive=False)


def _flows(world: World, fault: Fault) -> None:
    """Check that tuples arrive without a topology master."""
    world.until(lambda: world.arrived() > fault.arrived + BETWEEN, BACK_S, "tuples without a topology master")


@repeated
def full_store(world: World, number: int) -> None:
    """Fill the store: checkpoints fail and are counted, data flows, and a restore uses an earlier checkpoint."""
    world.until_checkpoint()
    fill(world, "the checkpoint store is full")
    world.until_given_up("aborted", "failed")
    said = world.checkpoints().last_failure
    if "space" not in said:
        raise LabError(f"the failed checkpoint does not name the full disk as its cause: {said}")
    _lives_on_and_recovers(world)


def _lives_on_and_recovers(world: World) -> Target:
    """Check that data flows, even after a kill, and that checkpoints resume when there is space; return the victim."""
    world.until_arrived(BETWEEN)
    victim = world.random.choice(world.tasks("work"))
    world.kill(victim)
    world.until_arrived(BETWEEN)
    empty(world)
    world.until_checkpoint()
    world.until_arrived(BETWEEN)
    return victim


@repeated
def full_logs(world: World, number: int) -> None:
    """Fill the disk of the logs, which must affect only logging: a dead task restarts, and later lines are written."""
    fill(world, "the disk with the logs is full")
    victim = _lives_on_and_recovers(world)
    log = world.log_of(victim.name)
    size = log.stat().st_size
    world.kill(world.named(victim.name))
    world.until(lambda: log.stat().st_size > size, BACK_S, f"a new line in the log of {victim.name}")


@repeated
def full_state(world: World, number: int) -> None:
    """Fill the disk of the state manager: data keeps flowing, and dead processes restart when space is available."""
    fill(world, "the disk of the state manager is full")
    world.until_arrived(BETWEEN)
    victim = world.named("tmaster")
    fault = world.kill(victim, wait=False)
    if world.mode != EXACT:
        _flows(world, fault)
    else:
        world.wait(2.0)
    empty(world)
    world.back(victim, fault)
    world.until_checkpoint()


@repeated
def full_packages(world: World, number: int) -> None:
    """Fill the disk of the package cache: `heron submit` fails, names the cause, and leaves no files."""
    fill(world, "the package cache is full")
    folder = world.out / "package"
    folder.mkdir(exist_ok=True)
    program = Path(shutil.copy(world.out / "topology.py", folder / "other.py"))
    said = world.refused(*world.submission(other_spec(world), program=program))
    if "space" not in said:
        raise LabError(f"the error of a submit without space for its package does not name the full disk: {said}")
    check_gone(world, other_name(world))
    empty(world)
    world.heron(*world.submission(other_spec(world), "--deploy-deactivated", program=program))
    world.heron("kill", world.topology.cluster.target, other_name(world))


@repeated
def full_spark(world: World, number: int) -> None:
    """Fill Spark's disk: the topology reports it, no batch fails, and all batches are committed when space is
    available.
    """

    def degraded() -> bool:
        status = world.topology.status()
        if status is None or status.lifecycle != control_pb2.LIFE_DEGRADED:
            return False
        return "full" in status.cause or "space" in status.cause

    fill(world, "the disk of Spark is full")
    world.until(degraded, 2 * BACK_S, "the state DEGRADED, with the full disk as its cause")
    world.wait(SPARK_FULL_S)
    empty(world)


def _read(place: Place) -> bytes:
    """Read a file of a checkpoint from any kind of store."""
    return place.read_bytes() if isinstance(place, Path) else open_objects(place.parent, COMMAND_S).get(place.name)


def _write(place: Place, data: bytes | None) -> None:
    """Replace a file of a checkpoint; None removes it."""
    if isinstance(place, Path):
        place.unlink() if data is None else place.write_bytes(data)
    elif data is None:
        open_objects(place.parent, COMMAND_S).delete([place.name])
    else:
        open_objects(place.parent, COMMAND_S).put(place.name, data)


def _flip(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


def _metadata_before(mine: Place) -> Place:
    """Return the metadata file of the previous complete checkpoint."""
    folder = mine.parent
    before = [number for number in open_store(folder.parent).checkpoints() if number < (number_of(folder.name) or 0)]
    if not before:
        raise LabError(f"there is no checkpoint before {folder.name}")
    return folder.parent / folder_name(max(before)) / METADATA


def _swap(mine: Place) -> None:
    other = _metadata_before(mine)
    mine_data, other_data = _read(mine), _read(other)
    _write(mine, other_data)
    _write(other, mine_data)


def _rewrite(change: Callable[[bytes], bytes | None]) -> Callable[[Place], None]:
    return lambda place: _write(place, change(_read(place)))


#: The damages, with the files of a checkpoint that they affect.
DAMAGES: tuple[tuple[str, str, Callable[[Place], None]], ...] = (
    ("a bit flipped in", "state", _rewrite(_flip)),
    ("truncated:", "state", _rewrite(lambda data: data[: len(data) // 2])),
    ("deleted:", "shared", _rewrite(lambda data: None)),
    ("emptied:", "state", _rewrite(lambda data: b"")),
    ("a bit flipped in", "metadata", _rewrite(_flip)),
    ("emptied:", "metadata", _rewrite(lambda data: b"")),
    ("swapped with the previous checkpoint:", "metadata", _swap),
)


def damaged_checkpoint(world: World, runs: int) -> None:
    """Damage the newest checkpoint before a restore; the damage must be reported, and the previous checkpoint used."""
    for what, which, change in DAMAGES * runs:
        # Wait for two checkpoints, because the previous checkpoint must be intact.
        world.until_checkpoint()
        world.until_checkpoint()
        _damage_and_restore(world, what, which, change)
        world.until_arrived(BETWEEN)
    world.notes["damages"] = len(DAMAGES) * runs


def _damage_and_restore(world: World, what: str, which: str, change: Callable[[Place], None]) -> None:
    """Damage the newest checkpoint and make the topology restore from it."""
    # A newer checkpoint may complete before the kill; then damage that checkpoint.
    for _ in range(20):
        victim = world.random.choice(world.tasks("work"))
        record = max(world.checkpoints().complete, key=lambda one: one.checkpoint)
        path = victim_of(record, which)
        change(path)
        world.note(f"{what} {which} of checkpoint {record.checkpoint}", disruptive=False)
        _restore(world, victim)
        marked = [one for one in world.checkpoints().complete if one.checkpoint == record.checkpoint and one.damaged]
        if marked:
            if path.name not in marked[0].damage:
                raise LabError(f"the damage to checkpoint {record.checkpoint} does not name {path}: {marked[0].damage}")
            return
        world.until_checkpoint()
    raise LabError(f"{what} {which}: no restore has used the damaged checkpoint")


def _restore(world: World, victim: Target) -> None:
    """Kill a task, and wait until the topology has been restored and is running."""
    before = world.checkpoints().restores
    world.kill(victim, wait=False)

    def restored() -> bool:
        reply = world.checkpoints()
        return reply.restores > before and all(region.started for region in reply.regions)

    world.until(restored, BACK_S, "the start of the restored topology")


def victim_of(record: CheckpointRecord, which: str) -> Place:
    """Choose a file of this checkpoint, preferably a file that no earlier checkpoint uses."""
    store, metadata = open_location(record.location)
    mine = place_of(record.location) / METADATA
    if which == "metadata":
        return mine
    older = store.load_metadata(number_of(_metadata_before(mine).parent.name) or 0)
    known = {ref.path for ref in files_of(older)}
    shared = which == "shared"
    refs = sorted(files_of(metadata), key=lambda ref: (ref.path in known, ref.path.startswith("shared") != shared))
    if not refs:
        raise LabError(f"checkpoint {record.checkpoint} has no files")
    return store.path_of(refs[0])


@repeated
def no_checkpoint_left(world: World, number: int) -> None:
    """Damage all checkpoints: the topology fails and names a file. Then repair and restore a checkpoint."""
    world.until_checkpoint()
    victim = world.random.choice(world.tasks("work"))
    good = {place: _read(place) for place in _all_metadata(world)}
    for place, data in good.items():
        _write(place, _flip(data))
    world.kill(victim, wait=False)
    world.note("all checkpoints are damaged", disruptive=False)
    status = world.until_failed(BACK_S)
    if not any(str(place) in status.cause for place in good):
        raise LabError(f"the cause of the failure names no damaged file: {status.cause}")
    world.notes["cause"] = status.cause
    for place, data in good.items():
        _write(place, data)
    start = newest_to_restore(world.checkpoints().complete)
    world.heron("checkpoints", "restore", *world.address, "--checkpoint", start)
    world.until_checkpoint()
    world.may_fail = False


def newest_to_restore(complete: Iterable[CheckpointRecord]) -> int:
    """Return the newest complete checkpoint that is not abandoned.

    The topology tries one damaged checkpoint after the other, and abandons all later checkpoints.
    """
    return max(record.checkpoint for record in complete if not record.abandoned)


@repeated
def empty_when_no_checkpoint_is_left(world: World, number: int) -> None:
    """Damage all checkpoints with heron.checkpoint.allow_empty set: the topology starts empty."""
    world.until_checkpoint()
    victim = world.random.choice(world.tasks("work"))
    for place in _all_metadata(world):
        _write(place, _flip(_read(place)))
    _restore(world, victim)
    world.until_checkpoint()


def _all_metadata(world: World) -> list[Place]:
    return [place_of(record.location) / METADATA for record in world.checkpoints().complete]


@repeated
def garbage_in_state(world: World, number: int) -> None:
    """Write garbage into a plan before a topology master starts: the master reports it, data keeps flowing, and a valid
    plan ends the problem.
    """
    cluster, name = world.topology.cluster, world.topology.name
    path = (paths.packing_plan(name), paths.topology(name))[number % 2]
    node = cluster.home / "state" / cluster.name / f"{path}.node"
    good = node.read_bytes()
    victim = world.named("tmaster")
    node.write_bytes(world.random.randbytes(len(good)))
    fault = world.kill(victim, wait=False)
    fault.disruptive = False
    try:
        log = world.log_of("tmaster")
        said = f"a line about {path} in the topology master's log"
        world.until(lambda: path in log.read_text(encoding="utf-8", errors="replace"), BACK_S, said)
        if world.mode != EXACT:
            _flows(world, fault)
    finally:
        node.write_bytes(good)
    # A topology master that cannot read its plans stops retrying after some restarts.
    world.heron("restart", *world.address, 0)
    world.back(victim, fault)
    world.status()
    world.until_checkpoint()


@repeated
def future_state(world: World, number: int) -> None:
    """Write state of a later version with unknown fields, which must be ignored and preserved."""
    state, name = world.topology.cluster.state, world.topology.name
    for path in (paths.checkpoints(name), paths.packing_plan(name)):
        found = state.get(path)
        if found is not None and not found[0].endswith(UNKNOWN):
            state.set(path, found[0] + UNKNOWN)
    world.kill(world.named("tmaster")).disruptive = False
    if world.mode == EXACT:
        world.until_checkpoint()
        log = CheckpointLog.FromString(state.get(paths.checkpoints(name))[0])
        if UNKNOWN not in log.SerializeToString():
            raise LabError("the topology master has dropped an unknown field of the checkpoint log")
