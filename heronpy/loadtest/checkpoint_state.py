"""Measures the cost of checkpoints of large state: the time for which a task is blocked, and the uploaded bytes.

The test fills one task's keyed state, then captures it as an instance does. The capture and the fork of the
writing child block the task; the child encodes and writes while the task continues. Three checkpoints after
changes of 1 % follow, with a savepoint between them. No other process takes part.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from heronpy.ckpt.snapshot import TaskState
from heronpy.common.errors import HeronError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.units import format_bytes
from heronpy.loadtest.checks import Check
from heronpy.loadtest.run import Say, repeated, run_of
from heronpy.proto.checkpoint_pb2 import CHECKPOINT, SAVEPOINT, Kind, Metadata, TaskSnapshot
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.locations import location_of
from heronpy.storage.stores import Stores

#: Limits: blocking of a task with a million keys, and upload after a change of 1 %.
PAUSE_MAX_S, UPLOAD_MAX = 0.05, 0.03
_COMPONENT: Final = "state"


@dataclass(frozen=True, slots=True)
class Measured:
    pause_s: float
    pause_cpu_s: float
    """CPU time of the task during the pause. On a busy machine, other processes lengthen the pause."""
    write_s: float
    uploaded: int
    total: int
    segments: int


def run_checkpoint_state(keys: int, value_bytes: int, folder: Path | None, repeat: int, say: Say) -> dict[str, Any]:
    """Measure checkpoints of one task's keyed state; return the result document."""

    def once(number: int, begin: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="heron-checkpoint-", dir=folder, ignore_cleanup_errors=True) as where:
            values, checks = _once(keys, value_bytes, Path(where))
        say(
            f"{begin}{keys:,} keys, {format_bytes(int(values['state_bytes']))};"
            f" task blocked for {values['full_pause_s'] * 1000:.1f} ms (all keys),"
            f" {values['delta_pause_s'] * 1000:.1f} ms (1 % of keys);"
            f" uploaded {format_bytes(int(values['full_bytes']))} and {format_bytes(int(values['delta_bytes']))}"
        )
        return run_of(values, checks)

    return repeated(
        once,
        repeat,
        profile="checkpoint",
        about=f"checkpoints of a task with {keys:,} keys of {value_bytes:,} bytes",
        unit="keys",
        options={"keys": keys, "value_bytes": value_bytes},
    )


def _once(keys: int, value_bytes: int, folder: Path) -> tuple[dict[str, float], list[Check]]:
    settings = CheckpointSettings()
    store = CheckpointStore(folder / "state")
    task = TaskState(_COMPONENT, 0, 1, settings, Stores(store), task_id=1)
    state = task.keyed("values")
    chooser = random.Random(1)
    for key in range(keys):
        state[key] = chooser.randbytes(value_bytes)
    full = checkpoint(task, 1)
    deltas = []
    changed = max(1, keys // 100)
    for number, kind in ((2, CHECKPOINT), (3, SAVEPOINT), (4, CHECKPOINT)):
        for key in chooser.sample(range(keys), changed):
            state[key] = chooser.randbytes(value_bytes)
        deltas.append(checkpoint(task, number, kind))
    began = time.perf_counter()
    again = TaskState(_COMPONENT, 0, 1, settings, Stores(store), task_id=1)
    again.restore(location_of(store.folder, 4), 2)
    restore_s = time.perf_counter() - began
    whole = again.keyed("values") == state
    values = {
        "full_pause_s": full.pause_s,
        "delta_pause_s": max(delta.pause_s for delta in deltas),
        "pause_cpu_s": max(one.pause_cpu_s for one in (full, *deltas)),
        "full_write_s": full.write_s,
        "delta_write_s": max(delta.write_s for delta in deltas),
        "restore_s": restore_s,
        "state_bytes": float(full.total),
        "full_bytes": float(full.uploaded),
        "delta_bytes": float(max(delta.uploaded for delta in deltas)),
        "segments": float(deltas[-1].segments),
    }
    return values, _checks(keys, values, deltas, whole)


def _checks(keys: int, values: dict[str, float], deltas: list[Measured], whole: bool) -> list[Check]:
    part = values["delta_bytes"] / values["state_bytes"]
    around = (deltas[0].uploaded + deltas[2].uploaded) / 2
    after = deltas[2].uploaded / deltas[0].uploaded
    pause, cpu = max(values["full_pause_s"], values["delta_pause_s"]), values["pause_cpu_s"]
    limit = PAUSE_MAX_S * max(1.0, keys / 1e6)
    took = f"a checkpoint took {cpu * 1000:.1f} ms of the task's CPU time, limit {limit * 1000:g} ms"
    savepoint, others = format_bytes(deltas[1].uploaded), format_bytes(int(around))
    text = f"the savepoint uploaded {savepoint}, the checkpoints before and after it {others} on average"
    return [
        Check("pause", cpu < limit, f"{took}; the task was blocked for at most {pause * 1000:.1f} ms"),
        Check("upload", part <= UPLOAD_MAX, f"a 1 % change uploaded {part:.2%} of the state, limit {UPLOAD_MAX:.0%}"),
        Check("savepoint", 0.9 <= after <= 1.1, text),
        Check("exact", whole, "restored state is identical" if whole else "restored state differs"),
    ]


def checkpoint(task: TaskState, number: int, kind: Kind = CHECKPOINT) -> Measured:
    """Take a checkpoint of one task, written by a forked child as in an instance."""
    read, write = os.pipe()
    parent = os.getpid()
    # Collect garbage first, because garbage collection is not a cost of the checkpoint.
    gc.collect()
    began, began_cpu = time.perf_counter(), time.thread_time()
    capture = task.capture(number)
    child = os.fork()
    if not child:
        _write_and_leave(capture, write, parent)
    capture.forked()
    pause_s, pause_cpu_s = time.perf_counter() - began, time.thread_time() - began_cpu
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    status = os.waitpid(child, 0)[1]
    if status or not data:
        raise HeronError(f"the process that wrote checkpoint {number} failed; see its output")
    snapshot = TaskSnapshot.FromString(data)
    metadata = Metadata(version=1, checkpoint=number, kind=kind, key_groups=task.settings.key_groups, tasks=[snapshot])
    metadata.parallelism[task.component] = 1
    metadata.topology = metadata.topology_id = task.store.folder.name
    task.store.write_metadata(metadata)
    task.persisted(number, snapshot)
    task.completed(number)
    segments = sum(len(keyed.segments) for keyed in snapshot.keyed)
    write_s = time.perf_counter() - began
    return Measured(pause_s, pause_cpu_s, write_s, snapshot.uploaded_bytes, snapshot.total_bytes, segments)


def _write_and_leave(capture: Any, pipe: int, parent: int) -> None:
    """Write the checkpoint in the child and exit; never returns."""
    status = 1
    try:
        gc.disable()
        data = memoryview(capture.persist().SerializeToString())
        while data and os.getppid() == parent:
            data = data[os.write(pipe, data) :]
        status = 0
    except BaseException as error:
        with contextlib.suppress(OSError):
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)
