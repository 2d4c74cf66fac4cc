"""What stands in for `time`, `os`, `select`, `threading`, `zmq` and others while the product is simulated.

`installed()` replaces, in every loaded module of the product, the modules of the real machine by these; the
product's own code stays as it is. Only names are replaced: nothing in the product knows of the simulation.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import zmq

from tests.sim.disk import StorageOs
from tests.sim.kernel import Thread, active_world, current_process, spend, wait_readable, wake_all
from tests.sim.sockets import ContextOf, Pipe, SimPoller

ROOMS = ("heronpy", "stmgr", "instance")


class Stand:
    """Has what it defines, and all else of the real thing."""

    real: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Time(Stand):
    real = time

    @staticmethod
    def monotonic() -> float:
        world = active_world()
        if world.current is not None:
            world.current.look()
        return world.now

    perf_counter = monotonic

    @staticmethod
    def monotonic_ns() -> int:
        return round(Time.monotonic() * 1e9)

    @staticmethod
    def time() -> float:
        return active_world().now + 1.7e9

    @staticmethod
    def time_ns() -> int:
        return round(Time.time() * 1e9)

    @staticmethod
    def sleep(seconds: float) -> None:
        spend(seconds)


class Os(Stand):
    real = os

    @staticmethod
    def getpid() -> int:
        return current_process().pid

    @staticmethod
    def urandom(size: int) -> bytes:
        return current_process().rng.randbytes(size)

    @staticmethod
    def pipe2(flags: int) -> tuple[int, int]:
        process, pipe = current_process(), Pipe()
        return process.open_fd(pipe), process.open_fd(pipe)

    @staticmethod
    def write(fd: int, data: bytes) -> int:
        pipe = current_process().fds[fd]
        pipe.count += len(data)
        wake_all(pipe.waiters)
        return len(data)

    @staticmethod
    def read(fd: int, size: int) -> bytes:
        pipe = current_process().fds[fd]
        if not pipe.count:
            raise BlockingIOError
        taken, pipe.count = min(size, pipe.count), max(0, pipe.count - size)
        return b"!" * taken

    @staticmethod
    def close(fd: int) -> None:
        """Descriptors end with their process."""

    @staticmethod
    def register_at_fork(**hooks: Any) -> None:
        """No process forks here, and the real process must not keep the hooks of a simulated one."""

    @staticmethod
    def fork() -> int:
        raise AssertionError("a simulated process does not fork; set checkpoint.fork_above_bytes high")


class Select(Stand):
    real = select

    @staticmethod
    def select(fds: list[int], _out: Any, _err: Any, timeout_s: float) -> tuple[list[int], list[int], list[int]]:
        process = current_process()
        things = {id(process.fds[fd]): fd for fd in fds}
        ready = wait_readable([process.fds[fd] for fd in fds], timeout_s)
        return [things[id(thing)] for thing in ready], [], []


class Usage(Stand):
    """What getrusage says of this process, with another number of voluntary context switches."""

    def __init__(self, real: Any, waits: int) -> None:
        self.real = real
        self.ru_nvcsw = waits


class Resource(Stand):
    """A simulated thread has slept where it waited in virtual time; what the real one does is chance."""

    real = resource

    @staticmethod
    def getrusage(who: int) -> Any:
        usage, thread = resource.getrusage(who), Thread.current()
        return Usage(usage, 0 if thread is None else thread.waits) if who == resource.RUSAGE_THREAD else usage


class SimThread:
    def __init__(
        self, target: Callable[..., None], args: tuple[Any, ...] = (), name: str = "", daemon: bool = True
    ) -> None:
        self._thread = Thread(current_process(), partial(target, *args))

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        join_thread(self._thread, timeout)


def join_thread(thread: Thread, timeout_s: float | None) -> None:
    current = Thread.current()
    if current is not None and not thread.done:
        thread.joiners.append(current)
        current.park(timeout_s)


class SimEvent:
    def __init__(self) -> None:
        self._on = False
        self.waiters: list[Thread] = []

    def readable(self) -> bool:
        return self._on

    def is_set(self) -> bool:
        return self._on

    def set(self) -> None:
        self._on = True
        wake_all(self.waiters)

    def wait(self, timeout: float | None = None) -> bool:
        return bool(wait_readable([self], timeout))


class Threading(Stand):
    real = threading
    Thread = SimThread
    Event = SimEvent


class Zmq(Stand):
    real = zmq
    Context = ContextOf
    Poller = SimPoller


class Signal(Stand):
    real = signal

    @staticmethod
    def signal(number: int, handler: Callable[[int, Any], None]) -> None:
        process = current_process()
        process.on_sigterm = lambda: handler(number, None)


class Random(Stand):
    real = random

    @staticmethod
    def SystemRandom() -> random.Random:
        return current_process().rng


class Gc(Stand):
    """The collector of this process belongs to the simulation."""

    real = gc

    @staticmethod
    def collect() -> int:
        return 0

    @staticmethod
    def freeze() -> None:
        """Nothing."""

    @staticmethod
    def set_threshold(*numbers: int) -> None:
        """Nothing."""


class Quiet:
    """A module whose functions do nothing here."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **options: None


class Executor:
    """ThreadPoolExecutor with one thread: one piece of work after the other."""

    def __init__(self, workers: int, name: str) -> None:
        self._queue: list[Callable[[], Any]] = []
        self._thread: Thread | None = None

    def submit(self, work: Callable[..., Any], *args: Any) -> None:
        self._queue.append(partial(work, *args))
        if self._thread is None or self._thread.done:
            self._thread = Thread(current_process(), self._run)
            self._thread.start()

    def _run(self) -> None:
        while self._queue:
            self._queue.pop(0)()

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        self._queue.clear()


_EVERYWHERE: dict[ModuleType, Any] = {time: Time(), zmq: Zmq(), random: Random()}
_OF_TASKS: dict[ModuleType, Any] = {
    os: Os(),
    select: Select(),
    threading: Threading(),
    signal: Signal(),
    resource: Resource(),
    gc: Gc(),
    __import__("faulthandler"): Quiet(),
}


def _replacement(module: str, value: Any) -> Any:
    if not isinstance(value, ModuleType):
        return None
    found = _EVERYWHERE.get(value)
    if found is None and module.startswith(("instance.", "stmgr.")):
        found = _OF_TASKS.get(value)
    if found is None and value is os and module.startswith("heronpy.storage."):
        found = StorageOs()
    if found is None and value is os and module == "heronpy.tmaster.shell":
        found = _OF_TASKS[os]
    return found


@contextmanager
def installed(replacements: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace the machine's modules in all loaded modules of the product, and (owner, name, value) given."""
    done: list[tuple[Any, str, Any]] = []
    try:
        for name, module in sorted(sys.modules.items()):
            if name.partition(".")[0] in ROOMS and module is not None:
                for attribute, value in list(vars(module).items()):
                    replacement = _replacement(name, value)
                    if replacement is not None:
                        done.append((module, attribute, value))
                        setattr(module, attribute, replacement)
        for owner, attribute, value in replacements:
            done.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, attribute, value in reversed(done):
            setattr(owner, attribute, value)
