"""`heron checkpoints restore`: asks for the rewind of a running topology and waits for its end."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.cli import exits
from heronpy.cli.waiting import failed, poll
from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2 as control

if TYPE_CHECKING:
    from heronpy.cli.session import Session

ASK_S = 5.0
LOOK_S = 0.1


def _refuse_damaged(known: control.CheckpointsReply, checkpoint: int) -> None:
    """A rewind leaves the newer checkpoints behind, so look first whether this one is whole."""
    from heronpy.ckpt import catalogue

    for record in known.complete:
        if record.checkpoint == checkpoint:
            for found in catalogue.at_path(Path(record.location)):
                wrong = catalogue.missing_files(found)
                if wrong:
                    raise exits.Failure(f"{found.name} is damaged: {wrong[0]}; restore another one")


def rewind(session: Session, topology: str, checkpoint: int, timeout_s: float) -> str:
    """Restore every region; what was done, in one line. A Failure when it fails or is late."""
    deadline = time.monotonic() + timeout_s
    before: control.CheckpointsReply = session.ask(topology, control.GetCheckpoints(), ASK_S)
    _refuse_damaged(before, checkpoint)
    attempts = {tuple(region.components): region.attempt for region in before.regions}
    session.ask(topology, control.RestoreCheckpoint(checkpoint=checkpoint), min(timeout_s, 30.0))
    while True:
        with suppress(HeronError):  # the topology master may be restarted meanwhile
            reply: control.CheckpointsReply = session.ask(topology, control.GetCheckpoints(), ASK_S)
            if reply.regions and all(
                region.started and region.attempt > attempts.get(tuple(region.components), 0)
                for region in reply.regions
            ):
                numbers = sorted({region.checkpoint for region in reply.regions})
                told = ", ".join(f"checkpoint {number}" if number else "empty state" for number in numbers)
                return f"Topology '{topology}' goes on from {told}"
        status = poll(session, topology)
        if status is not None and failed(status):
            raise exits.Failure(f"topology '{topology}' failed while it was restored: {status.cause or 'see its logs'}")
        if time.monotonic() > deadline:
            raise exits.Failure(
                f"topology '{topology}' was not restored after {timeout_s:g} s;"
                f" see 'heron status {session.target} {topology}'",
                exits.TIMED_OUT,
            )
        time.sleep(LOOK_S)
