"""`heron submit --mode batch` and `--mode auto`: the command's output about the run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from heronpy.batch.record import RunState
from heronpy.batch.topology import KEEPER
from heronpy.cli.look.batch_runs import print_stages
from heronpy.cli.output import clean, command, say, warning
from heronpy.cli.submit.waiting import TopologyFailed, user_errors
from heronpy.clusters.session import Session
from heronpy.common.units import counted, format_bytes, format_duration
from heronpy.launching import on_batch
from heronpy.launching.model import Loaded
from heronpy.proto import control_pb2, topology_pb2
from heronpy.views.progress import WRITING, ends_in, in_work

#: A keeper in one of these states has no more work.
_TIDY: Final = frozenset((control_pb2.TASK_EXHAUSTED, control_pb2.TASK_FINISHED))
#: How long to wait for workers after their keeper has ended. A worker halted by SIGSTOP ends only later, when it counts
#: as hung.
_WORKERS_S: Final = 2.0


class BatchSubmit:
    """A submission that may begin a batch run."""

    def __init__(self, begun: on_batch.Begun, topology: topology_pb2.Topology, words: Sequence[str]) -> None:
        """`words` are the program and its arguments."""
        self._begun, self._topology, self._words = begun, topology, words
        self._over_at = math.inf

    @property
    def loaded(self) -> Loaded:
        """The topology to start."""
        return self._begun.loaded

    @property
    def is_batch(self) -> bool:
        """Whether this submission begins or continues a batch run."""
        return self._begun.run is not None

    def progress(self) -> str:
        """Return the progress of the run in one line."""
        assert self._begun.run is not None
        if waits_for := self._begun.run.waits_for:
            return clean(waits_for)
        found = self._begun.run.progress
        now = next((one for one in found.stages if one.state == "running"), None)
        failed = next((one for one in found.stages if one.state == "failed"), None)
        if failed is not None:
            return f"stage {failed.number} of {len(found.stages)} ({', '.join(failed.components)}) has failed"
        if now is None:
            is_done = bool(found.stages) and all(one.state == "finished" for one in found.stages)
            return f"{counted(len(self._begun.stages), 'stage')}, {'all done' if is_done else 'none in progress'}"
        told = ends_in(found)
        ends = f", {told}{'' if told == WRITING else ' left'}" if told else ""
        units = f"{now.done:,} of {now.units:,} units{in_work(now)}, {format_bytes(now.bytes_done)}"
        return f"stage {now.number} of {len(found.stages)} ({', '.join(now.components)}): {units}{ends}"

    def is_done(self, status: control_pb2.StatusReply) -> bool:
        """Whether the run and a keeper finished at least `_WORKERS_S` ago; a worker may still be running."""
        keepers = [task.state for task in status.tasks if task.component == KEEPER]
        assert self._begun.run is not None
        if _TIDY.isdisjoint(keepers) or not self._begun.run.record.has_ended:
            return False
        self._over_at = min(self._over_at, time.monotonic())
        return time.monotonic() - self._over_at >= _WORKERS_S

    def print_plan(self) -> None:
        """Print the stages, for a dry run."""
        begun = self._begun
        if begun.why:
            say(f"mode: {'batch' if begun.stages or begun.units else 'stream'}, because {begun.why}")
        if begun.stages:
            print_stages(self._topology, begun.stages)

    def say_begun(self) -> None:
        """Print the name of the run."""
        begun = self._begun
        if begun.why:
            say(f"  mode:   {'batch' if begun.run or begun.units else 'stream'}, because {begun.why}")
        if begun.units:
            say("  batch:  the bytes that the logs contain now; progress: heron units list")
        if begun.run is None:
            return
        record = begun.run.record
        what = "continues" if begun.goes_on else f"reads the input of {record.like}" if record.like else ""
        counts = f"{counted(len(begun.stages), 'stage')}, {counted(begun.workers, 'worker')}"
        say(f"  batch:  run {record.number} of {record.topology}{f', which {what}' if what else ''}; {counts}")

    def failure(self, session: Session, found: TopologyFailed) -> TopologyFailed:
        """Return the failure to print; if the run has failed, with the cause and each error of user code once."""
        record = self._begun.run.record if self._begun.run is not None else None
        if record is None or record.state is not RunState.FAILED:
            return found
        cause = f"{record.cause}; {record.cure}" if record.cure else record.cause
        return TopologyFailed(
            f"batch run {record.run} is FAILED: {clean(cause)}", found.status, user_errors(session, record.topology)
        )

    def say_ended(self, session: Session) -> None:
        """Print the results of the run."""
        if self._begun.run is None:
            return
        record = self._begun.run.record
        took = format_duration((record.ended_at or record.submitted_at) - record.submitted_at)
        said = [f"batch run {record.number} of {record.topology}", record.boundary]
        say(": ".join(part for part in said if part))
        keys = f": {counted(record.keys, 'key')}" if record.keys else ""
        if record.state is RunState.HELD:
            other = record.like or "RUN"
            say(f"finished in {took}{keys}; nothing is published; to compare it: heron compare {other} {record.run}")
        elif record.savepoint:
            live = command("heron", "submit", session.target, *self._words, "--restore", "latest")
            say(f"finished in {took}{keys}; to continue as a stream: {live}")
        else:
            say(f"finished in {took}{keys}")


@contextmanager
def begun(
    session: Session, loaded: Loaded, words: Sequence[str], mode: str, like: str, **flags: bool
) -> Iterator[BatchSubmit]:
    """Yield the topology to start; a new run is removed if the block fails. `flags` are passed to `on_batch.Flags`."""
    with on_batch.begun(
        session, loaded, on_batch.Flags(mode, like, **flags), lambda text: warning(clean(text))
    ) as found:
        yield BatchSubmit(found, loaded.topology, words)
