"""Windows against the limits of the spouts: what is refused, what is warned of, what streamlets get."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from heronpy.api.api_constants import TOPOLOGY_MAX_SPOUT_PENDING, TOPOLOGY_MESSAGE_TIMEOUT_SECS
from heronpy.common.errors import TopologyError
from heronpy.plan import validation, windows
from heronpy.plan.logical import LogicalPlan
from heronpy.simulator import Simulator
from heronpy.streamlet import Builder, Config, Runner, WindowConfig
from tests.plan.builders import TopologyMessage

MODE = "topology__reliability__mode"
TIMEOUT = "topology__message__timeout__secs"
PENDING = "topology__max__spout__pending"


def spout(mode: str = "ATLEAST_ONCE", timeout_s: Any = 30, pending: Any = 100_000, **config: Any) -> TopologyMessage:
    return TopologyMessage(**{MODE: mode, TIMEOUT: timeout_s, PENDING: pending, **config}).spout("s")


def tumbling(topology: TopologyMessage, name: str, source: str, seconds: float, streamlet: bool = True) -> None:
    topology.bolt(name, [source], **{windows.TUMBLING_KEY: seconds})
    topology.message.bolts[-1].comp.class_name = "heronpy.streamlet.impl.X" if streamlet else "mine.Window"


def sliding(topology: TopologyMessage, name: str, source: str, seconds: float, slide_s: float) -> None:
    topology.bolt(name, [source], **{windows.SLIDING_KEY: seconds, windows.SLIDE_KEY: slide_s})
    topology.message.bolts[-1].comp.class_name = "heronpy.streamlet.impl.X"


def plan_of(topology: TopologyMessage) -> LogicalPlan:
    return LogicalPlan.from_topology(topology.message)


def problems(topology: TopologyMessage) -> list[str]:
    return validation.problems(plan_of(topology))


def warned(topology: TopologyMessage) -> list[str]:
    return validation.warnings(plan_of(topology))


def test_a_window_longer_than_the_timeout_is_refused_with_the_fix() -> None:
    topology = spout()
    tumbling(topology, "sums", "s", 60)
    assert problems(topology) == [
        "tuples of spout 's' stay pending for up to 60 s, until they have left the window of 'sums' (60 s), but "
        "topology.message.timeout.secs is 30, so they would be replayed and counted again; set it to 66 or more, "
        "or shorten the window"
    ]
    with pytest.raises(TopologyError, match="set it to 66 or more"):
        Simulator(topology.message)
    topology = spout(timeout_s=66)
    tumbling(topology, "sums", "s", 60)
    assert problems(topology) == []


def test_windows_of_streamlets_add_up_along_a_path() -> None:
    def path(timeout_s: float, look: Any = problems) -> list[str]:
        topology = spout(timeout_s=timeout_s)
        tumbling(topology, "first", "s", 10)
        topology.bolt("between", ["first"])
        tumbling(topology, "second", "between", 10)
        tumbling(topology, "beside", "s", 15)
        return look(topology.bolt("end", ["second", "beside"]))

    [problem] = path(20)
    assert "up to 20 s, until they have left the windows of 'first' (10 s), 'second' (10 s)" in problem
    [warning] = path(21, warned)
    assert "some tuples may be replayed and counted again; set it to 22 or more" in warning and path(21) == []
    assert path(22) == path(22, warned) == []


def test_a_sliding_window_keeps_tuples_for_a_slide_more() -> None:
    for timeout_s, refused in ((10, 1), (10.9, 0)):
        topology = spout(timeout_s=timeout_s)
        sliding(topology, "w", "s", 8, 2)
        assert (len(problems(topology)), len(warned(topology))) == (refused, 1 - refused)
    topology = spout(timeout_s=11)
    sliding(topology, "w", "s", 8, 2)
    assert problems(topology) == []


@pytest.mark.parametrize(("seconds", "slide_s", "least"), [(20, 20, 22), (5, 20, 22), (0.5, 20, 22)])
def test_windows_that_do_not_overlap_keep_tuples_for_a_slide(seconds: float, slide_s: float, least: float) -> None:
    topology = spout(timeout_s=20)
    sliding(topology, "w", "s", seconds, slide_s)
    [problem] = problems(topology)
    assert "up to 20 s" in problem and "set it to 22 or more" in problem
    topology = spout(timeout_s=least)
    sliding(topology, "w", "s", seconds, slide_s)
    assert problems(topology) == []


def test_durations_given_as_text_count() -> None:
    topology = spout(timeout_s=30)
    topology.bolt("w", ["s"], **{windows.TUMBLING_KEY: "60"})
    topology.message.bolts[-1].comp.class_name = "mine.Window"
    assert "up to 60 s" in problems(topology)[0]


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
@pytest.mark.parametrize("value", [0, -1, 0.0001, "x", None])
def test_a_window_of_no_duration_is_refused(mode: str, value: Any) -> None:
    topology = spout(mode)
    topology.bolt("t", ["s"], **{windows.TUMBLING_KEY: value})
    topology.bolt("w", ["s"], **{windows.SLIDING_KEY: value, windows.SLIDE_KEY: value})
    found = problems(topology)
    assert len(found) == 3
    assert found[0].startswith("bolt 't': tumblingwindowbolt_duration_secs must be ")
    assert found[2].startswith("bolt 'w': slidingwindowbolt_slideinterval_secs must be ")
    assert all(repr(value) in problem for problem in found)


def test_where_nothing_times_out_no_window_is_too_long() -> None:
    for topology in (
        spout("ATMOST_ONCE"),
        spout("EFFECTIVELY_ONCE"),
        spout(topology__enable__message__timeouts=False),
    ):
        tumbling(topology, "w", "s", 3600)
        assert problems(topology) == []


def test_a_pending_limit_that_lets_spouts_crawl_is_warned_of() -> None:
    topology = spout(timeout_s=120, pending=100)
    tumbling(topology, "w", "s", 60)
    [warning] = warned(topology)
    assert "topology.max.spout.pending is 100, so each of its tasks emits about 100 in 60 s and then waits" in warning
    assert "such as 600, which is 10 tuples a second for 60 s" in warning and problems(topology) == []
    topology = spout(timeout_s=120, pending=600)
    tumbling(topology, "w", "s", 60)
    assert problems(topology) == warned(topology) == []


def test_the_window_example_of_apache_runs_as_it_is() -> None:
    """A window of 10 s that slides each 2 s, with the limits that Heron has without a setting."""
    topology = TopologyMessage(**{MODE: "ATLEAST_ONCE"}).spout("s")
    sliding(topology, "w", "s", 10, 2)
    topology.message.bolts[-1].comp.class_name = "examples.WindowSizeBolt"
    assert problems(topology) == []
    [warning] = warned(topology)
    assert "(12 s), and topology.max.spout.pending is 100, so each of its tasks emits about 100 in 12 s" in warning


def test_windows_behind_one_that_may_not_anchor_are_warned_of() -> None:
    topology = spout(timeout_s=25)
    tumbling(topology, "mine", "s", 20, streamlet=False)
    tumbling(topology, "next", "mine", 20, streamlet=False)
    assert problems(topology) == []
    [warning] = validation.warnings(plan_of(topology))
    assert "'mine' (20 s), 'next' (20 s)" in warning and "if their windows anchor" in warning


def test_ticks_that_come_after_the_timeout_are_warned_of() -> None:
    topology = spout().bolt("b", ["s"], topology__tick__tuple__freq__secs=45)
    [warning] = validation.warnings(plan_of(topology))
    assert "'b' gets a tick every 45 s, and tuples time out after 30 s" in warning
    assert validation.warnings(plan_of(spout().bolt("b", ["s"], topology__tick__tuple__freq__ms=45))) == []


def test_a_window_in_a_cycle_counts_once() -> None:
    topology = spout(timeout_s=10)
    topology.bolt("a", ["s", "w"])
    tumbling(topology, "w", "a", 12)
    assert "up to 12 s" in problems(topology)[0]


def streamlet(config: Config) -> Any:
    builder = Builder()
    minute = WindowConfig.create_tumbling_window(60)
    source = builder.new_source(iter([1]).__next__).reduce_by_window(minute, operator.add)
    source.map(lambda pair: pair[1]).reduce_by_window(WindowConfig.create_sliding_window(10, 5), operator.add)
    return Runner().build("t", config, builder).build()


def at_least_once(**given: Any) -> Config:
    config = Config()
    config.set_delivery_semantics(Config.ATLEAST_ONCE)
    for key, value in given.items():
        config.set_user_config(key.replace("__", "."), value)
    return config


def test_the_runner_derives_both_limits_from_the_windows() -> None:
    plan = LogicalPlan.from_topology(streamlet(at_least_once()))
    # 60 s, 10 s and a slide of 5 s with a tenth above, and the 30 s of a topology without windows
    assert plan.config[TOPOLOGY_MESSAGE_TIMEOUT_SECS] == 30 + 83
    assert plan.config[TOPOLOGY_MAX_SPOUT_PENDING] == 750_000
    assert validation.problems(plan) == []


def test_what_the_user_sets_stays_and_is_checked() -> None:
    plan = LogicalPlan.from_topology(streamlet(at_least_once(topology__message__timeout__secs=70)))
    assert plan.config[TOPOLOGY_MESSAGE_TIMEOUT_SECS] == 70
    [problem] = validation.problems(plan)
    assert "for up to 75 s" in problem and "set it to 83 or more" in problem


def test_other_modes_keep_the_defaults() -> None:
    plan = LogicalPlan.from_topology(streamlet(Config()))
    assert plan.config[TOPOLOGY_MESSAGE_TIMEOUT_SECS] == 30
    assert validation.problems(plan) == []
