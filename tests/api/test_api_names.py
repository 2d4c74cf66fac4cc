"""Every name of the Apache heronpy API can be imported from where it was."""

from __future__ import annotations

import importlib
import inspect

import pytest

import heronpy

NAMES = {
    "heronpy.api.topology": "TopologyType Topology TopologyBuilder",
    "heronpy.api.component.component_spec": "HeronComponentSpec GlobalStreamId",
    "heronpy.api.component.base_component": "BaseComponent",
    "heronpy.api.stream": "Stream Grouping",
    "heronpy.api.bolt.bolt": "Bolt",
    "heronpy.api.bolt.base_bolt": "BaseBolt",
    "heronpy.api.bolt.window_bolt": "SlidingWindowBolt TumblingWindowBolt WindowContext",
    "heronpy.api.bolt.async_bolt": "AsyncBolt",
    "heronpy.api.bolt.basic_bolt": "BasicBolt Output FailTuple",
    "heronpy.api.spout.spout": "Spout",
    "heronpy.api.spout.async_spout": "AsyncSpout",
    "heronpy.api.spout.base_spout": "BaseSpout",
    "heronpy.api.tuple": "Tuple TupleHelper",
    "heronpy.api.topology_context": "TopologyContext",
    "heronpy.api.task_hook": "ITaskHook EmitInfo SpoutAckInfo SpoutFailInfo BoltExecuteInfo BoltAckInfo BoltFailInfo",
    "heronpy.api.custom_grouping": "ICustomGrouping",
    "heronpy.api.state.state": "State HashMapState",
    "heronpy.api.state.stateful_component": "StatefulComponent",
    "heronpy.api.serializer": "IHeronSerializer PythonSerializer default_serializer",
    "heronpy.api.metrics": "IMetric CountMetric MultiCountMetric IReducer MeanReducer "
    "ReducedMetric MultiReducedMetric AssignableMetrics "
    "MultiAssignableMetrics MeanReducedMetric MultiMeanReducedMetric",
    "heronpy.api.global_metrics": "incr safe_incr init metricsContainer registered root_name lock",
    "heronpy.api.cloudpickle": "dumps loads CloudPickler",
    "heronpy.api.config_values": "encode_config decode_config",
    "heronpy.api.user_code": "load_main prepare_path load_class find_topologies",
    "heronpy.connectors.mock.arraylooper": "ArrayLooper",
    "heronpy.connectors.textfiles.textfilesgenerator": "TextFileGenerator",
    "heronpy.connectors.textfiles.textfilespout": "TextFileSpout",
    "heronpy.connectors.pulsar.pulsarspout": "PulsarSpout",
    "heronpy.connectors.pulsar.pulsarstreamlet": "PulsarStreamlet",
    "heronpy.api.api_constants": """
        TopologyReliabilityMode TOPOLOGY_WORKER_CHILDOPTS TOPOLOGY_COMPONENT_JVMOPTS
        TOPOLOGY_TICK_TUPLE_FREQ_SECS TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS TOPOLOGY_DEBUG
        TOPOLOGY_STMGRS TOPOLOGY_MESSAGE_TIMEOUT_SECS TOPOLOGY_COMPONENT_PARALLELISM
        TOPOLOGY_MAX_SPOUT_PENDING TOPOLOGY_AUTO_TASK_HOOKS TOPOLOGY_SERIALIZER_CLASSNAME
        TOPOLOGY_RELIABILITY_MODE TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS
        TOPOLOGY_STATEFUL_START_CLEAN TOPOLOGY_CONTAINER_CPU_REQUESTED
        TOPOLOGY_CONTAINER_RAM_REQUESTED TOPOLOGY_CONTAINER_DISK_REQUESTED
        TOPOLOGY_CONTAINER_MAX_RAM_HINT TOPOLOGY_CONTAINER_MAX_CPU_HINT
        TOPOLOGY_CONTAINER_MAX_DISK_HINT TOPOLOGY_CONTAINER_PADDING_PERCENTAGE
        TOPOLOGY_CONTAINER_RAM_PADDING TOPOLOGY_COMPONENT_CPUMAP TOPOLOGY_COMPONENT_RAMMAP
        TOPOLOGY_COMPONENT_DISKMAP TOPOLOGY_NAME TOPOLOGY_TEAM_NAME TOPOLOGY_TEAM_EMAIL
        TOPOLOGY_CAP_TICKET TOPOLOGY_PROJECT_NAME TOPOLOGY_ADDITIONAL_CLASSPATH
        TOPOLOGY_COMPONENT_OUTPUT_BPS TOPOLOGY_TICK_TUPLE_FREQ_MS""",
}


@pytest.mark.parametrize("module_name", NAMES)
def test_module_has_its_names(module_name: str) -> None:
    module = importlib.import_module(module_name)
    missing = [name for name in NAMES[module_name].split() if not hasattr(module, name)]
    assert missing == []


@pytest.mark.parametrize("name", heronpy.__all__)
def test_public_names_load_lazily(name: str) -> None:
    assert getattr(heronpy, name) is not None
    assert name in dir(heronpy)


def test_unknown_public_name() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        heronpy.Nothing  # noqa: B018


def _parameters(function: object) -> list[str]:
    return [p for p in inspect.signature(function).parameters if p not in ("self", "cls")]  # type: ignore[arg-type]


def test_signatures_of_components() -> None:
    assert _parameters(heronpy.Bolt.spec) == ["name", "inputs", "par", "config", "optional_outputs"]
    assert _parameters(heronpy.Spout.spec) == ["name", "par", "config", "optional_outputs"]
    assert _parameters(heronpy.Bolt.emit) == ["tup", "stream", "anchors", "direct_task", "need_task_ids"]
    assert _parameters(heronpy.Spout.emit) == ["tup", "tup_id", "stream", "direct_task", "need_task_ids"]


def test_custom_reducer_style_of_metrics() -> None:
    metrics = importlib.import_module("heronpy.api.metrics")
    assert isinstance(metrics.MeanReducedMetric(), metrics.ReducedMetric)
    assert isinstance(metrics.MultiMeanReducedMetric(), metrics.MultiReducedMetric)
