"""`heron metrics`, and what it prints for Prometheus and Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import TargetType, common_flags, component_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


class Metrics(Reading, click.Group):
    """Metrics of a topology, unless the first word is a subcommand: then a topology of that name needs its cluster."""

    allow_extra_args = False
    allow_interspersed_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.args = list(args)
            return ctx.args
        # Not as a group: words that are left over while a shell completes are no subcommands.
        return click.Command.parse_args(self, ctx, self._with_cluster(ctx, args))

    def invoke(self, ctx: click.Context) -> Any:
        if not ctx.args:
            return click.Command.invoke(self, ctx)
        name, *rest = ctx.args
        with self.commands[name].make_context(name, rest, parent=ctx) as chosen:
            return chosen.command.invoke(chosen)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        # click asks with the context of a subcommand for what stands before it: nothing.
        return super().get_params(ctx) if ctx.command is self else []

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return click.Command.collect_usage_pieces(self, ctx)


@click.group("metrics", cls=Metrics, invoke_without_command=True)
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
    counted after its last report (then their components are named); --json has every metric.

    With targets, rules or dashboard as the first word it prints what Prometheus and Grafana need. Metrics of a topology
    that has such a name are shown when the cluster is named: heron metrics local rules
    """
    from heronpy.cli.look.metrics import show_metrics

    show_metrics(**flags)


@metrics_command.command("targets")
@click.argument("targets", nargs=-1, type=TargetType(), metavar="[CLUSTER[/ROLE[/ENVIRON]]]...",
                shell_complete=complete.clusters)  # fmt: skip
@click.option("--tracker", is_flag=True, help="The tracker's page instead: one target with the sums of components.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Replace this file in one step, instead of printing.")  # fmt: skip
@common_flags
def targets_command(**flags: Any) -> None:
    """Print where Prometheus finds the metrics of all running topologies, for its file_sd_configs.

    There is a target per container, whose page has every metric of every task. Print it again when topologies come
    and go, by cron for example; a topology that does not answer is left out with a warning.
    """
    from heronpy.cli.look.scraping import show_targets

    show_targets(**flags)


@metrics_command.command("rules")
def rules_command() -> None:
    """Print alert rules for Prometheus, as YAML.

    They work with the pages of executors and with the page of the tracker.
    """
    from heronpy.cli.look.scraping import show_rules

    show_rules()


@metrics_command.command("dashboard")
def dashboard_command() -> None:
    """Print a dashboard for Grafana, as JSON to be imported.

    It works with the pages of executors and with the page of the tracker.
    """
    from heronpy.cli.look.scraping import show_dashboard

    show_dashboard()
