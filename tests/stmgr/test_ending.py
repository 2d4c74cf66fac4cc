"""A stream manager that ends in order counts what it still holds, once."""

from __future__ import annotations

from heronpy.wire.frames import CREDIT, LEAVE, Frame
from tests.stmgr.switch_world import BOLT, FAR, SPOUT, World, data, tracked


def test_what_waits_in_it_is_counted_and_what_a_task_had_confirmed_is_not() -> None:
    world = World()
    spout, bolt, peer = world.register(SPOUT), world.register(BOLT), world.peer()
    for count in (5, 6, 7):
        world.receive(spout, data(BOLT, count))
    world.receive(peer, data(BOLT, 4))
    world.receive(spout, data(FAR, 3))  # the peer has granted nothing
    world.receive(bolt, Frame(kind=LEAVE, consumed_frames=1, skip=2))
    assert not world.switch.tasks_left and not world.switch.settled
    world.receive(spout, Frame(kind=LEAVE))
    assert world.switch.tasks_left and not world.switch.settled
    world.switch.end()
    assert world.switch.discarded == {"stream manager ended": 6 - 2 + 7 + 4 + 3}
    assert world.switch.lost_tuples == 18 and world.switch.queued() == (0, 0)
    assert world.of(peer, CREDIT)[-1].settled_tuples == 4, "so its sender does not count them as well"


def test_it_takes_nothing_more() -> None:
    world = World()
    world.register(BOLT)
    peer = world.peer()
    world.switch.end()
    confirmed = world.of(peer, CREDIT)[-1].consumed_frames
    world.receive(peer, data(BOLT, 4))
    assert not world.switch.discarded and not world.switch.queued()[1]
    assert world.of(peer, CREDIT)[-1].consumed_frames == confirmed, "its sender counts them as lost with this one"


def test_what_is_sent_again_is_no_loss() -> None:
    world = World()
    spout = world.register(SPOUT)
    world.receive(spout, tracked(FAR, 0, 3))
    world.receive(spout, data(FAR, 2, attempt=1))
    world.switch.end()
    assert world.switch.lost_tuples == 0 and world.switch.discarded == {"stream manager ended": 3}
