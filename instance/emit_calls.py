"""`emit` and `emit_batch` of a task where no compiled code serves them: turns arguments into tuples of the emitter."""

from __future__ import annotations

from typing import Any

from heronpy.api.topology_context import TopologyContext
from heronpy.plan.columns import ArrowColumns, ColumnRules, Columns, travels_as_arrow

from .emitter import Emitter
from .outlets import Mark, OutStream


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
