"""How a process joins a pipeline, and shows that it lives. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.ingest.ledger.requests.base import Request
from heronpy.ingest.ledger.types import PART, Config


@dataclass(frozen=True, slots=True)
class Given:
    """How far one ledger is: the id of its next unit."""

    generation: int
    next_unit: int


@dataclass(frozen=True, slots=True)
class Opened:
    """`config` is the one that holds from now on. `made`: the id of the next file of each ledger. `given`: how far each
    of them is."""

    generation: int
    config: Config
    part: int = 0
    made: tuple[int, ...] = ()
    given: tuple[Given, ...] = ()
    #: See `Pipeline`: of them the newest partition map.
    ledger: str = ""
    partitions: str = ""

    @property
    def is_new(self) -> bool:
        """No file has been seen by the ledger yet, nor by any of several."""
        return all(one % PART == 1 for one in self.made)


@dataclass(frozen=True, slots=True)
class Open(Request[Opened]):
    """Make the pipeline, or give it new numbers; the first request of a process.

    LedgerError when the pipeline has another pattern, or a circle of `after`.
    """

    config: Config
    #: Of a partitioned ledger, for ids that differ, and the generation of the others; they count when it is made.
    part: int = 0
    generation: int = 1
    #: A random name, for a ledger that has none yet: see `Pipeline.ledger`.
    ledger: str = ""
    #: The partition map by which the asker works: the ledger takes it if it is newer than its own.
    partitions: str = ""


@dataclass(frozen=True, slots=True)
class Alive:
    generation: int
    paused: bool
    #: Of a partitioned ledger; see `Open`.
    part: int = 0


@dataclass(frozen=True, slots=True)
class ShowAlive(Request[Alive]):
    """To be asked each 5 s: a process that was not seen for 15 s loses its leases."""


@dataclass(frozen=True, slots=True)
class Leave(Request[Alive]):
    """The last request of a process that ends in order: what it holds is ready again, and from now on it counts as one
    that was not seen for long."""
