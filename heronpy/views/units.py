"""Pipelines of work units, as their keepers and workers report them. Pure."""

from __future__ import annotations

from msgspec import Struct


class Pipeline(Struct, kw_only=True):
    """Growing log files on their way into an output. Bytes are those of the files."""

    name: str
    #: Not published yet: in units, or in none.
    backlog_bytes: int
    waiting_bytes: int
    #: Age of the oldest of them; 0 when there are none.
    oldest_s: float
    #: Of last lines that have no end yet.
    unfinished_bytes: int
    #: Units by what they wait for: a worker, its commit, publication, a user.
    ready: int
    leased: int
    committed: int
    failed: int
    bad_bytes: int
    bad_ranges: int
    #: Since the topology was submitted.
    published_units: int
    published_bytes: int
    published_rows: int
    attempts: int
    tries_failed: int
    #: Attempts beside one that took long, those of them that won, and attempts of any kind that others made needless.
    backups: int
    backups_won: int
    attempts_in_vain: int
    #: What is counted since the submit is a lower bound: a process has ended without its last counts.
    at_least: bool = False


class Pipelines(Struct, kw_only=True):
    """`GET /units`"""

    pipelines: list[Pipeline]
