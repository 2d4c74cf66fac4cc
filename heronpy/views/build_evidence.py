"""Messages with evidence of a process as structs. Pure."""

from __future__ import annotations

from heronpy.proto import control_pb2
from heronpy.views.evidence import Heap, HeapType, Profile, WeightedStack

#: A stack, the outermost frame first, and its seconds.
Row = tuple[tuple[str, ...], float]


def profile_of(reply: control_pb2.ProfileReply) -> Profile:
    """A profile."""
    return Profile(
        frames=list(reply.frames),
        stacks=[WeightedStack(stack=list(one.frames), seconds=one.seconds) for one in reply.stacks],
        seconds=sum(one.seconds for one in reply.stacks) + reply.left_out_s,
        left_out_s=reply.left_out_s,
        sampler=reply.sampler,
        note=reply.note,
    )


def rows_of(profile: Profile) -> list[Row]:
    """Its stacks with names."""
    frames = profile.frames
    return [(tuple(frames[number] for number in one.stack), one.seconds) for one in profile.stacks]


def heap_of(reply: control_pb2.HeapReply) -> Heap:
    """The objects of a process."""
    return Heap(
        types=[HeapType(name=one.name, count=one.count, bytes=one.bytes) for one in reply.types],
        kinds=reply.kinds,
        objects=reply.objects,
        bytes=reply.bytes,
        share=reply.share,
        paused_s=reply.paused_s,
        memory_bytes=reply.rss_bytes,
    )
