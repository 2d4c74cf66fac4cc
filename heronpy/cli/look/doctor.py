"""`heron doctor`: the diagnosis of a topology, and what to do next."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import click

from heronpy.cli import exits
from heronpy.cli.look import stateful
from heronpy.cli.output import clean, console, print_json, say
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import InvalidRpcError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.common.units import format_bytes, format_duration
from heronpy.health.diagnose import CALM, Finding, diagnose
from heronpy.health.signals import METRICS, Signals, signals_of
from heronpy.health.texts import advice, sentence
from heronpy.proto import control_pb2

LOOK_S = 5.0
#: Tasks whose figures are shown below the findings.
_SHOWN = 5


def examine(target: Target, topology: str, window_s: float, watch: bool, as_json: bool, common: Common) -> None:
    """Print the diagnosis; with `watch`, repeatedly. Exits with code 1 if any finding needs action."""
    session = Session(target, common)
    try:
        while watch:
            _print(*look(session, topology, window_s), session, as_json, lines=True)
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        if not as_json:
            say()
        return
    signals, findings = look(session, topology, window_s)
    _print(signals, findings, session, as_json)
    if any(finding.verdict not in CALM for finding in findings):
        raise click.exceptions.Exit(exits.FAILED)


def look(session: Session, topology: str, window_s: float) -> tuple[Signals, list[Finding]]:
    """Query the topology master, and diagnose its answers."""
    status = session.status(topology)
    metrics = session.ask(topology, control_pb2.GetMetrics(names=METRICS, interval_s=min(window_s, _age(status))))
    try:
        events = session.ask(topology, control_pb2.GetEvents()).events[:]
    except InvalidRpcError:
        events = None  # a topology master of an earlier release
    launch = session.launch_of(session.find(topology))
    signals = signals_of(
        status,
        metrics,
        events,
        stateful.ask(session, status),
        now=time.time(),
        checkpoint_every_s=settings_for(launch, CheckpointSettings).interval_s,
    )
    return signals, diagnose(signals)


def _age(status: control_pb2.StatusReply) -> float:
    """Seconds since the first process of the topology started: no figure is older."""
    started = [process.started_at for one in status.executors for process in one.processes if process.started_at]
    return max(1.0, status.uptime_s, time.time() - min(started, default=0.0) if started else 0.0)


def _print(signals: Signals, findings: list[Finding], session: Session, as_json: bool, lines: bool = False) -> None:
    if as_json:
        shape = _as_json(signals, findings, session.target.cluster)
        if lines:
            click.echo(json.dumps(shape))
        else:
            print_json(shape)
        return
    for finding in findings:
        say(f"{finding.verdict.name.replace('_', ' '):<10} {clean(sentence(finding, signals.topology))}")
        todo = advice(finding, session.target.cluster, signals.topology)
        if todo:
            say(f"{'next':<10} {clean(todo)}")
    for line in _seen(signals):
        say(f"{'seen':<10} {clean(line)}")
    if lines:
        console().rule()


def _seen(signals: Signals) -> list[str]:
    """The evidence: figures of the topology, then of its busiest tasks."""
    window = format_duration(round(signals.window_s))
    found = [f"{window}: spouts emit {signals.arrival:,.0f}/s, held {signals.held * 100:.0f} %"]
    bolts = [task for task in signals.tasks if task.busy is not None]
    for task in sorted(bolts, key=lambda task: -(task.busy or 0.0))[:_SHOWN]:
        cpu = f", CPU {task.cpu * 100:.0f} %" if task.cpu is not None else ""
        found.append(
            f"{task.name}: {task.executed:,.0f}/s, busy {(task.busy or 0.0) * 100:.0f} %{cpu},"
            f" queue {format_bytes(task.queue_bytes)}"
        )
    if not signals.events_known:
        found.append("past restarts and changes are unknown: the topology master is of an earlier release")
    return found


def _as_json(signals: Signals, findings: list[Finding], cluster: str) -> dict[str, Any]:
    return {
        "topology": signals.topology,
        "window_s": round(signals.window_s, 3),
        "healthy": all(finding.verdict in CALM for finding in findings),
        "findings": [
            {
                "verdict": finding.verdict.value,
                "sentence": sentence(finding, signals.topology),
                "next": advice(finding, cluster, signals.topology),
                "component": finding.component,
                "task": finding.task,
                "figures": finding.figures,
                "names": list(finding.names),
            }
            for finding in findings
        ],
        "events_known": signals.events_known,
        "arrival": signals.arrival,
        "held": signals.held,
        "tasks": [dataclasses.asdict(task) for task in signals.tasks],
    }
