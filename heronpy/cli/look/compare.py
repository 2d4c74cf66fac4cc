"""`heron compare`: the rows and figures of two batch runs, or the rows of two folders of sinks."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import click
from msgspec import Struct, to_builtins

from heronpy.batch.compare import SHOWN, Compared, Rows, compare, files_of_folder, files_of_run, rows_of
from heronpy.batch.record import RunState
from heronpy.batch.run import Run, Runs
from heronpy.cli import exits
from heronpy.cli.output import clean, print_json, print_table, say, warning
from heronpy.clusters.client_config import known_clusters
from heronpy.clusters.history import PastRun, find_run, submits_of
from heronpy.clusters.session import Session
from heronpy.clusters.summary import Used, used_by
from heronpy.clusters.target import Common, Target
from heronpy.common.units import counted, format_bytes, format_duration

_RUN = re.compile(r"[^/.][^/]*/[1-9][0-9]{0,8}")
_FIGURES = ("state", "took", "CPU", "memory", "attempts")
#: Characters of a row that are printed.
_ROW_CHARS = 500


class _Side(Struct):
    """One of the two compared results."""

    name: str
    #: Rows by sink; the sink of a folder is "".
    rows: dict[str, Rows]
    run: PastRun | None = None
    used: Used | None = None


def show_comparison(first: str, second: str, target: Target | None, as_json: bool, common: Common) -> None:
    """Print the differences; exit with code 1 if rows differ."""
    session = cache(partial(_session, target, common))
    # Find both results before checking the state of either.
    runs = [(name, _found(session, name)) for name in (first, second)]
    sides = [_side(session, name, run) for name, run in runs]
    _align(*sides)
    sinks = sorted({sink for side in sides for sink in side.rows})
    one, other = (side.rows for side in sides)
    found = [compare(sink, one.get(sink, tuple), other.get(sink, tuple)) for sink in sinks]
    same = all(one.is_equal for one in found)
    if as_json:
        figures = {side.name: to_builtins(side.used) for side in sides}
        print_json({"equal": same, "sinks": to_builtins(found), "used": figures})
    else:
        _print(sides, found)
    if not same:
        raise click.exceptions.Exit(exits.FAILED)


def _session(target: Target | None, common: Common) -> Session:
    return Session(target or _only_cluster(common), common)


def _found(session: Callable[[], Session], name: str) -> PastRun | None:
    """Return the batch run with this name; None if the name is a folder."""
    if _RUN.fullmatch(name) is not None:
        return find_run(session(), name)
    if not Path(name).is_dir():
        raise exits.Failure(f"{name} is neither a folder nor a batch run such as visits/3", exits.USAGE)
    return None


def _side(session: Callable[[], Session], name: str, found: PastRun | None) -> _Side:
    if found is None:
        folder = Path(name)
        files = files_of_folder(folder)
        if not files:
            raise exits.Failure(f"folder {name} contains no files with rows; names that begin with . or _ are ignored")
        return _Side(name, {"": partial(rows_of, files, folder)})
    if found.batch is None or found.folder is None:
        raise exits.Failure(f"{name} is not a batch run", exits.USAGE)
    if not found.batch.has_ended:
        newest = Runs(found.folder.parents[1], found.batch.topology).numbers()[-1:]
        is_newest = newest in ([], [found.batch.number])
        cure = "submit it again to continue it" if is_newest else "a later run has replaced it; compare another run"
        raise exits.Failure(f"run {name} is {found.batch.state} and has not finished; {cure}")
    files_by_sink = files_of_run(found.folder, Run(found.folder).topology)
    rows: dict[str, Rows] = {sink: partial(rows_of, files) for sink, files in files_by_sink.items()}
    return _Side(name, rows, found, _used(session(), found))


def _only_cluster(common: Common) -> Target:
    known = known_clusters(common.config_path)
    if len(known) != 1:
        raise exits.Failure(
            f"name the cluster of the runs with --cluster; the clusters are {', '.join(known)}", exits.USAGE
        )
    return Target(known[0])


def _used(session: Session, run: PastRun) -> Used:
    """Return the resources of a run: CPU time summed over all known submits, and the largest memory of one submit."""
    assert run.batch is not None, "only batch runs are compared"
    all_used = [used_by(kept) for kept in submits_of(session, run.batch)]
    cpu = [one.cpu_s for one in all_used if one.cpu_s is not None]
    memory = [one.memory_bytes for one in all_used if one.memory_bytes is not None]
    wall_s = (run.batch.ended_at or run.batch.submitted_at) - run.batch.submitted_at
    return Used(wall_s=wall_s, cpu_s=sum(cpu) if cpu else None, memory_bytes=max(memory, default=None))


def _align(one: _Side, other: _Side) -> None:
    """Give the rows of a folder the name of the compared run's only sink."""
    for side, against in ((one, other), (other, one)):
        if side.run is None and against.run is not None:
            if len(against.rows) > 1:
                sinks = ", ".join(sorted(against.rows))
                raise exits.Failure(f"run {against.name} has several sinks ({sinks}); compare it with a run")
            side.rows = {next(iter(against.rows), ""): side.rows[""]}


def _print(sides: list[_Side], found: list[Compared]) -> None:
    runs = [side.run for side in sides if side.run is not None]
    boundaries = {run.batch.boundary for run in runs if run.batch is not None}
    if len(boundaries) > 1:
        warning("the runs have not read the same input; for the same input, submit with --mode batch --as RUN")
    if runs:
        print_table(("", *(side.name for side in sides)), list(zip(_FIGURES, *map(_figures, sides))))
    for one in found:
        sink = f"sink {clean(one.sink)}: " if one.sink else ""
        if one.is_equal:
            say(f"{sink}equal: {counted(one.first, 'row')}")
            continue
        names = [clean(side.name) for side in sides]
        say(f"{sink}different: {one.only_first:,} of {counted(one.first, 'row')} only in {names[0]},"
            f" {one.only_second:,} of {counted(one.second, 'row')} only in {names[1]}")  # fmt: skip
        for each in one.differences:
            sign, times = (
                ("-", each.first - each.second) if each.first > each.second else ("+", each.second - each.first)
            )
            again = f"  ({times:,} times)" if times > 1 else ""
            say(f"  {sign} {clean(each.row[:_ROW_CHARS])}{again}")
        if one.only_first + one.only_second > SHOWN and len(one.differences) == SHOWN:
            say(f"  ... only {SHOWN} differing rows are shown")


def _figures(side: _Side) -> list[str | None]:
    """Return the values of `_FIGURES` for a run; a list of None for a folder."""
    if side.run is None or side.used is None or side.run.batch is None:
        return [None] * len(_FIGURES)
    state, used, progress = side.run.batch.state, side.used, side.run.progress
    return [
        f"{state.value}, not published" if state is RunState.HELD else state.value,
        format_duration(round(used.wall_s, 1)),
        format_duration(round(used.cpu_s, 1)) if used.cpu_s is not None else None,
        f"at most {format_bytes(used.memory_bytes)}" if used.memory_bytes is not None else None,
        f"{sum(one.attempts for one in progress.stages):,}" if progress is not None and progress.stages else None,
    ]
