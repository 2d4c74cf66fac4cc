"""Statistics of a bolt's calls to `process`: number, durations, slow calls, hot lines, and hanging calls."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from operator import sub
from reprlib import Repr
from types import CodeType, FrameType

import zmq

from heronpy.api.user_code import is_runtime_frame
from heronpy.common import exit_codes
from heronpy.common.units import format_duration, is_installed, line_of
from heronpy.procs import exit_notice
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.task.name import TaskName
from heronpy.task.tuples import DamagedValues, HeronTuple, InBatch, Part

from .control import ControlThread
from .metrics import TaskMetrics
from .progress import Progress
from .reports import exception_report
from .time_use import ExecuteTimes, Sample, by_stream

log = logging.getLogger("heron.instance")

KEPT = 16
KEEP_S = 3600.0
VALUE_LETTERS = 200
LOG_EVERY_S = 10.0
#: Calls of a chunk of at most this number of tuples are timed one by one, which costs less than handling their frame.
FEW = 8
#: Number of samples that the control thread takes while a call becomes slow; the shortest interval between samples;
#: and how long it samples after a chunk of untimed calls, in seconds.
LOOKS = 2
LOOK_MIN_S = 0.01
PARK_S = 1.0
NEVER = float("inf")


class _Short(Repr):
    """A `repr` that reads only the part of a value that it shows."""

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(bytes(value[:VALUE_LETTERS]))

    repr_bytearray = repr_bytes


_shown = _Short()
_shown.maxlevel = 4
_shown.maxstring = _shown.maxother = _shown.maxlong = VALUE_LETTERS
_shown.maxlist = _shown.maxtuple = _shown.maxdict = _shown.maxset = _shown.maxfrozenset = _shown.maxdeque = 20


def shown(values: object) -> str:
    """Return the values of a tuple as text of at most `VALUE_LETTERS` characters. Errors of `__repr__` are caught."""
    try:
        text = _shown.repr(values)
    except Exception as error:
        text = f"<values whose repr() raises {type(error).__name__}>"
    return text if len(text) <= VALUE_LETTERS else f"{text[: VALUE_LETTERS - 1]}…"


class SlowTuples:
    """The slow calls of one task. The task's thread calls all methods except `look`, which the control thread calls.
    Times are in ns.

    A call is slow if it took longer than `heron.instance.slow_ms`. The slowest `KEPT` calls of the last hour are kept;
    other slow calls are only counted.

    If each call is timed, because calls are slow or few, the tuple is known. Within a chunk of quick
    calls the clock is not read (time_use.py). So the control thread samples which tuple is in progress; if a chunk
    turns out to contain a slow call, the sampled tuple is assumed to be slow. A slow call without a sample is
    kept without a value: it held the interpreter's lock the whole time, or ran in the first second after a pause. Pure
    except for the line in the log, at most one per `LOG_EVERY_S`.
    """

    def __init__(self, limit_ms: float, count: Callable[[str, str, float], None]) -> None:
        #: Calls that take longer than this are slow.
        self.limit_ns = limit_ms * 1e6 if limit_ms else NEVER
        #: Start of the last chunk of untimed calls, in monotonic seconds.
        self.blind_at = -NEVER
        #: Returns the tuple that user code is processing.
        self.in_hand: Callable[[], Part | None] = lambda: None
        #: The slow calls, slowest first; replaced as a whole, so that any thread may read it.
        self.kept: tuple[control_pb2.SlowTuple, ...] = ()
        self._count = count
        self._look_s = max(LOOK_MIN_S, limit_ms / 1000 / LOOKS)
        self._park_s = max(PARK_S, limit_ms / 1000) if limit_ms else -NEVER
        self._seen: deque[Part] = deque(maxlen=KEPT)
        self._logged_at = -NEVER
        self._unlogged = 0

    # ---- the control thread -------------------------------------------------------------------

    def look(self, now: float) -> float:
        """Sample the tuple in progress if its call is slow; return the latest monotonic time for the next sample."""
        age = now - self.blind_at
        if age > self._park_s:
            return NEVER
        if age >= self._look_s:
            self._note()
        return now + self._look_s

    def _note(self) -> None:
        tup = self.in_hand()
        if tup is not None and not any(tup is seen for seen in self._seen):
            self._seen.append(tup)

    # ---- the task's thread --------------------------------------------------------------------

    def call(self, tup: HeronTuple, took_ns: float, at: float, tuples: int = 1) -> None:
        """Record a slow call for a tuple, or for a batch of `tuples` that begins with it. `at` is wall time."""
        self._add(tup, took_ns, at, tuples, shown(tup.values))

    def chunk(
        self, part: Sequence[HeronTuple], took_ns: float, samples: list[Sample], stamps: Sequence[int], at: float
    ) -> None:
        """Record a chunk longer than the limit of a single call; `samples` and `stamps` are as in ExecuteTimes."""
        seen, limit = list(self._seen), self.limit_ns
        self._seen.clear()
        if len(part) == 1:
            self.call(part[0], took_ns, at)
        elif len(stamps) > 1:
            for tup, took, end in zip(part, map(sub, stamps[1:], stamps), stamps[1:]):
                if took > limit:
                    self.call(tup, took, at - (stamps[-1] - end) / 1e9)
        elif (slowest := max(samples)[0]) > limit:
            found = next((tup for tup in part if any(tup is one for one in seen)), None)
            if found is not None:
                self.call(found, slowest, at)
            else:
                self._add(part[0], slowest, at, len(part), "")

    def _add(self, tup: HeronTuple, took_ns: float, at: float, tuples: int, value: str) -> None:
        source = f"{tup.component}/{tup.stream}"
        self._count("__slow-tuples", source, 1)
        self._tell(source, tup.task, took_ns, at)
        fresh = control_pb2.SlowTuple(
            at=at, source=source, source_task=tup.task, took_s=took_ns / 1e9, value=value, tuples=tuples
        )
        kept = [one for one in self.kept if one.at > at - KEEP_S]
        self.kept = tuple(sorted((*kept, fresh), key=lambda one: -one.took_s)[:KEPT])

    def _tell(self, source: str, task: int, took_ns: float, at: float) -> None:
        if self._logged_at <= at < self._logged_at + LOG_EVERY_S:
            self._unlogged += 1
            return
        more = f"; {self._unlogged} more slow calls since the last such line" if self._unlogged else ""
        log.warning(
            "process() took %s for a tuple from %s, sent by task %d, and heron.instance.slow_ms is %s; "
            "'heron slow' shows the tuple's value%s",
            format_duration(took_ns / 1e9),
            source,
            task,
            format_duration(self.limit_ns / 1e9),
            more,
        )
        self._logged_at, self._unlogged = at, 0


#: Seconds for which a sample counts.
LOOKS_KEEP_S = 300.0
#: Maximum number of samples, whatever the interval of reports.
LOOKS_KEPT = 600
LINE_LETTERS = 200
#: Number of chunks whose first tuple is recorded after each look.
WISHES = 10

#: Maps component and stream to the fields of the grouping with their places in the tuple.
Keys = Mapping[tuple[str, str], Sequence[tuple[str, int]]]


def keys_of(
    plan: plan_pb2.PhysicalPlan, component: str, schemas: Mapping[str, Sequence[tuple[str, list[str]]]]
) -> Keys:
    """Return the keys by which tuples are routed to a bolt, for each keyed stream. `schemas` is as in routing.py."""
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for bolt in plan.topology.bolts:
        for source in bolt.inputs if bolt.comp.name == component else ():
            of, stream = source.stream.component_name, source.stream.id
            fields = next((names for name, names in schemas.get(of, ()) if name == stream), [])
            if source.gtype == topology_pb2.FIELDS:
                keys = [key.key for key in source.grouping_fields.keys if key.key in fields]
                found[of, stream] = [(key, fields.index(key)) for key in keys]
    return found


class Looks:
    """Finds the hot lines of one task by sampling, and its hot keys on request. The task's thread calls `note`; the
    control thread calls all other methods. The control thread samples whenever it reports, about once a second. To find
    the line, it reads the stack of the task's thread. It can do so only when that thread waits or has computed for some
    milliseconds, so the line of short calls that do not wait remains unknown. If keys are requested, the task's thread
    records the keys of the first tuples of its next chunks. Without a request, the cost is one comparison per chunk.
    """

    def __init__(self) -> None:
        #: Returns the tuple or batch that user code is processing, and its frames, innermost first.
        self.in_hand: Callable[[], tuple[Part | None, list[FrameType]]] = lambda: (None, [])
        self.keys: Keys = {}
        #: Number of tuples that are still to be recorded.
        self.wished = 0
        #: The samples: the time, and what was seen.
        self._lines: deque[tuple[float, str]] = deque(maxlen=LOOKS_KEPT)
        self._keys: deque[tuple[float, str]] = deque(maxlen=LOOKS_KEPT * WISHES)

    def look(self, now: float) -> None:
        """Take one sample; `now` is monotonic."""
        self.wished = WISHES if self.keys else 0
        part, frames = self.in_hand()
        if part is not None:
            self._lines.append((now, _users_line(frames)[:LINE_LETTERS]))

    def note(self, tup: HeronTuple, now: float) -> None:
        """Record the first tuple of a chunk, if it was requested."""
        self.wished -= 1
        keys, values = self.keys.get((tup.component, tup.stream)), tup.values
        if keys and not isinstance(values, DamagedValues):
            key = ", ".join(f"{name}={shown(values[place])}" for name, place in keys if place < len(values))
            self._keys.append((now, key[:VALUE_LETTERS]))

    def told(self, now: float) -> control_pb2.TaskLooks | None:
        """Return the most frequent sample; None without samples."""
        lines, keys = (_counted(seen, now) for seen in (self._lines, self._keys))
        if not lines and not keys:
            return None
        found = control_pb2.TaskLooks(looks=lines.total(), keyed=keys.total())
        del lines[""]
        if lines:
            [(found.line, found.at_line)] = lines.most_common(1)
        if keys:
            [(found.key, found.of_key)] = keys.most_common(1)
        return found


def _users_line(frames: Sequence[FrameType]) -> str:
    """Return the innermost line of the user's code, or "". Lines of the runtime are never reported."""
    found = [(one.f_code.co_filename, one.f_lineno or 0, one.f_code.co_name) for one in frames]
    return line_of(found, _is_foreign) if not all(is_runtime_frame(file) for file, _, _ in found) else ""


def _is_foreign(file: str) -> bool:
    return is_installed(file) or is_runtime_frame(file)


def _counted(seen: deque[tuple[float, str]], now: float) -> Counter[str]:
    while seen and seen[0][0] < now - LOOKS_KEEP_S:
        seen.popleft()
    # The copy is atomic, even if the other thread adds entries.
    return Counter(text for _, text in tuple(seen))


class Executed:
    """The statistics of one bolt task, used by the task's thread. Times are in nanoseconds, and `now` in monotonic
    seconds."""

    def __init__(self, metrics: TaskMetrics) -> None:
        self._metrics = metrics
        self._times = ExecuteTimes()

    def singly(self, source: str) -> bool:
        """Return whether to time each call for tuples of this source (a "component/stream")."""
        return self._times.singly(source)

    def chunk(
        self, source: str, first: HeronTuple, count: int, took_ns: float, stamps: Sequence[int], now: float
    ) -> list[Sample]:
        """Record the calls for the tuples from `first` on, all of one frame; `source` is its first stream.

        `stamps` is as in ExecuteTimes. Returns the samples with which the calls were recorded.
        """
        samples = self._times.samples(source, count, took_ns, stamps)
        streams = first.frame.streams
        if streams is None:
            self._metrics.executed(source, count, took_ns, samples, now)
            return samples
        for stream, own in by_stream(streams[first.index : first.index + count], samples).items():
            number, own_ns = sum(n for _, n in own), sum(each * n for each, n in own)
            self._metrics.executed(f"{first.frame.component}/{stream}", number, own_ns, own, now)
        return samples

    def call(self, tup: HeronTuple, took_ns: float, now: float) -> None:
        """Record one call that ran concurrently with others."""
        sample: Sample = (took_ns, 1)
        self._metrics.executed(f"{tup.component}/{tup.stream}", 1, took_ns, [sample], now)

    def batch(self, batch: InBatch, took_ns: float, now: float) -> None:
        """Record one call for many tuples; how its time divides among them is unknown."""
        source, count = f"{batch.component}/{batch.stream}", len(batch)
        self._metrics.executed(source, count, took_ns, [(took_ns / count, count)], now)
        self._metrics.slowest_call(source, took_ns, now)

    def path_ended(self, first: HeronTuple, count: int, wall_ns: int) -> None:
        """Record that tuples of a marked frame, from `first` on, ended their path here: their age is an end-to-end
        latency.

        `wall_ns` is now, in nanoseconds since the epoch.
        """
        age_ns = max(0, wall_ns - first.frame.origin_ns)
        self._metrics.observe("__end-to-end-latency", f"{first.component}/{first.stream}", age_ns, count)


LOOKS_PER_TIMEOUT = 4
#: Seconds for the report to reach the executor.
LAST_WORDS_S = 0.5


class ExecuteWatch(threading.Thread):
    """Watches the thread that creates it.

    Ends a task if `process` lasts too long for one tuple (heron.instance.execute_timeout_s). The watching thread
    reads the tuple in progress from the stack of the task's thread, so the calls themselves cost nothing. A tuple that
    is seen in progress twice, with the timeout in between, has exceeded its time: it is charged, its stack is reported
    as an exception, and this thread ends the process, because the task's own thread hangs. User code that holds the
    interpreter lock also stops this thread; heron.instance.hang_timeout_s covers that case.
    """

    def __init__(
        self,
        name: TaskName,
        progress: Progress,
        timeout_s: float,
        code: CodeType,
        overran: Callable[[Part, str], None],
        control: ControlThread,
    ) -> None:
        """`code` is the runtime's function whose local `tup` is the tuple that user code processes."""
        super().__init__(name="execute-watch", daemon=True)
        self._task = name
        self._progress = progress
        self._timeout_s = timeout_s
        self._code = code
        self._overran = overran
        self._control = control
        self._watched = threading.get_ident()
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        pause_s = self._timeout_s / LOOKS_PER_TIMEOUT
        seen: Part | None = None
        since = 0.0
        while not self._stop.wait(pause_s):
            if self._progress.loop_age_s() < pause_s:
                seen = None
                continue
            now = time.monotonic()
            tup, frames = in_hand(self._watched, self._code)
            if tup is None or tup is not seen:
                seen, since = tup, now
            elif now - since >= self._timeout_s:
                self._end(tup, frames, now - since)

    def _end(self, tup: Part, frames: list[FrameType], took_s: float) -> None:
        stack = "".join(traceback.format_list([_summary(frame) for frame in reversed(frames)]))
        what = "process() has lasted {} for a tuple"
        if isinstance(tup, InBatch):
            what = f"process_batch() has lasted {{}} for {len(tup)} tuples"
        message = (
            f"{what.format(format_duration(took_s))} from {tup.component}/{tup.stream},"
            f" and heron.instance.execute_timeout_s is {format_duration(self._timeout_s)}"
        )
        text = f"Traceback (most recent call last):\n{stack}ExecuteTimeout: {message}"
        log.error("%s", text)
        try:
            self._overran(tup, text)
            self._control.publish(exception_report(self._task, "ExecuteTimeout", message, text))
            self._control.stop(LAST_WORDS_S)
            # The sockets of the hanging thread stay open, so this only gives the other sockets time to send their
            # messages.
            ending = threading.Thread(target=zmq.Context.instance().term, daemon=True)
            ending.start()
            ending.join(LAST_WORDS_S)
        finally:
            sys.stdout.flush()
            exit_notice.leave(exit_codes.USER_EXCEPTION)


def in_hand(thread: int, code: CodeType) -> tuple[Part | None, list[FrameType]]:
    """Return the tuple or batch that a task's thread gave to user code, and the frames of user code, innermost first.

    `code` belongs to the runtime's function whose local `tup` is that tuple. Returns None if no user code runs.
    """
    frame = sys._current_frames().get(thread)
    frames: list[FrameType] = []
    while frame is not None:
        if frame.f_code is code:
            tup = frame.f_locals.get("tup")
            return (tup, frames) if frames and isinstance(tup, HeronTuple | InBatch) else (None, [])
        frames.append(frame)
        frame = frame.f_back
    return None, []


def _summary(frame: FrameType) -> traceback.FrameSummary:
    code = frame.f_code
    return traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name)
