"""Serves the state manager of the scheduler's host to the topology's containers on other hosts.

The decisions are in `state_sessions` and `state_rules`; here are the state manager, whose calls run in threads, and the
requests. Nothing waits without an end: calls under way are bounded, and beyond the bound refused with STATE_AWAY.

The record of the ephemerals is written at the version that this door has read or written last: once another scheduler
has written it, this one serves nothing any more. It names the door that wrote it: after a write whose end is unknown,
as when the disk failed, this door knows its own record again and goes on; nobody was told that it was written.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from heronpy.common.clock import Clock
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
from heronpy.proto import door_pb2
from heronpy.scheduler.state_rules import CLIENT, ClientRules, ContainerRules, LargeAnswers, Rules, Use
from heronpy.scheduler.state_sessions import SessionLimits, StateSessions, Verdict, writer_of
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager, Watch

log = logging.getLogger("heronpy.scheduler")

#: Leaves room in a control message for the rest of it.
VALUE_MAX_BYTES: Final = 15 << 20
#: A larger value does not come with the answer to a watch.
WATCHED_MAX_BYTES: Final = 256 << 10
#: Of all sessions, those that wait for a lock included.
CALLS_MAX: Final = 512
LOCK_MAX_S: Final = 3600.0
#: Sessions that one takes over at a time, the latest ones.
EARLIER_MAX: Final = 16
#: Of requests that are being carried out, of all sessions; a larger one is carried out alone.
BYTES_MAX: Final = 64 << 20
PATH_MAX_CHARS: Final = 1024
#: What is carried out once, so that its answer is kept until the client has it. All else may be asked again.
_ONCE: Final = frozenset(("set", "create", "delete", "counter", "watch", "unwatch", "lock", "unlock"))
_LOCK_LOOK_S: Final = 0.02
_THREADS: Final = 4

T = TypeVar("T")


class _GoneError(StateError):
    """The session that asked has ended."""


_ERRORS: Final[tuple[tuple[type[Exception], door_pb2.StateError], ...]] = (
    (_GoneError, door_pb2.STATE_SESSION_GONE),
    (NodeExistsError, door_pb2.STATE_NODE_EXISTS),
    (NoNodeError, door_pb2.STATE_NO_NODE),
    (VersionMismatchError, door_pb2.STATE_VERSION),
    (NoSpaceError, door_pb2.STATE_NO_SPACE),
    (DamagedStateError, door_pb2.STATE_DAMAGED),
    (DeadlineError, door_pb2.STATE_DEADLINE),
    (RetryableError, door_pb2.STATE_AWAY),
)

Send = Callable[[door_pb2.StateChanged], object]


class StateDoor:
    """Make it on the loop that calls it. `tick` it at least each `state_sessions.TICK_MAX_S`, better twice a second."""

    def __init__(
        self,
        state: StateManager,
        topology: str,
        clock: Clock,
        rules: Rules | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        self._state = state
        self._clock = clock
        self._topology = topology
        self._rules = rules or ContainerRules(topology)
        self._client_rules = ClientRules(topology)
        self._loop = asyncio.get_running_loop()
        self._record = paths.ephemerals(topology)
        record, self._version = state.get(self._record) or (b"", 0)
        #: By which this door knows what it has written.
        self._name = secrets.token_hex(16)
        self._sessions = StateSessions(clock.now(), record, limits or SessionLimits())
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="state-door")
        #: By session: how to reach it, and its calls under way.
        self._senders: dict[int, Send] = {}
        self._running: dict[tuple[int, int], asyncio.Task[door_pb2.StateAnswer]] = {}
        self._under_way = self._bytes = 0
        self._large = LargeAnswers()
        #: Calls that were refused because too much is under way, or waits for who asked.
        self.refused = 0
        self._watches: dict[str, Watch] = {}
        self._locks: dict[str, AbstractContextManager[None]] = {}
        #: The owners of nodes change one at a time, and so do the watches.
        self._owning = asyncio.Lock()
        self._watching = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._refusal = ""

    # ---- what the door calls ----------------------------------------------------------------
    def open(self, member_container: int, session_s: float) -> int:
        """Begin a session of a container; StateError when that is not possible."""
        self._check_open()
        number = secrets.randbits(63) | 1
        self._sessions.open(self._clock.now(), number, member_container, session_s)
        return number

    def container_of(self, session: int) -> int | None:
        """Which container opened a session; None when it does not exist (any more)."""
        return self._sessions.container_of(session)

    async def call(self, request: door_pb2.StateCall, asked: int, send: Send) -> door_pb2.StateAnswer:
        """Carry out one call of a session, and answer it; `send` reaches the session from now on.

        `asked`: the id of the request. RetryableRpcError when too many bytes are under way.
        """
        number = request.session
        if self._refusal:
            return _failed(door_pb2.STATE_AWAY, self._refusal)
        if not self._sessions.heard(self._clock.now(), number):
            return _failed(door_pb2.STATE_SESSION_GONE, "the session at the scheduler's door has ended")
        self._senders[number] = send
        self._large.settle(number, request.awaits)
        if request.HasField("keep"):
            # Most calls are this one: each process says it every few seconds, and nothing has to be asked for it.
            return self._kept(number)
        size = request.ByteSize()
        if self._bytes and self._bytes + size > BYTES_MAX:
            self._refuse("too many bytes are under way at the scheduler's door")
        if request.WhichOneof("what") not in _ONCE:
            request.call = 0
        if request.call:
            verdict = self._sessions.begin(number, request.call, request.settled)
            if verdict is Verdict.REPEAT:
                answer: door_pb2.StateAnswer = self._sessions.answer_to(number, request.call)
                return answer
            if verdict is Verdict.WAIT:
                return await asyncio.shield(self._running[number, request.call])
            if verdict is Verdict.SETTLED:
                return _failed(door_pb2.STATE_FAILED, f"call {request.call} was settled before")
            if verdict is Verdict.TOO_MANY:
                return _failed(door_pb2.STATE_AWAY, "a process has too many calls under way at the scheduler's door")
        # Shielded: a call goes on when the connection that asked is gone, because it will be asked for again.
        self._bytes += size
        task = self._loop.create_task(self._carry_out(request, size))
        if request.call:
            self._running[number, request.call] = task
        found = await asyncio.shield(task)
        if self._sessions.container_of(number) is not None and not self._large.take(number, asked, found.ByteSize()):
            self._refuse("too many large answers wait for this process; read them first")
        return found

    def _refuse(self, why: str) -> NoReturn:
        self.refused += 1
        if str(self.refused).rstrip("0") == "1":  # 1, 10, 100, ...
            log.warning("refused %d calls of containers so far: %s", self.refused, why)
        raise RetryableRpcError(f"{why}; ask again")

    def tick(self, now: float) -> None:
        """End the sessions that were silent, and remove what they leave."""
        if self._refusal:
            return
        for number in self._sessions.tick(now):
            log.info("a process of container %s is silent: its session has ended", self._sessions.container_of(number))
            self._end(number)
        if self._sessions.orphans() and not self._owning.locked():
            self._in_background(self._sweep())

    def close(self) -> None:
        """Serve nothing any more. Ephemerals stay for the next scheduler; locks end. Idempotent."""
        self._refusal = self._refusal or "the scheduler is ending"
        for task in (*self._running.values(), *self._background):
            task.cancel()
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        for held in self._locks.values():
            with suppress(StateError):
                held.__exit__(None, None, None)
        self._locks.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ---- calls ------------------------------------------------------------------------------
    async def _carry_out(self, request: door_pb2.StateCall, size: int) -> door_pb2.StateAnswer:
        self._under_way += 1
        try:
            if self._under_way > CALLS_MAX:
                raise StateAwayError(f"the scheduler's door has {CALLS_MAX} calls under way, and takes no more")
            answer = await self._perform(request.session, request)
        except (StateError, DeadlineError) as error:
            kind = next((value for kind, value in _ERRORS if isinstance(error, kind)), door_pb2.STATE_FAILED)
            answer = _failed(kind, str(error))
        except OSError as error:
            answer = _failed(door_pb2.STATE_FAILED, f"the state of the scheduler's host cannot be used: {error}")
        finally:
            self._under_way -= 1
            self._bytes -= size
            self._running.pop((request.session, request.call), None)
        if request.call:
            # Whoever asks again for a watch reads the value by itself.
            kept = door_pb2.StateAnswer() if answer.found else answer
            self._sessions.finish(request.session, request.call, kept)
        return answer

    def _kept(self, number: int) -> door_pb2.StateAnswer:
        seen = self._sessions.seen(number).items()
        return door_pb2.StateAnswer(seen=[door_pb2.StateSeen(path=path, count=count) for path, count in seen])

    async def _perform(self, number: int, request: door_pb2.StateCall) -> door_pb2.StateAnswer:
        self._check_session(number)
        what = request.WhichOneof("what")
        if what == "get":
            self._check(number, Use.READ, request.get)
            return self._found(request.get, await self._run(self._state.get, request.get))
        if what == "children":
            self._check(number, Use.LIST, request.children)
            return door_pb2.StateAnswer(names=await self._run(self._state.children, request.children))
        if what == "set":
            return await self._set(number, request.set)
        if what == "create":
            return await self._create(number, request.create)
        if what == "delete":
            return await self._delete(number, request.delete)
        if what == "counter":
            self._check(number, Use.COUNT, request.counter)
            return door_pb2.StateAnswer(number=await self._run(self._state.counter, request.counter))
        if what == "watch":
            return await self._watch(number, request.watch)
        if what == "unwatch":
            self._sessions.unwatch(number, request.unwatch)
            await self._drop_watches()
            return door_pb2.StateAnswer()
        if what == "lock":
            return await self._lock(number, request.lock.path, request.lock.timeout_s)
        if what == "unlock":
            if self._sessions.unlock(number, request.unlock):
                await self._run(self._release, request.unlock)
            return door_pb2.StateAnswer()
        if what == "take_over":
            return await self._take_over(number, request.take_over.sessions[-EARLIER_MAX:])
        if what == "close":
            self._end(number)
            await self._sweep()
            return door_pb2.StateAnswer()
        raise StateError("the scheduler's door does not know this call; is the container of another release?")

    async def _set(self, number: int, request: door_pb2.StateSet) -> door_pb2.StateAnswer:
        self._check(number, Use.WRITE, request.path)
        version = request.version if request.versioned else None
        return door_pb2.StateAnswer(number=await self._run(self._state.set, request.path, request.data, version))

    async def _create(self, number: int, request: door_pb2.StateCreate) -> door_pb2.StateAnswer:
        path = request.path
        self._check(number, Use.EPHEMERAL if request.ephemeral else Use.WRITE, path)
        if not request.ephemeral:
            await self._run(self._state.create, path, request.data)
            return door_pb2.StateAnswer()
        async with self._owning:
            await self._remove_orphans()
            if await self._run(self._state.exists, path):
                raise NodeExistsError(f"state node {path!r} exists already")
            self._check_session(number)
            self._sessions.own(path, number)
            try:
                await self._save()
                await self._run(self._state.create, path, request.data)
            except NodeExistsError:  # somebody on the scheduler's host was faster
                self._sessions.disown(path)
                await self._save()
                raise
        return door_pb2.StateAnswer()

    async def _delete(self, number: int, request: door_pb2.StateDelete) -> door_pb2.StateAnswer:
        self._check(number, Use.WRITE, request.path)
        version = request.version if request.versioned else None
        async with self._owning:
            await self._run(self._state.delete, request.path, version)
            if self._sessions.owner_of(request.path) is not None:
                self._sessions.disown(request.path)
                await self._save()
        return door_pb2.StateAnswer()

    async def _take_over(self, number: int, earlier: Iterable[int]) -> door_pb2.StateAnswer:
        async with self._owning:
            self._check_session(number)
            taken = [path for one in earlier for path in self._sessions.take_over(number, one)]
            for path in taken:
                if not await self._run(self._state.exists, path):
                    self._sessions.disown(path)  # its scheduler ended before it was made
            if taken:
                await self._save()
            return door_pb2.StateAnswer(names=self._sessions.owned_by(number))

    async def _watch(self, number: int, path: str) -> door_pb2.StateAnswer:
        self._check(number, Use.READ, path)
        async with self._watching:
            self._check_session(number)
            self._sessions.watch(number, path)
            if path not in self._watches:
                try:
                    self._watches[path] = await self._run(self._state.watch, path, self._on_change)
                except (StateError, OSError):
                    self._sessions.unwatch(number, path)
                    raise
        # Whoever watches a node reads it as well, so that saves a request.
        found = await self._run(self._state.get, path)
        if found is not None and len(found[0]) > WATCHED_MAX_BYTES:
            return door_pb2.StateAnswer()
        answer = self._found(path, found)
        answer.seen.add(path=path)
        return answer

    async def _lock(self, number: int, path: str, timeout_s: float) -> door_pb2.StateAnswer:
        self._check(number, Use.LOCK, path)
        if not (math.isfinite(timeout_s) and 0 <= timeout_s <= LOCK_MAX_S):
            raise StateError(f"a lock is waited for {LOCK_MAX_S:g} s at most, not {timeout_s:g} s")
        deadline = self._clock.now() + timeout_s
        while True:
            if path not in self._locks:
                held = self._state.lock(path, 0)
                try:
                    await self._run(held.__enter__)
                except DeadlineError:
                    pass
                else:
                    try:
                        self._sessions.lock(number, path)
                    except StateError:
                        await self._run(held.__exit__, None, None, None)
                        raise
                    self._locks[path] = held
                    return door_pb2.StateAnswer()
            self._check_session(number)
            if self._clock.now() >= deadline:
                raise DeadlineError(f"lock {path!r} is still held by another after {timeout_s:g} s")
            await asyncio.sleep(_LOCK_LOOK_S)

    # ---- sessions and their nodes -----------------------------------------------------------
    def _end(self, number: int) -> None:
        """End a session: its locks at once, its nodes with the next `_sweep`."""
        locks, watched = self._sessions.end(number)
        self._large.end(number)
        self._senders.pop(number, None)
        for path in locks:
            self._threads.submit(self._release, path)
        if watched:
            self._in_background(self._drop_watches())

    def _release(self, path: str) -> None:
        held = self._locks.pop(path, None)
        if held is not None:
            with suppress(StateError):
                held.__exit__(None, None, None)

    async def _sweep(self) -> None:
        """Remove the nodes whose sessions have ended; what fails is tried again at a later tick."""
        try:
            async with self._owning:
                await self._remove_orphans()
        except (StateError, OSError) as error:
            log.warning("cannot remove the locations of ended processes yet: %s", error)

    async def _remove_orphans(self) -> None:
        orphans = self._sessions.orphans()
        for path in orphans:
            with suppress(NoNodeError):
                await self._run(self._state.delete, path)
            self._sessions.disown(path)
        if orphans:
            await self._save()

    async def _save(self) -> None:
        """Write the record; call it with `_owning` held."""
        record = self._sessions.record(self._name)
        try:
            self._version = await self._run(self._state.set, self._record, record, self._version)
        except (VersionMismatchError, NoNodeError):
            found = await self._run(self._state.get, self._record)
            if found is None or writer_of(found[0]) != self._name:
                self._refusal = (
                    f"another scheduler of topology {self._topology!r} serves its state now, or it was killed"
                )
                log.error("%s: this one serves it no more", self._refusal)
                raise StateAwayError(self._refusal) from None
            # An earlier write of ours was done although it failed.
            self._version = await self._run(self._state.set, self._record, record, found[1])

    # ---- watches ----------------------------------------------------------------------------
    def _on_change(self, path: str) -> None:
        with suppress(RuntimeError):  # the loop is closed: the scheduler has ended
            self._loop.call_soon_threadsafe(self._tell, path)

    def _tell(self, path: str) -> None:
        for number, count in self._sessions.changed(path):
            send = self._senders.get(number)
            if send is not None:
                send(door_pb2.StateChanged(session=number, path=path, count=count))

    async def _drop_watches(self) -> None:
        async with self._watching:
            for path in [path for path in self._watches if not self._sessions.is_watched(path)]:
                await self._run(self._watches.pop(path).cancel)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # ---- help -------------------------------------------------------------------------------
    def _check_open(self) -> None:
        if self._refusal:
            raise StateAwayError(self._refusal)

    def _check_session(self, number: int) -> None:
        if self._sessions.container_of(number) is None:
            raise _GoneError("the session at the scheduler's door has ended")

    def _check(self, number: int, use: Use, path: str) -> None:
        if len(path) > PATH_MAX_CHARS:
            raise StateError(f"the path of a state node has {PATH_MAX_CHARS} letters at most, not {len(path)}")
        container = self._sessions.container_of(number)
        if container is None:
            raise _GoneError("the session at the scheduler's door has ended")
        rules = self._client_rules if container == CLIENT else self._rules
        refusal = rules.refusal(use, path, container)
        if refusal:
            raise StateError(refusal)

    def _found(self, path: str, found: tuple[bytes, int] | None) -> door_pb2.StateAnswer:
        if found is None:
            return door_pb2.StateAnswer()
        if len(found[0]) > VALUE_MAX_BYTES:
            raise StateError(f"state node {path!r} has more than {VALUE_MAX_BYTES} bytes, too many for another host")
        return door_pb2.StateAnswer(found=True, data=found[0], number=found[1])

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a call of the state manager, which may wait for a disk, in a thread."""
        try:
            return await self._loop.run_in_executor(self._threads, partial(function, *arguments))
        except RuntimeError:
            if not self._refusal:
                raise
            raise StateAwayError(self._refusal or "the scheduler is ending") from None


def _failed(kind: door_pb2.StateError, text: str) -> door_pb2.StateAnswer:
    return door_pb2.StateAnswer(error=kind, text=text)
