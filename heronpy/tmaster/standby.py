"""A topology master that waits until it may take over.

A standby takes over when the location of the active master is gone (the master died, or its session expired), or when
the active master has not answered for `heron.tmaster.takeover_s` (it may be stopped). Taking over means a new, higher
epoch and a new version of every node that the old master may write: if the old master wakes up, its writes fail and it
exits as fenced. Losing the connection to the state manager is not a reason to take over. `FailureDetector` decides when
to take over, `Standby` sends the requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from heronpy.common.clock import Clock
from heronpy.common.errors import DeadlineError, FencedError, RpcError, StateError
from heronpy.net.curve import Keys
from heronpy.net.rpc_loop import ControlClient
from heronpy.proto import control_pb2, plan_pb2
from heronpy.tmaster.store import Store

log = logging.getLogger("heronpy.tmaster")

#: Interval in seconds at which the location is read, in case a notification was lost.
LOOK_AGAIN_S = 1.0
#: Minimum number of unanswered requests before a takeover, independent of their duration.
MISSED_MIN = 2


class FailureDetector:
    """Measures, on the caller's clock, how long the holder of the location has been silent."""

    def __init__(self, takeover_s: float) -> None:
        self._takeover_s = takeover_s
        self._holder = b""
        self._heard_at = 0.0
        self._looked_at: float | None = None
        self._missed = 0

    def look(self, holder: bytes, now: float) -> None:
        """Record the current holder. If this process was paused, earlier silence does not count."""
        paused = self._looked_at is not None and now - self._looked_at > self._takeover_s
        self._looked_at = now
        if holder != self._holder or paused:
            self._holder = holder
            self.answered(now)

    def answered(self, now: float) -> None:
        self._heard_at, self._missed = now, 0

    def missed(self) -> None:
        """Count a request that the holder did not answer."""
        self._missed += 1

    def overdue(self, now: float) -> bool:
        """Whether to take over from a silent holder whose location still exists."""
        return self._missed >= MISSED_MIN and now - self._heard_at >= self._takeover_s


class Standby:
    """`await wait(...)` returns True once this process holds the location with a new epoch."""

    def __init__(self, store: Store, takeover_s: float, clock: Clock, keys: Keys | None) -> None:
        self._store = store
        self._takeover_s = takeover_s
        self._clock = clock
        self._keys = keys
        self._detector = FailureDetector(takeover_s)
        self._client: ControlClient | None = None
        self._complaint = ""

    async def wait(self, claim: Callable[[bytes | None], bool], end: asyncio.Future[int]) -> bool:
        """Wait until `claim(silent holder)` succeeds; return False if `end` is done first."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def changed(_: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, because this process is ending
                loop.call_soon_threadsafe(woken.set)

        end.add_done_callback(lambda _: woken.set())
        watch = self._store.watch(changed)
        try:
            while not end.done():
                woken.clear()
                if await self.turn(claim):
                    return True
                if not end.done():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(min(LOOK_AGAIN_S, self._takeover_s / 4)):
                            await woken.wait()
            return False
        finally:
            watch.cancel()
            self._hang_up()

    async def turn(self, claim: Callable[[bytes | None], bool]) -> bool:
        try:
            holder = await asyncio.to_thread(self._store.holder)
            if holder is None or self._store.is_ours(holder):
                # This process wrote the location, but the state manager became unreachable during the takeover.
                return await asyncio.to_thread(claim, None)
            now = self._clock.now()
            self._detector.look(holder, now)
            if await self._answers(holder):
                self._detector.answered(self._clock.now())
                self._say("")
                return False
            self._detector.missed()
            if not self._detector.overdue(self._clock.now()):
                return False
            log.warning("the active topology master has not answered for %g s; taking over", self._takeover_s)
            return await asyncio.to_thread(claim, holder)
        except (StateError, FencedError, DeadlineError) as error:
            # Without the state manager, the active master is unknown. If another standby was faster, keep waiting.
            self._say(str(error))
            return False

    async def _answers(self, holder: bytes) -> bool:
        location = plan_pb2.TmasterLocation.FromString(holder)
        if self._client is None or self._client.endpoint != location.endpoint:
            self._hang_up()
            self._client = ControlClient(location.endpoint, lambda _: None, keys=self._keys)
        try:
            await self._client.call(control_pb2.Ok(text="ping"), self._takeover_s / 2)
        except RpcError:
            return True  # a refusal counts as an answer
        except DeadlineError:
            return False
        return True

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _say(self, text: str) -> None:
        """Log the text unless it equals the previous one."""
        if text and text != self._complaint:
            log.warning("waiting: %s", text)
        self._complaint = text
