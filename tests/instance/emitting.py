"""The emitter with a fake `send`; what it sends is decoded again as a receiver does."""

from __future__ import annotations

import itertools
from typing import Any

from msgspec.structs import replace

from heronpy.common.setting_types import InstanceSettings
from heronpy.task.emitter import Emitter, mark_of
from heronpy.task.outlets import OutStream
from heronpy.task.roots import PendingRoots
from heronpy.task.tuples import HeronTuple, InFrame, make_mixed_tuples, make_tuples
from heronpy.wire import codec
from heronpy.wire.frames import DATA, Frame, unpack16

TASK = 7
DECODE = codec.decoder()


class Harness:
    """One emitter, and the frames that it has sent."""

    def __init__(
        self,
        streams: dict[str, tuple[list[str], list[Any]]],
        tracked: str | None = None,
        direct: tuple[str, ...] = (),
        frame_max: int = 64 << 20,
        serialize: Any = None,
        **changed: Any,
    ) -> None:
        self.frames: list[Any] = []
        self.rooms = 0
        bits = itertools.count(0x1234567)
        names = sorted(streams)
        self.names = names
        self.widths = [len(streams[name][0]) for name in names]
        self.pending = PendingRoots(1 << 40)
        self.emitter = Emitter(
            "word", TASK, [OutStream(n, i, streams[n][0], n in direct) for i, n in enumerate(names)],
            replace(InstanceSettings(), **changed), self.send, lambda: next(bits) * 0x9E3779B97F4A7C15 % 2**64,
            tracked=tracked, pending=self.pending, serialize=serialize, room=lambda: self.room(), frame_max_bytes=frame_max,
        )  # fmt: skip
        self.emitter.route({name: choosers for name, (_, choosers) in streams.items()})
        self.emit = self.emitter.compile_emit("bolt", self.special, NoHooks, lambda tup_id: None) or self.special

    def room(self) -> None:
        self.rooms += 1

    def special(self, tup: Any, stream: str = "default", anchors: Any = None, direct_task: Any = None,
                need_task_ids: bool = False) -> Any:  # fmt: skip
        out = self.emitter.streams[stream]
        mark = mark_of(anchors) if anchors is not None and self.emitter.tracked else None
        if direct_task is None and not need_task_ids:
            return self.emitter.push(out, tup, mark)
        return self.emitter.emit_to(out, tup, mark, direct_task)

    def track(self, tup: Any, tup_id: Any, stream: str = "default") -> None:
        self.emitter.push(self.emitter.streams[stream], tup, tup_id)

    def send(self, dest: int, data: bytes, tuples: int) -> None:
        frame = Frame.FromString(data)
        assert frame.source_task == TASK
        assert (frame.kind == DATA and frame.dest_task == dest and frame.count == tuples) or not tuples
        self.frames.append(frame)

    def data(self) -> list[Any]:
        self.emitter.flush()
        return [frame for frame in self.frames if frame.kind == DATA]

    def got(self) -> dict[int, list[tuple[str, list[Any]]]]:
        """Destination -> (stream, values) in the order of arrival."""
        found: dict[int, list[tuple[str, list[Any]]]] = {}
        for frame in self.data():
            flat = DECODE(frame.payload, frame.codec)
            kinds = unpack16(frame.streams) if frame.streams else [frame.stream] * frame.count
            inner = InFrame("word", self.names[frame.stream], TASK, frame.count, 0.0)
            inner.streams = [self.names[kind] for kind in kinds]
            for tup in make_mixed_tuples(flat, [self.widths[kind] for kind in kinds], inner):
                found.setdefault(frame.dest_task, []).append((tup.stream, tup.values))
        return found

    def values(self) -> dict[int, list[list[Any]]]:
        return {dest: [values for _, values in tuples] for dest, tuples in self.got().items()}


class NoHooks:
    has_hooks = False


def frame_of(count: int, many: dict[int, list[tuple[int, int]]] | None = None) -> list[HeronTuple]:
    """Tuples of a tracked frame, with one root each or those given."""
    envelope = Frame(kind=DATA, count=count, tracked=True, root_base=100, root_task=1, edge=5)
    inner = InFrame("up", "default", 1, count, 0.0)
    inner.track(envelope)
    return make_tuples(list(range(count)), 1, inner)
