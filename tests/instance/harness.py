"""One task of a test, with a fake socket and a fake control thread; and the test as a coroutine in its loop."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import zmq

from heronpy.api.topology import TopologyBuilder
from heronpy.common.setting_types import InstanceSettings, StmgrSettings
from heronpy.proto import control_pb2, plan_pb2
from heronpy.task.name import TaskName
from heronpy.wire.frames import LINK_HEADER, Frame, header_and_frame, message_of
from instance.control import Message
from instance.link import DataLink, drain
from instance.task import UserError
from tests.support.control import FakeControl


class FakeSocket:
    """A DEALER that keeps what is sent. Its descriptor is quiet once it was asked for events, as ZeroMQ's is."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, Frame]] = []
        self.inbox: deque[list[bytes]] = deque()
        self.closed = False
        self.events, self._signal = os.pipe2(os.O_NONBLOCK)

    def poke(self) -> None:
        """Make the descriptor readable."""
        os.write(self._signal, b"!")

    def setsockopt(self, option: int, value: Any) -> None: ...

    def connect(self, endpoint: str) -> None: ...

    def getsockopt(self, option: int) -> int:
        if option != zmq.EVENTS:
            return self.events
        if not self.inbox:
            drain(self.events)
        return int(zmq.POLLIN) if self.inbox else 0

    def send_multipart(self, parts: list[bytes], flags: int = 0) -> None:
        header, frame = header_and_frame(parts)
        self.sent.append((*LINK_HEADER.unpack(header), Frame.FromString(frame)))

    def recv_multipart(self, flags: int = 0) -> list[bytes]:
        if not self.inbox:
            raise zmq.Again
        return self.inbox.popleft()

    def close(self, linger: int = 0) -> None:
        if not self.closed:
            self.closed = True
            os.close(self.events)
            os.close(self._signal)


class FakeContext:
    """Makes the sockets of one link, and keeps them."""

    def __init__(self) -> None:
        self.made: list[FakeSocket] = []

    def socket(self, kind: int) -> FakeSocket:
        self.made.append(FakeSocket())
        return self.made[-1]

    def close(self) -> None:
        for sock in self.made:
            sock.close()


class TaskHarness:
    """A task that has joined its plan; `run` runs its loop. Tasks are numbered in the order of their components."""

    def __init__(self, kind: type[Any], made: TopologyBuilder, component: str, settings: InstanceSettings) -> None:
        topology = made.build()
        plan = plan_pb2.PhysicalPlan(version=1, topology=topology)
        names = [part.comp.name for part in (*topology.spouts, *topology.bolts)]
        for number, name in enumerate(names, 1):
            plan.instances.add(task_id=number, component=name, container=1)
        own = names.index(component) + 1
        launch = SimpleNamespace(
            package_archive=None,
            package_dir=None,
            main_file=None,
            argv=[],
            working_dir="",
            topology_id="wc-1",
            sockets_dir="",
        )
        self.task = task = kind(launch, settings, StmgrSettings(), TaskName(own, 1, component, 1))
        self.control = task.control = FakeControl()
        self.control.wake_fd, self.wake = os.pipe2(os.O_NONBLOCK)
        self.context: Any = FakeContext()
        task.link = DataLink(own, b"t:1", "ipc://x", 1 << 26, self.control.wake_fd, self.context)
        task.registered(control_pb2.RegisterInstanceReply(link_epoch=9))
        task.build(plan)
        task.bind_emit()
        self.user: Any = task.user.object
        self.seq = 0

    def come(self, frame: Frame) -> None:
        """A frame of the stream manager."""
        self.seq += 1
        sock = self.context.made[-1]
        sock.inbox.append(message_of(LINK_HEADER.pack(self.task.link.epoch, self.seq), frame.SerializeToString()))
        sock.poke()

    def order(self, message: Message) -> None:
        """A message of the control thread."""
        self.control.deliver(message)
        os.write(self.wake, b"!")

    def stop(self) -> None:
        self.order(control_pb2.StopTask(reason="test"))

    def sent(self, kind: int) -> list[Frame]:
        """The frames of a kind that the current link has sent."""
        return [frame for _, _, frame in self.context.made[-1].sent if frame.kind == kind]

    def run_task(self) -> None:
        """The task's loop, then its orderly end; raises what user code raised."""
        try:
            self.task.run_loop()
        except UserError as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None
        finally:
            self.task.leave()

    def close(self) -> None:
        self.context.close()
        os.close(self.wake)
        os.close(self.control.wake_fd)


@contextmanager
def closing(kind: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Makes harnesses, and closes them."""
    made: list[Any] = []

    def make(*args: Any, **options: Any) -> Any:
        made.append(kind(*args, **options))
        return made[-1]

    try:
        yield make
    finally:
        for harness in made:
            harness.close()
