"""The topology master's shell: real sockets, a state manager, fake stream managers and executors."""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heronpy.common.errors import InvalidRpcError, RpcError, StateError
from heronpy.common.exit_codes import FAILURE, FENCED
from heronpy.common.host import clock_id
from heronpy.common.setting_types import TmasterSettings
from heronpy.executor.clock_probe import ClockProbe
from heronpy.net.answers import read
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlClient
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.statemgr import paths
from heronpy.tmaster.shell import Shell
from heronpy.tmaster.totals import COUNTERS
from heronpy.views.load import LoadAnswer
from heronpy.views.past import Events, Timeline
from heronpy.views.traces import Traces
from tests.support.memory_state import MemoryStateManager, MemoryStore
from tests.support.waiting import eventually
from tests.support.wires import new_endpoint
from tests.tmaster.tmaster_world import make_packing, make_topology

SETTINGS = TmasterSettings(start_timeout_s=5.0)
DEADLINE_S = 10.0


def stored(state: Any, topology: topology_pb2.Topology, containers: int = 2) -> Any:
    state.create(paths.topology("wc"), topology.SerializeToString())
    packing = make_packing(topology, containers)
    state.create(paths.packing_plan("wc"), packing.SerializeToString())
    return state


def location(state: Any) -> plan_pb2.TmasterLocation | None:
    found = state.get(paths.tmaster("wc"))
    return plan_pb2.TmasterLocation.FromString(found[0]) if found else None


class FakeContainer:
    """A stream manager with its tasks, and the executor of the container."""

    def __init__(self, endpoint: str, container: plan_pb2.ContainerPlan, epoch: int = 1) -> None:
        self.container, self.epoch = container, epoch
        self.plan = plan_pb2.PhysicalPlan()
        self.task_epoch = itertools.count(1)
        self.epochs = {i.task_id: next(self.task_epoch) for i in container.instances}
        self.asked_to_register = 0
        self.finished: set[int] = set()
        self.exhausted = False
        self.dead_letters = 0
        self.stmgr = ControlClient(endpoint, self._on_stmgr, b"stmgr-%d" % container.id)
        self.executor = ControlClient(endpoint, self._on_executor, b"executor-%d" % container.id)
        self._beats = asyncio.ensure_future(self._beat())

    def _on_stmgr(self, envelope: control_pb2.Envelope) -> None:
        field, body = body_of(envelope)
        if field == "new_plan" and body.plan.version > self.plan.version:
            self.plan = body.plan
        elif field == "register_again":
            self.asked_to_register += 1
        elif field == "finish_tasks":
            self.finished.update(body.task_ids)

    def _on_executor(self, envelope: control_pb2.Envelope) -> None:
        field, body = body_of(envelope)
        if field == "restart_processes":
            for instance in self.container.instances:
                name = f"container_{self.container.id}_{instance.component}_{instance.task_id}"
                if not body.names or name in body.names:
                    self.epochs[instance.task_id] += 1000
            if not body.names:
                self.epoch += 1
                asyncio.ensure_future(self.register())

    def statuses(self) -> list[control_pb2.TaskStatus]:
        paused = self.plan.topology.state == topology_pb2.PAUSED if self.plan.version else False
        result = []
        for instance in self.container.instances:
            spout = instance.component == "word"
            state = control_pb2.TASK_RUNNING if self.plan.version else control_pb2.TASK_STARTING
            if spout and self.exhausted:
                state = control_pb2.TASK_EXHAUSTED
            elif spout and paused:
                state = control_pb2.TASK_PAUSED
            elif instance.task_id in self.finished:
                state = control_pb2.TASK_FINISHED
            result.append(
                control_pb2.TaskStatus(
                    task_id=instance.task_id,
                    epoch=self.epochs[instance.task_id],
                    state=state,
                    plan_version=self.plan.version,
                    dead_letters=self.dead_letters,
                )
            )
        return result

    async def register(self) -> None:
        number = self.container.id
        record = plan_pb2.StmgrRecord(id=f"stmgr-{number}", container=number, epoch=self.epoch)
        message = control_pb2.RegisterStmgr(stmgr=record, tasks=self.statuses())
        reply = await self.stmgr.call(message)
        if reply.HasField("plan"):
            self.plan = reply.plan

    async def register_executor(self) -> None:
        name = f"stmgr-{self.container.id}"
        message = control_pb2.RegisterExecutor(container=self.container.id, epoch=1)
        message.processes.add(name=name, state=control_pb2.PROC_RUNNING)
        await self.executor.call(message)

    async def _beat(self) -> None:
        while True:
            beat = control_pb2.StmgrHeartbeat(
                stmgr_id=f"stmgr-{self.container.id}",
                epoch=self.epoch,
                plan_version=self.plan.version,
                tasks=self.statuses(),
            )
            self.stmgr.send(beat)
            await asyncio.sleep(0.02)

    def close(self) -> None:
        self._beats.cancel()
        self.stmgr.close()
        self.executor.close()


class Cluster:
    """A shell and its containers."""

    def __init__(self, shell: Shell, state: Any) -> None:
        self.shell, self.state = shell, state
        self.run = asyncio.ensure_future(shell.run())
        self.containers: list[FakeContainer] = []
        self.endpoint = ""

    async def start(self) -> None:
        self.endpoint = (await eventually(lambda: location(self.state))).endpoint
        self.cli = ControlClient(self.endpoint, lambda _: None)

    async def join(self) -> None:
        packing = plan_pb2.PackingPlan.FromString(self.state.get(paths.packing_plan("wc"))[0])
        self.containers = [FakeContainer(self.endpoint, container) for container in packing.containers]
        for container in self.containers:
            await container.register_executor()
            await container.register()
        await self.until_life(control_pb2.LIFE_RUNNING)

    async def status(self) -> control_pb2.StatusReply:
        return await self.cli.call(control_pb2.GetStatus())

    async def until_life(self, life: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while (status := await self.status()).lifecycle != life:
            assert time.monotonic() < deadline, status
            await asyncio.sleep(0.01)

    async def close(self) -> int:
        for container in self.containers:
            container.close()
        self.cli.close()
        self.shell.stop()
        return await asyncio.wait_for(self.run, DEADLINE_S)


@asynccontextmanager
async def cluster(state: Any = None, epoch: int | None = 7) -> AsyncIterator[Cluster]:
    if state is None:
        state = stored(MemoryStateManager(), make_topology({"word": 2}, {"count": 2}))
    result = Cluster(Shell("wc", SETTINGS, state, epoch=epoch, endpoint=new_endpoint(), topology_id="wc-1"), state)
    await result.start()
    try:
        yield result
    finally:
        await result.close()


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in an event loop of its own, for 30 s at most."""

    @functools.wraps(test)
    def runs() -> None:
        asyncio.run(asyncio.wait_for(test(), 30.0))

    return runs


@in_loop
async def test_topology_starts_pauses_restarts_and_finishes() -> None:
    async with cluster() as c:
        await c.join()
        found = plan_pb2.PhysicalPlan.FromString(c.state.get(paths.physical_plan("wc"))[0])
        assert (found.version, found.tmaster_epoch) == (2, 7)
        reply = await c.cli.call(control_pb2.SetState(active=False))
        assert reply.text == "wc is inactive"
        assert (await c.status()).lifecycle == control_pb2.LIFE_PAUSED
        topology = topology_pb2.Topology.FromString(c.state.get(paths.topology("wc"))[0])
        assert topology.state == topology_pb2.PAUSED
        await c.cli.call(control_pb2.SetState(active=True))
        reply = await c.cli.call(control_pb2.RestartTarget(task_id=1))
        assert "container_1_word_1" in reply.text
        reply = await c.cli.call(control_pb2.RestartTarget(container=2))
        assert reply.text == "restarted container 2: 2 tasks back"
        reply = await c.cli.call(control_pb2.RuntimeConfig(settings=["count:a:1"]))
        assert reply.text.startswith("1 setting")
        for container in c.containers:
            container.exhausted = True
        await c.until_life(control_pb2.LIFE_FINISHED)


@in_loop
async def test_a_status_may_wait_for_the_start_but_no_longer_than_asked() -> None:
    async with cluster() as c:
        assert (await c.cli.call(control_pb2.GetStatus(starting_s=0.01))).lifecycle == control_pb2.LIFE_STARTING
        waits = asyncio.ensure_future(c.cli.call(control_pb2.GetStatus(starting_s=DEADLINE_S), DEADLINE_S))
        assert (await c.status()).lifecycle == control_pb2.LIFE_STARTING and not waits.done()
        await c.join()
        assert (await waits).lifecycle == control_pb2.LIFE_RUNNING


@in_loop
async def test_metrics_and_exceptions() -> None:
    async with cluster() as c:
        await c.join()
        batch = control_pb2.MetricsBatch(container=1)
        report = batch.reports.add(process="container_1_word_1", component="word", task_id=1)
        report.samples.add(name="__emit-count", label="default", value=5)
        batch.exceptions.add(process="container_1_word_1", component="word", task_id=1, type="E")
        c.containers[0].executor.send(batch)
        deadline = time.monotonic() + DEADLINE_S
        while not (found := await c.cli.call(control_pb2.GetExceptions(component="word"))).exceptions:
            assert time.monotonic() < deadline
        assert found.exceptions[0].count == 1
        metrics = await c.cli.call(control_pb2.GetMetrics(component="word"))
        assert metrics.reports[0].samples[0].value == 5
        with pytest.raises(RpcError, match="does not answer kill_topology"):
            await c.cli.call(control_pb2.KillTopology())


@in_loop
async def test_the_wire_from_another_host_is_known_once_its_executor_has_compared_the_clocks() -> None:
    async with cluster() as c:
        await c.join()
        executor, ms = c.containers[0].executor, 1_000_000
        ahead, wire = 7 * 10**9, 40 * ms  # of the other host's clock; what the frame takes on its way there
        probe = ClockProbe(executor.call, lambda: time.monotonic_ns() + ahead, lambda: 77)
        await probe.ask()
        told = probe.offset()
        assert told is not None and abs(told.offset + ahead) <= told.error
        executor.send(control_pb2.ExecutorHeartbeat(container=1, epoch=1, clock=told))
        began = time.monotonic_ns()
        batch = control_pb2.MetricsBatch(container=1)
        spout = batch.reports.add(process="container_1_word_1", component="word", task_id=1)
        spout.spans.add(trace=5, number=1, began=began, ended=began + ms, clock=clock_id(), at=time.time())
        bolt = batch.reports.add(process="container_1_count_3", component="count", task_id=3)
        left = began + ms
        came = left + wire + ahead
        bolt.spans.add(
            trace=5, number=2, parent=1, emitted=left, sealed=left, hops=[left, left, came, came], began=came,
            ended=came + ms, source="word/default", source_clock=clock_id(), clock=77, end=control_pb2.SPAN_ENDS,
        )  # fmt: skip
        executor.send(batch)
        deadline = time.monotonic() + DEADLINE_S
        while not (found := read(await c.cli.call(control_pb2.GetTraces(limit=5)), Traces)).traces:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        [hop] = [hop for hop in found.hops if (hop.hop, hop.target) == ("wire", "count")]
        assert 0 < hop.error_s < DEADLINE_S and abs(hop.max_s - wire / 1e9) <= hop.error_s


@in_loop
async def test_totals_of_processes_that_are_gone_outlive_the_master() -> None:
    """What the successor hears from the living does not hold them."""
    store = MemoryStore()
    state = stored(MemoryStateManager(store), make_topology({"word": 2}, {"count": 2}))
    async with cluster(state, None) as c:
        await c.join()
        c.containers[0].dead_letters = 3  # of each of its two tasks
        deadline = time.monotonic() + DEADLINE_S
        while (found := (await c.status()).totals.dead_letters) != 6:
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.01)
        c.containers[0].dead_letters = 0
        await c.cli.call(control_pb2.RestartTarget(container=1))
        assert (await c.status()).totals.dead_letters == 6
        last = c.shell.machine.shared.registry.totals.ledger("wc-1").tasks
        told = read(await c.cli.call(control_pb2.GetEvents()), Events).last

        def kept() -> bool:
            found, events = state.get(paths.totals("wc")), state.get(paths.events("wc"))
            return (
                bool(found and events)
                and control_pb2.TotalsLedger.FromString(found[0]).tasks == last
                and control_pb2.EventLedger.FromString(events[0]).last == told
            )

        await eventually(kept)
        epochs = [container.epochs for container in c.containers]
        version = c.containers[0].plan.version
    async with cluster(MemoryStateManager(store), None) as c:
        packing = make_packing(make_topology({"word": 2}, {"count": 2}), 2)
        c.containers = [FakeContainer(c.endpoint, container, 2) for container in packing.containers]
        for container, numbers in zip(c.containers, epochs, strict=True):
            container.epochs = numbers
            await eventually(lambda container=container: container.asked_to_register)
            await container.register()
        await c.until_life(control_pb2.LIFE_RUNNING)
        assert c.containers[0].plan.version >= version, "it goes on with the plan of its predecessor"
        found = await c.status()
        assert (found.tmaster_epoch, found.totals.dead_letters) == (2, 6)
        story = read(await c.cli.call(control_pb2.GetEvents()), Events).events
        taken = next(event for event in story if event.kind == "master")
        assert taken.number > told
        running = next(event for event in story if event.reason == "running")
        assert running.times == 2 and running.first_at < taken.at, "once under each master"


@in_loop
async def test_a_topology_master_that_ends_in_order_leaves_its_last_counts() -> None:
    """And whatever it has shown is written by then; the next one may not hear of them from anybody else."""
    store = MemoryStore()
    state = stored(MemoryStateManager(store), make_topology({"word": 2}, {"count": 2}))

    def letters() -> list[int]:
        found = state.get(paths.totals("wc"))
        ledger = control_pb2.TotalsLedger.FromString(found[0]) if found else control_pb2.TotalsLedger()
        return [task.latest[COUNTERS.index("dead_letters")] for task in ledger.tasks]

    async with cluster(state, None) as c:
        await c.join()
        await eventually(lambda: len(letters()) == 4)
        c.containers[0].dead_letters = 3
        deadline = time.monotonic() + DEADLINE_S
        while (found := (await c.status()).totals.dead_letters) != 6:
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.01)
        assert sum(letters()) == 6, "what is shown is written"
        c.containers[0].dead_letters = 4
        await eventually(lambda: c.shell.machine.shared.registry.totals.summed().dead_letters == 8)
    assert sum(letters()) == 8


@in_loop
async def test_figures_are_answered_and_the_minutes_handed_over() -> None:
    store = MemoryStore()
    state = stored(MemoryStateManager(store), make_topology({"word": 2}, {"count": 2}))
    async with cluster(state, None) as c:
        await c.join()
        answer = read(await c.cli.call(control_pb2.GetLoad()), LoadAnswer)
        load, version = answer.load, answer.load.plan_version
        assert plan_pb2.PhysicalPlan.FromString(answer.plan or b"").version == version >= 1
        assert load.state == "RUNNING"
        assert [(one.name, one.tasks, one.up) for one in load.components] == [("word", 2, 2), ("count", 2, 2)]
        assert load.components[1].executed_per_s is load.edges[0].tuples_per_s is None, "unknown, not 0"
        again = read(await c.cli.call(control_pb2.GetLoad(plan_version=version)), LoadAnswer)
        assert again.plan is None and again.load.components == load.components
        assert answer.findings and answer.found_at > 0
        with pytest.raises(InvalidRpcError, match="there is no series 'x'"):
            await c.cli.call(control_pb2.GetTimeline(names=["x"]))
        minutes = c.shell.observatory.figures.minutes
        minutes.add(29_000_000, {"count": {"executed": 5.0}})
        c.containers[0].executor.send(control_pb2.MetricsBatch(container=1))
        await eventually(lambda: state.get(paths.minutes("wc")))
    async with cluster(MemoryStateManager(store), None) as c:
        assert read(await c.cli.call(control_pb2.GetTimeline()), Timeline).times == [29_000_000 * 60.0]
    state.set(paths.minutes("wc"), b"\xff garbage")
    async with cluster(MemoryStateManager(store), None) as c:
        assert read(await c.cli.call(control_pb2.GetTimeline()), Timeline).times == []


@in_loop
async def test_the_last_answers_are_left_at_the_end_and_replaced_by_the_next_master() -> None:
    store = MemoryStore()
    state = stored(MemoryStateManager(store), make_topology({"word": 2}, {"count": 2}))

    def left() -> tuple[int, int]:
        found = state.get(paths.last_answers("wc"))
        last = control_pb2.LastAnswers.FromString(found[0])
        return len(last.status.tasks), last.status.tmaster_epoch

    async with cluster(state, None) as c:
        await c.join()
        assert state.get(paths.last_answers("wc")) is None
    assert left() == (4, 1)
    async with cluster(MemoryStateManager(store), None):
        pass
    assert left()[1] == 2
    async with cluster(state := MemoryStateManager(store), None):
        for path in (paths.tmaster("wc"), paths.last_answers("wc"), paths.topology("wc")):
            state.delete(path)
    assert state.get(paths.last_answers("wc")) is None, "the topology is gone"


@in_loop
async def test_a_ledger_that_cannot_be_read_or_written_holds_nothing_up() -> None:
    state = stored(MemoryStateManager(), make_topology({"word": 2}, {"count": 2}))
    state.create(paths.totals("wc"), b"\xff garbage")
    state.create(paths.events("wc"), b"\xff garbage")
    write = state.set

    def full(path: str, data: bytes, version: int | None = None) -> int:
        if path in (paths.totals("wc"), paths.events("wc")):
            raise StateError("the disk is full")
        return int(write(path, data, version=version))

    state.set = full
    async with cluster(state) as c:
        await c.join()
        assert (await c.cli.call(control_pb2.SetState(active=False))).text == "wc is inactive"


@in_loop
async def test_master_waits_for_its_predecessor_and_is_fenced_by_a_successor() -> None:
    store = MemoryStore()
    state = stored(MemoryStateManager(store), make_topology({"word": 1}, {"count": 1}))
    old = MemoryStateManager(store)
    old.create(paths.tmaster("wc"), plan_pb2.TmasterLocation(epoch=3, pid=1).SerializeToString(), ephemeral=True)
    shell = Shell("wc", SETTINGS, state, epoch=4, endpoint=new_endpoint())
    task = asyncio.ensure_future(shell.run())
    # An even older one gives up at once.
    assert await Shell("wc", SETTINGS, MemoryStateManager(store), epoch=2, endpoint=new_endpoint()).run() == FENCED
    assert not task.done()
    old.die()
    await eventually(lambda: shell.machine)
    newer = plan_pb2.TmasterLocation(epoch=9, pid=1, endpoint="x").SerializeToString()
    MemoryStateManager(store).set(paths.tmaster("wc"), newer)
    assert await asyncio.wait_for(task, DEADLINE_S) == FENCED
    assert location(state).epoch == 9


@in_loop
async def test_master_gives_up_when_the_predecessor_stays() -> None:
    store = MemoryStore()
    state = stored(MemoryStateManager(store), make_topology({"word": 1}, {"count": 1}))
    state.create(paths.tmaster("wc"), plan_pb2.TmasterLocation(epoch=3).SerializeToString())
    settings = TmasterSettings(start_timeout_s=0.1)
    assert await Shell("wc", settings, MemoryStateManager(store), epoch=4, endpoint=new_endpoint()).run() == FAILURE


class Stubborn(MemoryStateManager):
    """Refuses the first writes of a plan."""

    refusals = 3

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        if path == paths.physical_plan("wc") and self.refusals:
            self.refusals -= 1
            raise StateError("disk full")
        return super().set(path, data, version)


@in_loop
async def test_plan_is_not_sent_before_the_state_manager_has_taken_it() -> None:
    state = stored(Stubborn(), make_topology({"word": 2}, {"count": 2}))
    async with cluster(state) as c:
        await c.join()
        assert state.refusals == 0


@in_loop
async def test_somebody_else_wrote_the_plan() -> None:
    state = stored(MemoryStateManager(), make_topology({"word": 2}, {"count": 2}))
    c = Cluster(Shell("wc", SETTINGS, state, epoch=7, endpoint=new_endpoint(), topology_id="wc-1"), state)
    await c.start()
    await c.join()
    state.set(paths.physical_plan("wc"), b"")
    c.cli.send(control_pb2.SetState(active=False))
    assert await asyncio.wait_for(c.run, DEADLINE_S) == FAILURE
    await c.close()


@in_loop
async def test_removed_location_comes_back_but_not_for_a_killed_topology() -> None:
    async with cluster() as c:
        c.state.delete(paths.tmaster("wc"))
        assert (await eventually(lambda: location(c.state))).epoch == 7
        c.state.delete(paths.topology("wc"))
        c.state.delete(paths.tmaster("wc"))
        await c.status()
        await c.status()
        assert location(c.state) is None


@in_loop
async def test_a_request_for_another_topology_is_refused() -> None:
    async with cluster() as c:
        await c.join()
        for topology_id, refused in (("other-1", True), ("wc-1", False)):
            asks = ControlClient(c.endpoint, lambda _: None, topology_id=topology_id)
            try:
                answer = asks.call(control_pb2.SetState(active=False))
                if refused:
                    with pytest.raises(InvalidRpcError, match="the topology master of wc-1, not of 'other-1'"):
                        await answer
                    assert (await c.status()).lifecycle == control_pb2.LIFE_RUNNING
                else:
                    assert (await answer).text == "wc is inactive"
            finally:
                asks.close()
