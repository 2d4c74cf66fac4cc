"""Opens the store of a ledger by its URL: `sqlite:/folder/file` or `postgresql://user@host/database`."""

from __future__ import annotations

from pathlib import Path

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger.sqlite import SqliteStore
from heronpy.ingest.ledger.store import Store


def open_store(url: str, must_exist: bool = False) -> Store:
    """The store, which connects at its first call; LedgerError for a URL that cannot be one.

    `must_exist`: LedgerError rather than a new file, for who only looks.
    """
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "sqlite":
        path = Path(rest.removeprefix("//")) if rest.startswith("///") else Path(rest)
        if not path.is_absolute() or (rest.startswith("//") and not rest.startswith("///")):
            raise LedgerError(f"{url!r} does not name a file; write sqlite:/folder/ledger.db")
        if must_exist and not path.exists():
            raise LedgerError(
                f"there is no ledger {path}; name another one by --ledger, or make a lost one anew from its table:"
                " heron units rebuild"
            )
        return SqliteStore(path)
    if colon and scheme in ("postgresql", "postgres"):
        from heronpy.ingest.ledger.postgres import PostgresStore  # psycopg is an extra

        return PostgresStore(url)
    shown = scheme if colon else "without one"
    raise LedgerError(f"a ledger is at sqlite:/folder/file or postgresql://user@host/database, and not {shown!a}")
