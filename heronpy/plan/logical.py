"""The logical plan: components, streams and their consumers, as the user described them. Pure.

`LogicalPlan.from_topology` never fails on an invalid topology, so that `heronpy.plan.validation.validate` can
name all problems. Components are ordered as defined, spouts before bolts; output streams are numbered by their
sorted names, and frames carry that number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from heronpy.common.errors import TopologyError
from heronpy.common.nearest import did_you_mean
from heronpy.plan.component_config import ConfigMap, config_of, parallelism_of


class StreamDef(Struct, frozen=True):
    """An output stream of a component."""

    component: str
    name: str
    fields: tuple[str, ...]
    direct: bool = False
    #: The serialized Arrow schema; empty if the stream has no schema.
    schema: bytes = b""


class InputDef(Struct, frozen=True):
    """An input of a bolt; `message` is the InputStream in the topology message."""

    component: str
    stream: str
    grouping: int
    fields: tuple[str, ...]
    message: Any = None


class ComponentDef(Struct, frozen=True):
    """A spout or bolt; `parallelism` is 0 if the configured value is invalid."""

    name: str
    is_spout: bool
    parallelism: int
    inputs: tuple[InputDef, ...]
    outputs: tuple[StreamDef, ...]
    #: The component's own configuration, typed, without the topology's; serialized values are not loaded.
    config: ConfigMap
    #: Module and name of the component's class.
    class_name: str = ""

    def stream(self, name: str) -> StreamDef | None:
        for output in self.outputs:
            if output.name == name:
                return output
        return None


class LogicalPlan(Struct, frozen=True, dict=True):
    """The graph of a topology."""

    name: str
    #: The components in the order of definition, spouts first; names may repeat until the plan is validated.
    definitions: tuple[ComponentDef, ...]
    config: ConfigMap

    @classmethod
    def from_topology(cls, topology: Any) -> LogicalPlan:
        """Read a topology message; call `validate` before relying on the result."""
        config = config_of(topology)
        spouts = [_component(part, True, config) for part in topology.spouts]
        bolts = [_component(part, False, config) for part in topology.bolts]
        return cls(topology.name, (*spouts, *bolts), config)

    @cached_property
    def components(self) -> dict[str, ComponentDef]:
        """Components by name, spouts first, in the order of their definition."""
        return {component.name: component for component in self.definitions}

    @cached_property
    def streams(self) -> dict[tuple[str, str], StreamDef]:
        """Output streams by (component, stream)."""
        return {
            (component.name, output.name): output
            for component in self.components.values()
            for output in component.outputs
        }

    @cached_property
    def _consumers(self) -> Mapping[tuple[str, str], list[tuple[str, Any]]]:
        result: dict[tuple[str, str], list[tuple[str, Any]]] = {}
        for component in self.components.values():
            for item in component.inputs:
                key = (item.component, item.stream)
                result.setdefault(key, []).append((component.name, item.message))
        return result

    def component(self, name: str) -> ComponentDef:
        """Return the component with this name. Raises TopologyError with the nearest name if it is unknown."""
        found = self.components.get(name)
        if found is None:
            raise TopologyError(
                f"topology '{self.name}' has no component '{name}'{did_you_mean(name, self.components)}"
            )
        return found

    def consumers(self, component: str, stream: str) -> list[tuple[str, Any]]:
        """Return the consumers of a stream as (component, InputStream message), in the order of definition."""
        return list(self._consumers.get((component, stream), ()))

    def output_streams(self, component: str) -> list[str]:
        """Return the sorted names of a component's output streams; frames carry the index in this list."""
        return sorted(output.name for output in self.component(component).outputs)

    def upstream(self, component: str) -> list[str]:
        """Return the components that feed this component, each once."""
        return list(dict.fromkeys(item.component for item in self.component(component).inputs))

    def downstream(self, component: str) -> list[str]:
        """Return the components that this component feeds, each once."""
        found: dict[str, None] = {}
        for output in self.component(component).outputs:
            found.update(dict.fromkeys(name for name, _ in self.consumers(component, output.name)))
        return list(found)

    def spouts(self) -> list[str]:
        return [name for name, component in self.components.items() if component.is_spout]

    def bolts(self) -> list[str]:
        return [name for name, component in self.components.items() if not component.is_spout]

    @property
    def task_count(self) -> int:
        return sum(component.parallelism for component in self.components.values())

    def topological_order(self) -> list[str]:
        """Return the components, each after all components that feed it, spouts first; the components of a cycle
        are adjacent.
        """
        order = [name for group in self.groups() for name in group]
        return sorted(order, key=lambda name: not self.components[name].is_spout)

    def groups(self) -> list[list[str]]:
        """Return the strongly connected components in topological order; a group of several names is a cycle."""
        graph = {name: self.downstream(name) for name in self.components}
        groups = _strongly_connected(graph)
        position = {name: index for index, name in enumerate(self.components)}
        return [sorted(group, key=position.__getitem__) for group in reversed(groups)]

    def reachable(self, sources: Iterable[str]) -> set[str]:
        """Return the components that tuples from `sources` can reach, including the sources."""
        seen = set(sources)
        waiting = list(seen)
        while waiting:
            for name in self.downstream(waiting.pop()):
                if name not in seen:
                    seen.add(name)
                    waiting.append(name)
        return seen

    def cycle(self) -> list[str] | None:
        """Return a shortest cycle as a path that ends with its first name; None if there is no cycle."""
        for group in self.groups():
            members = set(group)
            if len(group) > 1 or group[0] in self.downstream(group[0]):
                return self._cycle_through(group[0], members)
        return None

    def _cycle_through(self, start: str, members: set[str]) -> list[str]:
        came_from: dict[str, str] = {}
        waiting = [start]
        for name in waiting:
            for following in self.downstream(name):
                if following == start:
                    path = [start, name]
                    while path[-1] != start:
                        path.append(came_from[path[-1]])
                    return path[::-1]  # the path was collected backwards
                if following in members and following not in came_from:
                    came_from[following] = name
                    waiting.append(following)
        raise AssertionError(f"{start} is in a strongly connected component without a cycle")


def _component(part: Any, is_spout: bool, topology_config: ConfigMap) -> ComponentDef:
    config = config_of(part)
    name = part.comp.name
    try:
        parallelism = parallelism_of({**topology_config, **config}, name)
    except TopologyError:
        parallelism = 0
    return ComponentDef(
        name=name,
        is_spout=is_spout,
        parallelism=parallelism,
        inputs=() if is_spout else tuple(_input(item) for item in part.inputs),
        outputs=tuple(
            StreamDef(
                output.stream.component_name,
                output.stream.id,
                tuple(key.key for key in output.schema.keys),
                output.direct,
                output.arrow_schema,
            )
            for output in part.outputs
        ),
        config=config,
        class_name=part.comp.class_name,
    )


def _input(message: Any) -> InputDef:
    return InputDef(
        message.stream.component_name,
        message.stream.id,
        message.gtype,
        tuple(key.key for key in message.grouping_fields.keys),
        message,
    )


def _strongly_connected(graph: Mapping[str, list[str]]) -> list[list[str]]:
    """Run Tarjan's algorithm without recursion; the groups are in reverse topological order."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    groups: list[list[str]] = []
    for root in reversed(list(graph)):
        if root in number:
            continue
        work = [(root, iter(graph[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, following = work[-1]
            for other in following:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(graph[other])))
                    break
                if other in on_stack:
                    low[name] = min(low[name], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == number[name]:
                    cut = stack.index(name)
                    groups.append(stack[cut:])
                    on_stack.difference_update(stack[cut:])
                    del stack[cut:]
    return groups


def regions_of(topology: Any) -> list[frozenset[str]]:
    """Return the sets of components that are restored from a checkpoint together, because streams connect them.

    The sets are ordered by their first component in the order of definition.
    """
    names = [spout.comp.name for spout in topology.spouts] + [bolt.comp.name for bolt in topology.bolts]
    leader = {name: name for name in names}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for bolt in topology.bolts:
        for item in bolt.inputs:
            if item.stream.component_name in leader:
                leader[find(bolt.comp.name)] = find(item.stream.component_name)
    found: dict[str, set[str]] = {}
    for name in names:
        found.setdefault(find(name), set()).add(name)
    return [frozenset(members) for members in found.values()]
