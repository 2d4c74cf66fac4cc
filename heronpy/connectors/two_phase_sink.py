"""Base class for sinks that prepare output at each checkpoint, and publish it when the checkpoint is complete."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, TypeVar

from msgspec import Struct

from heronpy.api.api_constants import TOPOLOGY_RELIABILITY_MODE, TopologyReliabilityMode
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.metrics import MultiCountMetric
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.api.topology_context import TopologyContext
from heronpy.common.disk_space import is_full_error
from heronpy.common.errors import FencedError, StateError
from heronpy.connectors.durable_files import run_token
from heronpy.storage.objects.port import ObjectsError, Trouble

#: Pause in seconds before an action is repeated after a full disk or an unreachable store.
AGAIN_S: Final = 2.0
T = TypeVar("T")


class TaskIdentity(Struct, frozen=True):
    """Names that distinguish this process's output from that of any other process."""

    component: str
    task: int
    #: Index of the task in its component, from 0; the same in every attempt.
    index: int
    #: Id of this submission of the topology.
    run: str
    #: Number of the restore, from 1, under EFFECTIVELY_ONCE; 0 in the other modes.
    attempt: int
    mode: str

    @property
    def is_checkpointed(self) -> bool:
        """Whether checkpoints publish the output. False in a simulator, which takes no checkpoints."""
        return self.attempt > 0

    @property
    def is_acked(self) -> bool:
        """Whether tuples that were not acked are replayed."""
        return self.mode == TopologyReliabilityMode.ATLEAST_ONCE


def identity_of(config: dict[str, Any], context: TopologyContext) -> TaskIdentity:
    """Return the identity of this context's task."""
    component, task = context.get_component_id(), context.get_task_id()
    mode = str(config.get(TOPOLOGY_RELIABILITY_MODE) or TopologyReliabilityMode.ATMOST_ONCE).upper()
    return TaskIdentity(
        component=component,
        task=task,
        index=sorted(context.get_component_tasks(component) or ()).index(task),
        run=run_token(context.get_topology_id()),
        attempt=context.attempt if mode == TopologyReliabilityMode.EFFECTIVELY_ONCE else 0,
        mode=mode,
    )


class TwoPhaseSink(Bolt, TwoPhaseStatefulComponent):
    """A bolt whose output becomes visible exactly once under EFFECTIVELY_ONCE.

    A subclass sets `metric` and `state_key`, the sink's key in the task's state. It implements `open`, `prepare`,
    `publish` and `take_over`; the last three are called only under EFFECTIVELY_ONCE. Its `process` begins with
    `check_whole()`. `who` is the identity of the task; `counts` is its metric.
    """

    metric: ClassVar[str]
    state_key: ClassVar[str]

    is_open = False
    _is_whole = True
    _restored = 0

    def open(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Open the output, so that the task can accept rows."""
        raise NotImplementedError(f"{type(self).__name__} must define open(config, context)")

    def prepare(self, checkpoint: int) -> Any:
        """Make the rows since the last checkpoint durable but invisible; return the data that `take_over` needs."""
        raise NotImplementedError(f"{type(self).__name__} must define prepare(checkpoint)")

    def publish(self, checkpoint: int) -> None:
        """Make the output prepared up to this complete checkpoint visible; must be idempotent."""
        raise NotImplementedError(f"{type(self).__name__} must define publish(checkpoint)")

    def take_over(self, prepared: Any, checkpoint: int) -> None:
        """Publish the output of the restored checkpoint (0: none), and remove later output.

        `prepared` is the result of `prepare` for that checkpoint, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} must define take_over(prepared, checkpoint)")

    def init_state(self, state: Any) -> None:
        self._state = state

    def pre_restore(self, checkpoint_id: str) -> None:
        """Keep the checkpoint number for `initialize`, which is called later and opens the output."""
        self._restored = int(checkpoint_id)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Open the sink, and publish or remove a predecessor's output."""
        self.who: TaskIdentity = identity_of(config, context)
        self.counts = MultiCountMetric()
        context.register_metric(self.metric, self.counts, 10)
        self.open(config, context)
        self.is_open = True
        if self.who.is_checkpointed:
            self.take_over(self._state.get(self.state_key), self._restored)

    def pre_save(self, checkpoint_id: str) -> None:
        """Prepare the rows since the last checkpoint."""
        if not self.who.is_checkpointed:
            return
        self.check_whole()
        self._is_whole = False
        with self.refusals_counted():
            self._state[self.state_key] = self.prepare(int(checkpoint_id))
        self._is_whole = True

    def post_save(self, checkpoint_id: str) -> None:
        """Publish the output prepared up to this checkpoint."""
        if self.who.is_checkpointed:
            with self.refusals_counted():
                self.publish(int(checkpoint_id))

    def check_whole(self) -> None:
        """Raise an error if a checkpoint could not be prepared: without a restart, its rows would be skipped."""
        if not self._is_whole:
            raise StateError(
                f"{type(self).__name__} {self.who.component} could not prepare a checkpoint; "
                "its task restarts from the last complete checkpoint"
            )

    @contextlib.contextmanager
    def refusals_counted(self) -> Iterator[None]:
        """If the block raises FencedError (a newer process has replaced this one), count it in the metrics."""
        try:
            yield
        except FencedError:
            self.counts.incr("writes-refused")
            raise

    def until_done(self, action: Callable[[], T], /) -> T:
        """Retry `action` while the disk is full or the store is unreachable; return the action's result.

        During this time the topology is DEGRADED, with the cause.
        """
        told = ""
        while True:
            try:
                done = action()
            except (OSError, ObjectsError) as error:
                outage = _outage_of(error)
                if not outage:
                    raise
                if outage != told:
                    told = outage
                    self.log(f"{self.who.component} waits: {outage}", "warn")
                self.delegate.wait_outside(outage, AGAIN_S)
                continue
            if told:
                self.log(f"{self.who.component} continues")
                self.delegate.wait_outside("", 0.0)
            return done

    def reject(self, tup: Any, reason: str) -> None:
        """Make a dead letter of a tuple that does not fit the sink, because a replay would not fit either."""
        self.counts.incr("rows-rejected")
        self.delegate.abandon(tup, reason)


def _outage_of(error: OSError | ObjectsError) -> str:
    """Return the outage to wait for; empty if waiting does not help."""
    if isinstance(error, ObjectsError):
        return str(error) if error.trouble in (Trouble.FULL, Trouble.AWAY, Trouble.BUSY) else ""
    if not is_full_error(error):
        return ""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
