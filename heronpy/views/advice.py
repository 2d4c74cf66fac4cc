"""What the doctor says, and what an action does. Pure."""

from __future__ import annotations

from msgspec import Struct


class Finding(Struct, kw_only=True):
    """A diagnosis with its evidence."""

    #: `healthy`, `failed`, `changing`, `down`, `hung`, `memory`, `crashing`, `dependency`, `skew`, `slow task`,
    #: `under-provisioned`, `limit`, `checkpoints`, `spark`, `losses`, `no input`, `untriaged`, `stopped`, `machine`;
    #: of a topology that has ended `ended` first, `held`, `busy`; more may come.
    verdict: str
    #: Needs no action.
    calm: bool
    #: One sentence without a full stop.
    sentence: str
    #: What to do next, often a command; empty: nothing.
    next: str
    #: Concerned component and task; empty: the topology.
    component: str
    task: str
    #: The numbers of the sentence, by name.
    figures: dict[str, float]
    names: list[str]
    #: Machine of the task; empty: not known, or no single task.
    host: str = ""
    #: `topology`; `machine` of what is so for everything that runs there, and comes after causes within the topology.
    scope: str = "topology"
    #: The sentence without what may quote values; empty: it quotes none. Without the scope `data` it is `sentence`.
    unquoted: str = ""


class TaskSignal(Struct, kw_only=True):
    """What the doctor knows of a task, over the window."""

    instance_id: str
    component: str
    up: bool
    executed_per_s: float
    emitted_per_s: float
    busy: float | None
    cpu: float | None
    queue_bytes: int
    #: How long the queue takes at the present rate.
    lag_s: float | None
    silent_s: float


class Doctor(Struct, kw_only=True):
    """`GET /doctor`: the finding to act on first comes first; never empty."""

    topology: str
    #: All findings are calm.
    healthy: bool
    window_s: float
    findings: list[Finding]
    #: Tuples that the spouts emit.
    emitted_per_s: float
    held: float
    tasks: list[TaskSignal]
    #: Whether restarts and changes of the past are known.
    events_known: bool
    #: When it ended: the figures are of its last minutes, and of no task. None: it has not.
    ended_at: float | None = None
    #: What could not be asked, one sentence: of a topology that has ended, what nobody can tell any more; of one that
    #: runs, what its topology master did not tell in time. Empty: everything was answered.
    not_known: str = ""


class Change(Struct, kw_only=True):
    """What an action would do, or did, to one component or the topology."""

    #: Such as `count: 3 -> 4 tasks`, `pauses 2 spouts`.
    text: str


class ActionResult(Struct, kw_only=True):
    """`POST /actions/{action}`"""

    action: str
    #: Nothing was changed.
    dry_run: bool
    #: One sentence: what was done, or would be.
    text: str
    changes: list[Change]
    #: The version of the packing plan afterwards; None: not known, or gone.
    plan_version: int | None


class ActionBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of an action; which fields apply is said by the action's description. All may be left out."""

    dry_run: bool = False
    #: restart: this container, task or component; else the whole topology.
    container: int | None = None
    task: int | None = None
    component: str | None = None
    #: update: component to number of tasks.
    parallelism: dict[str, int] | None = None
    #: update: settings as `[component:]key` to value.
    settings: dict[str, str] | None = None
    #: restore: the checkpoint; None: the newest that is whole.
    checkpoint: int | None = None
    #: kill: how long the topology may take.
    timeout_s: float | None = None
