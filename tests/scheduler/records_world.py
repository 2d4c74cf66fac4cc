"""A simulated scheduler with its endpoint, and containers with topology masters that are killed, cut off and restarted.

The endpoint is the product's `StateEndpoint` on virtual time, over a state in memory whose calls take a moment and die with the
endpoint. The containers have the product's `Calls`, `Watches` and `EndpointStateManager` on a network that loses connections,
delivers copies late, and drops the messages of changes. Everything comes from one seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from threading import Lock
from typing import Any

from heronpy.common.errors import NodeExistsError, NoNodeError, StateAwayError, StateError, VersionMismatchError
from heronpy.net.endpoint_calls import Calls, Result
from heronpy.net.endpoint_state import _KINDS, EndpointStateManager
from heronpy.net.endpoint_watch import EndpointWatch, Watches
from heronpy.proto import control_pb2, endpoint_pb2
from heronpy.scheduler.state_endpoint import StateEndpoint
from heronpy.scheduler.state_records import TICK_MAX_S, StateRecords, Step
from heronpy.scheduler.state_rules import ContainerRules
from heronpy.statemgr import paths
from tests.support.memory_state import MemoryStateManager, MemoryStore

NODE, EPOCH, PLAN = paths.tmaster("wc"), paths.epoch("wc", "tmaster"), paths.physical_plan("wc")
COUNTS = paths.counts("wc")
SESSION_S, PATIENCE_S, TICK_S = 3.0, 2.0, 0.5
TROUBLE_S, PEACE_S = 25.0, 16.0
CONTAINERS = 3


class VirtualLoop(asyncio.SelectorEventLoop):
    """Waiting takes no time: it moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector.select = self._pass  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now

    def _pass(self, timeout: float | None) -> list[Any]:
        assert timeout is not None, "nothing will ever happen again"
        self.now += timeout
        return []


class SimEndpoint(StateEndpoint):
    """Its state manager's calls take a moment, in which the endpoint may die."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state = MemoryStateManager(world.store)
        self.began_at = world.now()
        rules = ContainerRules("wc")
        rules.masters = frozenset(range(CONTAINERS))
        super().__init__(self.state, "wc", world.now, rules)
        if world.records is not StateRecords:
            owners = self.state.get(paths.ephemerals("wc")) or (b"", 0)
            self._records = world.records(world.now(), "wc", f"endpoint {world.now()}", owners, rules)

    async def _step(self, step: Step) -> Any:
        await asyncio.sleep(self.world.rng.uniform(0.0, 0.03))
        try:
            return self._act(step.what, *step.arguments)
        finally:
            await asyncio.sleep(self.world.rng.uniform(0.0, 0.02))

    def _act(self, what: str, path: str, *more: Any) -> Any:
        # What a master asks for names a version.
        removed = self.state.get(path) if what == "delete" and not more else None
        result = super()._act(what, path, *more)
        if removed is not None:
            self.world.removed(removed[0])
        if what == "set" and path == PLAN:
            self.world.plans.append(more[0])
        if what == "set" and path == COUNTS:
            self.world.counted.append(more[0])
        return result

    def tick(self, now: float) -> None:
        before = self.known()
        super().tick(now)
        for session in before - self.known():
            self.world.ended(session, self.began_at)
        for session in self.known():
            if self.world.silence(session, self.began_at) > SESSION_S + TICK_S + 0.1:
                self.world.violations.append(f"session {session} has not ended at {now:.2f}")

    def known(self) -> set[int]:
        return {*self._records._sessions, *self._records._waiting}

    def kill(self) -> None:
        self.close()
        self.state.close()


class SimWatches(Watches):
    """Calls back at once."""

    def _put(self, fired: list[EndpointWatch]) -> None:
        for watch in fired:
            watch.queued = False
            watch.callback(watch.path)


class Link:
    """What `EndpointLink` does with a socket and a thread."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.connection = 0
        self.connected = False
        self.heard_at = 0.0
        self.wake = asyncio.Event()
        credential = endpoint_pb2.SessionCredential(container=process.container)
        self.calls = Calls(process.session, credential, SESSION_S, self.on_kept)

    def is_sure(self) -> bool:
        return self.calls.is_open and self.process.world.now() - self.heard_at < SESSION_S

    def start(self, body: endpoint_pb2.StateCall, end: Any = lambda _: None) -> Any:
        call = self.calls.start(body, end)
        self.wake.set()
        return call

    async def ask(self, body: endpoint_pb2.StateCall) -> endpoint_pb2.StateAnswer:
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        call = self.start(body, answer.set_result)
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await asyncio.shield(answer)
        except TimeoutError:
            self.calls.give_up(call)
            raise StateAwayError("no answer") from None
        if isinstance(found, StateError):
            raise found
        if found.error:
            raise _KINDS.get(found.error, StateError)(found.text)
        return found

    async def run(self) -> None:
        world = self.process.world
        while True:
            wait_s = 1.0
            if self.connected:
                due, wait_s = self.calls.due(world.now())
                for call in due:
                    copy = endpoint_pb2.StateCall.FromString(call.body.SerializeToString())
                    world.send(self, call.request, copy)
            self.wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self.wake.wait()

    def connect(self, up: bool) -> None:
        self.connected = up
        self.connection += 1
        if up:
            self.calls.ask_anew()
        self.wake.set()

    def receive(self, request: int, answer: endpoint_pb2.StateAnswer, refusal: int) -> None:
        self.heard_at = self.process.world.now()
        was_open = self.calls.is_open
        call = self.calls.answered(request, answer, refusal, "refused")
        if self.calls.is_open and not was_open and self.calls.opened > 1:
            self.process.manager._on_session()
        if call is not None:
            call.end(StateError("refused") if refusal else answer)
        self.wake.set()

    def on_kept(self, result: Result) -> None:
        if not isinstance(result, StateError):
            for seen in result.seen:
                self.process.manager._watches.changed(seen.path, seen.count)
            self.process.manager._arm()


class Process:
    """A topology master or its standby, which also watches the location and the plan."""

    def __init__(self, world: World, container: int) -> None:
        self.world, self.container = world, container
        self.session = world.rng.randrange(1, 1 << 62)
        self.link = Link(self)
        self.epoch = self.sequence = 0
        self.views: dict[str, bytes | None] = {}
        self.manager = manager = EndpointStateManager.__new__(EndpointStateManager)
        manager._mutex, manager._mine, manager._watches = Lock(), {}, SimWatches()
        manager._link = self.link  # type: ignore[assignment]
        self.tasks = [asyncio.ensure_future(one) for one in (self.link.run(), self.live())]

    def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.link.connect(False)

    # ---- the state manager's calls, which wait for an answer ------------------------------------
    async def get(self, path: str) -> tuple[bytes, int] | None:
        known, value, stamp = self.manager._watches.known(path)
        if known and self.link.is_sure():
            return value
        answer = await self.link.ask(endpoint_pb2.StateCall(get=path))
        found = (answer.data, answer.number) if answer.found else None
        self.manager._watches.learned(path, found, stamp)
        return found

    async def change(self, path: str, body: endpoint_pb2.StateCall) -> endpoint_pb2.StateAnswer:
        self.manager._watches.forget(path)
        try:
            return await self.link.ask(body)
        finally:
            self.manager._watches.forget(path)

    async def create(self, data: bytes) -> None:
        put = endpoint_pb2.StatePut(path=NODE, data=data, ephemeral=True)
        await self.change(NODE, endpoint_pb2.StateCall(put=put))
        self.manager._mine[NODE] = data

    async def delete(self, found: tuple[bytes, int]) -> None:
        self.manager._mine.pop(NODE, None)
        put = endpoint_pb2.StatePut(path=NODE, remove=True, versioned=True, version=found[1])
        await self.change(NODE, endpoint_pb2.StateCall(put=put))

    # ---- the topology master --------------------------------------------------------------------
    async def live(self) -> None:
        self.watch(NODE)
        self.watch(PLAN)
        while True:
            await asyncio.sleep(self.world.rng.uniform(0.1, 1.0))
            with suppress(StateError, NodeExistsError, VersionMismatchError, NoNodeError):
                await self.turn()

    def watch(self, path: str) -> None:
        self.manager._watches.add(path, lambda path: self.look(path))
        self.manager._arm()
        self.look(path)

    def look(self, path: str) -> None:
        self.tasks = [task for task in self.tasks if not task.done()]
        self.tasks.append(asyncio.ensure_future(self.read(path)))

    async def read(self, path: str) -> None:
        while True:
            with suppress(StateError):
                found = await self.get(path)
                self.views[path] = found[0] if found is not None else None
                return
            await asyncio.sleep(0.3)

    async def turn(self) -> None:
        """As `heronpy.tmaster.store` claims a topology, and is fenced."""
        found = await self.get(NODE)
        if found is not None and found[0] == self.location():
            if not self.world.quiet:
                await self.write()
            return
        if found is not None:
            # It may be its own, of a claim whose answer never came.
            is_own = found[0].endswith(b" %d" % self.session)
            if not is_own and (not self.world.troubled or self.world.rng.random() > 0.02):
                return
            await self.delete(found)
        self.epoch = (await self.change(EPOCH, endpoint_pb2.StateCall(counter=EPOCH))).number
        self.world.took(self.epoch, self)
        await self.create(self.location())
        latest = await self.get(EPOCH)
        if latest is not None and int(latest[0]) != self.epoch:
            mine = await self.get(NODE)
            if mine is not None and mine[0] == self.location():
                await self.delete(mine)

    def location(self) -> bytes:
        return b"%d of %d" % (self.epoch, self.session)

    async def write(self) -> None:
        """Of the plan, over the version that was read: no older epoch comes after a newer one."""
        found = await self.get(PLAN)
        if found is not None and int(found[0].split()[0]) > self.epoch:
            return
        self.sequence += 1
        data = b"%d %d %d" % (self.epoch, self.session, self.sequence)
        if self.world.rng.random() < 0.5:
            await self.change(COUNTS, endpoint_pb2.StateCall(put=endpoint_pb2.StatePut(path=COUNTS, data=data)))
            return
        put = endpoint_pb2.StatePut(path=PLAN, data=data, versioned=True, version=found[1] if found is not None else 0)
        opened = self.link.calls.opened
        try:
            await self.change(PLAN, endpoint_pb2.StateCall(put=put))
            self.world.told[data] = True
        except (VersionMismatchError, NoNodeError):
            if opened == self.link.calls.opened:
                self.world.told[data] = False


class World:
    """See the module; `violations` says what went wrong."""

    def __init__(self, seed: int, records: type[StateRecords] = StateRecords) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.records = records
        self.loop = VirtualLoop()
        self.store = MemoryStore()
        self.violations: list[str] = []
        self.troubled, self.quiet = True, False
        self.epochs: dict[int, Process] = {}
        #: What was written, in order.
        self.plans: list[bytes] = []
        self.counted: list[bytes] = []
        self.told: dict[bytes, bool] = {}
        #: When the endpoint has heard a session last, and when it was stopped.
        self.heard: dict[int, float] = {}
        self.silent: set[int] = set()
        self.stops: list[tuple[float, float]] = []
        self.stopped_until = 0.0
        self.arrivals: dict[tuple[Link, int, bool], float] = {}
        self.background: set[asyncio.Task[Any]] = set()
        self.endpoint: SimEndpoint | None = None
        self.old: list[SimEndpoint] = []
        self.counts = dict.fromkeys(("restarts", "stops", "cuts", "kills", "removed"), 0)

    def now(self) -> float:
        return self.loop.time()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    # ---- what is true -----------------------------------------------------------------------------
    def took(self, epoch: int, process: Process) -> None:
        if epoch in self.epochs:
            self.violations.append(f"two leaders of epoch {epoch}")
        self.epochs[epoch] = process

    def ended(self, session: int, began_at: float) -> None:
        """An endpoint has ended a session, because it was silent."""
        if self.silence(session, began_at) < SESSION_S - 0.01:
            self.violations.append(f"session {session} was ended at {self.now():.2f}, but it is not silent")
        self.silent.add(session)

    def silence(self, session: int, began_at: float) -> float:
        """How long an endpoint has listened without hearing a session."""
        since = max(self.heard.get(session, 0.0), began_at)
        stops = [end - begun - TICK_MAX_S for begun, end in self.stops if end > since and end - begun > TICK_MAX_S]
        return self.now() - since - sum(stops)

    def removed(self, data: bytes) -> None:
        """A location was removed by the endpoint itself."""
        self.counts["removed"] += 1
        if int(data.split()[-1]) not in self.silent:
            self.violations.append(f"the location {data!r} was taken from a living process at {self.now():.2f}")

    def judge(self, processes: list[Process]) -> None:
        """At the end, after a time without trouble."""
        epochs = [int(plan.split()[0]) for plan in self.plans]
        if epochs != sorted(epochs):
            self.violations.append("an older epoch has written after a newer one")
        latest: dict[int, int] = {}
        for data in self.counted:
            _, session, sequence = map(int, data.split())
            if sequence < latest.get(session, 0):
                self.violations.append(f"the counts {data!r} were written after later ones")
            latest[session] = sequence
        for data, was_written in self.told.items():
            if self.plans.count(data) != was_written:
                self.violations.append(f"the plan {data!r} was written {self.plans.count(data)} times")
        state = MemoryStateManager(self.store)
        location = state.get(NODE)
        leaders = [one for one in processes if location is not None and one.location() == location[0]]
        if len(leaders) != 1:
            self.violations.append(f"{location} leads in the end, which is {len(leaders)} processes")
        for path in (NODE, PLAN):
            found = state.get(path)
            for process in processes:
                if process.views.get(path) != (found[0] if found is not None else None):
                    self.violations.append(f"a watch of {path} was lost: {process.views.get(path)!r}, not {found}")

    # ---- the network ------------------------------------------------------------------------------
    def arrival(self, link: Link, is_call: bool) -> float:
        """When the next message of a connection arrives: one after the other."""
        key = (link, link.connection, is_call)
        self.arrivals[key] = max(self.arrivals.get(key, 0.0), self.now()) + self.rng.uniform(0.001, 0.05)
        return self.arrivals[key] - self.now()

    def send(self, link: Link, request: int, body: endpoint_pb2.StateCall) -> None:
        self.start(self.deliver(link, link.connection, request, body, self.arrival(link, True)))

    async def deliver(
        self, link: Link, connection: int, request: int, body: endpoint_pb2.StateCall, in_s: float
    ) -> None:
        await asyncio.sleep(in_s)
        if connection != link.connection:
            if self.rng.random() < 0.5:
                return
            await asyncio.sleep(self.rng.uniform(0.0, 4.0))  # it was on its way already
        while self.now() < self.stopped_until:
            await asyncio.sleep(self.stopped_until - self.now() + 0.01)  # it ticks first
        endpoint = self.endpoint
        if endpoint is None:
            return
        if body.HasField("open") or endpoint.container_of(body.session) is not None:
            self.heard[body.session] = self.now()
        answer, refusal = endpoint_pb2.StateAnswer(), 0

        def tell(changed: endpoint_pb2.StateChanged) -> None:
            if self.rng.random() < 0.8:
                self.start(self.back(link, connection, changed, self.arrival(link, False)))

        try:
            answer = await endpoint.call(body, body.credential.container, request, tell)
        except StateAwayError:
            refusal = control_pb2.REFUSAL_AGAIN
        except StateError:
            refusal = control_pb2.REFUSAL_FAILED
        if endpoint is self.endpoint and connection == link.connection:
            await asyncio.sleep(self.arrival(link, False))
            if endpoint is self.endpoint and connection == link.connection and link.connected:
                link.receive(request, answer, refusal)

    async def back(self, link: Link, connection: int, changed: endpoint_pb2.StateChanged, in_s: float) -> None:
        await asyncio.sleep(in_s)
        if connection == link.connection and link.connected:
            link.process.manager._watches.changed(changed.path, changed.count)

    # ---- trouble ----------------------------------------------------------------------------------
    async def tick(self) -> None:
        while True:
            await asyncio.sleep(max(TICK_S, self.stopped_until - self.now()))
            if self.endpoint is not None and self.now() >= self.stopped_until:
                self.endpoint.tick(self.now())

    async def trouble(self, processes: list[Process]) -> None:
        while self.now() < TROUBLE_S:
            await asyncio.sleep(self.rng.uniform(0.1, 4.0))
            what, process = self.rng.randrange(5), self.rng.choice(processes)
            if what == 0:
                self.counts["restarts"] += 1
                self.end_endpoint(processes, self.rng.random() < 0.3)
                await asyncio.sleep(self.rng.uniform(0.0, 2.0))
                self.open_endpoint(processes)
            elif what == 1 and self.now() >= self.stopped_until:
                self.counts["stops"] += 1
                self.stopped_until = self.now() + self.rng.uniform(0.5, 6.0)
                self.stops.append((self.now(), self.stopped_until))
            elif what in (2, 3):
                self.counts["cuts"] += 1
                process.link.connect(False)
                self.start(self.connect_again(process.link, self.rng.choice((0.05, 1.0, 5.0))))
            elif what == 4:
                self.counts["kills"] += 1
                process.kill()
                processes[processes.index(process)] = born = Process(self, process.container)
                born.link.connect(self.endpoint is not None)

    def go_on(self) -> None:
        """Whatever was stopped."""
        if self.now() < self.stopped_until:
            self.stops[-1] = (self.stops[-1][0], self.now())
            self.stopped_until = 0.0

    async def connect_again(self, link: Link, in_s: float) -> None:
        await asyncio.sleep(in_s)
        if self.endpoint is not None and not link.connected:
            link.connect(True)

    def end_endpoint(self, processes: list[Process], goes_on: bool) -> None:
        """`goes_on`: what it has begun is carried out although another scheduler is started."""
        assert self.endpoint is not None
        for process in processes:
            process.link.connect(False)
        if goes_on:
            self.old.append(self.endpoint)
        else:
            self.endpoint.kill()
        self.endpoint = None

    def open_endpoint(self, processes: list[Process]) -> None:
        self.endpoint = SimEndpoint(self)
        self.go_on()
        for process in processes:
            process.link.connect(True)

    async def play(self) -> None:
        processes = [Process(self, container) for container in range(CONTAINERS)]
        self.open_endpoint(processes)
        self.start(self.tick())
        await self.trouble(processes)
        self.troubled = False
        self.go_on()
        for process in processes:
            if not process.link.connected:
                process.link.connect(True)
        await asyncio.sleep(PEACE_S / 2)
        self.quiet = True
        await asyncio.sleep(PEACE_S / 2)
        self.judge(processes)
        for process in processes:
            process.kill()
        assert self.endpoint is not None
        for endpoint in (self.endpoint, *self.old):
            endpoint.kill()
        for task in list(self.background):
            task.cancel()

    def run(self) -> list[str]:
        try:
            self.loop.run_until_complete(self.play())
            self.loop.run_until_complete(asyncio.sleep(0))
        finally:
            self.loop.close()
        return self.violations
