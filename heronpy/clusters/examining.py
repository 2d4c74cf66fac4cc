"""Asks a topology master for what a diagnosis needs, and diagnoses."""

from __future__ import annotations

import time
from contextlib import suppress

from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError, InvalidRpcError
from heronpy.common.setting_types import CheckpointSettings, InstanceSettings
from heronpy.common.settings import settings_for
from heronpy.health.diagnose import diagnose
from heronpy.health.findings import Finding
from heronpy.health.signals import HISTORY_S, METRICS, SERIES, Signals, signals_of, window_of
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import control_pb2

CHECKPOINTS_S = 1.0


def look(session: Session, topology: str, window_s: float) -> tuple[Signals, list[Finding]]:
    """Query the topology master, and diagnose its answers."""
    status, now = session.status(topology), time.time()
    # A topology master of an earlier release refuses some of these.
    events, timeline, since = None, None, now - _age(status)
    with suppress(InvalidRpcError):
        events = session.ask(topology, control_pb2.GetEvents()).events[:]
    with suppress(InvalidRpcError):
        since = session.ask(topology, control_pb2.GetLoad(plan_version=status.plan_version)).since
        timeline = session.ask(topology, control_pb2.GetTimeline(names=SERIES, since=now - HISTORY_S))
    over_s = window_of(window_s, now - since if since else 0.0, events, now)
    metrics = session.ask(topology, control_pb2.GetMetrics(names=METRICS, interval_s=over_s))
    looks = None
    with suppress(InvalidRpcError):
        looks = session.ask(topology, control_pb2.GetLooks()).tasks
    # Before the launch file: that is on the host where it was submitted.
    launch = session.submitted(topology) or session.launch_of(session.find(topology))
    signals = signals_of(
        status,
        metrics,
        events,
        _checkpoints(session, status),
        timeline,
        now=time.time(),
        asked_s=window_s,
        checkpoint_every_s=settings_for(launch, CheckpointSettings).interval_s,
        memory_limit=lambda component: settings_for(launch, InstanceSettings, component).memory_soft_limit_bytes,
        looks=looks or (),
    )
    return signals, diagnose(signals)


def _checkpoints(session: Session, status: control_pb2.StatusReply) -> control_pb2.CheckpointsReply | None:
    """None for a topology that takes none, and without an answer: the diagnosis stands without it."""
    if reliability_mode(status.plan.topology) != "EFFECTIVELY_ONCE":
        return None
    try:
        reply = session.ask(status.topology, control_pb2.GetCheckpoints(), CHECKPOINTS_S)
        return reply
    except HeronError:
        return None


def _age(status: control_pb2.StatusReply) -> float:
    """Seconds since the first process of the topology started: no figure is older."""
    started = [process.started_at for one in status.executors for process in one.processes if process.started_at]
    return max(1.0, status.uptime_s, time.time() - min(started, default=0.0) if started else 0.0)
