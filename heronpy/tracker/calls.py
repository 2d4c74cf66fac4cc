"""Routes: each declares its scope, parameters and answer next to its function. Pure.

If a route has no scope, or a change has the scope for reading, importing its module fails. The guard, the parameter
checks and the OpenAPI document use these declarations.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from heronpy.common.nearest import suggestion
from heronpy.tracker.guard import SAFE, Asker, Problem, Scope

if TYPE_CHECKING:
    from heronpy.tracker.sources import ClusterSource, Watched
    from heronpy.tracker.tracker import Tracker

#: Maximum number of words of a list in a query.
WORDS_MAX = 200
#: The latest accepted time, in seconds since 1970; `datetime` cannot represent later times.
TIME_MAX = 1e11


@dataclass(frozen=True, slots=True)
class Param:
    """A query parameter."""

    name: str
    help: str
    #: `str`, `int`, `float`, or `list` for a parameter that may be repeated.
    kind: type = str
    default: Any = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    required: bool = False

    def parse(self, values: list[str]) -> Any:
        """Return the value. Raises Problem if it is invalid."""
        if self.kind is list:
            if len(values) > WORDS_MAX:
                raise Problem(
                    400, "bad-request", f"{self.name} is given {len(values)} times; give it at most {WORDS_MAX} times"
                )
            return values
        if not values:
            if self.required:
                raise Problem(400, "bad-request", f"the parameter {self.name} is missing", self.help)
            return self.default
        if len(values) > 1:
            raise Problem(400, "bad-request", f"{self.name} is given {len(values)} times; give it once")
        [text] = values
        if self.choices and text not in self.choices:
            raise Problem(400, "bad-request", f"{self.name} is {text[:100]!r}; use {', '.join(self.choices)}")
        return self._number(text) if self.kind in (int, float) else text

    def _number(self, text: str) -> int | float:
        noun = "a whole number" if self.kind is int else "a number"
        try:
            value: int | float = int(text) if self.kind is int else float(text)
        except ValueError:
            raise Problem(400, "bad-request", f"{self.name} is {text[:100]!r}; it must be {noun}") from None
        below, above = self.low is not None and value < self.low, self.high is not None and value > self.high
        if value != value or below or above:
            low = f" from {self.low:g}" if self.low is not None else ""
            high = f" to {self.high:g}" if self.high is not None else ""
            raise Problem(400, "bad-request", f"{self.name} is {text[:100]}; it must be {noun}{low}{high}")
        return value


@dataclass(slots=True)
class Call:
    """One request that the guard has accepted."""

    tracker: Tracker
    asker: Asker
    path: Mapping[str, str]
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    body: Any = None
    cluster: ClusterSource | None = None
    topology: Watched | None = None

    @property
    def watched(self) -> Watched:
        """The topology that the path names."""
        assert self.topology is not None  # the app has looked it up for each route with a topology
        return self.topology

    @property
    def source(self) -> ClusterSource:
        """The cluster that the path names."""
        assert self.cluster is not None
        return self.cluster


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is not JSON."""

    content: bytes
    media: str


Answer = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path. Variable parts of the path are names in braces, as in `/api/v1/topologies/{cluster}`."""

    method: str
    path: str
    scope: Scope
    answer: Answer
    params: tuple[Param, ...] = ()
    #: The type of the answer; None: the answer is not the JSON of a struct, see `media`.
    returns: Any = None
    #: The type of the body.
    takes: type[msgspec.Struct] | None = None
    media: str = "application/json"
    summary: str = field(default="")

    def __post_init__(self) -> None:
        if self.method in SAFE:
            allowed = self.takes is None
        else:
            allowed = self.scope is Scope.ALL and self.takes is not None
        if not allowed:
            raise TypeError(f"{self.method} {self.path} cannot have the scope {self.scope.value} and this body")

    @property
    def is_of_topology(self) -> bool:
        """Whether the path names a topology."""
        return "{name}" in self.path

    def parsed(self, pairs: list[tuple[str, str]]) -> dict[str, Any]:
        """Return the parameters of a query. Raises Problem for an unknown parameter."""
        known = {param.name: param for param in self.params}
        given: dict[str, list[str]] = {name: [] for name in known}
        for name, value in pairs:
            if name not in known:
                hint = suggestion(name, known, f"; the parameters are {', '.join(known) or 'none'}")
                raise Problem(400, "bad-request", f"there is no parameter {name[:100]!r}{hint}")
            given[name].append(value)
        return {name: param.parse(given[name]) for name, param in known.items()}


class Table:
    """The routes of a module."""

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def route(
        self,
        method: str,
        path: str,
        scope: Scope,
        *params: Param,
        returns: Any = None,
        takes: type[msgspec.Struct] | None = None,
        media: str = "application/json",
    ) -> Callable[[Answer], Answer]:
        """Declare the decorated function as the answer; the first line of its docstring is the summary."""

        def declare(answer: Answer) -> Answer:
            summary = (inspect.getdoc(answer) or "").partition("\n")[0]
            if not summary:
                raise TypeError(f"{method} {path} has no description")
            self.routes.append(Route(method, path, scope, answer, params, returns, takes, media, summary))
            return answer

        return declare
