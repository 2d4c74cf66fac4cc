"""State shared by the topology master's operations: the data that they read, and the effects that they request. Pure.

A `SharedState` only decides when a changed plan is published. Changes to addresses are collected for a
short time, so that restarting 1000 containers does not produce 1000 plans; other changes are published
immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from google.protobuf.message import Message
from msgspec import Struct, field

from heronpy.common.errors import HeronError
from heronpy.common.setting_types import TmasterSettings
from heronpy.plan.physical_plan import emitters
from heronpy.proto import control_pb2
from heronpy.tmaster.event_log import EventLog
from heronpy.tmaster.events import Effect, Node, Note, Persist, Reply, Send
from heronpy.tmaster.exceptions import ExceptionStore
from heronpy.tmaster.planbook import PlanBook
from heronpy.tmaster.registry import Registry

#: Seconds for which a change of addresses waits for further changes. The second value applies after this master has
#: restarted, because many stream managers are about to register.
SETTLE_S = 0.05
SETTLE_UNCONFIRMED_S = 1.0
#: Number of tasks up to which a topology is checked after every event; larger topologies are checked at intervals.
SMALL_TOPOLOGY_TASKS = 500


class SharedState(Struct):
    settings: TmasterSettings
    registry: Registry
    book: PlanBook
    exceptions: ExceptionStore
    event_log: EventLog
    #: Name of this topology master's process.
    process: str = "tmaster"
    #: Whether this topology master has seen every task up.
    started: bool = False
    #: Whether another topology master ran this topology before.
    resumed: bool = False
    pending: list[Effect] = field(default_factory=list)
    publish_at: float | None = None
    #: Why no checkpoint can be restored, and the restore in progress (EFFECTIVELY_ONCE).
    failure: str | None = None
    restoring: str = ""
    #: By process: the outage whose end the process waits for.
    outages: dict[str, str] = field(default_factory=dict)
    #: Called before a plan is built, to update the data that depends on the packing plan.
    before_plan: Callable[[float], None] | None = None

    @property
    def has_run(self) -> bool:
        """Whether every task has been up once, possibly under an earlier topology master."""
        return self.started or self.registry.totals.has_run

    # ---- answers ----------------------------------------------------------------------------

    def take(self) -> list[Effect]:
        """Return the pending effects and clear them."""
        effects, self.pending = self.pending, []
        return effects

    def reply(self, request: int, body: Message) -> None:
        self.pending.append(Reply(request, body))

    def confirm(self, requests: list[int], text: str) -> None:
        self.pending.extend(Reply(request, control_pb2.Ok(text=text)) for request in requests)

    def refuse(self, requests: list[int], error: HeronError) -> None:
        self.pending.extend(Reply(request, error=error) for request in requests)

    def persist(self, node: Node, value: Message | None) -> None:
        self.pending.append(Persist(node, value))

    def send(self, peers: list[bytes] | tuple[bytes, ...], body: Message) -> None:
        if peers:
            self.pending.append(Send(tuple(peers), body))

    def note(self, text: str, *, warning: bool = False) -> None:
        self.pending.append(Note(text, warning))

    # ---- the plan ---------------------------------------------------------------------------

    def change_plan(self, now: float) -> int:
        """Request a new plan as soon as it can be built; return its future version."""
        self.publish_at = now
        return self.book.version + 1

    def change_addresses(self, now: float) -> None:
        """Request a new plan after a short wait, in which addresses may change further."""
        if self.publish_at is None:
            first = self.book.plan is None
            unconfirmed = self.book.unconfirmed(self.registry.stmgrs)
            settle = SETTLE_UNCONFIRMED_S if unconfirmed else SETTLE_S
            self.publish_at = now if first else now + settle

    def publish_if_due(self, now: float) -> bool:
        """Build, store and send the next plan if it is due and can be built."""
        if self.publish_at is None:
            return False
        stmgrs = self.registry.stmgrs
        if now < self.publish_at or self.book.missing(stmgrs):
            return False
        if self.before_plan is not None:
            self.before_plan(now)
        self.publish_at = None
        plan = self.book.build(stmgrs)
        self.registry.expect(self.book.plan_tasks(), plan.version)
        self.registry.totals.let_emit(emitters(plan))
        self.persist(Node.PHYSICAL_PLAN, plan)
        peers = []
        for name in self.book.wanted & stmgrs.keys():
            stmgrs[name].plan_sent_at = now
            peers.append(stmgrs[name].peer)
        self.send(sorted(peers), control_pb2.NewPlan(plan=plan))
        self.note(f"plan {plan.version}: {len(plan.instances)} tasks on {len(plan.stmgrs)} stream managers")
        return True

    def publish_deadline(self) -> float | None:
        """The time of the next call to `publish_if_due`; None while a stream manager is missing."""
        if self.publish_at is None or self.book.missing(self.registry.stmgrs):
            return None
        return self.publish_at

    # ---- pace -------------------------------------------------------------------------------

    @property
    def pace_s(self) -> float:
        """Minimum number of seconds between two checks of all tasks."""
        small = len(self.registry.places) <= SMALL_TOPOLOGY_TASKS
        return 0.0 if small else self.settings.progress_interval_s


class Operation(Protocol):
    """A request that takes several events to complete; one operation runs at a time."""

    @property
    def name(self) -> str:
        """Name of the operation, as X in `X is running; try again when it is done`."""

    @property
    def done(self) -> bool: ...

    @property
    def deadline(self) -> float | None: ...

    def advance(self, now: float) -> None:
        """Check the registry, and take all steps that are possible now."""
