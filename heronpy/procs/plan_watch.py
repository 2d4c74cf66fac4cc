"""Follows the packing plan in the state manager, for the scheduler and the executors.

Invariants: `on_plan` receives only plans that differ from the last one, and never an older version. While the state
manager is unreachable, or the plan is unreadable, the last plan stays valid. A copy of the plan on disk lets a process
restart during such an outage; a container's tasks read this copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from google.protobuf.message import DecodeError

from heronpy.common.errors import HeronError
from heronpy.common.folders import replace_file
from heronpy.proto import plan_pb2

log = logging.getLogger("heronpy.procs")

_RETRY_S = 0.5
#: The plan is read again after this time, in case a notification was missed.
_LOOK_AGAIN_S = 10.0


class Watch(Protocol):
    def cancel(self) -> None: ...


class PlanSource(Protocol):
    """The part of a state manager that this module needs."""

    def get(self, path: str) -> tuple[bytes, int] | None: ...

    def watch(self, path: str, callback: Callable[[str], None]) -> Watch: ...


class PlanWatch:
    """One watch of the packing plan; create it on the event loop that receives the plans."""

    def __init__(
        self,
        source: PlanSource,
        path: str,
        on_plan: Callable[[plan_pb2.PackingPlan], None],
        copy: Path | None = None,
    ) -> None:
        self._source = source
        self._path = path
        self._on_plan = on_plan
        self._copy = copy
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._complaint = ""
        self.plan: plan_pb2.PackingPlan | None = None
        self._watch: Watch | None = None

    def start(self) -> None:
        """Read the plan now and after each change."""
        self._try_watch()
        if not self._look() and self.plan is None:
            self._load_copy()

    def _try_watch(self) -> None:
        try:
            self._watch = self._source.watch(self._path, self._changed)
        except (HeronError, OSError) as error:
            self._complain(f"cannot watch the packing plan: {error}")

    def _changed(self, _: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, because this process is ending
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> bool:
        """Read the plan; returns False on failure."""
        if self._closed:
            return True
        if self._watch is None:
            self._try_watch()
        good, plan = self._read()
        self._schedule(_LOOK_AGAIN_S if good else _RETRY_S)
        if plan is not None and plan != self.plan:
            if self.plan is not None and plan.version < self.plan.version:
                return good
            self.plan = plan
            self._save_copy(plan)
            self._on_plan(plan)
        return good

    def _read(self) -> tuple[bool, plan_pb2.PackingPlan | None]:
        try:
            found = self._source.get(self._path)
            plan = plan_pb2.PackingPlan.FromString(found[0]) if found else None
        except (HeronError, OSError, DecodeError) as error:
            self._complain(f"cannot read the packing plan ({error}), so the last plan stays valid")
            return False, None
        self._complaint = ""
        return True, plan

    def _schedule(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._look)

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            log.warning("%s", text)

    def _save_copy(self, plan: plan_pb2.PackingPlan) -> None:
        if self._copy is None:
            return
        try:
            replace_file(self._copy, plan.SerializeToString(), durable=False)
        except OSError as error:
            log.warning("cannot save a copy of the packing plan: %s", error.strerror)

    def _load_copy(self) -> None:
        if self._copy is None:
            return
        try:
            plan = plan_pb2.PackingPlan.FromString(self._copy.read_bytes())
        except (OSError, DecodeError):
            return
        log.warning("starting with the last known packing plan, version %d", plan.version)
        self.plan = plan
        self._on_plan(plan)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
