"""Opens the ledgers that a setting names: one URL, or entries for several ledgers, as JSON or Python values."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from math import inf
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from heronpy.common.errors import LedgerError, NoPipelineError
from heronpy.ingest.ledger.beginning import keys_of, other_files
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.commands import Rebuild
from heronpy.ingest.ledger.looking import waited_for
from heronpy.ingest.ledger.partitioned import PartitionedLedger
from heronpy.ingest.ledger.partitions import Entry, Partitions, entries_of, newest, partitions_of
from heronpy.ingest.ledger.requests import Open, Opened, Request, Who
from heronpy.ingest.ledger.sqlite import SqliteStore
from heronpy.ingest.ledger.store import Changes, Store, View
from heronpy.ingest.ledger.types import Answer, Client, Config, Pipeline, Row, Site

A = TypeVar("A")

#: Name of a ledger that does not exist yet.
NEW = "(new)"
_CLIENTS_MAX = 1 << 20
#: The user's value: a URL, or the entries of several ledgers.
Setting = str | Sequence[Mapping[str, Any]]


def open_store(url: str, must_exist: bool = False) -> Store:
    """Return the store, which connects at its first call. Raises LedgerError for an invalid URL.

    `must_exist`: for readers, raise LedgerError instead of creating a file.
    """
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "sqlite":
        path = Path(rest.removeprefix("//")) if rest.startswith("///") else Path(rest)
        if not path.is_absolute() or (rest.startswith("//") and not rest.startswith("///")):
            raise LedgerError(f"{url!r} does not name a file; write sqlite:/folder/ledger.db")
        if must_exist and not path.exists():
            raise LedgerError(
                f"there is no ledger {path}; name another ledger with --ledger, or rebuild a lost ledger from its"
                " table: heron units rebuild"
            )
        return SqliteStore(path)
    if colon and scheme in ("postgresql", "postgres"):
        from heronpy.ingest.ledger.postgres import PostgresStore  # psycopg is an extra

        return PostgresStore(url)
    shown = f"not {scheme!a}" if colon else "but this URL has no scheme"
    raise LedgerError(f"the URL of a ledger is sqlite:/folder/file or postgresql://user@host/database, {shown}")


def text_of(given: Setting) -> str:
    """Return the setting as one string, checked without connecting. Raises LedgerError for an invalid setting."""
    text = given if isinstance(given, str) else json.dumps(list(given), default=str)
    for url in urls_of(text):
        open_store(url).close()  # connects only at its first call
    return text


def urls_of(text: str) -> tuple[str, ...]:
    """Return the distinct URLs of all ledgers that a setting names."""
    entries = _entries(text)
    return (text,) if entries is None else tuple(dict.fromkeys(url for entry in entries for url in entry.urls))


def _entries(text: str) -> tuple[Entry, ...] | None:
    """Return the entries of a setting; None if the setting is one URL."""
    if not text.lstrip().startswith("["):
        return None
    try:
        return entries_of(json.loads(text))
    except ValueError as error:
        raise LedgerError(
            f"the ledgers are not valid JSON ({error}); write them as"
            ' [{"until": "2026-12-01T17:00", "urls": ["sqlite:/a.db"]}, {"urls": ["sqlite:/a.db", "sqlite:/b.db"]}]'
        ) from None


class Reached:
    """One process's access to the ledgers of one pipeline."""

    def __init__(
        self, text: str, pipeline: str, who: Who, only: Mapping[str, Store] | None = None, version: int = 0
    ) -> None:
        """`text`: a result of `text_of`. The object connects at the first request, which is `Open` or `Rebuild`; from
        then on, `text` is the partition map of the ledgers.

        `only`: the ledgers that have the pipeline, for a client that sends no `Open`. `version`: the map's version.
        """
        self.text = text
        self._pipeline, self._who, self._version = pipeline, who, version
        self._stores = dict(only) if only is not None else {url: open_store(url) for url in urls_of(text)}
        self._ledger: Ledger | PartitionedLedger
        entries = _entries(text)
        if entries is None:
            self._ledger = Ledger(self._store(text), pipeline, who)
            return
        self._ledger = PartitionedLedger(entries, self._store, pipeline, who, tuple(self._stores), version)
        if only is not None:
            self._ledger.join()

    @classmethod
    def existing(cls, text: str, pipeline: str, who: Who) -> Reached:
        """Return the access for reads and repairs. Unused entries are ignored.

        Raises NoPipelineError if no ledger has the pipeline, and LedgerError if there is no ledger.
        """
        with ExitStack() as opened:
            names, having, partitions = _having(text, pipeline, opened)
            if not having:
                known = f"its pipelines are {', '.join(sorted(names))}" if names else "it has no pipelines yet"
                raise NoPipelineError(f"the ledger {text} has no pipeline {pipeline!r}; {known}")
            reached = cls(_text(partitions) or text, pipeline, who, having, partitions.version)
            opened.pop_all()
        return reached

    @classmethod
    def to_rebuild(cls, text: str, pipeline: str, who: Who) -> Reached:
        """Return the access to all ledgers of a pipeline, as listed in a ledger that still exists, else in `text`."""
        with ExitStack() as opened, suppress(LedgerError):
            _, _, partitions = _having(text, pipeline, opened)
            return cls(_text(partitions) or text, pipeline, who, version=partitions.version)
        return cls(text, pipeline, who)

    @property
    def partitions(self) -> Partitions:
        """The partition map; version 0 if the map is still unknown because no `Open` was sent."""
        if isinstance(self._ledger, PartitionedLedger):
            return self._ledger.partitions
        return Partitions((Entry((self.text,)),), self._version)

    def ask(self, request: Request[A]) -> A:
        if isinstance(request, Open | Rebuild) and isinstance(self._ledger, Ledger):
            alone = replace(self.partitions, version=max(self._version, int(isinstance(request, Rebuild))))
            request = cast("Request[A]", replace(request, partitions=alone.to_json()))
        answer = self._ledger.ask(request)
        if isinstance(answer, Opened):
            found = partitions_of(answer.partitions)
            if isinstance(self._ledger, Ledger):
                if found.urls != (self.text,):
                    known = {self.text: self._ledger}
                    self._ledger = PartitionedLedger(
                        found.entries, self._store, self._pipeline, self._who, version=found.version, known=known
                    )
                    return self.ask(request)
                self._ledger.follow(found.version)
            self.text, self._version = _text(found), found.version
        return answer

    def add_entry(self, urls: Sequence[str], since: str, now: float) -> Partitions:
        """Set the ledgers for files born at or after a given time; see `Partitions.with_entry`.

        Every process of the pipeline uses the new map at its next request."""
        config = next(
            msgspec.json.decode(found.config, type=Config)
            for store in self._stores.values()
            if (found := _pipeline_in(store, self._pipeline)) is not None
        )
        opening = Open(config, ledger=os.urandom(16).hex())
        self.ask(opening)  # all ledgers have the current map
        changed = self.partitions.with_entry(urls, since, now)
        self._refuse_change(changed)
        PartitionedLedger(changed.entries, self._store, self._pipeline, self._who, version=changed.version).ask(opening)
        return changed

    def _refuse_change(self, changed: Partitions) -> None:
        """Raise LedgerError if one of the ledgers would refuse the map, so that no ledger gets it."""
        given = changed.to_json()
        for url in changed.urls:
            open_store(url).close()
            if url in self.partitions.urls:
                self._store(url).transact(
                    self._pipeline,
                    lambda view, now: (Changes(), newest(self.partitions.to_json(), given, keys_of(view))),
                )
            elif _has(url, self._pipeline):
                raise LedgerError(f"{url} already contains a different pipeline {self._pipeline!r}; use another ledger")

    def _store(self, url: str) -> Store:
        if url not in self._stores:
            self._stores[url] = open_store(url)
        return self._stores[url]

    def snapshot(self) -> tuple[Row, ...]:
        """Return all rows of the pipeline, ledger by ledger; the rows of a ledger begin with its `Pipeline`."""
        return tuple(row for store in self._stores.values() for row in store.snapshot(self._pipeline))

    def close(self) -> None:
        """Close all ledgers; idempotent."""
        for store in self._stores.values():
            store.close()


def not_used(text: str, partitions: str) -> str:
    """Return a sentence that reports an ignored setting; "" if the setting is used."""
    given, found = _entries(text) or (Entry((text,)),), partitions_of(partitions)
    if given == found.entries:
        return ""
    return (
        f"the ledgers of this pipeline are {_text(found)}, according to version {found.version} of its partition map;"
        " the ledgers in its settings are ignored. To change the map, run: heron units partition"
    )


def _text(partitions: Partitions) -> str:
    """Return the entries in the format of `text_of`; "" if there are no entries."""
    alone = len(partitions.urls) == 1
    return partitions.urls[0] if alone else json.dumps(partitions.setting()) if partitions.urls else ""


def _having(text: str, pipeline: str, opened: ExitStack) -> tuple[set[str], dict[str, Store], Partitions]:
    """Return the pipelines of the existing ledgers, the ledgers that have this pipeline, and its newest partition map.

    The ledgers are closed when `opened` exits. Ledgers that only a map names are included.
    """
    names: set[str] = set()
    having: dict[str, Store] = {}
    partitions = Partitions(())
    ahead = dict(_existing(text))
    while ahead:
        url = next(iter(ahead))
        store = having[url] = ahead.pop(url)
        opened.callback(store.close)
        names.update(store.pipelines())
        row = _pipeline_in(store, pipeline)
        if row is None:
            del having[url]
            continue
        known = partitions_of(row.partitions) if row.partitions else partitions
        if known.version > partitions.version:
            partitions = known
            for more in known.urls:
                if more not in having and more not in ahead:
                    with suppress(LedgerError):
                        ahead[more] = open_store(more, must_exist=True)
    return names, having, partitions


def _has(url: str, pipeline: str) -> bool:
    try:
        store = open_store(url, must_exist=True)
    except LedgerError:
        return False
    with closing(store):
        return _pipeline_in(store, pipeline) is not None


def _pipeline_in(store: Store, pipeline: str) -> Pipeline | None:
    return store.transact(pipeline, lambda view, now: (Changes(), view.get(Pipeline)))


def pipelines_of(text: str) -> tuple[str, ...]:
    """Return the names of the pipelines in an existing ledger, sorted."""
    names: set[str] = set()
    for _, store in _existing(text):
        with closing(store):
            names.update(store.pipelines())
    return tuple(sorted(names))


def forget_pipelines(url: str, token: str) -> None:
    """Remove from an existing ledger all pipelines whose names end with a token."""
    with closing(open_store(url, must_exist=True)) as store:
        for name in store.pipelines():
            if name.endswith(token):
                store.transact(name, _everything)


def _everything(view: View, now: float) -> tuple[Changes, None]:
    clients = [(kind, (one.name,)) for one in view.silent(inf, _CLIENTS_MAX) for kind in (Client, Answer)]
    return Changes(drops=(*clients, *((Site, (one.name,)) for one in view.sites())), wipe=True), None


def afters_of(text: str) -> dict[str, tuple[str, ...]]:
    """Return a map from each pipeline in the existing ledgers to the pipelines for which it waits."""
    found: dict[str, tuple[str, ...]] = {}
    for _, store in _existing(text):
        with closing(store):
            names = store.pipelines()
            if names:
                configs = store.transact(names[0], lambda view, now: (Changes(), view.configs()))
                found |= {name: waited_for(one) for name, one in configs.items()}
    return found


def refuse(text: str, pipeline: str, pattern: str) -> str:
    """Raise LedgerError if this pipeline cannot use a ledger on this host; change nothing.

    For a ledger on another host, workers and keepers report the errors. Returns the name of the ledger (see
    `Pipeline.ledger`): `NEW` for a new ledger, "" if the name is unknown here.
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
    """Return the existing ledgers of a setting. Raises LedgerError if none exists."""
    found, missing = [], None
    for url in urls_of(text):
        try:
            found.append((url, open_store(url, must_exist=True)))
        except LedgerError as error:
            missing = error
    if not found and missing is not None:
        raise missing
    return found
