"""`heron verify`: injects faults into a topology with known tuples, and checks the result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from heronpy.cli import exits
from heronpy.cli.output import print_json, print_table, say, warn
from heronpy.clusters.target import Target
from heronpy.common.folders import make_output
from heronpy.common.units import counted, format_duration
from heronpy.loadtest.cluster import cluster
from heronpy.procs.interrupts import interruptible
from heronpy.verify.oracle import Limits, read_endless, read_spec, verify
from heronpy.verify.records import write_end
from heronpy.verify.run import Run, verify_run
from heronpy.verify.scenarios import Scenario, find, scenarios, together
from heronpy.verify.stream import InputSpec
from heronpy.verify.tables import COLUMNS, failures, markdown, row


def list_faults() -> None:
    """Print the faults as a table."""
    rows = [(one.name, one.about, one.times, ", ".join(one.modes)) for one in scenarios().values()]
    print_table(("fault", "description", "times with --full", "modes"), rows)


def run(mode: str, faults: tuple[str, ...], as_one: bool, as_json: bool, target: Target, **flags: Any) -> int:
    """Run the faults, one per run or in as few runs as possible, and check each run."""
    chosen = [one for one in find(faults) if mode in one.modes]
    if not chosen:
        raise exits.Failure(f"{', '.join(faults)} is not defined for {mode}; see 'heron verify list'", exits.USAGE)
    if as_one:
        chosen = together(chosen)
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
    """Return the run that the flags describe."""
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
        # With --full, a topology may make no progress for minutes without being stuck.
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
    """Print the errors of the runs. Raises a Failure if a run broke a guarantee of its mode."""
    wrong = [(name, lines) for name, lines in found if lines]
    for name, lines in wrong:
        for line in lines:
            warn(f"  {name}: {line}")
    if wrong:
        names = ", ".join(name for name, _ in wrong)
        raise exits.Failure(f"{counted(len(wrong), 'run')} broke a guarantee of the mode: {names}")
    return exits.OK


def end(folder: Path) -> int:
    """End the input of a source that was configured without a tuple count."""
    spec = read_endless(folder)
    write_end(folder, spec.partitions, spec.rate)
    say(f"  the input of {folder} will end shortly")
    return exits.OK


def check(folder: Path, mode: str | None, loss_max: int, unordered: bool, as_json: bool, **values: Any) -> int:
    """Check the records in a folder, and print the verdict."""
    spec, noted = read_spec(folder)
    changes = {name: value for name, value in values.items() if value is not None}
    spec = replace(spec, **changes, **({"ordered": False} if unordered else {})).check()
    verdict = verify(folder, spec, mode or noted, Limits(loss_max=loss_max, stall_max_s=float("inf")))
    if as_json:
        print_json(verdict.as_json())
    else:
        rows = [("records", "", f"{verdict.arrived:,} for {verdict.expected:,} tuples, {verdict.mode}")]
        rows += [(check.name, "ok" if check.ok else "FAILED", check.text) for check in verdict.checks]
        print_table(("check", "", "details"), rows)
    return _end([(str(folder), [f"{check.name}: {check.text}" for check in verdict.checks if not check.ok])])


def report(
    runs: int,
    modes: tuple[str, ...],
    faults: tuple[str, ...],
    out: Path,
    data: Path | None,
    target: Target,
    **flags: Any,
) -> int:
    """Run faults several times; write the table of results after each run."""
    planned = [(one, mode) for one in find(faults) for mode in modes or one.usual if mode in one.modes]
    baseline = _baseline(flags["baseline_s"], flags["full"])
    total = runs * sum(baseline + one.seconds(flags["full"], flags["times"]) for one, _ in planned)
    say(f"{counted(runs * len(planned), 'run')}, about {format_duration(total)} in total")
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
            # Write after each run, so that an interrupted report keeps its finished runs.
            out.write_text(markdown(documents), encoding="utf-8")
            if data is not None:
                data.write_text(json.dumps(documents, indent=1), encoding="utf-8")
    say(f"  wrote {out}")
    return _end([(f"{one['fault']} {one['verdict']['mode']}", failures(one)) for one in documents[before:]])


def _progress(document: dict[str, Any]) -> str:
    """Return one line about a run, with the cells of its table row."""
    cells = dict(zip(COLUMNS, map(str, row(document)), strict=True))
    return f"{cells.pop('ok'):6} {cells.pop('fault')} {cells.pop('mode')}: " + ", ".join(
        f"{name} {value}" for name, value in cells.items()
    )
