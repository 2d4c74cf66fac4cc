"""Metrics of user code: how many keys a task keeps, and that it says when it keeps no more."""

from __future__ import annotations

import pytest

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
