"""The worker of a pipeline: leases a unit, stages its rows, commits it, and takes the next unit.

The worker has no state: the ledger records the worker's unit, so if a worker dies, only the attempt is lost. One
request to the ledger is open at a time, and is repeated until the ledger answers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from heronpy.api.spout.base_spout import Backlog
from heronpy.api.spout.spout import Spout
from heronpy.api.topology_context import TopologyContext
from heronpy.api.user_code import UserCodeError, user_traceback
from heronpy.common.errors import GaveUpError, HeronError, LedgerAwayError, MovedLedgerError
from heronpy.ingest.asking import Asking, ReplacedLedgerError
from heronpy.ingest.attempt import Attempt, RowError
from heronpy.ingest.bad import Tries, bad_record, dead_bytes
from heronpy.ingest.emitted import EmittedAttempt
from heronpy.ingest.figures import (
    ATTEMPTS,
    BACKUPS,
    BACKUPS_WON,
    IN_VAIN,
    TRIES_FAILED,
    WORK,
    Counters,
    backlog_of,
)
from heronpy.ingest.keys import ROWS_KEY
from heronpy.ingest.ledger import commands, requests
from heronpy.ingest.ledger.types import TEXT_MAX, Kind, UnitState
from heronpy.ingest.options import Rows, UnitOptions, options_here
from heronpy.ingest.outputs.stages import OlderGenerationError, OtherLedgerError
from heronpy.ingest.unit import MovedError, SuspectPage, UnreadError, middle

#: Seconds for which the worker works before the task handles other requests.
SLICE_S = 0.05
#: Pause in seconds after a file has moved or the table's disk has failed.
MOVED_S, DISK_S = 0.5, 2.0
#: Interval in seconds at which unreadable logs are reported.
TELL_S = 30.0
#: Interval in seconds at which the first worker requests the backlog from the ledger, between two units.
BACKLOG_S = 5.0
#: Exit reasons that may be the fault of the process's unit.
OWN_FAULT = frozenset({"crashed", "oom", "hung", "user_exception"})


class BadBytesError(HeronError):
    """Bytes of a log cannot be processed; `heron units bad` lists them."""


class LogWorker(Spout):
    """The worker of a pipeline; created by `heronpy.ingest.LogUnits`."""

    outputs: list[Any] = []

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Join the pipeline, and report how this process's predecessor ended."""
        self._context = context
        self._counters = Counters(context, WORK)
        self._join(options_here(config), config[ROWS_KEY], context.process.after)

    def _join(self, options: UnitOptions, rows: Rows, after: str = "") -> None:
        """Join a pipeline; `after`: how this process's predecessor ended."""
        self._options, self._rows, context = options, rows, self._context
        if self._options.output is not None:
            self._options.output.load()
        self._run = self._options.run or context.get_topology_id()
        self._stages = self._options.stages()
        self._asking = Asking(self._options, Kind.WORKER, context, self)
        task = f"{context.get_component_id()}-{context.get_task_id()}"
        # Sites share the table, and their tasks have the same names.
        site = f"{self._options.site}." if self._options.site else ""
        self._tries = Tries(self._stages.home)
        self._page = SuspectPage(self._stages.own_folder("pages"), site + task)
        self._greetings: list[requests.Request[Any]] = [self._farewell(after), self._asking.opening()]
        self._counters.count_for(self._options.pipeline)
        self._generation = 0
        self._attempt: Attempt | EmittedAttempt | None = None
        self._work: requests.Work | requests.Halve | None = None
        self._error = ""
        self._request: requests.Request[Any] | None = None
        self._ended = False
        #: Whether the partition map has changed, so that the ledgers must be opened again.
        self._moved = False
        self._tell_at = 0.0
        self._backlog: int | None = None
        self._backlog_at = 0.0
        #: Whether this process ends during an attempt that counts as a try; its successor reports this.
        self._breaks = False
        self._asking.show_alive(self._options.config.silent_s)

    def backlog(self) -> Backlog:
        """Return the number of bytes that the pipeline's workers still have to process; only the first worker reports.

        The worker requests this number from the ledger between two units, so the result may be old during a long unit.
        """
        return Backlog(bytes=self._backlog if self._tells_backlog() else None)

    def _tells_backlog(self) -> bool:
        tasks = self._context.get_component_tasks(self._context.get_component_id()) or []
        return tasks[:1] == [self._context.get_task_id()]

    def next_tuple(self) -> None:
        """Send one request to the ledger, or process one slice of an attempt."""
        if self._ended:
            return
        if self._attempt is not None and self._request is None:
            self._go_on(self._attempt)
            return
        if self._request is None:
            if self._options.bounded and self._stages.has_ended(self._run):
                self._ended = True
                self.end_of_input()
                return
            self._request = self._greetings.pop() if self._greetings else self._next_request()
        try:
            if self._moved:
                self._notice(self._asking.ask(self._asking.opening()).generation)
                self._moved = False
            answer = self._asking.ask(self._request)
        except MovedLedgerError:
            self._moved = True  # then the same request is repeated
            return
        except LedgerAwayError as error:
            self._asking.wait(error)
            return
        request, self._request = self._request, None
        self._take(request, answer)

    def _next_request(self) -> requests.Request[Any]:
        now = time.monotonic()
        if now < self._backlog_at or not self._tells_backlog():
            return requests.Lease()
        self._backlog_at = now + BACKLOG_S
        return commands.Show()

    def close(self) -> None:
        """Return the unit, so that another worker gets it sooner, unless the attempt counts as a failed try."""
        self._discard()
        try:
            if self._breaks:
                self._asking.close()
            else:
                self._asking.leave()
        finally:
            self._page.close()

    def _farewell(self, after: str) -> requests.GiveBack:
        """Return the request that reports the predecessor's unit, and whether the unit may have killed that process."""
        suspect = self._page.read() if after in OWN_FAULT else None
        error = f"{requests.ENDED}{after}" if after else ""
        unit, line = (suspect.unit, suspect.line) if suspect is not None else (0, None)
        return requests.GiveBack(after in OWN_FAULT, error, unit=unit, line=line, memory=after == "oom")

    # ---- answers ----------------------------------------------------------------------------
    def _take(self, request: requests.Request[Any], answer: object) -> None:
        self.busy()
        if isinstance(answer, requests.Work | requests.Halve):
            self._notice(answer.generation)
        match answer:
            case requests.Work():
                self._work = answer
                self._counters.add(ATTEMPTS)
                if answer.backup:
                    self._counters.add(BACKUPS)
                self._page.clear()
                self._attempt = self._begin(answer)
                if isinstance(self._attempt, Attempt):
                    self._asking.begin(answer.unit, answer.attempt, answer.generation)
            case requests.Halve():
                self._work = answer
                self._halve(answer)
            case requests.Idle():
                self._rest(answer)
            case requests.Committed(lost=lost):
                self._count_end(request, lost)
                if lost is not None and isinstance(request, requests.Commit):
                    self.log(f"unit {request.unit}: {lost.value}; this attempt is discarded")
                    self._discard()
                self._attempt = None
            case requests.Bad():
                assert self._work is not None
                self._bury(answer, self._work.chunks, self._work.generation)
            case requests.Failed():
                self._fail(answer.unit, answer.error)
            case requests.Returned(failed=failed, buried=buried):
                for one in buried:
                    self._bury(one.bad, one.chunks, self._generation)
                for unit in failed:
                    self.report_error(BadBytesError(f"unit {unit} of {self._options.pipeline} has failed"))
            case commands.Units(units=[failed, *_]):
                self._fail(failed.unit, failed.error)
            case commands.Figures():
                self._backlog = backlog_of(answer)
            case requests.Opened():
                self._notice(answer.generation)
            case _:
                pass  # Again, Taken: continue with the next lease

    def _notice(self, generation: int) -> None:
        """Report an error if the ledger was replaced since this worker started."""
        if self._generation not in (0, generation):
            self.report_error(ReplacedLedgerError(self._options.pipeline, self._generation, generation))
        self._generation = generation

    def _count_end(self, request: requests.Request[Any], lost: requests.Lost | None) -> None:
        """Count a backup that has won, or an attempt that no longer counts because another attempt has won."""
        if lost is not None:
            if isinstance(request, requests.Commit | requests.TryFailed):
                self._counters.add(IN_VAIN)
        elif isinstance(request, requests.Commit) and isinstance(self._work, requests.Work) and self._work.backup:
            self._counters.add(BACKUPS_WON)

    def _fail(self, unit: int, error: str) -> None:
        """Report a failed unit, which waits for `heron units retry`. Raises GaveUpError if the topology must end."""
        text = f"unit {unit} of {self._options.pipeline} has failed: {error}; fix the cause, then run: heron units"
        if self._options.config.on_bad == "fail":
            raise GaveUpError(f"{text} retry {self._options.pipeline}, and submit the topology again")
        self.report_error(BadBytesError(f"{text} retry {self._options.pipeline}"))

    def _rest(self, idle: requests.Idle) -> None:
        if idle.brake is requests.Brake.FAILED:
            self._request = commands.ListUnits(UnitState.FAILED, 1)
            return
        self.wait(idle.wait_s)

    def _halve(self, work: requests.Halve) -> None:
        try:
            place = middle(work, self._options.files.root)
        except (MovedError, OSError) as error:
            self._give_back(str(error), MOVED_S)
            return
        if place is None:
            self._request = requests.SplitAt(work.unit, work.attempt, work.generation)
        else:
            self._request = requests.SplitAt(work.unit, work.attempt, work.generation, *place)

    def _bury(self, answer: requests.Bad, chunks: Sequence[requests.Chunk], generation: int) -> None:
        """Write a record with the bytes of each bad range, and report it."""
        for found in answer.ranges:
            chunk = next(chunk for chunk in chunks if chunk.file == found.file)
            data, known = dead_bytes(self._options.files.root, chunk, found)
            # If a file was rotated since it was read, a keeper writes the record, because a keeper finds the new path.
            if known:
                trace = self._tries.of(generation, found)
                name, text = bad_record(self._options.pipeline, generation, answer, chunk, found, data, known, trace)
                self._stages.write_bad(name, text)
            self.report_error(
                BadBytesError(
                    f"{chunk.key} {found.begin}-{found.end} is not in the table, after {answer.tries} attempts:"
                    f" {answer.error}"
                )
            )

    # ---- an attempt -------------------------------------------------------------------------
    def _begin(self, work: requests.Work) -> Attempt | EmittedAttempt:
        return Attempt(work, self._options, self._rows, self._stages, self._page)

    def _go_on(self, attempt: Attempt | EmittedAttempt) -> None:
        self.busy()
        if self._asking.is_in_vain:
            self.log(f"unit {attempt.work.unit}: another attempt has won; this attempt stops")
            self._counters.add(IN_VAIN)
            self._discard()
            return
        self._step(attempt)
        if self._request is not None:
            self._asking.end()

    def _step(self, attempt: Attempt | EmittedAttempt) -> None:
        """Process one slice of an attempt; at its end, set the next request."""
        work = attempt.work
        try:
            self._request = attempt.go_on(time.monotonic() + SLICE_S)
        except MovedError as error:
            self._discard()
            # Do not report a file that has only moved, because it is soon found.
            if isinstance(error, UnreadError) and time.monotonic() >= self._tell_at:
                self._tell_at = time.monotonic() + TELL_S
                self.report_error(error)
            self._give_back(str(error), MOVED_S)
        except RowError as error:
            cause = error.__cause__ or error
            self._blamed(cause)
            self._error = f"{type(cause).__name__}: {cause}"[:TEXT_MAX]
            trace = user_traceback(cause)
            self._tries.write(work.generation, work.unit, work.chunks, trace)
            rows = attempt.rows
            self._discard()
            found = UserCodeError(f"unit {work.unit}, try {work.tries + 1}: {self._error}")
            found.user_traceback = f"{found}\n{trace}"
            self.report_error(found)
            self._counters.add(TRIES_FAILED)
            self._request = requests.TryFailed(work.unit, work.attempt, work.generation, self._error, error.line, rows)
        except (OSError, OlderGenerationError, OtherLedgerError) as error:
            self._discard()
            self.report_error(error)
            self._give_back(str(error), DISK_S)
        except MemoryError:
            # Only a new process frees the memory of this process.
            self._breaks = True
            raise

    def _blamed(self, cause: BaseException) -> None:
        """Called with an error of the user's function before the error is reported; a hook for subclasses."""

    def _discard(self) -> None:
        self._asking.end()
        if self._attempt is not None:
            self._attempt.discard()
            self._attempt = None

    def _give_back(self, error: str, pause_s: float) -> None:
        """Return the unit without counting a try, and wait for `pause_s`."""
        self._request = requests.GiveBack(counts=False, error=error, own=True)
        self.wait(pause_s)


class RowWorker(LogWorker):
    """The worker of a pipeline whose rows go to bolts: emits a unit's rows, and commits the unit when all are acked.

    The mode is at-least-once: if the worker ends or the function raises, the whole unit is emitted again.
    """

    def ack(self, tup_id: Any) -> None:
        if isinstance(self._attempt, EmittedAttempt):
            self._attempt.acked(tup_id)

    def fail(self, tup_id: Any) -> None:
        """Record that a row has failed; the row is emitted again."""
        if isinstance(self._attempt, EmittedAttempt):
            self._attempt.failed(tup_id)

    def _begin(self, work: requests.Work) -> EmittedAttempt:
        def emit(values: Sequence[Any], number: int) -> None:
            self.emit(values, tup_id=number)

        return EmittedAttempt(work, self._options, self._rows, self._page, emit)

    def _go_on(self, attempt: Attempt | EmittedAttempt) -> None:
        self._step(attempt)
        if self._attempt is not attempt or self._request is not None:
            self.busy()
        elif isinstance(attempt, EmittedAttempt) and attempt.rest_s:
            self.wait(attempt.rest_s)
