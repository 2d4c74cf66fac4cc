"""The single entry point of a ledger's decisions: `(view, request, now) -> (changes, answer)`. Pure.

`validate` checks these invariants: The spans of a file partition `[0, cut)`, and `cut <= size`. A byte is in at most
one live unit, whose chunks are its spans. One attempt of a unit wins. Published bytes are done, and done bytes are
published. Counts are derived from rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from heronpy.common.errors import LedgerError, MovedLedgerError
from heronpy.ingest.ledger import (
    beginning,
    commands,
    failing,
    finishing,
    given,
    leasing,
    policy,
    requests,
    tracking,
    users,
)
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.partitions import partitions_of
from heronpy.ingest.ledger.requests import Request, Who
from heronpy.ingest.ledger.store import Changes, View
from heronpy.ingest.ledger.types import TEXT_MAX, Answer, Client

A = TypeVar("A")

_HANDLERS: dict[type[Request[Any]], Callable[[Draft, Any, Who], Any]] = {
    requests.Open: beginning.open_pipeline,
    commands.Rebuild: beginning.rebuild,
    requests.ShowAlive: users.show_alive,
    requests.ListFiles: tracking.list_files,
    requests.ReportScan: tracking.report,
    requests.Cut: tracking.cut,
    requests.Collect: tracking.collect,
    requests.EnterList: given.enter_list,
    requests.TakeFiles: given.take_files,
    requests.Redo: given.redo,
    requests.Lease: leasing.lease,
    requests.GiveBack: leasing.give_back,
    requests.Leave: leasing.leave,
    requests.Commit: finishing.commit,
    requests.TryFailed: failing.try_failed,
    requests.SplitAt: failing.split_at,
    requests.ListFinished: finishing.list_finished,
    requests.Published: finishing.published,
    requests.MakeDispatch: finishing.make_dispatch,
    requests.Dispatched: finishing.dispatched,
    requests.DispatchFailed: finishing.dispatch_failed,
    requests.WhichLive: finishing.which_live,
    commands.Show: users.show,
    commands.ListUnits: users.list_units,
    commands.ListBad: users.list_bad,
    commands.ListDispatches: users.list_dispatches,
    commands.RetryBad: users.retry_bad,
    commands.RetryFailed: users.retry_failed,
    commands.SetSite: users.set_site,
    commands.ForgetSite: users.forget_site,
    commands.Pause: users.pause,
}
#: Requests that change nothing.
READS: Final[tuple[type[Request[Any]], ...]] = (
    *(requests.ListFiles, requests.ListFinished, requests.WhichLive),
    *(commands.Show, commands.ListUnits, commands.ListBad, commands.ListDispatches),
)
#: Idempotent requests. They need no number, because the answer to a repetition is also correct.
UNNUMBERED: Final[tuple[type[Request[Any]], ...]] = (
    *READS,
    *(requests.Open, requests.ShowAlive, requests.ReportScan, requests.Cut, requests.Published),
    *(requests.MakeDispatch, requests.Dispatched, requests.DispatchFailed, requests.Collect, requests.Leave),
    *(requests.EnterList, requests.TakeFiles, requests.Redo),
)
#: Requests that a power failure may undo, together with all processes of the host. A later process repeats them.
#: Nothing outside the ledger depends on them until another request is on disk, and then all earlier requests are on
#: disk too. Rows of a lease count only after `Commit`. Cuts and reports are repeated from the files. Published units
#: are found in the table.
UNDONE: Final[tuple[type[Request[Any]], ...]] = (
    *(requests.ShowAlive, requests.ReportScan, requests.Cut, requests.Lease, requests.Published),
)
#: The types of answers that are stored.
_KEPT = {
    kind.__name__: kind
    for kind in (
        *(requests.Work, requests.Halve, requests.Idle, requests.Returned, requests.Committed, requests.Again),
        *(requests.Bad, requests.Taken, requests.Failed, commands.Retried, commands.SiteSet, requests.Alive),
        *(commands.Rebuilt, commands.SiteForgotten),
    )
}


def handle(view: View, request: Request[A], who: Who, number: int, now: float) -> tuple[Changes, A]:
    """Carry out a process's request; `number` is 0 for an idempotent request.

    Raises LedgerError for an invalid request, which changes nothing.
    """
    if len(who.name) > TEXT_MAX or "#" in who.task:
        raise LedgerError(f"a task name must contain no # and at most {TEXT_MAX} characters: {who.task[:100]!a}")
    draft = Draft(view, now)
    if not isinstance(request, (requests.Open, commands.Rebuild)):
        _ = draft.pipeline  # raises LedgerError for an unknown pipeline
    if number:
        kept = draft.get(Answer, who.name)
        if kept is not None and kept.number >= number:
            if kept.number > number:
                raise LedgerError(f"request {number} of {who.name} arrived after its request {kept.number}")
            return Changes(), _decoded(kept.text)
    if who.partitions >= 0 and not isinstance(request, (requests.Open, commands.Rebuild, requests.Leave)):
        known = draft.pipeline.partitions
        if known and partitions_of(known).version != who.partitions:
            raise MovedLedgerError("the partition map of the pipeline has changed; the task reopens its ledgers")
    answer: A = _HANDLERS[type(request)](draft, request, who)
    if isinstance(request, READS) or (isinstance(request, commands.Rebuild) and request.trial):
        return Changes(), answer
    changed = not draft.is_empty
    if not isinstance(request, requests.Leave):
        _note(draft, request, who, changed)
    if number and changed:
        draft.put(Answer(who.name, number, _encoded(answer)))
    return draft.changes(), answer


def _note(draft: Draft, request: Request[Any], who: Who, changed: bool) -> None:
    """Record the time of the client's request."""
    known, now = draft.get(Client, who.name), draft.now
    if known is None:
        draft.put(Client(who.name, who.task, who.kind, who.site, who.container, now))
    elif changed or isinstance(request, requests.ShowAlive) or now - known.seen >= _seen_each_s(draft):
        draft.put(replace(known, seen=max(now, known.seen)))


def _seen_each_s(draft: Draft) -> float:
    return draft.config.silent_s / policy.SEEN_IN_SILENCE


def _encoded(answer: object) -> str:
    return msgspec.json.encode([type(answer).__name__, answer]).decode()


def _decoded(text: str) -> Any:
    try:
        name, raw = msgspec.json.decode(text, type=tuple[str, msgspec.Raw])
        return msgspec.json.decode(raw, type=_KEPT[name])
    except (KeyError, msgspec.MsgspecError) as error:
        raise LedgerError(
            f"the ledger contains a damaged answer ({error!r}); restart this task to repeat its request"
        ) from None
