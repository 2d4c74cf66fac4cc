"""Jobs and their stores, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from heronpy.jobs.store import Definition, Store
from heronpy.pools.shards import Pool, Size, pack
from heronpy.scaling.capacity import RESERVE
from heronpy.scaling.figures import Figures, Goal, Observation, Times
from heronpy.scaling.history import History
from heronpy.scaling.replaying import Minute
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager
from tests.plan.builders import TopologyMessage


class Clock:
    """A time of the day that a test moves."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def definition_of(*components: str, **submitted: Any) -> Definition:
    message = TopologyMessage("Day").spout("read")
    for component in components:
        message.bolt(component, ["read"])
    for bolt in message.message.bolts:
        bolt.comp.asynchronous = True
    return Definition(message.message.SerializeToString(deterministic=True), submitted)


def record_minutes(file: Path, count: int = 8) -> None:
    """What a scaler has seen of a job: a look each second from 1e9 s on, with one task and 2 s of lag more each time."""
    file.parent.mkdir(parents=True)
    with closing(History(file, Times())) as history:
        for number in range(count):
            read = Figures(name="read", is_spout=True, tasks=1, processed=50.0, backlog=100.0 * number)
            work = Figures(name="work", is_spout=False, tasks=number, processed=42.0)
            look = Observation(topology="Day", at=1e9 + number, components=(read, work))
            history.look(look.at, 1.0, 0.0, msgspec.json.encode(Minute(look, Goal(), 86_400.0)))


def make_job(
    state: StateManager, clock: Clock | None = None, name: str = "Day", given: Mapping[str, Any] | None = None
) -> Store:
    """A store with one job, whose program has the components read, work and call."""
    store = Store(state, clock or Clock())
    digest = store.define(definition_of("work", "call"))
    usual = {"parallelism": {"work": 10}, "scale": {"max": {"work": 40}}}
    store.create(
        name, {"provisioner": {"definition": digest, **(usual if given is None else given)}}, "deploy", "first"
    )
    return store


def make_pool(state: StateManager, cores: float) -> None:
    """Pool small, with this number of cores for jobs."""
    pool = Pool(2, 128, Size(cores / 2 / (1 - RESERVE), 100_000))
    state.set(paths.pool("small"), pack(pool))
