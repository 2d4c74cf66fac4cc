"""Rates, shares and quantiles by component: right over windows and restarts, and unknown instead of 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from heronpy.metrics.quantiles import quantile_in
from heronpy.proto import control_pb2
from heronpy.tmaster.figures import Figures, _cap, _slowest
from heronpy.tmaster.loads import STREAMS_MAX, Counts, Loads, Part, Window
from tests.support.views import component_load
from tests.tmaster.tmaster_world import World

COUNTER, GAUGE, HISTOGRAM = control_pb2.Sample.COUNTER, control_pb2.Sample.GAUGE, control_pb2.Sample.HISTOGRAM


def report(
    task: int = 1,
    component: str = "count",
    epoch: int = 1,
    container: int = 1,
    latency: dict[float, int] | None = None,
    **totals: float,
) -> control_pb2.MetricsReport:
    """`executed_src_default` stands for the tuples executed from that source and stream."""
    found = control_pb2.MetricsReport(
        process=f"{component}-{task}", task_id=task, component=component, epoch=epoch, container=container
    )
    names = {"busy": "__busy-time-ns", "blocked": "__blocked-time-ns", "idle": "__idle-time-ns",
             "sent": "__gateway-sent-packets-count", "carried": "__gateway-sent-tuples-count",
             "emitted": "__emit-count", "wall": "__execute-time-ns", "keys": "__state-keys", "cpu": "__py-user-cpu-time-secs", "memory": "__py-physical-memory-byte"}  # fmt: skip
    for name, value in totals.items():
        kind, _, label = name.partition("_")
        metric = names.get(kind, "__execute-count")
        found.samples.add(
            name=metric,
            label=label.replace("_", "/"),
            value=value,
            type=GAUGE if kind in ("memory", "keys") else COUNTER,
        )
    if latency is not None:
        sample = found.samples.add(name="__execute-latency", label="src/default", type=HISTOGRAM)
        total = 0
        for bound, count in latency.items():
            total += count
            sample.buckets.add(le=bound, count=total)
    return found


def recent(loads: Loads, now: float, ends: Callable[..., Window] = Loads.recent) -> dict[str, Part]:
    """The components that count in the recent window; with `Loads.turn`, in that of the minute."""
    parts = {name: Part.of(name, spout=name == "src", sink=name == "count") for name in ("src", "count")}
    ends(loads, now, parts)
    return {name: part for name, part in parts.items() if part.heard}


def filled(seconds: int, step: float, **more: float) -> Loads:
    """One task that executes 100 tuples per second, for `seconds`."""
    loads = Loads()
    for second in range(seconds + 1):
        loads.take(report(executed_src_default=step * second, **more), float(second))
    return loads


def test_the_backlog_is_the_sum_of_what_the_tasks_of_a_spout_tell() -> None:
    loads = Loads()
    for task, told in ((1, {"tuples": 5.0, "bytes": 70.0}), (2, {"bytes": 30.0}), (3, {})):
        told_by = report(task, "src", emitted=1.0)
        for part, value in told.items():
            told_by.samples.add(name=f"__backlog-{part}", value=value, type=GAUGE)
        loads.take(told_by, 1.0)
    row = recent(loads, 1.0)["src"].row
    assert (row.backlog_tuples, row.backlog_bytes) == (5, 100)
    loads.take(report(1, "src", emitted=2.0), 2.0)
    loads.take(report(2, "src", emitted=2.0), 2.0)
    row = recent(loads, 2.0)["src"].row
    assert (row.backlog_tuples, row.backlog_bytes) == (None, None), "what no task tells is unknown"


def test_how_unevenly_tasks_work_their_keys_and_the_time_of_a_tuple() -> None:
    loads = Loads()
    for second in range(13):
        for task, rate in ((1, 100.0), (2, 300.0)):
            counts = {"executed_src_default": rate * second, "wall_src": rate * second * 2e6}
            loads.take(report(task, **counts, keys=10.0 * task), float(second))
        loads.take(report(9, "src", emitted_default=400.0 * second), float(second))
    row = recent(loads, 12.0)["count"].row
    assert (row.spread, row.keys, row.wall_s) == (pytest.approx(0.5), 15.0, pytest.approx(0.002))
    alone = recent(loads, 12.0)["src"].row
    assert (alone.spread, alone.keys, alone.wall_s) == (None, None, None), "one task is even, and a spout has no tuples"


def test_one_that_has_announced_its_silence_counts_until_it_is_late() -> None:
    loads = Loads()
    for at in (0.0, 9.0, 18.0):
        quiet = report(executed_src_default=100.0, busy=0.0, blocked=0.0, idle=at * 1e9)
        quiet.pause_s = 10.0
        loads.take(quiet, at)
    for now in (18.0, 27.9):
        rates = recent(loads, now)["count"].row
        assert (rates.executed_per_s, rates.idle) == (0.0, pytest.approx(1.0))
    assert recent(loads, 28.1) == {}
    # It works again, and says so with a first report: what it does from there on is not spread over its silence.
    for at, tuples in ((20.0, 0.0), (21.0, 100.0), (22.0, 200.0), (25.5, 550.0), (26.5, 650.0), (31.0, 1100.0)):
        loads.take(report(executed_src_default=100.0 + tuples), at)
    assert recent(loads, 31.0)["count"].row.executed_per_s == pytest.approx(100.0)
    assert recent(loads, 36.1) == {}, "it has announced nothing"
    for broken in (float("nan"), float("inf"), -1.0):
        word = report(executed_src_default=2000.0)
        word.pause_s = broken
        loads.take(word, 40.0)
        assert recent(loads, 45.1) == {}


def test_a_rate_is_growth_over_the_last_seconds() -> None:
    loads = filled(20, 100.0)
    assert 5 <= loads.recent(20.0, {}).over_s <= 10
    count = recent(loads, 20.0)["count"]
    rates = count.row
    assert rates.executed_per_s == pytest.approx(100.0)
    assert rates.emitted_per_s is None and not count.streams and rates.busy is None and rates.latency_p50_s is None, (
        "not reported is not 0"
    )


def test_frames_are_summed_over_tasks_and_a_restart_takes_none_away() -> None:
    loads = Loads()
    for second in range(9):
        for task in (1, 2):
            epoch, since = (1, second) if second < 5 else (2, second - 4)
            loads.take(report(task, "src", epoch, sent=100.0 * since, carried=700.0 * since), float(second))
    rates = recent(loads, 8.0)["src"].row
    assert (rates.frames_per_s, rates.tuples_per_frame) == pytest.approx((200.0, 7.0))


def test_samples_in_another_order_are_found() -> None:
    loads = filled(3, 100.0)
    turned = report(executed_src_default=400.0, emitted=8.0)
    other = control_pb2.MetricsReport()
    other.CopyFrom(turned)
    del other.samples[:]
    other.samples.extend(reversed(turned.samples))
    loads.take(turned, 4.0)
    other.samples[1].value, other.samples[0].value = 500.0, 108.0
    loads.take(other, 5.0)
    rates = recent(loads, 5.0)["count"].row
    assert rates.executed_per_s == pytest.approx(100.0) and rates.emitted_per_s == pytest.approx(108.0 / 5)


def test_what_leaves_by_streams_is_what_is_emitted() -> None:
    """Beside a spout at 0/s an edge said 500/s: that was what its target still had in its queue."""
    loads = Loads()
    for second in range(9):
        for task in (1, 2):
            epoch, since = (1, second) if second < 5 else (2, second - 4)
            counts = {"emitted_default": 10.0 * since, "emitted_errors": 1.0 * since}
            loads.take(report(task, "src", epoch, **counts), float(second))
    source = recent(loads, 8.0)["src"]
    assert source.row.emitted_per_s == pytest.approx(22.0)
    assert source.streams == pytest.approx({"default": 20.0, "errors": 2.0})


def test_the_first_report_is_no_growth() -> None:
    loads = Loads()
    loads.take(report(executed_src_default=1e6), 0.0)
    assert recent(loads, 0.0)["count"].row.executed_per_s is None
    loads.take(report(executed_src_default=1e6 + 10), 1.0)
    assert recent(loads, 1.0)["count"].row.executed_per_s == pytest.approx(10.0)


def test_a_restart_does_not_make_a_rate_negative_or_huge() -> None:
    loads = filled(6, 100.0)
    for second in range(7, 13):
        loads.take(report(epoch=2, executed_src_default=100.0 * (second - 6)), float(second))
    rates = recent(loads, 12.0)["count"].row
    assert rates.executed_per_s == pytest.approx(100.0)
    loads.take(report(epoch=1, executed_src_default=9e9), 13.0)
    assert recent(loads, 13.0)["count"].row.executed_per_s == pytest.approx(100.0), "a replaced process"


def test_a_silent_process_does_not_count() -> None:
    loads = filled(10, 100.0)
    assert "count" not in recent(loads, 16.0)
    loads.take(report(executed_src_default=2000.0), 20.0)
    assert recent(loads, 20.0)["count"].row.executed_per_s is None, "nothing is known of the time of silence"
    loads.take(report(executed_src_default=2050.0), 21.0)
    assert recent(loads, 21.0)["count"].row.executed_per_s == pytest.approx(50.0)


def test_shares_are_means_and_name_the_worst() -> None:
    loads = Loads()
    for second in range(7):
        for task, busy, blocked in ((1, 0.9, 0.1), (2, 0.1, 0.5)):
            times = {"busy": busy * second * 1e9, "blocked": blocked * second * 1e9}
            loads.take(
                report(task, container=task, idle=round(1 - busy - blocked, 3) * second * 1e9, **times), float(second)
            )
    rates = recent(loads, 6.0)["count"].row
    assert (rates.busy, rates.blocked, rates.idle) == pytest.approx((0.5, 0.3, 0.2))
    assert (rates.busiest, rates.busy_max) == ("count-1", pytest.approx(0.9))
    assert (rates.most_blocked, rates.blocked_max) == ("count-2", pytest.approx(0.5))


def test_quantiles_are_of_the_window_over_all_tasks() -> None:
    loads = Loads()
    for second in range(0, 22):
        old, new = min(second, 10), max(0, second - 10)
        for task in (1, 2):
            # Slow until second 10, then fast.
            loads.take(report(task, latency={1e6: 100 * new, 1e9: 100 * old, float("inf"): 0}), float(second))
    p99_s = recent(loads, 21.0)["count"].row.latency_p99_s
    assert p99_s is not None and p99_s <= 1e-3


def test_the_minute_begins_where_the_last_one_ended() -> None:
    loads = filled(60, 100.0)
    assert recent(loads, 60.0, Loads.turn)["count"].row.executed_per_s == pytest.approx(100.0)
    for second in range(61, 121):
        loads.take(report(executed_src_default=6000.0 + 10 * (second - 60)), float(second))
    assert recent(loads, 120.0, Loads.turn)["count"].row.executed_per_s == pytest.approx(10.0)
    assert not recent(loads, 180.0, Loads.turn), "nothing was reported"


def test_the_others_give_the_topology_s_figures() -> None:
    loads = Loads()
    for second in range(7):
        stmgr = control_pb2.MetricsReport(process="stmgr-1", epoch=1, container=1)
        stmgr.samples.add(name="__time_spent_back_pressure_aggr", value=250.0 * second)
        gateway = control_pb2.MetricsReport(process="spark-gateway", epoch=1)
        for name, value in (("committed", second), ("waiting", 4)):
            gateway.samples.add(name=f"spark-batches-{name}", value=value, type=GAUGE)
        gateway.samples.add(name="spark-seconds", value=3.0 * second)
        loads.take(stmgr, float(second))
        loads.take(gateway, float(second))
    window = loads.recent(6.0, {})
    assert window.held == pytest.approx(0.25)
    assert (window.spark_waiting, window.spark_done, window.spark_batch_s) == pytest.approx((4.0, 1.0, 3.0))


def test_forgotten_processes_and_absurd_reports_leave_nothing() -> None:
    loads = filled(3, 100.0)
    for number in range(3 * STREAMS_MAX):
        loads.take(report(2, executed_src_default=float("nan"), **{f"emitted_s{number}": 1.0}), 4.0)
    bad = report(2, memory=float("inf"), busy=-5.0)
    for number in range(3 * STREAMS_MAX):
        bad.samples.add(name="__emit-count", label=f"s{number}", value=1.0, type=COUNTER)
    loads.take(bad, 5.0)
    count = recent(loads, 5.0)["count"]
    assert count.row.memory_bytes is None and count.row.busy is None and len(count.streams) <= STREAMS_MAX
    loads.forget("count-1")
    loads.forget("count-2")
    loads.forget("never-3")
    assert not len(loads) and not recent(loads, 5.0)
    silent = filled(3, 100.0)
    silent.turn(600.0, {})
    assert len(silent) == 1
    silent.turn(604.0, {})
    assert not len(silent)


@given(
    steps=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1), st.floats(0, 1e12), st.floats(0, 3)), max_size=40)
)
def test_whatever_is_reported_no_rate_is_negative(steps: list[tuple[int, int, float, float]]) -> None:
    loads, now, epochs = Loads(), 0.0, [1, 1, 1, 1]
    for task, restart, total, pause in steps:
        now += pause
        epochs[task] += restart
        loads.take(
            report(
                task,
                epoch=epochs[task],
                executed_src_default=total,
                emitted_default=total,
                busy=total,
                blocked=total,
                idle=1.0,
            ),
            now,
        )
        for window in (Loads.recent, Loads.turn if restart else Loads.recent):
            for part in recent(loads, now, window).values():
                rates = part.row
                assert rates.executed_per_s is None or rates.executed_per_s >= 0
                assert rates.busy is None or 0 <= rates.busy <= 1
                assert sum(part.streams.values()) == pytest.approx(rates.emitted_per_s or 0.0)


@given(values=st.lists(st.floats(0, 1e4), min_size=1, max_size=200), part=st.floats(0.01, 1.0))
def test_a_quantile_is_in_the_right_bucket(values: list[float], part: float) -> None:
    bounds = (1.0, 10.0, 100.0, 1000.0, float("inf"))
    counts = [0.0] * len(bounds)
    for value in values:
        counts[next(place for place, bound in enumerate(bounds) if value <= bound)] += 1
    found = quantile_in(bounds, counts, part)
    exact = sorted(values)[max(0, -int(-part * len(values) // 1) - 1)]
    assert found is not None
    place = next(place for place, bound in enumerate(bounds) if exact <= bound)
    lower = bounds[place - 1] if place else 0.0
    assert lower <= found.value <= min(bounds[place], 1000.0) and found.at_least == (exact > 1000.0)
    high = quantile_in(bounds, counts, max(part, 0.99))
    assert high is not None and found.value <= high.value
    assert quantile_in(bounds, [0.0] * len(bounds), part) is None


def test_a_median_agrees_with_the_mean_of_its_bucket() -> None:
    """All calls took 53 ms: the median was said to be 75 ms, the middle of its bucket, with a mean of 53 ms."""
    bounds = (20.0, 50.0, 100.0, float("inf"))

    def median(each: list[float], total: float | None) -> float:
        found = quantile_in(bounds, each, 0.5, total)
        assert found is not None
        return found.value

    assert median([0.0, 0.0, 100.0, 0.0], 5300.0) == pytest.approx(53.0)
    assert median([5.0, 0.0, 95.0, 0.0], 50.0 + 95 * 53.0) == pytest.approx(53.0, abs=0.5)
    assert median([0.0, 0.0, 100.0, 0.0], None) == 75.0
    assert median([0.0, 0.0, 100.0, 0.0], 1.0) == 75.0, "not a sum of these values"
    assert median([0.0, 40.0, 60.0, 0.0], 5300.0) == pytest.approx(50 + 50 / 6), "what the others sum to is not known"
    assert median([0.0, 0.0, 100.0, 1.0], 15300.0) == pytest.approx(75.25), "nor of what is above all bounds"
    high = quantile_in(bounds, [0.0, 0.0, 100.0, 0.0], 0.99, 5300.0)
    assert high is not None and high.value == pytest.approx(99.06), "those above the mean may be anywhere"
    loads = Loads()
    for second in range(13):
        told = report(latency={5e7: 0, 1e8: 20 * second})
        told.samples[0].sum = 53e6 * 20 * second
        loads.take(told, float(second))
    assert recent(loads, 12.0)["count"].row.latency_p50_s == pytest.approx(0.053)


def test_a_call_that_does_not_end_is_a_latency_of_its_component() -> None:
    def latencies(spout: bool, sink: bool = False, pending: int = 0, **known: Any) -> list[tuple[Any, ...]]:
        part = replace(Part.of("one", spout=spout, sink=sink), heard=True, call_s=40.0, **known)
        part.row.pending = pending
        part.finish(100.0)
        row = part.row
        return [
            (row.latency_p50_s, row.latency_p99_s, row.latency_at_least),
            (row.end_to_end_p50_s, row.end_to_end_p99_s, row.end_to_end_at_least),
            (row.complete_p50_s, row.complete_p99_s, row.complete_at_least),
        ]

    call, nothing = (40.0, 40.0, True), (None, None, False)
    assert latencies(False, sink=True) == [call, call, nothing] and latencies(False) == [call, nothing, nothing]
    known = {"__execute-latency": Counts((1e8, 2e8), [0.0, 10.0], 0.0)}
    assert latencies(False, counts=known)[0] == (pytest.approx(0.15), pytest.approx(0.199), False), "one call of many"
    waits = latencies(True, pending=9, emitted_at=70.0)
    assert waits == [nothing, nothing, (30.0, 30.0, True)], "what is pending was emitted before that"
    assert latencies(True, emitted_at=70.0) == [nothing] * 3


def test_what_nobody_has_counted_is_not_none_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside "lost an unknown number" each component said 0."""
    w = World(containers=1).running()

    def lost() -> list[int | None]:
        return [row.lost for row in Figures(w.machine, 0.0).reply(0, w.now).load.components]

    assert lost() == [0, 0]
    monkeypatch.setattr(w.machine, "totals", lambda _: control_pb2.TupleTotals(lost_unknown=True))
    assert lost() == [None, None]


def test_no_latency_is_longer_than_the_topology_has_lived() -> None:
    row = component_load("count", end_to_end_p50_s=0.5, end_to_end_p99_s=47.6)
    _cap([row], 25.0)
    assert (row.end_to_end_p50_s, row.end_to_end_p99_s, row.complete_p99_s) == (0.5, 25.0, None)


def test_a_bound_of_one_component_is_a_bound_of_the_topology() -> None:
    acked = component_load("word", kind="spout", complete_p50_s=1.0, complete_p99_s=9.0, complete_at_least=True)
    sinks = [component_load("count", end_to_end_p50_s=0.5, end_to_end_p99_s=2.0), component_load("sum")]
    assert list(_slowest([acked, *sinks]).values()) == [0.5, 2.0, False], "acks only where no sink tells"
    sinks[1].end_to_end_at_least = True
    assert list(_slowest([acked, *sinks]).values()) == [0.5, 2.0, True]
    assert list(_slowest([acked]).values()) == [1.0, 9.0, True] and list(_slowest([]).values()) == [None, None, False]
