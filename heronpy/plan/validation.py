"""Problems of a topology that can be found in its description alone. Pure.

Each problem is one sentence that names the cause and the fix. A problem that depends on another problem
(reachability is meaningless while an input is unknown) is reported only after the other is fixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from heronpy.common.errors import TopologyError
from heronpy.common.ids import part_name_problem, topology_name_problem
from heronpy.common.nearest import did_you_mean
from heronpy.common.topology_keys import (
    NEEDS_ACKS,
    NO_OUTPUTS,
    TOPOLOGY_COMPONENT_PARALLELISM,
    TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE,
    TOPOLOGY_RELIABILITY_MODE,
)
from heronpy.plan import windows
from heronpy.plan.component_config import drop_policy, key_problem, reliability_mode
from heronpy.plan.grouping import missing_field
from heronpy.plan.logical import ComponentDef, InputDef, LogicalPlan, StreamDef
from heronpy.proto import topology_pb2
from heronpy.wire.arrow_values import schema_of, schema_problem

#: Maximum number of tasks of a topology. A higher number is certainly a typing error.
TASKS_MAX = 100_000
SYSTEM_COMPONENT = "__system"
TICK_STREAM = "__tick"
#: Why a component with plain State cannot be rescaled, and the alternatives.
_PLAIN = (
    "the State of {} belongs to individual tasks and cannot be redistributed to a different number of tasks; keep the"
    " parallelism, or keep per-key state in context.keyed_state, and positions of a source in context.partitioned_state"
)


#: Why the number of tasks of a `SplitSpout` cannot be changed in at-most-once mode, and the alternatives.
_SPLITS = (
    "spout {} would read splits again, because its tasks save positions only under EFFECTIVELY_ONCE; keep the"
    " parallelism, or submit the topology under EFFECTIVELY_ONCE, or under ATLEAST_ONCE if repeated tuples are harmless"
)


def problems(plan: LogicalPlan) -> list[str]:
    """Return one sentence for each problem of a plan, the most basic first."""
    found = [*_names(plan), *_settings(plan)]
    for component in plan.definitions:
        found += _outputs(component)
        found += _inputs(plan, component)
    found += _size(plan)
    # The graph cannot be checked while names repeat or inputs are unknown.
    if not found:
        found += [*_cycles(plan), *_reach(plan), *windows.problems(plan)]
    return found


def validate(plan: LogicalPlan) -> None:
    """Raise a TopologyError with all problems, one sentence per line, if there are any."""
    found = problems(plan)
    if found:
        raise TopologyError("\n".join(found))


def warnings(plan: LogicalPlan) -> list[str]:
    """Return possible problems that depend on the user's code, one sentence each, for a plan without `problems`."""
    return [*_cycle_warnings(plan), *windows.warnings(plan)]


def not_scalable(component: str, plain: Collection[str], rereading: Collection[str] = ()) -> str:
    """Return why the number of tasks of a component cannot be changed; "" if it can.

    `plain` contains the components with plain State; `rereading` is the result of the function `rereading`.
    """
    why = _PLAIN if component in plain else _SPLITS if component in rereading else ""
    return why.format(component)


def rereading(topology: topology_pb2.Topology) -> list[str]:
    """Return the spouts that would emit tuples again if their number of tasks changed, although no tuple may repeat."""
    if reliability_mode(topology) != "ATMOST_ONCE":
        return []
    return [spout.comp.name for spout in topology.spouts if "SplitSpout" in spout.comp.traits]


def _names(plan: LogicalPlan) -> Iterator[str]:
    wrong = topology_name_problem(plan.name)
    if wrong:
        yield f"the topology name {_quoted(plan.name)} {wrong}; choose another name"
    if not any(component.is_spout for component in plan.definitions):
        yield f"topology '{plan.name}' has no spout; add a spout, or no tuples will flow"
    for name, count in Counter(component.name for component in plan.definitions).items():
        wrong = part_name_problem(name)
        if wrong:
            yield f"the component name {_quoted(name)} {wrong}; choose another name"
        if name == SYSTEM_COMPONENT:
            yield f"the component name '{name}' is reserved; choose another name"
        if count > 1:
            yield f"{count} components are named '{name}'; give each a different name"


def _settings(plan: LogicalPlan) -> Iterator[str]:
    for key, value in plan.config.items():
        wrong = key_problem(key, value)
        if wrong:
            yield f"topology '{plan.name}' {wrong}"
    mode = plan.config.get(TOPOLOGY_RELIABILITY_MODE, "ATMOST_ONCE")
    drops = drop_policy(plan.config)
    if drops and mode != "ATMOST_ONCE" and not key_problem(TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE, drops):
        yield (
            f"topology '{plan.name}' sets '{TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE}', but under {mode} no tuple may be"
            f" dropped; remove that key, or set {TOPOLOGY_RELIABILITY_MODE} to ATMOST_ONCE"
        )
    for component in plan.definitions:
        for key, value in component.config.items():
            wrong = key_problem(key, value)
            if not wrong and key == TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE:
                wrong = f"sets '{key}', which is for the whole topology; set it in the topology's config"
            if wrong:
                yield f"{_kind(component)} '{component.name}' {wrong}"
        yield from windows.duration_problems(component)
        why = component.config.get(NEEDS_ACKS)
        if why and mode != "ATLEAST_ONCE":
            cure = f"set {TOPOLOGY_RELIABILITY_MODE} to ATLEAST_ONCE, not {mode}"
            yield f"{_kind(component)} '{component.name}' {why}; {cure}"


def _size(plan: LogicalPlan) -> Iterator[str]:
    if plan.task_count > TASKS_MAX:
        yield (
            f"topology '{plan.name}' has {plan.task_count} tasks, more than the {TASKS_MAX} that "
            f"one topology may have; lower {TOPOLOGY_COMPONENT_PARALLELISM} of its components"
        )


def _outputs(component: ComponentDef) -> Iterator[str]:
    if component.is_spout and not component.outputs and not component.config.get(NO_OUTPUTS):
        yield f"spout '{component.name}' has no output stream; declare its outputs"
    for name, count in Counter(output.name for output in component.outputs).items():
        if count > 1:
            yield (
                f"{_kind(component)} '{component.name}' declares stream '{name}' {count} times; "
                "give each stream its own name"
            )
    for output in component.outputs:
        yield from _output(component, output)


def _output(component: ComponentDef, output: StreamDef) -> Iterator[str]:
    where = f"of {_kind(component)} '{component.name}'"
    wrong = part_name_problem(output.name)
    if wrong:
        yield f"the stream name {_quoted(output.name)} {where} {wrong}; choose another name"
    if output.name == TICK_STREAM:
        yield f"the stream name '{output.name}' {where} is reserved; choose another name"
    if output.component != component.name:
        yield (
            f"stream '{output.name}' {where} declares that it belongs to '{output.component}'; "
            "a component can only declare its own streams"
        )
    for field, count in Counter(output.fields).items():
        if count > 1:
            yield (f"stream '{output.name}' {where} has field '{field}' {count} times; give each field its own name")
    if output.schema:
        wrong = _schema_problem(output)
        if wrong:
            yield f"the Arrow schema of stream '{output.name}' {where} cannot be used: {wrong}"


def _schema_problem(output: StreamDef) -> str | None:
    try:
        schema = schema_of(output.schema)
    except TopologyError as error:
        return str(error)
    if tuple(schema.names) != output.fields:
        return f"it has {', '.join(schema.names)}, but the stream declares {', '.join(output.fields) or 'no fields'}"
    return schema_problem(schema)


def _inputs(plan: LogicalPlan, component: ComponentDef) -> Iterator[str]:
    if component.is_spout:
        return
    if not component.inputs:
        yield f"bolt '{component.name}' has no input; connect it to a stream of another component"
    sources = Counter((item.component, item.stream) for item in component.inputs)
    for (source, stream), count in sources.items():
        if count > 1:
            yield (
                f"bolt '{component.name}' takes stream '{stream}' of '{source}' {count} times; keep one of these inputs"
            )
    for item in component.inputs:
        yield from _input(plan, component, item)


def _input(plan: LogicalPlan, bolt: ComponentDef, item: InputDef) -> Iterator[str]:
    source = plan.components.get(item.component)
    if source is None:
        hint = did_you_mean(item.component, plan.components)
        yield (
            f"bolt '{bolt.name}' takes input from component '{item.component}', which does not "
            f"exist{hint}; name an existing component"
        )
        return
    stream = source.stream(item.stream)
    if stream is None:
        names = [output.name for output in source.outputs]
        listed = ", ".join(f"'{name}'" for name in sorted(names)) or "none"
        yield (
            f"bolt '{bolt.name}' takes stream '{item.stream}' of '{source.name}', which has no "
            f"such stream{did_you_mean(item.stream, names)}; its streams: {listed}"
        )
        return
    yield from _grouping(bolt, item, stream)


def _grouping(bolt: ComponentDef, item: InputDef, stream: StreamDef) -> Iterator[str]:
    what = f"stream '{item.stream}' of '{item.component}'"
    if stream.direct and item.grouping != topology_pb2.DIRECT:
        yield (
            f"bolt '{bolt.name}' takes the direct {what} with "
            f"{_grouping_name(item.grouping)} grouping; use Grouping.DIRECT, or declare the stream "
            "without direct=True"
        )
    if item.grouping == topology_pb2.DIRECT and not stream.direct:
        yield (
            f"bolt '{bolt.name}' takes {what} with DIRECT grouping, but the stream is not direct; "
            "declare it with direct=True, or use another grouping"
        )
    if item.grouping == topology_pb2.CUSTOM and not item.message.custom_grouping_object:
        yield (
            f"bolt '{bolt.name}' takes {what} with a custom grouping that has no grouping object; "
            "use Grouping.custom(...)"
        )
    if item.grouping != topology_pb2.FIELDS:
        return
    if not item.fields:
        yield (
            f"bolt '{bolt.name}' takes {what} with a fields grouping that names no field; use Grouping.fields('...')"
        )
    for name in dict.fromkeys(item.fields):
        if name not in stream.fields:
            missing = missing_field(name, stream.fields)
            yield f"bolt '{bolt.name}' groups {what} by a missing field: {missing}"


def _cycles(plan: LogicalPlan) -> Iterator[str]:
    """Report cycles if checkpoints are used. Tuple trees allow cycles: a tree ends when its tuples leave the loop."""
    path = plan.cycle() if plan.config.get(TOPOLOGY_RELIABILITY_MODE) == "EFFECTIVELY_ONCE" else None
    if path is not None:
        yield (
            f"under EFFECTIVELY_ONCE the cycle {_shown(path)} cannot work, because a bolt in the cycle would wait for a"
            " checkpoint barrier that it must first send itself; break the cycle or use ATLEAST_ONCE"
        )


def _cycle_warnings(plan: LogicalPlan) -> Iterator[str]:
    path = plan.cycle()
    if path is None or plan.config.get(TOPOLOGY_RELIABILITY_MODE) == "EFFECTIVELY_ONCE":
        return
    at_least_once = plan.config.get(TOPOLOGY_RELIABILITY_MODE) == "ATLEAST_ONCE"
    cure = "make each tuple leave the cycle after a limited number of rounds"
    if at_least_once:
        cure += " and within topology.message.timeout.secs"
    yield f"the components {_shown(path)} form a cycle, whose queues can grow without limit: {cure}"


def _shown(path: list[str]) -> str:
    return " -> ".join(path if len(path) <= 20 else [*path[:18], "...", path[-1]])


def key_group_problems(plan: LogicalPlan, key_groups: int) -> list[str]:
    """Return a problem for each component with more tasks than an EFFECTIVELY_ONCE topology has key groups.

    A key group belongs to one task, so surplus tasks would never get a key.
    """
    return [
        f"{_kind(component)} '{component.name}' has {component.parallelism} tasks, more than the "
        f"{key_groups} key groups that keyed state is divided into; lower its parallelism or raise "
        "heron.checkpoint.key_groups"
        for component in plan.definitions
        if component.parallelism > key_groups
    ]


def _reach(plan: LogicalPlan) -> Iterator[str]:
    reached = plan.reachable(plan.spouts())
    lost = [name for name in plan.components if name not in reached]
    if len(lost) == 1:
        yield (f"no spout's tuples can reach component '{lost[0]}'; connect it to a spout or remove it")
    elif lost:
        names = ", ".join(f"'{name}'" for name in lost[:20]) + (", ..." if len(lost) > 20 else "")
        yield f"no spout's tuples can reach the components {names}; connect or remove them"


def _kind(component: ComponentDef) -> str:
    return "spout" if component.is_spout else "bolt"


def _grouping_name(grouping: int) -> str:
    return str(topology_pb2.Grouping.Name(grouping))


def _quoted(name: str) -> str:
    # repr shows control characters instead of printing them.
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:70]}...'"
