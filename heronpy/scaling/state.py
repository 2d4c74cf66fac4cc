"""The memory of the scaler between looks: plans in progress, barred components, and estimates. Pure."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from heronpy.scaling.decisions import Alert
from heronpy.scaling.estimate import Known
from heronpy.scaling.figures import Times
from heronpy.scaling.slo import Attainment


class Trial(Struct, frozen=True):
    """A changed value, and the rate of its component before the change."""

    key: str
    before: int
    after: int
    rate: float


class Plan(Struct, frozen=True):
    """Changes whose effect has not been judged yet, by component."""

    at: float
    trials: dict[str, Trial]
    #: Time at which the changes became visible; None before.
    seen_at: float | None = None


class Bar(Struct, frozen=True):
    """A component for which more tasks had no effect; `times` counts the consecutive attempts after the first."""

    until: float
    times: int


class Shrunk(Struct, frozen=True):
    """When tasks of a component were removed, and the component's previous number of threads."""

    at: float
    threads: int


class State(Struct, frozen=True):
    """The memory of the scaler between looks, which can be stored as JSON."""

    at: float = 0.0
    known: dict[str, Known] = {}
    #: Map from condition, such as a component needing more tasks, to the time since which it holds.
    since: dict[str, float] = {}
    #: Time when a user last changed the topology.
    changed_at: float = 0.0
    #: The program at the last look, and the time since which it runs; 0: since before the first look.
    program: str = ""
    deployed_at: float = 0.0
    plan: Plan | None = None
    shrunk: dict[str, Shrunk] = {}
    bars: dict[str, Bar] = {}
    #: Components whose last step had most of its effect, since a user changed the topology.
    helped: tuple[str, ...] = ()
    #: Map from component to the last reason for a refusal.
    said: dict[str, str] = {}
    alerts: dict[str, Alert] = {}
    slo: Attainment = Attainment()
    #: The last look without a lag; 0: none was seen.
    kept_up_at: float = 0.0
    format: int = 1


def by_clock(state: State, now: float, times: Times) -> State:
    """Return the state with future times set to now, so that the scaler does not wait if the clock was set back."""
    if state.at <= now:
        return state
    plan = state.plan
    if plan is not None:
        seen_at = min(plan.seen_at, now) if plan.seen_at is not None else None
        plan = replace(plan, at=min(plan.at, now), seen_at=seen_at)
    return replace(
        state,
        changed_at=min(state.changed_at, now),
        deployed_at=min(state.deployed_at, now),
        kept_up_at=min(state.kept_up_at, now),
        plan=plan,
        shrunk={name: replace(one, at=min(one.at, now)) for name, one in state.shrunk.items()},
        bars={
            name: replace(one, until=min(one.until, now + times.bar_s * 2**one.times))
            for name, one in state.bars.items()
        },
    )


def withdrawn(state: State) -> State:
    """Return the state without its plan, because the plan's changes could not be written."""
    return replace(state, plan=None)
