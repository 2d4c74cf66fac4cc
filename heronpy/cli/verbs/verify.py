"""`heron verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import cluster_flag, json_flag, together

#: Reliability modes.
MODES = ("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE")
#: Modes of `heron verify run`: a reliability mode, or a batch run.
RUN_MODES = (*MODES, "batch")


#: Flags of the commands that run the built-in topology.
_run_flags = together(
    click.option("--duration", "duration_s", type=click.FloatRange(min=0), default=10.0, show_default=True,
                 metavar="S", help="Minimum duration of the input in seconds."),
    click.option("--baseline", "baseline_s", type=click.FloatRange(min=0), metavar="S",
                 help="Seconds before the first fault.  [default: 3; 60 with --full]"),
    click.option("--rate", type=click.FloatRange(min=1), default=1000.0, show_default=True, metavar="N",
                 help="Tuples per second of each partition."),
    click.option("--keys", type=click.IntRange(min=1), default=1000, show_default=True, help="Number of keys."),
    click.option("--payload", "payload_bytes", type=click.IntRange(min=8), default=100, show_default=True,
                 metavar="BYTES", help="Size of a payload."),
    click.option("--distinct", type=click.IntRange(min=0), default=0, metavar="N",
                 help="Number of different payloads.  [default: all different]"),
    click.option("--work-ms", type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="MS",
                 help="Milliseconds of work per tuple in the bolt."),
    click.option("--containers", type=click.IntRange(min=1), default=2, show_default=True, help="Containers."),
    click.option("--tasks", type=click.IntRange(min=1), default=2, show_default=True,
                 help="Number of tasks of each component, and of partitions of the input."),
    click.option("--times", type=click.IntRange(min=1), metavar="N",
                 help="Number of times that a run injects its fault.  [default: 1; with --full: see"
                      " 'heron verify list']"),
    click.option("--full", is_flag=True, help="Inject faults at full length and number; takes minutes, not seconds."),
    click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
                 help="A setting such as heron.checkpoint.interval_s=1; repeatable."),
    click.option("--seed", type=int, default=1, show_default=True, help="Seed of the input and the faults."),
    cluster_flag("Run in this existing cluster, on this host, instead of a temporary cluster."),
)  # fmt: skip


@click.group("verify")
def verify_command() -> None:
    """Check whether a topology lost, duplicated, miscounted or reordered tuples, with or without faults.

    \b
    heron verify list
    heron verify run --mode ATLEAST_ONCE
    heron verify run --mode ATMOST_ONCE --fault F01 --fault F02 --times 5
    heron verify run --mode batch --fault batch-worker
    heron verify end out/records
    heron verify check out/records
    heron verify report --runs 3 --out fault-report.md
    """


@verify_command.command("list")
def list_command(**flags: Any) -> None:
    """List the faults."""
    from heronpy.cli.measure.verify import list_faults

    list_faults(**flags)


@verify_command.command("run")
@click.option("--mode", type=click.Choice(RUN_MODES), default="ATLEAST_ONCE", show_default=True,
              help="Reliability mode; batch: a batch run, then the stream from its savepoint.")  # fmt: skip
@click.option("--fault", "faults", multiple=True, metavar="NAME", default=("none",),
              help="A fault from 'heron verify list'; F01 means all F01-..., 'all' means all faults; repeatable.",
              shell_complete=complete.faults)  # fmt: skip
@click.option("--together", "as_one", is_flag=True,
              help="Inject the faults one after the other, in as few runs as possible.")  # fmt: skip
@json_flag
@_run_flags
def run_command(**flags: Any) -> int:
    """Run the built-in topology with faults, one run per fault, and check each run."""
    from heronpy.cli.measure.verify import run

    return run(**flags)


@verify_command.command("end")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
def end_command(**flags: Any) -> int:
    """End the input of your running topology if its SeededSource has no count."""
    from heronpy.cli.measure.verify import end

    return end(**flags)


@verify_command.command("check")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("--seed", type=int, help="Seed of the source.  [default of each option: the recorded value]")
@click.option("--partitions", type=click.IntRange(min=1), help="Number of partitions of the input.")
@click.option("--count", type=click.IntRange(min=1), help="Number of tuples in each partition.")
@click.option("--keys", type=click.IntRange(min=1), help="Number of keys.")
@click.option("--payload", "payload_bytes", type=click.IntRange(min=8), metavar="BYTES", help="Size of a payload.")
@click.option("--hot-share", type=click.FloatRange(0, 1), help="Share of the tuples with the hot key.")
@click.option(
    "--zipf",
    type=click.FloatRange(min=0),
    help="Exponent of the Zipf distribution of keys; 0: all keys are equally frequent.",
)
@click.option("--mode", type=click.Choice(MODES), help="Reliability mode whose guarantees are checked.")
@click.option("--loss-max", type=click.IntRange(min=0), default=0, show_default=True,
              help="Number of tuples that may be lost under ATMOST_ONCE.")  # fmt: skip
@click.option("--unordered", is_flag=True, help="The topology does not preserve the order of tuples with the same key.")
@json_flag
def check_command(**flags: Any) -> int:
    """Check the records of your finished topology with SeededSource and VerifiedSink."""
    from heronpy.cli.measure.verify import check

    return check(**flags)


@verify_command.command("report")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Runs per fault and mode.")
@click.option("--mode", "modes", type=click.Choice(RUN_MODES), multiple=True,
              help="Reliability mode; repeatable.  [default: the usual modes of each fault]")  # fmt: skip
@click.option("--fault", "faults", multiple=True, metavar="NAME", default=("all",), help="Fault; repeatable.",
              shell_complete=complete.faults)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Markdown file to write.")
@click.option("--data", type=click.Path(path_type=Path), metavar="FILE",
              help="JSON file for all measurements; runs that it already contains are also reported.")  # fmt: skip
@_run_flags
def report_command(**flags: Any) -> int:
    """Run all faults several times, and write the results as a table.

    The command first prints an estimate of its duration.
    """
    from heronpy.cli.measure.verify import report

    return report(**flags)
