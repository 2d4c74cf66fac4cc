"""The configuration of topologies and components."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from heronpy.common.errors import ConfigError, TopologyError
from heronpy.plan.component_config import (
    SerializedValue,
    auto_typed,
    component_config,
    config_of,
    parallelism_of,
    reliability_mode,
)
from heronpy.proto import topology_pb2
from tests.plan.builders import TopologyMessage


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("inf", math.inf),
        ("true", True),
        ("False", False),
        ("", ""),
        ("1.2.3", "1.2.3"),
        ("yes", "yes"),
        ("None", "None"),
    ],
)
def test_text_is_typed(text: str, value: Any) -> None:
    found = auto_typed(text)
    assert found == value
    assert type(found) is type(value)


def test_component_settings_lie_over_those_of_the_topology() -> None:
    topology = TopologyMessage(a=1, b="x", c=b"raw").spout("s", 2, b="true", d=3).message
    assert config_of(topology) == {"a": 1, "b": "x", "c": SerializedValue(b"raw", True)}
    merged = component_config(topology, "s")
    assert merged["a"] == 1
    assert merged["b"] is True
    assert merged["d"] == 3
    assert parallelism_of(merged, "s") == 2
    assert config_of(topology.spouts[0]) == config_of(topology.spouts[0].comp)
    with pytest.raises(TopologyError, match="no component 'x'"):
        component_config(topology, "x")


def test_serialized_values_are_loaded_only_on_request() -> None:
    topology = TopologyMessage(hooks=pickle.dumps([1, 2])).spout("s").message
    assert isinstance(config_of(topology)["hooks"], SerializedValue)
    assert config_of(topology, load=True)["hooks"] == [1, 2]
    assert component_config(topology, "s", load=True)["hooks"] == [1, 2]
    topology.topology_config.kvs[0].type = topology_pb2.JAVA_SERIALIZED_VALUE
    assert isinstance(config_of(topology, load=True)["hooks"], SerializedValue)
    broken = TopologyMessage(hooks=b"\x80nothing").spout("s").message
    with pytest.raises(ConfigError, match="'hooks' cannot be loaded"):
        config_of(broken, load=True)


def test_reliability_mode() -> None:
    assert reliability_mode(TopologyMessage().message) == "ATMOST_ONCE"
    topology = TopologyMessage(topology__reliability__mode="ATLEAST_ONCE")
    assert reliability_mode(topology.message) == "ATLEAST_ONCE"


def test_keys_that_this_release_does_not_act_on_are_named() -> None:
    from heronpy.plan.component_config import unsupported_problems

    (problem,) = unsupported_problems({"topology.component.output.bps": 100, "own": 1}, "component 'x'")
    assert problem.startswith("component 'x' sets 'topology.component.output.bps', which this release does not support")
    assert unsupported_problems({"topology.droptuples.upon.backpressure": False}, "topology 'x'") == []
    assert "Java" in unsupported_problems({"topology.bolts.window.length.count": 5}, "topology 'x'")[0]
