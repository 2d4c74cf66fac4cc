"""Capacity: what a pool's jobs may have, as sentences of its contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from heronpy.scaling.capacity import BACK_S, RESERVE, Allotted, Amount, Claim, allot, granted

ROUND_S = 30.0
#: Besides tasks.
MASTER = Amount(0.5, 50)
CORE = Amount(1.0, 100)


def job(name: str, least: int, wish: int, **fields: object) -> Claim:
    return Claim(name, {"work": CORE}, Amount(), {"work": least}, {"work": wish}, **fields)  # type: ignore[arg-type]


def pool(cores: float) -> list[Amount]:
    """Slots with this number of cores for jobs, and more memory than the jobs need."""
    return [Amount(cores / 2 / (1 - RESERVE), cores * 1000)] * 2


class Cluster:
    """Jobs that do at once what they are allotted."""

    def __init__(self, slots: Sequence[Amount], claims: Sequence[Claim], quotas: Mapping[str, Amount] = {}) -> None:
        self.slots, self.quotas = slots, quotas
        self.claims = {claim.job: claim for claim in claims}
        self.now = 1000.0

    def round(self, *more: Claim) -> dict[str, Allotted]:
        self.claims |= {claim.job: claim for claim in more}
        self.now += ROUND_S
        found = allot(self.slots, self.quotas, self.claims.values(), self.now)
        self.claims = {
            name: replace(claim, before=found[name], held=granted(claim, found[name]))
            for name, claim in self.claims.items()
        }
        return found

    def tasks(self) -> dict[str, int]:
        return {name: claim.held.get("work", 0) for name, claim in self.claims.items()}


def test_the_last_shrinks_then_is_stopped_and_comes_back_after_five_minutes() -> None:
    it = Cluster(pool(10), [job("low", 2, 8, created=1.0)])
    assert it.round()["low"] == Allotted()
    low = it.round(job("high", 3, 6, priority=200))
    assert it.tasks() == {"low": 4, "high": 0}, "nobody grows into room that another one has not left"
    assert low["high"].why == "it waits until other jobs have freed 6 cores and 600B of memory"
    assert low["low"].why == (
        "work gets 4 of 8 tasks: jobs may have 10 cores and 17.6KB of memory, of which other jobs use 6 cores and"
        " 600B of memory"
    )
    it.round()
    assert it.tasks() == {"low": 4, "high": 6}
    it.round(replace(it.claims["high"], least={"work": 9}, wish={"work": 9}))
    found = it.round()
    assert (found["low"].state, found["high"].state) == ("PREEMPTED", "GRANTED") and it.tasks()["high"] == 9
    assert found["low"].why.startswith("it needs at least 2 cores and 200B of memory; jobs may have 10 cores")
    it.round(replace(it.claims["high"], least={"work": 1}, wish={"work": 1}))
    back = it.now
    while it.tasks()["low"] == 0:
        assert it.now - back < BACK_S + ROUND_S
        assert it.round()["low"].fits_since is not None or it.tasks()["low"]
    assert it.now - back >= BACK_S and it.tasks() == {"low": 8, "high": 1}


def test_a_wish_that_does_not_last_brings_nothing_back() -> None:
    it = Cluster(pool(10), [job("low", 2, 8), job("high", 1, 6, priority=200)])
    it.round(), it.round()
    assert it.tasks() == {"low": 4, "high": 6}
    for _ in range(20):  # the wish of the other one goes up and down each minute
        it.round(replace(it.claims["high"], wish={"work": 2}))
        it.round(replace(it.claims["high"], wish={"work": 6}))
        assert it.tasks()["low"] == 4


def test_a_clock_that_is_set_back_makes_no_job_wait_longer() -> None:
    it = Cluster(pool(10), [job("low", 2, 8), job("high", 1, 6, priority=200)])
    it.round(), it.round(), it.round(replace(it.claims["high"], wish={"work": 2}))
    it.now -= 1e6
    back = it.now
    while it.tasks()["low"] < 8:
        assert it.now - back <= BACK_S + ROUND_S
        it.round()


def test_who_comes_first() -> None:
    claims = [
        job("young", 4, 4, created=2.0),
        job("old", 4, 4, created=1.0),
        job("runs", 4, 4, created=3.0, held={"work": 4}),
        job("urgent", 4, 4, created=4.0, priority=200),
        job("privileged", 4, 4, created=5.0, priority=0, privileged=True),
    ]
    for cores, runs in (
        (4, {"privileged"}),
        (8, {"privileged", "urgent"}),
        (16, {"privileged", "urgent", "runs", "old"}),
    ):
        found = Cluster(pool(cores), claims)
        for _ in range(3):
            states = {name: one.state for name, one in found.round().items()}
        assert {name for name, state in states.items() if state == "GRANTED"} == runs
    assert states["young"] == "WAITING"


def test_a_role_has_no_more_than_its_quota() -> None:
    claims = [job("a", 2, 5, role="ads", priority=200), job("b", 2, 5, role="ads"), job("c", 1, 2)]
    it = Cluster(pool(100), claims, {"ads": Amount(6, 1000)})
    found = it.round()
    assert it.tasks() == {"a": 4, "b": 2, "c": 2}
    assert found["a"].why == (
        "work gets 4 of 5 tasks: jobs of role ads may have 6 cores and 1000B of memory, of which other jobs use"
        " 2 cores and 200B of memory"
    )


def test_a_job_that_leaves_keeps_its_room_until_it_has_left() -> None:
    leaving = replace(job("leaves", 0, 0, held={"work": 8}), least={}, wish={})
    it = Cluster(pool(10), [leaving])
    assert allot(it.slots, {}, [leaving, job("next", 5, 5)], 0.0)["next"].state == "WAITING"
    it.round(), it.round(job("next", 5, 5))
    assert it.tasks() == {"leaves": 0, "next": 5}


COUNTS = st.integers(0, 6)


@st.composite
def claims(draw: st.DrawFn) -> list[Claim]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        # The components of a job are the same in all rounds: another program starts when the old one has stopped.
        least = {one: draw(st.integers(1, 4)) for one in ("read", "work")[: 1 + number % 2]}
        each = {one: Amount(draw(st.sampled_from((0.1, 1.0, 2.5))), draw(st.integers(1, 300))) for one in least}
        found.append(
            Claim(
                f"job{number}", each, MASTER, least, {one: n + draw(COUNTS) for one, n in least.items()},
                draw(st.sampled_from(("ads", "ops"))), draw(st.sampled_from((0, 100, 200))), draw(st.booleans()),
                float(draw(COUNTS)),
            )
        )  # fmt: skip
    return found


def rooms(of: Sequence[Claim]) -> Amount:
    return sum((claim.room(claim.held) for claim in of), Amount())


@settings(max_examples=60)
@given(
    first=claims(), later=st.lists(claims(), max_size=3), slots=st.integers(1, 6), smaller=st.integers(0, 6),
    quota=st.integers(1, 20),
)  # fmt: skip
def test_it_exceeds_nothing_starves_nobody_and_comes_to_rest(
    first: list[Claim], later: list[list[Claim]], slots: int, smaller: int, quota: int
) -> None:
    size, quotas = Amount(4.0, 700), {"ads": Amount(quota, quota * 150)}
    it = Cluster([size] * slots, first, quotas)
    for claims_now in [*later, first]:
        before, held = rooms([*it.claims.values()]), {name: claim.held for name, claim in it.claims.items()}
        it.round(
            *(replace(one, held=held.get(one.job, {}), before=it.claims.get(one.job, one).before) for one in claims_now)
        )
        after = [*it.claims.values()]
        both = sum(
            (one.room({k: max(n, held.get(one.job, {}).get(k, 0)) for k, n in one.held.items()}) for one in after),
            Amount(),
        )
        grown = any(n > held.get(one.job, {}).get(k, 0) for one in after for k, n in one.held.items())
        assert not grown or both.fits(size.times(slots)) or before == Amount()
    it.slots = [size] * min(slots, max(1, smaller))
    seen = []
    for _ in range(round(2 * BACK_S / ROUND_S) + 6):
        it.round()
        seen.append({name: claim.held for name, claim in it.claims.items()})
    assert all(one == seen[-1] for one in seen[-5:]), "it has come to rest"
    for name in it.claims:
        changes = sum(a[name] != b[name] for a, b in pairwise(seen))
        assert changes <= 3, f"{name} flaps"

    whole = size.times(len(it.slots)).times(1 - RESERVE)
    runs = [*it.claims.values()]
    assert rooms(runs).fits(whole)
    assert rooms([one for one in runs if one.role == "ads"]).fits(quotas["ads"])
    for one in runs:
        # What those have that come before it, whatever those have that come after it.
        ahead = [two for two in runs if two is not one and key(two) < key(one)]

        def has_room(more: Amount, others: Sequence[Claim], one: Claim = one) -> bool:
            mates = [two for two in others if two.role == one.role]
            quota_ = quotas.get(one.role, whole)
            return (rooms(others) + more).fits(whole) and (rooms(mates) + more).fits(quota_)

        if not one.held:
            at_least = [replace(two, held=two.least if two.held else {}) for two in ahead]
            assert not has_room(one.room(one.least), at_least), f"{one.job} could run"
        for name, n in one.held.items():
            after = [replace(two, held=two.least if two.held else {}) for two in runs if key(two) > key(one)]
            if n < one.wish[name]:
                assert not has_room(one.room(one.held | {name: n + 1}), [*ahead, *after]), f"{one.job} could grow"


def key(claim: Claim) -> tuple[bool, int, bool, float, str]:
    return not claim.privileged, -claim.priority, not claim.held, claim.created, claim.job
