"""Findings of the doctor, and effects of actions. Pure."""

from __future__ import annotations

from msgspec import Struct


class Finding(Struct, kw_only=True):
    """A diagnosis with its evidence."""

    #: `healthy`, `failed`, `changing`, `down`, `hung`, `memory`, `crashing`, `dependency`, `skew`, `slow task`,
    #: `under-provisioned`, `limit`, `checkpoints`, `spark`, `losses`, `no input`, `untriaged`, `stopped`, `machine`;
    #: for an ended topology also `ended` (always first), `held`, `busy`. Releases may add more.
    verdict: str
    #: Whether the finding needs no action.
    calm: bool
    #: One sentence without a full stop.
    sentence: str
    #: The next step, often a command; empty if there is none.
    next: str
    #: Affected component and task; empty if the finding is about the topology.
    component: str
    task: str
    #: Map from name to value, for the numbers in the sentence.
    figures: dict[str, float]
    names: list[str]
    #: Machine of the task; empty if unknown, or if the finding is not about a single task.
    host: str = ""
    #: `topology`; or `machine` for a condition that affects everything on the machine, which is listed after causes
    #: within the topology.
    scope: str = "topology"
    #: The sentence without quoted values; empty if it quotes no values. Without the scope `data` it equals `sentence`.
    unquoted: str = ""


class TaskSignal(Struct, kw_only=True):
    """The doctor's figures for a task, over the window."""

    instance_id: str
    component: str
    up: bool
    executed_per_s: float
    emitted_per_s: float
    busy: float | None
    cpu: float | None
    queue_bytes: int
    #: Seconds to process the queue at the current rate.
    lag_s: float | None
    silent_s: float


class Doctor(Struct, kw_only=True):
    """`GET /doctor`: findings, most urgent first; never empty."""

    topology: str
    #: Whether all findings are calm.
    healthy: bool
    window_s: float
    findings: list[Finding]
    #: Tuples per second that the spouts emit.
    emitted_per_s: float
    held: float
    tasks: list[TaskSignal]
    #: Whether past restarts and changes are known.
    events_known: bool
    #: Time at which the topology ended, or None. For an ended topology, figures cover its last minutes, without tasks.
    ended_at: float | None = None
    #: Missing information, as one sentence: for an ended topology the facts that are no longer known, for a
    #: running one the requests that its topology master did not answer in time. Empty if nothing is missing.
    not_known: str = ""


class Change(Struct, kw_only=True):
    """The planned or actual effect of an action on a component or the topology."""

    #: Example: `count: 3 -> 4 tasks`, `pauses 2 spouts`.
    text: str


class ActionResult(Struct, kw_only=True):
    """`POST /actions/{action}`: the result of an action."""

    action: str
    #: Whether nothing was changed.
    dry_run: bool
    #: One sentence about the performed or planned action.
    text: str
    changes: list[Change]
    #: The version of the packing plan afterwards; None if unknown, or if the topology is gone.
    plan_version: int | None


class ActionBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of an action. The description of the action names its fields. All fields are optional."""

    dry_run: bool = False
    #: restart: the container, task or component; without any of them the whole topology.
    container: int | None = None
    task: int | None = None
    component: str | None = None
    #: update: map from component to number of tasks.
    parallelism: dict[str, int] | None = None
    #: update: map from setting, as `[component:]key`, to value.
    settings: dict[str, str] | None = None
    #: restore: the checkpoint; None for the newest undamaged one.
    checkpoint: int | None = None
    #: kill: maximum duration in seconds.
    timeout_s: float | None = None
