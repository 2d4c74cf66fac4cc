"""Tracks files: handles scan reports, cuts units, seals bounded runs, and forgets old files. Pure."""

from __future__ import annotations

from enum import Enum, auto

from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import looking, policy, requests, sites
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.finishing import units_held
from heronpy.ingest.ledger.ranges import Piece, total
from heronpy.ingest.ledger.types import (
    REPORT_MAX,
    TEXT_MAX,
    Answer,
    Copy,
    File,
    FileState,
    Kind,
    Seal,
    SpanState,
    Unit,
    UnitState,
)

#: Maximum number of bytes of a file, so that sums still fit.
SIZE_MAX = 1 << 50
VANISHED = "the file was removed before it was processed"
MUTATED = "bytes of the file were changed after they had been read"


class _Refused(Enum):
    """The reason why a seen file gets no row: the scanner used an old row, or the run is sealed and the file is new."""

    STALE = auto()
    SEALED = auto()


# ---- reports --------------------------------------------------------------------------------
def report(draft: Draft, request: requests.ReportScan, who: requests.Who) -> requests.Reported:
    if len(request.seen) + len(request.gone) > REPORT_MAX:
        raise LedgerError(f"a report of more than {REPORT_MAX} files is refused; send several reports")
    if request.generation not in (0, draft.pipeline.generation):
        return requests.Reported((), tuple(range(len(request.seen))), ())
    known: dict[int, File] = {}
    new: dict[tuple[str, int], int] = {}
    stale, late = [], []
    knows_all, sealed = _knows_all(draft, request), is_sealed(draft, request.run, who)
    for index, seen in enumerate(request.seen):
        _check(seen)
        found = _file_of(draft, seen, new, knows_all, sealed)
        if found is _Refused.STALE:
            stale.append(index)
            known.update((one.id, one) for one in draft.view.files_of(seen.key))
        if isinstance(found, _Refused):
            continue
        _grow(draft, found, seen, who.site, sealed)
        file = draft.get(File, found.id)
        assert file is not None
        known[file.id] = file
        if file.state is FileState.LATE:
            late.append(index)
    for gone in request.gone:
        file = _go(draft, gone, who.site)
        if file is not None:
            known[file.id] = file
    rows = (draft.get(File, number) or file for number, file in known.items())
    return requests.Reported(tuple(_known(draft, file, who.site) for file in rows), tuple(stale), tuple(late))


def _check(seen: requests.SeenFile) -> None:
    for text in (seen.key, seen.path, seen.inode, seen.head, seen.tail):
        if "\0" in text or len(text) > TEXT_MAX or (not text.isascii() and not _is_text(text)):
            raise LedgerError(
                f"{seen.key[:100]!a}: names of files must be UTF-8 and at most {TEXT_MAX} characters long"
            )
    if not 0 <= seen.size <= SIZE_MAX or seen.generation < 1:
        raise LedgerError(f"{seen.key}: size {seen.size} of generation {seen.generation} is impossible")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _knows_all(draft: Draft, request: requests.ReportScan) -> bool:
    """Whether the client knows all files, including the files in this report."""
    if not request.made:
        return True
    following = draft.pipeline.next_file
    # Ids of another part of a ledger are far below or above.
    first = max((one for one in request.made if one <= following), default=0)
    if following - first > REPORT_MAX:
        return False
    found = {
        file.id
        for seen in request.seen
        for file in draft.view.files_of(seen.key)
        if file.generation == seen.generation and file.head in (seen.compared, seen.head)
    }
    return all(number in found for number in range(first, following))


def _file_of(
    draft: Draft, seen: requests.SeenFile, new: dict[tuple[str, int], int], knows_all: bool, sealed: bool
) -> File | _Refused:
    """Return the row of a seen file, or the reason why it has no row. `new`: ids that this report has created."""
    others = {one.generation: draft.get(File, one.id) or one for one in draft.view.files_of(seen.key)}
    made = new.get((seen.key, seen.generation))
    found = draft.get(File, made) if made is not None else others.get(seen.generation)
    if found is not None:
        return found if found.head in (seen.compared, seen.head) else _Refused.STALE
    if seen.compared or not knows_all or seen.generation <= max(others, default=0):
        return _Refused.STALE
    if sealed:
        return _Refused.SEALED
    pipeline, now = draft.pipeline, draft.now
    draft.put(replace(pipeline, next_file=pipeline.next_file + 1))
    # In a pipeline younger than the horizon, nothing can have been forgotten, so no file is late.
    horizon_s = draft.config.days * 86_400
    late = seen.age_s > horizon_s and now - pipeline.born > horizon_s
    state = FileState.LATE if late else FileState.LIVE
    file = File(pipeline.next_file, seen.key, seen.generation, now, seen.head, 0, 0, state, None, None)
    draft.put(file)
    new[seen.key, seen.generation] = file.id
    return file


def _grow(draft: Draft, file: File, seen: requests.SeenFile, site: str, sealed: bool) -> None:
    copy = draft.get(Copy, file.id, site)
    if sealed and seen.size > file.size:
        # Additional bytes are for a later run, which finds them with the stored size and tail.
        seen = replace(seen, size=file.size, tail=copy.tail if copy is not None else seen.tail)
    size = max(seen.size, copy.size if copy is not None else 0)
    tail = seen.tail if copy is None or seen.size >= copy.size else copy.tail
    new_copy = Copy(file.id, site, seen.path, size, seen.inode, tail, draft.now)
    if copy is None or replace(copy, seen=draft.now) != new_copy:
        draft.put(new_copy)
    mutated = seen.mutated and file.state is FileState.LIVE
    new = replace(file, head=seen.head, state=FileState.MUTATED if mutated else file.state, gone=None)
    if new.state is FileState.LIVE:
        new = replace(new, size=max(file.size, size))
        if new.cut < new.size and new.since is None:
            new = replace(new, since=looking.arrived(draft, site))
    if new != file:
        draft.put(new)
    if mutated:
        give_up(draft, new, MUTATED)


def _go(draft: Draft, gone: requests.GoneFile, site: str) -> File | None:
    file, copy = draft.get(File, gone.file), draft.get(Copy, gone.file, site)
    if file is None or copy is None or copy.inode != gone.inode:
        return file
    sites.lose_copy(draft, file, copy)
    return file


def _known(draft: Draft, file: File, site: str) -> requests.KnownFile:
    copies = {one.site: draft.get(Copy, file.id, one.site) for one in draft.view.copies(file.id)}
    copies[site] = draft.get(Copy, file.id, site)
    return requests.KnownFile(file, tuple(copy for _, copy in sorted(copies.items()) if copy is not None))


def list_files(draft: Draft, request: requests.ListFiles, who: requests.Who) -> requests.KnownFiles:
    limit = min(request.limit, REPORT_MAX)
    files = draft.view.files(request.after, limit + 1)
    page = (requests.KnownFile(file, tuple(draft.view.copies(file.id))) for file in files[:limit])
    return requests.KnownFiles(tuple(page), len(files) > limit)


# ---- cuts -----------------------------------------------------------------------------------
def cut(draft: Draft, request: requests.Cut, who: requests.Who) -> requests.CutUnits:
    looking.note(draft, request, who)
    looking.note_unfinished(draft, request, who)
    seal(draft, request, who)
    return replace(_cut(draft), now=draft.now, over=is_over(draft, request, who))


def _cut(draft: Draft) -> requests.CutUnits:
    if draft.pipeline.paused:
        return requests.CutUnits((), requests.Brake.PAUSED)
    config, view, now = draft.config, draft.view, draft.now
    workers = view.seen(Kind.WORKER, now - config.silent_s)
    ready, _ = view.totals().get(UnitState.READY, (0, 0))
    most, live = policy.ready_max(config, workers), sites.live(draft)
    if ready >= most:
        ready = sites.ready_count(draft, ready, live)
    room = min(most - ready, policy.CUT_UNITS_MAX)
    if room <= 0:
        return requests.CutUnits((), requests.Brake.READY)
    # Files that only lost sites have must not fill the page.
    named = live if live - {""} else frozenset()
    files = {file.id: file for file in view.waiting(policy.CUT_FILES_MAX, named)}
    young = all(now - file.since < config.unit_wait_s for file in files.values() if file.since is not None)
    if young and sum(file.size - file.cut for file in files.values()) < config.unit_bytes:
        return requests.CutUnits((), requests.Brake.YOUNG if files else requests.Brake.NOTHING)
    copies: dict[int, dict[str, int]] = {}
    for copy in view.copies_of_waiting(policy.CUT_FILES_MAX, named):
        copies.setdefault(copy.file, {})[copy.site] = copy.size
    waiting = []
    for file in files.values():
        ends = policy.readable(copies.get(file.id, {}), live)
        if ends is not None and file.since is not None and file.cut < ends[0]:
            # Cut only the part of a file that this transaction can write.
            end = min(ends[0], file.cut + room * config.unit_bytes)
            waiting.append(policy.Waiting(file.id, file.cut, end, file.since, ends[1]))
    planned, young = policy.plan_units(waiting, config, now, room)
    cuts: dict[int, int] = {}
    numbers = []
    for unit in planned:
        numbers.append(draft.make_unit(unit.pieces, unit.since))
        for number, _, end in unit.pieces:
            cuts[number] = max(end, cuts.get(number, 0))
    for number, end in cuts.items():
        file = files[number]
        draft.put(replace(file, cut=end, since=file.since if end < file.size else None))
    if len(planned) == room:
        return requests.CutUnits(tuple(numbers), requests.Brake.READY)
    return requests.CutUnits(tuple(numbers), requests.Brake.YOUNG if young else requests.Brake.NOTHING)


# ---- unreadable bytes, and forgotten files ----------------------------------------------
def give_up(draft: Draft, file: File, error: str) -> int:
    """Mark a file's bytes as bad, except in active or committed units; other bytes of a changed unit become a new unit.

    Returns the number of bytes that are now bad.
    """
    lost = file.size - file.cut
    for number in sorted({span.unit for span in draft.view.spans(file.id) if span.state is SpanState.UNIT}):
        unit = draft.get(Unit, number)
        if unit is None or unit.state is UnitState.COMMITTED:
            continue
        if unit.state is UnitState.LEASED and draft.now < unit.until:
            continue
        pieces = draft.pieces_of(number)
        rest: list[Piece] = [piece for piece in pieces if piece[0] != file.id]
        bad = [piece for piece in pieces if piece[0] == file.id]
        draft.make_bad(bad, unit.root, unit.tries, error)
        lost += total(bad)
        draft.drop(unit)
        if rest:
            draft.make_unit(rest, unit.since, unit)
    if file.cut < file.size:
        draft.make_bad([(file.id, file.cut, file.size)], 0, 0, error)
        draft.put(replace(file, cut=file.size, since=None))
    return lost


def collect(draft: Draft, request: requests.Collect, who: requests.Who) -> requests.Collected:
    view, now, limit = draft.view, draft.now, policy.COLLECT_MAX
    old = view.gone(now - draft.config.days * 86_400, limit)
    forgotten = 0
    for file in old:
        spans = view.spans(file.id)
        if file.cut < file.size or any(span.state is SpanState.UNIT for span in spans):
            continue
        for span in spans:
            draft.drop(span)
        draft.drop(file)
        forgotten += 1
    # Process one range at a time, because one unit may have two of them. Bytes that active units hold are not lost yet.
    lost = 0
    for file in view.vanished(now - policy.VANISHED_S, limit):
        lost = give_up(draft, file, VANISHED)
        if lost:
            break
    silent = view.silent(now - policy.FORGET_S, limit)
    for client in silent:
        draft.drop(client)
        answer = draft.get(Answer, client.name)
        if answer is not None:
            draft.drop(answer)
    return requests.Collected(forgotten, lost, forgotten == limit or lost > 0 or len(silent) == limit)


# ---- the input of a bounded run (`until="now"`): all bytes of its site at the first complete scan -----------
def seal(draft: Draft, request: requests.Cut, who: requests.Who) -> None:
    """Seal the files of a site at the first complete scan of a run."""
    if request.run and request.complete and not is_sealed(draft, request.run, who):
        draft.put(Seal(who.site, request.run, draft.now))


def is_sealed(draft: Draft, run: str, who: requests.Who) -> bool:
    """Whether the client's site adds no more files or bytes in this run; `run` is "" for an endless run."""
    found = draft.get(Seal, who.site)
    return run != "" and found is not None and found.run == run


def is_over(draft: Draft, request: requests.Cut, who: requests.Who) -> bool:
    """Whether all bytes of a run are published, bad or failed."""
    seal, view = draft.get(Seal, who.site), draft.view
    if seal is None or not is_sealed(draft, request.run, who):
        return False
    totals, waiting = view.totals(), view.waiting(1)
    live = {state: count for state, (count, _) in totals.items() if state is not UnitState.FAILED}
    if waiting or sum(live.values()) != units_held(draft):
        # Later bytes belong to another site, which may follow its files endlessly.
        since = [file.since or 0.0 for file in waiting]
        for state in live:
            since += [unit.since for unit in view.units(state, (-1, -1), policy.LOOKED_AT_MAX)]
        if not who.site or sum(live.values()) > policy.LOOKED_AT_MAX or min(since) <= seal.at:
            return False
    # Bytes of files that were removed are counted as bad before the run ends.
    return not view.vanished(draft.now, 1)
