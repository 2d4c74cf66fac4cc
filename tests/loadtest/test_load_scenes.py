"""The scenes of `slow_bolt`: which runs they are, stops without the machine's part, floors in a sentence (pure)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError
from heronpy.loadtest import profiles, scenes
from heronpy.loadtest.measure import Reports
from heronpy.loadtest.topologies.slow_bolt import STOP_S, Stops

PROFILE = profiles.load("slow_bolt")


def reports(stops: list[tuple[float, float]], *late: list[tuple[float, float]]) -> Reports:
    sinks: list[dict[str, Any]] = [{"role": "sink", "late": found} for found in late]
    return Reports([{"role": "spout", "stops": stops}, *sinks])


def test_each_scene_is_a_run_with_its_own_fields_and_parameters() -> None:
    loads = {load.parameters["scene"]: load for load in profiles.scenes_of(PROFILE)}
    assert list(loads) == ["cure", "slow", "skew", "pause", "even"]
    assert (loads["even"].rate, loads["even"].parameters["tasks"], loads["cure"].rate) == (2200, 4, 0)
    assert loads["even"].rate == 1.1 * loads["even"].parameters["tasks"] * loads["even"].parameters["capacity"]
    assert all(load.floors and not load.scenes for load in loads.values())
    assert {name for load in loads.values() for name in load.floors} <= set(scenes.SCENE_FIGURES)
    [alone] = profiles.scenes_of(profiles.changed(PROFILE, {"rate": 100.0}, ["scene=even", "capacity=50"]))
    assert (alone.rate, alone.parameters["capacity"], alone.parameters["tasks"]) == (100.0, 50, 4), "the flags win"
    word_count = profiles.load("word_count")
    assert profiles.scenes_of(word_count) == [word_count]


def test_wrong_scenes_are_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"'slow_bolt' has no scene 'evn' \(did you mean 'even'"):
        profiles.changed(PROFILE, {}, ["scene=evn"])
    with pytest.raises(ConfigError, match="scene 'odd' of load profile 'slow_bolt' has the unknown key 'task'"):
        profiles.check(replace(PROFILE, scenes={"odd": {"task": 3}}))


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1)), max_size=40))
def test_the_longest_stop_of_each_second_is_kept(steps: list[tuple[float, float]]) -> None:
    kept, at, longest = Stops(), 100.0, {}
    for step, seconds in steps:
        at += step
        kept.note(at, seconds)
        if seconds >= STOP_S:
            longest[int(at)] = max(longest.get(int(at), 0.0), seconds)
    assert {int(end): seconds for end, seconds in kept.kept} == longest and len(kept.kept) == len(longest)


def test_a_stop_is_judged_without_the_time_in_which_the_machine_woke_no_bolt() -> None:
    stops = [(12.0, 0.5), (14.0, 0.9), (19.0, 3.0)]
    assert scenes.stop_of(reports(stops, []), 0, 15) == 0.9
    assert scenes.stop_of(reports(stops, []), 0, 13) == 0.5
    assert scenes.stop_of(reports(stops, []), 15, 20) == 3.0
    # Of 13.1 to 14.0 the machine took 13.3 to 13.8; another bolt that was late before does not count.
    assert scenes.stop_of(reports(stops, [(13.8, 0.5)], [(13.0, 5.0)]), 13, 15) == pytest.approx(0.4)
    assert scenes.stop_of(reports([], []), 0, 15) == 0


def test_a_floor_that_is_missed_says_the_figure_and_the_floor() -> None:
    load = replace(PROFILE, floors={"share": 0.95, "stop_s": 1.0, "resume_s": 1.0})
    row = {"share": 0.912, "stop_s": 0.25}
    found = {check.name: check for check in scenes.floors(load, row)}
    assert [check.ok for check in found.values()] == [False, True, False]
    assert found["rate relative to the capacity of the tasks"].text == "0.912x; must be at least 0.950x"
    assert found["longest pause of the spout"].text == "0.250 s; must be at most 1.00 s"
    assert found["time until the spout emits fast again"].text == "not reached; must be at most 1.00 s"


def test_a_spout_that_holds_no_floor_has_no_check() -> None:
    assert scenes.floors(profiles.load("stall"), {}) == []
