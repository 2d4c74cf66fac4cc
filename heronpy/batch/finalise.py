"""Ends a run: publishes the rows, writes the savepoint, then updates the record. Each step may be repeated."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from heronpy.api.spout.split_spout import SplitSpout, done_state, split_of
from heronpy.api.state.keyed_state import PartitionOwner
from heronpy.batch import exchange
from heronpy.batch.record import RunRecord, RunState
from heronpy.batch.rows import sinks_of
from heronpy.batch.stages import Stage
from heronpy.batch.steps import Steps, files_of
from heronpy.batch.topology import KEEPER
from heronpy.ckpt.state_bytes import BASE, encode_plain, encode_segments
from heronpy.common.errors import ConfigError, GaveUpError, HeronError
from heronpy.common.flock import try_flock
from heronpy.common.folders import open_private
from heronpy.common.version import VERSION
from heronpy.connectors.durable_files import run_token
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.connectors.unit_output import UnitOutput
from heronpy.ingest.boundary import followed_state, read_state
from heronpy.ingest.options import SEPARATOR, logs_at
from heronpy.plan.component_config import component_config, parallelism_of
from heronpy.proto import components_of
from heronpy.proto.checkpoint_pb2 import SAVEPOINT, KeyedState, Metadata, TaskSnapshot
from heronpy.storage.checkpoint_files import StoreError
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.locations import location_of, open_store
from heronpy.storage.objects.url import Place, place_of
from heronpy.wire.codec import freeze

#: The number of a run's only checkpoint.
NUMBER = 1
_VERSION = 1
#: Interval in seconds at which a keeper checks whether another keeper has ended the run.
LOCK_S = 0.1


def finalise(steps: Steps, wait: Callable[[float], None] = time.sleep) -> None:
    """End a run after its last stage. `wait(seconds)` is called while another process is ending the run."""
    with _one_at_a_time(steps, wait):
        try:
            _end(steps, wait)
        except (HeronError, OSError):
            # Another host may have ended the run, and removed files that this host was reading.
            if not steps.run.record.has_ended:
                raise


def _end(steps: Steps, wait: Callable[[float], None]) -> None:
    record = steps.run.record
    if record.has_ended:
        return
    if record.state is RunState.FAILED:
        raise GaveUpError(record.cause)  # an earlier keeper found the cause
    snapshots = Snapshots(steps) if record.saves and not record.hold else None
    if not record.hold:
        record = replace(record, sinks=publish(steps, wait))
    if snapshots is not None:
        record = replace(record, savepoint=snapshots.complete(), keys=snapshots.keys)
    state = RunState.HELD if record.hold else RunState.FINISHED
    boundary = steps.prepared.boundary
    steps.run.write(replace(record, state=state, ended_at=time.time(), boundary=boundary))


@contextmanager
def _one_at_a_time(steps: Steps, wait: Callable[[float], None]) -> Iterator[None]:
    """Allow only one keeper on this host to end the run. Keepers on two hosts may still end the run concurrently."""
    descriptor = open_private(steps.run.folder / "finalise.lock", os.O_RDWR)
    try:
        while not try_flock(descriptor):
            wait(LOCK_S)
        yield
    finally:
        os.close(descriptor)


def drop_files(steps: Steps) -> None:
    """Remove files that only the stages read. The rows of sinks are kept for comparisons.

    Call this only after the end of the last stage is recorded, because until then a new keeper reads these files.
    """
    for stage in steps.stages:
        for path in steps.run.table(stage.number).glob("unit=*/*"):
            if path.name.startswith(("to-", "state-")):
                path.unlink(missing_ok=True)


def publish(steps: Steps, wait: Callable[[float], None]) -> dict[str, str]:
    """Publish the rows of the winning attempts to the sinks; return the folder of each sink.

    Spark comes first, because Spark runs user code: if the user code fails, nothing is published.
    """
    record, folders, for_spark = steps.run.record, dict[str, str](), dict[str, Any]()
    later: list[tuple[UnitOutput, list[Path]]] = []
    for stage in steps.stages:
        units = exchange.unit_folders(steps.run.table(stage.number))
        for name, output in sinks_of(steps.topology, stage, steps.launch).items():
            if isinstance(output, UnitOutput):
                later.append((output, units))
                folders[name] = output.place
            else:
                for_spark[name] = output.options, [file for _, file in output.staged(units)]
    if for_spark:
        from heronpy.connectors.spark.run_end import SinkRows, hand_over  # only if there is such a sink

        given = {name: SinkRows(*one) for name, one in for_spark.items()}
        folders |= hand_over(steps.run.folder, record.id, steps.launch, KEEPER, given, wait)
    for output, units in later:
        try:
            output.publish(record.id, units)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"sink '{output.component}' cannot write its rows to {output.place} ({why})") from error
    return folders


def savepoint_folder(record: RunRecord) -> Place:
    """Return the folder that contains only the savepoint of a run."""
    return place_of(record.savepoints) / f"{record.topology}-batch-{record.number}-{run_token(record.id)}"


class Snapshots:
    """The savepoint of a run. Files are copied first; the savepoint exists once `complete` has written the metadata.

    Memory contains the indices and names of the files, and one chunk at a time. A component that has only keyed state
    is saved as one task, so that the state can be restored with any parallelism. A component with a plain State is
    saved with the topology's number of tasks.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._record = steps.run.record
        self._store: CheckpointStore = open_store(savepoint_folder(self._record))
        self._parts = components_of(steps.topology)
        self._tasks: dict[tuple[str, int], TaskSnapshot] = {}
        self.keys = 0
        self._parallelism = dict.fromkeys(self._parts, 1)
        if self._store.is_complete(NUMBER):
            tasks = self._store.load_metadata(NUMBER).tasks
            placed = {stage.spout for stage in steps.stages if stage.source in ("lines", "splits")}
            self.keys = sum(keyed.keys for one in tasks if one.component not in placed for keyed in one.keyed)
            return
        for stage in steps.stages:
            self._add_pieces(stage)
            if stage.spout:
                self._add_positions(stage)

    def complete(self) -> str:
        """Write the metadata; return the location of the savepoint."""
        metadata = Metadata(
            version=_VERSION,
            checkpoint=NUMBER,
            kind=SAVEPOINT,
            topology=self._record.topology,
            topology_id=self._store.folder.name,
            taken_at=time.time(),
            key_groups=self._record.key_groups,
            release=VERSION,
        )
        number = 0
        for component, tasks in self._parallelism.items():
            metadata.parallelism[component] = tasks
            for index in range(tasks):
                number += 1
                snapshot = self._task(component, index)
                snapshot.task_id = number
                metadata.tasks.append(snapshot)
        if not self._store.is_complete(NUMBER):
            try:
                self._store.write_metadata(metadata)
            except StoreError:
                if not self._store.is_complete(NUMBER):  # otherwise another host was first
                    raise
        return location_of(self._store.folder, NUMBER)

    def _task(self, component: str, index: int) -> TaskSnapshot:
        new = TaskSnapshot(component=component, component_index=index)
        return self._tasks.setdefault((component, index), new)

    def _add_pieces(self, stage: Stage) -> None:
        """Add the state that the units of a stage have saved, which may be larger than memory."""
        tasks = self._steps.buckets[stage.number]
        # A component with a plain State has its declared number of tasks.
        plain = {
            name for name in stage.components if stage.tasks and "StatefulComponent" in self._parts[name].comp.traits
        }
        self._parallelism.update(dict.fromkeys(plain, tasks))
        for piece in exchange.states(self._steps.run.folder, stage, tasks):
            task = self._task(piece.component, piece.component_index if piece.component in plain else 0)
            if piece.state_inline:
                task.stateful = True
                self._put(task.state_file, task, piece.state_inline)
            for found in piece.keyed:
                keyed = _named(task, found.name, found.partitioned)
                for segment in found.segments:
                    kept = keyed.segments.add()
                    kept.entries, kept.first_group = segment.entries, segment.first_group
                    kept.last_group = segment.last_group
                    self._put(kept.file, task, segment.inline)
                    keyed.keys += segment.entries
                    self.keys += segment.entries

    def _put(self, reference: Any, task: TaskSnapshot, data: bytes) -> None:
        reference.CopyFrom(self._store.put_shared(NUMBER, data))
        task.total_bytes += len(data)
        task.uploaded_bytes += len(data)

    def _add_positions(self, stage: Stage) -> None:
        """Add the position from which a stage's spout continues as a stream."""
        spout, steps = stage.spout, self._steps
        config = component_config(steps.topology, spout, load=True)
        if stage.source == "lines":
            text = steps.text_of(stage)
            root, files = logs_at(SEPARATOR.join(text.paths), "").root, files_of(steps.run, stage)
            if text.follow:
                content = followed_state(files, root, text.skip_header)
                self._add_partitioned(spout, TextFileSpout.FOLLOWED, content)
            else:
                self._add_partitioned(spout, TextFileSpout.LANES, read_state(files, root, text.block_bytes))
        elif stage.source == "splits":
            with open(steps.run.list_file(stage.number), encoding="utf-8") as file:
                splits = [split_of(line) for line in file]
            made = steps.spout_of(stage)
            tasks = parallelism_of(config, spout)
            try:
                states = [made.follow_state(splits, index, tasks) for index in range(tasks)]
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
                raise ConfigError(f"follow_state() of spout '{spout}' raised {told}") from error
            if not any(states):
                self._add_partitioned(spout, SplitSpout.STATE, done_state(splits))
                return
            self._parallelism[spout] = tasks
            for index, state in enumerate(states):
                task = self._task(spout, index)
                task.stateful = True
                self._put(task.state_file, task, encode_plain(state, True, spout))

    def _add_partitioned(self, component: str, name: str, content: Mapping[Any, Any]) -> None:
        task = self._task(component, 0)
        keyed = _named(task, name, True)
        keys = list(content)
        group_of = PartitionOwner(component, lambda: (0, 1)).group_of
        for part in encode_segments(BASE, keys, group_of, lambda key: (freeze(content[key], True), 0.0)):
            segment = keyed.segments.add(entries=part.entries, first_group=part.first_group, last_group=part.last_group)
            self._put(segment.file, task, part.data)
            keyed.keys += part.entries


def _named(task: TaskSnapshot, name: str, partitioned: bool) -> KeyedState:
    """Return the record of a task's keyed state; create the record if it is missing."""
    for keyed in task.keyed:
        if keyed.name == name:
            return keyed
    return task.keyed.add(name=name, partitioned=partitioned)
