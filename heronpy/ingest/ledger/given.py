"""Adds files and units that a keeper gives to a ledger instead of scan results. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import ranges, requests
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.types import REPORT_MAX, Copy, File, FileState, Seal, Span, SpanState

#: Maximum number of units of one list.
SHARES_MAX = 100_000


def enter_list(draft: Draft, request: requests.EnterList, who: requests.Who) -> requests.Entered:
    if draft.view.files(0, 1) or draft.get(Seal, who.site) is not None:
        return requests.Entered(0)
    draft.put(Seal(who.site, request.run, draft.now))
    seen, at = request.seen, 0
    if seen is None:
        return requests.Entered(0)
    if len(request.shares) > SHARES_MAX:
        raise LedgerError(f"a list of more than {SHARES_MAX} units is refused; use larger units")
    for share in request.shares:
        if share.begin != at or share.end <= at or share.weight < 1:
            raise LedgerError(f"{seen.key}: unit {share.begin}-{share.end} of {share.weight} bytes must begin at {at}")
        at = share.end
    if at != seen.size:
        raise LedgerError(f"{seen.key}: its units end at {at}, but the list ends at {seen.size}")
    file = _new_file(draft, File(0, seen.key, 1, draft.now, seen.head, at, at, FileState.LIVE, None, None))
    draft.put(Copy(file.id, who.site, seen.path, at, seen.inode, seen.tail, draft.now))
    for share in request.shares:
        draft.make_unit([(file.id, share.begin, share.end)], draft.now, weight=share.weight)
    return requests.Entered(1, len(request.shares))


def take_files(draft: Draft, request: requests.TakeFiles, who: requests.Who) -> requests.Entered:
    if len(request.files) > REPORT_MAX:
        raise LedgerError(f"a request with more than {REPORT_MAX} files is refused; send several requests")
    new = 0
    for one in request.files:
        known = {file.generation for file in draft.view.files_of(one.file.key)}
        if one.file.generation in known:
            continue
        given = replace(one.file, cut=0, born=draft.now, since=draft.now if one.file.size else None, gone=None)
        file = _new_file(draft, given)
        for copy in one.copies:
            draft.put(replace(copy, file=file.id, seen=draft.now))
        new += 1
    if request.complete:
        draft.put(Seal(who.site, request.run, draft.now))
    return requests.Entered(new)


def _new_file(draft: Draft, given: File) -> File:
    pipeline = draft.pipeline
    draft.put(replace(pipeline, next_file=pipeline.next_file + 1))
    file = replace(given, id=pipeline.next_file)
    draft.put(file)
    return file


def redo(draft: Draft, request: requests.Redo, who: requests.Who) -> requests.Returned:
    again: list[tuple[list[ranges.Piece], int]] = []
    by_file: dict[tuple[str, int], list[requests.FileRange]] = {}
    for wanted in request.ranges:
        by_file.setdefault((wanted.key, wanted.generation), []).append(wanted)
    for (key, generation), all_wanted in by_file.items():
        file = next((one for one in draft.view.files_of(key) if one.generation == generation), None)
        if file is None:
            raise LedgerError(f"the ledger has no file {key!r} of generation {generation}")
        spans = [span for span in draft.view.spans(file.id) if span.state is SpanState.DONE]
        done = [(span.begin, span.end) for span in spans]
        for wanted in all_wanted:
            rest = ranges.subtract(done, [(wanted.begin, wanted.end)])
            again.append(([(file.id, *piece) for piece in ranges.subtract(done, rest)], wanted.weight))
            done = rest
        for span in spans:
            draft.drop(span)
        for begin, end in done:
            draft.put(Span(file.id, begin, end, SpanState.DONE, 0))
    pieces = [piece for some, _ in again for piece in some]
    if not pieces:
        return requests.Returned(())
    # Create one unit from all ranges, so that its tuples go to the same buckets in the same order as before.
    weight = sum(more for some, more in again if some)
    return requests.Returned((draft.make_unit(pieces, draft.now, weight=weight),))
