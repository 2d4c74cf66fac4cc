"""Simulator: a whole topology in one process, without sockets and threads, for unit tests.

    sim = Simulator(word_count("test", files=["a.txt"]), seed=1)
    sim.run()
    assert ["the", 3] in sim.emitted("count")

Groupings, acking, ticks, windows, hooks, metrics and the end of the input behave as in the runtime,
and every value passes through the wire codec. Not simulated: processes, machine failures, real time.
`Simulator.run` describes when a run ends.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from heronpy.api.global_metrics import root_name
from heronpy.api.topology import TopologyBuilder, TopologyType
from heronpy.common.errors import TopologyError
from heronpy.plan.logical import regions_of
from heronpy.proto import topology_pb2
from heronpy.simulator.async_tasks import AsyncBoltTask
from heronpy.simulator.clock import virtual_time
from heronpy.simulator.errors import SimulationError
from heronpy.simulator.records import RECORDS_MAX, combined
from heronpy.simulator.scheduler import INJECTOR, Reason, StepScheduler
from heronpy.simulator.sinks import CollectingSink
from heronpy.simulator.tuples import Delivery, Injection, SimulatedTuple
from heronpy.simulator.world import World

if TYPE_CHECKING:
    from heronpy.simulator.batch import BatchResult

log = logging.getLogger("heron.simulator")

STEP_S = 0.0001
STEPS_MAX = 1_000_000
# Maximum virtual time in seconds that a checkpoint waits for empty queues.
_DRAIN_MAX_S = 600.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run, and the reason why it ended: "finished", "idle", "seconds", "max_steps" or "stalled".

    `steps` counts the steps of this run, and `now` is the virtual time in seconds. For each region that went back to a
    checkpoint since the last run, `rewinds` has a sentence with the reason.
    """

    reason: str
    steps: int
    now: float
    rewinds: tuple[str, ...] = ()


class Simulator:
    """Runs a topology deterministically.

    `topology` is a TopologyBuilder, a Topology subclass or a topology message. `seed` determines the
    order of the tasks' steps (user code that uses random numbers needs its own seed). A step takes `step_s`
    seconds of virtual time. With `run_spouts=False` spouts emit nothing until `activate`, so that bolts get only
    injected tuples. With `sinks="collect"` the rows of each SparkSink are kept for `rows` instead of being
    passed to Spark; "run" (default) starts the sinks unchanged, which needs a submitted topology.
    """

    def __init__(
        self,
        topology: Any,
        seed: int = 0,
        *,
        run_spouts: bool = True,
        step_s: float = STEP_S,
        records_limit: int = RECORDS_MAX,
        sinks: str = "run",
    ) -> None:
        if not step_s > 0:
            raise ValueError(f"step_s is {step_s!r}; give a number of seconds above 0")
        if sinks not in ("run", "collect"):
            raise ValueError(f"sinks is {sinks!r}; give 'run' or 'collect'")
        self._world = World(_message_of(topology), seed, records_limit, sinks == "collect")
        self._scheduler = StepScheduler(self._world, step_s)
        # The last saved state of each task, and the id of its checkpoint; ids are never reused, even if saving fails.
        self._saved: dict[int, bytes] = {}
        self._saved_in = 0
        self._checkpoints = 0
        self._rewinds: list[str] = []
        self._is_closed = False
        with virtual_time(self._world.clock):
            for task_id in self._world.component_of:
                self._world.make_task(task_id)
            for task in self._world.tasks.values():
                task.start()
        for spout in self._world.spouts:
            spout.is_active = run_spouts

    @staticmethod
    def run_batch(topology: Any, *, unit_bytes: int = 64 * 1024, buckets: int = 4, records: bool = True) -> BatchResult:
        """Run a topology as a batch, with the stages, units and files of a real batch run.

        A unit is about `unit_bytes` of a text file's lines, or one split. `buckets` overrides the numbers of buckets,
        which otherwise depend on the amount of data. With `records=False` the result has no `emitted` values, and the
        run takes the same code paths as a real run. Raises UserCodeError for the first unit that fails.
        """
        from heronpy.simulator.batch import BatchRun

        return BatchRun(_message_of(topology), unit_bytes, buckets, records).run()

    # -- running ------------------------------------------------------------------------------

    def run(
        self,
        until_idle: bool = True,
        max_steps: int | None = None,
        seconds: float | None = None,
    ) -> RunResult:
        """Continue from where the last run stopped.

        Without limits the run ends when the topology has finished (all spouts have called `end_of_input`, and `finish`
        of all bolts has been called) or is idle: no tuple is queued or pending, and the spouts are silent. Without
        limits, a topology that never becomes idle raises SimulationError. `seconds` limits the virtual time of the run
        (idle time is skipped); `max_steps` limits the number of steps.
        """
        self._check_open()
        until = None if seconds is None else self.now + _not_negative(seconds)
        limit = STEPS_MAX if max_steps is None else max_steps
        steps = self._scheduler.steps
        with virtual_time(self._world.clock):
            reason = self._scheduler.run(until, until_idle, limit)
        if reason is Reason.MAX_STEPS and max_steps is None:
            raise SimulationError(
                f"the topology did not become idle within {STEPS_MAX} steps; "
                "pass max_steps or seconds to run() if its spouts never end"
            )
        rewinds, self._rewinds = tuple(self._rewinds), []
        return RunResult(reason.value, self._scheduler.steps - steps, self.now, rewinds)

    def finish(self) -> RunResult:
        """End the input now: bolts process queued tuples, then their `finish` is called."""
        self.deactivate()
        self._scheduler.finish()
        return self.run()

    def activate(self) -> None:
        """Start or resume the spouts."""
        self._set_active(True)

    def deactivate(self) -> None:
        """Pause the spouts; bolts keep running."""
        self._set_active(False)

    def inject(
        self,
        component: str,
        values: Sequence[Any],
        *,
        stream: str | None = None,
        source: str | None = None,
        index: int | None = None,
    ) -> Injection:
        """Queue a tuple for a bolt as if its input had emitted it; `run` processes it.

        `source` and `stream` select the input if the bolt has several inputs; `index` selects the task that gets the
        tuple; without it, the grouping decides. After the run, the `state` of the returned object is the outcome.
        """
        self._check_open()
        origin, name = self._input(component, source, stream)
        world = self._world
        sender = world.tasks_named(origin)[0]
        targets = self._injection_targets(component, index, sender, name, values)
        injection = Injection(component, list(values))
        now = self.now
        root = world.tracker.open(INJECTOR, injection, now, now + world.timeout_s)
        payload, kind = sender.outputs.encode(values, name), sender.codec.kind
        for task_id in targets:
            edge = world.next_edge()
            world.tracker.add((root,), edge)
            world.deliver(task_id, Delivery(payload, kind, origin, name, sender.task_id, (root,), edge))
        world.tracker.seal(root)
        return injection

    # -- questions ----------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._world.clock.now

    @property
    def is_finished(self) -> bool:
        """True if the input has ended and `finish` of every bolt has been called."""
        return self._scheduler.is_finished

    @property
    def dropped(self) -> dict[str, int]:
        """Return for each component the number of tuples that topology.droptuples.upon.backpressure discarded because a
        task was full.
        """
        return dict(self._world.dropped)

    def emitted(self, component: str, stream: str = "default") -> list[list[Any]]:
        """Return the values that a component emitted on a stream, one entry per emit, oldest first."""
        plan_component = self._world.plan.component(component)
        if plan_component.stream(stream) is None:
            declared = ", ".join(repr(out.name) for out in plan_component.outputs) or "none"
            raise TopologyError(f"component {component!r} declares no stream {stream!r}; its streams are {declared}")
        tasks = self._world.tasks
        entries = self._world.records.emitted.get((component, stream), ())
        return [tasks[task].codec.decode(payload, kind) for task, payload, kind in entries]

    def executed(self, component: str) -> list[SimulatedTuple]:
        """Return the tuples that a bolt received, oldest first."""
        tasks = {task.task_id: task for task in self._world.tasks_named(component)}
        return [
            SimulatedTuple(tasks[task].codec.decode(d.payload, d.codec), d, 0.0)
            for task, d in self._world.records.executed.get(component, ())
        ]

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Return the rows that a SparkSink received, as dicts by column, oldest first; needs `sinks="collect"`."""
        tasks = self._world.tasks_named(sink)
        if not isinstance(tasks[0].user, CollectingSink):
            why = "is not a SparkSink" if self._world.collects else 'is not collected; give Simulator(sinks="collect")'
            raise TopologyError(f"component {sink!r} {why}")
        return [dict(row) for _, row in self._world.records.rows.get(sink, ())]

    def acked(self, spout: str) -> list[Any]:
        """Return the ids of the tuples that were reported to a spout as acked, oldest first."""
        self._world.plan.component(spout)
        return list(self._world.records.acked.get(spout, ()))

    def failed(self, spout: str) -> list[Any]:
        """Return the ids of the tuples that were reported to a spout as failed or timed out."""
        self._world.plan.component(spout)
        return list(self._world.records.failed.get(spout, ()))

    def pending(self, spout: str) -> int:
        """Return the number of a spout's tracked tuples that are in flight."""
        tasks = self._world.tasks_named(spout)
        return sum(self._world.tracker.pending(task.task_id) for task in tasks)

    def task(self, component: str, index: int = 0) -> Any:
        """Return the user's spout or bolt object in a task."""
        return self._world.task_at(component, index).user

    def task_ids(self, component: str) -> list[int]:
        """Return the task ids of a component, as `get_component_tasks` does."""
        self._world.plan.component(component)
        return list(self._world.tasks_of[component])

    def metrics(self, component: str) -> dict[str, Any]:
        """Return the counters of a component and the metrics that its tasks registered.

        Counts are summed over the tasks. Any other metric has its latest value, or a list of the tasks' values
        if the component has several tasks. System counters have names such as "__execute-count/stream".
        """
        tasks = self._world.tasks_named(component)
        result: dict[str, Any] = {}
        for task in tasks:
            for name, value in self._world.records.counters.get(task.task_id, {}).items():
                result[name] = result.get(name, 0) + value
            if isinstance(task, AsyncBoltTask):
                name = "__async-concurrency-max"
                result[name] = max(result.get(name, 0), task.most_at_once)
        result.update(combined([task.metrics for task in tasks]))
        return result

    def global_metrics(self) -> dict[str, Any]:
        """Return the counters of heronpy.api.global_metrics that user code incremented, by key."""
        values: dict[str, Any] = self._world.global_metrics.values().get(root_name, {})
        return values

    # -- failures and checkpoints -------------------------------------------------------------

    def kill_task(self, component: str, index: int = 0) -> None:
        """Kill a task and restart it: the task's object and queue are lost.

        Under ATLEAST_ONCE the tuples that the task had not acked time out, and the new task begins with an empty state.
        Under EFFECTIVELY_ONCE all components of the task's region go back to the last `checkpoint`, or to their
        beginning if there is no checkpoint; `RunResult.rewinds` reports this.
        """
        self._check_open()
        world = self._world
        killed = world.task_at(component, index)
        with virtual_time(world.clock):
            if not world.key_groups:
                self._replace(killed.task_id, None)
                return
            region = next(names for names in regions_of(world.topology) if component in names)
            for task_id, name in world.component_of.items():
                if name in region:
                    self._replace(task_id, self._saved.get(task_id), self._saved_in)
        self._scheduler.reopen()
        to = f"checkpoint {self._saved_in}" if self._saved_in else "the beginning, because there is no checkpoint"
        self._rewinds.append(f"{killed.name} was killed: {', '.join(sorted(region))} went back to {to}")
        log.warning("%s", self._rewinds[-1])

    def checkpoint(self) -> str:
        """Save the state of all stateful components and all keyed state; return the id of the checkpoint.

        Spouts are paused until all queues are empty, so the states are consistent, as with
        aligned barriers.
        """
        self._check_open()
        world = self._world
        self._checkpoints += 1
        paused = [spout for spout in world.spouts if spout.is_active]
        for spout in paused:
            spout.is_active = False
        try:
            self._drain()
        finally:
            for spout in paused:
                spout.is_active = True
        with virtual_time(world.clock):
            number = self._checkpoints
            self._saved = {task_id: task.save(number) for task_id, task in world.tasks.items()}
            self._saved_in = number
            for task in world.tasks.values():
                task.commit(number)
        return str(number)

    def restore(self) -> None:
        """Restart every task with its state from the last checkpoint; queues are lost."""
        self._check_open()
        if not self._saved_in:
            raise TopologyError("there is no checkpoint to restore; call checkpoint() first")
        with virtual_time(self._world.clock):
            for task_id in self._world.component_of:
                self._replace(task_id, self._saved[task_id], self._saved_in)

    def close(self) -> None:
        """Close spouts, clean up hooks and release event loops. A second call has no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        with virtual_time(self._world.clock):
            for task in self._world.tasks.values():
                task.close()

    def __enter__(self) -> Simulator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- inside -------------------------------------------------------------------------------

    def _replace(self, task_id: int, saved: bytes | None, checkpoint: int = 0) -> None:
        world = self._world
        old = world.tasks[task_id]
        world.drop_task(task_id)
        task = world.make_task(task_id)
        task.start(saved, checkpoint)
        if old.is_spout:
            task.is_active = old.is_active  # type: ignore[attr-defined]

    def _drain(self) -> None:
        """Process all queues, without new input and without waiting for windows."""
        world = self._world
        deadline = self.now + _DRAIN_MAX_S
        with virtual_time(world.clock):
            while busy := [bolt for bolt in world.bolts if bolt.is_busy()]:
                if self.now >= deadline:
                    raise SimulationError(
                        f"{busy[0].name} still has tuples after {_DRAIN_MAX_S:.0f} seconds "
                        "without new input, so no checkpoint can be taken",
                        busy[0].name,
                    )
                self._scheduler.run(self.now + 0.01, False, STEPS_MAX)

    def _set_active(self, active: bool) -> None:
        self._check_open()
        with virtual_time(self._world.clock):
            for spout in self._world.spouts:
                spout.set_active(active)

    def _input(self, component: str, source: str | None, stream: str | None) -> tuple[str, str]:
        inputs = self._world.plan.component(component).inputs
        fitting = [
            (item.component, item.stream)
            for item in inputs
            if source in (None, item.component) and stream in (None, item.stream)
        ]
        if len(fitting) == 1:
            return fitting[0]
        known = ", ".join(f"{item.component}:{item.stream}" for item in inputs) or "none"
        what = "has no such input" if not fitting else "has several such inputs"
        raise TopologyError(f"component {component!r} {what}; choose one with source= and stream= (inputs: {known})")

    def _injection_targets(
        self, component: str, index: int | None, sender: Any, stream: str, values: Sequence[Any]
    ) -> list[int]:
        world = self._world
        if index is not None:
            sender.outputs.check(values, stream)
            return [world.task_at(component, index).task_id]
        mine = set(world.tasks_of[component])
        if sender.outputs.is_direct(stream):
            raise TopologyError(f"stream {stream!r} is direct; give inject() the index of a task")
        return [task for task in sender.outputs.targets(values, stream, None) if task in mine]

    def _check_open(self) -> None:
        if self._is_closed:
            raise SimulationError("the simulation is closed; create a new Simulator")


def _message_of(topology: Any) -> topology_pb2.Topology:
    if isinstance(topology, topology_pb2.Topology):
        return topology
    if isinstance(topology, TopologyBuilder):
        return topology.build()
    if isinstance(topology, TopologyType):
        return topology.to_proto()
    raise TopologyError(
        f"Simulator takes a TopologyBuilder, a Topology subclass or a topology message, not {type(topology).__name__}"
    )


def _not_negative(seconds: float) -> float:
    if not seconds >= 0:
        raise ValueError(f"seconds is {seconds!r}; give a number of 0 or more")
    return seconds
