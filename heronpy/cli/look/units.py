"""`heron units`: shows and repairs pipelines of work units."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import msgspec
from msgspec.structs import replace

from heronpy.cli import exits
from heronpy.cli.output import clean, print_json, print_table, say
from heronpy.clusters.session import Session
from heronpy.clusters.target import Target
from heronpy.common.engine_settings import IngestSettings
from heronpy.common.errors import HeronError
from heronpy.common.settings import settings_for
from heronpy.common.units import counted, format_bytes, format_duration
from heronpy.connectors.spark.dispatches import is_home
from heronpy.ingest.checking import check, command_of, rebuild
from heronpy.ingest.ledger.commands import (
    Figures,
    ForgetSite,
    ListDispatches,
    ListUnits,
    RetryBad,
    RetryFailed,
    SetSite,
    Show,
    SiteView,
    UnitView,
)
from heronpy.ingest.ledger.reaching import Reached, pipelines_of, text_of, urls_of
from heronpy.ingest.ledger.requests import ListFinished
from heronpy.ingest.ledger.types import UnitState
from heronpy.ingest.options import default_ledger
from heronpy.ingest.outputs.stages import Stages

#: The cluster whose settings name the ledger, because these verbs have no topology.
_CLUSTER = "local"
#: Maximum number of characters of a unit's error that are shown.
ERROR_CHARS = 80
#: Maximum number of examined units that wait for publication.
_FINISHED_MAX = 512
_LIVE = (UnitState.FAILED, UnitState.LEASED, UnitState.READY, UnitState.COMMITTED)


@contextmanager
def opened(url: str, pipeline: str) -> Iterator[Reached]:
    with closing(command_of(_ledger(url), pipeline)) as reached:
        yield reached


def _ledger(given: str) -> str:
    """Return the given ledger, or else the ledger from the settings, or else the default ledger."""
    chosen = given or settings_for(Session(Target(_CLUSTER)).resolve(), IngestSettings).ledger
    return text_of(chosen or default_ledger())


def _kind(ledger: str) -> str:
    """Return the kind and number of the ledgers of a pipeline, as text."""
    urls = urls_of(ledger)
    kinds = " and ".join(sorted({url.partition(":")[0] for url in urls}))
    return f"ledger {kinds}" if len(urls) == 1 else f"{len(urls)} ledgers {kinds}"


def list_pipelines(url: str, as_json: bool) -> None:
    """Print one line for each pipeline of a ledger."""
    where = _ledger(url)
    names = pipelines_of(where)
    found: dict[str, Figures] = {}
    stuck: dict[str, dict[int, str]] = {}
    for name in names:
        with opened(where, name) as ledger:
            found[name] = ledger.ask(Show())
            stuck[name] = _stuck(ledger, found[name])
    if as_json:
        shown = {name: {**msgspec.to_builtins(one), "units_stuck": len(stuck[name])} for name, one in found.items()}
        print_json({"ledger": where, "pipelines": shown})
    elif not found:
        say(f"The ledger {where} has no pipelines")
    for name, one in found.items() if not as_json else ():
        sentences = [*_sentences(one), *_stuck_sentences(name, len(stuck[name]))]
        say(f"{name}  {_kind(where)}  {'; '.join(sentences)}")


def show_pipeline(pipeline: str, url: str, as_json: bool) -> None:
    """Print the figures of a pipeline and its units in progress."""
    where = _ledger(url)
    with opened(where, pipeline) as ledger:
        figures = ledger.ask(Show())
        stuck = _stuck(ledger, figures)
        units = [unit for state in _LIVE for unit in ledger.ask(ListUnits(state)).units]
        units = [
            replace(unit, error=stuck[unit.unit], waits=()) if unit.state == UnitState.COMMITTED and unit.unit in stuck
            else unit
            for unit in units
        ]  # fmt: skip
        dispatches = ledger.ask(ListDispatches()).dispatches
    if as_json:
        shown = {"live": msgspec.to_builtins(units), "dispatches": msgspec.to_builtins(dispatches)}
        print_json({"pipeline": pipeline, **msgspec.to_builtins(figures), "units_stuck": len(stuck), **shown})
        return
    say(f"{pipeline}  {_kind(where)}  generation {figures.generation}")
    for sentence in (*_sentences(figures), *_stuck_sentences(pipeline, len(stuck))):
        say(f"  {sentence}")
    if figures.sites:
        say()
        heads = ("site", "state", "files", "bytes", "workers", "keepers", "leased", "last seen")
        print_table(heads, [_site_row(site) for site in figures.sites], right=heads[2:])
    if units:
        say()
        site = ("site",) if figures.sites else ()
        heads = ("unit", "state", "bytes", "age", "tries", *site, "held by", "begins with", "waits for", "error")
        rows = [_row(unit, bool(figures.sites), ERROR_CHARS if unit.unit not in stuck else None) for unit in units]
        print_table(heads, rows, right=("unit", "bytes", "age", "tries"))
    if dispatches:
        say()
        titles = ("dispatch", "state", "units", "rows", "bytes", "error")
        lines = [
            (str(one.dispatch), one.state.value, str(len(one.units)), f"{one.rows:,}", format_bytes(one.bytes),
             clean(one.error[:80]))
            for one in dispatches
        ]  # fmt: skip
        print_table(titles, lines, right=("dispatch", "units", "rows", "bytes"))


def set_site(pipeline: str, site: str, state: str, url: str, as_json: bool) -> None:
    """Take a site down, bring it up again, or remove it."""
    with opened(url, pipeline) as ledger:
        known = [one.name for one in ledger.ask(Show()).sites]
        if site not in known:
            has = f"its sites are {', '.join(known)}" if known else "it has no sites"
            raise exits.Failure(f"pipeline '{pipeline}' has no site '{clean(site)}'; {has}", exits.NOT_FOUND)
        freed = ledger.ask(SetSite(site, state == "up")).freed if state != "gone" else 0
        files, more = 0, state == "gone"
        while more:
            answer = ledger.ask(ForgetSite(site))
            files, more = files + answer.files, answer.more
    if as_json:
        print_json({"pipeline": pipeline, "site": site, "state": state, "freed": freed, "files": files})
    elif state == "gone":
        say(f"Removed site {site} of pipeline '{pipeline}', with its copies of {counted(files, 'file')}")
    elif state == "up":
        say(f"Site {site} gets units of pipeline '{pipeline}' again")
    else:
        say(f"Site {site} gets no more units of pipeline '{pipeline}'; {counted(freed, 'unit')} freed for other sites")


def partition(pipeline: str, urls: Sequence[str], since: str, url: str, as_json: bool) -> None:
    """Print the partition map of a pipeline; with `urls`, add an entry first."""
    if bool(urls) is not bool(since):
        raise exits.Failure(
            "an entry needs ledgers and a time: heron units partition PIPELINE URL --from TIME", exits.USAGE
        )
    with opened(url, pipeline) as ledger:
        if urls and is_home(Stages(ledger.ask(Show()).place).home):
            raise exits.Failure(
                f"pipeline '{pipeline}' has SparkBatches, which works with one ledger only", exits.FAILED
            )
        found = ledger.add_entry(urls, since, time.time()) if urls else ledger.partitions
    entries = found.setting()
    if as_json:
        print_json({"pipeline": pipeline, "version": found.version, "entries": entries})
        return
    say(f"Pipeline '{pipeline}' has version {found.version} of its partition map")
    print_table(
        ("files created before", "ledgers"), [(one.get("until", "-"), ", ".join(one["urls"])) for one in entries]
    )


def retry_failed(pipeline: str, unit: int | None, url: str, as_json: bool) -> None:
    """Requeue failed units and dispatches."""
    with opened(url, pipeline) as ledger:
        say_retried(*all_units(ledger, RetryFailed(unit)), as_json)


def check_pipeline(pipeline: str, table: str, url: str, as_json: bool) -> None:
    """Print whether the table, the ledger and the bytes of the logs agree."""
    found = check(_ledger(url), pipeline, table)
    if as_json:
        print_json({"pipeline": pipeline, "agree": not found.problems, **msgspec.to_builtins(found)})
    else:
        for problem in found.problems:
            say(clean(problem))
        reasons = {
            "of files that are no longer where they were last seen": found.bytes_gone,
            "of files unknown to the ledger (the files are gone, or no scan has run since the ledger was created)":
                found.bytes_unseen,
            "of files that were replaced by another file or cannot be read": found.bytes_other,
        }  # fmt: skip
        left = sum(reasons.values())
        whole = "table, ledger and bytes" if found.bytes or not left else "table and ledger"
        verdict = f"{whole} agree" if not found.problems else "disagreement found"
        units = f"{counted(found.units, 'unit')} with {found.rows:,} rows"
        why = ", ".join(f"{format_bytes(size)} {reason}" for reason, size in reasons.items() if size)
        gone = f"; {format_bytes(left)} could not be compared: {why}" if left else ""
        later = f"; {format_bytes(found.bytes_waiting)} are not in the table yet" if found.bytes_waiting else ""
        copies = f"; {counted(found.copies, 'file')} skipped as {_copies(found.copies)}" if found.copies else ""
        bad = f"{format_bytes(found.bad_bytes)} of bad ranges left out: heron units bad"
        later += f"; {bad}" if found.bad_bytes else ""
        say(f"{verdict}: {units}, {format_bytes(found.bytes)} compared{later}{gone}{copies}")
    if found.problems:
        raise SystemExit(1)


def rebuild_ledger(pipeline: str, table: str, url: str, as_json: bool) -> None:
    """Rebuild the ledger, and print its content."""
    answer = rebuild(_ledger(url), pipeline, table)
    if as_json:
        print_json({"pipeline": pipeline, **msgspec.to_builtins(answer)})
        return
    say(
        f"Rebuilt pipeline '{pipeline}', generation {answer.generation}: {counted(answer.files, 'file')},"
        f" {format_bytes(answer.done_bytes)} done, {format_bytes(answer.bad_bytes)} bad,"
        f" {counted(answer.units, 'unit')} to process again"
    )


# ---- parts ----------------------------------------------------------------------------------
def _stuck(ledger: Reached, figures: Figures) -> dict[int, str]:
    """Return why committed units cannot be published, according to their staged output and the table on this host."""
    if figures.rows_to != "table" or not figures.units.get(UnitState.COMMITTED, (0, 0))[0]:
        return {}
    try:
        about = Stages(figures.place).pipeline()
    except HeronError:
        return {}  # owned by another user: unknown here
    stages = Stages(figures.place, about.replicas if about is not None else ())
    asked = ListFinished(_FINISHED_MAX)
    found = {}
    for unit in ledger.ask(asked).units:
        try:
            if trouble := stages.trouble(unit.generation, unit.unit, unit.winner):
                found[unit.unit] = trouble
        except OSError:
            continue
    if not found:
        return {}
    # A unit that was published meanwhile has no stage.
    still = {unit.unit for unit in ledger.ask(asked).units}
    return {unit: why for unit, why in found.items() if unit in still}


def _stuck_sentences(pipeline: str, count: int) -> Iterator[str]:
    if count:
        yield f"{counted(count, 'unit')} cannot be published: heron units show {pipeline}"


def all_units(ledger: Reached, request: RetryBad | RetryFailed) -> tuple[list[int], list[int]]:
    """Repeat a request until it is complete; return the ids of the requeued units and dispatches."""
    units: list[int] = []
    dispatches: list[int] = []
    while True:
        answer = ledger.ask(request)
        units += answer.units
        dispatches += answer.dispatches
        if not answer.more:
            return units, dispatches


def say_retried(units: list[int], dispatches: list[int], as_json: bool) -> None:
    if as_json:
        print_json({"units": units, "dispatches": dispatches})
        return
    found = ((len(units), "unit"), (len(dispatches), "dispatch"))
    parts = [_counted(number, name) for number, name in found if number]
    say(f"{' and '.join(parts)} to retry" if parts else "Nothing to retry")


def _counted(number: int, name: str) -> str:
    return f"{number:,} dispatches" if name == "dispatch" and number != 1 else counted(number, name)


def _sentences(figures: Figures) -> Iterator[str]:
    open_units = {state: one for state, one in figures.units.items() if one[0] and state != UnitState.FAILED}
    under_way = sum(size for _, size in open_units.values())
    count = sum(number for number, _ in open_units.values())
    oldest = f", oldest byte {format_duration(figures.oldest_s)}" if figures.oldest_s is not None else ""
    yield (
        f"{counted(sum(figures.files.values()), 'file')}, {format_bytes(figures.known_bytes)}:"
        f" {format_bytes(figures.done_bytes)} published, {format_bytes(under_way)} in {counted(count, 'unit')},"
        f" {format_bytes(figures.waiting_bytes)} waiting{oldest}"
    )
    if not any(figures.files.values()):
        yield f"no file of {figures.logs} is known: no file matches, or no keeper has scanned yet"
    if not figures.keepers:
        last = "no keeper is known"
        if figures.looked_s is not None:
            last = f"the last keeper was {figures.looked_by}, {format_duration(figures.looked_s)} ago"
        yield f"no keeper scans the files ({last}), so bytes written since then are not counted"
    pace = f", {format_bytes(int(1 / figures.pace))}/s per worker" if figures.pace > 0 else ""
    units = f", {counted(figures.published_units, 'unit')}" if figures.published_units else ""
    if figures.p50_s is not None and figures.p99_s is not None:
        units += f", p50 {format_duration(figures.p50_s)}, p99 {format_duration(figures.p99_s)}"
    yield f"{counted(figures.workers, 'worker')}, {counted(figures.keepers, 'keeper')}{units}{pace}"
    if figures.backups_won:
        yield f"{counted(figures.backups_won, 'backup')} won"
    if figures.unfinished_bytes:
        yield f"{format_bytes(figures.unfinished_bytes)} of unfinished last lines are not processed yet"
    if figures.copies:
        yield f"{counted(figures.copies, 'file')} skipped as {_copies(figures.copies)}"
    if figures.bad_ranges:
        yield f"{counted(figures.bad_ranges, 'bad range')} of {format_bytes(figures.bad_bytes)}: heron units bad"
    for state in ("mutated", "late"):
        if figures.files.get(state):
            yield f"{counted(figures.files[state], f'{state} file')} not processed"
    failed = figures.units.get(UnitState.FAILED, (0, 0))[0]
    if failed:
        yield f"{counted(failed, 'failed unit')}: fix the cause, then: heron units retry"
    if figures.sites:
        yield "sites " + ", ".join(
            site.name if site.state == "up" else f"{site.name} ({site.state})" for site in figures.sites
        )
    for one in figures.after:
        what = f"the whole backlog of '{one.pipeline}'" if one.whole else f"the older bytes of '{one.pipeline}'"
        yield f"after {what}: " + (f"waits for {one.waits}" if one.waits else "published")
    if figures.dispatches_open:
        yield f"{_counted(figures.dispatches_open, 'dispatch')} at Spark"
    if figures.dispatches_failed:
        lost = "failed dispatch" if figures.dispatches_failed == 1 else "failed dispatches"
        held = counted(figures.units_held, "unit")
        yield f"{figures.dispatches_failed:,} {lost} of {held}: fix the cause, then: heron units retry"
    if figures.paused:
        yield "paused"


def _copies(count: int) -> str:
    return "a copy of another file" if count == 1 else "copies of other files"


def _site_row(site: SiteView) -> tuple[str, ...]:
    seen = f"{format_duration(site.seen_s)} ago" if site.seen_s is not None else "never"
    counts = (str(site.workers), str(site.keepers), str(site.leased))
    return site.name or "(none)", site.state, str(site.files), format_bytes(site.bytes), *counts, seen


def _row(unit: UnitView, with_site: bool, error_chars: int | None) -> tuple[str, ...]:
    """Return one row; `error_chars` limits the length of the unit's error (None: no limit)."""
    first = unit.chunks[0] if unit.chunks else None
    begins = ""
    if first is not None:
        was = f" (was {first.key})" if first.path not in ("", first.key) else ""
        begins = clean(f"{first.path or first.key} {first.begin}-{first.end}{was}")
    holder = unit.holder.partition("#")[0]
    age, size = format_duration(unit.age_s), format_bytes(unit.bytes)
    site = (unit.site,) if with_site else ()
    start = (str(unit.unit), unit.state.value, size, age, str(unit.tries))
    return *start, *site, holder, begins, "; ".join(unit.waits), clean(unit.error[:error_chars])
