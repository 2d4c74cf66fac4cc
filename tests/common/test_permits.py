"""Permits: in the order of asking, never more than were offered, none lost by a cancellation."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.common.permits import Permits

steps = st.one_of(
    st.just(("ask", 0)),
    st.tuples(st.just("offer"), st.integers(0, 4)),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.just(("run", 0)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40))
def test_whatever_is_asked_offered_and_cancelled(program: list[tuple[str, int]]) -> None:
    asyncio.run(play(program))


async def play(program: list[tuple[str, int]]) -> None:
    permits = Permits(lambda: None)
    took: list[int] = []
    tasks: list[asyncio.Task[None]] = []
    offered = 0

    async def ask(number: int) -> None:
        await permits.take()
        took.append(number)

    async def settle() -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    for what, number in program:
        if what == "ask":
            tasks.append(asyncio.ensure_future(ask(len(tasks))))
            await asyncio.sleep(0)
        elif what == "offer":
            # What was free is void.
            offered += number - permits.free
            permits.offer(number)
        elif what == "cancel" and number < len(tasks):
            tasks[number].cancel()
        elif what == "run":
            await settle()
        assert permits.free == 0 or permits.waiting == 0
    await settle()
    assert permits.given == 0
    assert len(took) + permits.free == offered, "a permit was lost or made"
    assert took == sorted(took), "not in the order of asking"
    alive = [number for number, task in enumerate(tasks) if not task.done()]
    assert permits.waiting == len(alive)
    permits.offer(len(alive))
    await asyncio.gather(*(tasks[number] for number in alive))
    assert took[len(took) - len(alive) :] == alive


async def test_one_that_waits_or_gives_back_is_announced() -> None:
    wanted: list[int] = []
    permits = Permits(lambda: wanted.append(1))
    task = asyncio.ensure_future(permits.take())
    await asyncio.sleep(0)
    assert len(wanted) == 1
    permits.offer(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(wanted) == 2 and permits.free == 1
