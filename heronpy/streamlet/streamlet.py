"""Streamlet: a (possibly endless) collection of elements, and the operators over it.

Calling an operator only records it. `Builder.build` later walks the graph from the sources and
adds one spout or bolt per streamlet; a stage that has two parents is added when both are there.
The number of partitions is copied from the parent when the operator is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.transformoperator import TransformOperator
from heronpy.streamlet.windowconfig import WindowConfig

OUTPUT_STREAM = "output"
OUTPUT_FIELD = "_output_"

AnyStreamlet = TypeVar("AnyStreamlet", bound="Streamlet")


class Streamlet:
    """The result of a source or of an operator. Subclasses say how their stage is built."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._num_partitions = 1
        self._children: list[Streamlet] = []
        self._built = False
        self._output = OUTPUT_STREAM

    # -- about the stage ----------------------------------------------------------------------

    def set_name(self: AnyStreamlet, name: str) -> AnyStreamlet:
        """Name the stage; without a name it is called after its operator, like "map-1"."""
        if not isinstance(name, str) or not name:
            raise StreamletError(f"a streamlet's name must be a non-empty str, not {name!r}")
        self._name = name
        return self

    def get_name(self) -> str | None:
        """The name given, or the one chosen while the topology was built."""
        return self._name

    def set_num_partitions(self: AnyStreamlet, num_partitions: int) -> AnyStreamlet:
        """Compute this streamlet in this many parallel tasks."""
        self._num_partitions = checked_partitions(num_partitions)
        return self

    def get_num_partitions(self) -> int:
        """How many parallel tasks compute this streamlet."""
        return self._num_partitions

    # -- one element at a time ----------------------------------------------------------------

    def map(self, map_function: Callable[[Any], Any]) -> Streamlet:
        """Each element replaced by `map_function(element)`."""
        from heronpy.streamlet.impl.mapbolt import MapStreamlet

        return self._add_child(MapStreamlet(map_function, self))

    def flat_map(self, flatmap_function: Callable[[Any], Any]) -> Streamlet:
        """All elements of each iterable `flatmap_function(element)`.

        A str is an iterable of its characters; a result that is no iterable is one element.
        """
        from heronpy.streamlet.impl.flatmapbolt import FlatMapStreamlet

        return self._add_child(FlatMapStreamlet(flatmap_function, self))

    def filter(self, filter_function: Callable[[Any], Any]) -> Streamlet:
        """Only the elements for which `filter_function(element)` is true."""
        from heronpy.streamlet.impl.filterbolt import FilterStreamlet

        return self._add_child(FilterStreamlet(filter_function, self))

    def transform(self, transform_operator: TransformOperator) -> Streamlet:
        """What the operator emits through its context, any number of elements per element."""
        from heronpy.streamlet.impl.transformbolt import TransformStreamlet

        return self._add_child(TransformStreamlet(transform_operator, self))

    # -- routing ------------------------------------------------------------------------------

    def repartition(
        self,
        num_partitions: int,
        repartition_function: Callable[[Any, int], int | Iterable[int]] | None = None,
    ) -> Streamlet:
        """The same elements in `num_partitions` partitions.

        `repartition_function(element, num_partitions)` returns the index of the partition, or
        several indices to copy the element; an index is taken modulo the number of partitions.
        Without a function the elements are spread evenly.
        """
        from heronpy.streamlet.impl.repartitionbolt import RepartitionStreamlet

        return self._add_child(RepartitionStreamlet(num_partitions, repartition_function, self))

    def clone(self, num_clones: int) -> list[Streamlet]:
        """`num_clones` streamlets, each with all elements of this one."""
        if isinstance(num_clones, bool) or not isinstance(num_clones, int) or num_clones < 1:
            raise StreamletError(f"clone takes a number of clones from 1 on, not {num_clones!r}")
        return [self.repartition(self.get_num_partitions()) for _ in range(num_clones)]

    def union(self, other_streamlet: Streamlet) -> Streamlet:
        """The elements of both streamlets."""
        from heronpy.streamlet.impl.unionbolt import UnionStreamlet

        other = self._distinct(other_streamlet, "union")
        return self._add_child(UnionStreamlet(self, other), other)

    # -- windows ------------------------------------------------------------------------------

    def reduce_by_window(
        self, window_config: WindowConfig, reduce_function: Callable[[Any, Any], Any]
    ) -> Streamlet:
        """The pair (Window, fold of its elements) for each window and partition.

        The fold begins with the first element. A window without elements gives (Window, None).
        Partitions are not merged: set one partition for one result per window.
        """
        from heronpy.streamlet.impl.reducebywindowbolt import ReduceByWindowStreamlet

        return self._add_child(ReduceByWindowStreamlet(window_config, reduce_function, self))

    def reduce_by_key_and_window(
        self, window_config: WindowConfig, reduce_function: Callable[[Any, Any], Any]
    ) -> Streamlet:
        """For (key, value) elements: (KeyedWindow, fold of the key's values) per window."""
        from heronpy.streamlet.impl.reducebykeyandwindowbolt import ReduceByKeyAndWindowStreamlet

        return self._add_child(ReduceByKeyAndWindowStreamlet(window_config, reduce_function, self))

    def join(
        self,
        join_streamlet: Streamlet,
        window_config: WindowConfig,
        join_function: Callable[[Any, Any], Any],
    ) -> Streamlet:
        """(KeyedWindow, join_function(left, right)) for all pairs of one key in a window."""
        from heronpy.streamlet.impl.joinbolt import JoinBolt

        return self._join(JoinBolt.INNER, join_streamlet, window_config, join_function)

    def outer_left_join(
        self,
        join_streamlet: Streamlet,
        window_config: WindowConfig,
        join_function: Callable[[Any, Any], Any],
    ) -> Streamlet:
        """Like `join`, and with None on the right for keys only on the left."""
        from heronpy.streamlet.impl.joinbolt import JoinBolt

        return self._join(JoinBolt.OUTER_LEFT, join_streamlet, window_config, join_function)

    def outer_right_join(
        self,
        join_streamlet: Streamlet,
        window_config: WindowConfig,
        join_function: Callable[[Any, Any], Any],
    ) -> Streamlet:
        """Like `join`, and with None on the left for keys only on the right."""
        from heronpy.streamlet.impl.joinbolt import JoinBolt

        return self._join(JoinBolt.OUTER_RIGHT, join_streamlet, window_config, join_function)

    def outer_join(
        self,
        join_streamlet: Streamlet,
        window_config: WindowConfig,
        join_function: Callable[[Any, Any], Any],
    ) -> Streamlet:
        """Like `join`, and with None on the missing side for keys of only one side."""
        from heronpy.streamlet.impl.joinbolt import JoinBolt

        return self._join(JoinBolt.OUTER, join_streamlet, window_config, join_function)

    # -- ends ---------------------------------------------------------------------------------

    def log(self) -> None:
        """Write each element into the log of its task."""
        from heronpy.streamlet.impl.logbolt import LogStreamlet

        self._add_child(LogStreamlet(self))

    def consume(self, consume_function: Callable[[Any], Any]) -> None:
        """Call `consume_function(element)` for each element; the result is dropped."""
        from heronpy.streamlet.impl.consumebolt import ConsumeStreamlet

        self._add_child(ConsumeStreamlet(consume_function, self))

    # -- building -----------------------------------------------------------------------------

    def _join(
        self,
        join_type: int,
        right: Streamlet,
        window_config: WindowConfig,
        join_function: Callable[[Any, Any], Any],
    ) -> Streamlet:
        from heronpy.streamlet.impl.joinbolt import JoinStreamlet

        other = self._distinct(right, "join")
        joined = JoinStreamlet(join_type, window_config, join_function, self, other)
        return self._add_child(joined, other)

    def _distinct(self, other: Streamlet, operator: str) -> Streamlet:
        """`other`, or a copy of it if it is this very streamlet.

        A bolt tells its inputs apart by the component they come from, so a streamlet that meets
        itself needs a second component.
        """
        if not isinstance(other, Streamlet):
            raise StreamletError(
                f"{operator} takes a Streamlet as the other side, not {type(other).__name__}"
            )
        return self.clone(1)[0] if other is self else other

    def _add_child(self, child: Streamlet, *other_parents: Streamlet) -> Streamlet:
        for parent in (self, *other_parents):
            parent._children.append(child)
        return child

    def _build(self, bldr: TopologyBuilder, stage_names: set[str]) -> None:
        # An explicit stack, children in order: long chains must not meet the recursion limit.
        if self._built:
            raise StreamletError(
                f"streamlet {self.get_name()!r} was built before; a Builder builds only once"
            )
        waiting: list[Streamlet] = [self]
        while waiting:
            stage = waiting.pop()
            # A stage with two parents is met once from each; the later meeting builds it, and
            # where one parent descends from the other there may be one meeting more.
            if not stage._built and stage._build_this(bldr, stage_names):
                stage._built = True
                waiting.extend(reversed(stage._children))

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        """Add this stage to the topology; False if a parent is not there yet."""
        raise NotImplementedError(f"{type(self).__name__} must define _build_this")

    def _claim_name(self, prefix: str, stage_names: set[str]) -> str:
        """This stage's name, unique in the topology; "prefix-N" unless the user gave one."""
        if self._name is None:
            self._name = self._default_stage_name_calculator(prefix, stage_names)
        if self._name in stage_names:
            raise StreamletError(
                f"two streamlets are named {self._name!r}; give each its own name with set_name"
            )
        stage_names.add(self._name)
        return self._name

    def _default_stage_name_calculator(self, prefix: str, existing_stage_names: set[str]) -> str:
        index = 1
        while f"{prefix}-{index}" in existing_stage_names:
            index += 1
        return f"{prefix}-{index}"

    def _stream_id(self) -> GlobalStreamId:
        """The output stream of this built stage, to be used as an input of the next."""
        assert self._name is not None, "a stage has a name once it is built"
        return GlobalStreamId(self._name, self._output)

    def _all_built(self) -> bool:
        waiting, seen = [self], {id(self)}
        while waiting:
            stage = waiting.pop()
            if not stage._built:
                return False
            for child in stage._children:
                if id(child) not in seen:
                    seen.add(id(child))
                    waiting.append(child)
        return True


def checked_partitions(num_partitions: int) -> int:
    """The number of partitions, if it is one."""
    if (
        isinstance(num_partitions, bool)
        or not isinstance(num_partitions, int)
        or num_partitions < 1
    ):
        raise StreamletError(
            f"the number of partitions is {num_partitions!r}; give an int from 1 on"
        )
    return num_partitions


def checked_callable(function: Any, operator: str) -> Any:
    """The function of an operator, if it can be called."""
    if not callable(function):
        raise StreamletError(f"{operator} takes a function, not {type(function).__name__}")
    return function
