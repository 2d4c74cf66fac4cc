"""Plans: the steps, as data, that make a topology match its job. Pure.

A plan is stored before its first step, with the number of the running step, so a successor can see which step may be
half done. Invariants: A step can be repeated. `is_done` decides by observation whether a step can be skipped.
The undo of a step, performed after the step or a part of it, restores the previous state. A topology that is started
again continues with the previous state under another id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, cast

from msgspec import Struct

from heronpy.jobs.differ import Difference, Effect, differences
from heronpy.jobs.documents import Leaves, Path, Value, component_of

#: Leaves in their stored form, sorted by path.
Pairs: TypeAlias = tuple[tuple[Path, Value], ...]
#: Seconds without trouble after which a started topology is accepted.
PROVED_S: Final = 30.0
STOPPED: Final[Leaves] = {("run",): "stopped"}
"""The desired state of a deleted job."""


class Seen(Struct, frozen=True):
    """The observed state of the topology that has a job's name."""

    topology_id: str = ""
    """"" if there is no topology."""
    alive: bool = False
    """Whether the topology is running, or is being restarted by its guardian or engine."""
    finished: bool = False
    """Whether the topology has ended because it has processed all of its bounded input."""
    leaves: Leaves = {}
    """The leaves of `differ.SEEN`: the current values in the topology's plans, master and configuration."""
    plan_version: int = 0
    """The version of the packing plan in the state manager."""
    running_s: float = 0.0
    """Seconds for which all tasks have been running or paused without trouble."""
    trouble: str = ""
    """One sentence about a part that crashes, has failed, is down or hangs; "" if there is no trouble."""
    waits: str = ""
    """What the topology waits for before it runs, such as the queue of an engine; "" if it does not wait."""


class _Step(Struct, frozen=True):
    def is_done(self, seen: Seen) -> bool:
        """Whether the step can be skipped, because its effect is already visible."""
        return False

    def undo(self) -> Step | None:
        """Return the step that restores the previous state; None if there is nothing to undo."""
        return None


class Check(_Step, frozen=True, tag=True):
    """Pack the program, and check that the newest checkpoint fits it.

    If a topology runs, a child process also unpacks the program and imports its classes.
    """

    leaves: Pairs


class Stop(_Step, frozen=True, tag=True):
    """Stop a topology as `heron stop` does: after a savepoint, or after draining the topology."""

    topology_id: str
    again: Start | None = None
    """The step that starts the topology again, used as the undo; None if it was not running."""

    def is_done(self, seen: Seen) -> bool:
        return seen.topology_id != self.topology_id

    def undo(self) -> Step | None:
        return self.again


class End(_Step, frozen=True, tag=True):
    """Remove the remains of a topology, without a savepoint."""

    topology_id: str

    def is_done(self, seen: Seen) -> bool:
        return seen.topology_id != self.topology_id


class Start(_Step, frozen=True, tag=True):
    """Start a topology with this id, after reserving its name; refused while another topology has the name."""

    topology_id: str
    leaves: Pairs
    restore: str
    """`latest`, `allow_dropped` or `empty`."""
    savepoint_of: str = ""
    """Id of the topology whose final savepoint is restored, even if newer checkpoints exist."""
    unless: str = ""
    """Id of a topology that makes the start unnecessary if it is alive or has finished; "" if there is none."""

    def is_done(self, seen: Seen) -> bool:
        return (seen.alive or seen.finished) and seen.topology_id in {self.topology_id, self.unless} - {""}

    def undo(self) -> Step | None:
        return End(self.topology_id)


class Prove(_Step, frozen=True, tag=True):
    """Wait until a started topology runs without trouble; this step performs no action."""

    topology_id: str

    def is_done(self, seen: Seen) -> bool:
        return seen.topology_id == self.topology_id and (seen.finished or (seen.alive and seen.running_s >= PROVED_S))


class _Live(_Step, frozen=True):
    """A change to a running topology, which replaces all old leaves in one step."""

    topology_id: str
    differences: tuple[Difference, ...]
    replaces: int = 0
    """The version of the packing plan that the change replaces; 0: any version."""

    def is_done(self, seen: Seen) -> bool:
        there = seen.alive and seen.topology_id == self.topology_id
        return there and all(seen.leaves.get(one.path) == one.new for one in self.differences)

    def undo(self) -> Step | None:
        return cast("Step", type(self)(self.topology_id, tuple(one.back for one in self.differences)))


class Configure(_Live, frozen=True, tag=True):
    """Send new configuration to the topology master."""


class SetState(_Live, frozen=True, tag=True):
    """Pause or resume the topology."""


class Resize(_Live, frozen=True, tag=True):
    """Change the sizes of containers, with an update that moves no task."""


class Update(_Live, frozen=True, tag=True):
    """Change the number of tasks of components, with an update by the topology master."""


class Commit(_Step, frozen=True, tag=True):
    """Commit the new state of the job; the syncer does so in the write that ends the plan."""


Step: TypeAlias = Check | Stop | End | Start | Prove | Configure | SetState | Resize | Update | Commit


class Plan(Struct, frozen=True):
    """A list of steps and the current position in it."""

    target: Pairs
    versions: dict[str, int]
    """The versions of the layers from which the target was merged."""
    steps: tuple[Step, ...]
    since: float
    """When the running step began."""
    changed: tuple[str, ...] = ()
    """Components whose task specifications change; "" means all components."""
    at: int = 0
    undoing: bool = False
    tries: int = 0
    """Number of attempts at the running step, if it undoes another step."""

    @property
    def step(self) -> Step | None:
        """The running step; None after the last step."""
        return self.steps[self.at] if self.at < len(self.steps) else None

    def is_done(self, seen: Seen) -> bool:
        """Whether the running step can be skipped. A change to a topology that is gone need not be undone."""
        step = self.step
        if self.undoing and isinstance(step, _Live) and not (seen.alive and seen.topology_id == step.topology_id):
            return True
        if isinstance(step, Resize) and not self.undoing:
            return False  # it cannot be seen whether containers that are too small were replaced
        return step is not None and step.is_done(seen)

    def undone(self, now: float) -> Plan:
        """Return the plan that undoes the steps from the running step backwards."""
        steps = (step.undo() for step in reversed(self.steps[: self.at + 1]))
        back = tuple(step for step in steps if step is not None)
        return Plan(self.target, self.versions, back, now, undoing=True)


def pairs_of(leaves: Leaves) -> Pairs:
    """Return the leaves as pairs, sorted by path."""
    return tuple(sorted(leaves.items(), key=lambda pair: pair[0]))


def plan_of(
    desired: Leaves, versions: dict[str, int], committed: Leaves, seen: Seen, now: float, fresh_id: str
) -> Plan | None:
    """Return the plan that brings the topology into its desired state; None if it is in that state.

    `fresh_id` is an id that was never used for a topology.
    """
    runs = desired.get(("run",), "running") != "stopped"
    found = differences(desired, committed, seen.leaves if seen.alive and runs else None)
    steps: list[Step] = []
    if not runs:
        if seen.topology_id:
            steps = [Stop(seen.topology_id) if seen.alive else End(seen.topology_id)]
    elif Effect.RESTART in found or not (seen.alive or seen.finished):
        steps = list(_restart(desired, committed, seen, Effect.RESTART in found, fresh_id))
    elif seen.alive:
        if Effect.CONFIGURE in found:
            steps.append(Configure(seen.topology_id, found[Effect.CONFIGURE]))
        if Effect.RESIZE in found:
            steps.append(Resize(seen.topology_id, found[Effect.RESIZE], seen.plan_version))
        if Effect.UPDATE in found:
            replaces = 0 if Effect.RESIZE in found else seen.plan_version
            steps.append(Update(seen.topology_id, found[Effect.UPDATE], replaces))
        if Effect.STATE in found:
            steps.append(SetState(seen.topology_id, found[Effect.STATE]))
    if not steps and committed == desired:
        return None
    return Plan(pairs_of(desired), versions, (*steps, Commit()), now, tuple(sorted(_changed(found))))


def _restart(desired: Leaves, committed: Leaves, seen: Seen, is_new: bool, fresh_id: str) -> Iterable[Step]:
    restore = str(desired.get(("restore",), "latest"))
    if is_new:
        yield Check(pairs_of(desired))
    if seen.alive:
        old = {path: seen.leaves.get(path, value) for path, value in committed.items()}
        back = Start(f"{fresh_id}-back", pairs_of(old), "latest", seen.topology_id, seen.topology_id)
        yield Stop(seen.topology_id, back)
    elif seen.topology_id:
        yield End(seen.topology_id)
    yield Start(fresh_id, pairs_of(desired), restore, seen.topology_id if seen.alive else "")
    yield Prove(fresh_id)


def _changed(found: dict[Effect, tuple[Difference, ...]]) -> set[str]:
    """Return the components whose tasks must restart; "" means all components."""
    if Effect.RESTART in found:
        return {""}
    those = (*found.get(Effect.RESIZE, ()), *found.get(Effect.UPDATE, ()))
    return {component_of(one.path) or "" for one in those}
