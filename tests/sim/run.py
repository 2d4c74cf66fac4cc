"""Runs seeds: draw, fault, heal, and demand that everything comes to its end."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from heronpy.api import global_metrics
from heronpy.proto import control_pb2
from tests.sim.auditor import Auditor
from tests.sim.cluster import WAIT_S, Cluster, replacements
from tests.sim.kernel import START_S, World
from tests.sim.modules import installed
from tests.sim.swarm import Faults, draw_settings, draw_shape
from tests.sim.verbs import Verbs
from tests.sim.ways import draw_batching, draw_users
from tests.sim.workload import Program, Shape


@dataclass
class Result:
    """How a seed went."""

    seed: int
    digest: str = ""
    events: int = 0
    #: Virtual time, and time of a real processor.
    took_s: float = 0.0
    real_s: float = 0.0
    mode: str = ""
    violations: list[str] = field(default_factory=list)
    tail: str = ""
    stats: Counter[str] = field(default_factory=Counter)
    #: How to see it again, but for the seed.
    again: str = "make sim"

    @property
    def ok(self) -> bool:
        return not self.violations

    def report(self) -> str:
        """A text for people: the violations, the events before them, and the command that replays them."""
        lines = [f"seed {self.seed} ({self.mode}) failed after {self.took_s:.3f} simulated seconds:"]
        lines += [f"  {text}" for text in self.violations]
        lines += ["the last events:", self.tail, f"replay it with: {self.again} SEED={self.seed}"]
        return "\n".join(lines)


class Listener(logging.Handler):
    """The product's log becomes part of the trace; a logged traceback is a violation."""

    def emit(self, record: logging.LogRecord) -> None:
        world = World.active
        if world is None or world.closed or world.current is None:
            return
        world.trace.note(world.current.name, record.getMessage()[:300])
        if record.exc_info and record.exc_info[0] is not None:
            text = "".join(traceback.format_exception(*record.exc_info))
            world.wrong(f"{world.current.name} logged an exception: {record.getMessage()}: {text}")


@contextmanager
def simulator() -> Iterator[Path]:
    """Everything that stands in for the real machine, and a folder in memory that is ours alone."""
    listener = Listener()
    loggers = [logging.getLogger(name) for name in ("heron", "heronpy", "sim")]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    counted = global_metrics.metricsContainer
    collecting = gc.isenabled()
    with _folder() as folder, installed(replacements()):
        # What this process has counted itself would be in the messages of every simulated one.
        global_metrics.metricsContainer = type(counted)()
        for logger in loggers:
            logger.setLevel(logging.INFO)
            logger.propagate = False
            logger.addHandler(listener)
        # Frozen garbage waits; to collect it first takes long in a process that has run many tests.
        gc.freeze()
        gc.disable()
        try:
            yield folder
        finally:
            global_metrics.metricsContainer = counted
            for logger, level, propagate in before:
                logger.removeHandler(listener)
                logger.setLevel(level)
                logger.propagate = propagate
            gc.unfreeze()
            if collecting:
                gc.enable()


@contextmanager
def _folder() -> Iterator[Path]:
    """One of ten folders whose names have the same length, because sizes of messages depend on paths."""
    base = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp") / f"heronpy-sim-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    for number in range(10):
        folder = base / str(number)
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            _empty(folder)  # of what a run that was killed has left
            yield folder
        finally:
            # The folder itself stays: others may be about to lock it.
            _empty(folder)
            os.close(descriptor)
        return
    raise RuntimeError(f"ten simulations run already in {base}")


def _empty(folder: Path) -> None:
    for content in folder.iterdir():
        shutil.rmtree(content, ignore_errors=True)


Play = Callable[[World, Result], None]


def played(
    seed: int, play: Play, *, events_max: int = 3_000_000, story: bool = False, again: str = "make sim"
) -> Result:
    """One run of any world: `play` draws, strikes, heals, demands the end, and says in the result what it was."""
    began = time.process_time()
    world = World.active = World(seed, events_max)
    world.trace.story = [] if story else None
    result = Result(seed, again=again)
    try:
        play(world, result)
    except AssertionError as error:
        world.wrong("".join(traceback.format_exception(error)))
    result.digest, result.tail, result.events = world.trace.digest(), world.trace.tail(), world.events
    result.took_s = world.now - START_S
    result.violations = list(world.violations)
    _bury(world)
    result.real_s = time.process_time() - began
    return result


def run_seed(seed: int, folder: Path, *, mode: str = "", story: bool = False, events_max: int = 3_000_000,
             adapt: Callable[[Cluster], None] | None = None, asked: bool = True, ways: bool = True,
             users: tuple[Any, ...] = ()) -> Result:  # fmt: skip
    """One run, inside `simulator()`; without `asked` no verb asks the topology master for anything.

    Without `ways` user code and batching are the plain ones, as they were in the days of some seeds; `users` are its
    classes, if they are not to be drawn.
    """

    def play(world: World, result: Result) -> None:
        rng = world.chance("swarm")
        shape = draw_shape(rng, mode)
        chance, batching = world.chance("ways"), dict[str, Any]()
        if ways:
            shape = replace(shape, users=draw_users(chance))
            batching = draw_batching(chance)
        if users:
            shape = replace(shape, users=users)
        result.mode = shape.mode
        cluster = Cluster(world, shape, folder, {**draw_settings(rng, world.chance("standby")), **batching})
        auditor = Auditor(cluster)
        result.stats = auditor.stats
        faults = Faults(cluster, auditor, rng)
        faults.plan()
        verbs = Verbs(cluster, auditor, world.chance("verbs"))
        if asked:
            verbs.plan(faults.until)
        if adapt is not None:
            adapt(cluster)
        _run(cluster, auditor, faults)

    return played(seed, play, events_max=events_max, story=story)


@contextmanager
def cluster_of(seed: int, shape: Shape | Program, **settings: Any) -> Iterator[tuple[Cluster, Auditor]]:
    """A cluster whose faults a test makes itself; what its auditor finds wrong fails the test.

    Windows and batches are those that the seed draws, but for the `settings` given, with `__` for the dot.
    """
    given = {f"heron.{name.replace('__', '.')}": value for name, value in settings.items()}
    with simulator() as folder:
        world = World.active = World(seed)
        drawn = draw_settings(world.chance("swarm"), world.chance("standby"))
        try:
            cluster = Cluster(world, shape, folder, {**drawn, "heron.tmaster.standbys": 0, **given})
            yield cluster, Auditor(cluster)
            assert not world.violations, "\n".join([*world.violations, world.trace.tail()])
        finally:
            _bury(world)


def _run(cluster: Cluster, auditor: Auditor, faults: Faults) -> None:
    world = cluster.world
    world.run(faults.until, lambda: False)
    auditor.stats["rewinds"] += auditor.rewinds
    faults.end()
    if world.violations:
        return
    ended = (control_pb2.LIFE_FINISHED, control_pb2.LIFE_FAILED)
    if not world.run(world.now + WAIT_S, lambda: cluster.life() in ended) and not world.violations:
        world.wrong(f"not finished {WAIT_S:g} s after the last fault: {describe(cluster)}")
    if world.violations:
        return
    if cluster.life() == control_pb2.LIFE_FAILED:
        auditor.failed(cluster.master().status(world.now).cause)
    else:
        auditor.at_end()


def describe(cluster: Cluster) -> dict[str, Any]:
    """Where things stand, for a run that does not end."""
    found: dict[str, Any] = {"network": cluster.network.describe()}
    machine = cluster.master()
    if machine is not None:
        found["tmaster"] = machine.status(cluster.world.now).cause or control_pb2.Lifecycle.Name(machine.lifecycle)
    for process in cluster.processes("instance"):
        task = process.program
        if task is not None:
            state = control_pb2.TaskState.Name(task.standing.state)
            found[process.name] = (state, task.standing.plan_version, task.progress.in_tuples, task.progress.out_tuples)
    return found


def _bury(world: World) -> None:
    """End the run's threads and loops, and give the memory back."""
    threads = any(process.threads for process in world.processes)
    world.close()
    loops = [process.loop for process in world.processes if process.loop is not None]
    for loop in loops:
        loop.bury()
    World.active = None
    if threads or loops:
        # What they hold is not only memory: it is open files, too.
        gc.collect()
