"""What a dead stream manager took along is counted by its senders, and who may be forgotten."""

from __future__ import annotations

import random

import pytest

from heronpy.wire.frames import CREDIT, DATA, LEAVE, LINK_HEADER, Frame
from tests.stmgr.switch_world import BOLT, FAR, SPOUT, World, data, tracked


def peered() -> World:
    """A switch whose peer has room for everything."""
    world = World()
    world.switch.open_peer("stmgr-2", 50)
    answer(world, granted_bytes=1 << 30)
    return world


def answer(world: World, **totals: int) -> None:
    """A CREDIT of the peer."""
    frame = Frame(kind=CREDIT, **{"granted_bytes": 1 << 30, **totals}).SerializeToString()
    world.switch.peer_credit(
        "stmgr-2", LINK_HEADER.pack(50, world.switch.peers["stmgr-2"].link.replies + 1, frame), frame
    )


def successor(world: World) -> None:
    """The plan shows another process of the peer."""
    world.switch.close_peer("stmgr-2")
    world.switch.add_peer("stmgr-2", 2, world.transmit)


def test_what_a_dead_peer_had_taken_and_not_passed_on_is_discarded() -> None:
    world = peered()
    spout = world.register(SPOUT)
    for count in (5, 6, 7, 8):
        world.receive(spout, data(FAR, count))
    answer(world, consumed_frames=3, settled_tuples=5)
    successor(world)
    assert world.switch.discarded == {"peer lost": 8, "peer died": 6 + 7}


def test_a_broken_connection_to_a_peer_that_lives_costs_only_what_was_in_flight() -> None:
    world = peered()
    spout = world.register(SPOUT)
    for count in (5, 6):
        world.receive(spout, data(FAR, count))
    answer(world, consumed_frames=1)
    world.switch.close_peer("stmgr-2")
    world.switch.add_peer("stmgr-2", 1, world.transmit)
    assert world.switch.discarded == {"peer lost": 6}


def test_tuples_that_come_again_are_nobodys_loss() -> None:
    """Tracked ones are replayed, those of an attempt rewound."""
    world = peered()
    spout = world.register(SPOUT)
    world.receive(spout, data(BOLT, 3, attempt=1))
    world.receive(spout, tracked(BOLT, 10, 4))
    world.switch.settle_credit()
    assert world.of(spout, CREDIT)[-1].settled_tuples == 7


def test_a_sender_learns_when_its_tuples_are_processed_passed_on_or_discarded() -> None:
    world = peered()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    for dest, count in ((BOLT, 1), (BOLT, 2), (FAR, 4), (77, 8)):
        world.receive(spout, data(dest, count))

    def told() -> int:
        world.switch.settle_credit()
        return int(world.of(spout, CREDIT)[-1].settled_tuples)

    assert told() == 8, "the one for nobody is counted here"
    world.grant(bolt, 1 << 30, frames=1)
    assert told() == 8 + 1
    answer(world, consumed_frames=1)
    assert told() == 8 + 1 + 4
    world.receive(bolt, Frame(kind=LEAVE, consumed_frames=1, skip=1))
    world.register(BOLT, 2, 300)
    assert told() == 8 + 1 + 4 + 1, "a tuple of the batch was processed"
    world.register(BOLT, 3, 400)
    assert told() == 15 and world.switch.discarded == {"no such task": 8, "task died": 1}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_each_tuple_is_settled_once(seed: int) -> None:
    """What a sender would count if this process died now is exactly what it still holds."""
    rng, world = random.Random(seed), peered()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    sent = epoch = 0
    for _ in range(200):
        action = rng.choice(("send", "send", "send", "consume", "credit", "die"))
        if action == "send":
            count = rng.randint(1, 9)
            sent += count
            world.receive(spout, data(rng.choice((BOLT, FAR, 77)), count))
        elif action == "consume":
            link = world.switch.tasks[BOLT].link
            world.grant(bolt, 1 << 30, frames=link.consumed_frames + rng.randint(0, len(link.retained)))
        elif action == "credit":
            link = world.switch.peers["stmgr-2"].link
            answer(world, consumed_frames=link.consumed_frames + rng.randint(0, len(link.retained)))
        elif rng.random() < 0.2:
            epoch += 1
            bolt = world.register(BOLT, 1 + epoch, 300 + epoch)
        world.switch.settle_credit()
        told = world.of(spout, CREDIT)[-1].settled_tuples
        assert sent - told == world.switch.queued()[1] + world.switch.in_flight()


# ---- tasks that are elsewhere ---------------------------------------------------------------


def test_a_task_that_moved_away_after_its_goodbye_is_forgotten_at_once() -> None:
    """Its frames follow it; else they would wait for as long as a silent task is waited for."""
    world = peered()
    world.switch.take_places({SPOUT: "spout", BOLT: "bolt"}, {"spout"}, {FAR: "stmgr-2"})
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    world.receive(bolt, Frame(kind=LEAVE))
    world.receive(spout, data(BOLT, 3))
    world.switch.take_places({SPOUT: "spout"}, {"spout"}, {FAR: "stmgr-2", BOLT: "stmgr-2"})
    assert world.switch.absent({SPOUT: None, BOLT: None}, rewound=False) == [BOLT]
    world.switch.remove_task(BOLT)
    assert [frame.count for frame in world.to_peer if frame.kind == DATA] == [3]


def test_a_task_that_moves_away_is_waited_for_while_it_may_have_something_to_send() -> None:
    world = World()
    world.register(BOLT)
    world.switch.take_places({SPOUT: "spout"}, {"spout"}, {FAR: "stmgr-2", BOLT: "stmgr-2"})
    assert world.switch.absent({BOLT: None}, rewound=False) == []
    assert world.switch.absent({BOLT: None}, rewound=True) == [BOLT], "a new attempt takes that back"
    assert world.switch.absent({}, rewound=False) == [BOLT]
