"""How keepers handle dispatches to Spark: request them, hand them over to the gateway, and report their outcomes.

All keepers work concurrently, and each step may be repeated. A dispatch and its units are in the ledger before the
dispatch is handed over, so all keepers hand over the same dispatch. The gateway decides the outcome once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import msgspec

from heronpy.api.topology_context import TopologyContext
from heronpy.common.errors import HeronError, LedgerError
from heronpy.common.folders import read_own
from heronpy.connectors.durable_files import run_token, safe_name
from heronpy.connectors.spark.dispatches import DispatchFolder
from heronpy.connectors.spark.handover import Manifest
from heronpy.connectors.spark.link import GatewayLink, link_to_gateway
from heronpy.ingest.ledger.requests import Dispatched, DispatchFailed, Finished, MakeDispatch, OpenDispatch, Request
from heronpy.ingest.options import UnitOptions
from heronpy.ingest.outputs.lineage import FILE, BatchLineage, Lineage
from heronpy.ingest.outputs.spark import SparkBatches
from heronpy.ingest.outputs.stages import StageGoneError, Stages
from heronpy.plan.launch import LaunchSpec
from heronpy.storage.objects.port import ObjectsError

A = TypeVar("A")

#: Intervals in seconds: between requests to the ledger for its dispatches, and between reminders to the gateway.
LOOK_S, REMIND_S = 0.5, 5.0
#: Pause in seconds after the home folder could not be written or read.
DISK_S = 2.0
_UNIT_MAX = 4 << 20


class DispatchError(HeronError):
    """A dispatch has failed in Spark. Its units wait until the user retries them."""


class Ask(Protocol):
    """A function that sends a request to the ledger and returns the answer."""

    def __call__(self, request: Request[A]) -> A: ...


class Dispatcher:
    """The dispatches of one pipeline, handled by one of its keepers."""

    def __init__(
        self,
        options: UnitOptions,
        output: SparkBatches,
        stages: Stages,
        context: TopologyContext,
        report: Callable[[Exception], Any],
    ) -> None:
        self._options = options
        self._stages = stages
        self._report = report
        component, run = context.get_component_id(), run_token(context.get_topology_id())
        self._folder = DispatchFolder(stages.home, component, safe_name(component), run)
        self._function = output.aggregate, output.options
        self._is_written = False
        self._link = _link(safe_name(component), context.get_task_id())
        #: Maps the id of each handed-over dispatch to the dispatch.
        self._open: dict[int, tuple[str, OpenDispatch]] = {}
        self._told: set[int] = set()
        self._look_at = self._remind_at = 0.0

    def turn(self, ask: Ask, generation: int, now: float) -> bool | None:
        """Do one round of work. Return whether a dispatch has ended, or None if the ledger has a new generation."""
        try:
            if not self._is_written:
                self._folder.write_function(*self._function)
                self._is_written = True
            if now >= self._look_at:
                self._look_at = now + LOOK_S
                found = ask(MakeDispatch()).dispatches
                if any(unit.generation != generation for one in found for unit in one.units):
                    return None
                self._take(found, generation)
            ended = self._settle(ask, generation)
        except ObjectsError as error:
            self._report(error)
            self._look_at = now + DISK_S
            return False
        self._remind(now)
        if ended:
            self._look_at = 0.0
        return ended

    def close(self) -> None:
        """Close the connection to the gateway."""
        if self._link is not None:
            self._link.close()

    # ---- steps ------------------------------------------------------------------------------
    def _take(self, found: tuple[OpenDispatch, ...], generation: int) -> None:
        """Hand over new dispatches; drop the dispatches that the ledger no longer lists."""
        self._open = {one.id: self._open[one.id] for one in found if one.id in self._open}
        for one in found:
            if one.id in self._open:
                continue
            handed = self._manifest(one)
            if self._folder.outcome(handed.stem) is None and not self._folder.is_handed_over(handed.stem):
                self._stages.refuse_older(generation)
                try:
                    lineage = self._lineage(one, handed.incarnation)
                except StageGoneError as error:
                    if one.id not in self._told:
                        self._told.add(one.id)
                        self._report(error)
                    continue
                self._folder.hand_over(handed, lineage)
                self._remind_at = 0.0
            self._open[one.id] = handed.stem, one

    def _settle(self, ask: Ask, generation: int) -> bool:
        ended = []
        for number, (stem, dispatch) in self._open.items():
            outcome = self._folder.outcome(stem)
            if outcome is None:
                continue
            if outcome.committed:
                ask(Dispatched(number, generation))
                for unit in dispatch.units:
                    self._stages.discard(self._stages.stage_of(unit.generation, unit.unit, unit.winner))
            else:
                ask(DispatchFailed(number, generation, outcome.error))
                pipeline = self._options.pipeline
                self._report(
                    DispatchError(
                        f"dispatch {number} of {pipeline} ({len(dispatch.units)} units) has failed: {outcome.error};"
                        f" fix the cause, then run: heron units retry {pipeline}"
                    )
                )
            ended.append(number)
            self._folder.forget(stem)
        for number in ended:
            del self._open[number]
        return bool(ended)

    def _remind(self, now: float) -> None:
        """Notify the gateway of open dispatches. This only saves time, because the gateway also scans for
        dispatches."""
        if self._link is None:
            return
        self._link.finished()
        if self._open and now >= self._remind_at:
            self._remind_at = now + REMIND_S
            self._link.ready([stem for stem, _ in self._open.values()])

    def _manifest(self, dispatch: OpenDispatch) -> Manifest:
        units, pipeline = dispatch.units, self._options.pipeline
        inputs = [str(self._stages.stage_of(one.generation, one.unit, one.winner)) for one in units]
        rows, size = sum(one.rows for one in units), sum(one.bytes for one in units)
        name = f"{pipeline}-{units[0].generation}-{dispatch.id}"
        return self._folder.manifest(name, dispatch.id, token_of(pipeline, dispatch), rows, size, inputs)

    def _lineage(self, dispatch: OpenDispatch, token: int) -> bytes:
        units = tuple(_lineage_of(self._stages, unit, dispatch.id) for unit in dispatch.units)
        options, generation = self._options, dispatch.units[0].generation
        about = options.pipeline, generation, dispatch.id, token, options.place, options.config
        return BatchLineage(*about, units).to_json()


def token_of(pipeline: str, dispatch: OpenDispatch) -> int:
    """Return a digest of a dispatch's content, equal for every keeper and site. Pure."""
    units = [
        [one.generation, one.unit, one.winner, one.rows, [[c.key, c.generation, c.begin, c.end] for c in one.chunks]]
        for one in dispatch.units
    ]
    text = json.dumps([pipeline, dispatch.id, units])
    return int(sha256(text.encode()).hexdigest()[:12], 16)


def _lineage_of(stages: Stages, unit: Finished, dispatch: int) -> Lineage:
    path = stages.stage_of(unit.generation, unit.unit, unit.winner) / FILE
    try:
        return msgspec.json.decode(read_own(path, _UNIT_MAX), type=Lineage)
    except FileNotFoundError:
        raise StageGoneError(
            f"unit {unit.unit} of dispatch {dispatch} cannot be handed to Spark: restore {path.parent}, or run 'heron"
            " units rebuild'"
        ) from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path} cannot be read ({error}); restore it, or run 'heron units rebuild'") from None


def _link(component: str, task: int) -> GatewayLink | None:
    """Return the link to the gateway; None outside a submitted topology."""
    launch = os.environ.get("HERON_LAUNCH")
    return link_to_gateway(LaunchSpec.load(launch), component, task, 0) if launch else None
