"""Jobs and their stores, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heronpy.jobs.store import Definition, Store
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
