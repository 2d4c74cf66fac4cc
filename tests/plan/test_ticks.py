"""How often a component gets ticks."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.common.errors import ConfigError
from heronpy.plan.component_config import tick_interval_s


def ticks(value: Any) -> float | None:
    """The tick interval after user code has put this value into its configuration."""
    return tick_interval_s({"topology.tick.tuple.freq.ms": value})


def test_a_tick_is_in_seconds_and_none_without_a_setting() -> None:
    assert ticks(250) == 0.25
    assert ticks(None) is None


@pytest.mark.parametrize("value", [0, -1, "often", float("nan")])
def test_a_tick_that_user_code_sets_is_a_number_above_0(value: Any) -> None:
    with pytest.raises(ConfigError, match="must be a number above 0"):
        ticks(value)
