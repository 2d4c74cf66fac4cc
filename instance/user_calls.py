"""What user code calls: `emit` and `emit_batch` where no compiled code serves them, and `ack` and `fail` of a bolt.

The arguments become tuples of the emitter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from heronpy.api.topology_context import TopologyContext
from heronpy.common.errors import TopologyError
from heronpy.plan.emit_rules import ArrowColumns, ColumnRules, Columns, travels_as_arrow

from .acks import BoltAcks, OneOrMany, several
from .emitter import Emitter, mark_of, marks_of
from .outlets import Mark, OutStream
from .tuples import HeronTuple
from .user_code import UserCode


def columns_of(
    emitter: Emitter, stream: OutStream, columns: Any, rows: Any, what: str, count: int | None
) -> Columns | ArrowColumns:
    """The tuples of one emit_batch, of which `count` have an anchor or id (`what`); TopologyError if they are wrong."""
    rules = ColumnRules(emitter.component, stream.name, stream.fields, stream.schema)
    given = rules.columns(columns, rows)
    if count is not None:
        rules.check_count(what, count, given.size)
    return given


def emit_one(
    emitter: Emitter,
    context: TopologyContext,
    stream: OutStream,
    values: Any,
    mark: Mark | None,
    direct_task: int | None,
    need_task_ids: bool,
) -> list[int] | None:
    """Emit a tuple without a fast path; the tasks it went to, when they are asked for."""
    if direct_task is None and not need_task_ids and not context.has_hooks:
        emitter.push(stream, values, mark)
        return None
    tasks = emitter.emit_to(stream, values, mark, direct_task)
    if context.has_hooks:
        context.invoke_hook_emit(values, stream.name, tasks)
    return tasks if need_task_ids else None


def emit_columns(
    emitter: Emitter,
    context: TopologyContext,
    stream: OutStream,
    columns: Columns | ArrowColumns,
    marks: list[Mark] | None,
    direct_task: int | None,
) -> None:
    """Emit them together; with hooks, or to a task, one by one."""
    if isinstance(columns, ArrowColumns):
        hooked, serializes = context.has_hooks, emitter.serializes
        if travels_as_arrow(stream.choosers, direct_task, serializes=serializes, hooked=hooked):
            emitter.push_arrow(stream, columns, marks)
            return
        columns = Columns([column.to_pylist() for column in columns.batch.columns], columns.size)
    if direct_task is None and not context.has_hooks:
        emitter.push_columns(stream, columns, marks)
        return
    for row, mark in zip(columns.rows(), marks or [None] * columns.size):
        tasks = emitter.emit_to(stream, row, mark, direct_task)
        if context.has_hooks:
            context.invoke_hook_emit(row, stream.name, tasks)


class BoltCalls:
    """The calls of one bolt task."""

    def __init__(
        self,
        component: str,
        user: UserCode,
        emitter: Emitter,
        acks: BoltAcks,
        stream_named: Callable[[str], OutStream],
    ) -> None:
        """`stream_named` gives a declared output stream, and raises what tells users which there are."""
        self._component = component
        self._user = user
        self._emitter = emitter
        self._acks = acks
        self._stream_named = stream_named

    def prepare(self) -> None:
        """Let user code call them from initialize on; `bind` makes them fast afterwards."""
        delegate = self._user.delegate
        delegate.emit = self._emit_any
        delegate.emit_batch = self._emit_batch
        delegate.ack = self._acks.ack
        delegate.fail = self._fail
        delegate.end_of_input = self._no_end_of_input

    def bind(self) -> None:
        """Make the emit, ack and fail closures; they shadow the class's methods unless overridden."""
        from heronpy.api.bolt.base_bolt import BaseBolt

        delegate, bolt, context = self._user.delegate, self._user.object, self._user.context
        emit = self._emitter.compile_emit("bolt", self._emit_any, context, _never) or self._emit_any
        delegate.emit = emit
        if context.has_hooks:
            delegate.ack = self._hooked_ack
        if getattr(bolt, "delegate", None) is not delegate:
            return
        if type(bolt).emit is BaseBolt.emit:
            bolt.emit = emit
        if type(bolt).ack is BaseBolt.ack:
            bolt.ack = delegate.ack
        if type(bolt).fail is BaseBolt.fail:
            bolt.fail = self._fail

    def _emit_any(
        self,
        tup: Any,
        stream: str = "default",
        anchors: Any = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """`emit` without a fast path, and before it is compiled."""
        out = self._stream_named(stream)
        mark = mark_of(anchors) if anchors is not None and self._acks.acking else None
        return emit_one(self._emitter, self._user.context, out, tup, mark, direct_task, need_task_ids)

    def _emit_batch(self, columns: Any, *, rows: Any, stream: str, anchors: Any, direct_task: int | None) -> None:
        size = None if anchors is None or type(anchors) is HeronTuple else len(anchors)
        out = self._stream_named(stream)
        given = columns_of(self._emitter, out, columns, rows, "anchors", size)
        marks = marks_of(anchors, given.size) if anchors is not None and self._acks.acking else None
        emit_columns(self._emitter, self._user.context, out, given, marks, direct_task)

    def _hooked_ack(self, tup: OneOrMany) -> None:
        for one in several(tup, "ack"):
            self._acks.ack(one)
            self._user.context.invoke_hook_bolt_ack(one, (time.monotonic() - one.creation_time) * 1e9)

    def _fail(self, tup: OneOrMany) -> None:
        if not self._user.context.has_hooks:
            self._acks.fail(tup)
            return
        for one in several(tup, "fail"):
            self._acks.fail(one)
            self._user.context.invoke_hook_bolt_fail(one, (time.monotonic() - one.creation_time) * 1e9)

    def _no_end_of_input(self) -> None:
        raise TopologyError(f"end_of_input() is for spouts; {self._component} is a bolt")


def _never(tup_id: Any) -> None:
    """Bolts have no ids to ack at once."""
