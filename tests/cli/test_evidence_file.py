"""What `heron doctor --evidence` packs is redacted, and stays a history that can be replayed."""

from __future__ import annotations

from heronpy.cli.look.evidence import look_line
from heronpy.health.recording import head
from heronpy.health.signals import HotSpots, Signals, TaskSignals
from heronpy.proto import control_pb2
from tests.support.histories import replay


def test_figures_that_are_called_keys_are_no_secrets() -> None:
    """`of_key` was replaced by `***`, so no evidence of a keyed stream could be read again."""
    hot = {
        "a-1": HotSpots(keyed=90, key="user='big'", of_key=0.94),
        "a-2": HotSpots(9, key="password='hunter2'"),
    }
    tasks = [TaskSignals("a-1", "api_key", False, True, executed=5.0, busy=1.0)]
    signals = Signals(
        "wc", control_pb2.LIFE_RUNNING, "token=hunter2", 60.0, tasks, hot_spots=hot, memory_limits={"api_key": 1 << 20}
    )
    text = look_line(signals, 5.0)
    ((_, again),) = replay([head("wc"), text])
    assert "hunter2" not in text and again.cause == "token=***"
    assert (again.hot_spots["a-1"].key, again.hot_spots["a-1"].of_key) == ("user='big'", 0.94)
    assert again.memory_limits == {"api_key": 1 << 20}
