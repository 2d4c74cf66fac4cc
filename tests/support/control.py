"""A fake of the control thread of a task."""

from __future__ import annotations

from collections import deque
from typing import Any

from instance.control import Message


class FakeControl:
    """A fake control thread, with the interface that the task's loop uses."""

    wake_fd = -1

    def __init__(self) -> None:
        self.inbox: deque[Message] = deque()
        self.interrupted: deque[bool] = deque(maxlen=1)
        self.calm = False
        self.sent: tuple[int, ...] = ()
        self.reports: list[Any] = []

    def notify(self, metrics: bool = False) -> None: ...

    def interrupt(self) -> None:
        self.interrupted.append(True)

    def drain_wake(self) -> None:
        self.interrupted.clear()

    def stop(self, timeout_s: float) -> None: ...

    def publish(self, message: Any) -> None:
        self.reports.append(message)

    def deliver(self, message: Message) -> None:
        self.inbox.append(message)
        self.interrupt()
