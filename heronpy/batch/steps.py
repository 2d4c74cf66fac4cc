"""The stages of a run as successive pipelines of work units, for the run's workers and keepers."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cached_property
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from heronpy.api.spout.split_spout import SplitSpout, checked_splits, split_lines, split_of
from heronpy.api.user_code import load_class
from heronpy.batch import exchange
from heronpy.batch.metrics import RunMetrics
from heronpy.batch.progress import advanced, ended, stage_progress, started
from heronpy.batch.record import RunState
from heronpy.batch.rows import StageRows, sinks_of
from heronpy.batch.run import RUN, Run
from heronpy.batch.splits import UNIT_MAX_BYTES, bucket_unit_bytes, buckets_of
from heronpy.batch.stages import Stage, divide
from heronpy.common.engine_settings import BatchSettings, IngestSettings
from heronpy.common.errors import AnswerError, GaveUpError, HeronError
from heronpy.common.folders import read_own
from heronpy.common.host import this_host
from heronpy.common.setting_types import InstanceSettings
from heronpy.common.settings import Resolved, settings_for
from heronpy.common.units import counted, format_bytes
from heronpy.connectors.durable_files import make_record, write_record
from heronpy.connectors.textfiles.textfilespout import TextFileOptions
from heronpy.growing.patterns import join, parse
from heronpy.growing.scan import Scanner
from heronpy.ingest.ledger.commands import Figures
from heronpy.ingest.ledger.reaching import Reached
from heronpy.ingest.ledger.requests import EnterList, KnownFile, ListFiles, TakeFiles, Who
from heronpy.ingest.ledger.types import REPORT_MAX, Config, FileState, Kind
from heronpy.ingest.lists import entered, write_list
from heronpy.ingest.options import UnitOptions, settled
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.text_input import text_options
from heronpy.plan.component_config import component_config
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import components_of
from heronpy.task.user_code import Delegate
from heronpy.views.progress import PROGRESS, StageProgress, progress_of

_PREPARED = "prepared.json"
#: The byte range of a failed unit in the list of a stage, as the ledger writes it.
_LISTED = re.compile(r"[0-9]+\.jsonl bytes ([0-9]+)-([0-9]+)(?=:)")
_PROGRESS_MAX = 1 << 20
#: Days for which a run keeps deleted files, longer than any run.
_DAYS = 36_500.0


class Prepared(Struct, frozen=True):
    """The decisions that are made before the first stage begins."""

    input_bytes: int
    #: Maps the number of each stage, as text, to its number of buckets.
    buckets: dict[str, int]
    #: Description of the input.
    boundary: str


class Step(Struct, frozen=True):
    """A stage and its pipeline."""

    stage: Stage
    options: UnitOptions

    @property
    def is_list(self) -> bool:
        """Whether the units come from a list rather than from files of lines."""
        return self.stage.source != "lines"

    @property
    def name(self) -> str:
        """The stage's number and components, for messages."""
        return f"{self.stage.number} ({', '.join(self.stage.components)})"


def files_of(run: Run, stage: Stage) -> list[KnownFile]:
    """Return the files that a stage of a run reads, with their sealed ends."""
    who = Who(f"files-{uuid4()}", str(uuid4()), Kind.COMMAND)
    found: list[KnownFile] = []
    with closing(Reached.existing(run.ledger, run.pipeline(stage.number), who)) as ledger:
        more = True
        while more:
            page = ledger.ask(ListFiles(found[-1].file.id if found else 0))
            found += page.files
            more = page.more
    return found


class Steps:
    """The stages of a run."""

    def __init__(self, run: Run, launch: LaunchSpec | None = None) -> None:
        run.refuse_unshared()
        self.run = run
        self.launch = launch or LaunchSpec.load(os.environ["HERON_LAUNCH"])
        self.settings = settings_for(self.launch, BatchSettings)
        self.topology = run.topology
        self.stages = divide(self.topology)
        self._record = run.record
        #: The run that provides this run's input; None for the current input.
        self._like = Run(run.folder.parent / like.rpartition("/")[2]) if (like := self._record.like) else None
        #: Whether state is kept for a savepoint.
        self.saves = self._record.saves

    # ---- before the first stage ---------------------------------------------------------------
    @property
    def are_prepared(self) -> bool:
        """Whether a keeper has prepared the run."""
        return (self.run.folder / _PREPARED).exists()

    def prepare(self) -> None:
        """Examine the input and choose the number of buckets. If several keepers choose, the first choice counts."""
        if self.are_prepared:
            return
        size, said = 0, []
        for stage in self.stages:
            if stage.source == "lines":
                sizes = self._sizes(stage)
                total = sum(sizes)
                said.append(f"the first {format_bytes(total)} of lines in {counted(len(sizes), 'file')}")
            elif stage.source == "splits":
                weights = [weight for _, weight in self._split_lines(stage)]
                total = sum(weights)
                said.append(counted(len(weights), "split"))
            elif stage.source == "spout":
                total = 0
                said.append(f"all tuples of {stage.spout}")
            else:
                continue
            size += total
        boundary = ", ".join(said)
        buckets = buckets_of(self.stages, size, self._record.key_groups)
        found = Prepared(size, {str(number): count for number, count in buckets.items()}, boundary)
        make_record(self.run.folder / _PREPARED, msgspec.json.encode(found))

    @cached_property
    def prepared(self) -> Prepared:
        """The decisions that a keeper has recorded."""
        return msgspec.json.decode(read_own(self.run.folder / _PREPARED, 1 << 20), type=Prepared)

    @cached_property
    def buckets(self) -> dict[int, int]:
        """The number of buckets of each stage."""
        return {int(number): count for number, count in self.prepared.buckets.items()}

    def _sizes(self, stage: Stage) -> list[int]:
        if self._like is not None:
            files = files_of(self._like, self._like_stage(stage))
            return [one.file.size for one in files if one.file.state is not FileState.LATE]
        paths = self.text_of(stage).paths
        entries = Scanner([parse(one) for one in paths]).look().files
        if not entries:
            # The submit has found files, so they are not on this host, or were removed.
            named = paths[0] if len(paths) == 1 else f"any of {', '.join(paths)}"
            raise self.fail(f"on host {this_host().name} no file matches {named}, which spout '{stage.spout}' reads")
        return [entry.size for entry in entries]

    def _like_stage(self, stage: Stage) -> Stage:
        """Return the stage with the same spout in the run whose input this run reuses."""
        assert self._like is not None
        return next(one for one in divide(self._like.topology) if one.spout == stage.spout)

    def text_of(self, stage: Stage) -> TextFileOptions:
        """Return the options of a stage that reads files of lines."""
        return TextFileOptions.from_config(component_config(self.topology, stage.spout, load=True), stage.spout)

    def spout_of(self, stage: Stage) -> SplitSpout:
        """Create the spout of a stage that reads splits, to list the splits."""
        part = components_of(self.topology)[stage.spout]
        made = load_class(part.comp.class_name, self.launch)(delegate=Delegate())
        assert isinstance(made, SplitSpout)
        return made

    def _split_lines(self, stage: Stage) -> list[tuple[bytes, int]]:
        """Return the splits of a spout. The spout is called once; later calls read the stage's list file."""
        path = self.run.list_file(stage.number)
        if self._like is not None and not path.exists():
            content = self._like.list_file(self._like_stage(stage).number).read_bytes()
            with suppress(HeronError):  # another keeper was first
                write_list(path, [(line, 1) for line in content.splitlines(keepends=True)])
        if not path.exists():
            try:
                spout = self.spout_of(stage)
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
        """Return the first stage whose end is not recorded; None if all stages have ended."""
        for stage in self.stages:
            if not Stages(str(self.run.table(stage.number))).has_ended(RUN):
                return self._step(stage)
        return None

    def is_last(self, step: Step) -> bool:
        return step.stage.number == self.stages[-1].number

    def _step(self, stage: Stage) -> Step:
        table = str(self.run.table(stage.number))
        cut = self.settings.unit_bytes if stage.source in ("lines", "splits") else UNIT_MAX_BYTES
        config = Config(unit_bytes=cut, unit_wait_s=0.0, on_bad="fail", days=_DAYS, place=table)
        sinks = sinks_of(self.topology, stage, self.launch)
        output = exchange.StageOutput(table, stage, sinks, self.saves, self.settings.exchange_bytes_max)
        pipeline = self.run.pipeline(stage.number)
        if stage.source == "lines":
            options = text_options(pipeline, self.text_of(stage), self.run.ledger, output, config, RUN)
        else:
            logs = str(self.run.list_file(stage.number))
            options = UnitOptions(
                pipeline, logs, self.run.ledger, output, replace(config, pattern=logs), True,
                given=frozenset(Config.__struct_fields__), run=RUN,
            )  # fmt: skip
        return Step(stage, settled(options, settings_for(self.launch, IngestSettings)))

    def rows_of(
        self,
        step: Step,
        report: Callable[[Exception], None],
        failed: Callable[[str, int], None],
        metrics: RunMetrics,
    ) -> StageRows:
        """Return the function that processes a stage's units; see `StageRows`."""
        settings = Resolved(self.launch.settings, component_settings=self._record.component_settings)
        return StageRows(
            self.topology,
            self.stages,
            step.stage.number,
            self.buckets,
            self.launch,
            lambda component: settings_for(settings, InstanceSettings, component),
            folder=self.run.folder,
            key_groups=self._record.key_groups,
            saves=self.saves,
            spout_end_s=self.settings.spout_end_s,
            report=report,
            failed=failed,
            metrics=metrics,
        )

    def lines_of(self, step: Step) -> list[tuple[bytes, int]]:
        """Return the input list, with the weight of each line, for a stage that does not read files of lines."""
        stage = step.stage
        if stage.source == "splits":
            return self._split_lines(stage)
        if stage.source == "spout":
            return exchange.task_lines(stage)
        lines = exchange.bucket_lines(self.run.folder, self.stages, stage.number, self.buckets[stage.number])
        size = sum(weight for _, weight in lines)
        if size > self.settings.exchange_bytes_max:
            raise self.fail(
                f"stage {step.name} would read {format_bytes(size)} of files, but heron.batch.exchange_bytes_max is"
                f" {format_bytes(self.settings.exchange_bytes_max)}; raise the limit, or use Spark for this shuffle"
            )
        return lines

    def given_input(self, step: Step) -> Iterator[EnterList | TakeFiles]:
        """Yield the requests that create units from a list, or that take over the files of another run."""
        if step.is_list:
            path, lines = self.run.list_file(step.stage.number), self.lines_of(step)
            write_list(path, lines)
            goal = step.options.config.unit_bytes
            if step.stage.source == "buckets":
                goal = bucket_unit_bytes(sum(weight for _, weight in lines))
            yield entered(path, lines, goal, RUN)
        elif self._like is not None:
            files = files_of(self._like, self._like_stage(step.stage))
            for begin in range(0, len(files), REPORT_MAX) or [0]:
                end = begin + REPORT_MAX
                yield TakeFiles(RUN, tuple(files[begin:end]), end >= len(files))

    # ---- displayed figures -------------------------------------------------------------------
    def note(self, stage: StageProgress, rate: float, now: float) -> None:
        """Write the figures of one stage, and keep those of the other stages. On a full disk, nothing is written."""
        path = self.run.folder / PROGRESS
        record = self.run.record
        try:
            before = progress_of(read_own(path, _PROGRESS_MAX))
        except (FileNotFoundError, AnswerError):
            before = started(record, self.stages, self.prepared.boundary, now)
        with suppress(OSError):
            write_record(path, msgspec.json.encode(advanced(before, record, stage, rate, now)))

    # ---- the end ------------------------------------------------------------------------------
    def fail_unit(self, step: Step, unit: int, error: str, figures: Figures | None) -> GaveUpError:
        """Fail the run because a unit has failed. `figures`: the stage's figures, including the last attempt."""
        if figures is not None and not self.run.record.has_ended:
            now = time.time()
            self.note(stage_progress(step.stage, figures, "failed", {}), 0.0, now)
        # The ledger names files relative to the folder with the logs.
        name, root = error.partition(" bytes ")[0], step.options.files.root
        place = f"{root}/{error}" if step.stage.source == "lines" and os.path.exists(join(root, name)) else error
        if step.stage.source == "splits":
            place = self._named_splits(step.stage, error)
        told = f"unit {unit} of stage {step.name} has failed: {place}"
        if "MemoryError" in error or "ended: oom" in error:
            told += "; the unit needs more memory than is available"
            told += ", possibly because most tuples have the same few keys" if step.stage.source == "buckets" else ""
        return self.fail(told)

    def _named_splits(self, stage: Stage, error: str) -> str:
        """Replace the byte positions in a unit's error by the names of the splits at these positions."""
        found = _LISTED.match(error)
        if found is None:
            return error
        with (
            suppress(OSError, ValueError, IndexError, msgspec.MsgspecError),
            open(self.run.list_file(stage.number), "rb") as file,
        ):
            file.seek(begin := int(found[1]))
            names = [split_of(line).name for line in file.read(int(found[2]) - begin).decode().splitlines()]
            splits = f"split '{names[0]}'" if len(names) == 1 else f"one of the splits '{names[0]}' to '{names[-1]}'"
            return splits + error[found.end() :]
        return error

    def fail(
        self,
        cause: str,
        cure: str = "fix the cause, and run the command again: it keeps the finished units; if the"
        " program has changed, add --resume",
    ) -> GaveUpError:
        """Record that the run has failed, unless the disk is full; return the error that ends the topology."""
        record = self.run.record
        if not record.has_ended:
            record = replace(record, state=RunState.FAILED, cause=cause, cure=cure, ended_at=time.time())
            path = self.run.folder / PROGRESS
            with suppress(OSError, AnswerError):
                self.run.write(record)
                found = progress_of(read_own(path, _PROGRESS_MAX))
                write_record(path, msgspec.json.encode(ended(found, record)))
        return GaveUpError(f"{cause}; {cure}" if cure else cause)
