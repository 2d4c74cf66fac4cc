"""`heron load-test jobs`: what jobs, pools and the scaler cost, and how often the scaler is mistaken, against goals."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.jobs import idle, pool, rounds
from heronpy.loadtest.jobs.model import Model, Part
from heronpy.loadtest.jobs.scenarios import DAY, HOUR, TIMES, Drawn, Scene, daily, is_worse, is_wrong, noise
from heronpy.loadtest.run import Say, repeated, run_of
from heronpy.scaling.history import History

#: Goals for the sizes that are the defaults; CPU seconds, shares, bytes.
CHANGED_MAX_S, IDLE_MAX_S = 5.0, 1.0
MAP_MAX_S, LOSS_MAX_S, MEMORY_MAX_BYTES = 5.0, 2.0, 1 << 30
MANAGERS_MAX_PERCENT, MANAGERS_MAX_BYTES = 3.0, 150 << 20
WRONG_MAX, CHANGES_A_DAY_MAX = 0.01, 2
#: A folder in memory, so that no disk is measured.
_IN_MEMORY: Final = Path("/dev/shm")


class Sizes(Struct, frozen=True):
    """How much is measured."""

    changed: int = 1000
    jobs: int = 10_000
    idle: int = 100
    slots: int = 2000
    scenarios: int = 200
    days: int = 3


def run_jobs(where: Cluster, sizes: Sizes, repeat: int, say: Say) -> dict[str, Any]:
    """The result document; ConfigError in a cluster that is not made for the test, because it gets jobs."""
    if not where.temporary:
        raise ConfigError("load-test jobs runs in its own cluster; leave out --cluster")

    def once(number: int, begin: str) -> dict[str, Any]:
        values: dict[str, float] = {}
        checks: list[Check] = []
        for part in (_rounds, _pool, _scenarios, _days, _managers):
            found, told = part(where, sizes)
            values |= found
            checks += told
            say(begin + "; ".join(one.text for one in told))
        return run_of(values, checks)

    return repeated(
        once,
        repeat,
        profile="jobs",
        about="what jobs, pools and the scaler cost, and how often the scaler is mistaken",
        unit="jobs",
        options={name: getattr(sizes, name) for name in Sizes.__struct_fields__},
    )


_Part = tuple[dict[str, float], list[Check]]


def _rounds(where: Cluster, sizes: Sizes) -> _Part:
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        changed_s, idle_s, updates = rounds.costs(Path(folder), sizes.changed, sizes.jobs)
    return {"changed_round_s": changed_s, "idle_round_s": idle_s}, [
        Check("changes", updates == sizes.changed, f"{updates:,} of {sizes.changed:,} changed jobs were updated"),
        _below("changed round", changed_s, CHANGED_MAX_S, f"a round of {sizes.changed:,} jobs with a change each"),
        _below("idle round", idle_s, IDLE_MAX_S, f"a round of {sizes.jobs:,} jobs without"),
    ]


def _pool(where: Cluster, sizes: Sizes) -> _Part:
    lost = max(1, sizes.slots // 20)
    found = pool.costs(sizes.slots, 10 * sizes.slots, lost)
    values = {
        "map_s": found.map_s, "keeper_round_s": found.round_s, "loss_s": found.loss_s,
        "keeper_bytes": float(found.memory_bytes),
    }  # fmt: skip
    of = f"{sizes.slots:,} slots"
    moved = f"{found.moved:,} shards of {lost:,} lost slots went to others, {found.left} did not"
    return values, [
        Check("shards", not found.left and found.moved > 0, moved),
        _below("map", found.map_s, MAP_MAX_S, f"the first map of {of}"),
        _below("keeper round", found.round_s, 0.1, f"a round of the keeper of {of}"),
        _below("loss", found.loss_s, LOSS_MAX_S, f"the loss of {lost:,} of {of}"),
        Check(
            "keeper memory", found.memory_bytes < MEMORY_MAX_BYTES,
            f"the keeper took {found.memory_bytes >> 20} MB, limit {MEMORY_MAX_BYTES >> 20} MB",
        ),
    ]  # fmt: skip


def _scenarios(where: Cluster, sizes: Sizes) -> _Part:
    wrong, worse = list[str](), list[str]()
    for seed in range(sizes.scenarios):
        drawn = Drawn(seed)
        scene = drawn.scene("act")
        wrong += [f"{drawn.kind} of seed {seed}"] if is_wrong(drawn, scene) else []
        worse += [f"seed {seed}"] if is_worse(drawn, scene) else []
    share = len(wrong) / sizes.scenarios
    text = f"{len(wrong)} of {sizes.scenarios:,} random scenarios had a wrong cause, limit {WRONG_MAX:.0%}"
    return {"wrong_causes": share, "worse_lags": len(worse) / sizes.scenarios}, [
        Check("causes", share <= WRONG_MAX, f"{text}{_first(wrong)}"),
        Check("lag", not worse, f"{len(worse)} of them waited longer for being scaled{_first(worse)}"),
    ]


def _first(found: list[str]) -> str:
    return f": {', '.join(found[:5])}" if found else ""


def _days(where: Cluster, sizes: Sizes) -> _Part:
    """Days like each other, from 1,000 to 4,000 tuples per second."""
    parts = [
        Part(name="read", per_s=60_000.0),
        Part(name="work", per_s=1000.0, tasks=6, inputs={"read": 1.0}),
        Part(name="store", per_s=4000.0, tasks=2, inputs={"work": 1.0}),
    ]
    with closing(History(where.scratch / "days.minutes", TIMES)) as history:
        model = Model(parts, daily(1000, 4000), noise=noise(1, 0.02), step_s=60.0)
        scene = Scene(model, sizes.days * DAY / HOUR, minutes=history)
    by_day = Counter(int(at // DAY) for at, _ in scene.changes())
    most, broken = max(by_day.values(), default=0), scene.state.slo.broken_s
    return {"changes_a_day": float(most)}, [
        Check("changes a day", most <= CHANGES_A_DAY_MAX,
              f"at most {most} changes on each of {sizes.days} days, limit {CHANGES_A_DAY_MAX}"),
        Check("slo", not broken, f"the lag was above its SLO for {broken:g} s of them"),
    ]  # fmt: skip


def _managers(where: Cluster, sizes: Sizes) -> _Part:
    found = idle.costs(where, sizes.idle)
    of = f"the manager of {sizes.idle} idle jobs"
    return {"managers_percent": found.percent, "managers_bytes": float(found.uss_bytes)}, [
        Check("manager", found.in_sync == sizes.idle, f"{found.in_sync} of {sizes.idle} jobs are in sync"),
        Check("manager CPU", found.percent < MANAGERS_MAX_PERCENT,
              f"{of} needs {found.percent:.2f} % of a core, limit {MANAGERS_MAX_PERCENT:g} %"),
        Check("manager memory", found.uss_bytes < MANAGERS_MAX_BYTES,
              f"{found.uss_bytes >> 20} MB of memory, limit {MANAGERS_MAX_BYTES >> 20} MB"),
    ]  # fmt: skip


def _below(name: str, cpu_s: float, limit_s: float, what: str) -> Check:
    return Check(name, cpu_s < limit_s, f"{what} took {cpu_s:.2f} s of CPU, limit {limit_s:g} s")
