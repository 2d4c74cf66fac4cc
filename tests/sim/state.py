"""The model of the state manager: the contract of `heronpy.statemgr`, with outages, sessions and slow watches.

The nodes themselves are those of `MemoryStateManager`. A session's ephemerals go with its process: at once,
as with file locks, or when a session expires, as in ZooKeeper, where a process that is stopped for long
loses them, too, and goes on with a new session when it wakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from heronpy.common.errors import DeadlineError, StateAwayError
from tests.sim.kernel import Process, Thread, World, current_process, spend
from tests.support.memory_state import MemoryStateManager, MemoryStore


class StateModel:
    """What all sessions share."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = MemoryStore()
        self.rng = world.chance("state")
        self.away = False
        #: Seconds from the end of a process to the end of its ephemerals.
        self.session_s = 0.0
        self.slow_s = 0.002
        self.watch_s = 0.01
        #: Called with (process, path) after a successful write.
        self.on_write: list[Callable[[Process, str], None]] = []

    def open(self) -> Session:
        """A session of the process that runs."""
        return Session(self, current_process())

    def outage(self, duration_s: float) -> None:
        """No process can read or write for a while."""
        self.away = True
        self.world.later(duration_s, self._back)

    def _back(self) -> None:
        self.away = False
        self.world.trace.note("state", "is back")

    def stopped(self, process: Process) -> None:
        """A process was stopped: its sessions may expire."""
        for session in process.sessions:
            if self.session_s:
                self.world.later(self.session_s, session.expire_if_stopped)


class Session(MemoryStateManager):
    """The state manager as one process has it."""

    def __init__(self, model: StateModel, process: Process) -> None:
        super().__init__(model.store)
        self._model = model
        self._process = process
        process.sessions.append(self)
        process.on_exit.append(lambda _: self._process_ended())

    def _process_ended(self) -> None:
        self._model.world.later(self._model.session_s, self._expire)

    def _expire(self) -> None:
        if not self._closed:
            self.die()

    def expire_if_stopped(self) -> None:
        """The session is over, and another one begins when the process goes on."""
        if self._process.alive and self._process.stopped and not self._model.away:
            with self.store.changed:
                mine = [path for path, node in self.store.nodes.items() if node.owner is self]
                for path in mine:
                    del self.store.nodes[path]
            if mine:
                self._model.world.trace.note("state", f"session of {self._process.name} expired: {mine}")
            self._fire(mine)

    def _reach(self) -> None:
        model = self._model
        self._process.operate()
        if Thread.current() is not None:
            spend(model.rng.uniform(0.0001, model.slow_s))
        if model.away:
            raise StateAwayError("the state manager is away; it is tried again")

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        self._reach()
        super().create(path, data, ephemeral)
        self._wrote(path)

    def get(self, path: str) -> tuple[bytes, int] | None:
        self._reach()
        return super().get(path)

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        self._reach()
        result = super().set(path, data, version)
        self._wrote(path)
        return result

    def delete(self, path: str, version: int | None = None) -> None:
        self._reach()
        super().delete(path, version)
        self._wrote(path)

    def counter(self, path: str) -> int:
        self._reach()
        return super().counter(path)

    def _wrote(self, path: str) -> None:
        self._model.world.trace.note("state", f"{self._process.name} wrote {path}")
        for heard in self._model.on_write:
            heard(self._process, path)
        # It may die before it learns that it has written.
        self._process.operate()

    def watch(self, path: str, callback: Callable[[str], None]) -> Any:
        process, model = self._process, self._model

        def changed(where: str) -> None:
            process.later(model.rng.uniform(0.0, model.watch_s), callback, where)

        return super().watch(path, changed)

    @contextmanager
    def lock(self, path: str, timeout_s: float = 10.0) -> Iterator[None]:
        deadline = self._model.world.now + timeout_s
        while path in self.store.locks:
            if self._model.world.now >= deadline:
                raise DeadlineError(f"lock {path!r} is still held by another process after {timeout_s:g} s")
            spend(0.05)
        self._reach()
        self.store.locks[path] = self
        try:
            yield
        finally:
            if self.store.locks.get(path) is self:
                del self.store.locks[path]
