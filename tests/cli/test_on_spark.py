"""Components that work for Spark alone send less often by default: their tuples wait for a batch anyway."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.common.setting_types import PROFILES, InstanceSettings
from heronpy.common.settings import Resolved, resolve, settings_for
from heronpy.connectors.spark.requirements import SINK_KEY
from heronpy.launching.submission import linger_for_spark
from heronpy.plan.logical import LogicalPlan

USUAL, LONGER = InstanceSettings().linger_max_us, PROFILES["thrift"]["linger_max_us"]


class Rows(Spout):
    outputs = ["row"]


class Parse(Bolt):
    outputs = ["row"]


def settled(*overrides: str, topology: dict[str, Any] | None = None, **components: Any) -> Resolved:
    """Settings of rows -> parse -> spark, and rows -> alarm, which Spark does not run."""
    builder = TopologyBuilder("rows")
    rows = builder.add_spout("rows", Rows, par=1)
    parse = builder.add_bolt("parse", Parse, par=1, inputs={rows: Grouping.SHUFFLE})
    builder.add_bolt("spark", Parse, par=1, inputs={parse: Grouping.SHUFFLE}, config={SINK_KEY: "true"})
    builder.add_bolt("alarm", Parse, par=1, inputs={rows: Grouping.SHUFFLE})
    message = builder.build()
    result = resolve("local", [], topology or {}, components, list(overrides))
    linger_for_spark(message, LogicalPlan.from_topology(message), result)
    return result


def linger_us(result: Resolved, component: str) -> float:
    return settings_for(result, InstanceSettings, component).linger_max_us


def test_what_works_for_spark_alone_sends_less_often() -> None:
    result = settled()
    assert linger_us(result, "parse") == linger_us(result, "spark") == LONGER
    assert linger_us(result, "rows") == linger_us(result, "alarm") == USUAL, "an alarm must not wait"
    assert "Spark" in result.origins["instance.linger_max_us@parse"]


@pytest.mark.parametrize(
    "chosen",
    [
        {"heron.instance.profile": "latency"},
        {"heron.instance.profile": "balanced"},
        {"heron.instance.linger_max_us": 300},
    ],
)
def test_what_somebody_has_chosen_wins(chosen: dict[str, Any]) -> None:
    for result in (
        settled(topology=chosen),
        settled(parse=chosen),
        settled(*(f"{key}={value}" for key, value in chosen.items())),
    ):
        assert linger_us(result, "parse") < LONGER


def test_without_spark_nothing_changes() -> None:
    builder = TopologyBuilder("plain")
    rows = builder.add_spout("rows", Rows, par=1)
    builder.add_bolt("parse", Parse, par=1, inputs={rows: Grouping.SHUFFLE})
    message = builder.build()
    result = resolve("local", [], {}, {}, [])
    linger_for_spark(message, LogicalPlan.from_topology(message), result)
    assert result == resolve("local", [], {}, {}, [])
