"""Diagnoses a topology from the answers of its topology master."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message
from msgspec import Struct

from heronpy.clusters.session import Session, named, waiting_of
from heronpy.common.errors import AnswerError, DeadlineError, InvalidRpcError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.health.diagnose import diagnose
from heronpy.health.gathering import METRICS, SERIES, signals_of, window_of
from heronpy.health.signals import AllHotSpots, Signals
from heronpy.health.times import TIMES, Times
from heronpy.net.answers import read
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from heronpy.views.findings import SCHEDULER_DOWN, Finding, Verdict
from heronpy.views.load import LoadAnswer
from heronpy.views.past import Events, Timeline

if TYPE_CHECKING:
    from heronpy.net.rpc import RpcClient

T = TypeVar("T", bound=Struct)

#: Time limit for all requests of one diagnosis together; requests that are unanswered by then are listed.
LOOK_S = 5.0


class _Asking:
    """Requests to one topology master over one connection, with one deadline."""

    def __init__(self, client: RpcClient, deadline: float) -> None:
        self._client, self._deadline = client, deadline
        self.unanswered: list[str] = []

    def __call__(self, body: Message, what: str) -> Any:
        """The answer; None if it is late, or if a topology master of an earlier release cannot answer."""
        try:
            return self.must(body)
        except InvalidRpcError:
            return None
        except DeadlineError:
            self.unanswered.append(what)
            return None

    def must(self, body: Message) -> Any:
        """The answer; raises DeadlineError if there is none."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise DeadlineError("the time limit passed before this request")
        return self._client.call(body, left_s)

    def look(self, body: Message, shape: type[T], what: str) -> T | None:
        """The answer as a struct of this shape; None if there is no answer, or if it has another shape."""
        found = self(body, what)
        try:
            return read(found, shape) if found is not None else None
        except AnswerError:
            self.unanswered.append(what)
            return None


def look(
    session: Session, topology: str, window_s: float, within_s: float = LOOK_S, times: Times = TIMES
) -> tuple[Signals, list[Finding]]:
    """Diagnose a topology from the answers of its topology master. Raises DeadlineError if too few answers arrive.

    If the topology is on an engine, a missing scheduler is also a finding.
    """
    session.find(topology)
    with session.tmaster(topology) as client:
        ask = _Asking(client, time.monotonic() + within_s)
        signals, findings = _look(session, topology, window_s, ask, times)
    signals.job = session.state.exists(paths.job(topology))
    if session.lacks_scheduler(topology):
        return signals, without_scheduler(findings)
    if session.engine_of(topology):
        findings = with_waiting(findings, waiting_of(session.containers(topology)))
    return signals, findings


def with_waiting(findings: list[Finding], waiting: list[control_pb2.ProcessRecord]) -> list[Finding]:
    """Return the findings of a topology on an engine, with findings about waiting containers."""
    if not waiting:
        return findings
    names = {name for one in waiting for name in (one.name, named(one))}
    found = [Finding(Verdict.DOWN, quote=one.words, names=(named(one), one.phase)) for one in waiting]
    failed = [one for one in findings if one.verdict is Verdict.FAILED]
    # A finding about the repeated end of a waiting container is dropped, because the container ended only once.
    others = [one for one in findings if one.verdict not in (Verdict.FAILED, Verdict.HEALTHY) and one.task not in names]
    return [*failed, *found, *others]


def without_scheduler(findings: list[Finding]) -> list[Finding]:
    """Return the findings with `SCHEDULER_DOWN`, which the topology master cannot report."""
    failed = [one for one in findings if one.verdict is Verdict.FAILED]
    others = [one for one in findings if one.verdict not in (Verdict.FAILED, Verdict.HEALTHY)]
    return [*failed, SCHEDULER_DOWN, *others]


def _look(
    session: Session, topology: str, window_s: float, ask: _Asking, times: Times
) -> tuple[Signals, list[Finding]]:
    status, now = ask.must(control_pb2.GetStatus()), time.time()
    # The findings of the topology master are usable without the other answers.
    load = ask.look(control_pb2.GetLoad(plan_version=status.plan_version), LoadAnswer, "load")
    reply = ask.look(control_pb2.GetEvents(), Events, "events")
    events = reply.events if reply is not None else None
    since = load.load.since if load is not None else now - _age(status)
    age_s = now - since if since else None
    over_s = window_of(window_s, age_s or 0.0, events, now, times)
    metrics = ask(control_pb2.GetMetrics(names=METRICS, interval_s=over_s), "figures")
    if metrics is None and load is None:
        raise DeadlineError(f"the topology master of '{topology}' does not answer in time; try again, or see its log")
    hot = ask.look(control_pb2.GetHotSpots(), AllHotSpots, "lines and keys")
    timeline = ask.look(control_pb2.GetTimeline(names=SERIES, since=now - TIMES.history_s), Timeline, "the last hour")
    checkpoints = None
    if reliability_mode(status.plan.topology) == "EFFECTIVELY_ONCE":
        checkpoints = ask(control_pb2.GetCheckpoints(), "checkpoints")
    # Read before the launch file, which exists only on the submitting host.
    launch = session.submitted(topology) or session.launch_of(session.find(topology))
    signals = signals_of(
        status,
        metrics if metrics is not None else control_pb2.MetricsReply(),
        events,
        checkpoints,
        timeline,
        now=time.time(),
        asked_s=window_s,
        age_s=age_s,
        checkpoint_every_s=settings_for(launch, CheckpointSettings).interval_s,
        hot_spots=hot.tasks if hot is not None else None,
        load=load,
    )
    signals.unanswered, signals.times = ask.unanswered, times
    signals.load = load.load if load is not None else None
    # Incomplete figures would lead to a wrong cause, but the topology master has all figures.
    own = load.findings if load is not None else []
    return signals, own if own and ask.unanswered else diagnose(signals, own)


def _age(status: control_pb2.StatusReply) -> float:
    """Seconds since the first process of the topology started; no metric covers a longer time."""
    started = [process.started_at for one in status.executors for process in one.processes if process.started_at]
    return max(1.0, status.uptime_s, time.time() - min(started, default=0.0) if started else 0.0)
