"""What commands have done: retries, sites, pauses, rebuilds. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.ingest.ledger.requests.base import Request
from heronpy.ingest.ledger.requests.joining import Alive
from heronpy.ingest.ledger.types import Config


@dataclass(frozen=True, slots=True)
class Retried:
    """`more`: ask again. `dispatches`: the new ones that have the units of failed ones."""

    units: tuple[int, ...]
    more: bool
    dispatches: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RetryBad(Request[Retried]):
    """Make units of bad ranges: of all, or of those found below one root unit, at most `limit` ranges."""

    root: int | None = None
    limit: int = 1_000


@dataclass(frozen=True, slots=True)
class RetryFailed(Request[Retried]):
    """Failed units, or one of them, are tried again from the start.

    Without `unit` those of failed dispatches go to Spark again, in a dispatch of another id: nothing of the failed one
    can be published any more.
    """

    unit: int | None = None
    limit: int = 1_000


@dataclass(frozen=True, slots=True)
class SiteSet:
    """`freed`: units that others may take at once."""

    freed: int


@dataclass(frozen=True, slots=True)
class SetSite(Request[SiteSet]):
    """Down: no leases on that site, and what it holds is ready at once."""

    site: str
    up: bool


@dataclass(frozen=True, slots=True)
class SiteForgotten:
    """`more`: ask again."""

    files: int
    more: bool


@dataclass(frozen=True, slots=True)
class ForgetSite(Request[SiteForgotten]):
    """A site that will not come back: its copies of at most `limit` files are forgotten, as if they were gone there.

    LedgerError while processes of it are seen.
    """

    site: str
    limit: int = 1_000


@dataclass(frozen=True, slots=True)
class Pause(Request[Alive]):
    """No cuts and no leases, or both again; what is leased is committed and published."""

    paused: bool


@dataclass(frozen=True, slots=True)
class FoundRange:
    """A range in the lineage of an output, or in a bad record; `source` names the unit in an error."""

    begin: int
    end: int
    source: str
    error: str = ""
    tries: int = 0
    root: int = 0


@dataclass(frozen=True, slots=True)
class FoundFile:
    key: str
    generation: int
    head: str
    done: tuple[FoundRange, ...]
    bad: tuple[FoundRange, ...] = ()
    #: See `SeenFile.birth`.
    birth: float = 0.0


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """`units`: made of the holes. From now on every name of an output begins with this generation."""

    generation: int
    files: int
    units: int
    done_bytes: int
    bad_bytes: int


@dataclass(frozen=True, slots=True)
class Rebuild(Request[Rebuilt]):
    """Forget all and begin with what was found; the one transaction that is as large as the ledger.

    `at_least`: above the highest generation that was found. LedgerError while workers are seen, or when two published
    ranges overlap: it names both units. `trial`: only say that, or which generation it would be; nothing changes.
    """

    config: Config
    files: tuple[FoundFile, ...]
    at_least: int = 1
    part: int = 0
    trial: bool = False
    #: See `Pipeline`: the random name of what is made, and its partition map.
    ledger: str = ""
    partitions: str = ""
