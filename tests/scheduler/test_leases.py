"""Leases: never do a container and its successor act at once, whatever the network does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError
from heronpy.engines.lease import CLOCK_DRIFT, Fencing, Lease, LeaseTimes
from heronpy.scheduler.leases import Grants, Permit, fencing_of

TIMES = LeaseTimes()


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"fence_s": 57.0}, "raise lost_s or lower fence_s"),
        ({"fence_s": 60.0}, "raise lost_s or lower fence_s"),
        ({"fence_s": 40.0, "stop_grace_s": 20.0}, "raise lost_s or lower fence_s"),
        ({"fence_s": 10.0}, "twice renew_s"),
        ({"renew_s": 0.0}, "positive"),
        ({"stop_grace_s": -1.0}, "positive"),
        ({"permit_s": 59.0}, "at least lost_s"),
    ],
)
def test_times_that_do_not_exclude_each_other_are_refused(times: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LeaseTimes(**times)


@given(
    renew_s=st.floats(0.1, 60), fence_s=st.floats(0.1, 300), lost_s=st.floats(0.1, 600), grace_s=st.floats(0, 100),
)  # fmt: skip
def test_whatever_is_accepted_leaves_time_to_stop(
    renew_s: float, fence_s: float, lost_s: float, grace_s: float
) -> None:
    try:
        times = LeaseTimes(renew_s, fence_s, lost_s, grace_s, permit_s=1000.0)
    except ConfigError:
        return
    assert times.fence_s + times.stop_grace_s < times.lost_s and 2 * times.renew_s < times.fence_s


@pytest.mark.parametrize(
    ("asked", "mode", "at_endpoint", "found"),
    [
        ("auto", "EFFECTIVELY_ONCE", False, Fencing.EPOCH),
        ("auto", "ATLEAST_ONCE", False, Fencing.LEASE),
        ("auto", "ATMOST_ONCE", False, Fencing.LEASE),
        ("auto", "EFFECTIVELY_ONCE", True, Fencing.EPOCH),
        ("auto", "ATLEAST_ONCE", True, Fencing.EPOCH),
        ("auto", "ATMOST_ONCE", True, Fencing.CONFIRMATION),
        ("lease", "EFFECTIVELY_ONCE", False, Fencing.LEASE),
        ("epoch", "ATLEAST_ONCE", False, Fencing.EPOCH),
        ("confirmation", "ATLEAST_ONCE", True, Fencing.CONFIRMATION),
    ],
)
def test_fencing_keeps_the_promise_of_the_mode(asked: str, mode: str, at_endpoint: bool, found: Fencing) -> None:
    assert fencing_of(asked, mode, at_endpoint) is found


@pytest.mark.parametrize(
    ("asked", "mode", "at_endpoint", "words"),
    [
        ("epoch", "ATMOST_ONCE", False, "deliver a tuple twice"),
        ("lease", "ATLEAST_ONCE", True, "zookeeper"),
        ("leases", "ATLEAST_ONCE", False, "unknown"),
    ],
)
def test_fencing_that_could_not_is_refused(asked: str, mode: str, at_endpoint: bool, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fencing_of(asked, mode, at_endpoint)


delays = st.floats(0, 120)


@given(
    requests=st.lists(st.tuples(st.floats(0.1, 10), delays, st.one_of(st.none(), delays)), min_size=1, max_size=30),
    grace_s=st.floats(0, TIMES.stop_grace_s),
    drift=st.floats(1 - CLOCK_DRIFT / 2, 1 + CLOCK_DRIFT / 2),
    offset=st.floats(-1e6, 1e6),
)
def test_a_successor_is_free_only_after_its_predecessor_has_stopped(
    requests: list[tuple[float, float, float | None]], grace_s: float, drift: float, offset: float
) -> None:
    """Requests and answers take any time, answers may be lost, and the clocks differ in zero and rate."""
    lease, grants = Lease(TIMES, Fencing.LEASE), Grants(TIMES, Fencing.LEASE, 0.0)
    answers: list[tuple[float, int]] = []
    sent = 0.0
    for gap, there_s, back_s in requests:
        sent += gap
        number = lease.ask(sent * drift + offset)
        arrived = sent + there_s
        grants.hold(1, arrived)
        if back_s is not None:
            answers.append((arrived + back_s, number))
    stopped = 0.0
    for arrived, number in sorted(answers):
        now = arrived * drift + offset
        if lease.epoch == 0:
            lease.activated(number, 1, now)
        elif lease.is_over(now):
            break
        else:
            lease.granted(number, now)
        stopped = (lease.until - offset) / drift + grace_s if lease.epoch else stopped
    free_at = grants.free_at(1)
    assert free_at is not None and stopped < free_at


def test_an_answer_that_comes_too_late_is_void() -> None:
    lease = Lease(TIMES, Fencing.LEASE)
    number = lease.ask(0.0)
    assert not lease.activated(number, 1, TIMES.fence_s)
    assert not lease.activated(99, 1, 1.0), "no such request"
    assert lease.activated(lease.ask(50.0), 2, 51.0)
    assert not lease.activated(lease.ask(52.0), 2, 52.1), "it acts in that epoch already"
    lease.granted(number, 60.0)
    assert lease.until == 50.0 + TIMES.fence_s, "the answer to an old question gives nothing"
    assert not lease.is_over(89.9) and lease.is_over(90.0)
    lease.stop()
    assert (lease.epoch, lease.stopped) == (0, 2) and not lease.is_over(1000.0)
    assert not lease.activated(lease.ask(100.0), 2, 100.0), "an epoch is used once"
    assert lease.activated(lease.ask(100.0), 3, 100.0)


@pytest.mark.parametrize("fencing", [Fencing.EPOCH, Fencing.CONFIRMATION])
def test_without_leases_nothing_stops_by_itself(fencing: Fencing) -> None:
    lease = Lease(TIMES, fencing)
    assert lease.activated(lease.ask(0.0), 1, 0.0)
    assert not lease.is_over(1e6) and not lease.is_in_doubt(1e6)


def test_a_container_asks_the_state_manager_long_before_it_stops() -> None:
    lease = Lease(TIMES, Fencing.LEASE)
    assert lease.activated(lease.ask(0.0), 1, 0.0)
    assert not lease.is_in_doubt(TIMES.fence_s / 2 - 0.1) and lease.is_in_doubt(TIMES.fence_s / 2)


def test_confirmation_waits_for_ever_and_others_for_lost_s() -> None:
    for fencing, free_at in ((Fencing.CONFIRMATION, None), (Fencing.EPOCH, 160.0), (Fencing.LEASE, 160.0)):
        grants = Grants(TIMES, fencing, since=100.0)
        assert grants.is_free(1, 0.0), "nobody acts"
        grants.hold(1, 50.0)
        assert grants.free_at(1) == free_at, "an earlier scheduler may have granted until 100"
        grants.release(1)
        assert grants.is_free(1, 0.0)


def test_a_permit_lasts_from_the_question_that_proved_it() -> None:
    permit = Permit(TIMES, taken_at=0.0, alone=False)
    assert permit.may_grant(599.9) and not permit.may_grant(600.0)
    permit.proved(100.0)
    permit.proved(50.0)
    assert permit.may_grant(699.9) and not permit.may_grant(700.0)
    assert not permit.is_alone(599.9) and permit.is_alone(600.0)
    assert TIMES.silence_from(5.0, alone=True) == 5.0 and TIMES.silence_from(5.0, alone=False) == 605.0
