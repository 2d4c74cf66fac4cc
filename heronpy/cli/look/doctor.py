"""`heron doctor`: the diagnosis of a topology, and the next step."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from heronpy.cli import exits
from heronpy.cli.output import moment, picked, print_json, say, say_labelled
from heronpy.clusters.errors import RequestError
from heronpy.clusters.examining import look
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import HeronError
from heronpy.common.units import format_bytes, format_duration
from heronpy.health.doctor import finding_of
from heronpy.health.signals import Signals
from heronpy.health.texts import advice, sentence
from heronpy.proto import control_pb2
from heronpy.views.findings import CALM, Finding
from heronpy.views.load import LoadAnswer

if TYPE_CHECKING:
    from heronpy.cli.look import evidence as packing

LOOK_S = 5.0
#: How long verbs other than `heron doctor` wait for the diagnosis.
ASIDE_S = 1.0
#: Fields of a finding in JSON.
FINDING = ("verdict", "sentence", "next", "component", "task", "figures", "names", "host", "scope")
#: Tasks whose figures are shown below the findings.
_SHOWN = 5


def examine(
    target: Target,
    topology: str,
    window_s: float,
    watch: bool,
    evidence: str | None,
    as_json: bool,
    common: Common,
) -> None:
    """Print the diagnosis, repeatedly with `watch`. Exits with code 1 if any finding needs action.

    `evidence` is the path of a new file for all evidence. If it is empty, the file is created in the current folder and
    named after the topology and the time.
    """
    session = Session(target, common)
    if session.record(topology) is None and _has_ended(session, topology, watch or evidence is not None, as_json):
        return
    with ExitStack() as stack:
        file: packing.NewFile | None = None
        if evidence is not None:
            # Imported here, because this import takes as long as all other imports.
            from heronpy.cli.look import evidence as packing

            session.find(topology)  # fails for a topology that does not exist, before a file is made
            path = Path(evidence or f"{topology}-evidence-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.jsonl")
            file = stack.enter_context(closing(packing.NewFile(path)))
        signals, findings = look(session, topology, window_s)
        if file is not None:
            size = file.write(packing.lines(session, signals, findings, time.time()))
            file.keep()
            if not as_json and watch:
                say(f"{'evidence':<10} {path}; each measurement is appended, until Ctrl-C")
        _print(signals, findings, session, as_json, lines=watch)
        try:
            while watch:
                time.sleep(LOOK_S)
                signals, findings = look(session, topology, window_s)
                if file is not None:
                    file.write([packing.look_line(signals, time.time())])
                _print(signals, findings, session, as_json, lines=True)
        except KeyboardInterrupt:
            if not as_json:
                say()
            return
        if file is not None and not as_json:
            say(f"{'evidence':<10} {format_bytes(size)} in {path}; review it before you share it")
    if any(finding.verdict not in CALM for finding in findings):
        raise click.exceptions.Exit(exits.FAILED)


def _has_ended(session: Session, topology: str, more: bool, as_json: bool) -> bool:
    """If an ended run has left a file, print the diagnosis from it and return True; otherwise return False.

    Exits with code 1 if a finding needs action.
    """
    from heronpy.clusters.ended import kept_of_last

    kept = kept_of_last(session, topology)
    if kept is None:
        return False
    # Imported here: these imports take as long as all other imports together.
    from heronpy.clusters.summary import told_by
    from heronpy.views.build_ended import doctor_of_ended

    found = doctor_of_ended(*told_by(kept))
    if more:
        raise RequestError(f"{found.findings[0].sentence}; --watch and --evidence need a running topology")
    if as_json:
        print_json(
            {
                "topology": found.topology,
                "ended_at": found.ended_at,
                "window_s": found.window_s,
                "healthy": found.healthy,
                "findings": [picked(one, *FINDING) for one in found.findings],
                "events_known": found.events_known,
                "arrival": found.emitted_per_s,
                "held": found.held,
                "hosts": [],
                "tasks": [],
                "not_known": found.not_known,
            }
        )
    else:
        for one in found.findings:
            say_labelled(one.verdict.upper(), one.sentence)
            if one.next:
                say_labelled("next", one.next, whole=True)
        say_labelled("unknown", found.not_known)
    if not found.healthy:
        raise click.exceptions.Exit(exits.FAILED)
    return True


def job_alerts(session: Session, signals: Signals) -> list[str]:
    """Return the open alerts of the job that controls the topology; an alert may remain while rates settle."""
    if not signals.job:
        return []
    from heronpy.jobs.store import Store

    try:
        alerts = Store(session.state).scaled(signals.topology)[0].state.alerts
    except HeronError:
        return []  # the diagnosis is complete without them
    return [one.text for one in alerts.values() if one.told]


def line(session: Session, topology: str) -> str:
    """Return `doctor: ...` with the topology master's most urgent finding; "" if no finding needs action."""
    try:
        found = session.look(topology, control_pb2.GetLoad(plan_version=(1 << 64) - 1), LoadAnswer, ASIDE_S).findings
    except HeronError:
        return ""  # the verb works without it
    first = next(iter(found), None)
    return f"doctor: {sentence(first, topology)}" if first is not None and first.verdict not in CALM else ""


def _print(signals: Signals, findings: list[Finding], session: Session, as_json: bool, lines: bool = False) -> None:
    if as_json:
        shape = _as_json(signals, findings, session.target.cluster) | {"job_alerts": job_alerts(session, signals)}
        if lines:
            click.echo(json.dumps({"at": round(time.time(), 1), **shape}))
        else:
            print_json(shape)
        return
    if lines:
        say(f"{'at':<10} {moment(time.time())}")
    for finding in findings:
        say_labelled(finding.verdict.name.replace("_", " "), sentence(finding, signals.topology))
        if finding.task:
            host = f", on {finding.host}" if finding.host else ""
            say_labelled("where", f"{finding.task}: a task of {finding.component}{host}")
        todo = advice(finding, session.target.cluster, signals.topology, signals.job)
        if todo:
            say_labelled("next", todo, whole=True)
    for alert in job_alerts(session, signals):
        say_labelled("ALERT", f"of job {signals.topology}: {alert}")
        say_labelled("next", f"heron job explain {session.target.cluster} {signals.topology}", whole=True)
    for line in seen(signals):
        say_labelled("seen", line)
    if lines:
        say()


def seen(signals: Signals) -> list[str]:
    """Return lines of evidence: figures of the topology, then of its busiest tasks."""
    window = format_duration(round(signals.window_s))
    still_s = min((signals.still_s.get(one.component, 0.0) for one in signals.tasks if one.is_spout), default=0.0)
    # The rate is measured over the whole window.
    emits = [f"spouts emit {signals.arrival:,.0f}/s"]
    if still_s >= signals.times.still_s and signals.arrival:
        emits = [f"spouts emitted {signals.arrival:,.0f}/s, nothing in the last {format_duration(round(still_s))}"]
    if signals.units_backlog is not None:
        units = f"{format_bytes(int(signals.units_published))}/s of log files are published"
        # Workers that write tables emit nothing.
        emits = [*(emits if any(task.is_spout and task.emits for task in signals.tasks) else ()), units]
    found = [f"{window}: {', '.join(emits)}, held {signals.held * 100:.0f} %"]
    bolts = [task for task in signals.tasks if task.busy is not None and not task.is_spout]
    for task in sorted(bolts, key=lambda task: -(task.busy or 0.0))[:_SHOWN]:
        blocked = f", blocked {task.blocked * 100:.0f} %" if task.blocked is not None else ""
        cpu = f", CPU {task.cpu * 100:.0f} %" if task.cpu is not None else ""
        found.append(
            f"{task.name}: {task.executed:,.0f}/s, busy {(task.busy or 0.0) * 100:.0f} %{blocked}{cpu},"
            f" queue {format_bytes(task.queue_bytes)}"
        )
    for host in signals.hosts:
        cores = f"{host.used:.1f} of {host.cores} cores in use, {host.own:.1f} of them by this topology"
        found.append(f"{host.name}: {cores}")
    if signals.unanswered:
        found.append(f"the topology master did not answer in time: {', '.join(signals.unanswered)}; try again")
    elif not signals.events_known:
        found.append("past restarts and changes are unknown: the topology master runs an earlier release")
    return found


def _as_json(signals: Signals, findings: list[Finding], cluster: str) -> dict[str, Any]:
    return {
        "topology": signals.topology,
        "window_s": round(signals.window_s, 3),
        "healthy": all(finding.verdict in CALM for finding in findings),
        "findings": [picked(finding_of(one, cluster, signals.topology, signals.job), *FINDING) for one in findings],
        "events_known": signals.events_known,
        "unanswered": signals.unanswered,
        "arrival": signals.arrival,
        "held": signals.held,
        "hosts": [to_builtins(host) for host in signals.hosts],
        "tasks": [to_builtins(task) for task in signals.tasks],
    }
