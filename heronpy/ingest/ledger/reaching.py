"""Reaches the ledger that a setting names: one by its URL, or several by entries, as JSON or as Python has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, TypeVar

import msgspec

from heronpy.common.errors import LedgerError, NoPipelineError
from heronpy.ingest.ledger.beginning import other_files
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.looking import waited_for
from heronpy.ingest.ledger.opening import open_store
from heronpy.ingest.ledger.partitioned import Entry, PartitionedLedger, entries_of
from heronpy.ingest.ledger.requests import Request, Who
from heronpy.ingest.ledger.sqlite import SqliteStore
from heronpy.ingest.ledger.store import Changes, Store
from heronpy.ingest.ledger.types import Config, Row

A = TypeVar("A")

#: Stands for the name of a ledger that has not begun.
NEW = "(new)"
#: What a user gives: a URL, or the entries of several ledgers.
Setting = str | Sequence[Mapping[str, Any]]


def text_of(given: Setting) -> str:
    """The setting as one text, checked without connecting; LedgerError for one that cannot work."""
    text = given if isinstance(given, str) else json.dumps(list(given), default=str)
    for url in urls_of(text):
        open_store(url).close()  # it connects at its first call only
    return text


def urls_of(text: str) -> tuple[str, ...]:
    """The URLs of all ledgers of a setting, each once."""
    entries = _entries(text)
    return (text,) if entries is None else tuple(dict.fromkeys(url for entry in entries for url in entry.urls))


def _entries(text: str) -> tuple[Entry, ...] | None:
    """None: it is one URL."""
    if not text.lstrip().startswith("["):
        return None
    try:
        return entries_of(json.loads(text))
    except ValueError as error:
        raise LedgerError(
            f"the ledgers are no JSON ({error}); write them as"
            ' [{"until": "2026-12-01T17:00", "urls": ["sqlite:/a.db"]}, {"urls": ["sqlite:/a.db", "sqlite:/b.db"]}]'
        ) from None


class Reached:
    """The ledger of one pipeline as one process asks it."""

    def __init__(self, text: str, pipeline: str, who: Who, only: Mapping[str, Store] | None = None) -> None:
        """`text`: as `text_of` gives it. It connects at the first request, which is `Open` or `Rebuild`.

        `only`: the ledgers that have the pipeline, for who does not begin like that.
        """
        self._stores = dict(only) if only is not None else {url: open_store(url) for url in urls_of(text)}
        self._pipeline = pipeline
        entries = _entries(text)
        self._ledger: Ledger | PartitionedLedger
        if entries is None:
            self._ledger = Ledger(self._stores[text], pipeline, who)
            return
        self._ledger = PartitionedLedger(entries, self._stores.__getitem__, pipeline, who, self._stores)
        if only is not None:
            self._ledger.join()

    @classmethod
    def existing(cls, text: str, pipeline: str, who: Who) -> Reached:
        """For who only looks or mends: NoPipelineError when no ledger has the pipeline, LedgerError when there is no
        ledger. An entry that nobody has used yet has nothing to say."""
        names: set[str] = set()
        having: dict[str, Store] = {}
        with ExitStack() as opened:
            for url, store in _existing(text):
                opened.callback(store.close)
                found = store.pipelines()
                names.update(found)
                if pipeline in found:
                    having[url] = store
            if not having:
                known = f"it has {', '.join(sorted(names))}" if names else "it has none yet"
                raise NoPipelineError(f"the ledger {text} has no pipeline {pipeline!r}; {known}")
            reached = cls(text, pipeline, who, having)
            opened.pop_all()
        return reached

    def ask(self, request: Request[A]) -> A:
        """See `Ledger.ask`."""
        return self._ledger.ask(request)

    def snapshot(self) -> tuple[Row, ...]:
        """All rows of the pipeline, those of one ledger after the other; each begins with its `Pipeline`."""
        return tuple(row for store in self._stores.values() for row in store.snapshot(self._pipeline))

    def close(self) -> None:
        """Idempotent."""
        for store in self._stores.values():
            store.close()


def pipelines_of(text: str) -> tuple[str, ...]:
    """The pipelines of a ledger that is there, by name."""
    names: set[str] = set()
    for _, store in _existing(text):
        with closing(store):
            names.update(store.pipelines())
    return tuple(sorted(names))


def afters_of(text: str) -> dict[str, tuple[str, ...]]:
    """What each pipeline of a ledger that is there waits for."""
    found: dict[str, tuple[str, ...]] = {}
    for _, store in _existing(text):
        with closing(store):
            names = store.pipelines()
            if names:
                configs = store.transact(names[0], lambda view, now: (Changes(), view.configs()))
                found |= {name: waited_for(one) for name, one in configs.items()}
    return found


def refuse(text: str, pipeline: str, pattern: str) -> str:
    """LedgerError when this pipeline cannot use a ledger of this host, before anything starts; nothing is changed.

    A ledger on another host says it itself, to workers and keepers. Returns the name of the ledger, see
    `Pipeline.ledger`: `NEW` when it has none yet, "" when that is not known here.
    """
    names = set()
    for url in urls_of(text):
        with closing(open_store(url)) as store:
            found = store.look() if isinstance(store, SqliteStore) else None
            if found is None:
                names.add("")
            elif pipeline in found:
                config, name = found[pipeline]
                names.add(name)
                known = msgspec.json.decode(config, type=Config).pattern
                if known != pattern:
                    raise LedgerError(other_files(known, pattern))
    return names.pop() if len(names) == 1 else "" if names else NEW


def _existing(text: str) -> Iterable[tuple[str, Store]]:
    """The ledgers of a setting that are there; LedgerError when none is."""
    found, missing = [], None
    for url in urls_of(text):
        try:
            found.append((url, open_store(url, must_exist=True)))
        except LedgerError as error:
            missing = error
    if not found and missing is not None:
        raise missing
    return found
