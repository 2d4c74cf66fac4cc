"""Metrics of user code: how many keys a task keeps, and that it says when it keeps no more."""

from __future__ import annotations

import pytest

from heronpy.api import global_metrics
from heronpy.api.metrics import MultiCountMetric
from instance.metrics import KEYS_MAX, TaskMetrics, UserMetrics


def test_keys_beyond_the_limit_are_dropped_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    sink = TaskMetrics()
    user, words = UserMetrics(sink), MultiCountMetric()
    user.register_metric("words", words, 1)
    for round_ in range(2):
        for number in range(KEYS_MAX + 50):
            words.incr(f"word-{number}")
        user.collect(float(round_), force=True)
    assert len(sink.counters) == KEYS_MAX + 1
    assert set(sink.counters.values()) == {2.0}, "known keys go on"
    [record] = caplog.records
    assert "metric words: the key 'word-1001' and further ones are dropped" in record.getMessage()


@pytest.mark.parametrize("own", [True, False])
def test_a_task_knows_whether_user_code_counts(own: bool) -> None:
    """If it does, it may do so beside its calls, and a task that waits looks more often."""
    user, auto, counts = UserMetrics(TaskMetrics()), MultiCountMetric(), MultiCountMetric()
    user.register_metric(global_metrics.root_name, auto, 1)
    user.collect(0.0, force=True)
    assert not user.used
    if own:
        user.register_metric("words", counts, 1)
    else:
        auto.incr("words")
        user.collect(1.0, force=True)
    assert user.used
