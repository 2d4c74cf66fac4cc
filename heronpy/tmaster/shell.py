"""The I/O of the topology master: sockets, state manager, timer.

Every message becomes an event; effects are performed in the order in which the machine decides on them.
Writes to the state manager run in a thread; later effects wait for them, so no process
receives a plan that is not stored, while heartbeats are still handled.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message
from msgspec import Struct

from heronpy.common.backoff import Backoff
from heronpy.common.clock import MonotonicClock
from heronpy.common.disk_space import full_folder
from heronpy.common.errors import (
    DamagedStateError,
    FencedError,
    HeronError,
    InvalidRpcError,
    RetryableRpcError,
    StateError,
)
from heronpy.common.exit_codes import FAILURE, FENCED, FINISHED, OK, STARTUP_FAILURE
from heronpy.common.host import clock_id
from heronpy.common.setting_types import CheckpointSettings, InstanceSettings, TmasterSettings
from heronpy.net.answers import packed
from heronpy.net.curve import Keys
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.net.transport import authenticator_of
from heronpy.proto import control_pb2
from heronpy.statemgr.base import StateManager, Watch
from heronpy.tmaster import events
from heronpy.tmaster.archive import Archive
from heronpy.tmaster.events import Effect, Node, Note, Persist, Prune, Reply, Send, WriteMetadata
from heronpy.tmaster.last_answers import LastAnswers
from heronpy.tmaster.machine import TopologyMaster
from heronpy.tmaster.observatory import Observatory
from heronpy.tmaster.recorder import Recorder
from heronpy.tmaster.standby import Standby
from heronpy.tmaster.store import Store, TopologyRemovedError
from heronpy.tmaster.traces import LEASE_MAX_S, RATE_MAX

if TYPE_CHECKING:
    from heronpy.net.authenticator import Authenticator

log = logging.getLogger("heronpy.tmaster")

_NO_STORE = events.Failed("this topology master has no checkpoint store")

CLAIM_RETRY_S = 0.05
STOP_TIMEOUT_S = 2.0
LAST_ANSWERS_MS = 200
#: Maximum seconds that an answer waits for the start of the topology.
STARTING_MAX_S = 10.0

#: A struct is read-only and is sent as an `Answer`.
Answer = Message | Struct | None | Awaitable[Message | None]


class Shell:
    """One topology master; `await run()` until it stops, then use its exit code."""

    def __init__(
        self,
        topology: str,
        settings: TmasterSettings,
        state: StateManager,
        *,
        epoch: int | None = None,
        endpoint: str,
        keys: Keys | None = None,
        checkpoints: CheckpointSettings | None = None,
        archive: Archive | None = None,
        folders: tuple[str, ...] = (),
        instance: Callable[[str], InstanceSettings] = lambda component: InstanceSettings(),
        process: str = "tmaster",
        topology_id: str = "",
    ) -> None:
        self._process = process
        self._topology_id = topology_id
        #: Function from a component to the settings of its tasks.
        self._instance = instance
        #: Folders that the topology writes to, in which an update needs free space.
        self._folders = folders
        self._checkpoints = checkpoints
        self._archive = archive
        self._endpoint = endpoint
        self._keys = keys
        self._name = topology
        self._settings = settings
        self._clock = MonotonicClock()
        # If the topology has several masters, each master gets its epoch when it becomes active.
        self._store = Store(state, topology, 0 if settings.standbys else epoch)
        self.machine: TopologyMaster | None = None
        self._server: ControlServer | None = None
        self._authenticator: Authenticator | None = None
        self._exit: asyncio.Future[int] | None = None
        self._outbox: deque[Effect] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._recorder: Recorder | None = None
        self._answers: LastAnswers | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tokens = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Message | None]] = {}
        #: Set when the topology has started or failed to start, or when this master stops.
        self._started = asyncio.Event()
        self.observatory: Observatory | None = None
        self._handlers: dict[str, Callable[[bytes, Any], Answer]] = {
            "register_stmgr": lambda peer, body: self._register(events.StmgrRegistered, peer, body),
            "stmgr_heartbeat": lambda peer, body: self._feed(events.StmgrBeat(peer, body)),
            "register_executor": lambda peer, body: self._register(events.ExecutorRegistered, peer, body),
            "executor_heartbeat": self._on_executor_beat,
            "get_clock": lambda peer, body: control_pb2.ClockReply(at=time.monotonic_ns(), clock=clock_id()),
            "metrics_batch": self._on_metrics,
            "get_status": self._on_get_status,
            "set_state": lambda peer, body: self._request(events.StateRequested, body.active, body.end_input),
            "restart_target": lambda peer, body: self._request(
                events.RestartRequested, body.container, body.task_id, body.component, tuple(body.moved)
            ),
            "update_topology": self._on_update,
            "runtime_config": lambda peer, body: self._request(events.ConfigRequested, tuple(body.settings)),
            "get_metrics": self._on_get_metrics,
            "get_load": lambda peer, body: self._observed().load(body, self._clock.now()),
            "get_timeline": lambda peer, body: self._observed().timeline(body),
            "get_exceptions": self._on_get_exceptions,
            "get_traces": self._on_get_traces,
            "get_slow": lambda peer, body: self._observed().tasks.slow(body),
            "get_hot_spots": lambda peer, body: self._observed().hot_spots(body, self._clock.now()),
            "get_events": lambda peer, body: self._running().shared.event_log.after(body.after, body.limit),
            "task_checkpoint": lambda peer, body: self._taken(events.TaskAnswered(body)),
            "restore_failed": lambda peer, body: self._taken(events.RestoreFailed(body)),
            "data_lost": lambda peer, body: self._taken(events.DataLost(body)),
            "take_checkpoint": lambda peer, body: self._request(events.CheckpointRequested, body.savepoint),
            "restore_checkpoint": lambda peer, body: self._request(events.RewindRequested, body.checkpoint),
            "delete_checkpoints": lambda peer, body: self._request(events.DeleteRequested, tuple(body.checkpoints)),
            "get_checkpoints": lambda peer, body: self._running().checkpoints_reply(self._clock.now()),
            "ok": lambda peer, body: control_pb2.Ok(),  # a standby checks whether this master is alive
        }

    # ---- life -------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run the topology master; return the exit code of the process."""
        self._exit = asyncio.get_running_loop().create_future()
        self._server = ControlServer([self._endpoint], self._on_request, keys=self._keys)
        self._authenticator = authenticator_of(self._keys)
        if self._authenticator is not None:
            self._authenticator.watch(self._server.sock)
        watch = None
        try:
            await self._claim(self._server.endpoints[0])
            watch = self._watch_location()
            self._begin()
            return await self._exit
        except FencedError as error:
            log.error("%s", error)
            return int(FENCED)
        except DamagedStateError as error:
            log.error("%s", error)
            return int(STARTUP_FAILURE)
        except HeronError as error:
            log.error("%s", error)
            return int(FAILURE)
        finally:
            if watch is not None:
                watch.cancel()
            await self._close()

    def stop(self, code: int = OK) -> None:
        """End `run` with this exit code; later calls are ignored."""
        if self._exit is not None and not self._exit.done():
            self._exit.set_result(int(code))

    async def _claim(self, endpoint: str) -> None:
        assert self._exit is not None
        if self._settings.standbys:
            await self._stand_by(endpoint)
            return
        deadline = self._clock.now() + self._settings.start_timeout_s
        while holder := self._store.claim(endpoint, os.getpid(), socket.gethostname()):
            if self._clock.now() >= deadline:
                who = f"pid {holder.pid} with epoch {holder.epoch}"
                raise StateError(f"another topology master of {self._name} is still alive ({who}); stop it")
            if (await asyncio.wait([self._exit], timeout=CLAIM_RETRY_S))[0]:
                return
        log.info("topology master of %s with epoch %d at %s", self._name, self._store.epoch, endpoint)

    async def _stand_by(self, endpoint: str) -> None:
        """Wait until this process becomes the topology's leading master."""
        assert self._exit is not None
        log.info("standing by for the topology master of %s", self._name)
        standby = Standby(self._store, self._settings.takeover_s, self._clock, self._keys)
        pid, host = os.getpid(), socket.gethostname()
        if await standby.wait(lambda silent: self._store.take_over(silent, endpoint, pid, host), self._exit):
            self._store.outdate()
            log.info("topology master of %s with epoch %d at %s", self._name, self._store.epoch, endpoint)

    def _begin(self) -> None:
        if self._exit is None or self._exit.done():
            return
        loaded = self._store.load()
        wall_offset_s = time.time() - self._clock.now()
        self.machine = TopologyMaster(
            self._settings,
            self._store.epoch,
            topology=loaded.topology,
            packing=loaded.packing,
            previous=loaded.previous,
            intent=loaded.intent,
            checkpoints=self._checkpoints,
            log=loaded.checkpoints,
            totals=loaded.totals,
            happened=loaded.happened,
            submitted=loaded.submitted,
            wall_offset_s=wall_offset_s,
            process=self._process,
        )
        observatory = Observatory(
            self.machine,
            self._settings,
            wall_offset_s,
            resumed=loaded.previous is not None,
            instance=self._instance,
            checkpoint_every_s=self._checkpoints.interval_s if self._checkpoints is not None else None,
        )
        minutes = observatory.figures.minutes
        minutes.take_over(loaded.minutes, loaded.topology.id)
        self.observatory = observatory
        observatory.metrics.take_over(loaded.counts, loaded.topology.id, self._clock.now())
        self._answers = LastAnswers(self.machine, observatory)
        shared, now = self.machine.shared, self._clock.now
        self._recorder = Recorder(self._store, shared, minutes, observatory.metrics, self._answers, now)
        self._perform(self.machine.begin(self._clock.now()))
        observatory.place(self._clock.now())

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._recorder is not None:
            await self._recorder.close()
        if self._writer is not None:
            # A write in progress ends soon, but a write that keeps failing does not.
            _, pending = await asyncio.wait([self._writer], timeout=STOP_TIMEOUT_S)
            for task in pending:
                task.cancel()
        if self._archive is not None:
            self._archive.close()
        self._store.release()
        self._started.set()
        for waiter in list(self._waiting.values()):
            if not waiter.done():
                waiter.set_exception(self._stopping())
        # Give the socket time to send the refusals before it closes.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if self._authenticator is not None:
            self._authenticator.close()
        if self._server is not None:
            self._server.close(LAST_ANSWERS_MS)

    def _stopping(self) -> RetryableRpcError:
        return RetryableRpcError(f"the topology master of {self._name} is stopping; try again")

    @property
    def epoch(self) -> int:
        """The epoch of this process; 0 while it is a standby."""
        return self._store.epoch

    def _watch_location(self) -> Watch:
        loop = asyncio.get_running_loop()

        def changed(_: str) -> None:
            loop.call_soon_threadsafe(self._check_location)

        return self._store.watch(changed)

    def _check_location(self) -> None:
        if self._exit is None or self._exit.done():
            return
        try:
            self._store.reclaim()
        except FencedError as error:
            log.error("%s", error)
            self.stop(FENCED)
        except StateError as error:
            log.warning("cannot check the location of the topology master: %s", error)

    # ---- events in --------------------------------------------------------------------------

    def _running(self) -> TopologyMaster:
        if self.machine is None:
            raise RetryableRpcError(f"the topology master of {self._name} is starting; try again")
        return self.machine

    def _on_request(self, peer: bytes, envelope: control_pb2.Envelope) -> Message | Awaitable[Message | None] | None:
        if envelope.topology_id not in ("", self._topology_id):
            raise InvalidRpcError(
                f"this is the topology master of {self._topology_id}, not of {envelope.topology_id[:200]!r}; the"
                " request was ignored"
            )
        field, body = body_of(envelope)
        handler = self._handlers.get(field)
        if handler is None:
            raise InvalidRpcError(f"the topology master does not answer {field}")
        if self._exit is not None and self._exit.done():
            # This process has announced its stop, so work that begins now would not be finished.
            raise self._stopping()
        self._running()
        answer = handler(peer, body)
        return packed(answer) if isinstance(answer, Struct) else answer

    def _feed(self, event: events.Event) -> None:
        machine = self._running()
        self._perform(machine.handle(event, self._clock.now()))

    def _on_executor_beat(self, peer: bytes, body: control_pb2.ExecutorHeartbeat) -> None:
        if body.HasField("clock"):
            self._observed().clocks.take(body.clock, time.monotonic_ns())
        self._feed(events.ExecutorBeat(peer, body))

    def _taken(self, event: events.Event) -> Message:
        """Handle and acknowledge an event; until it is acknowledged, its sender repeats it."""
        self._feed(event)
        return control_pb2.Ok()

    def _on_update(self, peer: bytes, body: control_pb2.UpdateTopology) -> Answer:
        """Handle a request for an update; refuse it if a disk is full, because the update continues even if its client
        stops.
        """
        full = full_folder(*self._folders)
        if full is not None:
            raise RetryableRpcError(f"nothing was updated: the disk of {full} is full; free some space and try again")
        return self._request(events.UpdateRequested, body)

    async def _on_get_status(self, peer: bytes, body: control_pb2.GetStatus) -> Message:
        if body.starting_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(body.starting_s, STARTING_MAX_S)):
                    await self._started.wait()
        return await self._kept().shown(self._running().status(self._clock.now()))

    def _on_get_metrics(self, peer: bytes, body: control_pb2.GetMetrics) -> Answer:
        reply = self._observed().metrics.query(body, self._clock.now())
        # A count for an interval may decrease, so it need not be written first.
        return reply if body.interval_s else self._kept().shown(reply)

    def _register(self, kind: type, peer: bytes, body: Message) -> Answer:
        token, waiter = self._open_request()
        self._feed(kind(peer, token, body))
        return waiter

    def _request(self, kind: type, *arguments: object) -> Answer:
        token, waiter = self._open_request()
        self._feed(kind(token, *arguments))
        return waiter

    def _open_request(self) -> tuple[int, asyncio.Future[Message | None]]:
        token = next(self._tokens)
        waiter: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self._waiting[token] = waiter
        waiter.add_done_callback(lambda _: self._waiting.pop(token, None))
        return token, waiter

    def _tick(self) -> None:
        self._timer = None
        self._feed(events.Tick())

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._running().next_deadline()
        if deadline is not None and self._exit is not None and not self._exit.done():
            delay_s = max(0.0, deadline - self._clock.now())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    # ---- effects out ------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        self._outbox.extend(effects)
        if self._writer is None:
            self._flush()
        if not self._started.is_set() and not self._running().starts:
            self._started.set()
        self._arm()
        if self._answers is not None:
            self._answers.look(self._clock.now())
        if self._recorder is not None:
            self._recorder.look()

    def _flush(self) -> None:
        while self._outbox:
            if isinstance(self._outbox[0], Persist):
                self._writer = asyncio.ensure_future(self._write())
                return
            self._do(self._outbox.popleft())

    async def _write(self) -> None:
        """Perform the writes at the head of the outbox, then continue with the effects after them."""
        backoff = Backoff(0.1, 2.0)
        while self._outbox and isinstance(effect := self._outbox[0], Persist):
            try:
                await asyncio.to_thread(self._store.write, effect.node, effect.value)
            except TopologyRemovedError as error:
                log.info("%s", error)
                self.stop(FINISHED)
                return
            except FencedError as error:
                log.error("%s", error)
                self.stop(self._fence_code())
                return
            except (StateError, OSError) as error:
                log.error("cannot write the %s (%s); trying again", effect.node.value, error)
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            self._outbox.popleft()
            if effect.node is Node.PACKING_PLAN:
                self._observed().place(self._clock.now())
        self._writer = None
        self._flush()

    def _fence_code(self) -> int:
        """Return FENCED if a newer master is known, else an exit code that lets the executor restart this master."""
        try:
            self._store.check_fence()
        except FencedError:
            return int(FENCED)
        except StateError:
            pass
        return int(FAILURE)

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            waiter = self._waiting.pop(effect.request, None)
            if waiter is None or waiter.done():
                return
            if effect.error is not None:
                waiter.set_exception(effect.error)
            else:
                waiter.set_result(effect.body)
        elif isinstance(effect, Send):
            assert self._server is not None
            for peer in self._server.send_all(effect.peers, effect.body):
                event = events.SendFailed(peer, effect.body)
                asyncio.get_running_loop().call_soon(self._feed_late, event)
        elif isinstance(effect, WriteMetadata):
            self._write_metadata(effect)
        elif isinstance(effect, Prune):
            self._prune(effect)
        elif isinstance(effect, Note):
            log.log(logging.WARNING if effect.warning else logging.INFO, "%s", effect.text)

    def _write_metadata(self, effect: WriteMetadata) -> None:
        loop, metadata = asyncio.get_running_loop(), effect.metadata

        def done(outcome: events.Written | events.Failed) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed in the meantime
                loop.call_soon_threadsafe(self._feed_late, events.MetadataWritten(metadata, outcome))

        if self._archive is not None:
            self._archive.write(metadata, done)
        else:
            loop.call_soon(done, _NO_STORE)

    def _prune(self, effect: Prune) -> None:
        loop, token = asyncio.get_running_loop(), effect.token

        def done(failure: events.Failed | None) -> None:
            if token:
                with contextlib.suppress(RuntimeError):  # the loop has closed in the meantime
                    loop.call_soon_threadsafe(self._feed_late, events.CheckpointsDeleted(token, failure))

        if self._archive is not None:
            self._archive.prune(effect, done)
        else:
            done(_NO_STORE)

    def _feed_late(self, event: events.Event) -> None:
        if self._exit is not None and not self._exit.done():
            self._feed(event)

    # ---- metrics, exceptions, stacks --------------------------------------------------------

    def _observed(self) -> Observatory:
        self._running()
        assert self.observatory is not None
        return self.observatory

    def _kept(self) -> Recorder:
        assert self._recorder is not None
        return self._recorder

    def _on_metrics(self, peer: bytes, body: control_pb2.MetricsBatch) -> Answer:
        self._observed().take(body, self._clock.now())
        for report in body.reports:
            if report.waits_for != self._running().shared.outages.get(report.process, ""):
                self._feed(events.OutageReported(report.process, report.waits_for))
        self._kept().look()
        if body.exceptions:
            self._feed(events.ExceptionsReported(tuple(body.exceptions)))
        return None

    def _on_get_exceptions(self, peer: bytes, body: control_pb2.GetExceptions) -> Answer:
        store = self._running().shared.exceptions
        return control_pb2.ExceptionsReply(
            exceptions=store.select(body.component, body.task_id), discarded=store.discarded
        )

    # ---- traces -------------------------------------------------------------------------------

    def _on_get_traces(self, peer: bytes, body: control_pb2.GetTraces) -> Answer:
        if body.per_s > 0 and body.lease_s > 0:
            order = control_pb2.TraceRate(per_s=min(body.per_s, RATE_MAX), lease_s=min(body.lease_s, LEASE_MAX_S))
            stmgrs = self._running().shared.registry.stmgrs.values()
            self._perform([Send(tuple(sorted(stmgr.peer for stmgr in stmgrs)), order)])
        return self._observed().traced(body, self._clock.now())
