"""What `heron top` knows of a topology at one moment. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heronpy.views.load import Load, Tasks


@dataclass(frozen=True, slots=True)
class Figures:
    """The answers of the topology master, the newest of each kind."""

    #: As the command line has it, for the commands that are named.
    cluster: str
    topology: str
    #: None: no answer yet.
    load: Load | None = None
    #: Seconds since the topology was submitted.
    uptime_s: float = 0.0
    #: The leading finding of the doctor: verdict, sentence, what to do next; empty if it is not known.
    verdict: str = ""
    sentence: str = ""
    advice: str = ""
    #: It needs no action.
    calm: bool = True
    #: Tuples that are missing from the result, in words; empty: none.
    losses: str = ""
    #: A line for each pipeline of work units.
    units: tuple[str, ...] = ()
    #: By component: tuples per second of each minute, oldest first; None where unknown.
    trends: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    #: None: not asked for.
    tasks: Tasks | None = None
    #: The task whose stacks were asked for last, and their text, or the sentence why there is none.
    stacks: tuple[str, str] | None = None
    #: The task whose log was asked for last, and the end of it, oldest line first, or the sentence why there is none.
    log: tuple[str, tuple[str, ...]] | None = None
    #: Why the figures are old, one sentence; empty: they are not.
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a view needs beside the figures by component."""

    #: The figures of its tasks; "": of all tasks; None: of none.
    component: str | None = None
    #: The stacks of this instance, and how often they were asked for; None: not asked for.
    stacks: tuple[str, int] | None = None
    #: The end of the log of this instance; "": of none.
    log: str = ""
