"""The outcome of a takedown, and sentences about it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

#: Maximum number of containers that a sentence names.
SHOWN = 5
RECORD = "its record in the state manager"


class Outcome(Struct):
    """Result of a takedown; `remains` lists what could not be removed."""

    by_scheduler: bool = False
    processes_killed: int = 0
    remains: list[str] = field(default_factory=list)
    unseen_host: str = ""
    """The topology's host if it is another host, whose processes this command could not check; otherwise ""."""
    checkpoint: str = ""
    """Location of the newest intact checkpoint; a newer one may have completed since the state was last read."""
    ended_on_engine: int = 0
    """Number of containers whose end this command, and not the scheduler, requested from the engine."""
    files_on: tuple[str, ...] = ()
    """Hosts of the containers counted by `ended_on_engine`; files remain there if one was killed before it finished."""
    may_run: list[str] = field(default_factory=list)
    """Containers on an engine whose end is unconfirmed. They are also in `remains`, unless a user forces the
    removal.
    """
    scheduler_lives: bool = False
    """Whether the scheduler continues to end the containers in `may_run`."""
    silent: bool = False
    """Whether the scheduler on this host did not answer a request, and the user was informed."""
    look: str = ""
    """The command that shows the containers in `may_run`."""
    why_waits: str = ""
    """The error of an engine that does not answer."""
    replica_lacks: str = ""
    """A sentence on the checkpoints that the replica lacks; "" if the replica is complete, or if there is none."""
    unswept: str = ""
    """Why files of unfinished checkpoints are left in the object store; "" if none are left."""


def unseen(topology: str, host: str) -> str:
    """A sentence: the topology's processes could not be checked from this host."""
    return (
        f"the scheduler of '{topology}' was not running, and this host cannot see the topology's processes on host"
        f" {host}; look for them there"
    )


def some(names: Sequence[str]) -> str:
    """A list of names as text, shortened if it is long."""
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown or RECORD


def away_text(engine_away: str) -> str:
    """The end of a sentence: the engine does not answer, and the reason."""
    return f"; the engine does not answer: {engine_away}" if engine_away else ""


def what_remains(outcome: Outcome) -> str:
    """Part of a sentence: why a topology was not removed, and the fix."""
    if not outcome.may_run:
        return f"{', '.join(outcome.remains)} cannot be stopped; stop what is left yourself, and run the command again"
    goes_on = "the scheduler continues to end the containers; " if outcome.scheduler_lives else ""
    again = f"{goes_on}run the command again to finish, or with --force to remove the topology anyway"
    return f"{what_may_run(outcome)}; {again}"


def what_may_run(outcome: Outcome) -> str:
    """A sentence: the containers on an engine that may still be running, the reason, and how to look for them."""
    look = f"; look for it with: {outcome.look}" if outcome.look else ""
    return f"{some(outcome.may_run)} may still be running{away_text(outcome.why_waits)}{look}"
