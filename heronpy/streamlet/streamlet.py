"""Streamlet: a (possibly endless) collection of elements, and the operators over it.

Calling an operator only records it. `Builder.build` later walks the graph from the sources and adds one spout
or bolt per streamlet; a stage with two parents is added after both parents. The number of partitions is
copied from the parent when the operator is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import AnyGrouping, Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.context import OUTPUT_STREAM
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.generator import Generator
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.operators import (
    ConsumeBolt,
    FilterBolt,
    FlatMapBolt,
    GeneratorSpout,
    KeyGrouping,
    LogBolt,
    MapBolt,
    PassBolt,
    RepartitionCustomGrouping,
    SupplierSpout,
    TransformBolt,
    signature_of,
)
from heronpy.streamlet.transformoperator import TransformOperator
from heronpy.streamlet.window import Window
from heronpy.streamlet.windowconfig import WindowConfig
from heronpy.streamlet.windowed import JoinBolt, ReduceByKeyAndWindowBolt, ReduceByWindowBolt, WindowedBolt

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_U = TypeVar("_U")
_K = TypeVar("_K")
_V = TypeVar("_V")
_W = TypeVar("_W")


class Streamlet(Generic[_T_co]):
    """The elements that a source or an operator produces. Subclasses define how to build their stage."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._num_partitions = 1
        self._children: list[Streamlet[Any]] = []
        self._built = False
        self._output = OUTPUT_STREAM

    # -- about the stage ----------------------------------------------------------------------

    def set_name(self, name: str) -> Self:
        """Name the stage. Without this call, the name is derived from the operator, for example "map-1"."""
        if not isinstance(name, str) or not name:
            raise StreamletError(f"a streamlet's name must be a non-empty str, not {name!r}")
        self._name = name
        return self

    def get_name(self) -> str | None:
        """Return the name that `set_name` set or `build` chose; None before either call."""
        return self._name

    def set_num_partitions(self, num_partitions: int) -> Self:
        """Set the number of parallel tasks that compute this streamlet."""
        if isinstance(num_partitions, bool) or not isinstance(num_partitions, int) or num_partitions < 1:
            raise StreamletError(f"the number of partitions is {num_partitions!r}; give an int of 1 or more")
        self._num_partitions = num_partitions
        return self

    def get_num_partitions(self) -> int:
        """Return the number of parallel tasks that compute this streamlet."""
        return self._num_partitions

    # -- one element at a time ----------------------------------------------------------------

    def map(self, map_function: Callable[[_T_co], _U]) -> Streamlet[_U]:
        """Replace each element with `map_function(element)`."""
        return self._add_child(MapStreamlet(map_function, self))

    @overload
    def flat_map(self, flatmap_function: Callable[[_T_co], Iterable[_U]]) -> Streamlet[_U]: ...
    @overload
    def flat_map(self, flatmap_function: Callable[[_T_co], _U]) -> Streamlet[_U]: ...
    def flat_map(self, flatmap_function: Callable[[_T_co], Any]) -> Streamlet[Any]:
        """Replace each element with all elements of the iterable `flatmap_function(element)`.

        A str is an iterable of its characters; a result that is not iterable is one element.
        """
        return self._add_child(FlatMapStreamlet(flatmap_function, self))

    def filter(self, filter_function: Callable[[_T_co], object]) -> Streamlet[_T_co]:
        """Keep only the elements for which `filter_function(element)` is true."""
        return self._add_child(FilterStreamlet(filter_function, self))

    def transform(self, transform_operator: TransformOperator[_T_co, _U]) -> Streamlet[_U]:
        """Pass each element to the operator, which may emit any number of elements through its context."""
        return self._add_child(TransformStreamlet(transform_operator, self))

    # -- routing ------------------------------------------------------------------------------

    def repartition(
        self,
        num_partitions: int,
        repartition_function: Callable[[_T_co, int], int | Iterable[int]] | None = None,
    ) -> Streamlet[_T_co]:
        """Distribute the elements over `num_partitions` partitions.

        `repartition_function(element, num_partitions)` returns the index of the partition, or several indices
        to copy the element; an index is taken modulo the number of partitions. Without a function, the elements
        are spread evenly.
        """
        return self._add_child(RepartitionStreamlet(num_partitions, repartition_function, self))

    def clone(self, num_clones: int) -> list[Streamlet[_T_co]]:
        """Return `num_clones` streamlets, each with all elements of this streamlet."""
        if isinstance(num_clones, bool) or not isinstance(num_clones, int) or num_clones < 1:
            raise StreamletError(f"the number of clones is {num_clones!r}; give an int of 1 or more")
        return [self.repartition(self.get_num_partitions()) for _ in range(num_clones)]

    def union(self, other_streamlet: Streamlet[_U]) -> Streamlet[_T_co | _U]:
        """Return a streamlet with the elements of this streamlet and of `other_streamlet`."""
        other = self._distinct(other_streamlet, "union")
        return self._add_child(UnionStreamlet(self, other), other)

    # -- windows ------------------------------------------------------------------------------

    def reduce_by_window(
        self: Streamlet[_T], window_config: WindowConfig, reduce_function: Callable[[_T, _T], _T]
    ) -> Streamlet[tuple[Window, _T | None]]:
        """Emit a pair (Window, fold of the window's elements) for each window and partition.

        The fold begins with the first element. A window without elements gives (Window, None).
        Results of partitions are not merged: set one partition to get one result per window.
        """
        reduced = ReduceByWindowStreamlet(window_config, reduce_function, self)
        return self._add_child(reduced)

    def reduce_by_key_and_window(
        self: Streamlet[tuple[_K, _V]], window_config: WindowConfig, reduce_function: Callable[[_V, _V], _V]
    ) -> Streamlet[tuple[KeyedWindow[_K], _V]]:
        """Emit (KeyedWindow, fold of the key's values) per key and window; the elements are (key, value) pairs."""
        return self._add_child(ReduceByKeyAndWindowStreamlet(window_config, reduce_function, self))

    def join(
        self: Streamlet[tuple[_K, _V]],
        join_streamlet: Streamlet[tuple[_K, _W]],
        window_config: WindowConfig,
        join_function: Callable[[_V, _W], _U],
    ) -> Streamlet[tuple[KeyedWindow[_K], _U]]:
        """Emit (KeyedWindow, join_function(left, right)) for all pairs of values with the same key in a window."""
        return self._join(JoinBolt.INNER, join_streamlet, window_config, join_function)

    def outer_left_join(
        self: Streamlet[tuple[_K, _V]],
        join_streamlet: Streamlet[tuple[_K, _W]],
        window_config: WindowConfig,
        join_function: Callable[[_V, _W | None], _U],
    ) -> Streamlet[tuple[KeyedWindow[_K], _U]]:
        """Join as `join` does, and use None as the right value for keys that only the left streamlet has."""
        return self._join(JoinBolt.OUTER_LEFT, join_streamlet, window_config, join_function)

    def outer_right_join(
        self: Streamlet[tuple[_K, _V]],
        join_streamlet: Streamlet[tuple[_K, _W]],
        window_config: WindowConfig,
        join_function: Callable[[_V | None, _W], _U],
    ) -> Streamlet[tuple[KeyedWindow[_K], _U]]:
        """Join as `join` does, and use None as the left value for keys that only the right streamlet has."""
        return self._join(JoinBolt.OUTER_RIGHT, join_streamlet, window_config, join_function)

    def outer_join(
        self: Streamlet[tuple[_K, _V]],
        join_streamlet: Streamlet[tuple[_K, _W]],
        window_config: WindowConfig,
        join_function: Callable[[_V | None, _W | None], _U],
    ) -> Streamlet[tuple[KeyedWindow[_K], _U]]:
        """Join as `join` does, and use None as the missing value for keys that only one streamlet has."""
        return self._join(JoinBolt.OUTER, join_streamlet, window_config, join_function)

    # -- sinks ---------------------------------------------------------------------------------

    def log(self) -> None:
        """Write each element to the log of the task that receives it."""
        self._add_child(LogStreamlet(self))

    def consume(self, consume_function: Callable[[_T_co], object]) -> None:
        """Call `consume_function(element)` for each element; its result is ignored."""
        self._add_child(ConsumeStreamlet(consume_function, self))

    # -- building -----------------------------------------------------------------------------

    def _join(
        self, join_type: int, right: Streamlet[Any], window_config: WindowConfig, function: Callable[[Any, Any], Any]
    ) -> Streamlet[Any]:
        other = self._distinct(right, "join")
        return self._add_child(JoinStreamlet(join_type, window_config, function, self, other), other)

    def _distinct(self, other: Streamlet[_U], operator: str) -> Streamlet[_U]:
        """Return `other`, or a copy of `other` if it is this streamlet.

        A bolt distinguishes its inputs by the component they come from, so a streamlet joined with
        itself needs a second component.
        """
        if not isinstance(other, Streamlet):
            raise StreamletError(f"{operator} takes a Streamlet as the other side, not {type(other).__name__}")
        return other.clone(1)[0] if other is self else other

    def _add_child(self, child: Streamlet[_U], *other_parents: Streamlet[Any]) -> Streamlet[_U]:
        for parent in (self, *other_parents):
            parent._children.append(child)
        return child

    def _build(self, bldr: TopologyBuilder, stage_names: set[str]) -> None:
        # An explicit stack instead of recursion, which long chains would exhaust; children are visited in order.
        if self._built:
            raise StreamletError(f"streamlet {self.get_name()!r} is already built; a Builder can build only once")
        waiting: list[Streamlet[Any]] = [self]
        while waiting:
            stage = waiting.pop()
            # A stage with two parents is visited once from each, and the second visit builds it. If one parent descends
            # from the other, there may be a third visit.
            if not stage._built and stage._build_this(bldr, stage_names):
                stage._built = True
                waiting.extend(reversed(stage._children))

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        """Add this stage to the topology; return False if a parent does not exist yet."""
        raise NotImplementedError(f"{type(self).__name__} must define _build_this")

    def _claim_name(self, prefix: str, stage_names: set[str]) -> str:
        """Return this stage's name, unique in the topology: the user's name, or else "prefix-N"."""
        if self._name is None:
            self._name = self._default_stage_name_calculator(prefix, stage_names)
        if self._name in stage_names:
            raise StreamletError(f"two streamlets are named {self._name!r}; give each its own name with set_name")
        stage_names.add(self._name)
        return self._name

    def _default_stage_name_calculator(self, prefix: str, existing_stage_names: set[str]) -> str:
        index = 1
        while f"{prefix}-{index}" in existing_stage_names:
            index += 1
        return f"{prefix}-{index}"

    def _stream_id(self) -> GlobalStreamId:
        """Return the output stream of this built stage, for use as an input of another stage."""
        assert self._name is not None, "a stage has a name once it is built"
        return GlobalStreamId(self._name, self._output)

    def _all_built(self) -> bool:
        waiting: list[Streamlet[Any]] = [self]
        seen = {id(self)}
        while waiting:
            stage = waiting.pop()
            if not stage._built:
                return False
            for child in stage._children:
                if id(child) not in seen:
                    seen.add(id(child))
                    waiting.append(child)
        return True


class Stage(Streamlet[_T_co]):
    """A streamlet that is computed by one spout, or by one bolt from the streamlets in `inputs`."""

    def __init__(
        self,
        prefix: str,
        component: type[Spout] | type[Bolt],
        inputs: Mapping[Streamlet[Any], int | ICustomGrouping],
        config: dict[str, Any],
        bounded: bool = False,
    ) -> None:
        """Without `set_name`, the name is `prefix-N`. The stage has as many partitions as its first input.

        `bounded` marks a source that ends.
        """
        super().__init__()
        self._prefix = prefix
        self._component = component
        self._inputs = inputs
        self._config = config
        self._bounded = bounded
        for parent in inputs:
            self.set_num_partitions(parent.get_num_partitions())
            break

    def _calculate_inputs(self) -> dict[GlobalStreamId, AnyGrouping]:
        return {
            parent._stream_id(): Grouping.custom(grouping) if isinstance(grouping, ICustomGrouping) else grouping
            for parent, grouping in self._inputs.items()
        }

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        if not all(parent._built for parent in self._inputs):
            return False
        name, par = self._claim_name(self._prefix, stage_names), self.get_num_partitions()
        if issubclass(self._component, Spout):
            spec = builder.add_spout(name, self._component, par, self._config)
            if self._bounded:
                spec.traits = [*spec.traits, "bounded"]
        else:
            builder.add_bolt(name, self._component, par, self._calculate_inputs(), self._config)
        return True


class GeneratorStreamlet(Stage[_T_co]):
    """The streamlet that a Generator produces."""

    def __init__(self, generator: Generator[_T_co], bounded: bool = False) -> None:
        if not isinstance(generator, Generator):
            raise StreamletError(f"a generator source must be a Generator, not {type(generator).__name__}")
        bounded = bounded or getattr(generator, "bounded", False)
        super().__init__("generator", GeneratorSpout, {}, {GeneratorSpout.GENERATOR: generator}, bounded)


class SupplierStreamlet(Stage[_T_co]):
    """The streamlet that a function without arguments produces."""

    def __init__(self, supplier_function: Callable[[], Any], bounded: bool = False) -> None:
        config = {SupplierSpout.FUNCTION: _checked_callable(supplier_function, "a source")}
        super().__init__("supplier", SupplierSpout, {}, config, bounded)


class MapStreamlet(Stage[_U]):
    """The result of `Streamlet.map`."""

    def __init__(self, map_function: Callable[[_T], _U], parent: Streamlet[_T]) -> None:
        config = {MapBolt.FUNCTION: _checked_callable(map_function, "map")}
        super().__init__("map", MapBolt, {parent: Grouping.SHUFFLE}, config)


class FlatMapStreamlet(Stage[Any]):
    """The result of `Streamlet.flat_map`."""

    def __init__(self, flatmap_function: Callable[[_T], Any], parent: Streamlet[_T]) -> None:
        config = {FlatMapBolt.FUNCTION: _checked_callable(flatmap_function, "flat_map")}
        super().__init__("flatmap", FlatMapBolt, {parent: Grouping.SHUFFLE}, config)


class FilterStreamlet(Stage[_T_co]):
    """The result of `Streamlet.filter`."""

    def __init__(self, filter_function: Callable[[_T_co], object], parent: Streamlet[_T_co]) -> None:
        config = {FilterBolt.FUNCTION: _checked_callable(filter_function, "filter")}
        super().__init__("filter", FilterBolt, {parent: Grouping.SHUFFLE}, config)


class ConsumeStreamlet(Stage[Any]):
    """The stage that `Streamlet.consume` adds."""

    def __init__(self, consume_function: Callable[[_T], object], parent: Streamlet[_T]) -> None:
        config = {ConsumeBolt.FUNCTION: _checked_callable(consume_function, "consume")}
        super().__init__("consume", ConsumeBolt, {parent: Grouping.SHUFFLE}, config)


class LogStreamlet(Stage[Any]):
    """The stage that `Streamlet.log` adds."""

    def __init__(self, parent: Streamlet[Any]) -> None:
        super().__init__("log", LogBolt, {parent: Grouping.SHUFFLE}, {})


class TransformStreamlet(Stage[_U]):
    """The result of `Streamlet.transform`."""

    def __init__(self, transform_operator: TransformOperator[_T, _U], parent: Streamlet[_T]) -> None:
        if not isinstance(transform_operator, TransformOperator):
            kind = type(transform_operator).__name__
            raise StreamletError(f"transform takes an instance of a TransformOperator subclass, not {kind}")
        config = {TransformBolt.OPERATOR: transform_operator}
        super().__init__("transform", TransformBolt, {parent: Grouping.SHUFFLE}, config)


class RepartitionStreamlet(Stage[_T_co]):
    """The result of `Streamlet.repartition`."""

    def __init__(
        self,
        num_partitions: int,
        repartition_function: Callable[[_T_co, int], int | Iterable[int]] | None,
        parent: Streamlet[_T_co],
    ) -> None:
        grouping: int | ICustomGrouping = Grouping.SHUFFLE
        if repartition_function is not None:
            _check_takes_two(_checked_callable(repartition_function, "repartition"))
            grouping = RepartitionCustomGrouping(repartition_function)
        super().__init__("repartition", PassBolt, {parent: grouping}, {})
        self.set_num_partitions(num_partitions)


class UnionStreamlet(Stage[_T_co]):
    """The result of `Streamlet.union`. It has as many partitions as the left streamlet."""

    def __init__(self, left: Streamlet[_T_co], right: Streamlet[_T_co]) -> None:
        super().__init__("union", PassBolt, {left: Grouping.SHUFFLE, right: Grouping.SHUFFLE}, {})


class ReduceByWindowStreamlet(Stage[tuple[Window, _T | None]]):
    """The result of `Streamlet.reduce_by_window`."""

    def __init__(
        self, window_config: WindowConfig, reduce_function: Callable[[_T, _T], _T], parent: Streamlet[_T]
    ) -> None:
        config = _window_settings("reduce_by_window", ReduceByWindowBolt, window_config, reduce_function)
        super().__init__("reducebywindow", ReduceByWindowBolt, {parent: Grouping.SHUFFLE}, config)


class ReduceByKeyAndWindowStreamlet(Stage[tuple[KeyedWindow[_K], _V]]):
    """The result of `Streamlet.reduce_by_key_and_window`.

    It has one partition, regardless of its parent, unless `set_num_partitions` changes that.
    """

    def __init__(
        self,
        window_config: WindowConfig,
        reduce_function: Callable[[_V, _V], _V],
        parent: Streamlet[tuple[_K, _V]],
    ) -> None:
        bolt = ReduceByKeyAndWindowBolt
        config = _window_settings("reduce_by_key_and_window", bolt, window_config, reduce_function)
        super().__init__("reducebykeyandwindow", bolt, {parent: KeyGrouping()}, config)
        self.set_num_partitions(1)


class JoinStreamlet(Stage[Any]):
    """The result of a join method of `Streamlet`. It has as many partitions as the left streamlet."""

    def __init__(
        self,
        join_type: int,
        window_config: WindowConfig,
        join_function: Callable[[Any, Any], Any],
        left: Streamlet[Any],
        right: Streamlet[Any],
    ) -> None:
        if join_type not in (JoinBolt.INNER, JoinBolt.OUTER_LEFT, JoinBolt.OUTER_RIGHT, JoinBolt.OUTER):
            raise StreamletError(
                f"unknown join type {join_type!r}; use JoinBolt.INNER, OUTER_LEFT, OUTER_RIGHT or OUTER"
            )
        config = _window_settings("a join", JoinBolt, window_config, join_function)
        config[JoinBolt.JOINTYPE] = join_type
        super().__init__("join", JoinBolt, {left: KeyGrouping(), right: KeyGrouping()}, config)
        self._right = right

    def _calculate_inputs(self) -> dict[GlobalStreamId, AnyGrouping]:
        # The name of the right side is known by now.
        self._config[JoinBolt.JOINEDCOMPONENT] = self._right.get_name()
        return super()._calculate_inputs()


def _window_settings(
    operator: str, bolt: type[WindowedBolt], window_config: WindowConfig, function: Callable[..., Any]
) -> dict[str, Any]:
    if not isinstance(window_config, WindowConfig):
        raise StreamletError(f"{operator} takes a WindowConfig, not {type(window_config).__name__}")
    return {
        bolt.FUNCTION: _checked_callable(function, operator),
        bolt.WINDOWDURATION: window_config.duration_s,
        bolt.SLIDEINTERVAL: window_config.slide_s,
    }


def _checked_callable(function: _T, operator: str) -> _T:
    if not callable(function):
        raise StreamletError(f"{operator} takes a function, not {type(function).__name__}")
    return function


def _check_takes_two(function: Callable[..., Any]) -> None:
    signature = signature_of(function)
    try:
        if signature is not None:
            signature.bind(None, 1)
    except TypeError:
        raise StreamletError(
            "a repartition function takes two arguments, the element and the number of "
            f"partitions, but {getattr(function, '__name__', function)!r} takes {signature}"
        ) from None
