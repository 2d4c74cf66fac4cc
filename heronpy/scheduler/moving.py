"""Replacing containers because a user asks for it: `heron restart`, and `heron drain` of a host.

It tells placement what is asked, and waits until it is done. Invariants: a request is answered
within the time that it brings; after a drain that failed a container acts where it was, or elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from heronpy.common.errors import DeadlineError, RpcError
from heronpy.common.ids import executor_id
from heronpy.scheduler.placement_events import (
    ContainerView,
    Event,
    HostAvoided,
    MoveAsked,
    MoveEnded,
    Phase,
    RestartAsked,
)
from heronpy.scheduler.shown import standing

WHY = "a user asked for it"


class Moves:
    """`handle` takes what is asked, `views` tells what became of it; `change` is set when that may be something new."""

    def __init__(
        self,
        handle: Callable[[Event], object],
        views: Callable[[], Sequence[ContainerView]],
        change: asyncio.Event,
        limit_s: float,
    ) -> None:
        self._handle = handle
        self._views = views
        self._change = change
        #: Of a request that brings no time of its own.
        self._limit_s = limit_s
        self._drains: dict[str, asyncio.Task[list[int]]] = {}
        #: Until when somebody waits for the drain of a host, on the monotonic clock.
        self._until: dict[str, float] = {}

    def _by_container(self) -> dict[int, ContainerView]:
        return {view.container: view for view in self._views()}

    async def _when(self, holds: Callable[[], bool], until: Callable[[], float]) -> bool:
        """Whether something holds in time."""
        while not holds():
            left = until() - time.monotonic()
            if left <= 0:
                return False
            self._change.clear()
            try:
                async with asyncio.timeout(left):
                    await self._change.wait()
            except TimeoutError:
                continue
        return True

    async def restart(self, containers: Sequence[int], force: bool, wait_s: float) -> list[str]:
        """Replace containers, and wait until their successors act."""
        before = {number: view.epoch for number, view in self._by_container().items()}
        self._handle(RestartAsked(tuple(containers), WHY, force))
        limit_s = wait_s or self._limit_s
        until = time.monotonic() + limit_s

        def done() -> bool:
            now = self._by_container()
            return all(
                number not in now or (now[number].epoch > before[number] and now[number].phase is Phase.RUNNING)
                for number in containers
            )

        if not await self._when(done, lambda: until):
            where = standing(self._views(), containers)
            raise DeadlineError(f"not restarted within {limit_s:g} s: {where or 'they are being replaced'}")
        return [executor_id(number) for number in containers]

    async def drain(self, host: str, wait_s: float) -> list[int]:
        """Avoid a host and move the containers away from it, one at a time; the numbers of those that have moved.

        Two who ask for the same host wait for the same drain, which has the time of the more patient one.
        """
        until = time.monotonic() + (wait_s or self._limit_s)
        running = self._drains.get(host)
        if running is None or running.done():
            self._until[host] = until
            running = self._drains[host] = asyncio.create_task(self._drain(host))
            running.add_done_callback(lambda done: self._forget(host, done))
        self._until[host] = max(self._until[host], until)
        return await asyncio.shield(running)

    def _forget(self, host: str, done: asyncio.Task[list[int]]) -> None:
        if self._drains.get(host) is done:
            del self._drains[host], self._until[host]
        if not done.cancelled():
            done.exception()  # those who waited have it

    async def _drain(self, host: str) -> list[int]:
        self._handle(HostAvoided(host, WHY))
        moved: list[int] = []
        while True:
            there = [view.container for view in self._views() if view.host == host]
            if not there:
                return moved
            if there[0] in moved:
                raise RpcError(f"container {there[0]} is on host {host} again; {_rest(there[1:], moved)}")
            await self._move(there[0], host, there[1:], moved)
            moved.append(there[0])

    async def _move(self, number: int, host: str, later: Sequence[int], moved: Sequence[int]) -> None:
        began = time.monotonic()
        before = self._by_container()[number].epoch
        self._handle(MoveAsked(number, host))

        def over() -> bool:
            view = self._by_container().get(number)
            return view is None or bool(view.unmoved) or (view.epoch > before and view.phase is Phase.RUNNING)

        in_time = await self._when(over, lambda: self._until[host])
        view = self._by_container().get(number)
        if view is None or (in_time and not view.unmoved):
            return
        why = f"its successor is {view.phase.name}" + (f" ({view.words})" if view.words else "")
        self._handle(MoveEnded(number))
        what = f"container {number} cannot be moved away from host {host}"
        if in_time:
            raise RpcError(f"{what}: {view.unmoved}; {_rest(later, moved)}")
        spent_s = time.monotonic() - began
        raise DeadlineError(f"{what} within {spent_s:.0f} s: {why}; {_rest(later, moved)}, or give a longer --timeout")


def _rest(later: Sequence[int], moved: Sequence[int]) -> str:
    """What became of the others, and of this one."""
    gone = f"{_names(moved)} has moved, " if len(moved) == 1 else f"{_names(moved)} have moved, " if moved else ""
    stays = "it stays there" if not later else f"it and {_names(later)} stay there"
    return f"{gone}{stays}; make room on another host"


def _names(containers: Sequence[int]) -> str:
    return ", ".join(f"container {number}" for number in containers)
