"""The partition map of a pipeline, which determines the ledger of each file. Pure.

Each ledger of a pipeline stores the map, with a version. A process uses a version only after writing the version into
all ledgers of the map, and a ledger refuses processes with another version. So two sites never assign one file to two
ledgers. A ledger accepts a newer map only if all of the ledger's files stay in that ledger.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.common.hashing import stable_hash

#: Times in file names, such as 2026-12-01, 20261201-17, 2026/12/01/17 or 2026-12-01T17:30.
_TIME: Final = re.compile(r"(?<!\d)(20\d\d)[-_./]?(\d\d)[-_./]?(\d\d)(?:[-_./T ]?(\d\d)(?:[-_.:]?(\d\d))?)?(?!\d)")


class Entry(Struct, frozen=True):
    """The ledgers for files born before `until`, in seconds since 1970; None means all later files."""

    urls: tuple[str, ...]
    until: float | None = None


def entries_of(setting: object) -> tuple[Entry, ...]:
    """Return the entries of a setting such as `[{until: "2026-12-01T17:00", urls: [a]}, {urls: [a, b]}]`.

    Times without a zone are UTC. Raises LedgerError if a file could belong to no entry or to two entries."""
    entries = []
    for one in setting if isinstance(setting, list | tuple) else (setting,):
        if not isinstance(one, Mapping):
            raise LedgerError(f"an entry of a partitioned ledger must be a map with until and urls, not {one!r:.100}")
        if unknown := one.keys() - {"until", "urls"}:
            raise LedgerError(f"an entry of a partitioned ledger can have only until and urls, not {sorted(unknown)}")
        urls = one.get("urls") or ()
        if isinstance(urls, str) or not urls or not all(isinstance(url, str) for url in urls):
            raise LedgerError(f"an entry of a partitioned ledger needs a list of different urls, not {urls!r:.200}")
        urls = tuple(urls)
        if len(set(urls)) != len(urls):
            raise LedgerError(f"an entry of a partitioned ledger needs different urls, not {list(urls)}")
        entries.append(Entry(urls, _seconds(one["until"]) if one.get("until") is not None else None))
    if not entries or entries[-1].until is not None:
        raise LedgerError("the last entry of a partitioned ledger must have no until: it covers all later files")
    ends = [entry.until for entry in entries[:-1]]
    if None in ends or ends != sorted(set(ends), key=lambda end: end or 0.0):
        raise LedgerError("all entries of a partitioned ledger except the last need an until, in ascending order")
    return tuple(entries)


def _seconds(text: object) -> float:
    try:
        when = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
    except ValueError:
        raise LedgerError(f"until {text!r} is not a time; write it as 2026-12-01T17:00") from None
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()


def birth_of(key: str) -> float:
    """Return the time in a file's key, in seconds since 1970 (UTC); 0 (the first entry) if the key has no time.

    The time depends only on the key, so all keepers on all sites assign a file to the same ledger.
    """
    for year, month, day, hour, minute in reversed(_TIME.findall(key)):
        for at in ((int(hour or 0), int(minute or 0)), (0, 0)):
            try:
                return datetime(int(year), int(month), int(day), *at, tzinfo=UTC).timestamp()
            except ValueError:
                continue  # an invalid hour may be the number of a rotation
    return 0.0


def url_of(entries: Sequence[Entry], key: str, birth: float) -> str:
    entry = next(one for one in entries if one.until is None or birth < one.until)
    return entry.urls[stable_hash(key) % len(entry.urls)]


class Partitions(Struct, frozen=True):
    """The partition map. `version` grows by one with each change; 0 means that a site proposes the map, because the
    ledgers have no map yet."""

    entries: tuple[Entry, ...]
    version: int = 0

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of all ledgers, without duplicates."""
        return tuple(dict.fromkeys(url for entry in self.entries for url in entry.urls))

    def to_json(self) -> str:
        """Return the map as JSON, the format that ledgers store."""
        return msgspec.json.encode(self).decode()

    def setting(self) -> list[dict[str, Any]]:
        """Return the map in the format of a setting; see `entries_of`."""
        times = [{"until": _text(one.until)} if one.until is not None else {} for one in self.entries]
        return [{**time, "urls": list(one.urls)} for time, one in zip(times, self.entries, strict=True)]

    def with_entry(self, urls: Sequence[str], since: str, now: float) -> Partitions:
        """Return the next version of the map, with other ledgers for files born at or after a given time.

        Raises LedgerError unless that time is after `now` (seconds since 1970), because files born between the two may
        already be in other ledgers.
        """
        begin = _seconds(since)
        if begin <= now:
            raise LedgerError(
                f"an entry for a past time cannot be added: {_text(begin)} is not after {_text(now)}, and files"
                " born in between may already be in other ledgers; give a later time"
            )
        last = self.entries[-2].until if len(self.entries) > 1 else None
        if last is not None and begin <= last:
            raise LedgerError(f"the last entry begins at {_text(last)}; give a later time")
        added = [*self.setting()[:-1], {"until": _text(begin), "urls": list(self.entries[-1].urls)}, {"urls": urls}]
        return Partitions(entries_of(added), self.version + 1)


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def partitions_of(text: str) -> Partitions:
    """Return the map from its text in a ledger. Raises LedgerError if the map is damaged."""
    try:
        return msgspec.json.decode(text, type=Partitions)
    except msgspec.MsgspecError as error:
        raise LedgerError(
            f"the partition map of the ledger is damaged ({error}); move the ledger away, and run: heron units rebuild"
        ) from None


def newest(known: str, given: str, keys: Iterable[str]) -> str:
    """Return the new map for a ledger that has the files `keys`; "" if there is no map.

    Raises LedgerError if one of the files would belong to another ledger.
    """
    if not known or not given:
        new = partitions_of(given) if given else None
        return known or (replace(new, version=max(1, new.version)).to_json() if new is not None else "")
    old, new = partitions_of(known), partitions_of(given)
    if new.version <= old.version:
        return known
    for key in keys:
        if url_of(new.entries, key, birth_of(key)) != url_of(old.entries, key, birth_of(key)):
            raise LedgerError(
                f"the ledger already has {key!a}, which would belong to another ledger in version {new.version} of"
                " the partition map: give a later time; if other ledgers already have that version, kill the"
                " topologies, and run: heron units rebuild"
            )
    return given
