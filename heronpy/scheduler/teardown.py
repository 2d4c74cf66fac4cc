"""Removes the nodes of a topology from the state manager, and the folder of its sockets.

Remove a topology only when it has no processes left. The execution state is removed last, so the name stays taken
until then: a half-removed topology is never visible, and its name cannot be submitted again.

Before the removal, the content of the nodes is written to a file in the topology's working folder. The file later shows
how the topology ended. Old files are removed (see `outdated`). If the file cannot be written, the topology is removed
anyway.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from heronpy.common.errors import ConfigError, HeronError, NoNodeError
from heronpy.common.folders import make_folders, open_private, read_own
from heronpy.proto import components_of, control_pb2, plan_pb2
from heronpy.statemgr import paths
from heronpy.statemgr.base import MAX_BYTES, StateManager

log = logging.getLogger("heronpy.scheduler")

#: The folder of ended runs, below the working folder.
ENDED = "ended"
#: How long a file is kept; the maximum bytes of a cluster's files on this host; and the number of newest files of each
#: name that are kept even longer.
KEPT_S, KEPT_BYTES, ENDED_MAX = 7 * 24 * 3600.0, 1 << 30, 5
#: The reason in the event that records a failure.
FAILED = "failed"
SPARK_MAX_BYTES = 1 << 20

M = TypeVar("M", bound=Message)


def _copy(state: StateManager, path: str, into: M) -> bool:
    """Fill a message from a node; returns False if the node is missing or damaged."""
    found = state.get(path)
    if found is None or not found[0]:
        return False
    whole = type(into)()
    try:
        whole.ParseFromString(found[0])
    except DecodeError:
        return False
    into.CopyFrom(whole)
    return True


class KeptFile(NamedTuple):
    """The file with the records of an ended topology."""

    written_at: float
    bytes: int
    path: Path


def outdated(files: Iterable[KeptFile], now: float) -> list[KeptFile]:
    """The files to remove: too old and not among a topology's newest `ENDED_MAX`, or beyond the size limit."""
    old, size, newer = [], 0, Counter[Path]()
    for file in sorted(files, reverse=True):
        size += file.bytes
        newer[file.path.parent] += 1
        if size > KEPT_BYTES or (now - file.written_at > KEPT_S and newer[file.path.parent] > ENDED_MAX):
            old.append(file)
            size -= file.bytes
    return old


def known_of(state: StateManager, topology: str) -> control_pb2.EndedTopology | None:
    """The records of a topology in the state manager; None if the topology has not run."""
    kept = control_pb2.EndedTopology(ended_at=time.time())
    if not _copy(state, paths.execution_state(topology), kept.record):
        return None
    ran = _copy(state, paths.physical_plan(topology), kept.physical)
    ran = _copy(state, paths.events(topology), kept.events) or ran
    _copy(state, paths.topology(topology), kept.topology)
    _copy(state, paths.packing_plan(topology), kept.packing)
    _copy(state, paths.totals(topology), kept.totals)
    _copy(state, paths.minutes(topology), kept.minutes)
    if _copy(state, paths.last_answers(topology), kept.last) and kept.last.topology_id != kept.record.topology_id:
        kept.ClearField("last")  # it belongs to an earlier topology with this name
    submitted = state.get(paths.launch(topology))
    if submitted is not None:
        kept.launch = submitted[0]
    kept.physical.ClearField("topology")
    for part in components_of(kept.topology).values():
        part.comp.ClearField("serialized_object")
    return kept if ran else None


def _take_spark(kept: control_pb2.EndedTopology) -> None:
    """Add the last report of the Spark gateway (`heronpy.spark.gateway.LAST_REPORT`), and remove its file."""
    path = Path(kept.record.working_dir, "spark", f".last-{kept.record.topology_id}")
    with contextlib.suppress(OSError, ConfigError, DecodeError):
        kept.spark.ParseFromString(read_own(path, SPARK_MAX_BYTES))
        path.unlink()


def keep_ended(state: StateManager, topology: str) -> None:
    """Save the records of a topology in its working folder before its removal; never raises."""
    try:
        kept = known_of(state, topology)
        if kept is None:
            return
        _take_spark(kept)
        _take_failure(kept)
        _write(kept)
    except (HeronError, OSError) as error:
        log.warning("cannot save the records of %s: %s", topology, error)


def keep_failure(record: plan_pb2.ExecutionState, why: str) -> None:
    """Save why a topology could not be submitted, before `keep_ended` adds the other records; never raises."""
    now = time.time()
    kept = control_pb2.EndedTopology(record=record, ended_at=now)
    kept.events.topology_id = record.topology_id
    kept.events.events.add(
        number=1, at=now, first_at=now, times=1, kind=control_pb2.EVENT_LIFE, reason=FAILED, warning=True,
        text=f"{record.topology} is FAILED: {why}",
    )  # fmt: skip
    try:
        _write(kept)
    except (HeronError, OSError) as error:
        log.warning("cannot save the reason why %s has failed: %s", record.topology, error)


def last_life(kept: control_pb2.EndedTopology) -> control_pb2.TopologyEvent:
    """The last life-cycle event of a topology; an empty event if there is none."""
    lives = (one for one in reversed(kept.events.events) if one.kind == control_pb2.EVENT_LIFE)
    return next(lives, control_pb2.TopologyEvent())


def _take_failure(kept: control_pb2.EndedTopology) -> None:
    """Add the failure that `keep_failure` wrote, unless the topology master has reported one."""
    with contextlib.suppress(OSError, ConfigError, DecodeError):
        path = Path(kept.record.working_dir) / ENDED / kept.record.topology_id
        known = control_pb2.EndedTopology.FromString(read_own(path, MAX_BYTES))
        if last_life(kept).reason != FAILED:
            for one in known.events.events:
                kept.events.last += 1
                one.number = kept.events.last
                kept.events.events.append(one)


def _write(kept: control_pb2.EndedTopology) -> None:
    if not os.path.isdir(kept.record.working_dir) or "/" in kept.record.topology_id:
        return
    folder = Path(kept.record.working_dir) / ENDED
    make_folders(folder)
    partial = folder / f".{kept.record.topology_id}"
    with open(open_private(partial, os.O_WRONLY | os.O_TRUNC), "wb") as file:
        file.write(kept.SerializeToString())
    os.replace(partial, folder / kept.record.topology_id)
    cluster = Path(kept.record.working_dir).parents[1]
    for old in outdated(_kept_files(cluster.glob(f"*/*/{ENDED}/*")), time.time()):
        with contextlib.suppress(FileNotFoundError):
            old.path.unlink()


def _kept_files(paths: Iterable[Path]) -> Iterable[KeptFile]:
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.lstat()
            yield KeptFile(status.st_mtime, status.st_size, path)


def remove_state(state: StateManager, topology: str) -> None:
    """Delete every node of the topology, after `keep_ended`."""
    keep_ended(state, topology)
    nodes = [
        *paths.of_master(topology),  # the checkpoints themselves stay
        paths.launch(topology),
        *(paths.epoch(topology, what) for what in state.children(paths.epochs(topology))),
        paths.ephemerals(topology),
        paths.scheduler(topology),
        paths.placement(topology),
        paths.submission(topology),
        paths.execution_state(topology),
    ]
    for node in nodes:
        try:
            state.delete(node)
        except NoNodeError:
            continue


def remove_sockets(folder: str) -> None:
    """Delete the folder of the sockets, if it looks like one of heronpy's folders."""
    parent = os.path.basename(os.path.dirname(os.path.normpath(folder)))
    if parent == f"heron-{os.getuid()}":
        shutil.rmtree(folder, ignore_errors=True)
        return
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.startswith(("executor-", "stmgr-", "scheduler", "spark-gateway", "tmaster")):
            os.unlink(os.path.join(folder, name))
