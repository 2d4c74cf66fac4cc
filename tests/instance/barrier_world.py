"""One bolt of a test between its in-queue and its process, and the tasks before it."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto import plan_pb2
from heronpy.proto.checkpoint_pb2 import TaskSnapshot
from heronpy.task.name import TaskName
from heronpy.wire import codec
from heronpy.wire.frames import BARRIER, DATA, Frame
from instance.barriers import BoltCheckpoints
from instance.checkpoints import CutOutput, CutPorts, CutWork
from instance.in_queue import Entry, InQueue
from instance.metrics import TaskMetrics
from instance.progress import Progress
from tests.support.control import FakeControl

BOLT, SINK, ATTEMPT = 9, 10, 3


class Control(FakeControl):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def tell(self, message: Any) -> None:
        self.told.append(message)


class Notes:
    """Keeps what it processed."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []


class Capture:
    estimate_bytes = 0
    needs_fork = False
    persist = TaskSnapshot


class State:
    """The state of the bolt is what it has seen; snapshots are kept here."""

    index = 0
    restored: TaskSnapshot | None = None
    uploads = None

    def __init__(self, component: Notes, frames: list[bytes], settings: CheckpointSettings) -> None:
        self.component = component
        self.frames = frames
        self.settings = settings
        self.seen: dict[int, list[tuple[int, int]]] = {}
        self.channels: dict[int, list[bytes]] = {}
        self.fates: list[tuple[str, int]] = []

    def restore(self, location: str, attempt: int) -> list[bytes]:
        return self.frames

    def capture(self, checkpoint: int) -> Any:
        self.seen[checkpoint] = list(self.component.seen)
        return Capture()

    def write_channel(self, checkpoint: int, snapshot: TaskSnapshot, frames: list[bytes], tuples: int) -> None:
        self.channels[checkpoint] = frames
        snapshot.channel_tuples = tuples

    def persisted(self, checkpoint: int, snapshot: TaskSnapshot) -> None:
        self.fates.append(("persisted", checkpoint))

    def completed(self, checkpoint: int) -> None:
        self.fates.append(("completed", checkpoint))

    def aborted(self, checkpoint: int) -> None:
        self.fates.append(("aborted", checkpoint))


class World:
    """One bolt with `sources` tasks before it and a sink behind it."""

    def __init__(
        self,
        sources: int,
        component: Notes | None = None,
        alignment_bytes_max: int = 1 << 20,
        frames: list[bytes] | None = None,
    ) -> None:
        self.component = component or Notes()
        self.state = State(self.component, frames or [], CheckpointSettings(alignment_bytes_max=alignment_bytes_max))
        self.control = Control()
        self.metrics = TaskMetrics()
        self.errors: list[Exception] = []
        #: What the bolt has sent, and the tuples that it has emitted and not sent yet.
        self.out: list[Any] = []
        self.buffered = 0
        self.progress = Progress()
        self.received = self.returned = 0
        self.queue = InQueue(self.credit, self.progress)
        self.entry: Entry | None = None
        self.tuples: deque[tuple[int, int]] = deque()
        ports = CutPorts(
            TaskName(BOLT, 1, "note", 1),
            self.metrics,
            1 << 20,
            CutWork(
                component=lambda: self.component,
                describe=TaskSnapshot,
                guard=lambda call, *args: call(*args),
                report_exception=self.errors.append,
            ),
            CutOutput(
                flush=self.flush,
                receivers=lambda: [SINK],
                send=lambda data, tuples: self.out.append(Frame.FromString(data)),
                send_control=self.out.append,
            ),
            self.control,
        )
        region = plan_pb2.RegionRecord(components=["note"], attempt=ATTEMPT)
        self.checkpoints = BoltCheckpoints(ports, region, self.state, range(1, sources + 1), self.queue)
        self.checkpoints.restore()
        self.checkpoints.restored = region.started = True
        self.checkpoints.take_plan(plan_pb2.PhysicalPlan(regions=[region]))
        assert self.checkpoints.started
        self.sent = dict.fromkeys(range(1, sources + 1), 0)
        self.numbers = dict(self.sent)

    # ---- the link -----------------------------------------------------------------------------

    def credit(self, size: int, tuples: int) -> None:
        self.returned += size

    def relink(self) -> None:
        """The link is a new one: what came over the old one is here, its credit is void."""
        self.queue.lose_link()
        self.received = self.returned = 0

    def arrive(self, frame: Frame) -> None:
        size = frame.ByteSize()
        self.received += size
        self.checkpoints.admit(frame, size)

    def data(self, source: int, tuples: int = 1, attempt: int = ATTEMPT) -> None:
        first = self.numbers[source]
        values = [value for n in range(first, first + tuples) for value in (source, n)]
        if attempt == ATTEMPT:
            self.numbers[source] += tuples
            self.sent[source] += 1
        self.arrive(
            Frame(kind=DATA, source_task=source, dest_task=BOLT, count=tuples, attempt=attempt,
                  payload=codec.encode(values), codec=0)
        )  # fmt: skip

    def barrier(self, source: int, checkpoint: int, unaligned: bool = False, missing: int = 0, **more: Any) -> None:
        fields = {"attempt": ATTEMPT, "channel_frames": self.sent[source] + missing, **more}
        self.arrive(
            Frame(
                kind=BARRIER, source_task=source, dest_task=BOLT, checkpoint=checkpoint, unaligned=unaligned, **fields
            )
        )

    # ---- the loop -----------------------------------------------------------------------------

    def flush(self) -> None:
        if self.buffered:
            data = Frame(kind=DATA, source_task=BOLT, dest_task=SINK, count=self.buffered).SerializeToString()
            self.checkpoints.send(SINK, data, self.buffered)
            self.buffered = 0

    def note(self, message: Any) -> None:
        self.checkpoints.note(message)

    def step(self) -> None:
        """A turn of the loop: one tuple, so that a cut may fall into the middle of a frame."""
        if self.checkpoints.pending:
            self.checkpoints.work()
        if self.entry is None and self.queue.waiting:
            self.entry = self.checkpoints.next()
            if self.entry is not None:
                self.tuples.extend(recorded([self.entry.frame.SerializeToString()]))
        if self.entry is not None:
            self.component.seen.append(self.tuples.popleft())
            self.buffered += 1
            self.queue.done(self.entry, 1)
            self.entry = self.entry if self.tuples else None
        self.check()

    def settle(self) -> None:
        """Until there is nothing to do, and all is reported that can be."""
        while self.entry is not None or self.queue.waiting or self.checkpoints.pending or self.control.inbox:
            while self.control.inbox:
                self.note(self.control.inbox.popleft())
            self.step()
            job = self.checkpoints.writer._job
            if job is None or not job.records or job.ready.is_set():
                for thread in threading.enumerate():
                    if thread.name == "snapshot":
                        thread.join(60)

    def check(self) -> None:
        """Credit: of what came over this link, all was returned but that of the frames that owe it."""
        self.queue.validate()
        owed = sum(entry.size for entry in (*self.queue.order, *self.queue.waiting) if entry.owes)
        assert self.received - self.returned == owed

    def check_calm(self) -> None:
        assert not self.queue.waiting and not self.queue.opened() and self.returned == self.received
        assert self.progress.in_bytes == self.checkpoints.held_bytes()
        assert bool(self.progress.in_tuples) == bool(self.progress.in_bytes)

    def answers(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for message in self.control.told:
            assert message.checkpoint not in found, "answered twice"
            found[message.checkpoint] = message
        return found

    def barriers_out(self) -> list[Any]:
        return [frame for frame in self.out if frame.kind == BARRIER]


def first(numbers: dict[int, int]) -> dict[int, list[int]]:
    return {source: list(range(count)) for source, count in numbers.items()}


def packed(source: int, number: int, tuples: int, skip: int = 0) -> bytes:
    """A frame that a checkpoint held."""
    values = [value for n in range(number, number + tuples) for value in (source, n)]
    frame = Frame(kind=DATA, source_task=source, dest_task=BOLT, count=tuples, skip=skip, attempt=ATTEMPT - 1)
    frame.payload = codec.encode(values)
    data: bytes = frame.SerializeToString()
    return data


def by_source(pairs: list[tuple[int, int]], sources: int) -> dict[int, list[int]]:
    """The numbers of each source; without those of restored frames, which must come first."""
    for source in range(1, sources + 1):
        numbers = [n for s, n in pairs if s == source]
        assert numbers == sorted(set(numbers)), "twice, or not in order"
    return {source: [n for s, n in pairs if s == source and n >= 0] for source in range(1, sources + 1)}


def recorded(frames: list[bytes]) -> list[tuple[int, int]]:
    found = []
    for data in frames:
        frame = Frame.FromString(data)
        flat = codec.decoder(None, False)(frame.payload, frame.codec)
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        found += pairs[frame.skip :]
    return found
