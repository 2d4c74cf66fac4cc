"""The topology that works on a batch run: workers and keepers instead of the user's components. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final

from heronpy.api.api_constants import (
    TOPOLOGY_AUTO_TASK_HOOKS,
    TOPOLOGY_COMPONENT_CPUMAP,
    TOPOLOGY_COMPONENT_DISKMAP,
    TOPOLOGY_COMPONENT_RAMMAP,
    TOPOLOGY_RELIABILITY_MODE,
    TOPOLOGY_STMGRS,
)
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.config_values import encode_config
from heronpy.common.engine_settings import SettingValue
from heronpy.common.topology_keys import BATCH_RUN, NO_OUTPUTS, TOPOLOGY_COMPONENT_CPU, TOPOLOGY_COMPONENT_RAM
from heronpy.connectors.spark.requirements import DISPATCH_KEY, RUN_HOME, spark_sinks
from heronpy.plan.component_config import config_of, keys_without_effect, reliability_mode
from heronpy.proto import components_of, topology_pb2

if TYPE_CHECKING:  # a tracker, which reads runs, need not import this module
    from heronpy.packing.demand import Demand

WORKER, KEEPER = "batch", "batch-keeper"
RUN_KEY: Final = BATCH_RUN
_KEEPERS: Final = 2
#: Seconds that a keeper may take for one step, such as `splits()`, or the savepoint and the publication at the end.
_HANG_KEY, _STEP_S = "heron.instance.hang_timeout_s", 3600
#: Keys of the user's components, or keys of modes, that do not apply to a run.
_MAPS: Final = (TOPOLOGY_COMPONENT_CPUMAP, TOPOLOGY_COMPONENT_RAMMAP, TOPOLOGY_COMPONENT_DISKMAP)
_DROPPED: Final = frozenset({TOPOLOGY_AUTO_TASK_HOOKS, *_MAPS})
#: Settings of a component that apply to its worker, because they limit a process; 0 means no limit.
_OF_WORKER: Final = ("memory_limit_bytes", "memory_soft_limit_bytes", "hang_timeout_s")
#: Settings that apply to the component inside its worker.
_OF_CELL: Final = frozenset(
    "allow_pickle batch_tuples batch_bytes tuple_max_bytes ready_timeout_s async_concurrency route_memo_keys".split()
)

ComponentSettings = Mapping[str, Mapping[str, SettingValue]]


def worker_config(demand: Demand, settings: ComponentSettings) -> dict[str, Any]:
    """Return the workers' configuration, with the largest request for each resource: a worker runs all components.

    `settings`: the settings of `heron.instance` that components override.
    """
    config: dict[str, Any] = {}
    for dimension, key in enumerate((TOPOLOGY_COMPONENT_CPU, TOPOLOGY_COMPONENT_RAM)):
        sizes = [part.size[dimension] for part in demand.components if part.name in demand.explicit[dimension]]
        if sizes:
            config[key] = max(sizes)
    for name in _OF_WORKER:
        given = [float(str(values[name])) for values in settings.values() if name in values]
        if given:
            most = max(given, key=lambda value: value or inf)
            config[f"heron.instance.{name}"] = int(most) if most.is_integer() else most
    return config


def left_out(settings: ComponentSettings, origins: Mapping[str, str]) -> str:
    """Return a sentence about the component settings that a run ignores; "" if there are none."""
    names = [
        f"heron.instance.{name} of '{component}'"
        for component, values in settings.items()
        for name in values
        if name not in _OF_CELL and name not in _OF_WORKER
        if origins.get(f"instance.{name}@{component}", "").startswith("config of component")
    ]
    return f"a batch run does not accept {', '.join(sorted(names))}" if names else ""


def run_topology(
    topology: topology_pb2.Topology,
    folder: str,
    workers: int,
    worker: Mapping[str, Any] | None = None,
    publishes: bool = True,
) -> topology_pb2.Topology:
    """Return the topology with the workers and keepers of the run in `folder`, under the user's name and configuration.

    `worker`: the configuration of the workers, see `worker_config`. `publishes`: whether rows are published to the
    sinks, possibly by Spark. Two workers or more need two containers, because a backup runs in another container.
    """
    made = topology_pb2.Topology(id=topology.id, name=topology.name, state=topology.state)
    given, mode = config_of(topology), "ATMOST_ONCE"
    containers = max(int(given.get(TOPOLOGY_STMGRS, 1)), min(2, workers))
    own = {TOPOLOGY_RELIABILITY_MODE: mode, TOPOLOGY_STMGRS: str(containers)}
    # Keys that only this mode ignores get no warning.
    idle = keys_without_effect(given, mode) - keys_without_effect(given, reliability_mode(topology))
    dropped = _DROPPED | idle | own.keys()
    kept = [pair for pair in topology.topology_config.kvs if pair.key not in dropped]
    made.topology_config.kvs.extend(kept)
    made.topology_config.MergeFrom(encode_config(own))
    config: dict[str, Any] = {RUN_KEY: folder, NO_OUTPUTS: True}
    for_spark = {DISPATCH_KEY: f"{folder}/{RUN_HOME}"} if publishes and spark_sinks(topology) else {}
    for name, path, tasks, more in (
        (WORKER, "heronpy.batch.worker.BatchWorker", workers, worker or {}),
        (KEEPER, "heronpy.batch.keeper.BatchKeeper", _KEEPERS, {_HANG_KEY: _STEP_S} | for_spark),
    ):
        spout = HeronComponentSpec(name, path, True, tasks, config=config | {**more}).get_protobuf()
        assert isinstance(spout, topology_pb2.Spout)
        made.spouts.add().CopyFrom(spout)
    return made


def run_folder(topology: topology_pb2.Topology) -> str:
    """Return the folder of the run that the topology works on; "" for a topology that is not a batch run."""
    configs = map(config_of, components_of(topology).values())
    return next((str(config[RUN_KEY]) for config in configs if RUN_KEY in config), "")
