"""`heron load-test`: runs a load profile, prints the result, writes JSON and an HTML page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from heronpy.cli import exits
from heronpy.cli.output import console, print_table, say, table
from heronpy.clusters.target import Target
from heronpy.common.errors import ConfigError
from heronpy.common.folders import make_output
from heronpy.common.units import parse_bytes
from heronpy.loadtest import page, profiles, results, scenes
from heronpy.loadtest import rates as rate_steps
from heronpy.loadtest.batch.run import run_batch, run_handover, run_straggler
from heronpy.loadtest.checkpoint_state import run_checkpoint_state
from heronpy.loadtest.cluster import cluster
from heronpy.loadtest.control_plane import run_control_plane
from heronpy.loadtest.jobs.run import Sizes, run_jobs
from heronpy.loadtest.profiles import Load
from heronpy.loadtest.rates import rates_of, run_costs, run_rates
from heronpy.loadtest.run import run_profile
from heronpy.loadtest.startup import run_startup
from heronpy.loadtest.units.plan import Sizes as UnitSizes
from heronpy.loadtest.units.plan import chosen
from heronpy.loadtest.units.run import run_units
from heronpy.procs.interrupts import interruptible


def list_profiles() -> None:
    """Print the profiles with their defaults."""
    rows: list[tuple[object, ...]] = []
    for name in profiles.names():
        load = profiles.load(name)
        rate = f"{load.rate:,.0f}/s" if load.rate else "at full speed"
        rows.append((name, load.about, load.mode, load.containers, rate, f"{load.duration_s:g} s"))
    rows += [
        ("batch", "batch runs: CPU compared with Spark, kills, failures, small input, history", None, 2, None, None),
        ("batch_handover", "batch runs: handover to a stream by a savepoint", None, 2, None, None),
        ("batch_straggler", "batch runs with a slow process or a heavy unit", None, 8, None, None),
    ]
    about = "checkpoints of one task with large state: pauses and uploaded bytes"
    rows.append(("checkpoint", about, None, None, None, None))
    rows.append(("control-plane", "packing and topology master for 10,000 simulated tasks", None, 1000, None, None))
    rows.append(("costs", "CPU cost of metrics, logging, encryption and guarantees, as ratios", "all", 2, None, "8 s"))
    rows.append(("jobs", "jobs, pools and the scaler, mostly simulated", None, None, None, None))
    rows.append(("rates", "cost of a tuple at each rate: cores, frames, wake-ups, latency", "several", 1, None, None))
    rows.append(("startup", "submit, restart and kill; cost of idle tasks", "ATMOST_ONCE", 1, None, None))
    rows.append(
        ("units", "work units: CPU per GB, latency, ledger, quiet files, bad lines, rebuild", None, 1, None, None)
    )
    print_table(("profile", "description", "mode", "containers", "rate", "duration"), rows, right=("containers",))


# `output` has the flags that all profiles share: --repeat, --against, --out and --cluster.
def startup(tasks: int, containers: int | None, **output: Any) -> int:
    """Measure submit, restart and kill, and the cost of idle tasks."""
    return _measure(lambda where, repeat: run_startup(where, tasks, containers, repeat, say), **output)


def checkpoint(keys: int, value_bytes: int, store: Path | None, **output: Any) -> int:
    """Measure checkpoints of one task's large state."""
    return _measure(lambda where, repeat: run_checkpoint_state(keys, value_bytes, store, repeat, say), **output)


def control_plane(containers: int, tasks: int, **output: Any) -> int:
    """Measure a simulated topology that is too large for one machine."""
    return _measure(lambda where, repeat: run_control_plane(containers, tasks, repeat, say), **output)


def costs(containers: int, duration_s: float, **output: Any) -> int:
    """Measure the costs of metrics, logging, encryption and guarantees."""
    return _measure(lambda where, repeat: run_costs(where, containers, duration_s, repeat, say), **output)


def jobs(repeat: int, against: Path | None, out: Path, target: Target, **sizes: int) -> int:
    """Measure the costs of jobs, pools and the scaler."""
    return _measure(lambda where, times: run_jobs(where, Sizes(**sizes), times, say), repeat, against, out, target)


def rates(asked: str, modes: tuple[str, ...], step_s: float, parameters: tuple[str, ...], **output: Any) -> int:
    """Measure the cost of a tuple at each rate."""
    wanted = rates_of(asked)
    chosen = tuple(dict.fromkeys(modes))
    return _measure(lambda where, repeat: run_rates(where, wanted, chosen, step_s, parameters, repeat, say), **output)


def batch(names: tuple[str, ...], size: str, preemptions: int, exchange: str, **output: Any) -> int:
    """Measure the cost of batch runs, with and without failures."""
    sizes = _bytes(size), preemptions, _bytes(exchange, "--exchange")
    return _measure(lambda where, repeat: run_batch(where, names, *sizes, repeat, say), **output)


def batch_handover(keys: int, **output: Any) -> int:
    """Measure the handover from a batch run to a stream."""
    return _measure(lambda where, repeat: run_handover(where, keys, repeat, say), **output)


def batch_straggler(workers: int, **output: Any) -> int:
    """Measure batch runs with a slow process or a heavy unit."""
    return _measure(lambda where, repeat: run_straggler(where, workers, repeat, say), **output)


def _bytes(text: str, flag: str = "--bytes") -> int:
    """Parse a positive number of bytes."""
    if (size := parse_bytes(text)) < 1:
        raise ConfigError(f"{flag} is {text!r}; give a positive amount, such as 64MB")
    return size


def units(names: tuple[str, ...], size: str, seconds: float, files: int, lines: int, number: int, **output: Any) -> int:
    """Measure the cost of work units, the delay of their rows, and whether the rows are exact."""
    wanted = chosen(names)
    sizes = UnitSizes(_bytes(size), seconds, files, lines, number)
    return _measure(lambda where, repeat: run_units(where, wanted, sizes, repeat, say), **output)


def profile(
    load: Load,
    parameters: tuple[str, ...],
    repeat: int,
    against: Path | None,
    out: Path,
    target: Target,
    **changes: Any,
) -> int:
    """Run a profile with the flags of the command line."""
    wanted = profiles.changed(load, changes, list(parameters))
    return _measure(lambda where, times: run_profile(where, wanted, times, say), repeat, against, out, target)


def _measure(
    measure: Callable[[Any, int], dict[str, Any]], repeat: int, against: Path | None, out: Path, target: Target
) -> int:
    """Run a measurement, print its result and write it to files. Raises a Failure if a check has failed."""
    before = results.read(against) if against is not None else None
    with interruptible(), cluster(str(target) if target is not None else None) as where:
        result = measure(where, repeat)
    print_result(console(), result, before)
    stem = re.sub(r"[^0-9T]", "", result["date"].partition("+")[0])
    path = out / f"{result['profile']}-{stem}.json"
    make_output(out)
    path.write_text(json.dumps(result, indent=1), encoding="utf-8")
    html = path.with_suffix(".html")
    html.write_text(page.render(result, before), encoding="utf-8")
    say(f"  wrote {path} and {html.name}")
    if not result["ok"]:
        failed = [check["name"] for run in result["runs"] for check in run["checks"] if not check["ok"]]
        raise exits.Failure(f"load test '{result['profile']}' failed: {', '.join(dict.fromkeys(failed))}; see above")
    return exits.OK


_STYLES = {"better": "green", "worse": "red", "same": "dim"}


def print_result(to: Console, result: dict[str, Any], before: dict[str, Any] | None = None) -> None:
    """Print a result document, and its ratios to an earlier result if there is one."""
    host, last = result["host"], result["runs"][-1]
    shown_options = ", ".join(
        f"{key} {json.dumps(value) if isinstance(value, dict) else value}"
        for key, value in result["options"].items()
        if value not in ({}, "", 0, 0.0, None)
    )
    about = f"heronpy {result['heronpy']}, Python {result['python']}, {host['cores']} cores, {result['date']}"
    to.print(Text(f"{result['profile']}: {result['about']}", style="bold"))
    to.print(Text(f"{about}\n{shown_options}", style="dim"))
    if "steps" in last:
        # Without padding the table fits 100 columns.
        _print_table(to, *rate_steps.table_of(result), tight=True)
        for note in rate_steps.notes_of(result):
            to.print(Text(f"  {note}", style="dim"))
    elif "scenes" in last:
        _print_table(to, *scenes.table_of(result), tight=True)
    else:
        _print_table(to, *results.table_of_figures(result))
    if "figures" in last:
        _print_table(to, *results.table_of_roles(last))
    for check in [check for run in result["runs"] for check in run["checks"]]:
        mark = Text("ok    " if check["ok"] else "FAILED", style="green" if check["ok"] else "bold red")
        to.print(Text.assemble("  ", mark, f"  {check['name']}: {check['text']}"))
    for goal in result.get("goals", ()):
        mark = Text("met   ", style="green") if goal["met"] else Text("missed", style="yellow")
        to.print(Text.assemble("  ", mark, f"  {goal['text']}"))
    noise = result["calibration"]
    loop = f"the calibration loop needs {noise['loop_s_per_million']:.4f} CPU-s per million rounds"
    to.print(Text(f"  {noise['text']}; {loop}", style="yellow" if noise["noisy"] else "dim"))
    if before is not None:
        _print_comparison(to, result, before)


def _print_table(to: Console, head: list[str], rows: list[list[Any]], tight: bool = False) -> None:
    grid = table(head, rows, right=head[1:])
    if tight:
        grid.padding = (0, 0, 0, 0)
    to.print(grid)


def _print_comparison(to: Console, now: dict[str, Any], before: dict[str, Any]) -> None:
    """Print the ratios to an earlier result."""
    changes = results.compare(now, before)
    for text in results.different_options(now, before):
        to.print(Text(f"  options differ: {text}", style="yellow"))
    rows = [
        [
            change.figure.label,
            results.shown(change.figure.name, change.before),
            results.shown(change.figure.name, change.now),
            "-" if change.ratio is None else f"{change.ratio:.3f}",
            Text(change.verdict, style=_STYLES[change.verdict]),
        ]
        for change in changes
    ]
    _print_table(to, ["figure", "before", "now", "ratio", ""], rows)
    slower = now["calibration"]["loop_s_per_million"] / before["calibration"]["loop_s_per_million"]
    if abs(slower - 1) > 0.05:
        to.print(Text(f"  the machine itself was {slower:.2f} times as slow as in the earlier run", style="yellow"))
