"""`heron submit --mode batch` and `--mode auto`: what the command says about the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from heronpy.batch.record import RunState
from heronpy.cli.look.batch_runs import print_stages
from heronpy.cli.output import command, say
from heronpy.clusters.session import Session
from heronpy.common.units import counted, format_duration
from heronpy.launching import on_batch
from heronpy.launching.model import Loaded
from heronpy.proto import topology_pb2


class ModeFlags(Protocol):
    """The flags of a submit that are about modes."""

    program: str
    words: tuple[str, ...]
    mode: str
    like: str
    hold: bool
    resume: bool
    fresh: bool
    dry_run_format: str | None


class BatchSubmit:
    """A submit that may begin a batch run."""

    def __init__(self, begun: on_batch.Begun, topology: topology_pb2.Topology) -> None:
        self._begun, self._topology = begun, topology

    @property
    def loaded(self) -> Loaded:
        """The topology to start."""
        return self._begun.loaded

    def print_plan(self) -> None:
        """For a dry run: print the stages."""
        begun = self._begun
        if begun.why:
            say(f"mode: {'batch' if begun.stages else 'stream'}, because {begun.why}")
        if begun.stages:
            print_stages(self._topology, begun.stages)

    def say_begun(self) -> None:
        """Say which run it is."""
        begun = self._begun
        if begun.why:
            say(f"  mode:   {'stream' if begun.run is None else 'batch'}, because {begun.why}")
        if begun.run is None:
            return
        record = begun.run.record
        what = "goes on" if begun.goes_on else f"takes the input of {record.like}" if record.like else ""
        counts = f"{counted(len(begun.stages), 'stage')}, {counted(begun.workers, 'worker')}"
        say(f"  batch:  run {record.number} of {record.topology}{f', which {what}' if what else ''}; {counts}")

    def say_ended(self, session: Session, flags: ModeFlags) -> None:
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
            live = command("heron", "submit", session.target, flags.program, *flags.words, "--restore", "latest")
            say(f"finished in {took}{keys}; to go on live: {live}")
        else:
            say(f"finished in {took}{keys}")


@contextmanager
def begun(session: Session, loaded: Loaded, flags: ModeFlags) -> Iterator[BatchSubmit]:
    """The topology to start; when the block fails, no new run stays behind."""
    given = on_batch.Flags(
        flags.mode, flags.like, flags.hold, flags.resume, flags.fresh, flags.dry_run_format is not None
    )
    with on_batch.begun(session, loaded, given) as found:
        yield BatchSubmit(found, loaded.topology)
