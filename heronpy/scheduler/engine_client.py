"""Calls an engine, one call at a time: first commands, then lists, then the reasons why containers are waiting.

The results become events for placement. A failed list is requested again. A command that the engine did not accept is
dropped, because placement repeats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from heronpy.common.errors import FencedError, HeronError
from heronpy.engines.contract import (
    Engine,
    EngineAwayError,
    EngineError,
    EngineFatalError,
    EnginePhase,
    Explained,
    Request,
    Seen,
    alike,
)
from heronpy.scheduler.placement_events import Cancel, EngineAway, Event, Listed, Refused, Submit

log = logging.getLogger("heronpy.scheduler")

#: Interval between two requests for the reason why the same container is waiting.
EXPLAIN_EVERY_S = 10.0
#: Time after a command until a list may show its effect.
LOOK_SOON_S = 0.3
T = TypeVar("T")


class EngineCalls:
    """Runs calls to an engine in a separate thread, one at a time, so that a hanging engine blocks only further calls.

    `deadline_s` is longer than the engine's own deadlines, which normally end a call.

    A call that exceeds `deadline_s` raises EngineAwayError. The call's thread continues, and further calls raise the
    same error until the thread returns.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        #: When the current call began; None if no call is in progress.
        self._since: float | None = None
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    async def call(self, work: Callable[[], T]) -> T:
        """Make a call; returns its result or raises its error. Only one call may be in progress."""
        if self._since is not None:
            raise EngineAwayError(f"a call to the engine has hung for {time.monotonic() - self._since:.0f} s")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._since = time.monotonic()

        def done(result: Any, error: BaseException | None) -> None:
            self._since = None
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        def run() -> None:
            result, failure = None, None
            try:
                result = work()
            except BaseException as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
                loop.call_soon_threadsafe(done, result, failure)

        self._work.put(run)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(answer)
        except TimeoutError:
            answer.cancel()
            raise EngineAwayError(f"the engine has not answered within {self._deadline_s:g} s") from None

    def close(self) -> None:
        """Refuse further calls; a hanging call is not interrupted."""
        self._work.put(None)


class EngineClient:
    """Calls an engine for placement. `now` is placement's clock; `prove` proves the permit before each command."""

    def __init__(
        self,
        engine: Engine,
        poll_s: float,
        token: str,
        now: Callable[[], float],
        on_event: Callable[[Event], object],
        prove: Callable[[], Awaitable[None]],
        deadline_s: float,
    ) -> None:
        self._engine = engine
        self._poll_s = poll_s
        self._token = token
        self._now = now
        self._on_event = on_event
        self._prove = prove
        self._calls = EngineCalls(deadline_s)
        self._submits: dict[int, Submit] = {}
        self._cancels: dict[tuple[int, int], Cancel] = {}
        self._wake = asyncio.Event()
        self._look_at = float("-inf")
        self._listed_at = float("-inf")
        self._explained_at: dict[str, float] = {}
        #: Why containers wait, by engine id.
        self.explained: dict[str, Explained] = {}

    def put(self, command: Submit | Cancel) -> None:
        """Carry out a command as soon as the engine is free."""
        if isinstance(command, Submit):
            self._submits[command.request.container] = command
        else:
            self._cancels[command.container, command.submission] = command
        self._wake.set()

    def look(self) -> None:
        """Request a list soon, because the engine may have reported a change."""
        self._look_at = min(self._look_at, self._now())
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled, or until this scheduler is known to have lost its permit."""
        loop = asyncio.get_running_loop()
        with self._engine.watch(lambda: _soon(loop, self.look)):
            while True:
                await self._pause()
                try:
                    await self._act()
                except FencedError:
                    return
                except (HeronError, OSError) as error:  # the state manager is away, so placement repeats the command
                    log.debug("cannot send a command to the engine: %s", error)
                if self._now() >= self._look_at:
                    await self._list()

    async def _pause(self) -> None:
        # An engine without notifications calls `look` every `poll_s`; this line also covers missed notifications.
        self._look_at = min(self._look_at, self._listed_at + 2 * self._poll_s)
        # Limit the rate of requests to the engine, even if changes are frequent.
        self._look_at = max(self._look_at, self._listed_at + min(LOOK_SOON_S, self._poll_s))
        left = self._look_at - self._now()
        if left <= 0 or self._submits or self._cancels:
            return
        self._wake.clear()
        try:
            async with asyncio.timeout(left):
                await self._wake.wait()
        except TimeoutError:
            return

    # ---- commands ---------------------------------------------------------------------------
    async def _act(self) -> None:
        if not self._submits and not self._cancels:
            return
        submits, self._submits = self._submits, {}
        cancels, self._cancels = self._cancels, {}
        await self._prove()
        by_grace: dict[float, list[str]] = {}
        for one in cancels.values():
            by_grace.setdefault(one.grace_s, []).append(one.engine_id)
        for grace_s, ids in by_grace.items():
            try:
                await self._calls.call(lambda ids=ids, grace_s=grace_s: self._engine.cancel(ids, grace_s))  # type: ignore[misc]
            except EngineError as error:
                self._on_event(EngineAway(str(error)))
        for requests in alike(one.request for one in submits.values()):
            await self._submit([replace(one, token=self._token) for one in requests])
        self._look_at = self._now()

    async def _submit(self, requests: list[Request]) -> None:
        try:
            await self._calls.call(lambda: self._engine.submit(requests))
        except EngineError as error:
            fatal = isinstance(error, EngineFatalError)
            for one in requests:
                self._on_event(Refused(one.container, one.submission, str(error), fatal))

    # ---- lists ------------------------------------------------------------------------------
    async def _list(self) -> None:
        asked_at = self._listed_at = self._now()
        self._look_at = float("inf")
        try:
            seen = await self._calls.call(self._engine.list)
        except EngineError as error:
            self._on_event(EngineAway(str(error)))
            return
        self._on_event(Listed(tuple(seen), asked_at, await self._ready(seen)))
        await self._explain(seen)

    async def _ready(self, seen: Iterable[Seen]) -> frozenset[str]:
        """The hosts that queued containers avoid, but that accept containers again; empty if no container is queued."""
        avoided = {host for one in seen if one.waits for host in one.avoid}
        if not avoided:
            return frozenset()
        try:
            return frozenset(await self._calls.call(lambda: self._engine.ready(avoided)))
        except EngineError as error:
            log.debug("cannot find out which of the avoided hosts are ready: %s", error)
            return frozenset()

    async def _explain(self, seen: Iterable[Seen]) -> None:
        """Ask the engine why a container is queued: the container whose reason was updated least recently."""
        waiting = {one.engine_id for one in seen if one.phase is EnginePhase.QUEUED}
        self.explained = {name: words for name, words in self.explained.items() if name in waiting}
        self._explained_at = {name: at for name, at in self._explained_at.items() if name in waiting}
        oldest = min(sorted(waiting), key=lambda name: self._explained_at.get(name, float("-inf")), default=None)
        now = self._now()
        if oldest is None or now - self._explained_at.get(oldest, float("-inf")) < EXPLAIN_EVERY_S:
            return
        self._explained_at[oldest] = now
        try:
            self.explained[oldest] = await self._calls.call(lambda: self._engine.explain(oldest))
        except EngineAwayError as error:
            log.debug("cannot find out why %s is waiting: %s", oldest, error)
        except EngineError as error:
            self.explained[oldest] = Explained(str(error))

    def close(self) -> None:
        """Refuse further calls."""
        self._calls.close()


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
