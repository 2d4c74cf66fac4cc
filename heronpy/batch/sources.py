"""The spouts of a stage. Each spout turns its input into tuples in steps, so that the worker can answer requests
between two steps."""

from __future__ import annotations

import asyncio
import inspect
import math
import select
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from heronpy.api.spout.base_spout import BaseSpout
from heronpy.api.spout.split_spout import To, split_of
from heronpy.batch.cells import ObjectCell, SinkCell
from heronpy.batch.exchange import EndlessError, Saved
from heronpy.connectors.textfiles.textfilespout import TextFileSpout, flag
from heronpy.plan.emit_rules import Columns
from heronpy.proto import components_of
from heronpy.task.user_code import columns_of, emit_columns, emit_one

#: Number of lines, or of tuples of a split, in one step.
CHUNK = 1024
#: Number of lines in one step if each line passes through the stage separately.
APART = 256
#: Seconds: longest pause of a step, and pause after a call that emitted nothing and set no time for the next call.
_PAUSE_S, _DRY_S = 0.01, 0.001


class EndlessSpoutError(EndlessError):
    """A spout may be endless, so it cannot run in a batch."""

    def __init__(self, spout: str, what: str, fix: str) -> None:
        super().__init__(
            f"spout '{spout}' {what} and has not called end_of_input(), so it may not end, and a batch needs a spout"
            f" that ends: {fix}use --mode stream, or raise heron.batch.spout_end_s"
        )


class SpoutCell(ObjectCell):
    """A cell with a spout; emitted tuples count as acked immediately."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._acked: list[Any] = []
        self._has_ended = False
        self._is_bounded = "bounded" in components_of(self.place.plan.topology)[self.component].comp.traits
        self._emitted = -1
        self._began_at = self._active_at = 0.0
        self._call_at = 0.0
        self._call_on = -1

    def prepare(self) -> None:
        delegate = self.user.delegate
        delegate.emit, delegate.emit_batch = self._emit_any, self._emit_batch
        delegate.end_of_input, delegate.wait = self._end_of_input, self._wait
        delegate.wait_readable, delegate.busy = self._wait_readable, self._stay_busy

    def bind(self) -> None:
        delegate, spout = self.user.delegate, self.user.object
        emit = self.emitter.compile_emit("spout", self._emit_any, self.user.context, self._acked.append)
        delegate.emit = emit = emit or self._emit_any
        if type(spout).emit is BaseSpout.emit and getattr(spout, "delegate", None) is delegate:
            spout.emit = emit

    def _emit_any(
        self, tup: Any, tup_id: Any = None, stream: str = "default", direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:  # fmt: skip
        if tup_id is not None:
            self._acked.append(tup_id)
        out = self.stream_named(stream)
        return emit_one(self.emitter, self.user.context, out, tup, None, direct_task, need_task_ids)

    def _emit_batch(self, columns: Any, *, rows: Any, ids: Any, stream: str, direct_task: int | None) -> None:
        out = self.stream_named(stream)
        given = columns_of(self.emitter, out, columns, rows, "ids", None if ids is None else len(ids))
        self._acked += [tup_id for tup_id in ids or () if tup_id is not None]
        emit_columns(self.emitter, self.user.context, out, given, None, direct_task)

    def _end_of_input(self) -> None:
        self._has_ended = True

    def _wait(self, seconds: float) -> None:
        self._call_at = time.monotonic() + seconds

    def _stay_busy(self) -> None:
        self._call_at = self._call_at or time.monotonic()

    def _wait_readable(self, fd: int) -> None:
        self._call_on = fd

    def calls(self) -> Iterator[None]:
        """Call the spout until it declares the end of its input."""
        self._began_at = self._active_at = time.monotonic()
        self.guard(self.user.object.activate)
        while not self._has_ended:
            if not self._rests():
                self.guard(self.user.object.next_tuple)
                self.tell_acks()
            if not self.check_end() and not self._call_at:
                self._call_at = time.monotonic() + _DRY_S
            yield

    def check_end(self) -> bool:
        """Whether the spout has emitted since the last check. Raises EndlessSpoutError if the spout may be endless."""
        now, limit_s = time.monotonic(), self.place.spout_end_s
        before, self._emitted = self._emitted, self.emitter.emitted()
        if before != self._emitted:
            self._active_at = now
        elif now - self._active_at >= limit_s:
            raise EndlessSpoutError(self.component, f"has emitted nothing for {limit_s:g} s", "")
        if now - self._began_at >= limit_s and not self._is_bounded:
            fix = "set `bounded = True` in its class if it ends, "
            raise EndlessSpoutError(self.component, f"has emitted {self._emitted:,} tuples in {limit_s:g} s", fix)
        return before != self._emitted

    def _rests(self) -> bool:
        """If the spout's next call is not due, wait briefly; return whether the call is still not due."""
        if not self._call_at and self._call_on < 0:
            return False
        left_s = self._call_at - time.monotonic() if self._call_at else math.inf
        pause_s, came = max(0.0, min(_PAUSE_S, left_s)), False
        if self._call_on < 0:
            time.sleep(pause_s)
        else:
            poll = select.poll()
            poll.register(self._call_on, select.POLLIN)
            came = bool(poll.poll(pause_s * 1000))
        if not came and left_s > _PAUSE_S:
            return True
        self._call_at, self._call_on = 0.0, -1
        return False

    def tell_acks(self) -> None:
        """Report the ids of the emitted tuples as acked."""
        if self._acked:
            ids, context = list(self._acked), self.user.context
            self._acked.clear()
            for tup_id in ids:
                self.told(self.guard(self.user.object.ack, tup_id))
                if context.has_hooks:
                    context.invoke_hook_spout_ack(tup_id, 0.0)

    def told(self, result: Any) -> None:
        """Handle the result of `ack`."""

    def end(self) -> None:
        super().end()
        self.tell_acks()


class AsyncSpoutCell(SpoutCell):
    """A cell with a spout that defines `async def run`; the following cells wait while `run` is active."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loop = asyncio.new_event_loop()
        self._is_running = False

    def bind(self) -> None:
        super().bind()
        delegate, emit = self.user.delegate, self.user.delegate.emit

        async def emit_later(*args: Any, **kwargs: Any) -> Any:
            return emit(*args, **kwargs)

        async def emit_batch(*args: Any, **kwargs: Any) -> Any:
            return self._emit_batch(*args, **kwargs)

        delegate.emit, delegate.emit_batch = emit_later, emit_batch

    def calls(self) -> Iterator[None]:
        run = self._loop.create_task(self.user.object.run())
        self._began_at = self._active_at = time.monotonic()
        while not run.done():
            self._turn(asyncio.wait({run}, timeout=_PAUSE_S))
            self.tell_acks()
            self.check_end()
            yield
        self.guard(run.result)

    def _turn(self, waiting: Any) -> None:
        self._is_running = True
        try:
            self.guard(self._loop.run_until_complete, waiting)
        finally:
            self._is_running = False
        self.flow()

    def told(self, result: Any) -> None:
        if inspect.isawaitable(result):
            self._turn(result)

    def flow(self) -> None:
        if not self._is_running:
            super().flow()

    def close(self) -> None:
        super().close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            self._loop.run_until_complete(asyncio.wait({task}))
        self._loop.close()


class LinesCell(SpoutCell):
    """A cell for a `TextFileSpout`. The lines come from a unit, so no object of the class is created."""

    def begin(self) -> None:
        """Create no object, because the class is not used."""
        self.guard(self.user.prepare_groupings)
        self.guard(self.user.context.invoke_hook_prepare)

    def saved(self) -> Iterator[Saved]:
        return iter(())

    def lines(self, unit: Any) -> Iterator[None]:
        """Emit the lines of a unit.

        If the unit has failed before, each chunk of lines passes through the whole stage before the next chunk starts;
        from `unit.apart` on, each line does, so that an error can be attributed to a line.
        """
        stream = self.stream_named("default")
        if unit.tries:
            yield from self._lines_apart(unit, stream)
            return
        if flag(self.user.config.get(TextFileSpout.EMIT_OFFSET, False)):
            located = unit.located()
            while rows := list(islice(located, CHUNK)):
                self.push([list(column) for column in zip(*rows)], len(rows), stream)
                yield
            return
        for texts in unit.texts():
            for low in range(0, len(texts), CHUNK):
                part = texts[low : low + CHUNK]
                self.push([part], len(part), stream)
                yield

    def _lines_apart(self, unit: Any, stream: Any) -> Iterator[None]:
        located = flag(self.user.config.get(TextFileSpout.EMIT_OFFSET, False))
        rows = unit.located() if located else ((text,) for text in unit.lines())
        cells = (self, *self.behind)
        number = 0
        while unit.apart is None or number < unit.apart:
            unit.process_together(number)
            if not (chunk := list(islice(rows, CHUNK))):
                break
            self.push([list(column) for column in zip(*chunk)], len(chunk), stream)
            for cell in cells:
                cell.drain()
                cell.emitter.send_buffered()
            yield
            number += len(chunk)
        unit.process_together(None)
        # The writer of a sink gets the rows of a step together, and may refuse one of them.
        lines = 1 if any(isinstance(cell, SinkCell) for cell in cells) else APART
        for number, row in enumerate(rows, 1):
            self.push([[value] for value in row], 1, stream)
            for cell in cells:
                cell.drain()
                cell.emitter.send_buffered()
            if number % lines == 0:
                yield

    def push(self, columns: list[list[Any]], size: int, stream: Any) -> None:
        given = Columns(columns, size)
        emit_columns(self.emitter, self.user.context, stream, given, None, None)


class SplitsCell(SpoutCell):
    """A cell with a `SplitSpout`, which reads the splits of a unit."""

    def prepare(self) -> None:
        super().prepare()
        # The splits of the run are already listed.
        self.user.object.splits = _no_splits

    def saved(self) -> Iterator[Saved]:
        return iter(())

    def split(self, line: str) -> Iterator[None]:
        """Emit the tuples of a split."""
        delegate = self.user.delegate
        items = iter(self.guard(self.user.object.read, split_of(line)))
        while chunk := self.guard(list, islice(items, CHUNK)):
            for item in chunk:
                if isinstance(item, To):
                    self.guard(self._emit_to, item.values, item.stream)
                elif hasattr(item, "schema"):
                    self.guard(lambda batch=item: self._emit_batch(
                        batch, rows=None, ids=None, stream="default", direct_task=None
                    ))  # fmt: skip
                else:
                    self.guard(delegate.emit, item)
            yield

    def _emit_to(self, values: Sequence[Any], stream: str) -> None:
        self.user.delegate.emit(values, stream=stream)


def _no_splits(config: dict[str, Any]) -> Sequence[Any]:
    return ()
