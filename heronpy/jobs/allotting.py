"""Allots pools to jobs: computes the claims of jobs from their documents and current state. `heronpy.scaling.capacity`
decides which claims are granted.

Whenever the syncer looks at a job in a pool, the pool is allotted to all of its jobs together. The last allotment of a
job is part of `Running`, so another syncer can continue from it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from msgspec.structs import replace

from heronpy.clusters.errors import RequestError
from heronpy.clusters.session import Session
from heronpy.common.errors import ConfigError, HeronError, NoNodeError
from heronpy.common.settings import JOBS_FILE
from heronpy.common.units import counted, format_bytes
from heronpy.jobs.base import read_quotas
from heronpy.jobs.documents import EMPTY, Document, Leaves, Path, goal_of, name_of
from heronpy.jobs.driver import TopologyDriver, topology_of, wish_of, wished_of
from heronpy.jobs.merge import pins_of, values_of
from heronpy.jobs.plans import STOPPED
from heronpy.jobs.store import PLAIN, Store, View
from heronpy.jobs.syncer import Running, barred
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import not_scalable
from heronpy.pools.nodes import read_pool
from heronpy.pools.shards import Pool
from heronpy.scaling.capacity import Allotted, Amount, Claim, allot
from heronpy.scaling.figures import Goal
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.jobs")

#: Seconds for which an allotment is reused, unless the desired state of the requesting job has changed.
FRESH_S: Final = 1.0
#: Maximum number of jobs whose needs are cached.
NEEDS_MAX: Final = 4096
#: Number of jobs that a sentence names.
JOBS_SHOWN: Final = 5
#: Resources for one task of each component, and the resources that the job needs in addition.
Needs: TypeAlias = tuple[dict[str, Amount], Amount]
#: Leaves that do not change the needs of a task.
_NO_NEEDS: Final = frozenset(("parallelism", "run", "restore", "slo", "scale", "role", "priority", "privileged"))

#: Leaves that do not affect a job's claim on its pool.
_NO_CLAIM: Final = frozenset(("restore", "slo", "concurrency"))


def clipped(wish: Leaves, allotted: Allotted | None) -> Leaves:
    """Return the desired state of a job, with parallelism limited by its allotment."""
    if allotted is None:
        return wish
    if not allotted.runs:
        return wish | {("run",): "stopped"}
    limits = {("parallelism", one): n for one, n in allotted.limits.items()}
    return wish | {path: n for path, n in limits.items() if int(str(wish.get(path, 0))) > n}


def goal_within(document: Document, running: Running | None) -> Goal:
    """Return the objectives of a job and what its scaler may do now, given the job's state and allotment."""
    goal = replace(goal_of(document), barred=barred(running))
    allotted = running.allotted if running is not None else None
    if allotted is None or not allotted.limits:
        return goal
    return replace(goal, allotted=allotted.limits, short=f"in pool '{document.place.pool}' {allotted.why}")


def pool_of(leaves: Mapping[tuple[str, ...], object]) -> str:
    """Return the pool in which a job with these leaves runs; "" if the job is stopped or in no pool."""
    return "" if leaves.get(("run",)) == "stopped" else str(leaves.get(("place", "pool"), ""))


def tasks_of(leaves: Mapping[tuple[str, ...], object]) -> dict[str, int]:
    """Return the number of tasks of each component."""
    return {path[1]: int(str(n)) for path, n in leaves.items() if path[0] == "parallelism"}


def held_of(running: Running, pool: str) -> dict[str, int]:
    """Return the tasks of each component that occupy a pool; during a change, the larger of old and new numbers."""
    held: dict[str, int] = {}
    for pairs in (running.leaves, running.plan.target if running.plan is not None else ()):
        if pool_of(dict(pairs)) == pool:
            held |= {one: max(n, held.get(one, 0)) for one, n in tasks_of(dict(pairs)).items()}
    return held


def unchanged(wish: Leaves, running: Running, pool: str) -> Allotted:
    """Return an allotment with which a job keeps the tasks that it has, or fewer if it wants fewer."""
    held, before, why = held_of(running, pool), running.allotted, f"the quotas in {JOBS_FILE} cannot be read"
    if not held:
        return Allotted("PREEMPTED" if before is not None and before.state == "PREEMPTED" else "WAITING", why=why)
    limits = {one: held[one] for one, n in tasks_of(wish).items() if held.get(one, n) < n}
    return Allotted("SHRUNK", limits, why) if limits else Allotted()


def wanted_of(store: Store, view: View, running: Running) -> Leaves:
    """Return the desired state of a job, with the tasks that the scaler will add to reach `scale.min`."""
    leaves, scale, pins = wish_of(store, view, running).leaves, view.document.scale, pins_of(view.found)
    scaled = [one for one in scale.min if one in scale.max and one not in pins and scale.mode == "act"]
    least = {("parallelism", one): min(scale.min[one], scale.max[one]) for one in scaled}
    return leaves | {path: n for path, n in least.items() if int(str(leaves.get(path, n))) < n}


def claim_of(job: str, view: View, wish: Leaves, running: Running, needs: Needs, pool: str) -> Claim:
    """Return a job's claim on a pool; a job that is leaving the pool claims only what its current tasks use."""
    tasks, document = tasks_of(wish) if pool_of(wish) == pool else {}, view.document
    scale = document.scale
    return Claim(
        job,
        *needs,
        # A component without a maximum is never scaled, even if resources are free.
        {one: min(n, scale.min.get(one, 1)) if one in scale.max else n for one, n in tasks.items()},
        tasks,
        document.role,
        document.priority,
        document.privileged,
        view.created,
        held_of(running, pool),
        running.allotted or Allotted(),
    )


def _claiming(leaves: Leaves) -> Leaves:
    """Return the leaves that decide whether a job fits into its pool."""
    return {path: value for path, value in leaves.items() if path[0] not in _NO_CLAIM and path[:2] != ("scale", "mode")}


def _value_in(view: View, path: Path) -> object:
    found = view.found.get(path)
    return found.value if found is not None else None


def _text(path: Path, value: object) -> str:
    return format_bytes(int(str(value))) if path[-1] == "ram" else str(value)


def _more_room(why: str, view: View) -> str:
    """Return the action that gives a job more resources, if this is the reason why it lacks them."""
    role = view.document.role
    is_quota = role and f"jobs of role {role} may have" in why
    return f"raise the quota of role '{role}' in the cluster's {JOBS_FILE}" if is_quota else "add slots to the pool"


def _slots(pool: Pool) -> list[Amount]:
    """Return the sizes of a pool's slots that are not drained."""
    return [Amount(pool.size.cpu, pool.size.ram_bytes)] * (pool.slots - len(pool.drained))


class Allotting:
    """Allots a cluster's pools to jobs. Safe to call from several threads. `needs_of` returns the needs of a job
    with these leaves.
    """

    def __init__(self, store: Store, state: StateManager, needs_of: Callable[[str, Leaves], Needs]) -> None:
        self._store, self._state, self._needs_of = store, state, needs_of
        #: Map from role to quota.
        self.quotas: Mapping[str, Amount] = {}
        #: Whether each job keeps the tasks that it has, because the quotas have not been read yet.
        self.frozen = False
        self._lock = threading.Lock()
        #: Map from job to its current and its desired pool; None if they are not known yet. Empty before the first
        #: call.
        self._where: dict[str, set[str] | None] = {}
        self._begun = False
        #: Map from pool to its last allotment.
        self._found: dict[str, tuple[float, dict[str, Claim], dict[str, Allotted]]] = {}
        self._needs: dict[tuple[object, ...], Needs | RequestError] = {}
        self._changed: set[str] = set()

    def allotted(self, job: str, wish: Leaves, running: Running) -> Allotted | None:
        """Return the allotment of a job; None if the job is in no pool."""
        pool = pool_of(wish)
        with self._lock:
            self._where[job] = {pool, pool_of(dict(running.leaves))} - {""}
            if not self._where[job]:
                del self._where[job]
            if not pool:
                return None
            if self.frozen:
                return unchanged(wish, running, pool)
            at, claims, found = self._found.get(pool, (float("-inf"), {}, {}))
            known = claims.get(job)
            if known is None or known.wish != tasks_of(wish) or time.monotonic() - at > FRESH_S:
                found = self._allot(pool)
            self._changed.discard(job)
            return found.get(job)

    def changed(self) -> set[str]:
        """Return the jobs whose allotment may have changed since the last look at them."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return changed

    def _allot(self, pool: str) -> dict[str, Allotted]:
        size = read_pool(self._state, pool)
        if size is None:
            return {}  # the step that starts a job in the pool reports the error
        claims = self._claims(pool)
        found = allot(_slots(size), self.quotas, claims.values(), time.time())
        self._found[pool] = time.monotonic(), claims, found
        self._changed |= {
            job for job, new in found.items()
            if (new.state, new.limits) != (claims[job].before.state, claims[job].before.limits)
        }  # fmt: skip
        return found

    def check_change(self, job: str, before: View | None, after: View) -> list[str]:
        """Return the other jobs of the pool that this change, or this new job (`before` is None), would stop.

        Raises RequestError if a new job could never run in its pool, or if a changed job would no longer run. A new job
        may wait for free resources. A job that lacks resources may be changed, except to more tasks.
        """
        running = self._store.running(job)[0] or Running("")
        new = wanted_of(self._store, after, running)
        old = wanted_of(self._store, before, running) if before is not None else {}
        pool = pool_of(new)
        if not pool or _claiming(old) == _claiming(new):
            return []
        changed = [
            f"{name_of(path)}={_text(path, value)}"
            for path, value in _claiming(values_of(after.found)).items()
            if path != ("definition",) and (before is None or _value_in(before, path) != value)
        ]
        what = f"job '{job}' cannot run in pool '{pool}'" + (f" with {', '.join(changed)}" if changed else "")
        unfit = self._unfit(job, new, pool)
        if unfit:
            if before is None or pool_of(old) != pool or self._unfit(job, old, pool) != unfit:
                raise RequestError(f"{what}: {unfit}")
            return []  # as before
        if before is not None and old.get(("run",)) != "stopped":
            more = [one for one, count in tasks_of(new).items() if count > tasks_of(old).get(one, 0)]
            if more or pool_of(old) != pool or self._runs(job, before, old, pool):
                shrunk = running.allotted.limits if running.allotted is not None else {}
                self.check_tasks(job, after, more or [one for one in shrunk if ("parallelism", one) in new], more)
        elif never := self._never(job, after, new, pool):
            raise RequestError(f"{what}: {never}; reduce its resources, or {_more_room(never, after)}")
        size, claims = read_pool(self._state, pool), self._known_claims(pool)
        claim = claim_of(job, after, new, running, self._needs_at(job, new), pool)
        slots = _slots(size) if size is not None else []
        return self._stopped(slots, slots, claims, claims | {job: claim})

    def _unfit(self, job: str, leaves: Leaves, pool: str) -> str:
        """Return why a job cannot be placed: its pool does not exist, or a container is larger than a slot."""
        if read_pool(self._state, pool) is None:
            return f"there is no pool '{pool}'; create it, or name another pool"
        try:
            self._needs_at(job, leaves)
        except HeronError as error:
            return str(error)
        return ""

    def _never(self, job: str, view: View, leaves: Leaves, pool: str) -> str:
        """Return why a job does not fit into the pool even without other jobs; "" if it fits."""
        size = read_pool(self._state, pool)
        if size is None:
            return ""
        claim = claim_of(job, view, leaves, Running(""), self._needs_at(job, leaves), pool)
        found = allot(_slots(replace(size, drained=())), self.quotas, [claim], time.time())[job]
        return "" if found.runs else found.why

    def _runs(self, job: str, view: View, leaves: Leaves, pool: str) -> bool:
        return not self._unfit(job, leaves, pool) and not self._lacks(job, view, leaves, pool)

    def _lacks(
        self,
        job: str,
        view: View,
        leaves: Leaves,
        pool: str,
        whole: Collection[str] = (),
        claims: dict[str, Claim] | None = None,
    ) -> str:
        """Return why a job does not fit into its pool with the other jobs; "" if it fits.

        The components in `whole` must get all their tasks.
        """
        size = read_pool(self._state, pool)
        if size is None:
            return ""
        running = self._store.running(job)[0] or Running("")
        claims = self._known_claims(pool) if claims is None else claims
        claims[job] = claim_of(job, view, leaves, running, self._needs_at(job, leaves), pool)
        found = allot(_slots(size), self.quotas, claims.values(), time.time())[job]
        runs = found.runs and found.limits.keys().isdisjoint(whole)
        return "" if runs or found.fits_since is not None else found.why

    def check_tasks(self, job: str, view: View, components: Collection[str], whole: Collection[str] = ()) -> None:
        """Raise RequestError if a job, with all tasks of the components in `whole`, does not fit into its pool.

        If possible, the error names one of `components` and a number of tasks that fits.
        """
        running = self._store.running(job)[0] or Running("")
        wish = wanted_of(self._store, view, running)
        pool = pool_of(wish)
        claims = self._known_claims(pool) if pool else {}
        why = self._lacks(job, view, wish, pool, whole, claims) if pool else ""
        for path in [("parallelism", one) for one in components] if why else ():
            low, high = 0, int(str(wish[path]))
            while high - low > 1:
                middle = (low + high) // 2
                lacks = self._lacks(job, view, wish | {path: middle}, pool, whole, claims)
                low, high = (low, middle) if lacks else (middle, high)
            if low:
                fits = f"set {'.'.join(path)}={low}, which fits, or {_more_room(why, view)}"
                raise RequestError(f"job '{job}' would not run in pool '{pool}': {why}; {fits}")
        if why:
            raise RequestError(
                f"job '{job}' would not run in pool '{pool}': {why}; make a smaller change, or {_more_room(why, view)}"
            )

    def stopped_by(self, pool: str, smaller: Pool) -> list[str]:
        """Return the running jobs of a pool that would be stopped if the pool had the slots of `smaller`."""
        size = read_pool(self._state, pool)
        if size is None:
            return []
        claims = self._known_claims(pool)
        return self._stopped(_slots(size), _slots(smaller), claims, claims)

    def _stopped(
        self, slots: list[Amount], new_slots: list[Amount], claims: dict[str, Claim], new_claims: dict[str, Claim]
    ) -> list[str]:
        """Return the jobs that run with these slots and claims, but would not run with the new ones."""
        now = allot(slots, self.quotas, claims.values(), time.time())
        then = allot(new_slots, self.quotas, new_claims.values(), time.time())
        return sorted(job for job in now if now[job].runs and not then[job].runs)

    def _known_claims(self, pool: str) -> dict[str, Claim]:
        with self._lock:
            return self._claims(pool)

    def _claims(self, pool: str) -> dict[str, Claim]:
        if not self._begun:
            self._where, self._begun = dict.fromkeys(self._store.names()) | self._where, True
        claims = {}
        for job in [one for one, pools in self._where.items() if pools is None or pool in pools]:
            try:
                claim = self._claim(job, pool)
            except HeronError as error:
                # The step that starts the job in the pool reports the same error.
                log.debug("job %s gets no tasks in pool %s: %s", job, pool, error)
                continue
            if claim is not None:
                claims[job] = claim
        return claims

    def _claim(self, job: str, pool: str) -> Claim | None:
        running = self._store.running(job)[0] or Running("")
        wish = wished_of(self._store, job, running).leaves
        if pool not in (pool_of(wish), pool_of(dict(running.leaves))) or wish is STOPPED:
            return None
        return claim_of(job, self._store.get(job), wish, running, self._needs_at(job, wish), pool)

    def _needs_at(self, job: str, wish: Leaves) -> Needs:
        key = (job, *sorted((path, str(value)) for path, value in wish.items() if path[0] not in _NO_NEEDS))
        if key not in self._needs:
            if len(self._needs) >= NEEDS_MAX:
                self._needs.clear()
            try:
                self._needs[key] = self._needs_of(job, wish)
            except RequestError as error:
                self._needs[key] = error
        found = self._needs[key]
        if isinstance(found, RequestError):
            raise found
        return found


def jobs_text(names: Sequence[str]) -> str:
    """Return the jobs as text, such as `jobs 'Day', 'Night'`."""
    more = f" and {len(names) - JOBS_SHOWN} more" if len(names) > JOBS_SHOWN else ""
    return f"job{'s' if names[1:] else ''} {', '.join(map(repr, names[:JOBS_SHOWN]))}{more}"


def jobs_of(store: Store, pool: str) -> list[str]:
    """Return the unfinished jobs that should run in a pool, whether or not they are running."""
    found = []
    for job in store.names():
        with suppress(HeronError):  # a job that cannot be read
            document, running = store.get(job).document, store.running(job)[0]
            finished = running is not None and running.state == "FINISHED"
            if document.place.pool == pool and document.run != "stopped" and not finished:
                found.append(job)
    return found


def check_maximum(
    job: str,
    before: View | None,
    after: View,
    own: Mapping[str, int] | None = None,
    had: Mapping[str, int] | None = None,
) -> None:
    """Raise RequestError if a change gives a component more tasks than its maximum, or a minimum without a maximum.

    `own` maps the program's components to their tasks; `had` does so for the program before the change, if it differs.
    """
    own = own or {}
    had = own if had is None else had

    def counts(view: View, one: str, tasks: Mapping[str, int]) -> tuple[int, int | None]:
        return view.document.parallelism.get(one, tasks.get(one, 0)), view.document.scale.max.get(one)

    for one, least in after.document.scale.min.items():
        if one not in after.document.scale.max and (before is None or before.document.scale.min.get(one) != least):
            raise RequestError(
                f"job '{job}' would have scale.min.{one}={least} without a maximum, which has no effect; set"
                f" scale.max.{one} too"
            )
    for one in after.document.scale.max:
        count, most = counts(after, one, own)
        is_kept = before is not None and counts(before, one, had) == (count, most)
        if most is None or count <= most or is_kept:
            continue
        if one not in after.document.parallelism:
            raise RequestError(
                f"job '{job}' would have scale.max.{one}={most}, but the program has {counted(count, 'task')} of {one};"
                f" set at least scale.max.{one}={count}, or also set parallelism.{one}={most}"
            )
        raise RequestError(
            f"job '{job}' would have parallelism.{one}={count}, but scale.max.{one} is {most}; set at most {most}"
            f" tasks, or raise scale.max.{one} too"
        )


def _program(store: Store, view: View) -> LogicalPlan:
    return LogicalPlan.from_topology(topology_of(store.definition(view.document.definition)))


def check_fixed(store: Store, job: str, before: View | None, after: View) -> None:
    """Raise RequestError if a change, or a new job (`before` is None), rescales a component that cannot be rescaled.

    A higher maximum for it is refused, too. It keeps a plain State, or the scaler found it impossible to rescale.
    """
    document, ran = after.document, dict((store.running(job)[0] or Running("")).leaves)
    for one, tasks, why, seen in _fixed(store, job, after):
        count, most = (two.get(one, tasks) for two in (document.parallelism, document.scale.max))
        old = before.document if before is not None else Document()
        same = one in document.parallelism and old.definition == document.definition and document.restore != EMPTY
        # The step that checks another program compares it with the checkpoint.
        runs = tasks if seen else ran.get(("parallelism", one), count) if same else count
        if count not in (runs, old.parallelism.get(one)):
            raise RequestError(f"job '{job}' cannot have parallelism.{one}={count}: {why}")
        if most > (tasks if seen else count) and most != old.scale.max.get(one):
            raise RequestError(f"job '{job}' cannot have scale.max.{one}={most}: {why}")


def _fixed(store: Store, job: str, view: View) -> Iterator[tuple[str, int, str, bool]]:
    """Yield each component that cannot be rescaled: name, tasks, reason, and whether the scaler found the reason."""
    digest = view.document.definition
    look = None
    with suppress(NoNodeError):  # a new job
        look = store.scaled(job)[0].look
    if look is not None and look.program == digest and look.components:
        for one in look.components:
            if one.fixed:
                yield one.name, one.tasks, one.fixed, True
        return
    definition = store.definition(digest)
    plain = definition.submitted.get(PLAIN, ())
    for part in LogicalPlan.from_topology(topology_of(definition)).definitions if plain else ():
        if part.name in plain:
            yield part.name, part.parallelism, not_scalable(part.name, plain), False


def allotting_of(session: Session, store: Store) -> Allotting:
    """Return an `Allotting` with the cluster's current quotas, for a command."""
    driver = TopologyDriver(session.target, session.common, session.state)
    allotting = Allotting(store, session.state, driver.needs)
    with suppress(ConfigError):  # the command has printed a warning, and the manager keeps the last quotas
        allotting.quotas = read_quotas(session.conf_dirs(), session.target.cluster)
    return allotting


def store_of(session: Session, tell: Callable[[str], None] = lambda text: None) -> Store:
    """Return the store for changes by people, which refuses changes that the job's limits or its pool do not allow.

    `tell` gets a sentence about each set of other jobs that a change stops.
    """
    told = set[str]()

    def program_tasks(view: View) -> dict[str, int]:
        return {one.name: one.parallelism for one in _program(store, view).definitions}

    def check(job: str, before: View | None, after: View) -> None:
        old = before.document.definition if before is not None else ""
        had = program_tasks(before) if before is not None and old != after.document.definition else None
        check_maximum(job, before, after, program_tasks(after), had)
        check_fixed(store, job, before, after)
        if after.document.place.pool:
            stopped = allotting_of(session, store).check_change(job, before, after)
            text = (
                f"job '{job}' takes resources from others: {jobs_text(stopped)} will be stopped until there is capacity"
            )
            if stopped and text not in told:  # a change is checked again when another writer was faster
                told.add(text)
                tell(text)

    store = Store(session.state, check=check)
    return store
