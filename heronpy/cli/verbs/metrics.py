"""`heron metrics`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, component_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("metrics", cls=Reading)
@reading_target
@topology_argument
@component_flags("Only this component.")
@click.option("--instance", "instances", multiple=True, metavar="ID", help="Only this instance or process; repeatable.",
              shell_complete=complete.instances)  # fmt: skip
@click.option("--name", "names", multiple=True, metavar="METRIC", help="This metric or NAME/LABEL only; repeatable.",
              shell_complete=complete.metrics)  # fmt: skip
@click.option("--interval", "interval", metavar="TIME", help="Count only the last 5m, for example.")
@click.option("--by-instance", is_flag=True, help="A row per instance instead of per component.")
@click.option("--all", "everything", is_flag=True, help="Every metric of every process, a row each.")
@json_flag
@common_flags
def metrics_command(**flags: Any) -> None:
    """Show metrics, summed by component or for each instance.

    Without --all, --name and --instance it shows the main figures: counts, latency, queue, CPU and memory.
    Latency is that of complete tuple trees at an acking spout, otherwise of one call of process or next_tuple.
    Counters and distributions are totals since the start unless --interval is given, without what a killed process had
    counted after its last report; --json has every metric.
    """
    from heronpy.cli.look.metrics import show_metrics

    show_metrics(**flags)
