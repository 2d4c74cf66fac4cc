"""Creates the first rows of a ledger from a pipeline's configuration, or from its output and bad records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import looking, policy, ranges
from heronpy.ingest.ledger.commands import FoundFile, Rebuild, Rebuilt
from heronpy.ingest.ledger.draft import Draft, shortened
from heronpy.ingest.ledger.partitions import newest
from heronpy.ingest.ledger.requests import Given, Open, Opened, Who
from heronpy.ingest.ledger.store import View
from heronpy.ingest.ledger.types import PART, Config, File, FileState, Kind, Pipeline, Span, SpanState

PARTS_MAX = 1 << 20
#: Maximum number of contradictions that one sentence names.
PROBLEMS_MAX = 100
#: Seconds after a rebuild during which no file of the rebuilt ledger counts as gone.
SCANNED_S = 3_600.0


def other_files(known: str, given: str) -> str:
    """Return the error for a pipeline that is in its ledger with a different file pattern."""
    return (
        f"the ledger contains this pipeline with the files {known!r}, not {given!r}; give the pipeline another"
        " name, or use another ledger"
    )


def open_pipeline(draft: Draft, request: Open, who: Who) -> Opened:
    config = _checked(request.config)
    found = draft.get(Pipeline)
    text = msgspec.json.encode(config).decode()
    if found is None:
        found = _new(draft.now, text, request.generation, request.part, request.ledger)
    elif draft.config.pattern != config.pattern:
        raise LedgerError(other_files(draft.config.pattern, config.pattern))
    if ahead := (*config.after, *config.after_all):
        others = {name: looking.waited_for(one) for name, one in draft.view.configs().items()}
        _refuse_circle(ahead, others, draft.view.name)
    if who.kind is Kind.KEEPER:
        looking.begin_again(draft, who)
    partitions = newest(found.partitions, request.partitions, keys_of(draft.view))
    opened = replace(found, config=text, ledger=found.ledger or request.ledger, partitions=partitions)
    if opened != draft.get(Pipeline):
        draft.put(opened)
    given = Given(found.generation, found.next_unit)
    return Opened(
        found.generation, config, found.next_file // PART, (found.next_file,), (given,), opened.ledger, partitions
    )


def keys_of(view: View) -> Iterator[str]:
    last, page = 0, policy.LOOKED_AT_MAX
    while files := view.files(last, page):
        yield from (file.key for file in files)
        last = files[-1].id


def _new(now: float, config: str, generation: int, part: int, ledger: str) -> Pipeline:
    if not 0 <= part < PARTS_MAX:
        raise LedgerError(f"the number of a ledger part must be between 0 and {PARTS_MAX - 1}, not {part}")
    first = part * PART + 1
    return Pipeline(generation, now, first, first, first, False, 0.0, config, ledger)


def _checked(config: Config) -> Config:
    """Return the configuration; raise LedgerError if its numbers are invalid."""
    if not config.pattern:
        raise LedgerError("a pipeline needs a file pattern")
    positive = {
        name: getattr(config, name)
        for name in (
            *("unit_bytes", "ready_per_worker", "unpublished_units", "unpublished_bytes", "tries_max", "bad_max"),
            *("days", "silent_s", "dispatch_bytes"),
        )
    }
    for name, value in positive.items():
        if not value > 0:
            raise LedgerError(f"{name} must be above 0, not {value}")
    for name, value in (
        ("unit_wait_s", config.unit_wait_s),
        ("dispatch_wait_s", config.dispatch_wait_s),
        ("bytes_per_s", config.bytes_per_s),
    ):
        if not 0 <= value < float("inf"):
            raise LedgerError(f"{name} must be a number of 0 or more, not {value}")
    if config.on_bad not in ("split", "fail"):
        raise LedgerError(f"on_bad must be split or fail, not {config.on_bad!r}")
    if config.rows_to not in ("table", "bolts"):
        raise LedgerError(f"rows_to must be table or bolts, not {config.rows_to!r}")
    return config


def _refuse_circle(after: Iterable[str], others: Mapping[str, tuple[str, ...]], name: str) -> None:
    known: set[str] = set()
    ahead = list(after)
    while ahead:
        one = ahead.pop()
        if one == name:
            raise LedgerError(f"{name} would wait for itself: its `after` {', '.join(after)} leads back to it")
        if one not in known:
            known.add(one)
            ahead.extend(others.get(one, ()))


# ---- rebuild --------------------------------------------------------------------------------
def rebuild(draft: Draft, request: Rebuild, who: Who) -> Rebuilt:
    now, config = draft.now, _checked(request.config)
    found = draft.get(Pipeline)
    silent_s = draft.config.silent_s if found is not None else config.silent_s
    busy = draft.view.seen(Kind.WORKER, now - silent_s) + draft.view.seen(Kind.KEEPER, now - silent_s)
    if busy:
        raise LedgerError(
            f"{busy} workers and keepers were seen in the last {silent_s:g} s; kill the topology, then rebuild; if the"
            " topology did not end gracefully, first wait until this time has passed"
        )
    generation = max(found.generation + 1 if found is not None else 1, request.at_least)
    names = {(one.key, one.generation) for one in request.files}
    if len(names) != len(request.files):
        raise LedgerError("a file occurs twice in the report")
    _refuse_overlaps(request.files)
    if request.trial:
        return Rebuilt(generation, len(request.files), 0, 0, 0)
    text = msgspec.json.encode(config).decode()
    if found is None:
        found = _new(now, text, generation, request.part, request.ledger)
    draft.wipe()
    found = replace(found, partitions=request.partitions or found.partitions, ledger=request.ledger)
    draft.put(replace(found, generation=generation, config=text, paid_until=0.0))
    done_bytes = bad_bytes = 0
    holes: list[ranges.Piece] = []
    for one in request.files:
        done, bad = _file(draft, one, holes)
        done_bytes, bad_bytes = done_bytes + done, bad_bytes + bad
    units = ranges.fill(holes, config.unit_bytes, policy.CHUNKS_MAX)
    for unit in units:
        draft.make_unit(unit, now)
    return Rebuilt(generation, len(request.files), len(units), done_bytes, bad_bytes)


def _file(draft: Draft, found: FoundFile, holes: list[ranges.Piece]) -> tuple[int, int]:
    """Add the rows of one file to the draft, and its missing ranges to `holes`. Return the numbers of done and bad
    bytes."""
    done = found.done
    pipeline, now = draft.pipeline, draft.now
    draft.put(replace(pipeline, next_file=pipeline.next_file + 1))
    number = pipeline.next_file
    spans: list[Span] = []
    covered = ranges.union((one.begin, one.end) for one in done)
    spans.extend(Span(number, begin, end, SpanState.DONE, 0) for begin, end in covered)
    # A range that a retry has processed is done, even if an old record calls it bad.
    for bad in found.bad:
        for begin, end in ranges.subtract([(bad.begin, bad.end)], covered):
            spans.append(Span(number, begin, end, SpanState.BAD, bad.root, bad.tries, shortened(bad.error)))
            covered = ranges.union([*covered, (begin, end)])
    cut = covered[-1][1] if covered else 0
    holes.extend((number, begin, end) for begin, end in ranges.subtract([(0, cut)], covered))
    for span in spans:
        draft.put(span)
    # Until a scan finds the file, it is on no site, and all sites get time to report it.
    gone = now + SCANNED_S
    draft.put(File(number, found.key, found.generation, now, found.head, cut, cut, FileState.LIVE, None, gone))
    sizes = {state: sum(one.end - one.begin for one in spans if one.state is state) for state in SpanState}
    return sizes[SpanState.DONE], sizes[SpanState.BAD]


def _refuse_overlaps(files: Iterable[FoundFile]) -> None:
    problems = [
        f"{file.key}: bytes {begin}-{end} are published twice, by {one} and {other}"
        for file in files
        for begin, end, one, other in ranges.overlaps((done.begin, done.end, done.source) for done in file.done)
    ]
    if problems:
        raise LedgerError(f"{joined(problems)}; remove one of the two from the output, then rebuild")


def joined(problems: Sequence[str]) -> str:
    """Return the first problems as one clause."""
    more = f"; and {len(problems) - PROBLEMS_MAX} more" if len(problems) > PROBLEMS_MAX else ""
    return f"{'; '.join(problems[:PROBLEMS_MAX])}{more}"
