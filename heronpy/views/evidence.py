"""What a process does right now: stacks, a profile, its objects by type. No values of the user's. Pure."""

from __future__ import annotations

from msgspec import Struct

#: A stack, the outermost frame first, and its seconds.
Row = tuple[tuple[str, ...], float]


class WeightedStack(Struct, kw_only=True):
    """One stack of a profile."""

    #: Index into `frames`, the outermost first.
    stack: list[int]
    seconds: float


class Profile(Struct, kw_only=True):
    """Where the time went."""

    #: `function (folder/file.py:12)`
    frames: list[str]
    #: The heaviest first.
    stacks: list[WeightedStack]
    #: Seconds of all stacks: CPU time or, with `idle`, wall time of all threads.
    seconds: float
    #: Seconds of stacks that are not listed, because there were too many.
    left_out_s: float
    #: `py-spy` or `the process itself`.
    sampler: str
    #: Why py-spy did not sample; empty: it did, or is not installed.
    note: str


class HeapType(Struct, kw_only=True):
    """The objects of one type."""

    #: `dict`, `words.Count`
    name: str
    count: int
    bytes: int


class Heap(Struct, kw_only=True):
    """The objects of a process, without what it shares with its siblings."""

    #: The most bytes first.
    types: list[HeapType]
    #: Number of types, objects and bytes, of all types.
    kinds: int
    objects: int
    bytes: int
    #: Share of the objects that were examined; below 1 the figures are estimates.
    share: float
    #: How long the process stood still.
    paused_s: float
    #: Memory of the whole process.
    memory_bytes: int


class Evidence(Struct, kw_only=True):
    """`GET /tasks/{id}/{kind}`: what was asked for last. Only the part of its kind is there."""

    #: Such as `container_1_word_3`.
    process: str
    #: `stacks`, `profile`, `heap`
    kind: str
    #: Nothing was found yet: ask again.
    under_way: bool
    #: When it was asked for, and how long it takes, about.
    at: float
    takes_s: float
    stacks: str | None = None
    profile: Profile | None = None
    heap: Heap | None = None


class EvidenceBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /tasks/{id}/{kind}`. All may be left out, but `pause` for a heap."""

    #: profile: seconds.
    duration_s: float = 5.0
    #: profile: samples per second.
    rate: int = 200
    #: profile: count threads that wait, too.
    idle: bool = False
    #: profile: show frames of C extensions, too; needs py-spy.
    native: bool = False
    #: heap: how many types.
    top: int = 30
    #: heap: it is known that the process stops while its objects are counted.
    pause: bool = False


def rows_of(profile: Profile) -> list[Row]:
    """The stacks with names."""
    frames = profile.frames
    return [(tuple(frames[number] for number in one.stack), one.seconds) for one in profile.stacks]
