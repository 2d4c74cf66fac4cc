"""What every request to a ledger is, and who asks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from heronpy.ingest.ledger.types import Kind

A = TypeVar("A", covariant=True)


class Request(Generic[A]):
    """One transaction; `A` is its answer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Who:
    """Who asks: each start of a process is another incarnation of its task."""

    #: Unique over all sites, such as `clicks/clicks-worker-3`.
    task: str
    incarnation: str
    kind: Kind
    site: str = ""
    container: str = ""
    #: The version of the partition map by which it works; -1: it gives no file to a ledger.
    partitions: int = -1

    @property
    def name(self) -> str:
        return f"{self.task}#{self.incarnation}"
