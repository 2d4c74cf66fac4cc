"""The folders of batch runs. Each run has a folder, which outlives the topology that works on the run.

<heron.batch.folder>/<cluster>/<topology>/<number>/
    run.json        the record
    topology        the topology as its program built it
    ledger.db       the units of all stages; a run on several hosts has them in PostgreSQL instead
    lists/          the input of a stage's units, unless they read users' files
    <stage>/        the output of a stage's units
    progress.json   the figures, for display
    spark/          the rows for Spark, if there are SparkSinks
    spark-plan.txt  the final plans of Spark's queries
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from google.protobuf.message import DecodeError
from msgspec.structs import replace

from heronpy.batch.record import RunRecord, RunState
from heronpy.common.disk_space import full_folder, is_full_error
from heronpy.common.engine_settings import BatchSettings
from heronpy.common.errors import AnswerError, ConfigError, GaveUpError, StateError, TopologyError
from heronpy.common.folders import check_root, heron_home, make_folders, open_private, read_own
from heronpy.common.host import this_host
from heronpy.connectors.durable_files import run_token, write_record
from heronpy.connectors.spark.requirements import RUN_PLAN
from heronpy.proto import topology_pb2
from heronpy.views.progress import PROGRESS, Progress, progress_of

_RECORD, _TOPOLOGY, _LOCK = "run.json", "topology", "lock"
_RECORD_MAX, _PROGRESS_MAX, _TOPOLOGY_MAX, _PLAN_MAX = 1 << 20, 1 << 20, 256 << 20, 8 << 20
_RUN = re.compile(r"([^/]+)/([1-9][0-9]{0,8})")
#: Age in seconds at which a folder without a record is removed, because locks may not work between hosts.
_LEFT_S = 3600.0
#: The name of every run in its separate ledger and tables.
RUN: Final = "run"


class BatchRunError(StateError):
    """The folder of a run cannot be used."""


def runs_folder(settings: BatchSettings, cluster: str) -> Path:
    return (Path(settings.folder) if settings.folder else heron_home() / "batch") / cluster


class Run:
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @property
    def record(self) -> RunRecord:
        """The current record. Raises BatchRunError if the record is damaged."""
        path = self.folder / _RECORD
        try:
            return msgspec.json.decode(read_own(path, _RECORD_MAX), type=RunRecord)
        except (OSError, ConfigError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise BatchRunError(
                f"the record of a batch run {path} cannot be read ({error}); give --fresh to start a new run"
            ) from None

    def write(self, record: RunRecord) -> None:
        write_record(self.folder / _RECORD, msgspec.json.encode(record))

    @property
    def topology(self) -> topology_pb2.Topology:
        """The topology as its program built it. Raises BatchRunError if the file is damaged."""
        path = self.folder / _TOPOLOGY
        try:
            return topology_pb2.Topology.FromString(read_own(path, _TOPOLOGY_MAX))
        except (OSError, ConfigError, DecodeError) as error:
            raise BatchRunError(
                f"the topology of a batch run {path} cannot be read ({error}); give --fresh to start a new run"
            ) from None

    def replace_topology(self, topology: topology_pb2.Topology) -> None:
        """Store the topology of a program that has changed since the run began."""
        write_record(self.folder / _TOPOLOGY, topology.SerializeToString())

    @property
    def progress(self) -> Progress:
        """The figures that a keeper last wrote; without stages if the file is missing or damaged."""
        record = self.record
        at, state = record.ended_at or record.submitted_at, record.state.value
        found = Progress(run=record.run, state=state, at=at, began_at=record.submitted_at, stages=[])
        with suppress(OSError, ConfigError, AnswerError):
            found = progress_of(read_own(self.folder / PROGRESS, _PROGRESS_MAX))
        # A keeper that is killed at the end of the run has written the record, but not the figures.
        ends_in_s = found.ends_in_s if record.ended_at is None else None
        return replace(found, state=state, cause=record.cause, ended_at=record.ended_at, ends_in_s=ends_in_s)

    @property
    def waits_for(self) -> str:
        """The reason why the run's processes are waiting; "" if they can work."""
        full = full_folder(self.folder) is not None
        return f"the disk of {self.folder} is full; free space on it, and the run continues" if full else ""

    @property
    def spark_plan(self) -> str:
        """The final plans of Spark's queries for the SparkSinks; "" if there are none."""
        with suppress(OSError, ConfigError):
            return read_own(self.folder / RUN_PLAN, _PLAN_MAX).decode(errors="replace")
        return ""

    @property
    def ledger(self) -> str:
        return self.record.ledger or f"sqlite:{self.folder / 'ledger.db'}"

    def pipeline(self, stage: int) -> str:
        """Return the name of a stage's pipeline in the ledger, which several runs may share."""
        record = self.record
        return f"stage-{stage}-{run_token(record.id)}" if record.ledger else f"stage-{stage}"

    def refuse_unshared(self) -> None:
        """Raise GaveUpError if the run's folder does not exist on this host."""
        if not (self.folder / _RECORD).exists():
            raise GaveUpError(
                f"host {this_host().name} does not have {self.folder}, the folder of this run: heron.batch.folder is"
                " not the same on all hosts, or the run was removed; set heron.batch.folder to a folder that all hosts"
                " share, and submit again"
            )

    def table(self, stage: int) -> Path:
        """Return the folder with the output of the units of a stage."""
        return self.folder / str(stage)

    def list_file(self, stage: int) -> Path:
        """Return the file that lists the input of the units of a stage."""
        return self.folder / "lists" / f"{stage}.jsonl"


class Runs:
    """The runs of one topology."""

    def __init__(self, folder: Path, topology: str) -> None:
        self.folder = folder / topology

    def numbers(self) -> list[int]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if name.isdecimal() and (self.folder / name / _RECORD).exists())

    def newest(self) -> Run | None:
        numbers = self.numbers()
        return self.of(numbers[-1]) if numbers else None

    def of(self, number: int) -> Run:
        return Run(self.folder / str(number))

    def named(self, name: str) -> Run:
        """Return the run with this name, such as visits/3. Raises TopologyError if the run does not exist."""
        found = _RUN.fullmatch(name)
        if found is None or found[1] != self.folder.name or int(found[2]) not in self.numbers():
            known = ", ".join(f"{self.folder.name}/{number}" for number in self.numbers())
            raise TopologyError(
                f"there is no batch run '{name}' of topology '{self.folder.name}'; its runs: {known or 'none yet'}"
            )
        return self.of(int(found[2]))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the topology's runs while a command prepares a run.

        Raises TopologyError if another command has the lock, and ConfigError if the folder cannot be written.
        """
        check_root(self.folder.parent, "the folder of batch runs")
        try:
            make_folders(self.folder)
            if not os.access(self.folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            descriptor = open_private(self.folder / _LOCK, os.O_RDWR)
        except OSError as error:
            if is_full_error(error):
                raise self._full() from None
            raise ConfigError(
                f"the folder of batch runs {self.folder} cannot be written ({error.strerror}); set heron.batch.folder"
                " to another folder"
            ) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TopologyError(
                    f"another command is starting a batch run of '{self.folder.name}'; wait for it"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def refuse_full(self) -> None:
        """Raise BatchRunError if the disk is too full for a run's ledger."""
        if full_folder(self.folder) is not None:
            raise self._full()

    def _full(self) -> BatchRunError:
        return BatchRunError(
            f"the disk of {self.folder}, the folder of batch runs, is full; free space on it, or set heron.batch.folder"
            " to another folder"
        )

    def begin(self, record: RunRecord, topology: topology_pb2.Topology) -> Run:
        """Create the folder of a new run under the next number, and store `record` with this number."""
        names = [int(name) for name in os.listdir(self.folder) if name.isdecimal()]
        for left in map(self.of, {*names} - {*self.numbers()}):
            if time.time() - left.folder.lstat().st_mtime > _LEFT_S:
                self.remove(left)  # a command died while creating or removing it
        run = self.of(max(names, default=0) + 1)
        make_folders(run.folder / "lists")
        write_record(run.folder / _TOPOLOGY, topology.SerializeToString())
        run.write(replace(record, number=int(run.folder.name)))
        return run

    def remove(self, run: Run) -> None:
        """Remove a run, beginning with its record."""
        with suppress(FileNotFoundError):
            (run.folder / _RECORD).unlink()
        shutil.rmtree(run.folder, ignore_errors=True)


def unfinished(folder: str) -> str:
    """Return the name of the unfinished run in a folder; "" if there is no run or the run has ended."""
    if not folder:
        return ""
    record = Run(folder).record
    return "" if record.has_ended else record.run


def refuse_unfinished(folder: Path, topology: str, since: float | None) -> None:
    """Raise TopologyError if the newest run began after the latest checkpoint and has left no savepoint.

    `since`: time of that checkpoint; None if there is none. Held runs do not count, because they publish nothing.
    """
    runs = Runs(folder, topology)
    records = (runs.of(number).record for number in reversed(runs.numbers()))
    record = next((one for one in records if not one.hold), None)
    if record is None or record.savepoint or (since is not None and record.submitted_at <= since):
        return
    what = "has left no savepoint" if record.has_ended else "has not finished"
    what = "has failed" if record.state is RunState.FAILED else what
    fix = "" if record.has_ended else "finish the run, or "
    if since is None:
        result = f"there is no checkpoint of '{topology}'; {fix}leave out --restore to start empty"
    else:
        result = (
            f"the latest checkpoint of '{topology}' is older than the run; {fix}give --restore the number of a"
            " checkpoint"
        )
    raise TopologyError(f"batch run {record.run} {what}, so {result}")


def run_folders(folder: Path, topology: str = "") -> Iterator[tuple[RunRecord, Path]]:
    """Yield all readable runs in a folder, or one topology's runs; each topology's newest run comes first."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in sorted(os.listdir(folder)) if not topology else [topology]:
            runs = Runs(folder, name)
            for number in reversed(runs.numbers()):
                with suppress(BatchRunError):
                    yield runs.of(number).record, runs.of(number).folder
