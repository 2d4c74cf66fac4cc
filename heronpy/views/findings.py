"""A diagnosis as data: the verdict, the affected component and task, and the figures. Pure."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field


class Verdict(Enum):
    """The kinds of diagnosis."""

    HEALTHY = "healthy"
    FAILED = "failed"
    CHANGING = "changing"
    DOWN = "down"
    HUNG = "hung"
    MEMORY = "memory"
    CRASHING = "crashing"
    BAD_UPDATE = "bad update"
    DEPENDENCY = "dependency"
    SKEW = "skew"
    SLOW_TASK = "slow task"
    SLOW_HOST = "slow host"
    MACHINE = "machine"
    UNDER_PROVISIONED = "under-provisioned"
    LIMIT = "limit"
    CHECKPOINTS = "checkpoints"
    SPARK = "spark"
    LOSSES = "losses"
    CATCHING_UP = "catching up"
    NO_INPUT = "no input"
    OVER_PROVISIONED = "over-provisioned"
    UNTRIAGED = "untriaged"
    STOPPED = "stopped"
    PROCESSES = "processes"
    DESCRIPTORS = "descriptors"
    LOGGING = "logging"
    DISK = "disk"


#: Verdicts that currently need no action.
CALM = frozenset({Verdict.HEALTHY, Verdict.CHANGING, Verdict.NO_INPUT, Verdict.CATCHING_UP, Verdict.OVER_PROVISIONED})


#: Verdicts about a machine and all processes on it, which are never a cause within the topology.
OF_MACHINES = frozenset({Verdict.MACHINE})


class Finding(Struct, frozen=True):
    """A diagnosis: the affected component or task, and the evidence."""

    verdict: Verdict
    component: str = ""
    task: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    #: Quoted text: a cause, the last line of a process, or the line of code or key that takes the time.
    quote: str = ""
    names: tuple[str, ...] = ()
    #: Host of the task.
    host: str = ""

    @property
    def scope(self) -> str:
        """`topology`, or `machine` for a condition that affects all processes on the machine."""
        return "machine" if self.verdict in OF_MACHINES else "topology"


#: The scheduler of containers on an engine, which belongs to no component.
SCHEDULER_DOWN = Finding(Verdict.DOWN, names=("scheduler",))
