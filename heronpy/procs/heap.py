"""Counts the objects of this process by type: their number and size, never their content.

The garbage collector lists only objects that can be part of a cycle. All other objects (strings, numbers, arrays, dicts
of plain values) are found through listed objects, and are counted in parts: an object with n references counts 1/n for
each reference found. A shared object is therefore counted once, and an object that the whole interpreter shares is
hardly counted. The count uses no memory for objects already visited, because the process may be short of memory.

Frozen objects (`gc.freeze`) are not listed, either. They belong to the runtime that all processes share, or a task
created them before it began to run, for example as a cache in `initialize`. The search for frozen objects therefore
starts at the task and at the user's modules, and finds the nearest objects first.

No user code runs: sizes and names come from the interpreter's types.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from msgspec import Struct

TOP_MAX = 500
LIMIT_MIN_S, LIMIT_MAX_S = 0.05, 5.0
NAME_MAX = 200
#: Objects are examined in this many rounds. Each round is an even sample of all objects, so if the time limit is
#: reached, the examined objects represent the rest.
ROUNDS = 32
#: Approximate number of a container's references that are examined, as an even sample.
BELOW_MAX = 20_000
LOOK_EVERY = 256
#: Maximum number of frozen objects to find; containers with more than `WIDE` references are not searched.
FROZEN_MAX, WIDE = 50_000, 1000
#: References below this weight are not followed further.
WEIGHT_MIN = 0.001
#: References to an object during its examination: the list of references, the loop's variable, the argument.
_OURS = 3
#: Types whose length does not depend on user code.
_SIZED = frozenset({list, tuple, dict, set, frozenset, deque})
_HAS_GC, _GC_HEADER_BYTES = 1 << 14, 16
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)
_RUNTIME = frozenset({"heronpy", "instance", "stmgr", "__main__"})
_MEASURES = (MethodDescriptorType, WrapperDescriptorType, BuiltinFunctionType)

_FLAGS = type.__dict__["__flags__"].__get__
_BASES = type.__dict__["__mro__"].__get__
_MODULE = type.__dict__["__module__"].__get__
_QUALNAME = type.__dict__["__qualname__"].__get__


class HeapCount(Struct, frozen=True):
    """The result of a count. The bytes do not include memory that C extensions do not report."""

    #: Name, number and bytes of the largest types, the largest first.
    types: list[tuple[str, int, int]]
    kinds: int
    objects: int
    bytes: int
    #: Share of the objects that were examined; below 1 all figures are estimates.
    share: float
    seconds: float


class _TimeOver(Exception):
    """The time limit is reached."""


class _Kind:
    """A type, the function that measures its objects, and their number and total size."""

    __slots__ = ("bytes", "count", "header", "sizeof")

    def __init__(self, kind: type) -> None:
        own = next(base.__dict__["__sizeof__"] for base in _BASES(kind) if "__sizeof__" in base.__dict__)
        # A __sizeof__ in Python is user code.
        self.sizeof: Callable[[Any], int] = own if isinstance(own, _MEASURES) else object.__sizeof__
        self.header = _GC_HEADER_BYTES if _FLAGS(kind) & _HAS_GC else 0
        self.count = self.bytes = 0.0


def count_types(
    top: int, limit_s: float, roots: Sequence[object] = (), clock: Callable[[], float] = time.perf_counter
) -> HeapCount:
    """Count all objects for at most about `limit_s` seconds; returns the `top` largest types. `roots` may be frozen."""
    begun = clock()
    listed = gc.get_objects()
    frozen = _frozen(roots, listed)
    # One container may hold most of the memory, so large and frozen objects are examined first and not sampled.
    large, rest = _Walk(clock, begun + limit_s / 2), _Walk(clock, begun + limit_s)
    seen = 0
    with suppress(_TimeOver):
        for one in frozen:
            large.add(one)
        for one in listed:
            if _is_large(one, BELOW_MAX):
                large.add(one)
    with suppress(_TimeOver):
        for first in range(ROUNDS):
            for one in islice(listed, first, None, ROUNDS):
                if not _is_large(one, BELOW_MAX):
                    rest.add(one)
                seen += 1
    scale = len(listed) / seen if seen else 1.0
    sums: dict[type, tuple[float, float]] = {}
    for walk, times in ((large, 1.0), (rest, scale)):
        for kind, found in walk.found.items():
            count, size = sums.get(kind, (0.0, 0.0))
            sums[kind] = count + found.count * times, size + found.bytes * times
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    return HeapCount(
        types=[
            (_name(kind), round(count), round(size)) for kind, (count, size) in ordered[: max(1, min(top, TOP_MAX))]
        ],
        kinds=len(sums),
        objects=round(sum(count for count, _ in sums.values())),
        bytes=round(sum(size for _, size in sums.values())),
        share=min(1.0, (large.looked_at + rest.looked_at) / max(1.0, large.stand_for + rest.stand_for * scale)),
        seconds=clock() - begun,
    )


def _frozen(roots: Sequence[object], listed: list[Any]) -> list[Any]:
    """Frozen objects that are reachable from the roots, nearest first, without code and modules."""
    waiting: deque[Any] = deque([*roots, *_user_modules()])
    near = {id(one): one for one in waiting}
    while waiting and len(near) < FROZEN_MAX:
        one = waiting.popleft()
        # The content of a large container was most likely created after the freeze, so the collector lists it.
        for below in gc.get_referents(one) if not _is_large(one, WIDE) else ():
            kind = type(below)
            if gc.is_tracked(below) and id(below) not in near and not issubclass(kind, _CODE):
                near[id(below)] = below
                waiting.append(below)
    for one in listed:
        near.pop(id(one), None)
    return list(near.values())


def _user_modules() -> Iterator[Any]:
    """The namespaces of the user's modules, and the user's classes."""
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None)
        top = name.partition(".")[0]
        if not isinstance(origin, str) or top in _RUNTIME or top in sys.stdlib_module_names:
            continue
        if type(module) is ModuleType and "site-packages" not in origin:
            yield vars(module)
            for one in list(vars(module).values()):
                if type(one) is type and _MODULE(one) == name:
                    yield one


def _is_large(one: Any, limit: int) -> bool:
    return type(one) in _SIZED and len(one) > limit


class _Walk:
    """The totals, by type, of the objects counted so far."""

    def __init__(self, clock: Callable[[], float], until: float) -> None:
        self.found: dict[type, _Kind] = {}
        #: Number of examined objects, and the number that they represent.
        self.looked_at = 0
        self.stand_for = 0.0
        self._clock, self._until = clock, until

    def add(self, one: Any) -> None:
        """Count an object and all unlisted objects that it refers to; raises _TimeOver at the time limit."""
        self._count(one, 1.0, 1.0)
        open_: list[tuple[Iterator[Any], float, float]] = [self._below(one, 1.0, 1.0)]
        while open_:
            below, weight, many = open_[-1]
            for other in below:
                # A static type is not listed either, but it is not data.
                if gc.is_tracked(other) or issubclass(type(other), type):
                    continue
                part = weight / max(1, sys.getrefcount(other) - _OURS)
                self._count(other, part, many)
                if part > WEIGHT_MIN and _FLAGS(type(other)) & _HAS_GC:
                    open_.append(self._below(other, part, many))
                    break
            else:
                open_.pop()

    def _count(self, one: Any, weight: float, many: float) -> None:
        self.looked_at += 1
        self.stand_for += many
        if self.looked_at % LOOK_EVERY == 0 and self._clock() > self._until:
            raise _TimeOver
        kind = type(one)
        sums = self.found.get(kind)
        if sums is None:
            sums = self.found[kind] = _Kind(kind)
        sums.count += weight
        sums.bytes += weight * (sums.sizeof(one) + sums.header)

    @staticmethod
    def _below(one: Any, weight: float, many: float) -> tuple[Iterator[Any], float, float]:
        """The objects to which an object refers, their weight, and the number of objects that each represents."""
        kind = type(one)
        if not _is_large(one, BELOW_MAX):
            return iter(gc.get_referents(one)), weight, many
        # Only a sample is listed, because a list of all references would take as much memory as the object.
        step = len(one) // BELOW_MAX + 1
        all_ = chain(islice(one.keys(), 0, None, step), islice(one.values(), 0, None, step)) if kind is dict else (
            islice(one, 0, None, step))  # fmt: skip
        return iter(list(all_)), weight * step, many * step


def _name(kind: type) -> str:
    module, name = _MODULE(kind), _QUALNAME(kind)
    whole = name if module == "builtins" else f"{module}.{name}"
    return str(whole)[:NAME_MAX]
