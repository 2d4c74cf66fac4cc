"""The stages of a run as pipelines of work units, one after the other, as its workers and keepers see them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cached_property

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from heronpy.api.spout.split_spout import checked_splits, split_lines, split_of
from heronpy.api.user_code import load_class
from heronpy.batch import cells, exchange
from heronpy.batch.progress import advanced, ended, started
from heronpy.batch.record import RunState
from heronpy.batch.run import RUN, Run
from heronpy.batch.splits import buckets_of
from heronpy.batch.stages import Stage, divide
from heronpy.common.engine_settings import BatchSettings, IngestSettings
from heronpy.common.errors import AnswerError, GaveUpError, HeronError
from heronpy.common.folders import read_own
from heronpy.common.setting_types import InstanceSettings
from heronpy.common.settings import settings_for
from heronpy.common.units import counted, format_bytes
from heronpy.connectors.durable_files import make_record, write_record
from heronpy.growing.patterns import parse
from heronpy.growing.scan import Scanner
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.lists import write_list
from heronpy.ingest.options import Rows, UnitOptions, settled
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.text_input import TextInput, text_options
from heronpy.plan.component_config import component_config
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import components_of
from heronpy.views.progress import PROGRESS, StageProgress, progress_of

_PREPARED = "prepared.json"
_PROGRESS_MAX = 1 << 20
#: Neighbouring buckets form units of this weight.
BUCKETS_BYTES = 64 << 20
#: How long a run remembers deleted files: for its whole life.
_DAYS = 36_500.0
#: What a run decides itself, whatever the settings of work units say.
_OWN = frozenset({"unit_bytes", "unit_wait_s", "days", "line_bytes_max"})


class Prepared(Struct, frozen=True):
    """What is decided before the first stage begins."""

    input_bytes: int
    #: Buckets by stage, as text.
    buckets: dict[str, int]
    #: The input in words.
    boundary: str


class Step(Struct, frozen=True):
    """A stage and its pipeline."""

    stage: Stage
    options: UnitOptions

    @property
    def is_list(self) -> bool:
        """Whether its units come from a list; otherwise from files of lines."""
        return self.stage.source != "lines"

    @property
    def name(self) -> str:
        """The stage in a sentence."""
        return f"{self.stage.number} ({', '.join(self.stage.components)})"


class Steps:
    """The stages of a run."""

    def __init__(self, run: Run, launch: LaunchSpec | None = None) -> None:
        self.run = run
        self.launch = launch or LaunchSpec.load(os.environ["HERON_LAUNCH"])
        self.settings = settings_for(self.launch, BatchSettings)
        self.topology = run.topology
        self.stages = divide(self.topology)
        self._record = run.record

    # ---- before the first stage ---------------------------------------------------------------
    @property
    def are_prepared(self) -> bool:
        """Whether a keeper has prepared the run."""
        return (self.run.folder / _PREPARED).exists()

    def prepare(self) -> None:
        """Look at the input and decide the number of buckets; the first keeper decides for all."""
        if self.are_prepared:
            return
        size, said = 0, []
        for stage in self.stages:
            if stage.source == "lines":
                files = self._files(stage)
                total = sum(files)
                said.append(f"lines up to {format_bytes(total)} in {counted(len(files), 'file')}")
            elif stage.source == "splits":
                weights = [weight for _, weight in self._split_lines(stage)]
                total = sum(weights)
                said.append(counted(len(weights), "split"))
            elif stage.source == "spout":
                total = 0
                said.append(f"all of {stage.spout}")
            else:
                continue
            size += total
        boundary = ", ".join(said)
        buckets = buckets_of(self.stages, size, self._record.key_groups)
        found = Prepared(size, {str(number): count for number, count in buckets.items()}, boundary)
        make_record(self.run.folder / _PREPARED, msgspec.json.encode(found))

    @cached_property
    def prepared(self) -> Prepared:
        """What a keeper has decided."""
        return msgspec.json.decode(read_own(self.run.folder / _PREPARED, 1 << 20), type=Prepared)

    @cached_property
    def buckets(self) -> dict[int, int]:
        """The number of buckets of each stage."""
        return {int(number): count for number, count in self.prepared.buckets.items()}

    def _files(self, stage: Stage) -> list[int]:
        patterns = [parse(one) for one in self.text_of(stage).logs.split("\n")]
        return [entry.size for entry in Scanner(patterns).look().entries]

    def text_of(self, stage: Stage) -> TextInput:
        """The options of a stage that reads files of lines."""
        return text_options(stage.spout, component_config(self.topology, stage.spout, load=True))

    def _split_lines(self, stage: Stage) -> list[tuple[bytes, int]]:
        """The splits of a spout, which is asked once: the list of the stage is written then."""
        path = self.run.list_file(stage.number)
        if not path.exists():
            part = components_of(self.topology)[stage.spout]
            try:
                spout = load_class(part.comp.class_name, self.launch)()
                lines = split_lines(
                    checked_splits(spout.splits(component_config(self.topology, stage.spout, load=True)))
                )
            except Exception as error:
                raise self.fail(f"splits() of spout '{stage.spout}' raised {type(error).__name__}: {error}") from error
            with suppress(HeronError):  # another keeper was first
                write_list(path, lines)
        with open(path, "rb") as file:
            return [(line, split_of(line.decode()).bytes) for line in file]

    # ---- stages -------------------------------------------------------------------------------
    def present(self) -> Step | None:
        """The first stage whose end is not recorded; None at the end of the run."""
        for stage in self.stages:
            if not Stages(str(self.run.table(stage.number))).has_ended(RUN):
                return self._step(stage)
        return None

    def is_last(self, step: Step) -> bool:
        """Whether no stage comes after this one."""
        return step.stage.number == self.stages[-1].number

    def _step(self, stage: Stage) -> Step:
        table = str(self.run.table(stage.number))
        text = self.text_of(stage) if stage.source == "lines" else None
        logs = text.logs if text is not None else str(self.run.list_file(stage.number))
        config = Config(
            pattern=logs,
            unit_bytes=self.settings.unit_bytes if stage.source in ("lines", "splits") else BUCKETS_BYTES,
            unit_wait_s=0.0,
            on_bad="fail",
            days=_DAYS,
            place=table,
        )
        output = exchange.StageOutput(table, self.topology, self.stages, stage.number, self.buckets)
        options = UnitOptions(
            f"stage-{stage.number}", logs, self.run.ledger, output, config, bounded=True, run=RUN, given=_OWN
        )
        if text is not None:
            options = replace(
                options,
                encoding=text.encoding,
                decode_errors=text.decode_errors,
                line_bytes_max=text.line_bytes_max,
                header_lines=text.header_lines,
            )
        return Step(stage, settled(options, settings_for(self.launch, IngestSettings)))

    def rows_of(self, step: Step) -> Rows:
        """The function of a stage's units."""
        return cells.StageRows(
            self.topology,
            self.stages,
            step.stage.number,
            self.buckets,
            self.launch,
            settings_for(self.launch, InstanceSettings),
            folder=self.run.folder,
            key_groups=self._record.key_groups,
            saves=bool(self._record.savepoints),
        )

    def lines_of(self, step: Step) -> list[tuple[bytes, int]]:
        """The list of a stage that does not read files of lines, with the weight of each line."""
        stage = step.stage
        if stage.source == "splits":
            return self._split_lines(stage)
        if stage.source == "spout":
            return cells.task_lines(stage, self.buckets)
        size = exchange.exchange_bytes(self.run.folder, self.stages, stage.number)
        if size > self.settings.exchange_bytes_max:
            raise self.fail(
                f"stage {step.name} would read {format_bytes(size)} of files, and heron.batch.exchange_bytes_max is"
                f" {format_bytes(self.settings.exchange_bytes_max)}; give a SparkSink the shuffle, or raise the limit"
            )
        return exchange.bucket_lines(self.run.folder, self.stages, stage.number, self.buckets)

    def write_list(self, step: Step) -> None:
        """Write the list of a stage unless it is there."""
        path = self.run.list_file(step.stage.number)
        if not path.exists():
            write_list(path, self.lines_of(step))

    # ---- figures for people -------------------------------------------------------------------
    def note(self, stage: StageProgress, rate: float, now: float) -> None:
        """Write the figures of a stage; those of other stages stay."""
        path = self.run.folder / PROGRESS
        record = self.run.record
        try:
            before = progress_of(read_own(path, _PROGRESS_MAX))
        except (FileNotFoundError, AnswerError):
            before = started(record, self.stages, self.prepared.boundary, now)
        write_record(path, msgspec.json.encode(advanced(before, record, stage, rate, now)))

    # ---- the end ------------------------------------------------------------------------------
    def fail(self, cause: str) -> GaveUpError:
        """Record that the run has failed; returns the error that ends the topology."""
        record = self.run.record
        if not record.has_ended:
            record = replace(record, state=RunState.FAILED, cause=cause, ended_at=time.time())
            self.run.write(record)
            path = self.run.folder / PROGRESS
            with suppress(FileNotFoundError, AnswerError):
                found = progress_of(read_own(path, _PROGRESS_MAX))
                write_record(path, msgspec.json.encode(ended(found, record)))
        return GaveUpError(f"{cause}; mend it, and repeat the command: it goes on with what is done")
