"""Divides a topology into the stages of a batch run, or reports why the topology cannot run as a batch. Pure.

A bolt joins the stage of its producers if all its inputs are shuffled and come from one stage. Otherwise it begins a
stage, and its inputs are *exchanges*: files that the stage reads. A bolt with saved State also begins a stage,
because its State belongs to one task. A bolt with one task that emits at the end of the input begins a stage, because
its result is computed from all tuples. Stages run one after the other, each after all stages whose output it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.plan.component_config import reliability_mode
from heronpy.plan.logical import ComponentDef, LogicalPlan
from heronpy.proto import components_of, topology_pb2

SHUFFLED = frozenset((topology_pb2.SHUFFLE, topology_pb2.NONE))
#: Groupings whose user code names tasks, so that the declared number of tasks must exist.
NAMED = frozenset((topology_pb2.DIRECT, topology_pb2.CUSTOM))
#: Spouts whose input is divided into units.
CUT = frozenset(("TextFileSpout", "SplitSpout"))


class BatchRefusedError(ConfigError):
    """A topology cannot run as a batch."""


class Exchange(Struct, frozen=True):
    """A stream that a later stage reads from files."""

    producer: str
    stream: str
    consumer: str
    grouping: int
    #: The numbers of the writing stage and of the reading stage.
    producing: int
    consuming: int


class Stage(Struct, frozen=True):
    """Components that run together in one process."""

    number: int
    #: The components, in the order of the data. The first is the spout, or the bolt that reads the exchanges.
    components: tuple[str, ...]
    #: The content of its units: "lines" of text, "splits" of a SplitSpout, tasks of another "spout", or "buckets".
    source: str
    inputs: tuple[Exchange, ...]
    outputs: tuple[Exchange, ...]
    #: The components whose class has `unit_output`.
    sinks: tuple[str, ...]
    #: The number of tasks of each component; 0 if the data decides.
    tasks: int
    #: The reason why two attempts at one unit must not run concurrently; "" if they may.
    no_backups: str

    @property
    def spout(self) -> str:
        """The name of the spout; "" if the stage reads exchanges."""
        return "" if self.source == "buckets" else self.components[0]


def divide(topology: topology_pb2.Topology) -> tuple[Stage, ...]:
    """Return the stages in execution order. Raises BatchRefusedError for a topology that cannot run as a batch."""
    plan = LogicalPlan.from_topology(topology)
    traits = {name: frozenset(part.comp.traits) for name, part in components_of(topology).items()}
    for problem in _problems(plan, traits):
        raise BatchRefusedError(f"topology '{topology.name}' cannot run as a batch: {problem}")
    saves = reliability_mode(topology) == "EFFECTIVELY_ONCE"
    head_of: dict[str, str] = {}
    for name in plan.topological_order():
        component = plan.components[name]
        head = head_of[name] = name if component.is_spout else _joined(component, head_of)
        if head != name and "unit_output" not in traits[name]:
            one_task = not CUT & traits[head] and _tasks(plan.components[head], traits[head], saves) == 1
            if _keeps_state(traits[name], saves) or (_ends_whole(component, traits[name]) and not one_task):
                head_of[name] = name
    return _stages(plan, traits, head_of, saves)


def _keeps_state(traits: frozenset[str], saves: bool) -> bool:
    return saves and "StatefulComponent" in traits


def _ends_whole(bolt: ComponentDef, traits: frozenset[str]) -> bool:
    """Whether a bolt has only one task, which may emit a result computed from all tuples when the input ends."""
    shuffled = all(item.grouping in SHUFFLED for item in bolt.inputs)
    return shuffled and bolt.parallelism == 1 and bool(traits & {"finish", "TransformBolt"})


def _joined(bolt: ComponentDef, head_of: dict[str, str]) -> str:
    """Return the head of the stage that a bolt belongs to: the bolt's own name if it begins a stage."""
    heads = {head_of[item.component] for item in bolt.inputs}
    shuffled = all(item.grouping in SHUFFLED for item in bolt.inputs)
    return heads.pop() if shuffled and len(heads) == 1 else bolt.name


def _stages(
    plan: LogicalPlan, traits: dict[str, frozenset[str]], head_of: dict[str, str], saves: bool
) -> tuple[Stage, ...]:
    order = plan.topological_order()
    heads = [name for name in order if head_of[name] == name]
    number_of = {head: number for number, head in enumerate(heads, 1)}
    exchanges = [
        Exchange(
            item.component,
            item.stream,
            head,
            item.grouping,
            number_of[head_of[item.component]],
            number_of[head],
        )
        for head in heads
        for item in plan.components[head].inputs
    ]
    stages = []
    for head, number in number_of.items():
        members = tuple(name for name in order if head_of[name] == head)
        sinks = tuple(name for name in members if "unit_output" in traits[name])
        stages.append(
            Stage(
                number,
                members,
                _source(plan.components[head], traits[head]),
                tuple(one for one in exchanges if one.consuming == number),
                tuple(one for one in exchanges if one.producing == number),
                sinks,
                _tasks(plan.components[head], traits[head], saves),
                _no_backups(plan, members, sinks),
            )
        )
    return tuple(stages)


def _source(head: ComponentDef, traits: frozenset[str]) -> str:
    if not head.is_spout:
        return "buckets"
    return "lines" if "TextFileSpout" in traits else "splits" if "SplitSpout" in traits else "spout"


def _tasks(head: ComponentDef, traits: frozenset[str], saves: bool) -> int:
    """Return the number of tasks in a stage with this head; 0 if the number depends on the data."""
    if head.is_spout:
        return 1 if CUT & traits else head.parallelism
    groupings = {item.grouping for item in head.inputs}
    if groupings == {topology_pb2.LOWEST}:
        return 1
    # If each task gets all tuples, each task may emit a result for all of them.
    repeated = groupings <= {topology_pb2.ALL, topology_pb2.LOWEST}
    declared = repeated or _keeps_state(traits, saves) or _ends_whole(head, traits) or groupings & NAMED
    return head.parallelism if declared else 0


def _no_backups(plan: LogicalPlan, members: Iterable[str], sinks: Sequence[str]) -> str:
    for name in members:
        if name not in sinks and not plan.components[name].is_spout and not plan.downstream(name):
            return f"bolt '{name}' has no output, and a second attempt would repeat its side effects"
    return ""


def _problems(plan: LogicalPlan, traits: dict[str, frozenset[str]]) -> Iterable[str]:
    """Return the reasons why the topology cannot run as a batch; each clause names the component and the fix."""
    cycle = plan.cycle()
    if cycle is not None:
        yield f"the components {' -> '.join(cycle)} form a cycle; break the cycle, or use --mode stream"
    if not plan.spouts():
        yield "the topology has no spout"
    for name, component in plan.components.items():
        own = traits[name]
        kind = "spout" if component.is_spout else "bolt"
        if not own:
            yield f"{kind} '{name}' has no record of its class; build the topology with this release of heronpy"
        if {"LogWorker", "LogKeeper"} & own:
            yield f"'{name}' belongs to a pipeline of LogUnits; submit the pipeline without other spouts"
        if "_WindowBolt" in own:
            fix = "group by a time in the tuples"
            if "StreamletBoltBase" in own:
                fix = "reduce in a TransformOperator with one partition, which emits in finish(),"
            yield (
                f"bolt '{name}' uses processing-time windows, which a batch does not support; {fix} instead, or use"
                " --mode stream"
            )
        if "TwoPhaseStatefulComponent" in own and "unit_output" not in own:
            fix = "end in a FileSink, or define unit_output" if kind == "bolt" else "use a bounded spout"
            yield f"{kind} '{name}' commits with checkpoints, but a batch run takes no checkpoints; {fix}"
