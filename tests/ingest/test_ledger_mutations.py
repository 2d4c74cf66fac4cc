"""The random sequences find bugs that are planted in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import finishing, machine, requests
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.types import Span, SpanState, Unit
from tests.ingest.ledger_world import run
from tests.support.memory_ledger import MemoryStore

SEEDS = 60


def _handled(monkeypatch: pytest.MonkeyPatch, kind: type, bug: Callable[..., Any]) -> None:
    monkeypatch.setitem(machine._HANDLERS, kind, bug)


def commit_without_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(draft: Draft, request: requests.Commit, who: requests.Who) -> requests.Committed:
        return finishing.commit(draft, replace(request, generation=draft.pipeline.generation), who)

    _handled(monkeypatch, requests.Commit, commit)


def published_without_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    def published(draft: Draft, request: requests.Published, who: requests.Who) -> requests.Settled:
        return finishing.published(draft, replace(request, generation=draft.pipeline.generation), who)

    _handled(monkeypatch, requests.Published, published)


def publish_before_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def published(draft: Draft, request: requests.Published, who: requests.Who) -> requests.Settled:
        units = [unit for number in request.units if (unit := draft.get(Unit, number)) is not None]
        draft.settle(units)
        return requests.Settled(len(units))

    _handled(monkeypatch, requests.Published, published)


def two_winners(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(draft: Draft, request: requests.Commit, who: requests.Who) -> requests.Committed:
        answer = finishing.commit(draft, request, who)
        return requests.Committed() if answer.lost is requests.Lost.OTHER_WON else answer

    _handled(monkeypatch, requests.Commit, commit)


def no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = machine.handle
    monkeypatch.setattr(machine, "handle", lambda view, request, who, number, now: handle(view, request, who, 0, now))


def merge_across_files(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = Draft._merge

    def merged(self: Draft, file: int, spans: dict[int, Span]) -> None:
        merge(self, 1, spans)

    monkeypatch.setattr(Draft, "_merge", merged)


def no_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(self: Draft, file: int, spans: dict[int, Span]) -> None:
        for span in spans.values():
            self.put(replace(span, state=SpanState.DONE, unit=0))

    monkeypatch.setattr(Draft, "_merge", settle)


def bad_line_of_the_wrong_size(monkeypatch: pytest.MonkeyPatch) -> None:
    make_bad = Draft.make_bad

    def wrong(self: Draft, pieces: Any, *rest: Any) -> None:
        make_bad(self, [(file, begin, end - 1) for file, begin, end in pieces], *rest)

    monkeypatch.setattr(Draft, "make_bad", wrong)


@pytest.mark.parametrize(
    "bug",
    [
        commit_without_generation,
        published_without_generation,
        publish_before_the_record,
        two_winners,
        no_numbers,
        merge_across_files,
        no_merge,
        bad_line_of_the_wrong_size,
    ],
)
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in range(SEEDS):
        try:
            run([MemoryStore()], "p", seed)
        except (AssertionError, LedgerError):
            return
    pytest.fail(f"{bug.__name__} was not found in {SEEDS} sequences")


def test_without_a_bug_nothing_is_found() -> None:
    for seed in range(20):
        run([MemoryStore()], "p", seed)
