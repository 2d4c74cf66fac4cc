"""The current activity of a process: stacks, a profile, its objects by type. Contains no user values. Pure."""

from __future__ import annotations

from msgspec import Struct

#: A stack, outermost frame first, and its seconds.
Row = tuple[tuple[str, ...], float]


class WeightedStack(Struct, kw_only=True):
    """One stack of a profile."""

    #: Indexes into `frames`, outermost first.
    stack: list[int]
    seconds: float


class Profile(Struct, kw_only=True):
    """The time that a process spent in each stack."""

    #: `function (folder/file.py:12)`
    frames: list[str]
    #: Stacks, heaviest first.
    stacks: list[WeightedStack]
    #: Seconds of all stacks: CPU time or, with `idle`, wall time of all threads.
    seconds: float
    #: Seconds of stacks that are not listed, because there are too many.
    left_out_s: float
    #: `py-spy` or `the process itself`.
    sampler: str
    #: Why py-spy did not sample; empty if py-spy did sample or is not installed.
    note: str


class HeapType(Struct, kw_only=True):
    """The objects of one type."""

    #: `dict`, `words.Count`
    name: str
    count: int
    bytes: int


class Heap(Struct, kw_only=True):
    """The objects of a process, except objects that it shares with its siblings."""

    #: Types, most bytes first.
    types: list[HeapType]
    #: Total number of types, objects and bytes.
    kinds: int
    objects: int
    bytes: int
    #: Share of the objects that were examined; if it is below 1, the figures are estimates.
    share: float
    #: Seconds for which the process was stopped.
    paused_s: float
    #: Memory of the whole process.
    memory_bytes: int


class Evidence(Struct, kw_only=True):
    """`GET /tasks/{id}/{kind}`: the most recently requested evidence. Only the field for its kind is set."""

    #: Example: `container_1_word_3`.
    process: str
    #: `stacks`, `profile`, `heap`
    kind: str
    #: Whether the result is not ready yet; if so, repeat the request.
    under_way: bool
    #: Time of the request, and the approximate duration of collecting the evidence.
    at: float
    takes_s: float
    stacks: str | None = None
    profile: Profile | None = None
    heap: Heap | None = None


class EvidenceBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /tasks/{id}/{kind}`. All fields are optional except `pause` for a heap."""

    #: profile: seconds.
    duration_s: float = 5.0
    #: profile: samples per second.
    rate: int = 200
    #: profile: also count waiting threads.
    idle: bool = False
    #: profile: also show frames of C extensions; needs py-spy.
    native: bool = False
    #: heap: number of types.
    top: int = 30
    #: heap: confirms that the process stops while its objects are counted.
    pause: bool = False


def rows_of(profile: Profile) -> list[Row]:
    """Return the stacks with the names of their frames."""
    frames = profile.frames
    return [(tuple(frames[number] for number in one.stack), one.seconds) for one in profile.stacks]
