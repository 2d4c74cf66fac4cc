"""A stream manager appends to a traced frame when it came and left, and to no other."""

from __future__ import annotations

from heronpy.wire.frames import CREDIT, DATA, LEAVE, Frame, header_and_frame
from tests.stmgr.switch_world import BOLT, FAR, SPOUT, World, data


def traced(dest: int, count: int = 1) -> Frame:
    return data(dest, count, trace=7, trace_parent=8, trace_hops=[1, 2], payload=b"x" * 40)


def test_a_traced_frame_has_its_times_and_the_sums_stay_right() -> None:
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    link = world.switch.tasks[BOLT].link
    link.granted_bytes = 0
    world.now = 3.0
    world.receive(spout, traced(BOLT, 2))
    world.receive(spout, data(BOLT, payload=b"x" * 40))
    queued = sum(len(waiting.data) for waiting in link.queue)
    assert link.queued_bytes == queued > 0
    world.now = 5.0
    world.grant(bolt, 1 << 30)
    first, second = world.of(bolt, DATA)
    assert list(first.trace_hops) == [1, 2, 3_000_000_000, 5_000_000_000] and (first.trace, first.count) == (7, 2)
    assert second == data(BOLT, payload=b"x" * 40)
    assert link.queued_bytes == 0 == link.queued_tuples
    assert link.sent_bytes == sum(len(waiting.data) for waiting in link.retained)
    appended = Frame(trace_hops=[3_000_000_000, 5_000_000_000]).ByteSize()
    assert link.sent_bytes == queued + appended, "what the task has got"
    world.grant(bolt, 1 << 30, frames=2)
    assert link.consumed_bytes == link.sent_bytes and link.in_flight() == 0


def test_a_frame_that_is_sent_again_keeps_its_first_times() -> None:
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    world.now = 1.0
    world.receive(spout, traced(BOLT, 3))
    world.receive(bolt, Frame(kind=LEAVE, source_task=BOLT, skip=1))
    world.now = 9.0
    again = world.register(BOLT, epoch=2, link_epoch=101)
    [frame] = world.of(again, DATA)
    assert list(frame.trace_hops) == [1, 2, 10**9, 10**9] and frame.skip == 1


def test_a_peer_that_dies_while_it_is_sent_to_gets_nothing_twice() -> None:
    world = World()
    spout = world.register(SPOUT)
    sent: list[bytes] = []
    alive = [False]

    def transmit(header: bytes, body: bytes) -> bool:
        sent.append(header_and_frame([header + body])[1])
        return alive[0]

    world.switch.peers["stmgr-2"].link.transmit = transmit
    world.switch.open_peer("stmgr-2", 50)
    world.reply(Frame(kind=CREDIT, granted_bytes=1000))
    world.now = 1.0
    world.receive(spout, traced(FAR))
    link = world.switch.peers["stmgr-2"].link
    assert link.queued_bytes == sum(len(waiting.data) for waiting in link.queue) > 0
    alive[0] = True
    world.switch.open_peer("stmgr-2", 51)
    world.reply(Frame(kind=CREDIT, granted_bytes=1000), 1, 51)
    assert link.queued_bytes == 0
    assert list(Frame.FromString(sent[-1]).trace_hops) == [1, 2, 10**9, 10**9]
