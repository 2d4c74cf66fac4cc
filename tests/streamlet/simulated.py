"""Streamlet programs of tests, on the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronpy.simulator import Simulator
from heronpy.streamlet import (
    Builder,
    Config,
    Context,
    Generator,
    Runner,
    Streamlet,
    TransformOperator,
    WindowConfig,
)

TEN_S = WindowConfig.create_tumbling_window(10)


class Items(Generator):
    """The given items, then the end of the input."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def setup(self, context: Context) -> None:
        index, count = context.get_partition_index(), context.get_num_partitions()
        self.rest = iter(self.items[index::count])

    def get(self) -> Any:
        return next(self.rest)


class RunningSum(TransformOperator):
    def setup(self, context: Context) -> None:
        self.context = context
        self.facts = (
            context.get_stream_name(),
            context.get_num_partitions(),
            context.get_partition_index(),
            context.get_config()["factor"],
        )

    def transform(self, tup: Any) -> None:
        state = self.context.get_state()
        state.put("sum", (state.get("sum") or 0) + tup)
        self.context.emit(state.get("sum"))
        self.context.emit(self.facts)


def simulate(builder: Builder, config: Config | None = None, seed: int = 0) -> Simulator:
    simulator = Simulator(Runner().build("test", config or Config(), builder), seed=seed)
    simulator.run()
    return simulator


def results(describe: Callable[[Streamlet], Streamlet], *items: Any, seed: int = 0) -> list[Any]:
    """What the operators make of the items."""
    builder = Builder()
    describe(builder.new_source(Items(*items)).set_name("items")).set_name("result")
    return elements(simulate(builder, seed=seed), "result")


def elements(simulator: Simulator, name: str) -> list[Any]:
    return [values[0] for values in simulator.emitted(name, "output")]


def partitions(simulator: Simulator, name: str) -> list[list[Any]]:
    """What each partition of a stage was given."""
    by_task: dict[int, list[Any]] = {task: [] for task in simulator.task_ids(name)}
    world = simulator._world
    for task, delivery in world.records.executed.get(name, ()):
        codec = world.tasks[task].codec
        by_task[task].append(codec.decode(delivery.payload, delivery.codec)[0])
    return [by_task[task] for task in sorted(by_task)]
