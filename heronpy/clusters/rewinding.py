"""Previews and requests the rewind of a running topology, and waits until the rewind has ended."""

from __future__ import annotations

import time

from heronpy.ckpt import catalogue
from heronpy.clusters.checkpoint_log import newest_whole
from heronpy.clusters.errors import ClusterError, NotThereError, RequestError
from heronpy.clusters.session import Session
from heronpy.common.errors import DeadlineError, HeronError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.common.states import has_failed
from heronpy.common.units import counted, format_duration, listed
from heronpy.proto import checkpoint_pb2, control_pb2

ASK_S = 5.0
LOOK_S = 0.1


def _check(session: Session, topology: str, known: control_pb2.CheckpointsReply, checkpoint: int) -> None:
    """Check that a checkpoint is intact and fits the plan before the rewind abandons newer checkpoints."""
    packing = session.packing_plan(topology)
    groups = settings_for(session.settings_of(session.find(topology)), CheckpointSettings).key_groups
    for record in known.complete:
        wrong = catalogue.misfits(record.location, packing, groups) if record.checkpoint == checkpoint else []
        if wrong:
            raise ClusterError("; ".join(wrong))


def preview(session: Session, topology: str, checkpoint: int) -> tuple[int, list[str]]:
    """The checkpoint from which a rewind would start (0 for empty state), and sentences on the consequences.

    Raises RequestError for an unknown checkpoint, and ClusterError if it does not fit the plan.
    """
    session.find(topology)
    session.check_changes(topology)  # before a user is asked to confirm it
    known = session.ask(topology, control_pb2.GetCheckpoints(), ASK_S)
    whole = {record.checkpoint: record for record in known.complete if not record.damaged}
    if checkpoint and checkpoint not in whole:
        there = ", ".join(str(one) for one in sorted(whole, reverse=True)[:10]) or "none"
        raise RequestError(f"'{topology}' has no intact checkpoint {checkpoint}; there are: {there}")
    newest = newest_whole(known.complete)
    start = whole[checkpoint] if checkpoint else newest
    if start is not None:
        _check(session, topology, known, start.checkpoint)
    return (start.checkpoint if start else 0), consequences(session.status(topology), known, start, time.time())


def consequences(
    status: control_pb2.StatusReply,
    known: control_pb2.CheckpointsReply,
    start: checkpoint_pb2.CheckpointRecord | None,
    now: float,
) -> list[str]:
    """Sentences about the consequences of a rewind: what it undoes, what it repeats, and what may count twice."""
    spouts = [spout.comp.name for spout in status.plan.topology.spouts]
    fixed = {task.component for task in status.tasks if task.component in spouts and not task.rewinds}
    since = f"the last {format_duration(max(now - start.taken_at, 0.0))}" if start is not None else "the entire run"
    found = [f"{counted(len(status.tasks), 'task')} restart with their state at that time"]
    if fixed != set(spouts):
        found.append(
            f"the input of {since} is processed again; it counts once in states and in the output that sinks publish"
            " with checkpoints"
        )
    for name in (name for name in spouts if name in fixed):
        found.append(
            f"spout {name} keeps no position and cannot be rewound: tuples that it emits again may be counted twice,"
            " and other tuples are lost"
        )
    found.append(f"other effects of user code in {since}, such as requests and log lines, happen again")
    newer = [
        one.checkpoint for one in known.complete if start and one.checkpoint > start.checkpoint and not one.abandoned
    ]
    if newer:
        named = listed([str(one) for one in sorted(newer)])
        found.append(f"newer checkpoints are abandoned: {named}")
    return found


def rewind(session: Session, topology: str, checkpoint: int, timeout_s: float) -> str:
    """Restore every region; return the result in one line. Raises ClusterError if a restore fails or takes too long."""
    deadline = time.monotonic() + timeout_s
    session.check_changes(topology)
    before = session.ask(topology, control_pb2.GetCheckpoints(), ASK_S)
    _check(session, topology, before, checkpoint)
    attempts = {tuple(region.components): region.attempt for region in before.regions}
    session.ask(topology, control_pb2.RestoreCheckpoint(checkpoint=checkpoint), min(timeout_s, 30.0))
    while True:
        reply = _checkpoints(session, topology)
        if (
            reply is not None
            and reply.regions
            and all(
                region.started and region.attempt > attempts.get(tuple(region.components), 0)
                for region in reply.regions
            )
        ):
            numbers = sorted({region.checkpoint for region in reply.regions})
            told = ", ".join(f"checkpoint {number}" if number else "empty state" for number in numbers)
            return f"Topology '{topology}' has resumed from {told}"
        status = session.poll(topology)
        if status is not None and has_failed(status):
            raise ClusterError(f"topology '{topology}' failed while being restored: {status.cause or 'see its logs'}")
        if time.monotonic() > deadline:
            raise DeadlineError(
                f"topology '{topology}' was not restored within {timeout_s:g} s;"
                f" see 'heron status {session.target} {topology}'"
            )
        time.sleep(LOOK_S)


def _checkpoints(session: Session, topology: str) -> control_pb2.CheckpointsReply | None:
    """The checkpoints; None while the topology master is restarting. Raises NotThereError if the topology is gone."""
    try:
        return session.ask(topology, control_pb2.GetCheckpoints(), ASK_S)
    except NotThereError:
        raise
    except HeronError:
        return None
