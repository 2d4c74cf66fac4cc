"""Serves the state manager of the scheduler's host to the topology's containers on other hosts.

`state_records` and `state_rules` make the decisions. This module handles the requests, and calls the state manager in
threads. The number of open calls is bounded; further calls are refused with STATE_AWAY.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, suppress
from typing import Any, Final, NoReturn

from heronpy.common.errors import (
    DamagedStateError,
    DeadlineError,
    NodeExistsError,
    NoNodeError,
    NoSpaceError,
    RetryableError,
    RetryableRpcError,
    StateAwayError,
    StateError,
    VersionMismatchError,
)
from heronpy.proto import endpoint_pb2
from heronpy.scheduler.state_records import GoneError, SessionLimits, StateRecords, Step, Steps, SupersededError
from heronpy.scheduler.state_rules import LargeAnswers, Rules
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager, Watch

log = logging.getLogger("heronpy.scheduler")

#: Maximum number of open calls, of all sessions together.
CALLS_MAX: Final = 512
#: Maximum bytes of open requests, of all sessions together; a larger request is carried out alone.
BYTES_MAX: Final = 64 << 20
#: The calls that change the state, each of which is carried out only once.
_CHANGES: Final = frozenset(("put", "counter", "lock", "unlock"))
_THREADS: Final = 4

_ERRORS: Final[tuple[tuple[type[Exception], endpoint_pb2.StateError], ...]] = (
    (GoneError, endpoint_pb2.STATE_SESSION_GONE),
    (NodeExistsError, endpoint_pb2.STATE_NODE_EXISTS),
    (NoNodeError, endpoint_pb2.STATE_NO_NODE),
    (VersionMismatchError, endpoint_pb2.STATE_VERSION),
    (NoSpaceError, endpoint_pb2.STATE_NO_SPACE),
    (DamagedStateError, endpoint_pb2.STATE_DAMAGED),
    (DeadlineError, endpoint_pb2.STATE_DEADLINE),
    (RetryableError, endpoint_pb2.STATE_AWAY),
)

Send = Callable[[endpoint_pb2.StateChanged], object]


class StateEndpoint:
    """The state that is served to a topology's containers; create it on the loop that calls it.

    Call `tick` twice a second, and at least every `state_records.TICK_MAX_S`.
    """

    def __init__(
        self,
        state: StateManager,
        topology: str,
        now: Callable[[], float],
        rules: Rules | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        self._state = state
        self._now = now
        self._loop = asyncio.get_running_loop()
        owners = state.get(paths.ephemerals(topology)) or (b"", 0)
        self._records = StateRecords(now(), topology, secrets.token_hex(16), owners, rules, limits)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="state-endpoint")
        #: By session: the function that sends messages to it, and its latest change.
        self._senders: dict[int, Send] = {}
        self._latest: dict[int, asyncio.Task[endpoint_pb2.StateAnswer]] = {}
        self._under_way = self._bytes = 0
        self._large = LargeAnswers()
        #: Number of calls refused because too many calls were open, or too many answers waited for the sender.
        self.refused = 0
        self._watches: list[Watch] = []
        self._locks: dict[str, AbstractContextManager[None]] = {}
        #: Held by every call that is not a read.
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._refusal = ""

    # ---- calls from the endpoint ----------------------------------------------------------------
    def container_of(self, session: int) -> int | None:
        """The container that opened a session; None if the session does not exist or has ended."""
        return self._records.container_of(session)

    async def call(
        self, request: endpoint_pb2.StateCall, container: int, asked: int, send: Send
    ) -> endpoint_pb2.StateAnswer:
        """Carry out one call of a container's session and answer it; `send` is also used for all later answers.

        `asked` is the id of the request. Raises RetryableRpcError if the open requests have too many bytes, and
        StateError if the session is not open.
        """
        number, what = request.session, request.WhichOneof("what")
        if self._refusal:
            return _failed(endpoint_pb2.STATE_AWAY, self._refusal)
        if what == "open":
            self._records.open(self._now(), number, container, request.open.session_s, request.call)
        elif not self._records.heard(self._now(), number):
            return _failed(endpoint_pb2.STATE_SESSION_GONE, "the session at the scheduler's control endpoint has ended")
        self._senders[number] = send
        self._large.settle(number, request.awaits)
        if what in ("open", "keep"):
            # Most calls are heartbeats: each process sends one every few seconds, and it needs no call to the state
            # manager.
            return self._records.seen(number)
        size = request.ByteSize()
        if self._bytes and self._bytes + size > BYTES_MAX:
            self._refuse("too many bytes are in transit at the scheduler's control endpoint; try again")
        if what in _CHANGES:
            try:
                is_new = self._records.begin(number, request.call)
            except StateError as error:
                return _failed(endpoint_pb2.STATE_FAILED, str(error))
            task = self._latest[number] = self._start(request, size) if is_new else self._latest[number]
        else:
            task = self._start(request, size)
        # Shielded, because a call continues after its connection is lost: the sender will repeat the request.
        found = await asyncio.shield(task)
        if self.container_of(number) is None:
            self._forget(number)
        elif not self._large.take(number, asked, found.ByteSize()):
            self._refuse("too many large answers are waiting for this process; read them first")
        return found

    def _refuse(self, why: str) -> NoReturn:
        self.refused += 1
        if str(self.refused).rstrip("0") == "1":  # 1, 10, 100, ...
            log.warning("refused %d calls of containers so far: %s", self.refused, why)
        raise RetryableRpcError(f"{why}; try again")

    def tick(self, now: float) -> None:
        """End silent sessions, and remove their ephemerals and locks."""
        if self._refusal:
            return
        for number, container in self._records.tick(now):
            log.info("the session of a process of container %s has ended, because the process is silent", container)
            self._forget(number)
        if self._records.left() and not self._turn.locked():
            self._background(self._sweep())

    def _forget(self, number: int) -> None:
        self._large.end(number)
        self._senders.pop(number, None)
        self._latest.pop(number, None)

    def close(self) -> None:
        """Stop serving. Ephemerals are kept for the next scheduler; locks are released. Idempotent."""
        self._refusal = self._refusal or "the scheduler is ending"
        for task in self._tasks:
            task.cancel()
        for watch in self._watches:
            watch.cancel()
        for path in list(self._locks):
            self._act("unlock", path)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ---- calls ------------------------------------------------------------------------------
    def _start(self, request: endpoint_pb2.StateCall, size: int) -> asyncio.Task[endpoint_pb2.StateAnswer]:
        self._bytes += size
        return self._background(self._carry_out(request, size))

    def _background(self, work: Any) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _carry_out(self, request: endpoint_pb2.StateCall, size: int) -> endpoint_pb2.StateAnswer:
        self._under_way += 1
        try:
            if self._under_way > CALLS_MAX:
                raise StateAwayError(
                    f"the scheduler's control endpoint is handling {CALLS_MAX} calls and accepts no more"
                )
            steps = self._records.perform(request)
            if request.HasField("get"):
                return await self._drive(steps)
            async with self._turn:
                return await self._drive(steps)
        except (StateError, DeadlineError) as error:
            kind = next((value for kind, value in _ERRORS if isinstance(error, kind)), endpoint_pb2.STATE_FAILED)
            return _failed(kind, str(error))
        except OSError as error:
            return _failed(endpoint_pb2.STATE_FAILED, f"the state on the scheduler's host cannot be used: {error}")
        finally:
            self._under_way -= 1
            self._bytes -= size

    async def _sweep(self) -> None:
        """Remove ephemerals of ended sessions; if this fails, a later tick tries again."""
        try:
            async with self._turn:
                await self._drive(self._records.sweep())
        except (StateError, OSError) as error:
            log.warning("cannot remove the locations of ended processes yet: %s", error)

    async def _drive(self, steps: Steps) -> endpoint_pb2.StateAnswer:
        """Run all steps of a call in threads, because each step may wait for a disk."""
        with closing(steps):
            try:
                step = next(steps)
                while True:
                    try:
                        result = await self._step(step)
                    except Exception as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(result)
            except StopIteration as end:
                answer: endpoint_pb2.StateAnswer = end.value
                return answer
            except SupersededError as error:
                self._refusal = str(error)
                log.error("%s: this scheduler no longer serves it", error)
                raise

    async def _step(self, step: Step) -> Any:
        try:
            return await self._loop.run_in_executor(self._threads, self._act, step.what, *step.arguments)
        except RuntimeError:
            if not self._refusal:
                raise
            raise StateAwayError(self._refusal) from None

    def _act(self, what: str, path: str, *more: Any) -> Any:
        if what == "watch":
            self._watches.append(self._state.watch(path, self._on_change))
        elif what == "lock":
            held = self._state.lock(path, 0)
            held.__enter__()
            self._locks[path] = held
        elif what == "unlock":
            with suppress(StateError):
                self._locks.pop(path).__exit__(None, None, None)
        else:
            return getattr(self._state, what)(path, *more)
        return None

    # ---- watches ----------------------------------------------------------------------------
    def _on_change(self, path: str) -> None:
        with suppress(RuntimeError):  # the loop is closed, because the scheduler has ended
            self._loop.call_soon_threadsafe(self._tell, path)

    def _tell(self, path: str) -> None:
        for number, count in self._records.changed(path):
            self._senders[number](endpoint_pb2.StateChanged(session=number, path=path, count=count))


def _failed(kind: endpoint_pb2.StateError, text: str) -> endpoint_pb2.StateAnswer:
    return endpoint_pb2.StateAnswer(error=kind, text=text)
