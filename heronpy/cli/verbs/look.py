"""The read-only verbs: their flags and help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import (
    FORMATS,
    TargetType,
    common_flags,
    component_flags,
    json_flag,
    optional_topology_argument,
    run_argument,
    topology_argument,
)
from heronpy.cli.flags.reading import Reading, reading, reading_target

#: Names of EventKind in control.proto for the filter of `heron events`.
KINDS = ("life", "master", "restart", "oom", "silent", "backpressure", "checkpoint", "restore", "update")

_task = click.option("--task", type=click.IntRange(min=1), metavar="ID", help="Show only the task with this id.",
                     shell_complete=complete.tasks)  # fmt: skip


@reading("list", topology=None)
def list_command(**flags: Any) -> None:
    """List the topologies of a cluster, a role or an environ."""
    from heronpy.cli.look.topologies import list_topologies

    list_topologies(**flags)


@reading("status", topology=optional_topology_argument)
def status_command(**flags: Any) -> None:
    """Show the state of a topology: tasks that are down, what slows it down, and restarts.

    TOPOLOGY may be omitted when only one runs. Exit code 1: the topology has failed, or none of its processes runs.
    """
    from heronpy.cli.look.status import show_status

    show_status(**flags)


@reading("plan")
@click.argument("which", type=click.Choice(["logical", "packing", "physical"]), default="logical")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--mode", type=click.Choice(("stream", "batch")), default="stream", show_default=True,
              help="batch: the stages of a batch run, and the exchanges between them.")  # fmt: skip
def plan_command(mode: str, **flags: Any) -> None:
    """Show the logical plan (default), the packing plan or the physical plan.

    With --mode batch, show the stages that the running topology has as a batch run; if it is not running, show the
    stages of its newest batch run. For a program that has never run, use: heron submit --mode batch --dry-run
    """
    if mode == "batch":
        from heronpy.cli.look.batch_runs import show_stages

        show_stages(flags["target"], flags["topology"], flags["as_json"], flags["common"])
        return
    from heronpy.cli.render.plans import show_plan

    show_plan(**flags)


@reading("progress", topology=run_argument)
def progress_command(**flags: Any) -> None:
    """Show the progress of the newest batch run of a topology.

    TOPOLOGY may also be the name of a run, such as visits/3. The remaining time is a lower bound until the units of the
    last stage are known.
    """
    from heronpy.cli.look.batch_runs import show_progress

    show_progress(**flags)


@reading("doctor")
@click.option("--window", "window_s", type=click.FloatRange(min=10.0, max=3600.0), default=300.0, show_default=True,
              metavar="SECONDS", help="Measure rates and shares over this period.")  # fmt: skip
@click.option("-w", "--watch", is_flag=True, help="Repeat every five seconds, until Ctrl-C.")
@click.option("--evidence", is_flag=False, flag_value="", metavar="[FILE]",
              help="Also pack signals, events, status, settings and the last log lines into a new file, without"
              " passwords and keys. Without FILE, the file is created in the current folder and its name is printed."
              " With --watch, each measurement is appended.")  # fmt: skip
def doctor_command(**flags: Any) -> None:
    """Find what slows a topology down, with evidence and the next step.

    The most urgent finding comes first. Exit code 0: nothing needs action; 1: a finding needs action. For a topology
    that has ended, the diagnosis uses its last minutes and events.
    """
    from heronpy.cli.look.doctor import examine

    examine(**flags)


@reading("top")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds between two snapshots.",
)
@click.option("-n", "--iterations", type=click.IntRange(min=1), metavar="N", help="Stop after N snapshots.")
@click.option("--once", is_flag=True, help="Print one snapshot; the same as -n 1.")
def top_command(once: bool, **flags: Any) -> None:
    """Watch a topology: its bottleneck, components and tasks, rates, queues, busy time.

    On a terminal: Enter opens the tasks of a component and the figures of a task, Esc goes back, s sorts, / filters,
    ? shows all keys, q quits. With -n or --once, or without a terminal, snapshots of the components with their counts
    are printed one after the other; with --json, one line of JSON each.
    """
    from heronpy.cli.look.top import watch

    if once:
        flags["iterations"] = 1
    watch(**flags)


@reading("logs", json=False)
@click.argument("what", nargs=-1, metavar="[INSTANCE|PROCESS|COMPONENT]...",
                shell_complete=complete.logged)  # fmt: skip
@click.option(
    "-f", "--follow", is_flag=True, help="Keep printing new records, until the topology ends or Ctrl-C is pressed."
)
@click.option("--since", metavar="TIME", help="Show only newer records: an age such as 5m, or an ISO time.")
@click.option("--level", metavar="LEVEL", help="Show only this level and above: DEBUG, INFO, WARNING, ERROR, CRITICAL.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show only the last N records (with --follow: 10 unless --since is given).",
)
@click.option("--find", metavar="TEXT", help="Show only lines that contain TEXT literally, newest first; stop after"
              " 1,000 hits or 10 s. With --follow: show new records that contain TEXT.")  # fmt: skip
@click.option("-i", "--ignore-case", is_flag=True, help="With --find: ignore the case of A to Z.")
@click.option("--context", type=click.IntRange(0, 50), default=0, metavar="N",
              help="With --find: also print N lines before and after each hit.")  # fmt: skip
@click.option("--earlier", is_flag=True, help="Also show the logs of earlier topologies of the same name, separated by"
              " a line of ----.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per record.")
def logs_command(**flags: Any) -> None:
    """Show the logs of a topology, or of the named instances, processes and components.

    Logs of earlier topologies of the same name are shown only with --earlier or --since.

    \b
    heron logs local word_count                        everything
    heron logs local word_count count --level ERROR    tasks of the component 'count'
    heron logs local word_count container_1_count_2 -f
    heron logs local word_count tmaster scheduler --since 5m
    heron logs local word_count --find ValueError --context 3
    """
    from heronpy.cli.look.logs import show_logs

    show_logs(**flags)


@reading("events")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Show only this event kind; repeatable.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N",
              help="Show only the newest N events.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events, until Ctrl-C.")
@click.option("--start", is_flag=True, help="Show how long each phase of the start took, instead of events.")
def events_command(**flags: Any) -> None:
    """Show the events of a topology: restarts with their reasons, backpressure, checkpoints, restores, updates,
    takeovers.

    The newest event comes last. Repeated events within 2.5 minutes share one line with a count. The topology master
    keeps 1,000 events, and hands the newest 200 to its successor.
    """
    from heronpy.cli.look.events import show_events

    show_events(**flags)


@reading("exceptions")
@component_flags("Show only this component.")
@_task
@click.option("--summary", is_flag=True, help="Print a table without tracebacks.")
@click.option("--all", "everything", is_flag=True, help="List the tasks separately, with all tracebacks.")
def exceptions_command(**flags: Any) -> None:
    """Show the exceptions that user code raised, grouped by type and line, each with one full traceback."""
    from heronpy.cli.look.events import show_exceptions

    show_exceptions(**flags)


@reading("trace")
@click.option("--seconds", type=click.FloatRange(1, 3600), default=10.0, show_default=True, metavar="N",
              help="Seconds to trace.")  # fmt: skip
@click.option("--rate", "per_s", type=click.FloatRange(0, 1000), default=100.0, show_default=True, metavar="N",
              help="Tuples per second that all spouts together trace; 0: heron.trace.per_s.")  # fmt: skip
@click.option("--min-ms", type=click.FloatRange(0), default=0.0, metavar="MS",
              help="Show only tuples that took at least this many milliseconds.")  # fmt: skip
@click.option("--otlp", metavar="URL", help="Also send the traces to an OpenTelemetry collector, as JSON over HTTP, for"
              " example http://127.0.0.1:4318.")  # fmt: skip
def trace_command(**flags: Any) -> None:
    """Trace tuples through a topology, and show where their time goes: median and 99th percentile of each hop, and the
    slowest tuple call by call.

    \b
    batch     in the sender's buffer, until the frame is full or the linger time is over
    queue     waiting for credit: in the sender's out-queue and in stream managers
    wire      from a process to the next stream manager
    in-queue  from the last stream manager until the task's call begins
    process   in the call to process
    ack       from the last call to the spout's ack
    """
    from heronpy.cli.look.trace import show_traces

    show_traces(**flags)


@reading("slow")
@component_flags("Show only this component.")
@_task
def slow_command(**flags: Any) -> None:
    """Show the tuples whose process() took longer than heron.instance.slow_ms, with their values, slowest first.

    Each task keeps the 16 slowest of the last hour; the metric __slow-tuples counts all of them.
    """
    from heronpy.cli.look.trace import show_slow

    show_slow(**flags)


@reading("batches")
@click.option("--retry", is_flag=True, help="Give all failed batches to Spark again; the topology must be running.")
def batches_command(**flags: Any) -> None:
    """Show the Spark batches that failed under EFFECTIVELY_ONCE, with the error; --retry tries them again.

    A batch fails when your function has raised an exception in the first attempt and in heron.spark.max_retries
    retries. The rows of a failed batch are kept. A full disk or an unreachable store does not count as an attempt. In
    other modes no rows are kept: the tuples of a failed batch fail at their spout.
    """
    from heronpy.cli.look.batches import show_batches

    show_batches(**flags)


@reading("dead-letters")
@component_flags("Show only tuples that this component has abandoned.")
@click.option("-n", "--last", type=click.IntRange(min=1), metavar="N", help="Show only the last N dead letters.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new dead letters, until Ctrl-C.")
def dead_letters_command(**flags: Any) -> None:
    """Show the tuples that were abandoned, with payload, traceback, task and attempts.

    A tuple is abandoned after heron.instance.poison_tries attempts that raised an exception, hung or crashed the task.
    Under ATMOST_ONCE, nothing is retried, so a tuple is abandoned the first time. The command also works after the
    topology was killed. --json prints one array; --json --follow prints one object per line.
    """
    from heronpy.cli.look.dead_letters import show_letters

    show_letters(**flags)


@reading("stacks")
@click.argument("what", metavar="TASK|PROCESS", shell_complete=complete.instances)
def stacks_command(**flags: Any) -> None:
    """Show what each thread of a running task or process is doing, the innermost call first.

    TASK is a task's number, its instance id, its name on the pages (count-2), or a component with only one task;
    PROCESS is a name such as stmgr-1, tmaster or executor-1. The process keeps running. This also works while user
    code hangs or runs in a C extension. The stacks are also written to the process's log.
    """
    from heronpy.cli.look.process import show_stacks

    show_stacks(**flags)


@reading("heap")
@click.argument("what", metavar="TASK|PROCESS", shell_complete=complete.instances)
@click.option("--top", type=click.IntRange(1, 500), default=30, show_default=True, metavar="N",
              help="Show the N types with the most bytes.")  # fmt: skip
@click.option("--limit", "limit_s", type=click.FloatRange(0.05, 5.0), default=2.0, show_default=True, metavar="S",
              help="Stop the process for about S seconds at most; a large heap is estimated.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask before the process is stopped.")
def heap_command(**flags: Any) -> None:
    """Show the objects of a running task or process by type, with number and size but without values.

    The process stops during the count, for about --limit seconds at most; you must confirm this. TASK is a task's
    number, its instance id, its name on the pages (count-2), or a component with only one task; PROCESS is a name
    such as stmgr-1 or tmaster. Memory of C extensions and memory shared with sibling processes are not listed.
    """
    from heronpy.cli.look.process import show_heap

    show_heap(**flags)


@reading("profile", json=False)
@click.argument("what", metavar="TASK|PROCESS", shell_complete=complete.instances)
@click.option("--duration", "duration_s", type=click.IntRange(1, 300), default=5, show_default=True, metavar="S",
              help="Seconds to sample.")  # fmt: skip
@click.option("--rate", type=click.IntRange(1, 1000), default=200, show_default=True, help="Samples per second.")
@click.option(
    "--format", "form", type=click.Choice(["flamegraph", "speedscope", "both"]), default="both", show_default=True
)
@click.option("--native", is_flag=True, help="Also show frames of C extensions; needs py-spy.")
@click.option("--idle", is_flag=True, help="Also count waiting threads.")
@click.option("--out", type=click.Path(path_type=Path), default=".", metavar="DIR", help="Folder for the files.")
def profile_command(**flags: Any) -> None:
    """Record where a running task spends its time: a flame graph (SVG) and a file for speedscope.app.

    TASK is a task's number, its instance id, its name on the pages (count-2), or a component with only one task;
    PROCESS is a name such as stmgr-1, tmaster or executor-1. The process may run on any host. Its executor samples it
    with py-spy, if py-spy is installed and may attach; otherwise the process samples itself.
    """
    from heronpy.cli.look.process import profile

    profile(**flags)


class Metrics(Reading, click.Group):
    """A group that shows the metrics of a topology, unless the first word is the name of a subcommand."""

    allow_extra_args = False
    allow_interspersed_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.args = list(args)
            return ctx.args
        # Not parsed as a group, because words left over during shell completion are not subcommands.
        return click.Command.parse_args(self, ctx, self._with_cluster(ctx, args))

    def invoke(self, ctx: click.Context) -> Any:
        if not ctx.args:
            return click.Command.invoke(self, ctx)
        name, *rest = ctx.args
        with self.commands[name].make_context(name, rest, parent=ctx) as chosen:
            return chosen.command.invoke(chosen)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        # click also passes the context of a subcommand, to get the parameters before it; there are none.
        return super().get_params(ctx) if ctx.command is self else []

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return click.Command.collect_usage_pieces(self, ctx)


@click.group("metrics", cls=Metrics, invoke_without_command=True)
@reading_target
@topology_argument
@component_flags("Show only this component.")
@click.option("--instance", "instances", multiple=True, metavar="ID",
              help="Show only this instance or process; repeatable.", shell_complete=complete.instances)  # fmt: skip
@click.option("--name", "names", multiple=True, metavar="METRIC",
              help="Show only this metric or NAME/LABEL; repeatable.", shell_complete=complete.metrics)  # fmt: skip
@click.option("--interval", "interval", metavar="TIME", help="Count only this recent period, such as 5m.")
@click.option("--by-instance", is_flag=True, help="Print a row per instance instead of per component.")
@click.option("--all", "everything", is_flag=True, help="Print every metric of every process, one row each.")
@json_flag
@common_flags
def metrics_command(**flags: Any) -> None:
    """Show metrics, summed by component or by instance.

    Without --all, --name or --instance, show the main figures: counts, latency, queue, CPU and memory. Latency is
    the time to complete a tuple tree for a spout with acks, otherwise the time of one call to process or next_tuple.
    Counters and distributions are totals since the start unless --interval is given. Counts of a killed process after
    its last report are missing; the output names the affected components. --json has every metric.

    With targets, rules or dashboard as the first word, print configuration for Prometheus or Grafana. To see the
    metrics of a topology with such a name, name the cluster: heron metrics local rules
    """
    from heronpy.cli.look.metrics import show_metrics

    show_metrics(**flags)


@metrics_command.command("targets")
@click.argument("targets", nargs=-1, type=TargetType(), metavar="[CLUSTER[/ROLE[/ENVIRON]]]...",
                shell_complete=complete.clusters)  # fmt: skip
@click.option("--tracker", is_flag=True, help="Print the tracker's page instead: one target with sums by component.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Replace this file atomically, instead of printing.")  # fmt: skip
@common_flags
def targets_command(**flags: Any) -> None:
    """Print the metrics addresses of all running topologies, for Prometheus's file_sd_configs.

    There is one target per container, with all metrics of its tasks. Print the targets again when topologies
    start and end, for example with cron. A topology that does not answer is left out with a warning.
    """
    from heronpy.cli.look.scraping import show_targets

    show_targets(**flags)


@metrics_command.command("rules")
def rules_command() -> None:
    """Print alert rules for Prometheus, as YAML.

    The rules work with the pages of executors and with the page of the tracker.
    """
    from heronpy.cli.look.scraping import show_rules

    show_rules()


@metrics_command.command("dashboard")
def dashboard_command() -> None:
    """Print a dashboard for Grafana, as JSON to be imported.

    The dashboard works with the pages of executors and with the page of the tracker.
    """
    from heronpy.cli.look.scraping import show_dashboard

    show_dashboard()
