"""Replaces containers at a user's request: for `heron restart`, for `heron drain`, and for changed sizes.

It passes requests to placement, and waits until they have been carried out. A drain that an earlier scheduler began is
continued.

Invariants: a request is answered within its own time limit; after a failed drain, each container acts on its old host
or on a new one, and the drained host may get containers again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from heronpy.common.errors import DeadlineError, HeronError, RpcError
from heronpy.common.ids import executor_id
from heronpy.scheduler.containers import standing
from heronpy.scheduler.placement_events import (
    ContainerView,
    DrainAsked,
    DrainEnded,
    Event,
    MoveAsked,
    MoveEnded,
    Phase,
    RestartAsked,
)
from heronpy.scheduler.waiting import wait_until

#: Length limit of the user name in events and logs.
BY_MAX_CHARS = 100
#: Maximum duration of one wait for the engine's list.
LISTED_S = 60.0

log = logging.getLogger("heronpy.scheduler")


class Moves:
    """Moves containers.

    `handle` passes events to placement, `views` returns the containers, and `change` is set when a container changes.
    """

    def __init__(
        self,
        handle: Callable[[Event], object],
        views: Callable[[], Sequence[ContainerView]],
        change: asyncio.Event,
        limit_s: float,
        away: Callable[[], str] = str,
    ) -> None:
        self._handle = handle
        self._views = views
        self._change = change
        #: Time limit of a request that does not set one.
        self._limit_s = limit_s
        #: Why the engine does not answer; empty if it does.
        self._away = away
        self._drains: dict[str, asyncio.Task[list[int]]] = {}
        #: By host: when the longest wait for its drain ends, in monotonic time.
        self._until: dict[str, float] = {}

    def _by_container(self) -> dict[int, ContainerView]:
        return {view.container: view for view in self._views()}

    async def restart(self, containers: Sequence[int], force: bool, wait_s: float, by: str = "") -> list[str]:
        """Replace containers, and wait until their successors are acting."""
        before = {number: view.epoch for number, view in self._by_container().items()}
        self._handle(RestartAsked(tuple(containers), f"{who(by)} requested it", force))
        limit_s = wait_s or self._limit_s
        until = time.monotonic() + limit_s

        def done() -> bool:
            now = self._by_container()
            return all(
                number not in now or (now[number].epoch > before[number] and now[number].phase is Phase.RUNNING)
                for number in containers
            )

        if not await wait_until(done, self._change, lambda: until):
            where = standing(self._views(), containers)
            raise DeadlineError(f"containers did not restart in {limit_s:g} s: {where or 'they are being replaced'}")
        return [executor_id(number) for number in containers]

    async def renew(self, number: int, known: Callable[[], bool], wait_s: float, by: str = "") -> None:
        """Once `known()` is true, replace a container with one of another size, which first stands by."""
        until = time.monotonic() + (wait_s or self._limit_s)
        why = "the scheduler has not seen the new size"
        if await wait_until(known, self._change, lambda: until):
            if number not in self._by_container():
                raise RpcError(f"there is no container {number}")
            why, _ = await self._replace(number, "", who(by), lambda: until)
        if why:
            raise RpcError(f"no container of the new size took over within {wait_s or self._limit_s:.0f} s: {why}")

    async def drain(self, host: str, wait_s: float, by: str = "") -> list[int]:
        """Avoid a host and move its containers away, one after another; returns the numbers of the moved containers.

        Two requests for the same host share one drain, with the longer time limit.
        """
        until = time.monotonic() + (wait_s or self._limit_s)
        running = self._drains.get(host)
        if running is None or running.done():
            self._until[host] = until
            running = self._begin(host, self._drain(host, who(by)))
        self._until[host] = max(self._until[host], until)
        return await asyncio.shield(running)

    def _begin(self, host: str, work: Coroutine[Any, Any, list[int]]) -> asyncio.Task[list[int]]:
        running = self._drains[host] = asyncio.create_task(work)
        running.add_done_callback(lambda done: self._forget(host, done))
        return running

    def resume(self, drains: Mapping[str, str], listed: Callable[[], bool]) -> None:
        """Continue drains (map from host to user) once `listed` is true: the hosts of all containers are then known."""
        for host, by in drains.items():
            log.info("the drain of host %s, which %s requested, continues", host, by)
            self._until[host] = time.monotonic() + self._limit_s
            self._begin(host, self._carry_on(host, by, listed))

    async def _carry_on(self, host: str, by: str, listed: Callable[[], bool]) -> list[int]:
        # Also wait while the engine does not answer: without its list, the containers on the host are unknown.
        await wait_until(listed, self._change, lambda: time.monotonic() + LISTED_S)
        self._until[host] = max(self._until[host], time.monotonic() + self._limit_s)
        try:
            return await self._drain(host, by)
        except HeronError as error:
            log.warning("%s", error)
            raise

    def _forget(self, host: str, done: asyncio.Task[list[int]]) -> None:
        if self._drains.get(host) is done:
            del self._drains[host], self._until[host]
        if not done.cancelled():
            done.exception()  # the waiting callers have the exception

    async def _drain(self, host: str, by: str) -> list[int]:
        self._handle(DrainAsked(host, by))
        try:
            moved = await self._move_all(host, by)
        except HeronError:
            self._handle(DrainEnded(host, failed=True))
            raise
        self._handle(DrainEnded(host, failed=False))
        return moved

    async def _move_all(self, host: str, by: str) -> list[int]:
        moved: list[int] = []
        while True:
            there = [view.container for view in self._views() if view.host == host]
            if not there:
                return moved
            if there[0] in moved:
                raise RpcError(f"container {there[0]} is again on host {host}; {_rest(host, there[1:], moved)}")
            await self._move(there[0], host, by, there[1:], moved)
            moved.append(there[0])

    async def _move(self, number: int, host: str, by: str, later: Sequence[int], moved: Sequence[int]) -> None:
        began = time.monotonic()
        why, in_time = await self._replace(number, host, by, lambda: self._until[host])
        if not why:
            return
        what = f"container {number} cannot be moved away from host {host}"
        if in_time:
            raise RpcError(f"{what}: {why}; {_rest(host, later, moved)}")
        spent_s = time.monotonic() - began
        rest = _rest(host, later, moved)
        raise DeadlineError(f"{what} within {spent_s:.0f} s: {why}; {rest}, or give a longer --timeout")

    async def _replace(self, number: int, host: str, by: str, until: Callable[[], float]) -> tuple[str, bool]:
        """Replace a container; returns the reason if that fails (else ""), and whether the result was known in time."""
        first = self._by_container()[number]
        before, held = first.epoch, first.submission
        self._handle(MoveAsked(number, host, by))

        def over() -> bool:
            view = self._by_container().get(number)
            return view is None or bool(view.unmoved) or (view.epoch > before and view.phase is Phase.RUNNING)

        in_time = await wait_until(over, self._change, until)
        view = self._by_container().get(number)
        if view is None or (in_time and not view.unmoved):
            return "", True
        why = view.unmoved if in_time else self._why_late(view, held)
        self._handle(MoveEnded(number))
        return why, in_time

    def _why_late(self, view: ContainerView, held: int) -> str:
        """Why a container has not moved in time; `held` is its submission at the time of the request."""
        away = self._away()
        if view.submission == held:
            return f"the engine does not answer: {away}" if away else "it has no successor yet"
        return f"its successor is {view.phase.name}" + (f" ({view.words})" if view.words else "")


def _rest(host: str, later: Sequence[int], moved: Sequence[int]) -> str:
    """Describes the result of a drain: the moved containers, the remaining containers, and the host."""
    gone = f"{_names(moved)} has moved, " if len(moved) == 1 else f"{_names(moved)} have moved, " if moved else ""
    stays = "it stays there" if not later else f"it and {_names(later)} stay there"
    return f"{gone}{stays}, and host {host} may get containers again; free resources on another host"


def _names(containers: Sequence[int]) -> str:
    return ", ".join(f"container {number}" for number in containers)


def who(by: str) -> str:
    """The name of the user who sent a request, for events and logs."""
    return "".join(one if one.isprintable() else "?" for one in by[:BY_MAX_CHARS]) or "a user"
