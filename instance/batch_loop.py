"""The loop of a bolt that defines `process_batch`: one call for the tuples of one stream in a frame.

Frames, acks, ticks and cuts work as in bolt_loop.py; checkpoints are taken between batches. When a batch fails, it is
unknown which tuple caused it, so the next process takes one tuple per batch to find this tuple (poison.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from heronpy.proto import frame_pb2
from heronpy.task.tuples import DamagedValues, HeronTuple, InBatch, Part

from .bolt_loop import CHUNK_SHORT_S, BoltTask
from .task import StopRequested, UserError


class BatchBoltTask(BoltTask):
    def open_frame(self, frame: frame_pb2.Frame, now: float) -> bool:
        """Open a frame and take its parts; return whether there are any. Errors propagate."""
        self.parts.extend(self.opener.open_batches(frame, now))
        return bool(self.parts)

    def step(self, now: float) -> None:
        """Process the next part of the open frame, or several if they are quick."""
        if not self.parts and not self.take_next(now):
            return
        parts, interrupted = self.parts, self.control.interrupted
        start, count = now, 0
        while parts and start - now < CHUNK_SHORT_S and not interrupted:
            count += self._next_part(parts.popleft(), start)
            start = time.monotonic()
        self.flush_due_acks(start)

    def _next_part(self, part: Part, now: float) -> int:
        """Process a part, or its first tuple; return the number of processed tuples."""
        if isinstance(part, HeronTuple):
            assert isinstance(part.values, DamagedValues)
            self.poison.bury_damaged(part, part.values)
            self.progress.executed += 1
            self.advance(1)
            return 1
        if self.poison.careful is not None and len(part) > 1:
            part, *rest = part.singles()
            self.parts.extendleft(reversed(rest))
        origin_ns, waited_ns = part.frame.origin_ns, self.waited_ns
        span = None
        trace = part.frame.trace
        if trace is not None and trace.index in part.numbers:
            span, part.frame.trace = self.tracer.begin(trace), None
        if origin_ns:
            self.marks.begin(origin_ns, now)
        self._process_part(part)
        count, after = len(part), time.monotonic()
        if span is not None:
            self.tracer.end(span, count)
        took_ns = (after - now) * 1e9 - (self.waited_ns - waited_ns)
        self._account_batch(part, took_ns, after)
        if took_ns > self.slow.limit_ns:
            self.slow.call(part.tuples()[0], took_ns, time.time(), tuples=count)
        if origin_ns and self.marks.end(after):
            self.account.path_ended(part.marks()[0], count, time.time_ns())
        self.advance(count)
        return count

    def _process_part(self, tup: InBatch) -> None:
        process = self.user.object.process_batch
        try:
            if self.poison.careful is None:
                process(tup)
            elif key := self.poison.admit(tup.tuples()[0]):
                process(tup)
                self.poison.passed(key)
        except (StopRequested, UserError):
            self.broke_off(len(tup))
            raise
        except (Exception, SystemExit) as error:
            if len(tup) == 1:
                if self.poison.raised(tup.tuples()[0], error):
                    return
            else:
                self.poison.raised_together(tup, error)
            self.acks.fail(tup)
            self.broke_off(len(tup))
            raise UserError from error

    #: The function whose local `tup` is the batch in user code.
    process_function: Callable[..., Any] = _process_part

    def _account_batch(self, batch: InBatch, took_ns: float, now: float) -> None:
        self.progress.executed += len(batch)
        self.account.batch(batch, took_ns, now)
        context = self.user.context
        if context.has_hooks:
            for tup in batch:
                context.invoke_hook_bolt_execute(tup, took_ns / len(batch))
