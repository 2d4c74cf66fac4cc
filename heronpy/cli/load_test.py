"""`heron load-test`: runs a profile of load, prints what came of it, writes JSON and an HTML page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heronpy.cli import exits
from heronpy.cli.cleanup import interruptible
from heronpy.cli.output import console, print_table, say
from heronpy.cli.target import TargetType
from heronpy.common.folders import make_output

if TYPE_CHECKING:
    from heronpy.loadtest.profiles import Load

DEFAULT_OUT = "out/load-test"


def _output_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """The flags of everything that measures."""
    for option in reversed(
        (
            click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, metavar="N",
                         help="Run N times; medians and ranges are reported."),
            click.option("--against", type=click.Path(path_type=Path), metavar="FILE",
                         help="Compare with the JSON of an earlier run."),
            click.option("--out", type=click.Path(path_type=Path), default=DEFAULT_OUT, show_default=True,
                         metavar="DIR", help="Folder for the JSON and the HTML page."),
            click.option("--cluster", "target", type=TargetType(), metavar="CLUSTER",
                         help="Run in this cluster of yours, on this host, instead of one made for the test."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


class Profiles(click.Group):
    """`list`, `startup`, and a command per profile."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from heronpy.loadtest import profiles

        return [*profiles.names(), *sorted(self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from heronpy.loadtest import profiles

        own = super().get_command(ctx, cmd_name)
        return own if own is not None or cmd_name not in profiles.names() else _profile_command(profiles.load(cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            hint = exits.nearest(args[0], self.list_commands(ctx), "; run 'heron load-test list' to see all")
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

    A load test runs in a cluster of its own (a temporary HERON_HOME), which is gone afterwards.
    """


@load_test_command.command("list")
def list_command() -> None:
    """List the profiles with their defaults."""
    from heronpy.loadtest import profiles

    rows: list[tuple[object, ...]] = []
    for name in profiles.names():
        load = profiles.load(name)
        rate = f"{load.rate:,.0f}/s" if load.rate else "as fast as it can"
        rows.append((name, load.about, load.mode, load.containers, rate, f"{load.duration_s:g} s"))
    about = "large state of one task: how long it is held up, what is uploaded"
    rows.append(("checkpoint", about, None, None, None, None))
    rows.append(("control-plane", "packing and topology master of 10,000 tasks, simulated", None, 1000, None, None))
    rows.append(("costs", "what metrics, logging, encryption and guarantees cost, as ratios", "all", 2, None, "8 s"))
    rows.append(("startup", "submit, restart and kill; what idle tasks cost", "ATMOST_ONCE", 1, None, None))
    print_table(("profile", "what it does", "mode", "containers", "rate", "duration"), rows, right=("containers",))


@load_test_command.command("startup")
@click.option("--tasks", type=click.IntRange(2, 5000), default=10, show_default=True, help="Idle tasks to measure.")
@click.option("--containers", type=click.IntRange(min=1), help="Containers of the idle tasks (default: one per 50).")
@_output_flags
def startup_command(
    tasks: int, containers: int | None, repeat: int, against: Path | None, out: Path, target: Any
) -> int:
    """Measure submit, restart, kill and idle tasks."""
    from heronpy.loadtest.startup import run_startup

    return _measure(lambda where: run_startup(where, tasks, containers, repeat, say), against, out, target)


@load_test_command.command("checkpoint")
@click.option("--keys", type=click.IntRange(100, 100_000_000), default=1_000_000, show_default=True)
@click.option("--value-bytes", type=click.IntRange(1, 10_000_000), default=8, show_default=True, metavar="BYTES",
              help="Size of a value; 10,000 keys of 100,000 bytes are 1 GB.")  # fmt: skip
@click.option("--store", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Folder to write to (default: that of temporary files).")  # fmt: skip
@_output_flags
def checkpoint_command(
    keys: int, value_bytes: int, store: Path | None, repeat: int, against: Path | None, out: Path, target: Any
) -> int:
    """Measure checkpoints of one task's large state: the pause, full and incremental uploads, the restore."""
    from heronpy.loadtest.checkpoint_state import run_checkpoint_state

    return _measure(lambda where: run_checkpoint_state(keys, value_bytes, store, repeat, say), against, out, target)


@load_test_command.command("control-plane")
@click.option("--containers", type=click.IntRange(1, 100_000), default=1000, show_default=True)
@click.option("--tasks", type=click.IntRange(2, 1_000_000), default=10_000, show_default=True)
@_output_flags
def control_plane_command(
    containers: int, tasks: int, repeat: int, against: Path | None, out: Path, target: Any
) -> int:
    """Pack and register a topology too large for one machine, simulated."""
    from heronpy.loadtest.control_plane import run_control_plane

    return _measure(lambda where: run_control_plane(containers, tasks, repeat, say), against, out, target)


@load_test_command.command("costs")
@click.option("--containers", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--duration", "duration_s", type=click.FloatRange(min=1), default=8.0, show_default=True, metavar="S",
              help="Seconds to emit, for each variant.")  # fmt: skip
@_output_flags
def costs_command(
    containers: int, duration_s: float, repeat: int, against: Path | None, out: Path, target: Any
) -> int:
    """Measure what metrics, logging, encryption and guarantees cost on the word count."""
    from heronpy.loadtest.costs import run_costs

    return _measure(lambda where: run_costs(where, containers, duration_s, repeat, say), against, out, target)


def _profile_command(load: Load) -> click.Command:
    """The command of one profile: its defaults are those of the YAML file."""
    from heronpy.loadtest.profiles import MODES

    def run(
        parameters: tuple[str, ...], repeat: int, against: Path | None, out: Path, target: Any, **changes: Any
    ) -> int:
        from heronpy.loadtest import profiles
        from heronpy.loadtest.run import run_profile

        if changes["duration_s"] is not None and changes["tuples"] is not None:
            raise click.UsageError("give --duration or --tuples, not both")
        wanted = profiles.changed(load, changes, list(parameters))
        return _measure(lambda where: run_profile(where, wanted, repeat, say), against, out, target)

    words = ", ".join(f"{key}={value}" for key, value in load.parameters.items())
    options = [
        click.option("--containers", type=click.IntRange(min=1), help=f"Containers.  [default: {load.containers}]"),
        click.option("--mode", type=click.Choice(MODES), help=f"Guarantee.  [default: {load.mode}]"),
        click.option("--rate", type=click.FloatRange(min=0), metavar="N",
                     help=f"Tuples a second of each spout task; 0 is as fast as it can.  [default: {load.rate:g}]"),
        click.option("--duration", "duration_s", type=click.FloatRange(min=0.1), metavar="S",
                     help=f"Seconds to emit.  [default: {load.duration_s:g}]"),
        click.option("--tuples", type=click.IntRange(min=1), metavar="N", help="Emit so many tuples instead."),
        click.option("--payload", "payload_bytes", type=click.IntRange(min=0), metavar="BYTES",
                     help=f"Size of the payload.  [default: {load.payload_bytes}]"),
        click.option("--warmup", "warmup_s", type=click.FloatRange(min=0), metavar="S",
                     help=f"Seconds that the steady figures leave out.  [default: {load.warmup_s:g}]"),
        click.option("--max-spout-pending", type=click.IntRange(min=1), metavar="N",
                     help=f"Tuples not acked yet, per spout task.  [default: {load.max_spout_pending}]"),
        click.option("--set", "parameters", multiple=True, metavar="KEY=VALUE",
                     help=f"A parameter ({words}) or a setting such as heron.instance.batch_tuples; repeatable."),
    ]  # fmt: skip
    command: Any = _output_flags(run)
    for option in reversed(options):
        command = option(command)
    made: click.Command = click.command(load.name, help=f"{load.about[:1].upper()}{load.about[1:]}.")(command)
    return made


def _measure(measure: Callable[[Any], dict[str, Any]], against: Path | None, out: Path, target: Any) -> int:
    """Run, print, write; 1 when a check failed."""
    from heronpy.loadtest import page, results, tables
    from heronpy.loadtest.cluster import cluster

    before = results.read(against) if against is not None else None
    with interruptible(), cluster(str(target) if target is not None else None) as where:
        result = measure(where)
    tables.print_result(console(), result, before)
    stem = re.sub(r"[^0-9T]", "", result["date"].partition("+")[0])
    path = out / f"{result['profile']}-{stem}.json"
    make_output(out)
    _write(path, result, page.render(result, before))
    if not result["ok"]:
        failed = [check["name"] for run in result["runs"] for check in run["checks"] if not check["ok"]]
        raise exits.Failure(f"load test '{result['profile']}' failed: {', '.join(dict.fromkeys(failed))}; see above")
    return exits.OK


def _write(path: Path, result: dict[str, Any], html: str) -> None:
    import json

    path.write_text(json.dumps(result, indent=1), encoding="utf-8")
    page = path.with_suffix(".html")
    page.write_text(html, encoding="utf-8")
    say(f"  wrote {path} and {page.name}")
