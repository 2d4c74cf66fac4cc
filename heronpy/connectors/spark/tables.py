"""The output of batches in tables: staging, publishing and retracting folders or objects.

A table is a folder, or a place in an object store. A batch is `batch=<id>` in the table; undecided output is below
`_staging`, which readers skip. In a folder a batch appears by one rename. In an object store it is one object, so it
also appears as a whole. Several gateways may publish the same decision with the same result.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from pathlib import Path

from heronpy.common.errors import ConfigError
from heronpy.common.folders import sync_path
from heronpy.storage.objects.port import MissingObjectError, Objects
from heronpy.storage.objects.url import Url, is_url, place_of

STAGING = "_staging"
#: File, in a dispatch's published folder, with the bytes from which its rows were made, and its token.
LINEAGE = "_batch.json"
#: The name of the only file of a batch in an object store.
PART = "part-00000.parquet"
#: Seconds for which a request to an object store is repeated.
PATIENCE_S = 20.0
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


def publish(tables: list[list[str]]) -> None:
    """Make staged output visible; idempotent. Calling it again completes an interrupted call."""
    for staged, published in tables:
        if is_url(staged):
            _publish_object(staged, published)
        else:
            _publish_folder(Path(staged), Path(published))


def _publish_folder(staged: Path, published: Path) -> None:
    try:
        _move(staged, published)
    except FileNotFoundError:
        # This process or another gateway has already published it.
        if not published.is_dir():
            raise _gone(staged, published.parent) from None
        return
    sync_path(published.parent)
    remove_if_empty(staged.parent)


def _move(staged: Path, published: Path) -> None:
    try:
        os.rename(staged, published)
        return
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
    # Output of this batch from an earlier submission. Its new name comes from this decision, so that only the first
    # of several gateways moves it away.
    old = staged.with_name(f"{staged.name}.old")
    try:
        os.rename(published, old)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
    os.rename(staged, published)
    shutil.rmtree(old, ignore_errors=True)


def publish_once(tables: list[list[str]], token: int) -> None:
    """Make a dispatch's staged output visible; output that already exists is kept.

    Raises ConfigError if the existing output has the token of another dispatch.
    """
    for staged, published in tables:
        if is_url(staged):
            _publish_object(staged, published)
            continue
        source, target = Path(staged), Path(published)
        try:
            os.rename(source, target)
        except FileNotFoundError:
            if lineage_token(target) != token:
                raise _gone(source, target.parent) from None
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            if lineage_token(target) != token:
                raise ConfigError(
                    f"{target} exists and contains other rows: the ledger is newer than the table; run 'heron units"
                    " rebuild', or write to another table"
                ) from None
            shutil.rmtree(source, ignore_errors=True)
        sync_path(target.parent)
        remove_if_empty(source.parent)


def unpublish_own(tables: list[list[str]], token: int) -> None:
    """Remove the staged and published output of an abandoned dispatch, but not the output of other dispatches."""
    for staged, published in tables:
        if is_url(staged):
            unpublish([[staged, published]])
            continue
        shutil.rmtree(staged, ignore_errors=True)
        remove_if_empty(Path(staged).parent)
        if lineage_token(Path(published)) == token:
            shutil.rmtree(published, ignore_errors=True)


def lineage_token(folder: Path) -> int | None:
    """Return the token of the rows in a dispatch's folder; None if the folder has no token."""
    try:
        return int(json.loads((folder / LINEAGE).read_bytes())["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _publish_object(staged: str, published: str) -> None:
    table, staged_key, published_key = _keys(staged, published)
    try:
        data = table.get(staged_key)
    except MissingObjectError:
        if table.head(published_key) is None:
            raise _gone(staged, table.name) from None
        return
    table.put(published_key, data)
    table.delete([staged_key])


def unpublish(tables: list[list[str]]) -> None:
    """Remove the staged and published output of a void batch."""
    for staged, published in tables:
        if is_url(staged):
            table, *keys = _keys(staged, published)
            table.delete(keys)
        else:
            # Staged output is removed first: a concurrent publisher then finds nothing, or has moved the output, which
            # is removed next.
            shutil.rmtree(staged, ignore_errors=True)
            shutil.rmtree(published, ignore_errors=True)


def stage_object(staged: str, data: memoryview | bytes) -> None:
    """Write the only file of a batch to its staging place."""
    place = place_of(staged)
    assert isinstance(place, Url)
    table_objects(place.parent.parent).put(f"{STAGING}/{place.name}/{PART}", data)


def table_objects(table: Url) -> Objects:
    from heronpy.storage.objects.opening import open_objects  # only tables in object stores need it

    return open_objects(table, PATIENCE_S)


def drop_staged(table: Path | Url, batch_id: str, mark: str = "", keep: str = "") -> None:
    """Remove the output of attempts at a batch from a table's staging folder.

    Affects only attempts whose last name part begins with `mark`, and never the attempt named `keep`.
    """

    def is_doomed(name: str) -> bool:
        head, _, attempt = name.rpartition("-")
        return head == batch_id and attempt.startswith(mark) and name != keep

    if isinstance(table, Url):
        objects = table_objects(table)
        found = objects.list(STAGING).objects
        objects.delete([key for key in found if is_doomed(key.split("/")[1])])
        return
    staging = table / STAGING
    try:
        names = os.listdir(staging)
    except FileNotFoundError:
        return
    for name in filter(is_doomed, names):
        shutil.rmtree(staging / name, ignore_errors=True)
    remove_if_empty(staging)


def remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # Other batches are staged there.
        folder.rmdir()


def _keys(staged: str, published: str) -> tuple[Objects, str, str]:
    """Return the table of a pair [staged, published], and the keys of its two objects."""
    first, last = place_of(staged), place_of(published)
    assert isinstance(first, Url) and isinstance(last, Url)
    return table_objects(last.parent), f"{STAGING}/{first.name}/{PART}", f"{last.name}/{PART}"


def _gone(staged: Path | str, table: Path | str) -> ConfigError:
    return ConfigError(f"staged files {staged} are missing; another program is removing files from table {table}")
