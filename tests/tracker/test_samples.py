"""The figures of the last minutes, as a tracker has seen them: what is kept, how much, and what is told."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from heronpy.tracker.samples import KEPT_S, SAMPLES_MAX, Samples
from heronpy.views.load import ComponentLoad, Load
from heronpy.views.saved import Batches, Sink

BEGAN = 1e9


def load(at: float, **busy: float | None) -> Load:
    """Figures with these shares of these components."""
    fields: dict[str, Any] = {one.name: None for one in msgspec.structs.fields(ComponentLoad) if one.required}
    rows = [ComponentLoad(**fields | {"name": name, "busy": share}) for name, share in busy.items()]
    return Load(
        plan_version=1, state="RUNNING", cause="", at=at, window_s=10.0, since=None, components=rows, edges=[],
        held=0.25, culprits=[], latency_p50_s=None, latency_p99_s=None,
    )  # fmt: skip


def seen(*looks: Load) -> Samples:
    samples = Samples()
    for one in looks:
        samples.see(one)
    return samples


def test_a_component_that_comes_or_goes_is_unknown_before_and_after() -> None:
    found = seen(load(BEGAN, a=0.5), load(BEGAN + 2, a=0.6, b=0.1), load(BEGAN + 4, b=0.2)).timeline()
    assert found.times == [BEGAN, BEGAN + 2, BEGAN + 4] and found.kept_from == BEGAN
    series = {(one.component, one.metric): one.values for one in found.series}
    assert series == {("", "held"): [0.25] * 3, ("a", "busy"): [0.5, 0.6, None], ("b", "busy"): [None, 0.1, 0.2]}


def test_what_is_asked_for_is_told() -> None:
    samples = seen(*(load(BEGAN + 2 * number, a=number / 100, b=0.5) for number in range(20)))
    found = samples.timeline(BEGAN + 10, 5, ["a"], ["busy", "held"])
    assert found.times == [BEGAN + 14, BEGAN + 20, BEGAN + 26, BEGAN + 32, BEGAN + 38], "the newest is among them"
    assert [one.values for one in found.series] == [[0.07, 0.1, 0.13, 0.16, 0.19]]
    assert samples.timeline(BEGAN + 100, 5).times == [] and Samples().timeline(0.0, 5).times == []


def test_figures_that_are_as_old_as_the_last_ones_are_noted_once() -> None:
    looks = [load(BEGAN, a=0.5), load(BEGAN, a=0.9), load(BEGAN + 1, a=0.9), load(BEGAN - 1, a=0.9)]
    assert seen(*looks).timeline().times == [BEGAN]


def test_a_clock_that_is_set_back_does_not_end_it() -> None:
    assert seen(load(BEGAN, a=0.5), load(BEGAN - 86_400, a=0.5)).timeline().times == [BEGAN - 86_400]


def batches(committed: int, each_s: float) -> Batches:
    fields: dict[str, Any] = {one.name: None for one in msgspec.structs.fields(Sink) if one.required}
    given = fields | {"committed": committed, "failed": 0, "seconds_per_batch": each_s, "waiting": 2}
    return Batches(sinks=[Sink(**given)], spark_ui=None)


def test_a_spark_run_of_seconds_has_a_line() -> None:
    """Between two looks at its batches, of which one right after another tells nothing."""
    samples = Samples()
    for at, committed, each_s in ((0, 2, 4.0), (0.5, 9, 4.0), (2, 6, 3.0), (4, 6, 3.0)):
        samples.see_batches(batches(committed, each_s), BEGAN + at)
        samples.see(load(BEGAN + at))
    series = {one.metric: one.values for one in samples.timeline(0.0, 0, [""]).series}
    assert series["spark_waiting"] == [2, 2, 2]
    assert series["spark_done"] == [None, 2.0, 0.0] and series["spark_batch_s"] == [4.0, 2.5, None]


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 10.0, 300.0]), st.sampled_from("abc")), max_size=400))
def test_it_is_bounded_and_all_series_have_the_same_times(steps: list[tuple[float, str]]) -> None:
    samples, at = Samples(), BEGAN
    for step, name in steps:
        at += step
        samples.see(load(at, **{name: 0.5}))
        found = samples.timeline()
        assert len(found.times) <= SAMPLES_MAX and found.times == sorted(set(found.times))
        assert found.times[-1] - found.times[0] <= KEPT_S
        assert all(len(one.values) == len(found.times) for one in found.series)
