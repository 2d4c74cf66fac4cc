"""`heron load-test`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heronpy.cli import exits
from heronpy.cli.flags.arguments import cluster_flag, together
from heronpy.common.nearest import suggestion
from heronpy.loadtest import profiles
from heronpy.loadtest.batch import SCENES

DEFAULT_OUT = "out/load-test"
DEFAULT_RATES = "100,1000,5000,20000,100000,max"


_output_flags = together(
    click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, metavar="N",
                 help="Run N times and report medians and ranges."),
    click.option("--against", type=click.Path(path_type=Path), metavar="FILE",
                 help="Compare with the JSON of an earlier run."),
    click.option("--out", type=click.Path(path_type=Path), default=DEFAULT_OUT, show_default=True,
                 metavar="DIR", help="Folder for the JSON and the HTML page."),
    cluster_flag("Run in this existing cluster, on this host, instead of a temporary cluster."),
)  # fmt: skip


class Profiles(click.Group):
    """A group with a subcommand for each load profile, in addition to its fixed subcommands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*profiles.names(), *sorted(self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        return own if own is not None or cmd_name not in profiles.names() else _profile_command(profiles.load(cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            hint = suggestion(args[0], self.list_commands(ctx), "; run 'heron load-test list' to see all")
            raise exits.Failure(f"there is no load profile '{args[0]}'{hint}", exits.USAGE)
        return super().resolve_command(ctx, args)


@click.group("load-test", cls=Profiles)
def load_test_command() -> None:
    """Measure this machine with a real topology: rates, latencies, CPU, memory, exact counts.

    \b
    heron load-test list
    heron load-test word_count --mode ATLEAST_ONCE --containers 2 --repeat 5
    heron load-test passthrough --rate 1000 --against out/load-test/passthrough-earlier.json
    heron load-test startup --tasks 200
    heron load-test rates

    A load test runs in a separate cluster (a temporary HERON_HOME), which is removed afterwards.
    """


@load_test_command.command("list")
def list_command(**flags: Any) -> None:
    """List the profiles with their defaults."""
    from heronpy.cli.measure.load_test import list_profiles

    list_profiles(**flags)


@load_test_command.command("startup")
@click.option("--tasks", type=click.IntRange(2, 5000), default=10, show_default=True, help="Number of idle tasks.")
@click.option("--containers", type=click.IntRange(min=1), help="Number of containers (default: one per 50 tasks).")
@_output_flags
def startup_command(**flags: Any) -> int:
    """Measure submit, restart and kill, and the cost of idle tasks."""
    from heronpy.cli.measure.load_test import startup

    return startup(**flags)


@load_test_command.command("batch")
@click.argument("names", nargs=-1, type=click.Choice(SCENES), metavar="[SCENE]...")
@click.option("--bytes", "size", default="1GB", show_default=True, metavar="BYTES", help="Size of the logs.")
@click.option("--preemptions", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N",
              help="Number of attempts that 'preempted' ends with SIGTERM.")  # fmt: skip
@click.option("--exchange", default="2GB", show_default=True, metavar="BYTES",
              help="Bytes that 'exchange' passes between two stages.")  # fmt: skip
@_output_flags
def batch_command(**flags: Any) -> int:
    """Measure batch runs: all scenes, or only the named ones.

    The scenes are cost, small, kills, failed, preempted, exchange and history. The command fails if a result is not
    exact or a goal is missed. --bytes 48MB --preemptions 10 --exchange 200MB takes a few minutes.
    """
    from heronpy.cli.measure.load_test import batch

    return batch(**flags)


@load_test_command.command("batch_handover")
@click.option("--keys", type=click.IntRange(1000, 100_000_000), default=1_000_000, show_default=True,
              help="Number of keys in the state.")  # fmt: skip
@_output_flags
def batch_handover_command(**flags: Any) -> int:
    """Measure the time from a batch's end to a stream's first tuple, and what share of the run the savepoint takes."""
    from heronpy.cli.measure.load_test import batch_handover

    return batch_handover(**flags)


@load_test_command.command("batch_straggler")
@click.option("--workers", type=click.IntRange(6, 100), default=8, show_default=True,
              help="Number of workers, each in its own container.")  # fmt: skip
@_output_flags
def batch_straggler_command(**flags: Any) -> int:
    """Measure batch runs with a slow process or a heavy unit."""
    from heronpy.cli.measure.load_test import batch_straggler

    return batch_straggler(**flags)


@load_test_command.command("checkpoint")
@click.option("--keys", type=click.IntRange(100, 100_000_000), default=1_000_000, show_default=True,
              help="Number of keys in the state.")  # fmt: skip
@click.option("--value-bytes", type=click.IntRange(1, 10_000_000), default=8, show_default=True, metavar="BYTES",
              help="Size of a value in bytes; 10,000 keys with values of 100,000 bytes make 1 GB.")  # fmt: skip
@click.option("--store", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Folder to write to (default: the temporary folder).")  # fmt: skip
@_output_flags
def checkpoint_command(**flags: Any) -> int:
    """Measure checkpoints of one task with a large state: pause, full and incremental uploads, restore."""
    from heronpy.cli.measure.load_test import checkpoint

    return checkpoint(**flags)


@load_test_command.command("control-plane")
@click.option("--containers", type=click.IntRange(1, 100_000), default=1000, show_default=True,
              help="Number of containers to register.")  # fmt: skip
@click.option("--tasks", type=click.IntRange(2, 1_000_000), default=10_000, show_default=True,
              help="Number of tasks in all containers together.")  # fmt: skip
@_output_flags
def control_plane_command(**flags: Any) -> int:
    """Measure packing and registration of a simulated topology too large for one machine."""
    from heronpy.cli.measure.load_test import control_plane

    return control_plane(**flags)


@load_test_command.command("costs")
@click.option("--containers", type=click.IntRange(min=1), default=2, show_default=True,
              help="Number of containers of the word count.")  # fmt: skip
@click.option("--duration", "duration_s", type=click.FloatRange(min=1), default=8.0, show_default=True, metavar="S",
              help="Seconds for which each variant emits tuples.")  # fmt: skip
@_output_flags
def costs_command(**flags: Any) -> int:
    """Measure the costs of metrics, logging, encryption and guarantees with the word count."""
    from heronpy.cli.measure.load_test import costs

    return costs(**flags)


@load_test_command.command("jobs")
@click.option("--changed", type=click.IntRange(1, 100_000), default=1000, show_default=True,
              help="Number of changed jobs in one round of the syncer.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, 100_000), default=10_000, show_default=True,
              help="Number of unchanged jobs in one round of the syncer.")  # fmt: skip
@click.option("--idle", type=click.IntRange(1, 1000), default=100, show_default=True,
              help="Number of idle jobs of the measured manager.")  # fmt: skip
@click.option("--slots", type=click.IntRange(20, 2000), default=2000, show_default=True,
              help="Number of slots of the simulated pool.")  # fmt: skip
@click.option("--scenarios", type=click.IntRange(1, 100_000), default=200, show_default=True,
              help="Number of random scenarios for the scaler.")  # fmt: skip
@click.option(
    "--times",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Number of changes of each kind to a running job.",
)
@click.option(
    "--pooled",
    type=click.IntRange(3, 1000),
    default=100,
    show_default=True,
    help="Number of topologies to start in a pool; the same number is started with submit.",
)
@click.option("--days", type=click.IntRange(1, 14), default=3, show_default=True,
              help="Number of days for which to simulate the scaler.")  # fmt: skip
@_output_flags
def jobs_command(**flags: Any) -> int:
    """Measure the costs of jobs, pools and the scaler, and the scaler's wrong decisions.

    The goals in the output apply only to the default sizes.
    """
    from heronpy.cli.measure.load_test import jobs

    return jobs(**flags)


@load_test_command.command("rates")
@click.option(
    "--rates",
    "asked",
    default=DEFAULT_RATES,
    show_default=True,
    metavar="N,N,...",
    help="Spout rates to measure one after the other, in tuples per second; max: as fast as possible.",
)
@click.option(
    "--mode",
    "modes",
    type=click.Choice(profiles.MODES),
    multiple=True,
    default=profiles.MODES,
    show_default=True,
    help="Reliability mode; repeatable.",
)
@click.option(
    "--seconds",
    "step_s",
    type=click.FloatRange(min=1),
    default=3.0,
    show_default=True,
    metavar="S",
    help="Seconds to measure at each rate.",
)
@click.option(
    "--set",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="A parameter of 'passthrough' or a setting such as heron.instance.spout_idle_min_us; repeatable.",
)
@_output_flags
def rates_command(**flags: Any) -> int:
    """Measure the cost of a tuple at each rate: cores, frames, context switches, system calls, latency."""
    from heronpy.cli.measure.load_test import rates

    return rates(**flags)  # fmt: skip


@load_test_command.command("units")
@click.argument("names", nargs=-1, metavar="[PROFILE]...")
@click.option(
    "--bytes", "size", default="64MB", show_default=True, metavar="BYTES", help="Size of the logs of 'throughput'."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.5, max=3600),
    default=15.0,
    show_default=True,
    metavar="S",
    help="Duration of 'latency', 'straggler', 'ledger', 'quiet' and 'recovery', which kills a process every 2.5 s.",
)
@click.option(
    "--files",
    type=click.IntRange(1, 100_000),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Number of files in 'quiet'.",
)
@click.option(
    "--lines",
    type=click.IntRange(10, 100_000_000),
    metavar="N",
    default=1_000_000,
    show_default=True,
    help="Number of lines in 'bad'.",
)
@click.option(
    "--units",
    "number",
    type=click.IntRange(11, 1_000_000),
    metavar="N",
    default=10_000,
    show_default=True,
    help="Number of units in 'rebuild'.",
)
@_output_flags
def units_command(**flags: Any) -> int:
    """Measure work units: all profiles, or only the named ones.

    The profiles are throughput, latency, straggler, recovery, ledger, quiet, bad and rebuild.

    Each profile compares its rows with the written lines, and fails if they differ. The output also shows the goals.
    """
    from heronpy.cli.measure.load_test import units

    return units(**flags)


def _profile_command(load: profiles.Load) -> click.Command:
    """Return the command of one profile, with the defaults of its YAML file."""

    def run(**flags: Any) -> int:
        if flags["duration_s"] is not None and flags["tuples"] is not None:
            raise click.UsageError("give --duration or --tuples, not both")
        from heronpy.cli.measure.load_test import profile

        return profile(load, **flags)

    words = ", ".join(f"{key}={value}" for key, value in load.parameters.items())
    options = (
        click.option("--containers", type=click.IntRange(min=1), help=f"Containers.  [default: {load.containers}]"),
        click.option("--mode", type=click.Choice(profiles.MODES), help=f"Reliability mode.  [default: {load.mode}]"),
        click.option("--rate", type=click.FloatRange(min=0), metavar="N",
                     help=f"Tuples per second of each spout task; 0: as fast as possible.  [default: {load.rate:g}]"),
        click.option("--duration", "duration_s", type=click.FloatRange(min=0.1), metavar="S",
                     help=f"Seconds for which the spouts emit.  [default: {load.duration_s:g}]"),
        click.option("--tuples", type=click.IntRange(min=1), metavar="N", help="Tuples to emit, instead of a time."),
        click.option("--payload", "payload_bytes", type=click.IntRange(min=0), metavar="BYTES",
                     help=f"Size of the payload.  [default: {load.payload_bytes}]"),
        click.option("--warmup", "warmup_s", type=click.FloatRange(min=0), metavar="S",
                     help=f"Warm-up in seconds, left out of the steady figures.  [default: {load.warmup_s:g}]"),
        click.option("--max-spout-pending", type=click.IntRange(min=1), metavar="N",
                     help=f"Unacked tuples per spout task.  [default: {load.max_spout_pending}]"),
        click.option("--set", "parameters", multiple=True, metavar="KEY=VALUE",
                     help=f"A parameter ({words}) or a setting such as heron.instance.batch_tuples; repeatable."),
    )  # fmt: skip
    help_text = f"{load.about[:1].upper()}{load.about[1:]}."
    made: click.Command = click.command(load.name, help=help_text)(together(*options)(_output_flags(run)))
    return made
