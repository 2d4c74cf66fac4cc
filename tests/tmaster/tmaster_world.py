"""A whole topology around the topology master's machine, without sockets, processes or time.

`World` performs effects as the shell does: it stores what is persisted, answers requests and
delivers messages to simulated stream managers and executors, which behave as the real ones should.
"""

from __future__ import annotations

from typing import Any

from heronpy.common.ids import instance_id, stmgr_id
from heronpy.common.setting_types import TmasterSettings
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Effect, Node, Note, Persist, Reply, Send
from heronpy.tmaster.machine import TopologyMaster


def make_topology(
    spouts: dict[str, int], bolts: dict[str, int], *, name: str = "wc", active: bool = True
) -> topology_pb2.Topology:
    """A chain: every spout feeds the first bolt, every bolt the next."""
    topology = topology_pb2.Topology(
        id=f"{name}-1", name=name, state=topology_pb2.RUNNING if active else topology_pb2.PAUSED
    )
    topology.topology_config.SetInParent()
    for spout, parallelism in spouts.items():
        _component(topology.spouts.add(), spout, parallelism)
    before = list(spouts)
    for bolt, parallelism in bolts.items():
        part = topology.bolts.add()
        _component(part, bolt, parallelism)
        for source in before:
            item = part.inputs.add(gtype=topology_pb2.SHUFFLE)
            item.stream.id, item.stream.component_name = "default", source
        before = [bolt]
    return topology


def _component(part: Any, name: str, parallelism: int) -> None:
    part.comp.name = name
    part.comp.spec = topology_pb2.PYTHON_CLASS_NAME
    part.comp.class_name = f"demo.{name.title()}"
    part.comp.config.kvs.add(
        key="topology.component.parallelism", value=str(parallelism), type=topology_pb2.STRING_VALUE
    )
    output = part.outputs.add()
    output.stream.id, output.stream.component_name = "default", name
    output.schema.keys.add(key="word", type=topology_pb2.OBJECT)


def make_packing(topology: topology_pb2.Topology, containers: int, version: int = 1) -> plan_pb2.PackingPlan:
    """Tasks dealt out to containers 1 to n."""
    packing = plan_pb2.PackingPlan(id=f"p{version}", version=version)
    for number in range(1, containers + 1):
        packing.containers.add(id=number).required.cpu = 1
    task = 0
    for part in (*topology.spouts, *topology.bolts):
        for index in range(int(part.comp.config.kvs[0].value)):
            task += 1
            packing.containers[(task - 1) % containers].instances.add(
                component=part.comp.name, task_id=task, component_index=index
            )
    return packing


class SimTask:
    """One instance."""

    def __init__(self, task_id: int, component: str, epoch: int, spout: bool) -> None:
        self.spout = spout
        self.status = control_pb2.TaskStatus(task_id=task_id, component=component, epoch=epoch)
        #: Does not initialise, or does not apply plans.
        self.stuck = False

    def apply(self, current: plan_pb2.PhysicalPlan | None) -> None:
        status = self.status
        if current is None or self.stuck or status.state == control_pb2.TASK_FAILED:
            return
        if all(record.task_id != status.task_id for record in current.instances):
            return
        status.plan_version = current.version
        if status.state in (control_pb2.TASK_STARTING, control_pb2.TASK_RUNNING, control_pb2.TASK_PAUSED):
            paused = self.spout and current.topology.state == topology_pb2.PAUSED
            status.state = control_pb2.TASK_PAUSED if paused else control_pb2.TASK_RUNNING


class SimStmgr:
    """One container: stream manager, instances and executor."""

    def __init__(self, world: World, container: int) -> None:
        self.world = world
        self.container = container
        self.epoch = 1
        self.executor_epoch = 1
        self.plan: plan_pb2.PhysicalPlan | None = None
        self.tasks: dict[int, SimTask] = {}
        self.registered = False
        self.silent = False
        self.beat = control_pb2.StmgrHeartbeat()
        self.failed: dict[str, control_pb2.ProcessRecord] = {}
        self.plans_seen = 0
        self.finish_orders: list[list[int]] = []
        #: The processes that each order to restart has named.
        self.restarted: list[list[str]] = []

    @property
    def name(self) -> str:
        return stmgr_id(self.container)

    @property
    def peer(self) -> bytes:
        return f"s{self.container}".encode()

    @property
    def executor_peer(self) -> bytes:
        return f"x{self.container}".encode()

    def reconcile(self, packing: plan_pb2.PackingPlan) -> None:
        wanted = {i.task_id: i.component for c in packing.containers if c.id == self.container for i in c.instances}
        for task in self.tasks.keys() - wanted.keys():
            del self.tasks[task]
        for task, component in wanted.items():
            if task not in self.tasks and task not in self.world.unstartable:
                spout = component in {s.comp.name for s in self.world.topology.spouts}
                self.tasks[task] = self.world.task_kind(task, component, (self.world.next_epoch()), spout)

    def record(self) -> plan_pb2.StmgrRecord:
        return plan_pb2.StmgrRecord(
            id=self.name,
            container=self.container,
            epoch=self.epoch,
            data_endpoint=f"ipc://s{self.container}.{self.epoch}",
            control_endpoint=f"ipc://c{self.container}.{self.epoch}",
        )

    def statuses(self) -> list[control_pb2.TaskStatus]:
        return [task.status for task in self.tasks.values()]

    def register(self) -> None:
        message = control_pb2.RegisterStmgr(stmgr=self.record(), tasks=self.statuses())
        reply = self.world.ask(events.StmgrRegistered, self.peer, message)
        if reply.error is not None:
            return
        self.registered = True
        if reply.body.HasField("plan"):
            self.receive(control_pb2.NewPlan(plan=reply.body.plan))

    def receive(self, body: Any) -> None:
        if isinstance(body, control_pb2.RegisterAgain):
            self.register()
        elif isinstance(body, control_pb2.NewPlan):
            self.plans_seen += 1
            if self.plan is None or body.plan.version > self.plan.version:
                self.plan = plan_pb2.PhysicalPlan()
                self.plan.CopyFrom(body.plan)
        elif isinstance(body, control_pb2.FinishTasks):
            self.finish_orders.append(list(body.task_ids))
            for task in body.task_ids:
                if not self.tasks[task].stuck:
                    self.tasks[task].status.state = control_pb2.TASK_FINISHED
        elif isinstance(body, control_pb2.RestartProcesses):
            self.restarted.append(list(body.names))
            self.restart(list(body.names))

    def restart(self, names: list[str]) -> None:
        for task, sim in list(self.tasks.items()):
            name = instance_id(self.container, sim.status.component, task)
            if not names or name in names:
                fresh = self.world.task_kind(task, sim.status.component, self.world.next_epoch(), sim.spout)
                fresh.stuck = sim.stuck
                self.tasks[task] = fresh
                self.failed.pop(name, None)
        if not names or self.name in names:
            self.epoch += 1
            self.plan = None
            self.registered = False

    def heartbeat(self) -> None:
        if self.silent:
            return
        if not self.registered:
            self.register()
        for task in self.tasks.values():
            task.apply(self.plan)
        beat = control_pb2.StmgrHeartbeat()
        beat.CopyFrom(self.beat)
        beat.stmgr_id, beat.epoch = self.name, self.epoch
        beat.plan_version = self.plan.version if self.plan is not None else 0
        beat.tasks.extend(self.statuses())
        self.world.feed(events.StmgrBeat(self.peer, beat))

    def processes(self) -> list[control_pb2.ProcessRecord]:
        names = [
            self.name,
            *(instance_id(self.container, one.status.component, task) for task, one in self.tasks.items()),
        ]
        if self.container == 1 and self.world.process != "tmaster":
            names.append(self.world.process)
        running = [control_pb2.ProcessRecord(name=name, state=control_pb2.PROC_RUNNING) for name in names]
        return [*(one for one in running if one.name not in self.failed), *self.failed.values()]

    def executor_beat(self) -> None:
        message = control_pb2.ExecutorHeartbeat(
            container=self.container, epoch=self.executor_epoch, processes=self.processes()
        )
        self.world.feed(events.ExecutorBeat(self.executor_peer, message))


class World:
    """See the module."""

    task_kind = SimTask

    def __init__(
        self,
        *,
        containers: int = 2,
        spouts: dict[str, int] | None = None,
        bolts: dict[str, int] | None = None,
        active: bool = True,
        settings: TmasterSettings | None = None,
        asking: str = "",
        process: str = "tmaster",
        submitted: plan_pb2.ExecutionState | None = None,
    ) -> None:
        self.submitted = submitted
        #: The topology master's, which a standby of container 1 can be.
        self.process = process
        self.settings = settings or TmasterSettings()
        self.now = 100.0
        self._epochs = 0
        self._tokens = 0
        self.epoch = 0
        self.unstartable: set[int] = set()
        self.replies: dict[int, Reply] = {}
        self.notes: list[str] = []
        self.writes: list[Node] = []
        self.topology = make_topology(spouts or {"word": 2}, bolts or {"count": 2}, active=active)
        for bolt in self.topology.bolts:
            bolt.comp.asks_readiness = bolt.comp.name == asking
        packing = make_packing(self.topology, containers)
        self.store: dict[Node, Any] = {Node.TOPOLOGY: self.topology, Node.PACKING_PLAN: packing}
        self.sims: dict[int, SimStmgr] = {}
        self.container_0_restarts = 0
        self.start_master()
        self.reconcile()

    def next_epoch(self) -> int:
        self._epochs += 1
        return self._epochs

    def start_master(self) -> None:
        """A new topology master takes over what is stored."""
        self.epoch += 1
        self.machine = TopologyMaster(
            self.settings,
            self.epoch,
            topology=self.store[Node.TOPOLOGY],
            packing=self.store[Node.PACKING_PLAN],
            previous=self.store.get(Node.PHYSICAL_PLAN),
            intent=self.store.get(Node.UPDATE),
            submitted=self.submitted,
            process=self.process,
        )
        self.perform(self.machine.begin(self.now))
        self.machine.validate()
        zero = control_pb2.RegisterExecutor(container=0, epoch=1)
        self.ask(events.ExecutorRegistered, b"x0", zero)

    def reconcile(self) -> None:
        packing = self.store[Node.PACKING_PLAN]
        numbers = {container.id for container in packing.containers}
        for number in self.sims.keys() - numbers:
            del self.sims[number]
        for number in numbers:
            self.sims.setdefault(number, SimStmgr(self, number)).reconcile(packing)

    # ---- the shell's part -------------------------------------------------------------------

    def feed(self, event: events.Event) -> None:
        effects = self.machine.handle(event, self.now)
        self.machine.validate()
        self.perform(effects)

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                self.writes.append(effect.node)
                self.persist(effect)
            elif isinstance(effect, Reply):
                assert effect.request not in self.replies, "answered twice"
                self.replies[effect.request] = effect
            elif isinstance(effect, Send):
                for peer in effect.peers:
                    self._deliver(peer, effect.body)
            elif isinstance(effect, Note):
                self.notes.append(effect.text)

    def persist(self, effect: Persist) -> None:
        if effect.value is None:
            self.store.pop(effect.node, None)
            return
        before = self.store.get(effect.node)
        if effect.node in (Node.PHYSICAL_PLAN, Node.PACKING_PLAN) and before is not None:
            repeated = effect.node is Node.PACKING_PLAN and before == effect.value
            assert effect.value.version > before.version or repeated, f"{effect.node} did not grow"
        self.store[effect.node] = type(effect.value).FromString(effect.value.SerializeToString())

    def _deliver(self, peer: bytes, body: Any) -> None:
        if isinstance(body, control_pb2.NewPlan):
            stored = self.store[Node.PHYSICAL_PLAN]
            assert body.plan.version <= stored.version, "a plan was sent before it was stored"
        if peer == b"x0":
            self.container_0_restarts += 1
            return
        for sim in self.sims.values():
            if peer in (sim.peer, sim.executor_peer) and not sim.silent:
                sim.receive(body)
                return

    def token(self) -> int:
        self._tokens += 1
        return self._tokens

    def ask(self, kind: Any, peer: bytes, message: Any) -> Reply:
        token = self.token()
        self.feed(kind(peer, token, message))
        return self.replies[token]

    def request(self, kind: Any, *arguments: Any) -> int:
        token = self.token()
        self.feed(kind(token, *arguments))
        return token

    # ---- time -------------------------------------------------------------------------------

    def tick(self, seconds: float) -> None:
        """Let time pass, with ticks exactly where the machine wants them."""
        end = self.now + seconds
        while (due := self.machine.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.feed(events.Tick())
            if self.machine.next_deadline() == due:
                break
        self.now = end

    def round(self, seconds: float = 1.0) -> None:
        """One heartbeat interval."""
        self.tick(seconds)
        self.reconcile()
        self.feed(events.ExecutorBeat(b"x0", control_pb2.ExecutorHeartbeat(container=0, epoch=1)))
        for sim in list(self.sims.values()):
            sim.heartbeat()
            sim.executor_beat()

    def rounds(self, count: int, seconds: float = 1.0) -> None:
        for _ in range(count):
            self.round(seconds)

    def until(self, condition: Any, limit: int = 200) -> None:
        for _ in range(limit):
            if condition():
                return
            self.round()
        raise AssertionError(f"did not happen: {self.status().cause}; {self.notes[-5:]}")

    def answer(self, token: int) -> Reply:
        self.until(lambda: token in self.replies)
        return self.replies[token]

    def status(self) -> control_pb2.StatusReply:
        return self.machine.status(self.now)

    @property
    def life(self) -> int:
        return self.machine.lifecycle

    def running(self) -> World:
        self.until(lambda: self.life in (control_pb2.LIFE_RUNNING, control_pb2.LIFE_PAUSED))
        return self

    def task(self, task_id: int) -> SimTask:
        return next(sim.tasks[task_id] for sim in self.sims.values() if task_id in sim.tasks)

    def tasks(self) -> list[SimTask]:
        return [task for sim in self.sims.values() for task in sim.tasks.values()]

    def packing(self) -> plan_pb2.PackingPlan:
        copy = plan_pb2.PackingPlan()
        copy.CopyFrom(self.store[Node.PACKING_PLAN])
        return copy

    def update(self, packing: plan_pb2.PackingPlan, parallelism: dict[str, int], *, drain_s: float = 0.0) -> int:
        """Ask for an update to a packing plan with this parallelism."""
        topology = topology_pb2.Topology()
        topology.CopyFrom(self.machine.shared.book.topology)
        for part in (*topology.spouts, *topology.bolts):
            if part.comp.name in parallelism:
                part.comp.config.kvs[0].value = str(parallelism[part.comp.name])
        message = control_pb2.UpdateTopology(
            topology=topology,
            packing_plan=packing,
            expected_version=self.store[Node.PACKING_PLAN].version,
            drain_timeout_s=drain_s,
        )
        return self.request(events.UpdateRequested, message)


def with_task(packing: plan_pb2.PackingPlan, container: int, task: int, component: str = "count") -> None:
    for item in packing.containers:
        if item.id == container:
            item.instances.add(component=component, task_id=task, component_index=9)
            return
    new = packing.containers.add(id=container)
    new.required.cpu = 1
    new.instances.add(component=component, task_id=task, component_index=9)


def without_task(packing: plan_pb2.PackingPlan, task: int) -> None:
    for container in list(packing.containers):
        for index, instance in enumerate(container.instances):
            if instance.task_id == task:
                del container.instances[index]
                break
        if not container.instances:
            packing.containers.remove(container)


def tasks_of(message: plan_pb2.PackingPlan | plan_pb2.PhysicalPlan) -> set[int]:
    if isinstance(message, plan_pb2.PhysicalPlan):
        return {i.task_id for i in message.instances}
    return {i.task_id for c in message.containers for i in c.instances}
