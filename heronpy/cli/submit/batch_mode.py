"""`heron submit --mode batch` and `--mode auto`: what the command says about the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from heronpy.batch.record import RunState
from heronpy.cli.look.batch_runs import print_stages
from heronpy.cli.output import command, say
from heronpy.clusters.session import Session
from heronpy.common.units import counted, format_bytes, format_duration
from heronpy.launching import on_batch
from heronpy.launching.model import Loaded
from heronpy.proto import topology_pb2


class BatchSubmit:
    """A submit that may begin a batch run."""

    def __init__(self, begun: on_batch.Begun, topology: topology_pb2.Topology, words: Sequence[str]) -> None:
        """`words`: the program and its arguments."""
        self._begun, self._topology, self._words = begun, topology, words

    @property
    def loaded(self) -> Loaded:
        """The topology to start."""
        return self._begun.loaded

    @property
    def is_batch(self) -> bool:
        """Whether there is a run."""
        return self._begun.run is not None

    def progress(self) -> str:
        """How far the run is, in a line."""
        assert self._begun.run is not None
        found = self._begun.run.progress
        now = next((one for one in found.stages if one.state == "running"), None)
        if now is None:
            return f"{counted(len(self._begun.stages), 'stage')}, none in work"
        least = "at least " if found.ends_at_least else ""
        ends = f", {least}{format_duration(round(found.ends_in_s))} left" if found.ends_in_s is not None else ""
        units = f"{now.done:,} of {now.units:,} units, {format_bytes(now.bytes_done)}"
        return f"stage {now.number} of {len(found.stages)} ({', '.join(now.components)}): {units}{ends}"

    def print_plan(self) -> None:
        """For a dry run: print the stages."""
        begun = self._begun
        if begun.why:
            say(f"mode: {'batch' if begun.stages or begun.units else 'stream'}, because {begun.why}")
        if begun.stages:
            print_stages(self._topology, begun.stages)

    def say_begun(self) -> None:
        """Say which run it is."""
        begun = self._begun
        if begun.why:
            say(f"  mode:   {'batch' if begun.run or begun.units else 'stream'}, because {begun.why}")
        if begun.units:
            say("  batch:  the bytes that the logs have now; what is done: heron units list")
        if begun.run is None:
            return
        record = begun.run.record
        what = "goes on" if begun.goes_on else f"takes the input of {record.like}" if record.like else ""
        counts = f"{counted(len(begun.stages), 'stage')}, {counted(begun.workers, 'worker')}"
        say(f"  batch:  run {record.number} of {record.topology}{f', which {what}' if what else ''}; {counts}")

    def say_ended(self, session: Session) -> None:
        """Say what the run has left."""
        if self._begun.run is None:
            return
        record = self._begun.run.record
        took = format_duration((record.ended_at or record.submitted_at) - record.submitted_at)
        said = [f"batch run {record.number} of {record.topology}", record.boundary]
        say(": ".join(part for part in said if part))
        keys = f": {record.keys:,} keys" if record.keys else ""
        if record.state is RunState.HELD:
            say(f"finished in {took}{keys}; nothing is published; to compare it: heron compare RUN {record.run}")
        elif record.savepoint:
            live = command("heron", "submit", session.target, *self._words, "--restore", "latest")
            say(f"finished in {took}{keys}; to go on live: {live}")
        else:
            say(f"finished in {took}{keys}")


@contextmanager
def begun(
    session: Session, loaded: Loaded, words: Sequence[str], mode: str, like: str, **flags: bool
) -> Iterator[BatchSubmit]:
    """The topology to start; when the block fails, no new run stays behind. `flags`: the others of on_batch.Flags."""
    with on_batch.begun(session, loaded, on_batch.Flags(mode, like, **flags)) as found:
        yield BatchSubmit(found, loaded.topology, words)
