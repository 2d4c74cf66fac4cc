"""Reads figures of a running topology that no command shows: stream managers and totals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import open_state, paths
from tests.support.command import Heron
from tests.support.waiting import wait_for


def master_endpoint(heron: Heron, name: str) -> str:
    state = open_state("local", str(heron.home / "state" / "local"))
    try:
        location = wait_for(lambda: state.get(paths.tmaster(name)), 10, f"the master of {name}")
    finally:
        state.close()
    return plan_pb2.TmasterLocation.FromString(location[0]).endpoint


def ask_master(heron: Heron, name: str, question: Any) -> Any:
    """Send a request to the topology master; return the answer."""
    with RpcClient(master_endpoint(heron, name)) as client:
        return client.call(question, 10.0)


def inside(heron: Heron, name: str) -> control_pb2.StatusReply:
    """Return the complete status, with the heartbeats of the stream managers."""
    reply: control_pb2.StatusReply = ask_master(heron, name, control_pb2.GetStatus())
    return reply


def stmgr(heron: Heron, name: str, container: int) -> control_pb2.StmgrHeartbeat:
    return next(beat for beat in inside(heron, name).stmgrs if beat.stmgr_id == f"stmgr-{container}")


@dataclass(frozen=True)
class Totals:
    """The tuples of all tasks and stream managers, from the metrics."""

    emitted: int
    executed: int
    discarded: int
    queued: int
    in_flight: int
    taken_from_tasks: int
    consumed_by_tasks: int


def metric(reply: Any, name: str) -> int:
    return int(sum(s.value for report in reply.reports for s in report.samples if s.name == name))


def totals(heron: Heron, name: str) -> Totals:
    """Read the totals once; the metrics are up to a second old."""
    reply = ask_master(heron, name, control_pb2.GetMetrics())
    status = inside(heron, name)
    return Totals(
        emitted=sum(task.emitted for task in status.tasks),
        executed=sum(task.executed for task in status.tasks),
        discarded=status.discarded_tuples,
        queued=metric(reply, "__tuples_queued"),
        in_flight=metric(reply, "__tuples_in_flight"),
        taken_from_tasks=metric(reply, "__tuples_from_workers"),
        consumed_by_tasks=metric(reply, "__tuples_consumed_by_workers"),
    )


def when_totals(heron: Heron, name: str, condition: Callable[[Totals], object], what: str) -> Totals:
    """Wait for totals that meet the condition; return them."""
    last: Totals | None = None

    def look() -> Totals | None:
        nonlocal last
        last = totals(heron, name)
        return last if condition(last) else None

    try:
        return wait_for(look, 20, what)
    except AssertionError as error:
        raise AssertionError(f"{error}; last: {last}") from None
