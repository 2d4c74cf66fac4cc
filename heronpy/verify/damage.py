"""Full disks, damaged checkpoints, in a folder or an object store, and damaged state nodes (F21, F23, F24)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from heronpy.proto.checkpoint_pb2 import CheckpointLog, CheckpointRecord
from heronpy.statemgr import paths
from heronpy.storage.checkpoint_layout import METADATA, folder_name, number_of
from heronpy.storage.checkpoints import files_of
from heronpy.storage.locations import open_location, open_store
from heronpy.storage.objects.opening import COMMAND_S, open_objects
from heronpy.storage.objects.port import Objects
from heronpy.storage.objects.url import Place, Url, place_of
from heronpy.verify.acts import BETWEEN, repeat
from heronpy.verify.disk import SmallDisk
from heronpy.verify.errors import VerifyError
from heronpy.verify.verbs import check_gone, other_name, other_spec
from heronpy.verify.world import BACK_S, EXACT, Fault, Target, World

#: An unknown field as a future version might write it: number 2000 with the text "later".
UNKNOWN = b"\x82\x7d\x05later"


def _disk(world: World) -> SmallDisk:
    if world.disk is None:
        raise VerifyError("this fault needs a small disk below the home of its run")
    return world.disk


def _space_back(world: World) -> None:
    """After space is free again: checkpoints complete, and data flows."""
    _disk(world).empty()
    world.note("there is space again", disruptive=False)
    world.until_checkpoint()
    world.until_arrived(BETWEEN)


def _flows(world: World, fault: Fault) -> None:
    """Check that tuples arrive although there is no topology master."""
    world.until(lambda: world.arrived() > fault.arrived + BETWEEN, BACK_S, "tuples without a topology master")


# ---- no space ------------------------------------------------------------------------------------


def full_store(world: World, runs: int) -> None:
    """Checkpoints fail and are counted, data keeps flowing; a restore uses an earlier complete one."""

    def once(number: int) -> None:
        world.until_checkpoint()
        before = _given_up(world)
        _disk(world).fill()
        world.note("the checkpoint store is full", disruptive=False)
        world.until(lambda: _given_up(world) > before, BACK_S, "a checkpoint that is given up and counted")
        said = world.checkpoints().last_failure
        if "space" not in said:
            raise VerifyError(f"the failed checkpoint does not say that there is no space: {said}")
        world.until_arrived(BETWEEN)
        world.kill(world.random.choice(world.tasks("work")))
        world.until_arrived(BETWEEN)
        _space_back(world)

    repeat(world, runs, once)


def _given_up(world: World) -> int:
    reply = world.checkpoints()
    return int(reply.aborted + reply.failed)


def full_logs(world: World, runs: int) -> None:
    """No process can log, without other effects; a task that dies comes back; later lines are written."""

    def once(number: int) -> None:
        _disk(world).fill()
        world.note("the disk with the logs is full", disruptive=False)
        world.until_arrived(BETWEEN)
        victim = world.random.choice(world.tasks("work"))
        world.kill(victim)
        world.until_arrived(BETWEEN)
        _space_back(world)
        [log] = _disk(world).folder.rglob(f"log-files/{victim.name}.log")
        size = log.stat().st_size
        world.kill(world.named(victim.name))
        world.until(lambda: log.stat().st_size > size, BACK_S, f"a new line in the log of {victim.name}")

    repeat(world, runs, once)


def full_state(world: World, runs: int) -> None:
    """The state manager refuses writes: data keeps flowing; dead processes come back once there is space."""

    def once(number: int) -> None:
        _disk(world).fill()
        world.note("the disk of the state manager is full", disruptive=False)
        world.until_arrived(BETWEEN)
        victim = world.named("tmaster")
        fault = world.kill(victim, wait=False)
        if world.mode != EXACT:
            _flows(world, fault)
        else:
            world.wait(2.0)
        _disk(world).empty()
        world.note("there is space again", disruptive=False)
        world.back(victim, fault)
        world.until_checkpoint()

    repeat(world, runs, once)


def full_packages(world: World, runs: int) -> None:
    """A submit is refused with the reason and leaves nothing behind; running topologies are not affected."""

    def once(number: int) -> None:
        _disk(world).fill()
        world.note("the package cache is full", disruptive=False)
        folder = world.out / "package"
        folder.mkdir(exist_ok=True)
        program = Path(shutil.copy(world.out / "topology.py", folder / "other.py"))
        words = (world.topology.cluster.target, program, "-", "--spec", other_spec(world))
        said = world.refused("submit", *words)
        if "space" not in said:
            raise VerifyError(f"a submit without space for its package was refused for another reason: {said}")
        check_gone(world, other_name(world))
        _disk(world).empty()
        world.heron("submit", "--deploy-deactivated", *words)
        world.heron("kill", world.topology.cluster.target, other_name(world))

    repeat(world, runs, once)


# ---- damaged checkpoints ---------------------------------------------------------------------------


def _read(place: Place) -> bytes:
    """A file of a checkpoint, wherever its store is."""
    return place.read_bytes() if isinstance(place, Path) else _objects(place).get(place.name)


def _write(place: Place, data: bytes | None) -> None:
    """Replace a file of a checkpoint; None removes it."""
    if isinstance(place, Path):
        place.unlink() if data is None else place.write_bytes(data)
    elif data is None:
        _objects(place).delete([place.name])
    else:
        _objects(place).put(place.name, data)


def _objects(place: Url) -> Objects:
    return open_objects(place.parent, COMMAND_S)


def _flip(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


def _metadata_of(location: str) -> Place:
    return place_of(location) / METADATA


def _metadata_before(mine: Place) -> Place:
    """That of the previous complete checkpoint."""
    folder = mine.parent
    before = [number for number in open_store(folder.parent).checkpoints() if number < (number_of(folder.name) or 0)]
    if not before:
        raise VerifyError(f"there is no checkpoint before {folder.name}")
    return folder.parent / folder_name(max(before)) / METADATA


def _swap(mine: Place) -> None:
    """Swap the metadata of this checkpoint and the previous one."""
    other = _metadata_before(mine)
    mine_data, other_data = _read(mine), _read(other)
    _write(mine, other_data)
    _write(other, mine_data)


def _rewrite(change: Callable[[bytes], bytes | None]) -> Callable[[Place], None]:
    return lambda place: _write(place, change(_read(place)))


#: The damage, and the file of a checkpoint that gets it.
DAMAGES: tuple[tuple[str, str, Callable[[Place], None]], ...] = (
    ("a bit flipped in", "state", _rewrite(_flip)),
    ("truncated:", "state", _rewrite(lambda data: data[: len(data) // 2])),
    ("deleted:", "shared", _rewrite(lambda data: None)),
    ("emptied:", "state", _rewrite(lambda data: b"")),
    ("a bit flipped in", "metadata", _rewrite(_flip)),
    ("emptied:", "metadata", _rewrite(lambda data: b"")),
    ("swapped with the previous one:", "metadata", _swap),
)


def damaged_checkpoint(world: World, runs: int) -> None:
    """The newest checkpoint is damaged when it is needed: that is detected and named, the previous one is used."""
    for what, which, change in DAMAGES * runs:
        # Two, because the previous one must be intact.
        world.until_checkpoint()
        world.until_checkpoint()
        _damage_and_restore(world, what, which, change)
        world.until_arrived(BETWEEN)
    world.notes["damages"] = len(DAMAGES) * runs


def _damage_and_restore(world: World, what: str, which: str, change: Callable[[Place], None]) -> None:
    """Damage the newest checkpoint and make the topology restore from it."""
    # Another checkpoint may complete before the kill; then the next one is damaged.
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
                raise VerifyError(f"the damage of checkpoint {record.checkpoint} is not of {path}: {marked[0].damage}")
            return
        world.until_checkpoint()
    raise VerifyError(f"{what} {which}: no restore has used the damaged checkpoint")


def _restore(world: World, victim: Target) -> None:
    """Kill a task; returns when the topology has restored and is running."""
    before = world.checkpoints().restores
    world.kill(victim, wait=False)

    def restored() -> bool:
        reply = world.checkpoints()
        return reply.restores > before and all(region.started for region in reply.regions)

    world.until(restored, BACK_S, "the start of the restored topology")


def victim_of(record: CheckpointRecord, which: str) -> Place:
    """A file of this checkpoint, if possible one that no earlier checkpoint has."""
    store, metadata = open_location(record.location)
    mine = _metadata_of(record.location)
    if which == "metadata":
        return mine
    older = store.load_metadata(number_of(_metadata_before(mine).parent.name) or 0)
    known = {ref.path for ref in files_of(older)}
    shared = which == "shared"
    refs = sorted(files_of(metadata), key=lambda ref: (ref.path in known, ref.path.startswith("shared") != shared))
    if not refs:
        raise VerifyError(f"checkpoint {record.checkpoint} has no files")
    return store.path_of(refs[0])


def no_checkpoint_left(world: World, runs: int) -> None:
    """All checkpoints are damaged: the topology fails and names a file, until one is repaired and restored."""

    def once(number: int) -> None:
        world.until_checkpoint()
        victim = world.random.choice(world.tasks("work"))
        good = {place: _read(place) for place in _all_metadata(world)}
        for place, data in good.items():
            _write(place, _flip(data))
        world.kill(victim, wait=False)
        world.note("all checkpoints are damaged", disruptive=False)
        status = world.until_failed(BACK_S)
        if not any(str(place) in status.cause for place in good):
            raise VerifyError(f"the cause of the failure names no damaged file: {status.cause}")
        world.notes["cause"] = status.cause
        for place, data in good.items():
            _write(place, data)
        start = newest_to_restore(world.checkpoints().complete)
        world.heron("checkpoints", "restore", world.topology.cluster.target, world.topology.name, "--checkpoint", start)
        world.until_checkpoint()
        world.may_fail = False

    repeat(world, runs, once)


def newest_to_restore(complete: Iterable[CheckpointRecord]) -> int:
    """The newest complete checkpoint that is not abandoned.

    Of several that are damaged the topology tries each, and from then on refuses the later ones.
    """
    return max(record.checkpoint for record in complete if not record.abandoned)


def empty_when_no_checkpoint_is_left(world: World, runs: int) -> None:
    """All checkpoints are damaged and heron.checkpoint.allow_empty is set: the topology starts empty, and says so."""

    def once(number: int) -> None:
        world.until_checkpoint()
        victim = world.random.choice(world.tasks("work"))
        for place in _all_metadata(world):
            _write(place, _flip(_read(place)))
        _restore(world, victim)
        world.until_checkpoint()

    repeat(world, runs, once)


def _all_metadata(world: World) -> list[Place]:
    return [_metadata_of(record.location) for record in world.checkpoints().complete]


# ---- damaged state -----------------------------------------------------------------------------------


def _node(world: World, path: str) -> Path:
    kind, name = path.split("/")
    return world.topology.cluster.home / "state" / world.topology.cluster.name / kind / f"{name}.node"


def garbage_in_state(world: World, runs: int) -> None:
    """A plan is garbage when a topology master starts: it says so, data keeps flowing, and a good plan cures it."""
    name = world.topology.name

    def once(number: int) -> None:
        path = (paths.packing_plan(name), paths.topology(name))[number % 2]
        node = _node(world, path)
        good = node.read_bytes()
        victim = world.named("tmaster")
        node.write_bytes(world.random.randbytes(len(good)))
        fault = world.kill(victim, wait=False)
        fault.disruptive = False
        try:
            world.until(lambda: _says(world, "tmaster", path), BACK_S, f"a line about {path} in the log of tmaster")
            if world.mode != EXACT:
                _flows(world, fault)
        finally:
            node.write_bytes(good)
        # A master that cannot read its plans is not restarted endlessly.
        world.heron("restart", world.topology.cluster.target, name, 0)
        world.back(victim, fault)
        world.until(lambda: world.topology.status(), BACK_S, "an answer of the topology master")
        world.until_checkpoint()

    repeat(world, runs, once)


def _says(world: World, process: str, words: str) -> bool:
    """Whether a process has logged this."""
    files = world.topology.cluster.home.glob(f"topologies/*/*/{world.topology.name}/log-files/{process}.log")
    return any(words in path.read_text(encoding="utf-8", errors="replace") for path in files)


def future_state(world: World, runs: int) -> None:
    """State written by a later version holds unknown fields: they are ignored, and kept."""
    state, name = world.topology.cluster.state, world.topology.name

    def once(number: int) -> None:
        for path in (paths.checkpoints(name), paths.packing_plan(name)):
            found = state.get(path)
            if found is not None and not found[0].endswith(UNKNOWN):
                state.set(path, found[0] + UNKNOWN)
        world.kill(world.named("tmaster")).disruptive = False
        if world.mode == EXACT:
            world.until_checkpoint()
            log = CheckpointLog.FromString(state.get(paths.checkpoints(name))[0])
            if UNKNOWN not in log.SerializeToString():
                raise VerifyError("the topology master has dropped a field of the checkpoint log that it does not know")

    repeat(world, runs, once)
