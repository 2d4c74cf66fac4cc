"""A fluid model of a topology: its figures and its lag under any scaling decision.

Rates, queues and CPU are real numbers, and backpressure holds back all spouts in the same step. The model has the exact
capacity of each thread, so the scaler's estimates and decisions can be compared with it. `heronpy.health` diagnoses
the model's figures like a real topology's. Problems are simulated by `Fault`s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from math import sqrt
from typing import Any, Final, Protocol

from msgspec import Struct

from heronpy.health.diagnose import diagnose
from heronpy.health.signals import HostSignals, Signals, TaskSignals
from heronpy.health.times import TIMES
from heronpy.health.times import Times as HealthTimes
from heronpy.proto import control_pb2
from heronpy.scaling.figures import Figures, Goal, Observation, Past, Times
from heronpy.scaling.plan import Outcome, decide
from heronpy.scaling.state import State
from heronpy.views.findings import CALM, Finding

HOSTS: Final = ("a", "b")
CORES: Final = 16
#: Start of model time, at midnight.
START_S: Final = 86_400.0 * 20_000
#: Bytes in the queue of a full bolt, and of a bolt that is not full.
_QUEUE_FULL, _QUEUE = 1_000_000, 1_000
#: Busy share above which a task holds back the spouts.
_FULL = 0.999


class Part(Struct, kw_only=True):
    """A component. Task n runs on host n modulo 2."""

    name: str
    #: Tuples per second of one busy thread: P.
    per_s: float
    tasks: int = 1
    concurrency: int = 1
    asynchronous: bool = False
    #: Source component -> tuples received per tuple that the source processes; empty for a spout.
    inputs: dict[str, float] = {}
    #: Whether tuples are distributed to the tasks by key.
    keyed: bool = False
    #: Share of the busy time that is computation; the other busy time is waiting.
    computes: float = 1.0
    #: Reported busy time as a share of the true busy time.
    reports: float = 1.0
    #: Number of keys of all tasks, bytes of a task without keys, and bytes of a key.
    keys: float = 0.0
    base_bytes: float = 3e7
    key_bytes: float = 100.0
    limit_bytes: int | None = None
    fixed: str = ""


class Fault(Struct, frozen=True):
    """A temporary problem.

    Depending on the kind, `much` is a share (such as the remaining share of a rate), a factor, a rate, or a number of
    threads of other programs that are always busy. These threads run on the host `part`, or on all hosts if `part` is a
    component.
    """

    kind: str
    part: str = ""
    since_s: float = 0.0
    until_s: float = 1e12
    much: float = 0.0


class _Step(Struct):
    """One step: its length, the share of it during which spouts were held back, and each task's rate and busy share."""

    for_s: float
    held: float
    rates: dict[str, list[float]]
    busy: dict[str, list[float]]
    cpu_factor: dict[str, float]


class Minutes(Protocol):
    """The interface of the history of a job's demand; see `heronpy.scaling.history`."""

    def add(self, now: float, rates: Mapping[str, tuple[float, float | None]]) -> None:
        """Record the demand on each component."""

    def past(self, components: list[str], now: float) -> dict[str, Past]:
        """Return the demand on the components on other days."""


class Model:
    """A topology in which each spout is offered `offered(seconds since the start)` tuples per second."""

    def __init__(
        self,
        parts: list[Part],
        offered: Callable[[float], float],
        faults: tuple[Fault, ...] = (),
        noise: Callable[[], float] = lambda: 0.0,
        rescale_s: float = 2.0,
        step_s: float = 10.0,
        reports_backlog: bool = True,
        times: HealthTimes = TIMES,
    ) -> None:
        self.parts = {part.name: part for part in parts}
        self.offered, self.faults, self.noise = offered, faults, noise
        self.rescale_s, self.step_s, self.reports_backlog = rescale_s, step_s, reports_backlog
        self.times = times
        self.now = START_S
        self.backlog = {part.name: 0.0 for part in parts if not part.inputs}
        #: Tuple-seconds of waiting in the sources, and the number of changes to parallelism.
        self.waited = 0.0
        self.rescaled = 0
        self.findings: list[Finding] = []
        self._paused_s = 0.0
        self._changed_at: float | None = None
        self._steps: deque[_Step] = deque(maxlen=round(times.window_s / step_s))
        self._minutes: dict[str, dict[str, list[float | None]]] = {}
        self._usual: dict[str, float] = {}

    @property
    def passed_s(self) -> float:
        """Seconds since the start."""
        return self.now - START_S

    @property
    def lag_s(self) -> float:
        """Seconds that a tuple arriving now would wait in its source."""
        last = self._steps[-1].rates if self._steps else {}
        return max(
            (self.backlog[name] / max(1e-9, sum(last.get(name, [0.0]))) for name in self.backlog if self.backlog[name]),
            default=0.0,
        )

    def apply(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Set parallelism, concurrency and memory limits to the values in the layer `scaler`."""
        for name, tasks in changes.get("parallelism", {}).items():
            self.parts[name].tasks = tasks
        for name, calls in changes.get("concurrency", {}).items():
            self.parts[name].concurrency = calls
        for name, resources in changes.get("resources", {}).items():
            self.parts[name].limit_bytes = resources["ram"]
        if changes.get("parallelism"):
            self._paused_s += self.rescale_s
            self._changed_at = self.now
            self._steps.clear()
            self.rescaled += 1

    # ---- behaviour ---------------------------------------------------------------------

    def _active(self, kind: str, part: str | None = None) -> Fault | None:
        return next(
            (
                one for one in self.faults
                if one.kind == kind and part in (None, one.part) and one.since_s <= self.passed_s < one.until_s
            ),
            None,
        )  # fmt: skip

    def _is_down(self, part: Part, task: int) -> bool:
        lost = self._active("lost stream manager")
        return lost is not None and bool(part.inputs) and task % len(HOSTS) == 1

    def _others(self, host: str) -> float:
        """Return the number of other programs' threads that are always busy on a host."""
        full = self._active("full machine")
        return full.much if full is not None and full.part in (host, *self.parts) else 0.0

    def _cpu_factors(self) -> dict[str, float]:
        """Return for each host the CPU that its tasks get, divided by the CPU that they need."""
        return {host: min(1.0, CORES / (self._others(host) + 1)) for host in HOSTS}

    def _capacities(self, part: Part, factors: Mapping[str, float]) -> list[float]:
        """Return the maximum tuples per second for each task of a component."""
        wall = 1 / part.per_s
        slower, worse = self._active("dependency", part.name), self._active("bad update", part.name)
        wall *= slower.much if slower is not None else 1.0
        wall /= worse.much if worse is not None else 1.0
        cpu = part.computes / part.per_s
        found = []
        for task in range(part.tasks):
            each = wall + cpu * (1 / factors[HOSTS[task % len(HOSTS)]] - 1)
            for kind, hit in (
                ("slow host", task % len(HOSTS) == 0),
                ("slow task", task == 0),
                ("crash loop", task == 0),
            ):
                fault = self._active(kind, part.name)
                each /= fault.much if fault is not None and hit else 1.0
            found.append(1e-6 if self._is_down(part, task) else part.concurrency / each)
        return found

    def _shares(self, part: Part, capacities: list[float]) -> list[float]:
        """Return each task's share of the tuples: by key, or in proportion to its capacity."""
        hot = self._active("hot key", part.name)
        if part.keyed:
            much = hot.much if hot is not None else 0.0
            return [(1 - much) / part.tasks + (much if task == 0 else 0.0) for task in range(part.tasks)]
        return [each / sum(capacities) for each in capacities]

    def step(self) -> None:
        """Advance the model by `step_s`."""
        for_s, offered = self.step_s, self.offered(self.passed_s)
        works = max(0.0, for_s - self._paused_s) / for_s
        self._paused_s = max(0.0, self._paused_s - for_s)
        factors = self._cpu_factors()
        capacities = {name: self._capacities(part, factors) for name, part in self.parts.items()}
        comes = {name: min(sum(capacities[name]), offered + waits / for_s) for name, waits in self.backlog.items()}
        demand, shares = dict(comes), {}
        free = 1.0
        for name, part in self.parts.items():  # sources come first
            if part.inputs:
                demand[name] = sum(demand[source] * each for source, each in part.inputs.items())
                shares[name] = self._shares(part, capacities[name])
                even = demand[name] / part.tasks
                if not part.keyed and even <= min(capacities[name]):
                    shares[name] = [1 / part.tasks] * part.tasks
                for share, most in zip(shares[name], capacities[name], strict=True):
                    free = min(free, most / (demand[name] * share) if demand[name] * share > most else 1.0)
        stuck = self._active("nothing shows")
        free = min(free, stuck.much / max(1e-9, sum(comes.values()))) if stuck is not None else free
        rates, busy = {}, {}
        for name, part in self.parts.items():
            done = demand[name] * free * works
            rates[name] = [done * share for share in shares.get(name, [1 / part.tasks] * part.tasks)]
            busy[name] = [min(1.0, rate / most) for rate, most in zip(rates[name], capacities[name], strict=True)]
        for name, waits in self.backlog.items():
            self.backlog[name] = max(0.0, waits + (offered - sum(rates[name])) * for_s)
        self._steps.append(_Step(for_s, 1 - free * works, rates, busy, factors))
        self.waited += sum(self.backlog.values()) * for_s
        self.now += for_s

    # ---- observations ---------------------------------------------------------------------

    def _over_window(self, name: str, what: str) -> list[float]:
        """Return each task's mean of `what` over the window."""
        steps = [getattr(step, what)[name] for step in self._steps]
        return [sum(values) / len(steps) for values in zip(*steps, strict=True)]

    def look(self, past: Mapping[str, Past]) -> Observation:
        """Diagnose the model; return the figures and findings that a topology master would report."""
        signals = self._signals()
        self.findings = diagnose(signals, self.findings)
        if all(one.verdict in CALM for one in self.findings):
            self.learn_usual()
        return Observation(
            topology=signals.topology,
            at=self.now,
            components=tuple(self._figures(part, signals) for part in self.parts.values()),
            findings=tuple(self.findings),
            window_s=signals.window_s,
            held=signals.held,
            end_to_end_s=0.01 + self.lag_s,
            rescale_s=self.rescale_s,
            room_bytes=1 << 33,
            past=dict(past),
            updated_at=self._changed_at,
        )

    def learn_usual(self) -> None:
        """Update the usual processing time per tuple, as a topology master does in healthy minutes."""
        for name in self.parts:
            done, busy = sum(self._over_window(name, "rates")), sum(self._over_window(name, "busy"))
            if done and busy:
                self._usual[name] = 0.98 * self._usual.get(name, busy / done) + 0.02 * busy / done

    def _figures(self, part: Part, signals: Signals) -> Figures:
        tasks = signals.of(part.name)
        rates = [task.emitted if task.is_spout else task.executed for task in tasks]
        told = self._active("missing figures", part.name) is None
        memory = part.base_bytes + part.key_bytes * part.keys / part.tasks
        return Figures(
            name=part.name,
            is_spout=not part.inputs,
            tasks=part.tasks,
            concurrency=part.concurrency,
            asynchronous=part.asynchronous,
            processed=sum(rates),
            inputs={source: sum(self._over_window(source, "rates")) * each for source, each in part.inputs.items()},
            busy=sum(task.busy or 0.0 for task in tasks) / len(tasks) if told and tasks else None,
            spread=_spread(rates),
            backlog=self.backlog[part.name] if not part.inputs and self.reports_backlog else None,
            memory_mean=memory,
            memory_max=1.05 * memory,
            memory_limit=part.limit_bytes,
            keys=part.keys / part.tasks if part.keys else None,
            saturated=any(task.name in signals.culprits for task in tasks),
            fixed=part.fixed,
            usual_s=self._usual.get(part.name),
        )

    def _signals(self) -> Signals:
        """Return the signals that `heronpy.health` diagnoses."""
        found = Signals("Model", control_pb2.LIFE_RUNNING, "", sum(step.for_s for step in self._steps) or 1.0)
        found.times, found.asked_s, found.age_s = self.times, self.times.window_s, self.passed_s
        found.held = sum(step.held for step in self._steps) / len(self._steps) if self._steps else 0.0
        found.keyed = [part.name for part in self.parts.values() if part.keyed]
        last = self._steps[-1] if self._steps else None
        for part in self.parts.values():
            rates, busy = self._over_window(part.name, "rates"), self._over_window(part.name, "busy")
            found.tasks += [self._task(part, task, *both) for task, both in enumerate(zip(rates, busy, strict=True))]
            if last is not None and last.held > 0.01 and part.inputs:
                full = [number for number, share in enumerate(last.busy[part.name]) if share >= _FULL]
                found.culprits += [f"{part.name}-{number}" for number in full]
            found.arrivals |= {part.name: sum(rates)} if part.inputs else {}
            if part.limit_bytes is not None:
                found.memory_limits[part.name] = part.limit_bytes
        found.usual_s = dict(self._usual)
        self._add_faults(found)
        if self._changed_at is not None:
            found.changed_s = found.updated_s = self.now - self._changed_at
        self._add_minute(found)
        return found

    def _task(self, part: Part, number: int, rate: float, busy: float) -> TaskSignals:
        is_spout, host = not part.inputs, HOSTS[number % len(HOSTS)]
        noisy = rate * (1 + self.noise())
        factor = sum(step.cpu_factor[host] for step in self._steps) / len(self._steps)
        cpu = rate * part.computes / part.per_s
        slow = self._active("slow host", part.name) or self._active("slow task", part.name)
        if slow is not None and (number == 0 or (slow.kind == "slow host" and number % len(HOSTS) == 0)):
            cpu /= slow.much
        worse = self._active("bad update", part.name)
        share = min(1.0, max(0.0, busy * part.reports * (1 + self.noise())))
        return TaskSignals(
            f"{part.name}-{number}", part.name, is_spout, up=not self._is_down(part, number),
            executed=0.0 if is_spout else noisy, emitted=noisy, sent=None if is_spout else noisy, busy=share,
            cpu=min(share, cpu / (worse.much if worse is not None else 1.0)), cpu_wait=cpu * (1 / factor - 1),
            queue_bytes=_QUEUE_FULL if busy >= _FULL else _QUEUE, host=host,
            memory_bytes=int(1.05 * (part.base_bytes + part.key_bytes * part.keys / part.tasks)),
        )  # fmt: skip

    def _add_faults(self, found: Signals) -> None:
        """Add what processes and hosts report about the faults."""
        for one in self.faults:
            ago_s = self.passed_s - one.since_s
            if ago_s < 0 or self.passed_s >= one.until_s + self.times.window_s:
                continue
            if one.kind == "crash loop":
                found.restarted[f"{one.part}-0"] = (
                    max(1, int(min(ago_s, self.times.window_s) / 20)),
                    "ValueError: no number",
                )
            elif one.kind == "poison":
                found.given_up[one.part] = 3.0
            elif one.kind == "lost stream manager":
                found.lost = 100.0
            elif one.kind == "bad update" and (self._changed_at is None or self._changed_at < START_S + one.since_s):
                self._changed_at = START_S + one.since_s
        for host in HOSTS:
            own = sum(task.cpu or 0.0 for task in found.tasks if task.host == host)
            wanted = self._others(host) + own
            used = min(float(CORES), wanted)
            pressure = 1 - CORES / wanted if wanted > CORES else 0.0
            found.hosts.append(HostSignals(host, CORES, pressure, used, min(own, used)))

    def _add_minute(self, found: Signals) -> None:
        """Add the current minute to the series of the last hour."""
        series = {"": {"held": self._steps[-1].held if self._steps else 0.0, "plan_version": 1.0 + self.rescaled}}
        for name in found.components:
            tasks = found.of(name)
            series[name] = {
                "emitted": sum(task.emitted for task in tasks),
                "executed": sum(task.executed for task in tasks),
                "busy": sum(task.busy or 0.0 for task in tasks) / len(tasks),
                "tasks": float(len(tasks)),
                "queue_bytes": float(sum(task.queue_bytes for task in tasks)),
                "largest_bytes": float(max(task.memory_bytes or 0 for task in tasks)),
            }
        for name, values in series.items():
            for what, value in values.items():
                minutes = self._minutes.setdefault(name, {}).setdefault(what, [])
                minutes.append(value)
                del minutes[:-62]
        found.history = self._minutes


def _spread(rates: list[float]) -> float | None:
    """Return the standard deviation of the rates, divided by their mean; None if the mean is 0."""
    mean = sum(rates) / len(rates)
    return sqrt(sum((rate - mean) ** 2 for rate in rates) / len(rates)) / mean if mean else None


def run(
    model: Model, goal: Goal, times: Times, for_s: float, minutes: Minutes | None = None, state: State | None = None
) -> Iterator[tuple[Observation, Outcome]]:
    """Run the model with the scaler; yield each observation and its outcome."""
    state = state or State()
    until = model.now + for_s
    while model.now < until:
        looked_at = model.now
        while model.now < min(until, looked_at + times.look_s):
            model.step()
        look = model.look(minutes.past(list(model.parts), model.now) if minutes is not None else {})
        outcome = decide(state, look, goal, times)
        state = outcome.state
        model.apply(outcome.changes)
        if minutes is not None:
            minutes.add(model.now, outcome.rates)
        yield look, outcome
