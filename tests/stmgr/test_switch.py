"""The switch: routing, credit that is always settled, fencing, garbage, peers, lost frames fail their roots."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from heronpy.common.setting_types import StmgrSettings
from heronpy.wire.frames import (
    ACK,
    CLAMP,
    COMPLETE,
    COUNT_MAX,
    CREDIT,
    DATA,
    FAIL,
    LEAVE,
    LINK_HEADER,
    LINK_OPEN,
    REGISTER,
    Frame,
    one_run,
    pack64,
)
from stmgr.links import GRANT_MAX_BYTES, SILENT_PROBES, WINDOW_START_BYTES
from stmgr.neighbours import BYTES_MAX, LINKS_MAX, PendingLinks
from stmgr.switch import Switch
from tests.stmgr.switch_world import BOLT, FAR, SPOUT, World, data, tracked


def test_frames_are_forwarded_to_tasks_and_peers() -> None:
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    world.switch.open_peer("stmgr-2", 50)
    world.reply(Frame(kind=CREDIT, granted_bytes=1000))
    world.receive(spout, data(BOLT, 3))
    world.receive(spout, data(FAR, 4))
    assert [frame.count for frame in world.of(bolt, DATA)] == [3]
    assert [frame.kind for frame in world.to_peer] == [LINK_OPEN, DATA]


def test_a_link_to_a_peer_is_asked_for_by_what_waits_for_it() -> None:
    """By data, by an ack, by what waits for the next incarnation; by nothing else."""
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    world.receive(spout, data(BOLT))
    assert not world.switch.probe_peers() and world.wanted == 0
    world.receive(spout, data(FAR))
    assert world.wanted == 1
    world.switch.add_peer("stmgr-2", 2, world.transmit, world.want)
    assert world.wanted == 2, "what was for its predecessor is for it"
    world.switch.open_peer("stmgr-2", 50)
    world.receive(spout, data(FAR))
    assert world.wanted == 2

    world = World()
    bolt = world.register(BOLT)
    world.receive(bolt, Frame(kind=ACK, dest_task=FAR, count=1, root_base=0, root_task=FAR, edge=5))
    assert world.wanted == 1
    world.switch.open_peer("stmgr-2", 50)
    assert [frame.kind for frame in world.to_peer] == [LINK_OPEN, ACK]
    assert not world.switch.counts["ack_tuples_lost"]


def test_a_frame_for_nobody_is_counted_credited_and_its_roots_fail() -> None:
    world = World()
    spout = world.register(SPOUT)
    world.receive(spout, tracked(77, 10, 3))
    assert world.switch.discarded == {"no such task": 3}
    assert world.switch.lost_tuples == 0, "its spout is told, and sends them again"
    world.receive(spout, data(77, 4))
    assert world.switch.discarded == {"no such task": 7} and world.switch.lost_tuples == 4
    [failed] = world.of(spout, COMPLETE)
    assert failed.failed and (failed.run_first, failed.run_length) == one_run(10, 3)
    world.switch.settle_credit()
    assert world.of(spout, CREDIT)[-1].consumed_tuples == 7


def test_the_last_frames_of_a_blocked_queue_are_credited() -> None:
    """Past the mark the sender's credit waits; when the queue drains at last, the sender must learn it."""
    world = World(backpressure_high_bytes=100, backpressure_low_bytes=50)
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    world.switch.tasks[BOLT].link.granted_bytes = 0
    for _ in range(10):
        world.receive(spout, data(BOLT, payload=b"x" * 30))
    world.switch.settle_credit()
    assert world.of(spout, CREDIT)[-1].consumed_tuples < 10
    owed = world.owed
    world.grant(bolt, 1 << 30)
    assert world.owed == owed + 1
    world.switch.settle_credit()
    assert world.of(spout, CREDIT)[-1].consumed_tuples == 10


def test_a_successor_gets_no_credit_of_its_predecessor() -> None:
    world = World(backpressure_high_bytes=10)
    old, bolt = world.register(SPOUT, 1, 100), world.register(BOLT)
    world.switch.tasks[BOLT].link.granted_bytes = 0
    for _ in range(5):
        world.receive(old, data(BOLT, payload=b"x" * 300_000))
    new = world.register(SPOUT, 2, 200)
    world.grant(bolt, 1 << 30)
    world.switch.settle_credit()
    assert all(frame.consumed_tuples == 0 for frame in world.of(new, CREDIT))
    assert max(frame.granted_bytes for frame in world.of(new, CREDIT)) == WINDOW_START_BYTES


def test_zombies_and_old_links_are_refused_and_counted() -> None:
    world = World()
    old, bolt = world.register(SPOUT, 1, 100), world.register(BOLT)
    world.register(SPOUT, 2, 200)
    world.receive(old, data(BOLT, 4))
    world.receive(old, Frame(kind=LINK_OPEN))
    world.receive(old, data(BOLT, 4))
    assert world.switch.discarded == {"stale link": 8}
    assert world.switch.counts["stale_frames"] == 3
    world.receive(bolt, data(SPOUT, 1), epoch=99)
    assert world.switch.counts["stale_frames"] == 4
    assert not world.of(bolt, DATA)


def test_a_peer_of_an_earlier_incarnation_is_fenced() -> None:
    world = World()
    world.switch.add_peer("stmgr-2", 3, world.transmit)
    new = world.peer(epoch=3)
    old = world.peer(epoch=2)
    assert world.switch.counts["fenced_links"] == 1
    world.receive(old, data(BOLT))
    assert world.switch.discarded == {"stale link": 1}
    world.receive(new, data(BOLT))
    assert world.switch.queued()[1] == 1


def test_peers_get_no_credit_before_the_first_plan() -> None:
    sent: list[Frame] = []
    switch = Switch(
        StmgrSettings(), lambda identity, header, frame: not sent.append(Frame.FromString(frame)), lambda: 0.0
    )
    switch.add_peer("stmgr-2", 1, lambda header, frame: True)
    switch.receive([b"s:stmgr-2:1", LINK_HEADER.pack(7, 1), Frame(kind=LINK_OPEN).SerializeToString()])
    assert not sent
    switch.take_places({BOLT: "bolt"}, set(), {})
    assert [frame.kind for frame in sent] == [CREDIT]
    switch.take_places({BOLT: "bolt"}, set(), {})
    assert len(sent) == 1


def test_a_peer_that_the_plan_does_not_have_yet_waits_for_it() -> None:
    """Nothing of it is taken before, neither tuples nor acks; then all of it is, in order."""
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    world.receive(spout, tracked(BOLT, base=0))
    pending = world.peer(epoch=2, link_epoch=9)
    world.receive(pending, Frame(kind=ACK, dest_task=SPOUT, count=1, root_base=0, root_task=SPOUT, edge=5))
    world.receive(pending, data(BOLT))
    assert not world.of(pending, CREDIT) and not world.of(spout, COMPLETE) and len(world.of(bolt, DATA)) == 1
    world.switch.add_peer("stmgr-2", 2, world.transmit)
    assert world.of(pending, CREDIT) and world.of(spout, COMPLETE) and len(world.of(bolt, DATA)) == 2
    assert not world.switch.discarded


@pytest.mark.parametrize(
    "identity", [b"s:stmgr-9:1", b"s:stmgr-2:7", b"t:2:1", b"t:99:1", b"anybody", b"\x00\x01\x02\x03\x04"]
)
def test_nobody_else_gets_anything_in(identity: bytes) -> None:
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    sent = {who: len(frames) for who, frames in world.sent.items()}
    world.epochs[identity], world.seq[identity] = 55, 0
    for frame in (Frame(kind=LINK_OPEN), data(BOLT), tracked(FAR, 0), Frame(kind=CLAMP, on=True), Frame(kind=LEAVE)):
        world.receive(identity, frame)
    assert {who: len(frames) for who, frames in world.sent.items()} == sent and not world.to_peer
    world.receive(spout, data(BOLT))
    assert len(world.of(bolt, DATA)) == 1, "peers of the plan are served as before"


def test_what_waits_for_the_plan_is_bounded_and_the_rest_is_counted() -> None:
    pending = PendingLinks()
    for number in range(LINKS_MAX + 5):
        pending.begin(b"s:stmgr-%d:1" % number, [b"open"])
    assert pending.refused == 5
    message = [bytes(BYTES_MAX // 4)]
    assert all(pending.keep(b"s:stmgr-0:1", message) for _ in range(10))
    assert pending.refused == 5 + 7
    assert not pending.keep(b"s:stmgr-66:1", message)
    pending.forget_older("stmgr-0", 2)
    assert pending.take_out(b"s:stmgr-0:1") == []
    assert pending.take_out(b"s:stmgr-1:1") == [[b"open"]]
    assert pending.keep(b"s:stmgr-2:1", message), "there is room again"


def test_an_ack_claims_no_more_than_what_is_live() -> None:
    """A count of four million in thirty bytes makes no array of that size."""
    world = World()
    spout = world.register(SPOUT)
    world.receive(spout, tracked(BOLT, base=10))
    bolt = world.register(BOLT)
    tracemalloc.start()
    world.receive(bolt, Frame(kind=ACK, dest_task=SPOUT, count=COUNT_MAX, root_base=5, root_task=SPOUT, edge=5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert world.of(spout, COMPLETE) and peak < 1 << 20
    assert world.switch.ackers[SPOUT].unknown_roots == COUNT_MAX - 1


def test_a_credit_claims_no_more_than_what_was_sent() -> None:
    world = World()
    spout = world.register(SPOUT)
    world.switch.open_peer("stmgr-2", 50)
    link = world.switch.peers["stmgr-2"].link
    world.receive(spout, data(FAR))
    huge = Frame(
        kind=CREDIT, granted_bytes=1 << 60, settled_tuples=1 << 60, consumed_tuples=1 << 60, consumed_frames=1 << 60
    )
    body = huge.SerializeToString()
    assert world.switch.peer_credit("stmgr-2", LINK_HEADER.pack(50, 1), body)
    assert link.granted_bytes <= GRANT_MAX_BYTES + link.sent_bytes
    assert (link.settled_tuples, link.consumed_tuples) == (0, 0), "nothing was sent before the grant"


@pytest.mark.parametrize("seed", range(5))
def test_garbage_is_counted_and_harms_nothing(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    for _ in range(500):
        parts = [rng.choice([spout, bolt, b"", b"s:stmgr-2:1", rng.randbytes(5)])]
        parts.append(rng.choice([LINK_HEADER.pack(100, rng.getrandbits(60)), rng.randbytes(rng.randint(0, 20))]))
        parts.append(rng.randbytes(rng.randint(0, 60)))
        world.switch.receive(parts[: rng.choice([1, 2, 3, 3, 3, 3])])
        for kind in (ACK, FAIL, REGISTER):
            world.receive(
                spout,
                Frame(kind=kind, dest_task=SPOUT, count=rng.choice([1, 3]), roots=rng.randbytes(rng.choice([0, 7, 8])),
                      values=rng.randbytes(rng.choice([0, 9, 16]))),
            )  # fmt: skip
        world.switch.peer_credit("stmgr-2", rng.randbytes(16), rng.randbytes(9))
        world.switch.peer_credit("stmgr-9", LINK_HEADER.pack(1, 1), b"")
    assert world.switch.counts["garbage"] > 500
    world.seq[spout] = 10_000
    world.receive(spout, data(BOLT, 3))
    assert world.of(bolt, DATA)[-1].count == 3


def test_an_orderly_exit_gets_the_rest_sent_again() -> None:
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    for count in (5, 6, 7):
        world.receive(spout, data(BOLT, count))
    world.receive(bolt, Frame(kind=LEAVE, consumed_frames=1, skip=2))
    world.receive(spout, data(BOLT, 8))
    again = world.register(BOLT, 2, 300)
    assert [(frame.count, frame.skip) for frame in world.of(again, DATA)] == [(6, 2), (7, 0), (8, 0)]
    assert not world.switch.discarded
    link = world.switch.tasks[BOLT].link
    assert link.total_consumed + link.in_flight() == 5 + 6 + 7 + 8


def test_a_dead_task_loses_what_was_in_flight_and_nothing_else() -> None:
    world = World()
    spout, bolt = world.register(SPOUT), world.register(BOLT)
    world.receive(spout, tracked(BOLT, 1, 5))
    world.receive(spout, tracked(BOLT, 6, 5))
    world.grant(bolt, 1 << 30, frames=1)
    world.dead.add(bolt)
    world.receive(spout, tracked(BOLT, 11, 5))
    again = world.register(BOLT, 2, 300)
    assert world.switch.discarded == {"task died": 5}
    [failed] = world.of(spout, COMPLETE)
    assert ((failed.run_first, failed.run_length), failed.failed) == (one_run(6, 5), True)
    assert [frame.root_base for frame in world.of(again, DATA)] == [11]


def test_roots_may_be_registered_out_of_order() -> None:
    """A REGISTER overtakes batches of earlier roots that wait for credit."""
    world = World()
    spout = world.register(SPOUT)
    world.receive(spout, Frame(kind=REGISTER, dest_task=SPOUT, count=2, root_base=100, values=pack64([3, 12])))
    world.receive(spout, tracked(BOLT, 50, 2))
    for base, edge in ((100, 3), (101, 12), (50, 5), (51, 5)):
        world.receive(spout, Frame(kind=ACK, dest_task=SPOUT, count=1, root_base=base, edge=edge))
    assert [(frame.run_first, frame.run_length) for frame in world.of(spout, COMPLETE)] == [
        one_run(root, 1) for root in (100, 101, 50, 51)
    ]
    assert not any(frame.failed for frame in world.of(spout, COMPLETE))


def test_a_full_task_asks_its_peers_to_hold_not_to_stop() -> None:
    world = World(backpressure_high_bytes=100, backpressure_low_bytes=50, link_window_bytes=100)
    bolt, peer = world.register(BOLT), world.peer()
    world.switch.tasks[BOLT].link.granted_bytes = 0
    for _ in range(6):
        world.receive(peer, data(BOLT, payload=b"x" * 40))
    clamps = world.of(peer, CLAMP)
    assert [(frame.on, frame.dest_task) for frame in clamps] == [(True, BOLT)]
    assert world.of(peer, CREDIT)[-1].consumed_tuples == 6, "the link itself flows"
    world.grant(bolt, 1 << 30)
    assert [(frame.on, frame.dest_task) for frame in world.of(peer, CLAMP)[1:]] == [(False, BOLT)]
    world.switch.open_peer("stmgr-2", 50)
    spout = world.register(SPOUT)
    assert replies(world, Frame(kind=CREDIT, granted_bytes=10_000), Frame(kind=CLAMP, dest_task=FAR, on=True))
    world.receive(spout, data(FAR, 2))
    assert world.to_peer[-1].kind == LINK_OPEN
    assert replies(world, Frame(kind=CLAMP, dest_task=FAR, on=False), first=3)
    assert world.to_peer[-1].count == 2


def replies(world: World, *frames: Any, first: int = 1) -> bool:
    """Answers of the peer over link 50; whether each was taken."""
    numbered = enumerate(frames, first)
    return all(world.reply(frame, seq) for seq, frame in numbered)


def test_a_reply_that_vanished_opens_the_link_anew() -> None:
    """A CREDIT or CLAMP that never came would hold frames back for ever (F14)."""
    world = World()
    world.switch.open_peer("stmgr-2", 50)
    assert replies(world, Frame(kind=CREDIT, granted_bytes=1000))
    assert not replies(world, Frame(kind=CREDIT, granted_bytes=2000), first=3)


def test_a_frame_that_vanished_between_two_stream_managers_opens_the_link_anew() -> None:
    world = World()
    world.register(BOLT)
    peer = world.peer()
    world.receive(peer, data(BOLT, 3))
    world.receive(peer, data(BOLT, 3), seq=9)
    assert world.of(peer, LINK_OPEN), "the sender is asked for a new link"
    world.receive(peer, data(BOLT, 3), seq=10)
    assert world.switch.counts["stale_frames"] == 1
    assert world.switch.counts["damaged_links"] == 1


def test_a_peer_is_probed_until_all_is_settled_and_given_up_when_it_is_silent() -> None:
    """The last frame of a link leaves no gap behind when it vanishes, nor does a LINK_OPEN (F14)."""
    world = World()
    world.switch.open_peer("stmgr-2", 50)
    assert [world.switch.probe_peers() for _ in range(SILENT_PROBES)] == [[]] * SILENT_PROBES
    assert world.switch.probe_peers() == ["stmgr-2"], "no reply to its LINK_OPEN"
    world.switch.open_peer("stmgr-2", 51)
    credit = Frame(kind=CREDIT, granted_bytes=1000).SerializeToString()
    assert world.switch.peer_credit("stmgr-2", LINK_HEADER.pack(51, 1), credit)
    for _ in range(3 * SILENT_PROBES):
        assert world.switch.probe_peers() == []
    assert len([frame for frame in world.to_peer if frame.kind == CREDIT]) == SILENT_PROBES + 2, "at rest none is sent"


def test_a_probe_is_answered_with_the_present_credit() -> None:
    world = World()
    peer = world.peer()
    before = len(world.of(peer, CREDIT))
    world.receive(peer, Frame(kind=CREDIT))
    assert len(world.of(peer, CREDIT)) == before + 1


def test_a_removed_task_is_forwarded_to_or_counted() -> None:
    world = World()
    world.switch.open_peer("stmgr-2", 50)
    world.reply(Frame(kind=CREDIT, granted_bytes=1000))
    gone: list[int] = []
    world.switch.on_removed = gone.append
    spout = world.register(SPOUT)
    world.receive(spout, data(BOLT, 4))
    # Moved: what waits goes after it.
    world.switch.take_places({SPOUT: "spout"}, {"spout"}, {BOLT: "stmgr-2"})
    world.switch.remove_task(BOLT)
    assert world.to_peer[-1].count == 4 and not world.switch.discarded
    # Gone for good.
    world.switch.take_places({SPOUT: "spout", 3: "bolt"}, {"spout"}, {})
    world.receive(spout, data(3, 5))
    world.switch.take_places({SPOUT: "spout"}, {"spout"}, {})
    world.switch.remove_task(3)
    assert world.switch.discarded == {"task removed": 5}
    assert gone == [BOLT, 3]


def test_frames_to_a_task_that_left_the_plan_still_find_it() -> None:
    """Senders apply a plan a moment after their stream manager."""
    world = World()
    spout = world.register(SPOUT)
    world.switch.take_places({SPOUT: "spout", BOLT: "bolt"}, {"spout"}, {})
    world.receive(spout, data(FAR, 2))
    assert not world.switch.discarded and world.switch.peers["stmgr-2"].link.queued_tuples == 2


def test_lost_connections_to_a_peer_are_counted_and_fail_their_roots() -> None:
    world = World()
    spout = world.register(SPOUT)
    world.switch.open_peer("stmgr-2", 50)
    world.reply(Frame(kind=CREDIT, granted_bytes=100))
    world.receive(spout, tracked(FAR, 1, 5))
    world.switch.close_peer("stmgr-2")
    assert world.switch.discarded == {"peer lost": 5}
    assert world.of(spout, COMPLETE)[-1].failed
    world.receive(spout, tracked(FAR, 6, 5))
    assert world.switch.queued()[1] == 5
    world.switch.open_peer("stmgr-2", 51)
    assert world.to_peer[-1].kind == LINK_OPEN
    world.reply(Frame(kind=CREDIT, granted_bytes=100), 9)
    assert world.switch.counts["stale_frames"] == 1, "credit of the old link"
    world.reply(Frame(kind=CREDIT, granted_bytes=100), 1, 51)
    assert world.to_peer[-1].root_base == 6
