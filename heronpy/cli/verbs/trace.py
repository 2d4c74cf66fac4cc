"""`heron trace` and `heron slow`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, component_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("trace", cls=Reading)
@reading_target
@topology_argument
@click.option("--seconds", type=click.FloatRange(1, 3600), default=10.0, show_default=True, metavar="N",
              help="Trace for so long.")  # fmt: skip
@click.option("--rate", "per_s", type=click.FloatRange(0, 1000), default=100.0, show_default=True, metavar="N",
              help="Tuples per second that all spouts together trace; 0: as heron.trace.per_s says.")  # fmt: skip
@click.option("--min-ms", type=click.FloatRange(0), default=0.0, metavar="MS",
              help="Only tuples that took at least so long.")  # fmt: skip
@click.option("--otlp", metavar="URL", help="Also send the traces to an OpenTelemetry collector, as JSON over HTTP, for"
              " example http://127.0.0.1:4318.")  # fmt: skip
@json_flag
@common_flags
def trace_command(**flags: Any) -> None:
    """Trace tuples from the spout on, and show where their time goes: each hop with its median and its 99th percentile,
    and the slowest tuple call by call.

    \b
    batch     in the sender's buffer, until the frame is full or the linger is over
    queue     waiting for credit: in the sender's out-queue and in stream managers
    wire      from a process to the next stream manager
    in-queue  from the last stream manager until the task's call begins
    process   in the call of process
    ack       from the last call to the spout's ack
    """
    from heronpy.cli.look.trace import show_traces

    show_traces(**flags)


@click.command("slow", cls=Reading)
@reading_target
@topology_argument
@component_flags("Only this component.")
@click.option("--task", type=click.IntRange(min=1), metavar="ID", help="Only the task with this id.",
              shell_complete=complete.tasks)  # fmt: skip
@json_flag
@common_flags
def slow_command(**flags: Any) -> None:
    """Show the tuples whose process() took longer than heron.instance.slow_ms, with their values, the slowest first.

    Each task keeps the 16 slowest of the last hour; the metric __slow-tuples counts all.
    """
    from heronpy.cli.look.trace import show_slow

    show_slow(**flags)
