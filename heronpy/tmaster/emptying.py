"""Runs a topology empty before stream managers are replaced in order: what waits in one of them ends with it. Pure.

The spouts wait until no tuple is left. That has an end: the drain timeout, and earlier if the queues do not
get shorter, because a task is down or hangs, or because ticks emit, so that the topology is never empty.
"""

from __future__ import annotations

from heronpy.tmaster.desk import Desk

#: Queues that have not become shorter for this long do not run empty.
NO_PROGRESS_S = 5.0


class Emptying:
    """From its making on the spouts wait, until `release`."""

    def __init__(self, desk: Desk, now: float) -> None:
        self._desk = desk
        self._limit = now + desk.settings.drain_timeout_s
        self._least: int | None = None
        self._give_up_at = now + NO_PROGRESS_S
        self._applied_at: float | None = None
        #: Nothing is left.
        self.empty = False
        desk.book.held_to_empty = True
        self._version = desk.change_plan(now)

    @property
    def deadline(self) -> float:
        """When to call `is_over` at the latest."""
        return min(self._limit, self._give_up_at)

    def is_over(self, now: float) -> bool:
        """Whether nothing is left, or nothing will change about what is left."""
        registry, book = self._desk.registry, self._desk.book
        if self._applied_at is None and self._spouts_wait():
            self._applied_at = now
        if self._applied_at is not None:
            self.empty = registry.drained(book.wanted, self._applied_at)
            # Before, they may have become longer.
            left = self._left()
            if self._least is None or left < self._least:
                self._least, self._give_up_at = left, now + NO_PROGRESS_S
        return self.empty or now >= self.deadline

    def release(self, now: float) -> None:
        """Let the spouts go on."""
        self._desk.book.held_to_empty = False
        self._desk.change_plan(now)
        self._desk.publish_if_due(now)

    def _spouts_wait(self) -> bool:
        registry = self._desk.registry
        spouts = [task for task in registry.places if registry.is_spout(task)]
        return all(task in registry.tasks and registry.tasks[task].plan_version >= self._version for task in spouts)

    def _left(self) -> int:
        """Tuples under way, as last reported; one may be counted twice, which does not matter here."""
        registry = self._desk.registry
        beats = [entry.beat for entry in registry.stmgrs.values()]
        moving = sum(beat.queued_tuples + beat.in_flight_tuples + beat.unacked_roots for beat in beats)
        tasks = registry.tasks.values()
        return moving + sum(task.in_queue_tuples + task.out_queue_tuples for task in tasks)
