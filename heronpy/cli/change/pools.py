"""`heron pool`: pools of slots, in which the topologies of jobs run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from heronpy.cli.output import print_json, print_table, say, warn
from heronpy.clusters import pools
from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import DeadlineError
from heronpy.common.settings import settings_for
from heronpy.common.units import MB, counted, format_bytes, parse_bytes
from heronpy.jobs.allotting import allotting_of, jobs_of, jobs_text
from heronpy.jobs.store import Store
from heronpy.launching import in_pool, submission
from heronpy.launching.model import Kept
from heronpy.pools.nodes import read_map, read_pool
from heronpy.pools.shards import Size

LOOK_S: Final = 0.2
SLOTS_SHOWN: Final = 5
#: A slot with less memory has no room for its own process and one task.
SLOT_RAM_MIN: Final = 256 * MB


def create(target: Target, pool: str, slots: int, cpu: float, ram: str, common: Common) -> None:
    """Create a pool and start its scheduler."""
    size = Size(cpu, parse_bytes(ram))
    if not (0 < cpu < 1e6 and size.ram_bytes > 0):
        raise RequestError(f"a slot cannot have {cpu:g} cores and {ram} of memory; give more than 0 of each")
    if size.ram_bytes < SLOT_RAM_MIN:
        raise RequestError(
            f"a slot cannot have {format_bytes(size.ram_bytes)} of memory; give at least {format_bytes(SLOT_RAM_MIN)},"
            " with a unit, such as --ram 4GB"
        )
    session = Session(target, common)
    if not settings_for(session.resolve(), EngineSettings).kind:
        own = "heron.engine.kind=local"
        session = Session(target, replace(common, config_property=(*common.config_property, own)))
    planned = in_pool.plan_pool(session, pool, slots, size)
    submission.start(session, planned, Kept(), begun_at=time.time(), warn=warn)
    say(
        f"Created pool '{pool}': {counted(slots, 'slot')} of {cpu:g} cores and {format_bytes(size.ram_bytes)} on engine"
        f" {planned.engine}; to run a job in the pool: heron job set {target} JOB place.pool={pool}"
    )


def show(target: Target, pool: str, as_json: bool, common: Common) -> None:
    """Print the specification and state of a pool."""
    found = pools.shown(Session(target, common), pool)
    rows, size = found["slots"], found["size"]
    if as_json:
        print_json(found)
        return
    say(
        f"pool {pool}: {counted(found['slots_wanted'], 'slot')} of {size['cpu']:g} cores and"
        f" {format_bytes(size['ram_bytes'])}"
        f"{'' if found['scheduler'] else '; its scheduler is not running, but the slots keep running'}"
    )
    print_table(
        ["slot", "state", "host", "shards", "containers", "load", "restarts"],
        [[str(one["slot"]), one["state"], one["host"], str(one["shards"]), str(one["containers"]),
          f"{one['load']:.0%}", restarts_text(one)] for one in rows],
    )  # fmt: skip
    say(f"topologies: {', '.join(found['topologies']) or 'none'}")


def restarts_text(slot: Mapping[str, Any]) -> str:
    """Return the number of restarts of a slot, with the reason for the last one, such as `2 (killed)`."""
    return f"{slot['restarts']} ({slot['exit_reason']})" if slot["exit_reason"] else str(slot["restarts"])


def resize(target: Target, pool: str, slots: int, common: Common) -> None:
    """Change the number of slots of a pool."""
    session = Session(target, common)
    known = pools.find(session, pool)
    pools.check_runs(session, pool)
    smaller = pools.resized(known, slots)
    if stopped := allotting_of(session, Store(session.state)).stopped_by(pool, smaller):
        few = f"{counted(slots, 'slot')} {'is' if slots == 1 else 'are'} too few for pool '{pool}'"
        raise RequestError(
            f"{few}: {jobs_text(stopped)} would be stopped; choose more slots, or first give the jobs fewer tasks or"
            f" stop them: heron job stop {target} {stopped[0]}"
        )
    pools.resize(session, pool, slots)
    say(f"Pool '{pool}' will have {counted(slots, 'slot')}; see heron pool show {target} {pool}")


def drain(target: Target, pool: str, slot: int, lift: bool, timeout_s: float, common: Common) -> None:
    """Empty a slot, and wait until it is empty."""
    session = Session(target, common)
    known = pools.find(session, pool)
    pools.check_runs(session, pool)
    smaller = pools.drained(known, pool, slot, lift)
    if not lift and (stopped := allotting_of(session, Store(session.state)).stopped_by(pool, smaller)):
        raise RequestError(
            f"without slot {slot}, pool '{pool}' is too small: {jobs_text(stopped)} would be stopped; first give the"
            f" pool another slot, or give the jobs fewer tasks or stop them: heron job stop {target} {stopped[0]}"
        )
    pools.drain(session, pool, slot, lift)
    if lift:
        say(f"Slot {slot} of pool '{pool}' accepts containers again")
        return
    deadline = time.monotonic() + timeout_s
    while True:
        found = read_map(session.state, pool)
        if found is not None and all(owner.slot != slot for owner in found[0].owners):
            say(
                f"Slot {slot} of pool '{pool}' is empty and gets no containers; heron pool drain"
                f" {target} {pool} {slot} --lift gives it containers again"
            )
            if text := overloaded(pools.shown(session, pool)["slots"], pool):
                warn(text)
            return
        if time.monotonic() > deadline:
            raise DeadlineError(f"slot {slot} of pool '{pool}' is not empty yet; its containers are still being moved")
        time.sleep(LOOK_S)


def overloaded(slots: Iterable[Mapping[str, Any]], pool: str) -> str:
    """Return a sentence about slots whose load exceeds their capacity; "" if there are none."""
    full = [f"slot {one['slot']} is {one['load']:.0%} full" for one in slots if one["load"] > 1]
    some = ", ".join(full[:SLOTS_SHOWN]) + (
        f" and {len(full) - SLOTS_SHOWN} more are overloaded" * (len(full) > SLOTS_SHOWN)
    )
    return f"{some}; add a slot to pool '{pool}', or reduce the tasks of its jobs" if full else ""


def delete(target: Target, pool: str, common: Common) -> None:
    """Stop the slots of a pool, and remove the pool."""
    session = Session(target, common)
    pools.record_of(session, pool)
    known = read_pool(session.state, pool)
    left = jobs_of(Store(session.state), pool)
    if left and (known is None or not known.members):  # `pools.delete` refuses a pool that contains topologies
        raise ClusterError(
            f"pool '{pool}' is used by {jobs_text(left)}; stop each of them first: heron job stop {target} {left[0]};"
            f" or move it: heron job set {target} {left[0]} place.pool=OTHER"
        )
    pools.delete(session, pool, waits=say)
    say(f"Deleted pool '{pool}'")
