"""Heron's metrics query language: what a query needs, and what it makes of it. Pure.

    DIVIDE(SUM(TS(count, *, __execute-count), TS(store, *, __execute-count)), 60)

Names and meaning are those of Apache Heron's tracker (heron/tools/tracker/src/python/query_operators.py). Two things
differ: minutes are kept by component, so TS gives one series for all instances; and DEFAULT fills holes, not zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan

from heronpy.common.nearest import suggestion

MINUTE_S = 60
LENGTH_MAX, DEPTH_MAX, PARTS_MAX = 4096, 20, 100
#: As many minutes as a topology master gives at once.
MINUTES_MAX = 1000

#: Value by the minute's start, seconds since 1970.
Points = dict[int, float]
#: The minutes of a metric of a component.
Source = Callable[["Wanted"], Points]


class QueryError(ValueError):
    """What is wrong with a query, as one sentence."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A series that a query names."""

    component: str
    metric: str


@dataclass(frozen=True, slots=True)
class Node:
    """An operator with its arguments; a leaf is a constant or a series."""

    operator: str
    arguments: tuple[Node | Wanted | float, ...]


Part = Node | Wanted | float


@dataclass(frozen=True, slots=True)
class Span:
    """The minutes that are asked for: whole ones from `start` to `end`, both of them with."""

    start: int
    end: int

    def minutes(self) -> range:
        """Their starts."""
        return range(-(-self.start // MINUTE_S) * MINUTE_S, self.end + 1, MINUTE_S)

    def within(self, points: Points) -> Points:
        """Those of them that are in the span."""
        return {at: value for at, value in points.items() if self.start <= at <= self.end}


# ---- the text ---------------------------------------------------------------------------------


def parsed(text: str) -> Part:
    """The tree of a query; QueryError for one that makes no sense."""
    if len(text) > LENGTH_MAX:
        raise QueryError(f"the query has {len(text)} characters; at most {LENGTH_MAX}")
    found = _part(text, 0)
    if sum(1 for _ in _walk(found)) > PARTS_MAX:
        raise QueryError(f"the query has more than {PARTS_MAX} parts; ask for it in several")
    if isinstance(found, float):
        raise QueryError("the query is a constant; it needs a series, as TS(component, *, metric)")
    return found


def _part(text: str, depth: int) -> Part:
    text = text.strip()
    if depth > DEPTH_MAX:
        raise QueryError(f"the query is more than {DEPTH_MAX} levels deep")
    name, bracket, rest = text.partition("(")
    if not bracket:
        return _constant(text)
    name = name.rstrip()
    if not rest.endswith(")"):
        raise QueryError(f"{_shown(text)} does not end with its closing bracket")
    given = _split(rest[:-1])
    if not name:
        if len(given) != 1:
            raise QueryError(f"{_shown(text)} has a comma, but no operator before its bracket")
        return _part(given[0], depth + 1)
    if name == "TS":
        return _series(given)
    if name not in _ARGUMENTS:
        raise QueryError(f"there is no operator {_shown(name)}{suggestion(name, ['TS', *_ARGUMENTS])}")
    return _checked(Node(name, tuple(_part(one, depth + 1) for one in given if one or len(given) > 1)))


def _split(text: str) -> list[str]:
    """What commas part that are in no bracket."""
    found, begin, depth = [], 0, 0
    for number, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth < 0:
                raise QueryError("there is a closing bracket too many")
        elif letter == "," and not depth:
            found.append(text[begin:number].strip())
            begin = number + 1
    if depth:
        raise QueryError("a closing bracket is missing")
    return [*found, text[begin:].strip()]


def _constant(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise QueryError(f"{_shown(text)} is neither a number nor an operator with its arguments in brackets")
    return value


def _series(given: Sequence[str]) -> Wanted:
    if len(given) != 3 or not all(given):
        raise QueryError("TS takes a component, * and a metric, as TS(count, *, __execute-count)")
    component, instance, metric = given
    if instance != "*":
        raise QueryError(f"minutes are kept by component, not by instance; write * for {_shown(instance)}")
    return Wanted(component, metric)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


#: The fewest and the most arguments of each operator.
_ARGUMENTS = {
    "DEFAULT": (2, 2), "SUM": (1, PARTS_MAX), "MAX": (1, PARTS_MAX), "PERCENTILE": (2, PARTS_MAX), "DIVIDE": (2, 2),
    "MULTIPLY": (2, 2), "SUBTRACT": (2, 2), "RATE": (1, 1),
}  # fmt: skip


def _checked(node: Node) -> Node:
    name, given = node.operator, node.arguments
    least, most = _ARGUMENTS[name]
    if not least <= len(given) <= most:
        needs = f"{least} argument{'s' if least > 1 else ''}{'' if least == most else ' or more'}"
        raise QueryError(f"{name} takes {needs}; here it has {len(given)}")
    first, last = given[0], given[-1]
    if name in ("DEFAULT", "PERCENTILE") and not isinstance(first, float):
        raise QueryError(f"the first argument of {name} must be a number")
    if name == "PERCENTILE" and isinstance(first, float) and not 0 <= first <= 100:
        raise QueryError(f"the first argument of PERCENTILE is {first:g}; it must be from 0 to 100")
    if name in ("DEFAULT", "RATE") and isinstance(last, float):
        raise QueryError(f"{name} needs a series, not the number {last:g}")
    if name == "PERCENTILE" and all(isinstance(one, float) for one in given):
        raise QueryError("PERCENTILE needs a series beside its number")
    if name == "DIVIDE" and last == 0.0:
        raise QueryError("DIVIDE has 0 as its divisor")
    return node


def _walk(part: Part) -> Iterator[Part]:
    yield part
    if isinstance(part, Node):
        for one in part.arguments:
            yield from _walk(one)


def series(part: Part) -> list[Wanted]:
    """The series that a query names, each of them once."""
    return list(dict.fromkeys(one for one in _walk(part) if isinstance(one, Wanted)))


# ---- the answer -------------------------------------------------------------------------------


def evaluated(part: Part, source: Source, span: Span) -> Points:
    """The series that the query asks for. A minute that is unknown is missing in it."""
    if isinstance(part, float):
        return dict.fromkeys(span.minutes(), part)
    if isinstance(part, Wanted):
        return span.within({at: value for at, value in source(part).items() if not isnan(value)})
    if part.operator == "RATE":
        # The minute before counts for the first one.
        points = evaluated(part.arguments[0], source, Span(span.start - MINUTE_S, span.end))
        changes = {at: value - points[at - MINUTE_S] for at, value in points.items() if at - MINUTE_S in points}
        return span.within(changes)
    if part.operator in _PAIRS:
        one, other = (evaluated(argument, source, span) for argument in part.arguments)
        return _pairwise(part.operator, one, other)
    constants = [argument for argument in part.arguments if isinstance(argument, float)]
    found = [evaluated(argument, source, span) for argument in part.arguments if not isinstance(argument, float)]
    if part.operator == "DEFAULT":
        return dict.fromkeys(span.minutes(), constants[0]) | found[0]
    if part.operator == "SUM":
        sums = dict.fromkeys(span.minutes(), sum(constants))
        return {at: value + sum(points.get(at, 0.0) for points in found) for at, value in sums.items()}
    if part.operator == "MAX":
        return _joined([dict.fromkeys(span.minutes(), one) for one in constants] + found, max)
    rank = constants[0]
    return _joined(found, lambda values: sorted(values)[int(rank * (len(values) - 1) / 100.0)])


_PAIRS: Mapping[str, Callable[[float, float], float]] = {
    "DIVIDE": lambda one, other: one / other,
    "MULTIPLY": lambda one, other: one * other,
    "SUBTRACT": lambda one, other: one - other,
}


def _pairwise(operator: str, one: Points, other: Points) -> Points:
    """Minutes that both have; what cannot be divided, and what is no number then, is unknown."""
    do = _PAIRS[operator]
    found = {
        at: do(value, other[at]) for at, value in one.items() if at in other and (operator != "DIVIDE" or other[at])
    }
    return {at: value for at, value in found.items() if isfinite(value)}


def _joined(all_points: list[Points], pick: Callable[[list[float]], float]) -> Points:
    minutes = sorted({at for points in all_points for at in points})
    return {at: pick([points[at] for points in all_points if at in points]) for at in minutes}
