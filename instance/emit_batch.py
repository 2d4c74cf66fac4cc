"""`emit_batch` of a task: turns the arguments of user code into columns for the emitter."""

from __future__ import annotations

from typing import Any

from heronpy.api.topology_context import TopologyContext
from heronpy.plan.columns import ColumnRules, Columns

from .emitter import Emitter
from .outlets import Mark, OutStream


def columns_of(emitter: Emitter, stream: OutStream, columns: Any, rows: Any, what: str, count: int | None) -> Columns:
    """The tuples of one emit_batch with `count` anchors or ids (`what`); TopologyError if they are invalid."""
    rules = ColumnRules(emitter.component, stream.name, stream.fields)
    given = rules.columns(columns, rows)
    if count is not None:
        rules.check_count(what, count, given.size)
    return given


def emit_columns(
    emitter: Emitter,
    context: TopologyContext,
    stream: OutStream,
    columns: Columns,
    marks: list[Mark] | None,
    direct_task: int | None,
) -> None:
    """Emit the tuples together, or one by one if there are hooks or a direct task."""
    if direct_task is None and not context.has_hooks:
        emitter.push_columns(stream, columns, marks)
        return
    for row, mark in zip(columns.rows(), marks or [None] * columns.size):
        tasks = emitter.emit_to(stream, row, mark, direct_task)
        if context.has_hooks:
            context.invoke_hook_emit(row, stream.name, tasks)
