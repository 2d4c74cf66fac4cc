"""The keeper of a pipeline: scans the files, requests new units, publishes committed units, and cleans up.

Several keepers work concurrently without an election: their requests and renames are idempotent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from heronpy.api.spout.spout import Spout
from heronpy.api.topology_context import TopologyContext
from heronpy.common.errors import GaveUpError, HeronError, LedgerAwayError, MovedLedgerError
from heronpy.common.units import counted
from heronpy.ingest.agreement import behind
from heronpy.ingest.asking import Asking, ReplacedLedgerError
from heronpy.ingest.bad import Tries, bad_record, dead_bytes, record_name
from heronpy.ingest.dispatching import Dispatcher
from heronpy.ingest.figures import KeeperFigures
from heronpy.ingest.ledger import commands, requests
from heronpy.ingest.ledger.partitions import partitions_of
from heronpy.ingest.ledger.reaching import not_used
from heronpy.ingest.ledger.types import REPORT_MAX, Kind
from heronpy.ingest.options import UnitOptions, options_here
from heronpy.ingest.outputs.spark import SparkBatches
from heronpy.ingest.outputs.stages import About, OlderGenerationError, OtherLedgerError, StageGoneError
from heronpy.ingest.watch import Watch

A = TypeVar("A")

#: Intervals in seconds: between rounds while the keeper expects units, between other rounds, and between removals of
#: unneeded files.
PUBLISH_S, QUIET_S, CLEAN_S = 0.1, 0.5, 60.0
#: Seconds after a cut or a publication during which the keeper expects units.
LIVELY_S = 10.0
#: Interval of the figures in seconds. Computing the figures reads all rows, and detects the end of a bounded run.
FIGURES_S, BOUNDED_S = 5.0, 0.5
#: Seconds for which the keeper retries to read the bytes of a bad range, also at the end of a bounded run.
RECORDS_S = 10.0


class LogFileError(HeronError):
    """Bytes of log files are lost or not processed."""


#: Pauses in seconds between searches for a missing stage, which a user may restore: the first pause, and the longest
#: pause. Each pause is twice as long as the previous one.
AGAIN_S, AGAIN_MAX_S = 1.0, 30.0
#: Maximum number of skipped units, and the interval in seconds at which newly skipped units are reported.
GONE_MAX, TELL_S = 512, 10.0


class _Gone(Struct):
    due: float
    pause_s: float


class Publisher:
    """Makes committed units visible. `now` is a value of `time.monotonic()`.

    A unit with a missing stage is skipped, retried with growing pauses, and reported once, so it neither delays other
    units nor fills the log.
    """

    def __init__(self, publish: Callable[[requests.Finished], Any], report: Callable[[Exception], Any]) -> None:
        """`publish` makes one unit visible, or raises StageGoneError."""
        self._publish, self._report = publish, report
        self._gone: dict[int, _Gone] = {}
        #: Maps a unit to the reason why it cannot be published, until the reason is reported.
        self._untold: dict[int, StageGoneError] = {}
        self._tell_at = float("-inf")

    def besides(self, now: float) -> tuple[int, ...]:
        """Return the units that are skipped for now. The ledger need not list them."""
        return tuple(unit for unit, one in self._gone.items() if now < one.due)

    def publish(self, units: Iterable[requests.Finished], now: float) -> list[int]:
        """Publish the listed units; return the units that are now visible."""
        units = list(units)
        listed, done = {one.unit for one in units}, []
        for number in [unit for unit, one in self._gone.items() if now >= one.due and unit not in listed]:
            del self._gone[number]  # another keeper has found it, or the ledger was rebuilt
        for unit in units:
            try:
                self._publish(unit)
            except StageGoneError as error:
                self._pass_over(unit.unit, error, now)
                continue
            self._gone.pop(unit.unit, None)
            self._untold.pop(unit.unit, None)
            done.append(unit.unit)
        self._tell(now)
        return done

    def _pass_over(self, unit: int, error: StageGoneError, now: float) -> None:
        known = self._gone.pop(unit, None)
        if known is None:
            self._untold[unit] = error
            pause_s = AGAIN_S
        else:
            pause_s = min(AGAIN_MAX_S, known.pause_s * 2)
        if len(self._gone) >= GONE_MAX:
            del self._gone[next(iter(self._gone))]
        self._gone[unit] = _Gone(now + pause_s, pause_s)

    def _tell(self, now: float) -> None:
        if not self._untold or now < self._tell_at:
            return
        self._tell_at = now + TELL_S
        first, *others = self._untold.values()
        more = f"; the same applies to {counted(len(others), 'more unit')}" if others else ""
        self._report(StageGoneError(f"{first}{more}"))
        self._untold.clear()


class LogKeeper(Spout):
    """The keeper of a pipeline; created by `heronpy.ingest.LogUnits`."""

    outputs: list[Any] = []

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Join the pipeline."""
        self._context = context
        self._figures = KeeperFigures(context)
        self._join(options_here(config))

    def _join(self, options: UnitOptions) -> None:
        self._options, context = options, self._context
        self._run = self._options.run or context.get_topology_id()
        #: The run's id in the ledger; "" for an endless run.
        self._bounded_run = self._run if self._options.bounded else ""
        self._keepers = len(context.get_component_tasks(context.get_component_id()) or (0,))
        self._stages = self._options.stages()
        self._publisher = Publisher(self._make_visible, self.report_error)
        self._tries = Tries(self._stages.home)
        self._asking = Asking(self._options, Kind.KEEPER, context, self)
        self._watch: Watch | None = None
        self._generation = 0
        output = self._options.output
        self._dispatcher = (
            Dispatcher(self._options, output, self._stages, context, self.report_error)
            if isinstance(output, SparkBatches)
            else None
        )
        #: The ledger's time before the next scan; None if unknown.
        self._looking_since: float | None = None
        self._lively_until = 0.0
        self._clean_at = self._show_at = 0.0
        self._ended = False
        self._records_by: float | None = None
        #: File and beginning of each bad range with unreadable bytes -> monotonic time of the first try to read them.
        self._unreadable: dict[tuple[int, int], float] = {}
        self._figures.count_for(self._options.pipeline)
        self._asking.show_alive(self._options.config.silent_s)

    def next_tuple(self) -> None:
        """Do one round of work, or wait if the ledger is unreachable; every step may be repeated."""
        if self._ended:
            return
        try:
            wait_s = self._round(time.monotonic())
        except LedgerAwayError as error:
            self._watch = None  # the outcome of its request is unknown
            self._asking.wait(error)
            return
        except (OlderGenerationError, OtherLedgerError, MovedLedgerError):
            # The ledger reports its generation, name and map again, and the keeper adopts them.
            self._watch = None
            wait_s = PUBLISH_S
        self.wait(wait_s)

    def close(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.close()
        self._asking.leave()

    # ---- a round ----------------------------------------------------------------------------
    def _round(self, now: float) -> float:
        """Do one round of work; return the seconds until the next round."""
        if self._watch is None:
            self._watch = self._open()
        if now >= self._watch.due:
            # Check this before any cut, because a process with the file of a removed ledger would not fail otherwise.
            self._stages.refuse_older(self._generation)
            self._look(self._watch, now)
        busy = self._publish()
        if now >= self._clean_at:
            self._clean()
            if self._watch is not None:
                self._complete_records(self._watch)
                kept = self._asking.ask(requests.WhichLive(self._tries.units(self._generation))).units
                self._tries.forget(self._generation, kept)
            self._clean_at = now + CLEAN_S
        if now >= self._show_at:
            self._show()
            self._show_at = now + (BOUNDED_S if self._options.bounded else FIGURES_S)
        if busy:
            self._lively_until = now + LIVELY_S
            return 0.0
        # The pause is short, so that units cut by another keeper are soon found.
        return PUBLISH_S if self._dispatcher is not None or now < self._lively_until else QUIET_S

    def _open(self) -> Watch:
        self._looking_since = None
        # Read these before the request to the ledger, because other processes may publish newer units meanwhile.
        newest, units = self._stages.highest(), self._stages.published_units()
        opened = self._asking.ask(self._asking.opening())
        # Check this first, because a table of another pipeline has its own stages.
        self._claim(opened)
        self._refuse_lost(opened, newest, units)
        if opened.generation != self._generation:
            if self._generation:
                self.report_error(ReplacedLedgerError(self._options.pipeline, self._generation, opened.generation))
            self._stages.begin(opened.generation)
            self._stages.drop_older(opened.generation)
            self._generation = opened.generation
        self._stages.forget_ends(self._run)
        known: list[requests.KnownFile] = []
        more = True
        while more:
            page = self._asking.ask(requests.ListFiles(known[-1].file.id if known else 0))
            known += page.files
            more = page.more
        options, site = self._options, self._asking.who.site
        return Watch(
            options.files, opened.config.days, known, site, self._keepers, options.scan_interval_s, opened.made,
            options.bounded, options.header_lines, options.whole,
        )  # fmt: skip

    def _claim(self, opened: requests.Opened) -> None:
        """Claim the table; raises GaveUpError if it belongs to another ledger."""
        options, partitions = self._options, partitions_of(opened.partitions)
        if self._watch is None and (why := not_used(options.ledger, opened.partitions)):
            self.log(why, "warn")
        try:
            self._stages.claim(About(options.pipeline, opened.config, options.replicas, opened.ledger, partitions))
        except OtherLedgerError as error:
            raise GaveUpError(str(error)) from None

    def _refuse_lost(self, opened: requests.Opened, newest: int, units: Sequence[tuple[int, int]]) -> None:
        """Raise GaveUpError if the ledger lacks units of the table: the lines of these units would be reprocessed."""
        name, place = self._options.pipeline, self._options.place
        again = f"heron units rebuild {name} --from {place}, then submit again"
        if opened.is_new and self._stages.published_units():
            raise GaveUpError(
                f"the ledger of pipeline {name!r} is new, but the table {place} contains units, whose lines would be"
                f" processed again; run: {again}; or give the pipeline the ledger with which that table was written"
                " (not a backup, which is older than the table), or an empty table"
            )
        if why := behind(opened.given, newest, units):
            raise GaveUpError(
                f"the ledger of pipeline {name!r} is older than its table {place} ({why}): it was restored from a"
                f" backup, or replaced, and lines would be processed again; run: {again}"
            )

    def _look(self, watch: Watch, now: float) -> None:
        watch.look(now)
        while True:
            seen, gone = watch.changes(REPORT_MAX)
            if not seen and not gone:
                break
            report = requests.ReportScan(seen, gone, self._generation, watch.made, self._bounded_run)
            if not watch.answered(self._asking.ask(report)):
                # Another keeper has reported other files first: reload the ledger's content.
                self._watch = None
                break
        for notice in watch.notices():
            if notice.is_error:
                self.report_error(LogFileError(notice.text))
            else:
                self.log(notice.text, "warn")
        reported = self._watch is not None
        looked = self._looking_since if reported and watch.is_complete else None
        files = {"unfinished": watch.unfinished_bytes(), "copies": watch.copies()}
        cut = self._cut(looked, **files, complete=reported and watch.has_all_readable)
        self._looking_since = cut.now
        if cut.units or cut.brake is not requests.Brake.NOTHING:
            self._lively_until = now + LIVELY_S

    def _cut(self, looked: float | None, **about: Any) -> requests.CutUnits:
        return self._asking.ask(requests.Cut(looked, run=self._bounded_run, **about))

    def _publish(self) -> bool:
        if self._dispatcher is not None:
            ended = self._dispatcher.turn(self._ask_counted, self._generation, time.monotonic())
            if ended is None:
                self._watch = None
            return bool(ended)
        now = time.monotonic()
        finished = self._asking.ask(requests.ListFinished(besides=self._publisher.besides(now))).units
        mine = [unit for unit in finished if unit.generation == self._generation]
        if len(mine) < len(finished):
            self._watch = None
        done = self._publisher.publish(mine, now)
        if done:
            self._ask_counted(requests.Published(tuple(done), self._generation))
        return bool(done)

    def _make_visible(self, unit: requests.Finished) -> None:
        """Publish a unit. If its rows went to bolts, it has no stage to publish."""
        self._stages.refuse_other_ledger(unit.ledger)
        if self._options.output is not None and self._stages.publish(unit.generation, unit.unit, unit.winner):
            self.log(f"the stage of unit {unit.unit} is missing, so its copy was published", "warn")

    def _ask_counted(self, request: requests.Request[A]) -> A:
        answer = self._asking.ask(request)
        if isinstance(answer, requests.Settled):
            self._figures.published(answer)
        return answer

    def _clean(self) -> None:
        staged = self._stages.staged_units(self._generation)
        if staged:
            live = set(self._asking.ask(requests.WhichLive(tuple(sorted(staged)))).units)
            for unit, stages in staged.items():
                if unit not in live:
                    for stage in stages:
                        self._stages.discard(stage)
        while True:
            collected = self._asking.ask(requests.Collect())
            if collected.lost:
                self.report_error(
                    LogFileError(f"{collected.lost} bytes of deleted files were not processed; see: heron units bad")
                )
            if not collected.more:
                return

    def _complete_records(self, watch: Watch, at_once: bool = False) -> bool:
        """Write records of bad ranges that are missing because a worker died, or could not read the bytes.

        Returns whether all ranges have a record. `at_once`: write records even if the bytes cannot be read now.
        """
        complete = True
        ranges: list[commands.BadRange] = []
        more = True
        while more:
            last = ranges[-1].span if ranges else None
            page = self._asking.ask(commands.ListBad(last.file, last.begin) if last is not None else commands.ListBad())
            ranges, more = list(page.ranges), page.more
            for one in ranges:
                # A range without a unit comes from a record, after the ledger was rebuilt.
                if one.span.unit and one.span.tries:
                    complete &= self._complete_record(watch, one, at_once)
        return complete

    def _complete_record(self, watch: Watch, one: commands.BadRange, at_once: bool) -> bool:
        span, generation = one.span, self._generation
        found = requests.Line(span.file, span.begin, span.end)
        if self._stages.has_bad(record_name(generation, found)):
            self._unreadable.pop((span.file, span.begin), None)
            return True
        path, head = watch.place_of(one.key, one.generation)
        chunk = requests.Chunk(span.file, one.key, one.generation, span.begin, span.end, head, path)
        data, known = dead_bytes(self._options.files.root, chunk, found)
        if not known and not at_once and not self._is_lost(watch, one):
            return False  # the file is being rotated, or another keeper has found it: the next scan finds it
        self._unreadable.pop((span.file, span.begin), None)
        answer, trace = requests.Bad(span.unit, span.tries, (found,), span.error), self._tries.of(generation, found)
        name, text = bad_record(self._options.pipeline, generation, answer, chunk, found, data, known, trace)
        self._stages.write_bad(name, text)
        return True

    def _is_lost(self, watch: Watch, one: commands.BadRange) -> bool:
        """Whether the bytes of a bad range could not be read for a while, and the last scan did not find the file."""
        now = time.monotonic()
        since = self._unreadable.setdefault((one.span.file, one.span.begin), now)
        return not watch.is_there(one.key, one.generation) and now - since >= RECORDS_S

    def _show(self) -> None:
        figures = self._asking.ask(commands.Show())
        watch = self._watch
        self._figures.show(figures, watch.unfinished_bytes() if watch is not None else 0)
        if figures.units:
            self._lively_until = time.monotonic() + LIVELY_S
        self._looked(figures)
        if not self._options.bounded:
            return
        if not self._stages.has_ended(self._run):
            if watch is None or not self._cut(None).over or not self._is_recorded(watch):
                return
            self._cut(self._looking_since, closed=True)
            self._conclude()
        self._ended = True
        self.end_of_input()

    def _looked(self, figures: commands.Figures) -> None:
        """Called with the current figures; a hook for subclasses."""

    def _conclude(self) -> None:
        """Record the end of a bounded run whose units are all published."""
        self._stages.mark_end(self._run)

    def _is_recorded(self, watch: Watch) -> bool:
        """Whether all bad ranges have records; until then a bounded run does not end."""
        now = time.monotonic()
        if self._records_by is None:
            self._records_by = now + RECORDS_S
        return self._complete_records(watch, at_once=now >= self._records_by)
