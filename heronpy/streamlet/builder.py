"""The root of a streamlet computation: collects the sources and builds the topology."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.generator import Generator
from heronpy.streamlet.streamlet import GeneratorStreamlet, Streamlet, SupplierStreamlet

_T = TypeVar("_T")
_S = TypeVar("_S", bound=Streamlet[Any])


class Builder:
    """Collects the sources of a computation, and turns the graph that starts at the sources into a topology."""

    def __init__(self) -> None:
        self._sources: list[Streamlet[Any]] = []

    @overload
    def new_source(self, source: Generator[_T], bounded: bool = False) -> Streamlet[_T]: ...
    @overload
    def new_source(self, source: Callable[[], Iterator[_T]], bounded: bool = False) -> Streamlet[_T]: ...
    @overload
    def new_source(self, source: Callable[[], _T | None], bounded: bool = False) -> Streamlet[_T]: ...
    def new_source(self, source: Callable[[], Any] | Generator[Any], bounded: bool = False) -> Streamlet[Any]:
        """Start a streamlet from a Generator or from a function without arguments.

        A function returns one element per call, or None if no element is available yet; it ends the
        input by raising StopIteration. A generator function (with `yield`) is called once and runs to its end.
        `bounded` declares that the input ends, so that `heron submit --mode auto` runs the program as a batch.
        """
        if isinstance(source, Generator):
            return self.add_source(GeneratorStreamlet(source, bounded))
        if callable(source):
            return self.add_source(SupplierStreamlet(source, bounded))
        raise StreamletError(f"a source must be a Generator or a function, not {type(source).__name__}")

    def add_source(self, streamlet: _S) -> _S:
        """Add a source with its own Streamlet class, such as a connector's."""
        self._sources.append(streamlet)
        return streamlet

    def build(self, bldr: TopologyBuilder) -> TopologyBuilder:
        """Add every stage to the topology builder, and return the builder."""
        if not self._sources:
            raise StreamletError("the computation has no source; call Builder.new_source first")
        stage_names: set[str] = set()
        for source in self._sources:
            source._build(bldr, stage_names)
        for source in self._sources:
            if not source._all_built():
                raise StreamletError(
                    "the computation joins or unions a streamlet from another Builder; "
                    "create all sources with the same Builder"
                )
        return bldr
