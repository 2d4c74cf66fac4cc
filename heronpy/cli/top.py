"""`heron top`: the components of a topology, live; and the waiting of `heron submit --wait`.

On a terminal the table is redrawn in place. Elsewhere snapshots are printed one after another, so
that the output can be kept or piped.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from heronpy.cli import exits
from heronpy.cli.output import clean, console, say, table
from heronpy.cli.reading import Reading, reading_target
from heronpy.cli.target import Common, Target, common_flags, json_flag, topology_argument

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from heronpy.cli.session import Session
    from heronpy.cli.summary import ComponentRow
    from heronpy.proto import control_pb2 as control

LINE_INTERVAL_S = 2.0
LIVE_INTERVAL_S = 0.5
END_LOOK_S = 0.2
RATE_OVER_S = 2.5
#: Columns that the full table needs.
WIDE = 150
#: A topology master may be restarted; longer silence ends the watch.
SILENCE_MAX_S = 30.0


@click.command("top", cls=Reading)
@reading_target
@topology_argument
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds between two looks.",
)
@click.option("-n", "--iterations", type=click.IntRange(min=1), metavar="N", help="Stop after N looks.")
@json_flag
@common_flags
def top_command(
    target: Target, topology: str, interval_s: float, iterations: int | None, as_json: bool, common: Common
) -> None:
    """Watch the components of a topology: counts, rates, queues and who causes backpressure.

    Ctrl-C ends it. Without a terminal a snapshot is printed per look; with --json one line of JSON.
    """
    from heronpy.cli import stateful
    from heronpy.cli.session import Session

    session = Session(target, common)
    session.status(topology)
    looks = samples(session, topology, interval_s, iterations)
    try:
        if as_json:
            _print_json_lines(session, looks)
        elif sys.stdout.isatty():
            _live(session, looks)
        else:
            for status, rows in looks:
                say(header(status, stateful.current_lines(session, status)))
                console().print(component_table(rows))
    except KeyboardInterrupt:
        say()


def samples(
    session: Session,
    topology: str,
    interval_s: float,
    count: int | None = None,
    ended: Callable[[control.StatusReply], bool] | None = None,
) -> Iterator[tuple[control.StatusReply, list[ComponentRow]]]:
    """Statuses with their rows, one per interval; sooner when `ended` says that there is no later one.

    The first comes after a short time, which its rates are taken over. A Failure when the topology is gone.
    """
    from heronpy.cli import summary, waiting

    began = time.monotonic()
    #: Tasks report once a second, so a rate over less than some seconds would jump up and down.
    history: deque[tuple[control.StatusReply | None, float]] = deque([(waiting.poll(session, topology), began)])
    next_at, heard_at = began + min(interval_s, LIVE_INTERVAL_S), began
    done = 0
    while count is None or done < count:
        pause = max(next_at - time.monotonic(), 0.0)
        time.sleep(pause if ended is None else min(pause, END_LOOK_S))
        status, now = waiting.poll(session, topology), time.monotonic()
        if status is None:
            session.find(topology)
            if now - heard_at > SILENCE_MAX_S or session.scheduler_location(topology) is None:
                session.status(topology)  # raises with the reason, unless it has just come back
            time.sleep(END_LOOK_S)
            continue
        heard_at = now
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


def header(status: control.StatusReply, checkpoints: Sequence[str] = ()) -> str:
    """What stands above the table: the topology, its checkpoints, what holds it back and what is down."""
    from heronpy.cli import summary
    from heronpy.common.units import format_duration

    lines = [
        f"{clean(status.topology)}  {clean(summary.state_text(status))}  up {format_duration(status.uptime_s)}"
        f"  plan version {status.plan_version}"
    ]
    lines += summary.trouble_texts(status)
    lines += [clean(text) for text in checkpoints]
    lines += [clean(summary.culprit_text(culprit)) for culprit in status.culprits]
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
    ("in queue", "in"),
    ("out queue", "out"),
    ("pending", "pend"),
    ("backpressure", "slow"),
)
"""Headers of wide and of narrow tables; "" leaves the column out of narrow ones."""


def short(count: float) -> str:
    """A count in at most five characters: 950, 12.3k, 1.86M."""
    for unit in ("", "k", "M", "G", "T"):
        if count < 999.5 or unit == "T":
            break
        count /= 1000
    digits = 0 if not unit or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:.{digits}f}{unit}"


def component_table(rows: list[ComponentRow], narrow: bool = False) -> Table:
    """The table of components; a narrow one fits 80 columns."""
    number = short if narrow else "{:,.0f}".format
    cells = []
    for row in rows:
        spout, bolt = row.is_spout, not row.is_spout
        cells.append(
            (
                row.name,
                "spout" if spout else "bolt",
                f"{row.up}/{row.tasks}",
                number(row.emitted),
                number(row.executed) if bolt else None,
                number(row.acked),
                number(row.failed),
                number(row.emitted_per_s),
                number(row.executed_per_s) if bolt else None,
                number(row.in_queue_tuples) if bolt else None,
                number(row.out_queue_tuples),
                number(row.pending) if spout else None,
                ("yes" if narrow else "causes it") if row.backpressure else "",
            )
        )
    if not narrow:
        columns = [wide for wide, _ in COLUMNS]
        return table(columns, cells, right=columns[2:-1])
    kept = [index for index, (_, name) in enumerate(COLUMNS) if name]
    columns = [COLUMNS[index][1] for index in kept]
    tight = table(columns, [[line[index] for index in kept] for line in cells], right=columns[1:-1])
    tight.padding = (0, 0, 0, 0)
    return tight


def _screen(
    status: control.StatusReply, rows: list[ComponentRow], narrow: bool, checkpoints: Sequence[str]
) -> Group:
    from rich.console import Group
    from rich.text import Text

    return Group(Text(header(status, checkpoints), style="bold"), component_table(rows, narrow))


def _live(session: Session, looks: Iterator[tuple[control.StatusReply, list[ComponentRow]]]) -> None:
    from rich.live import Live

    from heronpy.cli import stateful

    screen = console()
    with Live(console=screen, auto_refresh=False) as live:
        for status, rows in looks:
            checkpoints = stateful.current_lines(session, status)
            live.update(_screen(status, rows, screen.width < WIDE, checkpoints), refresh=True)


def _print_json_lines(session: Session, looks: Iterator[tuple[control.StatusReply, list[ComponentRow]]]) -> None:
    import json

    from heronpy.cli import stateful, summary

    for status, rows in looks:
        click.echo(json.dumps({**summary.as_json(status, rows), **stateful.as_json(session, status)}))


def watch_until_finished(session: Session, topology: str) -> control.StatusReply:
    """Show a bounded topology until it has finished; the last status, or a Failure with its exceptions."""
    from heronpy.cli import summary, waiting

    terminal = sys.stdout.isatty()
    last: list[control.StatusReply] = []

    def over(status: control.StatusReply) -> bool:
        return waiting.failed(status) or summary.lifecycle_name(status) == "FINISHED"

    def until_end() -> Iterator[tuple[control.StatusReply, list[ComponentRow]]]:
        interval_s = LIVE_INTERVAL_S if terminal else LINE_INTERVAL_S
        for status, rows in samples(session, topology, interval_s, ended=over):
            last[:] = [status]
            yield status, rows
            if waiting.failed(status):
                raise exits.Failure(
                    f"topology '{topology}' failed: {status.cause or 'see its logs'}",
                    report=waiting.exceptions_report(session, topology, status),
                )
            if over(status):
                return

    if terminal:
        _live(session, until_end())
    else:
        for status, rows in until_end():
            say(_line(status, rows))
    return last[0]


def _line(status: control.StatusReply, rows: list[ComponentRow]) -> str:
    """One line per look for outputs that are not terminals."""
    from heronpy.cli import summary
    from heronpy.common.units import format_duration

    parts = [f"{format_duration(status.uptime_s)} {clean(summary.state_text(status))}"]
    for row in rows:
        counts = f"{row.emitted:,} emitted" if row.is_spout else f"{row.executed:,} executed"
        rate = row.emitted_per_s if row.is_spout else row.executed_per_s
        failed = f", {row.failed:,} failed" if row.failed else ""
        parts.append(f"{clean(row.name)} {counts} ({rate:,.0f}/s){failed}")
    parts += [clean(summary.culprit_text(culprit)) for culprit in status.culprits]
    parts += [clean(text) for text in summary.down_texts(status)]
    parts += summary.trouble_texts(status)
    return " | ".join(parts)
