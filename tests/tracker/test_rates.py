"""Requests per asker: what the bucket allows, and what HTTP says when it is empty."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.tracker.rates import ASKERS_MAX, REFUSED_BURST, Rates
from heronpy.tracker.tracker import Tracker
from tests.cli.conftest import FakeTopology
from tests.tracker.conftest import WORDY, Asking


@given(st.lists(st.floats(0, 3), max_size=200), st.floats(0.1, 20), st.integers(1, 20))
def test_no_more_passes_than_the_burst_and_the_rate(pauses: list[float], per_s: float, burst: int) -> None:
    rates, now, passed = Rates(per_s, burst), 0.0, 0
    for pause in pauses:
        now += pause
        waits = rates.take("a", now)
        passed += not waits
        assert waits <= 1 / per_s + 1e-6
        assert passed <= burst + per_s * now + 1e-6
    assert rates.limited == len(pauses) - passed


def test_who_waits_as_long_as_it_was_told_is_let_in() -> None:
    rates = Rates(2.0, 1.0)
    assert rates.take("a", 10.0) == 0 and rates.take("b", 10.0) == 0, "each has its own"
    waits = rates.take("a", 10.1)
    assert waits == pytest.approx(0.4) and rates.take("a", 10.1 + waits + 1e-9) == 0


def test_the_table_is_bounded_and_no_limit_is_none() -> None:
    rates = Rates(1.0, 1.0)
    for number in range(3 * ASKERS_MAX):
        rates.take(str(number), 0.0)
    assert len(rates) == ASKERS_MAX
    free = Rates(0.0, 0.0)
    assert not any(free.take("a", 0.0) for _ in range(10_000)) and len(free) == 0


def test_one_request_too_many_is_told_when_to_come_back(asking: Asking, busy: FakeTopology) -> None:
    async def flood(client: httpx.AsyncClient, tracker: Tracker) -> None:
        tracker.rates = Rates(0.5, 3.0)
        answers = [await client.get("/api/v1/me") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        late = answers[-1]
        assert late.headers["content-type"] == "application/problem+json" and late.json()["type"] == "too-many"
        assert late.headers["retry-after"] in ("1", "2")
        assert (await client.get("/api/v1/nothing")).status_code == 429, "what is not there counts too"
        for path in ("/health", "/", "/static/index.html"):
            assert (await client.get(path)).status_code == 200, "pages and their files do not count"
        # Nor does a live stream; of one that does not exist the answer ends.
        assert (await client.get("/api/v1/live?topology=local/me/default/x")).status_code == 404
        token = tracker.tokens.create("t", ["view"], "", 60.0, 1e9 * 2)
        page = await client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        assert page.status_code == 200 and "heron_tracker_limited_requests_total 3.0" in page.text

    asking.within(flood)


def test_guessing_tokens_is_slow_and_slows_down_nobody_else(asking: Asking) -> None:
    async def guess(client: httpx.AsyncClient, tracker: Tracker) -> None:
        statuses = [
            (await client.get(WORDY, headers={"Authorization": f"Bearer guess-{n}"})).status_code
            for n in range(int(REFUSED_BURST) + 50)
        ]
        assert statuses[: int(REFUSED_BURST)] == [401] * int(REFUSED_BURST) and 429 in statuses
        assert (await client.get("/api/v1/me")).status_code == 200, "the same address, with a right to ask"

    asking.within(guess)
