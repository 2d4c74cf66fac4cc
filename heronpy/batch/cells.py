"""A component of a stage in one process: the user's object, its emitter and its queue.

A component emits frames, as a task does. A frame for a component of the same stage waits in that cell's queue until the
sender's buffer is full; then the following cells process their queues. So memory never contains more than the frames of
one flush. Frames for later stages become pieces of the unit. A user exception passes through the user code of preceding
cells as a BaseException.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

from msgspec import Struct

from heronpy.api.bolt.base_bolt import NotReadyError
from heronpy.api.bolt.bolt import takes_batches
from heronpy.api.state.keyed_state import KeyedStates, KeyOwner, PartitionedState, PartitionOwner
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent, call_pre_save
from heronpy.api.tuple import TupleHelper
from heronpy.batch.exchange import ForSink, ForStage, Piece, Saved
from heronpy.batch.metrics import RunMetrics, UnitMetrics, close
from heronpy.ckpt.state_bytes import BASE, encode_plain, encode_segments
from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import InstanceSettings
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import plan_pb2
from heronpy.proto.checkpoint_pb2 import KeyedState as KeyedRecord
from heronpy.proto.checkpoint_pb2 import Segment, TaskSnapshot
from heronpy.task.acks import OneOrMany, several
from heronpy.task.emitter import UNLIMITED, Emitter
from heronpy.task.name import TaskName
from heronpy.task.opening import FrameReader
from heronpy.task.outlets import OutStream
from heronpy.task.routing import arrow_schemas, output_streams
from heronpy.task.tuples import DamagedValues, HeronTuple
from heronpy.task.user_code import BoltCalls, UserCode
from heronpy.wire.frames import Frame

log = logging.getLogger("heron.batch")

#: Maximum number of a frame's tuples that are processed in one step.
PART = 4096
#: Number of failed tuples of one bolt after which a unit fails.
FAILS_MAX = 100
#: Number of frames that a component holds back if all its consumers are in other stages. Many buckets share them, and
#: larger frames cost less per tuple.
FAR_FRAMES = 32
#: Interval in seconds at which `is_ready` of an unready bolt is called.
_ASK_S = 0.05


class CellError(BaseException):
    """User code of a component raised an exception; `__cause__` is that exception."""

    def __init__(self, component: str) -> None:
        super().__init__(component)
        self.component = component


class Way(Struct, frozen=True):
    """The destination of frames for a task in another stage."""

    stage: int
    bucket: int


class Place(Struct, frozen=True):
    """The data that the cells of one unit share: the run's plan, and the unit's place in the plan."""

    plan: plan_pb2.PhysicalPlan
    components: Mapping[int, str]
    launch: LaunchSpec | None
    #: Task index and number of tasks, for each component of the stage.
    index: int
    tasks: int
    #: Number of key groups of a topology with checkpoints; otherwise 0.
    key_groups: int
    #: Whether a savepoint will be written.
    saves: bool
    pieces: list[Piece]
    report: Callable[[Exception], None]
    #: Called with a component and the number of tuples that it has failed since the last call.
    failed: Callable[[str, int], None]
    metrics: RunMetrics
    #: Number of failed tuples in this unit, by component.
    fails: Counter[str]
    #: See BatchSettings.
    spout_end_s: float


class UnitState:
    """The saved state of a task, empty at first."""

    def __init__(self, component: str, place: Place, width: int, allow_pickle: bool) -> None:
        at = (place.index, place.tasks)
        self.plain = HashMapState()
        owner = KeyOwner(component, *at, place.key_groups, width)
        # Nothing reads the changes, because the whole state is saved once.
        self.keyed = KeyedStates(owner, allow_pickle, PartitionOwner(component, lambda: at), tracks=False)

    @property
    def state(self) -> UnitState:
        """This object itself: the methods that restore a task read the state from an attribute `state`."""
        return self

    def check_component(self, component: Any) -> None:
        """Accept every component, because nothing is restored."""

    def pre_restore(self, component: Any) -> None:
        """Do nothing, because nothing is restored."""

    def __bool__(self) -> bool:
        return bool(self.plain) or any(self.keyed.states.values())


class UnitAcks:
    """Ignores acks, and counts failed tuples."""

    acking = False

    def __init__(self) -> None:
        self.failed = 0

    def ack(self, tup: OneOrMany) -> None:
        """Ignore the ack, because tuples are not tracked."""

    def fail(self, tup: OneOrMany) -> None:
        """Count a failed tuple."""
        self.failed += len(several(tup, "fail"))


class Cell:
    """The base class of cells.

    `near`: map from task to cell, within the stage. `far`: map from task to destination, for later stages.
    """

    def __init__(self, component: str, task_id: int, place: Place, settings: InstanceSettings, width: int = 1) -> None:
        self.component = component
        self.place = place
        self.settings = settings
        topology = place.plan.topology
        self.user = UserCode(
            TaskName(task_id, 1, component, 1), place.launch, UnitMetrics(component, place.metrics), place.plan
        )
        self.state: UnitState | None = None
        if place.key_groups:
            self.state = UnitState(component, place, width, settings.allow_pickle)
            self.user.know_state(1, self.state)
        streams = [
            OutStream(name, number, fields, direct, schema)
            for number, ((name, fields, direct), schema) in enumerate(
                zip(output_streams(topology, component), arrow_schemas(topology, component))
            )
        ]
        self.emitter = Emitter(
            component,
            task_id,
            streams,
            settings,
            self._send,
            _no_bits,
            serialize=self.user.serialize,
            room=self.flow,
        )
        self.emitter.batches.limit_to(settings.batch_tuples)
        self.emitter.burst = UNLIMITED
        self.queue: deque[bytes] = deque()
        self.near: dict[int, Cell] = {}
        self.far: dict[int, Way] = {}
        #: The following cells, each after all cells that feed it; empty until all cells are initialised.
        self.behind: list[Cell] = []

    def route(self, choosers: dict[str, list[Any]], start: int) -> None:
        """Set the objects that choose tasks. Shuffles begin at task `start`, so that small units use all buckets."""
        if not any(task in self.near for each in choosers.values() for one in each for task in one.tasks):
            self.emitter.frames = FAR_FRAMES
        self.emitter.route(choosers)
        for stream in self.emitter.streams.values():
            if stream.shared is not None:
                stream.shared.turn = start

    def _send(self, dest: int, frame: bytes, tuples: int) -> None:
        cell = self.near.get(dest)
        if cell is not None:
            cell.queue.append(frame)
        else:
            way = self.far[dest]
            self.place.pieces.append(ForStage(way.stage, way.bucket, frame, tuples))

    def flow(self) -> None:
        """Make the following cells process the frames in their queues."""
        for cell in self.behind:
            if cell.queue:
                cell.drain()

    def drain(self) -> None:
        while self.queue:
            self.take(self.queue.popleft())

    def take(self, data: bytes) -> None:
        for _ in self.steps(data):
            pass

    def steps(self, data: bytes) -> Iterator[None]:
        """Process a frame in parts, so that the worker can answer requests between two parts."""
        raise NotImplementedError(f"{type(self).__name__} must define steps")

    def begin(self) -> None:
        """Create and initialise the user's object."""

    def end(self) -> None:
        self.emitter.flush()

    def saved(self) -> Iterator[Saved]:
        """Return the state to be saved, in pieces."""
        return iter(())

    def close(self) -> None:
        """Close the user's object."""

    def guard(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call user code; raise CellError if it raises an exception."""
        try:
            return call(*args)
        except (Exception, SystemExit) as error:
            raise CellError(self.component) from error


class ObjectCell(Cell):
    """A cell with an object of the user's class. `kept` is an earlier unit's object, if it is reused."""

    def __init__(self, *args: Any, kept: UserCode | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_kept = kept is not None
        if kept is not None:
            self.user = kept

    def begin(self) -> None:
        if not self.is_kept:
            self.guard(self.user.construct)
        delegate = self.user.delegate
        delegate.report_error, delegate.wait_outside = self.place.report, _wait_nowhere
        self.prepare()
        if not self.is_kept:
            self.guard(self.user.initialize, self.state)
        self.bind()

    def prepare(self) -> None:
        """Set the methods that the user's object may call; called before `initialize`."""

    def bind(self) -> None:
        """Replace `emit` with a faster version; called after `initialize`."""

    def stream_named(self, stream: str) -> OutStream:
        """Return a declared output stream. Raises TopologyError for another name."""
        found = self.emitter.streams.get(stream)
        if found is None:
            raise self.emitter.rules.undeclared(stream, self.emitter.streams)
        return found

    @property
    def has_state(self) -> bool:
        """Whether a stream continues with the state of this component."""
        return self.place.saves and (bool(self.state) or isinstance(self.user.object, StatefulComponent))

    def saved(self) -> Iterator[Saved]:
        state, component, index = self.state, self.component, self.place.index
        if state is None or not self.place.saves:
            return
        if isinstance(self.user.object, StatefulComponent):
            self.guard(call_pre_save, self.user.object, "1")
        allow_pickle = self.settings.allow_pickle
        plain = self.guard(encode_plain, state.plain, allow_pickle, component)
        if plain:
            snapshot = TaskSnapshot(component=component, component_index=index, stateful=True, state_inline=plain)
            yield Saved(component, index, snapshot.SerializeToString())
        for name, keyed in state.keyed.states.items():
            assert keyed.owner is not None
            cut = keyed.cut(None)
            parts = encode_segments(BASE, cut.keys(), keyed.owner.group_of, cut.entry, allow_pickle)
            while (part := self.guard(next, parts, None)) is not None:
                segment = Segment(
                    entries=part.entries, first_group=part.first_group, last_group=part.last_group, inline=part.data
                )
                is_partitioned = isinstance(keyed, PartitionedState)
                record = KeyedRecord(name=name, segments=[segment], keys=part.entries, partitioned=is_partitioned)
                snapshot = TaskSnapshot(component=component, component_index=index, keyed=[record])
                yield Saved(component, index, snapshot.SerializeToString())

    def close(self) -> None:
        if not (self.user.initialized and getattr(self.user.object, "reusable", False)):
            close(self.user)


class ReadingCell(ObjectCell):
    """A cell whose input is frames."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reader = reader_of(self.user, self.place, self.settings)


class BoltCell(ReadingCell):
    """A bolt with `process` or `process_batch`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.acks = UnitAcks()
        self._calls = BoltCalls(self.component, self.user, self.emitter, self.acks, self.stream_named)
        self.in_batches = False

    def prepare(self) -> None:
        self.in_batches = takes_batches(type(self.user.object))
        self._calls.prepare()

    def bind(self) -> None:
        self._calls.bind()
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        is_ready, limit_s, began = self.user.object.is_ready, self.settings.ready_timeout_s, time.monotonic()
        why = ""
        while True:
            try:
                if self.guard(is_ready):
                    return
            except CellError as error:
                if not isinstance(error.__cause__, NotReadyError):
                    raise
                why = f": {error.__cause__}"
            if limit_s and time.monotonic() - began >= limit_s:
                raise CellError(self.component) from TopologyError(
                    f"{self.component} is not ready after {limit_s:g} s{why} (heron.instance.ready_timeout_s)"
                )
            time.sleep(_ASK_S)

    def steps(self, data: bytes) -> Iterator[None]:
        frame, now = Frame.FromString(data), time.monotonic()
        if self.in_batches:
            for part in self.reader.open_batches(frame, now):
                self._check(part)
                self.guard(self.user.object.process_batch, part)
                self.check_fails()
                yield
            return
        tuples = self.reader.open(frame, now)
        if self.reader.damaged:
            for tup in tuples:
                self._check(tup)
        # A frame for a bucket with a frequent key may be large.
        for low in range(0, len(tuples), PART):
            self.process(tuples[low : low + PART])
            self.check_fails()
            yield

    def _check(self, part: Any) -> None:
        if type(part) is HeronTuple and type(part.values) is DamagedValues:
            raise CellError(self.component) from part.values.error

    def check_fails(self) -> None:
        """Report the failed tuples; make the unit fail if too many tuples have failed."""
        fails = self.place.fails
        if self.acks.failed:
            self.place.failed(self.component, self.acks.failed)
            fails[self.component] += self.acks.failed
            self.acks.failed = 0
        if fails[self.component] >= FAILS_MAX:
            raise CellError(self.component) from TopologyError(
                f"it failed {fails[self.component]} tuples in one unit; a batch run accepts fewer than {FAILS_MAX} per"
                " unit"
            )

    def process(self, tuples: list[HeronTuple]) -> None:
        process, context = self.user.object.process, self.user.context
        try:
            if context.has_hooks:
                for tup in tuples:
                    start = time.monotonic()
                    process(tup)
                    context.invoke_hook_bolt_execute(tup, (time.monotonic() - start) * 1e9)
            else:
                for tup in tuples:
                    process(tup)
        except (Exception, SystemExit) as error:
            raise CellError(self.component) from error

    def end(self) -> None:
        user = self.user
        if not self.has_state:
            self.call(user.object.finish)
        elif user.tick_interval_s() is not None:
            # The input continues as a stream, so only time-dependent work is done.
            self.call(user.object.process_tick, TupleHelper.make_tick_tuple())
        self.check_fails()
        super().end()

    def call(self, method: Callable[..., Any], *args: Any) -> None:
        """Call a method, which may be a coroutine function."""
        self.guard(method, *args)


class AsyncBoltCell(BoltCell):
    """A bolt with `async def process`: it processes a bounded number of a frame's tuples concurrently.

    The following cells run after the event loop has stopped, because they may start an event loop themselves.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._runner = asyncio.Runner()
        self._is_running = False

    def process(self, tuples: list[HeronTuple]) -> None:
        self._run(self._process_all(tuples))

    def call(self, method: Callable[..., Any], *args: Any) -> None:
        self._run(_called(method, *args))

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._is_running = True
        try:
            self.guard(self._runner.run, coroutine)
        finally:
            self._is_running = False
        self.flow()

    async def _process_all(self, tuples: list[HeronTuple]) -> None:
        process, waiting = self.user.object.process, iter(tuples)

        async def work() -> None:
            for tup in waiting:
                await process(tup)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(tuples), self.settings.async_concurrency)):
                group.create_task(work())

    def guard(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return super().guard(call, *args)
        except CellError as error:
            cause = error.__cause__
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            raise CellError(self.component) from cause

    def flow(self) -> None:
        if not self._is_running:
            super().flow()

    def close(self) -> None:
        super().close()
        self._runner.close()


class SinkCell(ReadingCell):
    """A sink. Its rows are kept with the unit, and passed to the sink's target at the end of the run."""

    def begin(self) -> None:
        """Create no object: the class of a sink is not used."""

    def steps(self, data: bytes) -> Iterator[None]:
        for part in self.reader.open_batches(Frame.FromString(data), time.monotonic()):
            if isinstance(part, HeronTuple):
                assert isinstance(part.values, DamagedValues)
                raise CellError(self.component) from part.values.error
            self.place.pieces.append(ForSink(self.component, part))
            yield

    def saved(self) -> Iterator[Saved]:
        return iter(())


def reader_of(user: UserCode, place: Place, settings: InstanceSettings) -> FrameReader:
    """Return a reader for a component's input frames."""
    reader = FrameReader(_watch_nothing, acking=False, deserialize=user.deserialize, allow_pickle=settings.allow_pickle)
    reader.read_by(place.plan, dict(place.components))
    return reader


async def _called(method: Callable[..., Any], *args: Any) -> None:
    result = method(*args)
    if inspect.isawaitable(result):
        await result


def _watch_nothing(component: str, stream: str, task: int) -> None:
    return None


def _wait_nowhere(what: str, seconds: float) -> None:
    """Do nothing, because a batch run does not measure how long user code waits."""


def _no_bits() -> int:
    """Return 0, because a batch run tracks no tuples."""
    return 0
