"""The cache of metrics: growth over intervals, restarts, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.metrics import ledger
from heronpy.metrics.cache import STEPS_MAX, MetricsCache
from heronpy.proto import control_pb2

COUNTER, GAUGE, HISTOGRAM = control_pb2.Sample.COUNTER, control_pb2.Sample.GAUGE, control_pb2.Sample.HISTOGRAM


def report(
    value: float, epoch: int = 1, process: str = "p", kind: int = COUNTER, name: str = "n"
) -> control_pb2.MetricsReport:
    made = control_pb2.MetricsReport(process=process, component="word", epoch=epoch)
    made.samples.add(name=name, type=kind, value=value)  # type: ignore[arg-type]
    return made


def value(cache: MetricsCache, now: float, interval_s: float = 0) -> float:
    reply = cache.query(control_pb2.GetMetrics(interval_s=interval_s), now)
    return reply.reports[0].samples[0].value


def test_counter_grows_over_an_interval_and_across_restarts() -> None:
    cache = MetricsCache(keep_s=3600, bucket_s=10)
    for second in range(0, 101, 10):
        cache.add(report(second), second)
    assert value(cache, 100) == 100
    assert value(cache, 100, 20) == 20
    cache.add(report(3, epoch=2), 110)
    assert value(cache, 110) == 103
    cache.add(report(999, epoch=1), 111)  # a zombie
    assert value(cache, 111) == 103
    assert value(cache, 111, 1000) == 103


def test_resumed_cache_does_not_take_old_totals_for_growth() -> None:
    fresh, resumed = MetricsCache(3600, 10), MetricsCache(3600, 10, resumed=True)
    for cache in (fresh, resumed):
        cache.add(report(1000), 0)
        cache.add(report(1005), 20)
    assert value(fresh, 20, 60) == 1005
    assert value(resumed, 20, 60) == 5
    assert value(resumed, 20) == 1005


def test_gauge_is_the_newest_value() -> None:
    cache = MetricsCache(3600, 10)
    cache.add(report(5, kind=GAUGE), 0)
    cache.add(report(2, kind=GAUGE), 20)
    assert value(cache, 20, 60) == 2


def test_a_gauge_that_its_process_no_longer_reports_is_gone() -> None:
    """Such as the queue of a task that has moved to another container. Counts remain."""
    cache = MetricsCache(3600, 10)

    def names() -> list[str]:
        return [sample.name for sample in cache.query(control_pb2.GetMetrics(), 20).reports[0].samples]

    both = report(7)
    both.samples.add(name="queue", type=GAUGE, value=5)
    cache.add(both, 0)
    cache.add(report(1, epoch=2), 5)
    assert names() == ["n", "queue"], "a process that has just started may not have measured it"
    cache.add(report(2, epoch=2), 10)
    assert names() == ["n"] and len(cache) == 1
    cache.add(report(3, epoch=2, kind=GAUGE, name="other"), 15)
    assert names() == ["n", "other"] and value(cache, 20) == 9


def test_histogram_grows_bucket_by_bucket() -> None:
    cache = MetricsCache(3600, 10)
    for now, (low, count) in {0: (1, 2), 20: (4, 10)}.items():
        made = control_pb2.MetricsReport(process="p")
        sample = made.samples.add(name="h", type=HISTOGRAM, sum=count * 2.0, count=count)
        sample.buckets.add(le=1.0, count=low)
        sample.buckets.add(le=float("inf"), count=count)
        cache.add(made, now)
    sample = cache.query(control_pb2.GetMetrics(interval_s=15), 20).reports[0].samples[0]
    assert (sample.sum, sample.count) == (16, 8)
    assert [(bucket.le, bucket.count) for bucket in sample.buckets] == [(1.0, 3), (float("inf"), 8)]


def test_selects_by_component_process_and_name() -> None:
    cache = MetricsCache(3600, 10)
    cache.add(report(1, process="a"), 0)
    cache.add(report(2, process="b", name="m"), 0)
    assert [r.process for r in cache.query(control_pb2.GetMetrics(instances=["b"]), 0).reports] == ["b"]
    assert cache.query(control_pb2.GetMetrics(component="other"), 0).reports == []
    reply = cache.query(control_pb2.GetMetrics(names=["m"]), 0)
    assert [len(r.samples) for r in reply.reports] == [0, 1]


def test_selects_one_counter_of_a_group_by_its_label() -> None:
    """What heronpy.api.global_metrics counts: one name, and a label for each key."""
    cache = MetricsCache(3600, 10)
    made = report(1, name="__auto__")
    made.samples[0].label = "rows"
    made.samples.add(name="__auto__", label="files", type=COUNTER, value=2)
    cache.add(made, 0)
    for name, found in (("__auto__", [1, 2]), ("__auto__/files", [2]), ("files", [])):
        reply = cache.query(control_pb2.GetMetrics(names=[name]), 0)
        assert sorted(sample.value for sample in reply.reports[0].samples) == found


def test_series_are_bounded_and_forgotten() -> None:
    cache = MetricsCache(keep_s=100, bucket_s=10, series_max=3)
    for index in range(5):
        made = report(1, name=f"n{index}")
        made.component = ""
        cache.add(made, 0)
    assert len(cache) == 3
    assert cache.discarded == 2
    cache.add(report(1, process="q", name="x"), 500)
    cache.add(report(1, process="q", name="x"), 600)
    assert len(cache) == 1, "a silent process other than a task is gone"
    cache.add(report(1, process="p", name="x"), 1000)
    assert len(cache) == 2, "what a task has counted stays"
    cache.forget("q", 1000)
    for index in range(5):
        cache.add(report(index, process=f"task-{index}", name="x"), 600)
        cache.forget(f"task-{index}", 600)
        cache.add(report(1, process="p", name="x"), 700 + index * 100)
    assert len(cache) == 2, "the removed tasks of a component share one series"


def test_the_counts_of_removed_tasks_stay_in_their_component() -> None:
    """Also the last report, which comes after the removal; growth is that of the tasks that there are."""
    cache = MetricsCache(keep_s=100, bucket_s=1)
    for second in range(10):
        cache.add(report(10 * second, process="a"), second)
        told = report(10 * second, process="b")
        told.samples.add(name="queue", type=GAUGE, value=5)
        cache.add(told, second)

    def total(now: float, interval_s: float = 0) -> float:
        reply = cache.query(control_pb2.GetMetrics(names=["n"], component="word", interval_s=interval_s), now)
        return sum(sample.value for one in reply.reports for sample in one.samples)

    cache.forget("b", 9.0)
    assert total(9.0) == 180 and cache.knows("b")
    assert all(
        sample.name == "n" for one in cache.query(control_pb2.GetMetrics(), 9.0).reports for sample in one.samples
    )
    cache.add(report(97, process="b"), 10.0)
    for second in range(10, 300):
        cache.add(report(90, process="a"), second)
        assert total(second) == 187
    assert not cache.knows("b") and total(299, 50) == 0
    found = cache.query(control_pb2.GetMetrics(), 299).reports
    assert [one.process for one in found] == ["a", "removed tasks of word"]
    assert all(sample.name == "n" for one in found for sample in one.samples), "a gauge is of the task alone"


def totals(cache: MetricsCache, now: float) -> dict[str, float]:
    """The counts by component, and those of each process other than a task."""
    found: dict[str, float] = {}
    for one in cache.query(control_pb2.GetMetrics(), now).reports:
        for sample in one.samples:
            key = f"{one.component or one.process}/{sample.name}"
            if sample.type == HISTOGRAM:
                for part, value in (("sum", sample.sum), ("count", sample.count)):
                    found[f"{key}/{part}"] = found.get(f"{key}/{part}", 0) + value
                for bucket in sample.buckets:
                    found[f"{key}/{bucket.le}"] = found.get(f"{key}/{bucket.le}", 0) + bucket.count
            elif sample.type == COUNTER:
                found[key] = found.get(key, 0) + sample.value
    return found


def work(process: str, epoch: int, done: int, ends: bool = False) -> control_pb2.MetricsReport:
    made = report(done, epoch, process, name="__emit-count")
    made.task_id, made.pid, made.ends = 1, 77, ends
    sample = made.samples.add(name="took", type=HISTOGRAM, sum=done * 0.5, count=done)
    sample.buckets.add(le=1.0, count=done // 2)
    sample.buckets.add(le=float("inf"), count=done)
    made.samples.add(name="queue", type=GAUGE, value=done)
    return made


STORY = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.integers(0, 9), st.sampled_from(["work", "ends", "killed", "removed", "master"])
    ),
    max_size=60,
)


@given(STORY)
def test_no_count_falls_when_the_topology_master_is_replaced(story: list[tuple[str, int, str]]) -> None:
    """What the predecessor has written is all it knew: the same counts, and those that go on are no growth."""
    cache, now = MetricsCache(3600, 10), 0.0
    epochs, done = dict.fromkeys("abc", 1), dict.fromkeys("abc", 0)
    expected: dict[str, float] = {}
    killed = False
    for process, by, what in story:
        now += 20
        if what == "master":
            successor = MetricsCache(3600, 10, resumed=True)
            successor.take_over(cache.ledger("t"), "t", now)
            assert totals(successor, now) == totals(cache, now)
            assert not successor.query(control_pb2.GetMetrics(), now).resumed_s
            assert not any(
                sample.value or sample.count
                for one in successor.query(control_pb2.GetMetrics(interval_s=600), now).reports
                for sample in one.samples
            ), "what a predecessor knew has not grown now"
            cache = successor
            continue
        done[process] += by
        cache.add(work(process, epochs[process], done[process], what == "ends"), now)
        if what == "removed":
            cache.forget(process, now)
        if what != "work":
            killed = killed or what == "killed"
            epochs[process], done[process] = epochs[process] + 1, 0
            cache.add(work(process, epochs[process], 0), now + 15)
        counts = totals(cache, now + 16)
        assert all(counts[key] >= value for key, value in expected.items())
        expected = counts
    if killed:
        assert any(one.at_least for one in cache.query(control_pb2.GetMetrics(), now + 16).reports)


def test_only_ends_that_nobody_told_of_make_lower_bounds() -> None:
    cache = MetricsCache(3600, 10)
    cache.add(work("a", 1, 10), 0)
    cache.add(work("a", 1, 12, ends=True), 1)
    cache.add(work("a", 2, 3), 2)
    assert not cache.query(control_pb2.GetMetrics(), 2).reports[0].at_least
    successor = MetricsCache(3600, 10, resumed=True)
    successor.take_over(cache.ledger("t"), "t", 3)
    successor.add(work("a", 3, 1), 4)
    assert successor.query(control_pb2.GetMetrics(), 4).reports[0].at_least
    assert totals(successor, 4)["word/__emit-count"] == 12 + 3 + 1


def test_a_gateway_of_spark_that_is_killed_makes_lower_bounds_too() -> None:
    def told(epoch: int, rows: float, ends: bool = False) -> control_pb2.MetricsReport:
        report = control_pb2.MetricsReport(process="spark-gateway", epoch=epoch, pid=epoch, ends=ends)
        report.samples.add(name="spark-rows-committed", label="store", value=rows)
        return report

    cache = MetricsCache(3600, 10)
    for epoch, ends, least in ((1, True, False), (2, False, False), (3, False, True)):
        cache.add(told(epoch, 10, ends), epoch)
        assert cache.query(control_pb2.GetMetrics(), epoch).reports[0].at_least == least
    successor = MetricsCache(3600, 10, resumed=True)
    successor.take_over(cache.ledger("t"), "t", 4)
    successor.add(told(3, 20), 5)
    [report] = successor.query(control_pb2.GetMetrics(), 5).reports
    assert report.at_least and report.samples[0].value == 40


def test_a_ledger_of_another_topology_or_a_damaged_one_is_not_taken() -> None:
    cache = MetricsCache(3600, 10)
    cache.add(work("a", 1, 10), 0)
    kept = cache.ledger("t")
    other = MetricsCache(3600, 10, resumed=True)
    other.take_over(kept, "u", 1)
    assert totals(other, 1) == {}
    for damage in (b"", b"junk", kept.processes[0].values[:-1]):
        hurt = control_pb2.MetricsLedger.FromString(kept.SerializeToString())
        hurt.processes[0].values = damage
        other.take_over(hurt, "t", 1)
        assert totals(other, 1) == {}
    kept.processes[0].series.append(99)
    other.take_over(kept, "t", 1)
    assert totals(other, 1) == {}


def test_what_does_not_fit_into_the_ledger_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LEDGER_BYTES_MAX", 200)
    cache = MetricsCache(3600, 10)
    for index in range(50):
        cache.add(work(f"p{index}", 1, 10 + index), 0)
    kept = cache.ledger("t")
    assert kept.left_out > 0 and len(kept.processes) + kept.left_out == 50
    successor = MetricsCache(3600, 10, resumed=True)
    successor.take_over(kept, "t", 1)
    successor.add(work("p0", 1, 10), 2)
    assert successor.query(control_pb2.GetMetrics(), 5).resumed_s == 3


@given(st.lists(st.tuples(st.floats(0.1, 30), st.integers(0, 50), st.booleans()), min_size=1, max_size=400))
def test_growth_matches_a_model(steps: list[tuple[float, int, bool]]) -> None:
    """Total since the start is exact; growth over any interval never exceeds it and never is negative."""
    cache = MetricsCache(keep_s=1000, bucket_s=10)
    now, raw, total, epoch = 0.0, 0, 0, 1
    for gap, by, restarted in steps:
        now += gap
        if restarted:
            raw, epoch = 0, epoch + 1
        raw += by
        total += by
        cache.add(report(raw, epoch=epoch), now)
        assert value(cache, now) == total
        for interval in (5.0, 100.0, 2000.0):
            assert 0 <= value(cache, now, interval) <= total
    stored = cache._processes["p"].series["n", ""].parts[""]
    assert len(stored.times) <= STEPS_MAX
    assert list(stored.times) == sorted(stored.times)
