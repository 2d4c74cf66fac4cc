"""heronpy: stream processing in Python.

The names that topology writers need most are loaded on first use (PEP 562), so that `import heronpy`
costs nothing in processes that need only one package. Every name is also importable from its own
module, e.g. `heronpy.api.bolt.bolt.Bolt`. `submit` and `status`, for notebooks, depend on all other packages, so
nothing in heronpy imports this module.
"""

from __future__ import annotations

from heronpy.common.version import VERSION as __version__

# Not from typing, which takes longer to import than this whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from heronpy.api.api_constants import TopologyReliabilityMode as TopologyReliabilityMode
    from heronpy.api.batch import Batch as Batch
    from heronpy.api.bolt.async_bolt import AsyncBolt as AsyncBolt
    from heronpy.api.bolt.base_bolt import NotReadyError as NotReadyError
    from heronpy.api.bolt.basic_bolt import BasicBolt as BasicBolt
    from heronpy.api.bolt.bolt import Bolt as Bolt
    from heronpy.api.bolt.window_bolt import SlidingWindowBolt as SlidingWindowBolt
    from heronpy.api.bolt.window_bolt import TumblingWindowBolt as TumblingWindowBolt
    from heronpy.api.bolt.window_bolt import WindowContext as WindowContext
    from heronpy.api.component.component_spec import GlobalStreamId as GlobalStreamId
    from heronpy.api.component.component_spec import HeronComponentSpec as HeronComponentSpec
    from heronpy.api.custom_grouping import ICustomGrouping as ICustomGrouping
    from heronpy.api.serializer import IHeronSerializer as IHeronSerializer
    from heronpy.api.spout.async_spout import AsyncSpout as AsyncSpout
    from heronpy.api.spout.base_spout import Backlog as Backlog
    from heronpy.api.spout.split_spout import Split as Split
    from heronpy.api.spout.split_spout import SplitSpout as SplitSpout
    from heronpy.api.spout.split_spout import To as To
    from heronpy.api.spout.spout import Spout as Spout
    from heronpy.api.state.keyed_state import KeyedState as KeyedState
    from heronpy.api.state.keyed_state import PartitionedState as PartitionedState
    from heronpy.api.state.state import HashMapState as HashMapState
    from heronpy.api.state.state import State as State
    from heronpy.api.state.stateful_component import StatefulComponent as StatefulComponent
    from heronpy.api.state.two_phase import TwoPhaseStatefulComponent as TwoPhaseStatefulComponent
    from heronpy.api.stream import Grouping as Grouping
    from heronpy.api.stream import Stream as Stream
    from heronpy.api.task_hook import ITaskHook as ITaskHook
    from heronpy.api.topology import Topology as Topology
    from heronpy.api.topology import TopologyBuilder as TopologyBuilder
    from heronpy.api.topology_context import TopologyContext as TopologyContext
    from heronpy.api.tuple import Tuple as Tuple
    from heronpy.api.tuple import TupleHelper as TupleHelper
    from heronpy.cli.embedded import ResultWarning as ResultWarning
    from heronpy.cli.embedded import RunningTopology as RunningTopology
    from heronpy.cli.embedded import status as status
    from heronpy.cli.embedded import submit as submit

_HOMES = {
    "TopologyReliabilityMode": "heronpy.api.api_constants",
    "Batch": "heronpy.api.batch",
    "AsyncBolt": "heronpy.api.bolt.async_bolt",
    "NotReadyError": "heronpy.api.bolt.base_bolt",
    "BasicBolt": "heronpy.api.bolt.basic_bolt",
    "Bolt": "heronpy.api.bolt.bolt",
    "SlidingWindowBolt": "heronpy.api.bolt.window_bolt",
    "TumblingWindowBolt": "heronpy.api.bolt.window_bolt",
    "WindowContext": "heronpy.api.bolt.window_bolt",
    "GlobalStreamId": "heronpy.api.component.component_spec",
    "HeronComponentSpec": "heronpy.api.component.component_spec",
    "ICustomGrouping": "heronpy.api.custom_grouping",
    "IHeronSerializer": "heronpy.api.serializer",
    "AsyncSpout": "heronpy.api.spout.async_spout",
    "Backlog": "heronpy.api.spout.base_spout",
    "Split": "heronpy.api.spout.split_spout",
    "SplitSpout": "heronpy.api.spout.split_spout",
    "To": "heronpy.api.spout.split_spout",
    "Spout": "heronpy.api.spout.spout",
    "HashMapState": "heronpy.api.state.state",
    "KeyedState": "heronpy.api.state.keyed_state",
    "PartitionedState": "heronpy.api.state.keyed_state",
    "State": "heronpy.api.state.state",
    "StatefulComponent": "heronpy.api.state.stateful_component",
    "TwoPhaseStatefulComponent": "heronpy.api.state.two_phase",
    "Grouping": "heronpy.api.stream",
    "Stream": "heronpy.api.stream",
    "ITaskHook": "heronpy.api.task_hook",
    "Topology": "heronpy.api.topology",
    "TopologyBuilder": "heronpy.api.topology",
    "TopologyContext": "heronpy.api.topology_context",
    "Tuple": "heronpy.api.tuple",
    "TupleHelper": "heronpy.api.tuple",
    "ResultWarning": "heronpy.cli.embedded",
    "RunningTopology": "heronpy.cli.embedded",
    "status": "heronpy.cli.embedded",
    "submit": "heronpy.cli.embedded",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'heronpy' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
