"""`heron top`, and the wait loop of `heron submit --wait`.

On a terminal, `heron top` uses the whole screen and reads keys (see `full_screen`). For a given number of snapshots it
redraws the table in place. Without a terminal it prints snapshots one after another, for files and pipes.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from heronpy.cli.look import doctor, pipelines, stateful
from heronpy.cli.look.full_screen import terminal
from heronpy.cli.look.full_screen.rows import short
from heronpy.cli.output import clean, console, say, table, warning
from heronpy.cli.render import containers, summary
from heronpy.cli.render.summary import ComponentRow
from heronpy.clusters.errors import NotThereError
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.units import format_duration
from heronpy.proto import control_pb2

if TYPE_CHECKING:
    from rich.table import Table


LIVE_INTERVAL_S = 0.5
END_LOOK_S = 0.2
RATE_OVER_S = 2.5
#: Width that the full table needs, and that a narrow table with frames needs.
WIDE = 176
FRAMES_FIT = 100
#: A topology master may be restarting; longer silence ends `heron top`, and is reported by `heron submit --wait`.
SILENCE_MAX_S = 30.0
#: The guardian restarts a dead scheduler; longer absence means that no process runs.
ABSENCE_MAX_S = 20.0


class Silence:
    """Decides how long verbs that watch a topology wait for a silent topology master.

    The topology master may be restarting, stopped for a while, or gone.
    """

    def __init__(self, session: Session, topology: str, patient: bool) -> None:
        self._session, self._topology, self._patient = session, topology, patient
        self._heard_at = self._scheduled_at = time.monotonic()
        self._told = False

    def look(self) -> None:
        """Raise a Failure if waiting for the topology master is useless."""
        session, topology, now = self._session, self._topology, time.monotonic()
        session.find(topology)
        if session.scheduler_location(topology) is not None:
            self._scheduled_at = now
        silent_s = now - self._heard_at
        if now - self._scheduled_at > ABSENCE_MAX_S or (silent_s > SILENCE_MAX_S and not self._patient):
            session.status(topology)  # raises with the reason, unless the topology master has just returned
        if silent_s > SILENCE_MAX_S and not self._told:
            self._told = True
            warning(
                f"no answer from the topology master of '{topology}' for {format_duration(round(silent_s))};"
                " still waiting; the tasks may be working"
            )


def watch(
    target: Target, topology: str, interval_s: float, iterations: int | None, as_json: bool, common: Common
) -> None:
    """Show the components once per interval, until Ctrl-C or for a number of snapshots."""
    session = Session(target, common)
    session.status(topology)
    if not as_json and iterations is None and terminal.fits_terminal():
        _full_screen(session, topology, interval_s)
        return
    looks = samples(session, topology, interval_s, iterations, first_s=RATE_OVER_S)
    try:
        if as_json:
            _print_json_lines(session, looks)
        elif sys.stdout.isatty():
            live(session, looks)
        else:
            for status, rows in looks:
                say(header(status, _said(session, status)))
                console().print(component_table(rows))
    except KeyboardInterrupt:
        say()


def _full_screen(session: Session, topology: str, interval_s: float) -> None:
    """Show the full screen until q or Ctrl-C; raises a Failure when the topology is gone."""
    silence = Silence(session, topology, patient=False)

    def look_for_end(answered: bool) -> None:
        nonlocal silence
        if answered:
            silence = Silence(session, topology, patient=False)
        else:
            silence.look()

    with contextlib.suppress(KeyboardInterrupt):
        terminal.show(session, topology, interval_s, look_for_end)


def _end_look_s(watched_s: float) -> float:
    """Return the seconds until the next check whether the topology has ended; few at first, because it may end soon."""
    return min(END_LOOK_S, max(0.02, 0.1 * watched_s))


def samples(
    session: Session,
    topology: str,
    interval_s: float,
    count: int | None = None,
    ended: Callable[[control_pb2.StatusReply], bool] | None = None,
    topology_id: str = "",
    first_s: float = LIVE_INTERVAL_S,
) -> Iterator[tuple[control_pb2.StatusReply, list[ComponentRow]]]:
    """Yield one status with its rows per interval; end early if `ended` reports that no later status will come.

    The first status comes after `first_s`, over which its rates are measured. Raises a Failure when the topology is
    gone. With `ended`, the generator waits for a silent topology master as long as the scheduler runs. With
    `topology_id`, it raises NotThereError when a later topology has the same name.
    """
    began = time.monotonic()
    #: Tasks report once a second, so a rate over less than a few seconds would fluctuate.
    history: deque[tuple[control_pb2.StatusReply | None, float]] = deque([(session.poll(topology), began)])
    next_at, silence = began + first_s, Silence(session, topology, patient=ended is not None)
    done = 0
    while count is None or done < count:
        pause = max(next_at - time.monotonic(), 0.0)
        time.sleep(pause if ended is None else min(pause, _end_look_s(time.monotonic() - began)))
        status, now = session.poll(topology), time.monotonic()
        if status is not None and topology_id not in ("", status.topology_id):
            raise NotThereError(
                f"topology '{topology}' was removed, and another topology of that name was submitted; how the first"
                " topology ended is unknown"
            )
        if status is None:
            silence.look()
            time.sleep(END_LOOK_S)
            continue
        silence = Silence(session, topology, patient=ended is not None)
        if now < next_at and not (ended is not None and ended(status)):
            continue
        while len(history) > 1 and now - history[1][1] >= RATE_OVER_S:
            history.popleft()
        before, before_at = history[0]
        same = before is not None and before.topology_id == status.topology_id
        yield status, summary.components(status, before if same else None, now - before_at)
        history.append((status, now))
        next_at = now + interval_s
        done += 1


def _said(session: Session, status: control_pb2.StatusReply) -> list[str]:
    """Return the diagnosis if a finding needs action, then lines about checkpoints and work units."""
    diagnosis = doctor.line(session, status.topology)
    said = [*([diagnosis] if diagnosis else []), *stateful.current_lines(session, status)]
    said += pipelines.lines(pipelines.ask(session, status))
    placed = containers.placed_of(session, status.topology)
    return said + containers.texts(placed.containers if placed is not None else (), time.time())


def header(status: control_pb2.StatusReply, said: Sequence[str] = ()) -> str:
    """Return the lines above the table: topology, diagnosis, checkpoints, bottleneck, and processes that are down."""
    lines = [
        f"{clean(status.topology)}  {clean(summary.state_text(status))}  up {format_duration(status.uptime_s)}"
        f"  physical plan {status.plan_version}"
    ]
    lines += summary.trouble_texts(status)
    lines += [clean(text) for text in said]
    lines += [clean(summary.culprit_text(culprit)) for culprit in status.culprits]
    lines += [clean(f"dropped {text}") for text in summary.dropped_texts(status)]
    lines += [clean(text) for text in summary.down_texts(status)]
    return "\n".join(lines)


COLUMNS = (
    ("component", "component"),
    ("kind", ""),
    ("up", "up"),
    ("emitted", "emit"),
    ("executed", "exec"),
    ("acked", "ack"),
    ("failed", "fail"),
    ("emit/s", "emit/s"),
    ("exec/s", "exec/s"),
    ("frames/s", "frm/s"),
    ("tuples/frame", "t/frm"),
    ("in queue", "in"),
    ("out queue", "out"),
    ("pending", "pend"),
    ("backpressure", "slow"),
)
"""Headers of wide and narrow tables; "" leaves the column out of narrow tables."""
#: Columns that fit only if the width is at least FRAMES_FIT.
FRAMES = ("frames/s", "tuples/frame")


def _part(count: float, narrow: bool) -> str:
    """Return a ratio as text, with one decimal if it is below 100."""
    return f"{count:.1f}" if count < 99.95 else short(count) if narrow else f"{count:,.0f}"


def component_table(rows: list[ComponentRow], narrow: bool = False, frames: bool = True) -> Table:
    """Return the table of components; a narrow one fits 100 columns, or 80 without frames.

    `frames/s` are the frames with tuples that a spout sends or a bolt receives. In a wide table, ≥ marks a
    lower bound: a process ended before it reported its last counts.
    """
    number = short if narrow else "{:,.0f}".format
    cells = []
    for row in rows:
        spout, bolt = row.is_spout, not row.is_spout
        least = "≥" if row.at_least and not narrow else ""
        cells.append(
            (
                row.name,
                "spout" if spout else "bolt",
                f"{row.up}/{row.tasks}",
                least + number(row.emitted),
                least + number(row.executed) if bolt else None,
                least + number(row.acked),
                least + number(row.failed),
                number(row.emitted_per_s),
                number(row.executed_per_s) if bolt else None,
                number(row.frames_per_s),
                _part(row.tuples_per_frame, narrow) if row.frames_per_s else None,
                number(row.in_queue_tuples) if bolt else None,
                number(row.out_queue_tuples),
                number(row.pending) if spout else None,
                ("yes" if narrow else "causes it") if row.backpressure else "",
            )
        )
    if not narrow:
        columns = [wide for wide, _ in COLUMNS]
        return table(columns, cells, right=columns[2:-1])
    kept = [index for index, (wide, name) in enumerate(COLUMNS) if name and (frames or wide not in FRAMES)]
    columns = [COLUMNS[index][1] for index in kept]
    tight = table(columns, [[line[index] for index in kept] for line in cells], right=columns[1:-1])
    tight.padding = (0, 0, 0, 0)
    return tight


def live(session: Session, looks: Iterator[tuple[control_pb2.StatusReply, list[ComponentRow]]]) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    screen = console()
    with Live(console=screen, auto_refresh=False) as live:
        for status, rows in looks:
            head = Text(header(status, _said(session, status)), style="bold")
            rowed = component_table(rows, screen.width < WIDE, screen.width >= FRAMES_FIT)
            live.update(Group(head, rowed), refresh=True)


def _print_json_lines(session: Session, looks: Iterator[tuple[control_pb2.StatusReply, list[ComponentRow]]]) -> None:
    for status, rows in looks:
        click.echo(
            json.dumps(
                {
                    **summary.as_json(status, rows),
                    **stateful.as_json(session, status),
                    **pipelines.as_json(session, status),
                    **_placed(session, status),
                }
            )
        )


def _placed(session: Session, status: control_pb2.StatusReply) -> dict[str, object]:
    """Return the field `containers` for a topology on an engine; empty for a topology without an engine."""
    placed = containers.placed_of(session, status.topology)
    return {"containers": [containers.as_json(one) for one in placed.containers]} if placed is not None else {}
