"""The root of a streamlet computation: it knows all sources and lays out the topology."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.generator import Generator
from heronpy.streamlet.streamlet import Streamlet


class Builder:
    """Collects the sources of a computation and turns the graph behind them into a topology."""

    def __init__(self) -> None:
        self._sources: list[Streamlet] = []

    def new_source(self, source: Callable[[], Any] | Generator) -> Streamlet:
        """Start a streamlet from a Generator or from a function without arguments.

        A function returns one element per call, or None when it has none now; it ends the input
        by raising StopIteration. A generator function (one that yields) is run once to its end.
        """
        from heronpy.streamlet.impl.generatorspout import GeneratorStreamlet
        from heronpy.streamlet.impl.supplierspout import SupplierStreamlet

        streamlet: Streamlet
        if isinstance(source, Generator):
            streamlet = GeneratorStreamlet(source)
        elif callable(source):
            streamlet = SupplierStreamlet(source)
        else:
            raise StreamletError(
                f"a source must be a Generator or a function, not {type(source).__name__}"
            )
        return self.add_source(streamlet)

    def add_source(self, streamlet: Streamlet) -> Streamlet:
        """Add a source that brings its own Streamlet class, as connectors do."""
        self._sources.append(streamlet)
        return streamlet

    def build(self, bldr: TopologyBuilder) -> TopologyBuilder:
        """Add every stage to the topology builder, and return it."""
        if not self._sources:
            raise StreamletError("the computation has no source; call Builder.new_source first")
        stage_names: set[str] = set()
        for source in self._sources:
            source._build(bldr, stage_names)
        for source in self._sources:
            if not source._all_built():
                raise StreamletError(
                    "the computation joins or unites a streamlet of another Builder; "
                    "make all sources with the same Builder"
                )
        return bldr
