"""`heron verify`: does faults to a topology whose every tuple is known, and judges what arrived."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heronpy.cli import complete, exits
from heronpy.cli.cleanup import interruptible
from heronpy.cli.output import counted, print_json, print_table, say, warn
from heronpy.cli.target import TargetType
from heronpy.common.folders import make_output

if TYPE_CHECKING:
    from heronpy.verify.oracle import Verdict
    from heronpy.verify.run import Run
    from heronpy.verify.scenarios import Scenario
    from heronpy.verify.stream import InputSpec

MODES = ("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE")
_MODE = click.Choice(MODES)


def _run_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """The flags of what runs the built-in topology."""
    for option in reversed(
        (
            click.option("--duration", "duration_s", type=click.FloatRange(min=0), default=10.0, show_default=True,
                         metavar="S", help="Seconds that the input lasts at least."),
            click.option("--baseline", "baseline_s", type=click.FloatRange(min=0), metavar="S",
                         help="Seconds before the first fault.  [default: 3; 60 with --full]"),
            click.option("--rate", type=click.FloatRange(min=1), default=1000.0, show_default=True, metavar="N",
                         help="Tuples a second of each of the partitions."),
            click.option("--keys", type=click.IntRange(min=1), default=1000, show_default=True, help="Different keys."),
            click.option("--payload", "payload_bytes", type=click.IntRange(min=8), default=100, show_default=True,
                         metavar="BYTES", help="Size of a payload."),
            click.option("--distinct", type=click.IntRange(min=0), default=0, metavar="N",
                         help="All tuples together have so many contents.  [default: each its own]"),
            click.option("--work-ms", type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="MS",
                         help="What the bolt works for each tuple."),
            click.option("--containers", type=click.IntRange(min=1), default=2, show_default=True, help="Containers."),
            click.option("--tasks", type=click.IntRange(min=1), default=2, show_default=True,
                         help="Tasks of each component; as many partitions."),
            click.option("--times", type=click.IntRange(min=1), metavar="N",
                         help="Do a fault so often within a run.  [default: 1; with --full as listed]"),
            click.option("--full", is_flag=True, help="Faults of full length and number: minutes instead of seconds."),
            click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
                         help="A setting such as heron.checkpoint.interval_s=1; repeatable."),
            click.option("--seed", type=int, default=1, show_default=True, help="Seed of input and faults."),
            click.option("--cluster", "target", type=TargetType(), metavar="CLUSTER",
                         help="Run in this cluster of yours, on this host, instead of one made for the run."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


@click.group("verify")
def verify_command() -> None:
    """Prove what a topology lost, doubled, miscounted or reordered, with or without faults.

    \b
    heron verify list
    heron verify run --mode ATLEAST_ONCE
    heron verify run --mode ATMOST_ONCE --fault F01 --fault F02 --times 5
    heron verify end out/records
    heron verify check out/records
    heron verify report --runs 3 --out fault-report.md
    """


@verify_command.command("list")
def list_command() -> None:
    """List the faults."""
    from heronpy.verify.scenarios import scenarios

    rows = [(one.name, one.about, one.times, ", ".join(one.modes)) for one in scenarios().values()]
    print_table(("fault", "what it does", "times in full", "modes"), rows)


@verify_command.command("run")
@click.option("--mode", type=_MODE, default="ATLEAST_ONCE", show_default=True, help="Guarantee.")
@click.option("--fault", "faults", multiple=True, metavar="NAME", default=("none",),
              help="A fault of 'heron verify list'; F01 means all F01-..., 'all' every one; repeatable.",
              shell_complete=complete.faults)  # fmt: skip
@click.option("--together", "as_one", is_flag=True, help="Do all faults in one run, one after the other.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_run_flags
def run_command(
    mode: str, faults: tuple[str, ...], as_one: bool, as_json: bool, target: Any, **flags: Any
) -> int:
    """Run the built-in topology with faults, a run per fault, and judge each."""
    from heronpy.loadtest.cluster import cluster
    from heronpy.verify.run import verify_run
    from heronpy.verify.scenarios import find, together
    from heronpy.verify.tables import COLUMNS, failures, row

    chosen = [one for one in find(faults) if mode in one.modes]
    if not chosen:
        raise exits.Failure(f"{', '.join(faults)} is not defined for {mode}; see 'heron verify list'", exits.USAGE)
    if as_one:
        chosen = [together(chosen)]
    documents: list[dict[str, Any]] = []
    with interruptible(), cluster(str(target) if target is not None else None) as where:
        for scenario in chosen:
            wanted = _run_of(mode, scenario, **flags)
            documents.append(verify_run(where, wanted, scenario, len(documents) + 1, warn))
    if as_json:
        print_json(documents)
    else:
        print_table(COLUMNS, [row(one) for one in documents])
    return _end([(one["fault"], failures(one)) for one in documents])


def _run_of(
    mode: str, scenario: Scenario, *, rate: float, keys: int, payload_bytes: int, distinct: int, work_ms: float,
    seed: int, tasks: int, times: int | None, full: bool, baseline_s: float | None, settings: tuple[str, ...],
    **flags: Any,
) -> Run:  # fmt: skip
    """The run that the flags describe."""
    from heronpy.verify.run import Run
    from heronpy.verify.stream import InputSpec

    pairs = dict(_pair(text) for text in settings)
    source = InputSpec(
        seed=seed, partitions=tasks, keys=keys, payload_bytes=payload_bytes, rate=rate, distinct=distinct,
        work_ms=work_ms,
    )  # fmt: skip
    made = Run(
        mode=mode,
        tasks=tasks,
        faults=times or (scenario.times if full else 1),
        short=not full,
        baseline_s=_baseline(baseline_s, full),
        # What stands still for minutes in full is not stuck.
        stall_max_s=900.0 if full else 60.0,
        input=source,
        settings=pairs,
        **flags,
    )
    return made.check()


def _baseline(given: float | None, full: bool) -> float:
    return given if given is not None else (60.0 if full else 3.0)


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise exits.Failure(f"--set {text} must be KEY=VALUE", exits.USAGE)
    return key, value


def _end(found: list[tuple[str, list[str]]]) -> int:
    """Say what was wrong; 1 when something was."""
    wrong = [(name, lines) for name, lines in found if lines]
    for name, lines in wrong:
        for line in lines:
            warn(f"  {name}: {line}")
    if wrong:
        names = ", ".join(name for name, _ in wrong)
        raise exits.Failure(f"{counted(len(wrong), 'run')} did not keep what the mode promises: {names}")
    return exits.OK


@verify_command.command("end")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
def end_command(folder: Path) -> int:
    """End the input of a running topology of your own whose SeededSource was given no count."""
    from heronpy.verify.oracle import read_endless
    from heronpy.verify.records import write_end

    spec = read_endless(folder)
    write_end(folder, spec.partitions, spec.rate)
    say(f"  the input of {folder} ends in a moment")
    return exits.OK


@verify_command.command("check")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("--seed", type=int, help="Seed of the source.  [default: what the source has noted, as for the rest]")
@click.option("--partitions", type=click.IntRange(min=1), help="Partitions of the input.")
@click.option("--count", type=click.IntRange(min=1), help="Tuples of each partition.")
@click.option("--keys", type=click.IntRange(min=1), help="Different keys.")
@click.option("--payload", "payload_bytes", type=click.IntRange(min=8), metavar="BYTES", help="Size of a payload.")
@click.option("--hot-share", type=click.FloatRange(0, 1), help="Share of the tuples with the hot key.")
@click.option("--zipf", type=click.FloatRange(min=0), help="Exponent of the frequency of keys.")
@click.option("--mode", type=_MODE, help="Guarantee to judge by.")
@click.option("--loss-max", type=click.IntRange(min=0), default=0, show_default=True,
              help="Tuples that ATMOST_ONCE may have lost.")  # fmt: skip
@click.option("--unordered", is_flag=True, help="The topology does not keep the order of keys.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_command(
    folder: Path, mode: str | None, loss_max: int, unordered: bool, as_json: bool, **values: Any
) -> int:
    """Judge the records of a finished topology of your own, with SeededSource and VerifiedSink in it."""
    from heronpy.verify.oracle import Limits, read_spec, verify

    spec, noted = _noted(read_spec(folder), values, unordered)
    verdict = verify(folder, spec, mode or noted, Limits(loss_max=loss_max, stall_max_s=float("inf")))
    if as_json:
        print_json(verdict.as_json())
    else:
        _print_verdict(verdict)
    return _end([(str(folder), [f"{check.name}: {check.text}" for check in verdict.checks if not check.ok])])


def _noted(found: tuple[InputSpec, str], values: dict[str, Any], unordered: bool) -> tuple[InputSpec, str]:
    """What the source has noted, with what the command line says instead."""
    from dataclasses import replace

    changes = {name: value for name, value in values.items() if value is not None}
    if unordered:
        changes["ordered"] = False
    return replace(found[0], **changes).check(), found[1]


def _print_verdict(verdict: Verdict) -> None:
    rows = [("records", "", f"{verdict.arrived:,} for {verdict.expected:,} tuples, {verdict.mode}")]
    rows += [(check.name, "ok" if check.ok else "FAILED", check.text) for check in verdict.checks]
    print_table(("number", "", "found"), rows)


@verify_command.command("report")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each fault and mode.")
@click.option("--mode", "modes", type=_MODE, multiple=True,
              help="Guarantee; repeatable.  [default: those that matter for a fault]")  # fmt: skip
@click.option("--fault", "faults", multiple=True, metavar="NAME", default=("all",), help="Fault; repeatable.",
              shell_complete=complete.faults)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Markdown file to write.")
@click.option("--data", type=click.Path(path_type=Path), metavar="FILE",
              help="JSON file for all that was measured; the runs that it holds are reported, too.")  # fmt: skip
@_run_flags
def report_command(
    runs: int, modes: tuple[str, ...], faults: tuple[str, ...], out: Path, data: Path | None, target: Any, **flags: Any
) -> int:
    """Run all faults several times and write what they did as a table.

    Says beforehand how long that takes, about.
    """
    import json

    from heronpy.common.units import format_duration
    from heronpy.loadtest.cluster import cluster
    from heronpy.verify.run import verify_run
    from heronpy.verify.scenarios import find
    from heronpy.verify.tables import failures, markdown

    planned = [(one, mode) for one in find(faults) for mode in modes or one.usual if mode in one.modes]
    baseline = _baseline(flags["baseline_s"], flags["full"])
    total = runs * sum(baseline + one.seconds(flags["full"], flags["times"]) for one, _ in planned)
    say(f"{counted(runs * len(planned), 'run')}, about {format_duration(total)} in all")
    documents: list[dict[str, Any]] = json.loads(data.read_text(encoding="utf-8")) if data and data.exists() else []
    before = len(documents)
    make_output(out.parent)
    seed = flags.pop("seed")
    for scenario, mode in planned:
        for number in range(runs):
            wanted = _run_of(mode, scenario, seed=seed + number, **flags)
            with interruptible(), cluster(str(target) if target is not None else None) as where:
                documents.append(verify_run(where, wanted, scenario, len(documents) + 1, warn))
            say(_progress(documents[-1]))
            # A long report that is cut short leaves what it has.
            out.write_text(markdown(documents), encoding="utf-8")
            if data is not None:
                data.write_text(json.dumps(documents, indent=1), encoding="utf-8")
    say(f"  wrote {out}")
    return _end([(f"{one['fault']} {one['verdict']['mode']}", failures(one)) for one in documents[before:]])


def _progress(document: dict[str, Any]) -> str:
    """One line about a run: the five numbers and the recovery time."""
    from heronpy.verify.tables import COLUMNS, row

    cells = dict(zip(COLUMNS, map(str, row(document)), strict=True))
    return f"{cells.pop('ok'):6} {cells.pop('fault')} {cells.pop('mode')}: " + ", ".join(
        f"{name} {value}" for name, value in cells.items()
    )
