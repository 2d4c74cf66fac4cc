"""A whole data plane in one process and without sockets: real tasks, real switches.

Each task runs its own loop in a thread of its own up to the point where it would sleep; only one thread
runs at a time. Messages travel through queues, one per pair. For tests of the data plane alone that take
thousands of frames or hundreds of programs; what fails and in which order belongs into tests/sim.
"""

from __future__ import annotations

import random
import select
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

import instance.async_loop
import instance.batch_loop
import instance.bolt_loop
import instance.spout_loop
import instance.task
from heronpy.common.setting_types import InstanceSettings, StmgrSettings
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from instance.batch_loop import BatchBoltTask
from instance.bolt_loop import BoltTask
from instance.link import DataLink
from instance.spout_loop import SpoutTask
from instance.task import CREDIT_EVERY_S, UserError
from stmgr import events
from stmgr.control import Control
from stmgr.events import Signal
from stmgr.shell import apply
from stmgr.switch import Switch
from tests.support.control import FakeControl

#: Small windows, so that credit and backpressure matter after a few frames.
STMGR = replace(
    StmgrSettings(),
    backpressure_high_bytes=3000,
    backpressure_low_bytes=1500,
    link_window_bytes=2000,
    instance_out_window_bytes=2000,
)
INSTANCE = replace(
    InstanceSettings(),
    poison_tries=0,
    # Its clock stands still while nobody looks.
    linger_max_us=0.0,
    batch_tuples=8,
    batch_bytes=600,
    in_queue_bytes_max=1500,
    out_queue_bytes_max=2500,
)
#: Of all tasks but the ones that a test asks for.
LIMIT = 200_000


class Clock:
    """Stands in for the module `time`: each look at it takes a microsecond."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now

    time = monotonic


class Killed(BaseException):
    """SIGKILL, as seen from inside."""


class Fiber:
    """A function in a thread that runs only while `resume` waits for it."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._go, self._parked = threading.Semaphore(0), threading.Semaphore(0)
        self._dead = False
        self.done = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        try:
            self._go.acquire()
            if not self._dead:
                self._run()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self._parked.release()

    def resume(self) -> None:
        """Run it until it parks or ends."""
        self._go.release()
        assert self._parked.acquire(timeout=60), "a task neither sleeps nor ends"

    def park(self) -> None:
        """Called inside: give way until the next `resume`."""
        self._parked.release()
        self._go.acquire()
        if self._dead:
            raise Killed

    def kill(self) -> None:
        if not self.done:
            self._dead = True
            self.resume()
        self._thread.join(10)


class FakeSocket:
    """A DEALER whose other end is a switch."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.inbox: deque[tuple[bytes, bytes]] = deque()
        self.identity = b""
        self.open = True

    def setsockopt(self, option: int, value: Any) -> None:
        if option == zmq.IDENTITY:
            self.identity = value

    def getsockopt(self, option: int) -> int:
        return int(zmq.POLLIN) if option == zmq.EVENTS and self.inbox else 0

    def connect(self, endpoint: str) -> None:
        self.plane.sockets[self.identity] = self

    def send_multipart(self, parts: Any, flags: int = 0) -> None:
        self.plane.channel(self.identity, "in").append(tuple(parts))

    def recv_multipart(self, flags: int = 0) -> tuple[bytes, bytes]:
        if not self.inbox:
            raise zmq.Again
        return self.inbox.popleft()

    def close(self, linger: int = 0) -> None:
        self.open = False
        if self.plane.sockets.get(self.identity) is self:
            del self.plane.sockets[self.identity]


class FakeUser:
    """What instance.user_code.UserCode is to a task, around an object that the test made."""

    serialize = deserialize = None

    def __init__(self, task: Any, plan: Any) -> None:
        self.reliability = task.launch.reliability
        self.config = dict(task.launch.config)
        self.context = SimpleNamespace(has_hooks=False)
        self.delegate = SimpleNamespace(task_id=task.task_id)
        self.custom_groupings: dict[Any, Any] = dict(task.launch.custom)
        self._make = task.launch.make[task.component]
        self.object: Any = None

    def construct(self) -> None:
        self.object = self._make(self.delegate)

    def initialize(self) -> None: ...

    def plan_changed(self, plan: Any, components: Any) -> None: ...

    def tick_interval_s(self) -> None:
        return None

    def close(self) -> None: ...


class UserObject:
    """Base of the test's spouts and bolts: the calls of the API, thin."""

    def __init__(self, delegate: Any) -> None:
        self.delegate = delegate
        self.task_id: int = delegate.task_id

    def emit(self, *args: Any, **kwargs: Any) -> Any:
        return self.delegate.emit(*args, **kwargs)

    def ack(self, tup: Any) -> None:
        self.delegate.ack(tup)

    def fail(self, tup: Any) -> None:
        self.delegate.fail(tup)

    def activate(self) -> None: ...

    def deactivate(self) -> None: ...

    def process_tick(self, tup: Any) -> None: ...

    def finish(self) -> None: ...


class Container:
    """A switch and what the stream manager's shell does around it."""

    def __init__(self, plane: Plane, number: int, epoch: int) -> None:
        self.plane, self.number, self.epoch = plane, number, epoch
        self.name = f"stmgr-{number}"
        self.switch = Switch(plane.stmgr_settings, self.send, plane.clock.monotonic)
        self.machine = Control(plane.stmgr_settings, number, epoch, self.switch.backpressure, 1.0)
        self.switch.on_pressure = lambda: self.feed(Signal.PRESSURE_CHANGED)
        self.switch.on_removed = lambda task: self.feed(events.TaskRemoved(task))
        self.switch.on_credit_owed = lambda: plane.owed.add(number)

    def identity(self) -> bytes:
        return f"s:{self.name}:{self.epoch}".encode()

    def send(self, identity: bytes, header: bytes, data: bytes) -> bool:
        if identity.startswith(b"s:"):
            peer = int(identity.decode().split(":")[1].removeprefix("stmgr-"))
            self.plane.channel(identity, f"back-{self.number}-{peer}").append((header, data))
            return True
        sock = self.plane.sockets.get(identity)
        if sock is None:
            return False
        self.plane.channel(identity, "out").append((header, data))
        return True

    def feed(self, event: events.Event) -> list[events.Effect]:
        """What the shell does; messages and links are the plane's own."""
        effects = self.machine.handle(event, self.plane.clock.monotonic())
        for effect in effects:
            apply(self.switch, effect)
            if isinstance(effect, events.SwitchPlan):
                self.feed(Signal.PLAN_IN_FORCE)
            elif isinstance(effect, events.Announce):
                for other in self.plane.containers.values():
                    if other is not self:
                        other.feed(events.PressureHeard(effect.message))
        return effects

    def connect(self, other: Container) -> None:
        """(Re)open the link to another container."""

        def transmit(header: bytes, data: bytes) -> bool:
            self.plane.channel(self.identity(), f"peer-{self.number}-{other.number}").append((header, data))
            return True

        self.switch.close_peer(other.name)
        self.plane.drop_channels(f"peer-{self.number}-{other.number}", f"back-{other.number}-{self.number}")
        self.switch.add_peer(other.name, other.epoch, transmit)
        self.switch.open_peer(other.name, self.machine.next_link_epoch())

    def check(self) -> None:
        """Every tuple of every accepted frame is somewhere, or counted."""
        switch = self.switch
        links = [t.link for t in switch.tasks.values()] + [p.link for p in switch.peers.values()]
        for link in links:
            assert link.queued_bytes == sum(len(w.data) for w in link.waiting())
            assert link.queued_tuples == sum(w.tuples for w in link.waiting())
            assert link.in_flight() == sum(w.tuples for w in link.retained) >= 0
        taken = switch.counts["tuples_from_workers"] + switch.counts["tuples_from_stmgrs"]
        consumed = sum(link.total_consumed for link in links) + switch.counts["tuples_consumed"]
        given_up = sum(n for reason, n in switch.discarded.items() if reason != "stale link")
        assert taken == consumed + switch.queued()[1] + switch.in_flight() + given_up


class Plane:
    """The data plane of one topology; `make` gives the user's object of each component."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        topology: topology_pb2.Topology,
        tasks: dict[int, tuple[str, int]],
        make: dict[str, Callable[[Any], Any]],
        *,
        seed: int = 0,
        reliability: str = "ATMOST_ONCE",
        config: dict[str, Any] | None = None,
        instance_settings: InstanceSettings = INSTANCE,
        stmgr_settings: StmgrSettings = STMGR,
        custom: dict[Any, Any] | None = None,
        batching: Collection[str] = (),
    ) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        for module in (
            instance.task,
            instance.spout_loop,
            instance.bolt_loop,
            instance.batch_loop,
            instance.async_loop,
        ):
            monkeypatch.setattr(module, "time", self.clock)
        monkeypatch.setattr(instance.task, "UserCode", FakeUser)
        monkeypatch.setattr(instance.task, "_random_bits", lambda: lambda: self.rng.getrandbits(64))
        self.topology = topology
        #: The components whose bolts take batches.
        self.batching = batching
        self.places = dict(tasks)
        #: Tasks that are not in the plan any more.
        self.removed: set[int] = set()
        self.launch = SimpleNamespace(
            make=make, reliability=reliability, config=config or {}, sockets_dir="/", custom=custom or {}
        )
        self.instance_settings, self.stmgr_settings = instance_settings, stmgr_settings
        self.sockets: dict[bytes, FakeSocket] = {}
        self.channels: dict[tuple[bytes, str], deque[tuple[bytes, bytes]]] = {}
        self.owed: set[int] = set()
        self.tasks: dict[int, Any] = {}
        self.epochs: dict[int, int] = {}
        self.fibers: dict[int, Fiber] = {}
        self.failures: list[tuple[int, BaseException]] = []
        self.version = 0
        self.containers = {n: Container(self, n, 1) for n in sorted({c for _, c in tasks.values()})}
        self.publish()
        for container in self.containers.values():
            for other in self.containers.values():
                if other is not container:
                    container.connect(other)
        for task_id in tasks:
            self.start(task_id)

    # ---- plan ---------------------------------------------------------------------------------

    def publish(self) -> None:
        """A new plan for the present places."""
        self.version += 1
        plan = plan_pb2.PhysicalPlan(version=self.version)
        plan.topology.CopyFrom(self.topology)
        for task_id, (component, container) in self.places.items():
            if task_id in self.removed:
                continue
            plan.instances.add(task_id=task_id, component=component, container=container)
        self.plan = plan
        for container in self.containers.values():
            container.feed(events.PlanReceived(plan))
        for task in self.tasks.values():
            task.control.deliver(control_pb2.NewPlan(plan=plan))

    # ---- processes ----------------------------------------------------------------------------

    def start(self, task_id: int) -> Any:
        """Start the next incarnation of a task."""
        component, container = self.places[task_id]
        epoch = self.epochs[task_id] = self.epochs.get(task_id, 0) + 1
        spout = component in {spout.comp.name for spout in self.topology.spouts}
        kind = SpoutTask if spout else BatchBoltTask if component in self.batching else BoltTask
        task = kind(self.launch, self.instance_settings, 1.0, container, task_id, epoch)
        task.topology, task.component, task.instance_id = self.topology, component, f"{component}-{task_id}"
        task._frame_max_bytes, task._instance_lost_s = self.stmgr_settings.frame_max_bytes, 10.0
        task.control = FakeControl()
        task.link = DataLink(task_id, f"t:{task_id}:{epoch}".encode(), "ipc://x", 1 << 26, -1)
        task.link._context = SimpleNamespace(socket=lambda kind: FakeSocket(self))
        task.sleep = lambda timeout_s, *, frames=True, also=-1: self._sleep(task, timeout_s, also)
        self.register(task)
        task.serve_inbox()
        task.build(self.plan)
        task.bind_emit()
        task.state = control_pb2.TASK_RUNNING
        if spout:
            task._stream_names = list(task.emitter.streams)
        self.tasks[task_id] = task
        self.fibers[task_id] = Fiber(task._turns)
        return task

    def register(self, task: Any) -> None:
        message = control_pb2.RegisterInstance(task_id=task.task_id, component=task.component, epoch=task.epoch)
        identity = f"t:{task.task_id}:{task.epoch}".encode()
        effects = self.containers[task.container].feed(events.TaskRegistered(1, identity, message))
        (reply,) = [effect for effect in effects if isinstance(effect, events.Reply)]
        task.control.deliver(reply.body)

    def _sleep(self, task: Any, timeout_s: float, also: int) -> bool:
        if task._waiting or isinstance(task, SpoutTask) or timeout_s > CREDIT_EVERY_S:
            self.fibers[task.task_id].park()
        else:  # it waits to return credit, which nothing interrupts here
            self.clock.now += timeout_s
        return also >= 0 and bool(select.select([also], [], [], 0)[0])

    def turn(self, task_id: int) -> None:
        """Let a task run until it sleeps."""
        task, fiber = self.tasks.get(task_id), self.fibers.get(task_id)
        if task is None or fiber is None:
            return
        fiber.resume()
        if not fiber.done:
            return
        if isinstance(fiber.error, UserError):
            cause = fiber.error.__cause__
            assert cause is not None
            if isinstance(cause, AssertionError):
                raise cause
            self.failures.append((task_id, cause))
        elif fiber.error is not None:
            raise fiber.error
        self._end(task)
        if fiber.error is not None:
            self.start(task_id)

    def _end(self, task: Any) -> None:
        """The orderly end of a process; what it sent arrives."""
        del self.tasks[task.task_id], self.fibers[task.task_id]
        task.leave()
        channel = self.channel(task.link._identity, "in")
        while channel:
            self.deliver((task.link._identity, "in"))

    def close(self) -> None:
        for fiber in self.fibers.values():
            fiber.kill()

    # ---- messages -----------------------------------------------------------------------------

    def channel(self, identity: bytes, what: str) -> deque[tuple[bytes, bytes]]:
        return self.channels.setdefault((identity, what), deque())

    def drop_channels(self, *names: str) -> None:
        for (_, what), channel in self.channels.items():
            if what in names:
                channel.clear()

    def deliver(self, key: tuple[bytes, str]) -> None:
        identity, what = key
        header, data = self.channels[key].popleft()
        if what == "in":
            task_id = int(identity.split(b":")[1])
            self.containers[self.places[task_id][1]].switch.receive([identity, header, data])
        elif what == "out":
            sock = self.sockets.get(identity)
            if sock is not None:
                sock.inbox.append((header, data))
        elif what.startswith("peer"):
            self.containers[int(what.split("-")[2])].switch.receive([identity, header, data])
        else:
            _, source, target = what.split("-")
            container = self.containers[int(target)]
            if identity == container.identity():
                container.switch.peer_credit(f"stmgr-{source}", header, data)

    # ---- running ------------------------------------------------------------------------------

    def settle_credit(self, number: int) -> None:
        self.owed.discard(number)
        self.containers[number].switch.settle_credit()

    def check(self) -> None:
        for container in self.containers.values():
            container.check()
        for task in self.tasks.values():
            assert 0 <= task.link.credited_tuples <= task.link.sent_tuples, task.instance_id
            if isinstance(task, BoltTask):
                task.in_queue.validate()

    def settle(self) -> None:
        """Let everything happen that can."""
        for _ in range(LIMIT):
            moved = False
            for key in list(self.channels):
                while self.channels[key]:
                    self.deliver(key)
                    moved = True
            for number in list(self.owed):
                self.settle_credit(number)
                moved = True
            before = self._activity()
            for task_id in list(self.tasks):
                self.turn(task_id)
            for container in self.containers.values():
                container.feed(Signal.TICK)
            self.check()
            if not moved and self._activity() == before and not any(self.channels.values()):
                return
        raise AssertionError("the data plane does not come to rest")

    def _activity(self) -> tuple[Any, ...]:
        return tuple(
            (t.task_id, t.epoch, t.emitter.emitted(), t.progress.executed, t.progress.acked, t.progress.failed)
            for t in self.tasks.values()
        )
