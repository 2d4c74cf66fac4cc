"""When spouts are first asked for tuples: once each task of every bolt has initialised, and its `is_ready` says so.
Pure.

The plan records that the spouts are held, so a successor of this master and a restarted task know it.
The hold ends once per run and returns only when all tasks restart (`hold`): when a sink restarts alone,
backpressure stops the spouts instead.
"""

from __future__ import annotations

from collections.abc import Collection

from heronpy.common.units import listed
from heronpy.tmaster.desk import Desk


class Readiness:
    """See the module."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        #: Reports of processes up to these epochs are ignored: they are about to be replaced.
        self._replaced: dict[int, int] = {}

    def hold(self, now: float, waits_for: Collection[str]) -> None:
        """All tasks restart: hold the spouts until the new tasks of these components are ready; without any, not."""
        desk = self._desk
        if waits_for:
            tasks = [task for task, place in desk.registry.places.items() if place.component in waits_for]
            self._replaced = {task: desk.registry.epoch_of(task) for task in tasks}
            desk.book.spouts_held = True
            desk.change_plan(now)

    def advance(self, now: float) -> None:
        """Start the spouts when every bolt is ready."""
        desk = self._desk
        if not desk.book.spouts_held or not desk.started or desk.publish_at is not None or self._missing():
            return
        desk.book.spouts_held = False
        self._replaced.clear()
        desk.note(f"every bolt of {desk.book.topology.name} is ready; its spouts begin")
        desk.change_plan(now)
        desk.publish_if_due(now)

    def cause(self, now: float) -> str:
        """What the spouts wait for, and for how long."""
        registry = self._desk.registry
        since: dict[str, float] = {}
        for task in self._tasks():
            if task in registry.waiting and registry.is_up(task, 0):
                text, began = registry.waiting[task]
                since[text] = min(began, since.get(text, began))
        texts = [f"{text}, {max(0.0, now - began):.0f} s" for text, began in sorted(since.items())]
        return "; ".join(texts) or f"waiting for {listed(self._missing()) or 'the plan that starts the spouts'}"

    def _tasks(self) -> list[int]:
        bolts = self._desk.book.bolts
        return [task for task, place in self._desk.registry.places.items() if place.component in bolts]

    def _missing(self) -> list[str]:
        """Tasks that have not reported that they are ready."""
        registry = self._desk.registry
        return [
            registry.name_of(task)
            for task in self._tasks()
            if task in registry.waiting
            or not registry.is_up(task)
            or registry.epoch_of(task) <= self._replaced.get(task, -1)
        ]
