"""The kernel of the simulation: virtual time, one heap of events, processes and their threads.

Everything runs in one thread of the real machine. A simulated thread is a greenlet that runs until it
would wait; an event loop of a process runs one callback at a time; each step is an event of the heap, in
the order of (time, sequence). All chance comes from one seed, so a seed always gives the same run.

Invariants: a dead process never runs again and nothing that it does any more has an effect; what is meant
for a stopped process waits until it is continued; time never goes back.
"""

from __future__ import annotations

import heapq
import random
import traceback
from asyncio import _get_running_loop, _set_running_loop
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from tests.sim.trace import Trace

#: Time of a step of a process, in seconds: from waking up to acting.
STEP_MIN_S, STEP_MAX_S = 2e-6, 40e-6
START_S = 1000.0
#: Looks at sockets and clocks in one step, beyond which a process goes round in circles.
LOOKS_MAX = 100_000


class Dead(BaseException):
    """The process died in the middle of this call."""


class Unsettled(AssertionError):
    """Too many events: something goes round in circles."""


class World:
    """Time, events, processes, chance."""

    active: World | None = None

    def __init__(self, seed: int, events_max: int = 3_000_000) -> None:
        self.seed = seed
        self.now = START_S
        self.trace = Trace(self)
        self.rng = self.chance("world")
        self.current: Process | None = None
        self.processes: list[Process] = []
        self.hub = getcurrent()
        self.closed = False
        self.events = 0
        self.events_max = events_max
        #: What was found to be wrong, in order.
        self.violations: list[str] = []
        #: How much longer a step takes now and then: (probability, seconds).
        self.hiccups = (0.0, 0.0)
        self._heap: list[tuple[float, int, Process | None, Callable[..., Any], tuple[Any, ...]]] = []
        self._sequence = 0
        self._pid = 100

    def chance(self, name: str) -> random.Random:
        """A source of chance of its own, so that one more draw here changes nothing there."""
        return random.Random(f"{self.seed}:{name}")

    # ---- events -------------------------------------------------------------------------------

    def at(self, when: float, process: Process | None, call: Callable[..., Any], *args: Any) -> None:
        """Call at a time, as the process, if it lives then."""
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, process, call, args))

    def later(self, delay_s: float, call: Callable[..., Any], *args: Any) -> None:
        """Call after a while, outside of all processes: for the network, the disk, a fault."""
        self.at(self.now + delay_s, None, call, *args)

    def run(self, until: float, done: Callable[[], bool]) -> bool:
        """Step until `done` or the time is over; whether it is done."""
        while self._heap and not self.violations:
            if self._heap[0][0] > until:
                self.now = until
                return done()
            self.step()
            if done():
                return True
        return done()

    def step(self) -> None:
        """The next event."""
        self.events += 1
        if self.events > self.events_max:
            raise Unsettled(f"more than {self.events_max} events by {self.now - START_S:.3f} s")
        when, _, process, call, args = heapq.heappop(self._heap)
        self.now = max(self.now, when)
        if process is None:
            call(*args)
            return
        if not process.alive:
            return
        if process.stopped:
            process.parked.append((call, args))
            return
        self.current = process
        process.looks = 0
        try:
            call(*args)
        except Dead:
            pass
        finally:
            self.current = None

    @contextmanager
    def acting(self, process: Process) -> Iterator[None]:
        """Do something as a process, now."""
        before, self.current = self.current, process
        try:
            yield
        finally:
            self.current = before

    def wrong(self, text: str) -> None:
        """Note that something is wrong; the run ends."""
        self.violations.append(text)
        self.trace.note("violation", text)

    # ---- processes ----------------------------------------------------------------------------

    def spawn(self, name: str, host: str, main: Callable[[Process], None]) -> Process:
        """A new process; `main` runs in its first step."""
        self._pid += 1
        process = Process(self, name, host, self._pid)
        self.processes.append(process)
        self.at(self.now + self.rng.uniform(0.001, 0.02), process, main, process)
        return process

    def close(self) -> None:
        """End all; threads that wait are unwound, with no effect on anything."""
        self.closed = True
        for process in self.processes:
            process.alive = False
        for process in self.processes:
            with self.acting(process):
                for thread in process.threads:
                    thread.unwind()
            process.threads.clear()
            process.parked.clear()
        self._heap.clear()


def active_world() -> World:
    """The world that runs now."""
    world = World.active
    assert world is not None, "nothing is simulated now"
    return world


def current_process() -> Process:
    """The process whose step this is."""
    process = active_world().current
    assert process is not None, "this is no step of a process"
    return process


class Process:
    """One simulated process. What lies in its memory is gone when it dies."""

    def __init__(self, world: World, name: str, host: str, pid: int) -> None:
        self.world = world
        self.name = name
        #: Processes of one host share its fate in partitions.
        self.host = host
        self.pid = pid
        self.alive = True
        self.stopped = False
        self.parked: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.threads: list[Thread] = []
        self.rng = world.chance(f"{name}:{pid}")
        #: Called with the wait status when the process ends, after everything of it is gone.
        self.on_exit: list[Callable[[int], None]] = []
        self.on_sigterm: Callable[[], None] | None = None
        self.fds: dict[int, Any] = {}
        #: With the state manager.
        self.sessions: list[Any] = []
        self._next_fd = 10
        #: The object that the process is about: a Task, a Stmgr, a Shell.
        self.program: Any = None
        #: Operations until `blows`, which ends it; None: never. See `operate`.
        self.fuse: int | None = None
        self.blows: Callable[[], None] = self.kill
        #: At sockets and clocks, in this step.
        self.looks = 0
        self.loop: Any = None

    def __repr__(self) -> str:
        return f"{self.name}[{self.pid}]"

    def later(self, delay_s: float, call: Callable[..., Any], *args: Any) -> None:
        """Call as this process after a while."""
        self.world.at(self.world.now + delay_s, self, call, *args)

    def soon(self, call: Callable[..., Any], *args: Any) -> None:
        """Call in the next step of this process."""
        self.later(self.step_s(), call, *args)

    def step_s(self) -> float:
        """How long a step takes."""
        often, long_s = self.world.hiccups
        if often and self.rng.random() < often:
            return self.rng.uniform(0.0, long_s)
        return self.rng.uniform(STEP_MIN_S, STEP_MAX_S)

    def open_fd(self, thing: Any) -> int:
        """A number for something that can become readable."""
        self._next_fd += 1
        self.fds[self._next_fd] = thing
        return self._next_fd

    def operate(self) -> None:
        """Something that others can see is about to be done: the place where a process may die or stop half way."""
        if not self.alive:
            self.vanish()
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                self.fuse = None
                self.world.trace.note("fuse", self.name)
                self.blows()
                if not self.alive:
                    self.vanish()

    def look(self) -> None:
        """It looks at something and does not wait; who only does that never lets time pass."""
        self.looks += 1
        if self.looks > LOOKS_MAX:
            self.world.wrong(f"{self.name} spins: " + "".join(traceback.format_stack(limit=8)))
            self.kill()
            self.vanish()

    def vanish(self) -> None:
        """Leave a dead process: never returns."""
        if self.world.closed:
            raise GreenletExit
        if getcurrent() is not self.world.hub:
            self.world.hub.switch()
            raise GreenletExit  # only when the world ends
        raise Dead

    def stop(self) -> None:
        self.stopped = True

    def proceed(self) -> None:
        if self.alive and self.stopped:
            self.stopped = False
            parked, self.parked = self.parked, []
            for call, args in parked:
                self.soon(call, *args)

    def terminate(self) -> None:
        if self.alive and self.on_sigterm is not None:
            self.soon(self.on_sigterm)
        elif self.alive:
            self.kill(15)

    def kill(self, signum: int = 9) -> None:
        """SIGKILL, and what else ends a process from outside."""
        self._end(signum)

    def exit(self, code: int) -> None:
        """The end of `main`."""
        self._end(int(code) << 8)

    def _end(self, status: int) -> None:
        if not self.alive:
            return
        self.alive = False
        self.stopped = False
        self.parked.clear()
        self.world.trace.note("end", f"{self.name} status {status}")
        for call in self.on_exit:
            call(status)


class Thread:
    """A thread of a process: a greenlet that gives way where a real one would wait."""

    def __init__(self, process: Process, run: Callable[[], None]) -> None:
        self.process = process
        self._run = run
        self._token = 0
        self._waits = self._deaf = False
        self.done = False
        #: How often it has waited; computing is no wait.
        self.waits = 0
        #: Threads that wait for the end of this one.
        self.joiners: list[Thread] = []
        self._greenlet = greenlet(self._main, parent=process.world.hub)
        self._greenlet.thread = self  # type: ignore[attr-defined]
        process.threads.append(self)

    def start(self) -> None:
        self.process.soon(self._go)

    def _main(self) -> None:
        try:
            self._run()
        except (GreenletExit, Dead):
            pass
        except BaseException as error:
            if self.process.alive:
                raise AssertionError(f"a thread of {self.process.name} ended with {error!r}") from error
        finally:
            self.done = True
            for joiner in self.joiners:
                joiner.wake()

    def _go(self) -> None:
        if not self.done:
            self._greenlet.switch()

    @staticmethod
    def current() -> Thread | None:
        """The thread that runs now; None in a step of an event loop."""
        world = active_world()
        glet = getcurrent()
        if glet is world.hub or world.current is None:
            return None
        thread: Thread | None = getattr(glet, "thread", None)
        return thread if thread is not None and thread.process is world.current else None

    def park(self, timeout_s: float | None) -> None:
        """Wait until woken or the time is over."""
        self._check()
        self._token += 1
        self.waits += 1
        self._waits = True
        if timeout_s is not None:
            self.process.later(max(timeout_s, 0.0) + self.process.step_s(), self._expire, self._token)
        self._give_way()

    def sleep(self, seconds: float) -> None:
        """Let time pass; nothing wakes it earlier."""
        self._check()
        self._token += 1
        self._waits = self._deaf = True
        self.process.later(seconds, self._expire, self._token)
        self._give_way()
        self._deaf = False

    def _give_way(self) -> None:
        """Let others run. The loop of asyncio that runs is one per thread, and they share a real one."""
        loop = _get_running_loop()
        if loop is None:
            self.process.world.hub.switch()
            return
        _set_running_loop(None)
        try:
            self.process.world.hub.switch()
        finally:
            _set_running_loop(loop)

    def _check(self) -> None:
        if self.process.world.closed:
            raise GreenletExit

    def wake(self) -> None:
        """End the wait of `park`."""
        if self._waits and not self._deaf:
            self._waits = False
            self.process.soon(self._go)

    def _expire(self, token: int) -> None:
        if self._waits and token == self._token:
            self._waits = False
            if not self.done:
                self._greenlet.switch()

    def unwind(self) -> None:
        """The world has ended."""
        if self._greenlet and not self._greenlet.dead:
            self._greenlet.throw(GreenletExit)


def spend(seconds: float) -> None:
    """The running thread computes for `seconds`."""
    thread = Thread.current()
    if thread is not None and seconds > 0:
        thread.sleep(seconds)


def wait_readable(things: list[Any], timeout_s: float | None) -> list[Any]:
    """Those of the things that are readable, once there is one or the time is over."""
    world, thread = active_world(), Thread.current()
    assert thread is not None, "an event loop must not wait"
    deadline = None if timeout_s is None else world.now + timeout_s
    while True:
        ready = [thing for thing in things if thing.readable()]
        left = None if deadline is None else deadline - world.now
        if ready or (left is not None and left <= 0):
            return ready
        for thing in things:
            thing.waiters.append(thread)
        thread.park(left)
        for thing in things:
            if thread in thing.waiters:
                thing.waiters.remove(thread)


def wake_all(waiters: list[Thread]) -> None:
    """Wake all waiting threads."""
    for thread in list(waiters):
        thread.wake()
