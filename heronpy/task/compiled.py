"""Compiles `emit` for the default stream of a task: one flat function with everything bound. Pure.

A call layer costs 80 ns and a loop over the values 60 ns, out of 200 ns for a whole emit, so the function is generated
from its few possible parts and compiled once, at start-up, as `collections.namedtuple` does. The names that it uses are
its own globals, because each variable of a closure is copied in each call; only `left` is a variable of a closure.
These properties vary: spout or bolt (their public signatures), tracked or not, the shape of the route (fields groupings
on one field each, or one buffer for all), and the width. Everything unusual (another stream, a direct task, hooks,
values that are not a plain list or tuple, a large or complex value) goes to `special` or `slow`. A tuple of the wrong
width goes to `refuse`, which raises an error.

The function stays valid for the life of the task: a new plan clears the memo and changes the buffers'
destinations in place, so user code may keep a reference to `self.emit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: CPython caches the numbers up to 256, so counting them creates no objects.
PART_MAX = 256

_SIGNATURES = {
    "spout": "tup, tup_id=None, stream='default', direct_task=None, need_task_ids=False",
    "bolt": "tup, stream='default', anchors=None, direct_task=None, need_task_ids=False",
}
_ARGUMENTS = {
    "spout": "tup, tup_id, stream, direct_task, need_task_ids",
    "bolt": "tup, stream, anchors, direct_task, need_task_ids",
}

_TEMPLATE = """\
def factory():
    left = next_part()
    def emit({signature}):
        nonlocal left
        if (
            type(tup) is not list and type(tup) is not tuple
            or stream != 'default' or direct_task is not None or need_task_ids or context.has_hooks
        ):
            return special({arguments})
        try:
            {values}, = tup
        except ValueError:
            refuse(tup)
{checks}{append}{immediate}        left -= {copies}
        if left <= 0:
            left = next_part()
    return emit
"""

_CHECK = """\
        if (kind := type(v{i})) not in FIXED and (kind is not str and kind is not bytes or len(v{i}) > SMALL):
            return slow(tup, {mark_value})
"""

_BY_FIELD = """\
        try:
            found{n} = memo{n}[v{index}]
        except (KeyError, TypeError):
            found{n} = miss{n}(tup)
            if found{n} is None:
                return slow(tup, {mark_value})
"""


def compile_emit(
    kind: str,
    *,
    tracked: bool,
    width: int,
    field_indices: Sequence[int],
    env: dict[str, Any],
) -> Callable[..., Any]:
    """Return the emit function of a task's default stream.

    `kind` is "spout" or "bolt"; `field_indices` has the index of each consumer's grouping field; it is empty if there
    is one buffer for all consumers. `env` binds the names that the generated code uses; `refill` and `flush` return the
    number of tuples until the next flush.
    """
    scope: dict[str, Any] = {**env, "next_part": parts(env["refill"], env["flush"])}
    mark_value = "None"
    # An untracked spout's `slow` also takes the id: it is acked immediately, on any path.
    if kind == "spout":
        mark_value = "tup_id"
    elif tracked:
        mark_value = "None if anchors is None else mark_of(anchors)"
    checks = "".join(_CHECK.format(i=i, mark_value=mark_value) for i in range(width) if i not in field_indices)
    if not field_indices:
        append = "        extend(tup)\n"
        if tracked:
            append += f"        mark_append({mark_value})\n"
    else:
        # All destinations are found before one is used: a tuple reaches every consumer, or takes the slow path as a
        # whole.
        append = "".join(
            _BY_FIELD.format(n=n, index=index, mark_value=mark_value) for n, index in enumerate(field_indices)
        )
        if tracked:
            append += f"        mark = {mark_value}\n"
        for n in range(len(field_indices)):
            kept = f"        found{n}[0](tup)\n        found{n}[1](mark)\n"
            append += kept if tracked else f"        found{n}(tup)\n"
    immediate = ""
    if kind == "spout" and not tracked:
        immediate = "        if tup_id is not None:\n            immediate(tup_id)\n"
    source = _TEMPLATE.format(
        signature=_SIGNATURES[kind],
        arguments=_ARGUMENTS[kind],
        values=", ".join(f"v{i}" for i in range(width)),
        copies=max(1, len(field_indices)),
        checks=checks,
        append=append,
        immediate=immediate,
    )
    # The file name marks it as a part of the runtime, so that a traceback points to the user's line.
    exec(compile(source, f"{__file__} (emit of a {kind})", "exec"), scope)
    emit: Callable[..., Any] = scope["factory"]()
    return emit


def parts(refill: Callable[[], int], flush: Callable[[], int]) -> Callable[[], int]:
    """Return a function that returns the number of tuples that may be emitted before its next call. It flushes when
    the flush is due.
    """
    left = refill()

    def next_part() -> int:
        nonlocal left
        if left <= 0:
            left = flush()
        part = min(left, PART_MAX)
        left -= part
        return part

    return next_part
