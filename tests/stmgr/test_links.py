"""Links: credit, retained frames, holding, put-back, control frames for a peer that is not there yet."""

from __future__ import annotations

import random
from collections import deque

import pytest

from heronpy.wire.frames import CREDIT, DATA, LINK_HEADER, Frame
from stmgr.links import KEPT_MAX_BYTES, Link, Source, Waiting

NEVER = 1 << 62


def data(count: int = 1, dest: int = 5, size: int = 20) -> bytes:
    return Frame(kind=DATA, dest_task=dest, count=count, payload=b"x" * size).SerializeToString()


def waiting(count: int = 1, dest: int = 5, size: int = 20, creditor: Source | None = None) -> Waiting:
    return Waiting(data(count, dest, size), count, dest, False, creditor)


class Wire:
    """Takes what a link sends."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bytes]] = []
        self.alive = True

    def __call__(self, header: bytes, frame: bytes) -> bool:
        if self.alive:
            self.sent.append((*LINK_HEADER.unpack(header), frame))
        return self.alive


def open_link(task: int = 5, granted_bytes: int = 10_000, granted_tuples: int = 10_000) -> tuple[Link, Wire]:
    wire = Wire()
    link = Link("link", task, wire)
    link.start(1)
    link.credit(Frame(kind=CREDIT, granted_bytes=granted_bytes, granted_tuples=granted_tuples))
    return link, wire


def source(window: int = 1000) -> tuple[Source, list[Frame]]:
    replies: list[Frame] = []
    return Source("task-1", 1, 1, window, lambda reply: replies.append(Frame.FromString(reply))), replies


def test_frames_beyond_the_credit_wait_in_order() -> None:
    link, wire = open_link(granted_bytes=50)
    frames = [waiting(1, size=20 + i) for i in range(5)]
    for frame in frames:
        link.put(frame, NEVER)
    # One frame may overshoot the grant, so a frame larger than the window passes.
    assert [frame for _, _, frame in wire.sent] == [f.data for f in frames[:2]]
    assert (link.queued_tuples, link.total_came) == (3, 5)
    link.credit(Frame(granted_bytes=1 << 20, granted_tuples=100, consumed_frames=1))
    assert link.pump()
    assert link.total_came == 5
    assert [frame for _, _, frame in wire.sent] == [f.data for f in frames]
    assert [seq for _, seq, _ in wire.sent] == [1, 2, 3, 4, 5]
    assert (link.queued_bytes, link.queued_tuples, link.in_flight(), link.total_consumed) == (0, 0, 4, 1)


def test_a_frame_that_has_left_is_not_kept() -> None:
    """A slow task, or frames larger than the mark: each frame has to wait, and owes credit when it leaves."""
    link, _ = open_link(granted_bytes=0)
    creditor, _ = source(window=100)
    for number in range(100):
        link.put(waiting(1, size=100, creditor=creditor), hold_above=50)
        assert len(link.owing) == len(link.queue) == 1
        link.credit(Frame(granted_bytes=link.sent_bytes + 1, granted_tuples=1000, consumed_frames=number))
        assert link.pump()
        assert not link.owing


def test_tuples_are_granted_as_well_as_bytes() -> None:
    link, wire = open_link(granted_tuples=10)
    for _ in range(3):
        link.put(waiting(10), NEVER)
    assert len(wire.sent) == 1


def test_the_sender_gets_its_credit_when_the_frame_has_left_or_found_room() -> None:
    link, _ = open_link(granted_bytes=1)
    creditor, replies = source(window=100)
    link.put(waiting(1, size=100, creditor=creditor), hold_above=150)
    link.put(waiting(1, size=100, creditor=creditor), hold_above=150)
    assert creditor.absorbed_tuples == 2 and len(replies) == 2
    link.put(waiting(1, size=100, creditor=creditor), hold_above=150)
    assert creditor.absorbed_tuples == 2, "past the mark its credit waits"
    link.credit(Frame(granted_bytes=1 << 20, granted_tuples=100))
    link.pump()
    assert creditor.absorbed_tuples == 3
    assert replies[-1].granted_bytes == creditor.absorbed_bytes + 100
    creditor.mute()
    creditor.absorbed(1000, 1)
    assert len(replies) == 3


def test_what_a_dead_peer_did_not_consume_is_returned_and_the_rest_waits() -> None:
    link, wire = open_link(granted_bytes=100)
    for number in range(1, 6):
        link.put(waiting(number), NEVER)
    in_flight = len(wire.sent)
    link.consumed(Frame(consumed_frames=1))
    wire.alive = False
    link.credit(Frame(granted_bytes=1 << 20, granted_tuples=100, consumed_frames=1))
    assert not link.pump() and not link.open
    lost = link.start(2)
    assert [w.tuples for w in lost] == list(range(2, in_flight + 1))
    assert [w.tuples for w in link.waiting()] == list(range(in_flight + 1, 6))
    assert link.in_flight() == 0
    wire.alive = True
    link.credit(Frame(granted_bytes=1 << 20, granted_tuples=100))
    link.pump()
    assert {epoch for epoch, _, _ in wire.sent[in_flight:]} == {2}


def test_put_back_sends_again_what_is_left_of_a_frame() -> None:
    link, wire = open_link()
    link.put(waiting(10), NEVER)
    link.put(waiting(7), NEVER)
    for skip, left in ((4, 6), (9, 1)):
        frames = link.close()
        link.put_back(frames, skip)
        assert (link.queued_tuples, link.total_consumed) == (left + 7, skip)
        link.start(2)
        link.credit(Frame(granted_bytes=1 << 20, granted_tuples=100))
        link.pump()
        assert Frame.FromString(wire.sent[-2][2]).skip == skip
    link.consumed(Frame(consumed_frames=2))
    assert (link.in_flight(), link.total_consumed, link.total_came) == (0, 17, 17)


def test_held_tasks_do_not_stand_in_the_way_of_others() -> None:
    link, wire = open_link(task=0, granted_bytes=1)
    for dest in (5, 6, 5, 7):
        link.put(waiting(dest, dest), NEVER)
    first = len(wire.sent)
    link.hold(5)
    link.put(waiting(50, 5), NEVER)
    link.put(waiting(60, 6), NEVER)
    link.credit(Frame(granted_bytes=1 << 20, granted_tuples=1000))
    link.pump()
    dests = [Frame.FromString(frame).dest_task for _, _, frame in wire.sent[first:]]
    assert 5 not in dests and dests.count(6) == 2
    assert link.top_task()[0] == 5
    assert link.queued_tuples == sum(w.tuples for w in link.waiting()) > 0
    link.release(5)
    link.pump()
    fives = [Frame.FromString(frame).count for _, _, frame in wire.sent if Frame.FromString(frame).dest_task == 5]
    assert fives == [5, 5, 50] and not link.queued_bytes
    link.hold(6)
    link.put(waiting(1, 6), NEVER)
    link.start(2)
    assert not link.held and len(link.queue) == 1, "a new link holds nothing"


def test_control_frames_for_a_peer_wait_for_its_link_and_are_bounded() -> None:
    wire = Wire()
    peer, task = Link("stmgr-2", 0, wire), Link("task-5", 5, wire)
    assert not task.send_control(b"complete"), "a dead task has no use for it"
    assert peer.send_control(b"ack 1") and peer.send_control(b"ack 2")
    assert not peer.send_control(b"x" * KEPT_MAX_BYTES)
    peer.start(1)
    peer.send_kept()
    assert [frame for _, _, frame in wire.sent] == [b"ack 1", b"ack 2"]
    assert peer.send_control(b"ack 3")


def test_sources_count_gaps_and_refuse_old_links() -> None:
    one, _ = source()
    assert one.accept(1, 1) and one.accept(1, 2)
    assert not one.accept(0, 3) and one.stale_frames == 1
    assert one.accept(1, 6) and one.gaps == 3


@pytest.mark.parametrize("seed", range(60))
def test_links_conserve_every_tuple(seed: int) -> None:
    """Random puts, credits, deaths, holds and put-backs against a model of what is where."""
    rng = random.Random(seed)
    link, wire = open_link(task=rng.choice([0, 5]), granted_bytes=200)
    put = lost = 0
    flying: deque[int] = deque()
    epoch, consumed, granted = 1, 0, 200
    for _ in range(400):
        before = len(wire.sent)
        choice = rng.random()
        if choice < 0.45:
            count = rng.randint(1, 9)
            link.put(waiting(count, rng.choice([5, 6, 7]), rng.randint(0, 60)), rng.choice([50, NEVER]))
            put += count
        elif choice < 0.8:
            take = rng.randint(0, len(flying))
            consumed += take
            for _ in range(take):
                flying.popleft()
            granted += rng.randint(0, 150)
            link.credit(Frame(granted_bytes=granted, granted_tuples=1 << 40, consumed_frames=consumed))
            link.pump()
        elif choice < 0.9:
            link.hold(rng.choice([5, 6]))
        elif choice < 0.96:
            link.release(rng.choice([5, 6]))
            link.pump()
        else:
            frames = link.close()
            if rng.random() < 0.5:
                skip = rng.randrange(frames[0].tuples) if frames else 0
                already = Frame.FromString(frames[0].data).skip if frames else 0
                link.put_back(frames, already + skip)
            else:
                lost += sum(frame.tuples for frame in frames)
            epoch, consumed, granted = epoch + 1, 0, 200
            flying.clear()
            link.start(epoch)
            link.credit(Frame(granted_bytes=granted, granted_tuples=1 << 40))
            link.pump()
        for _, _, frame in wire.sent[before:]:
            parsed = Frame.FromString(frame)
            flying.append(parsed.count - parsed.skip)
        assert link.in_flight() == sum(flying) == sum(w.tuples for w in link.retained)
        assert link.queued_tuples == sum(w.tuples for w in link.waiting())
        assert link.queued_bytes == sum(len(w.data) for w in link.waiting())
        assert put == link.total_consumed + link.in_flight() + link.queued_tuples + lost


def test_a_goodbye_that_claims_more_than_was_sent_is_believed_no_further_than_that() -> None:
    link = Link("task-2", 2, lambda header, data: True)
    frame = Waiting(Frame(kind=DATA, count=3).SerializeToString(), 3, 2, False, None)
    link.put_back([frame], 9)
    assert link.queued_tuples == 0 and link.total_consumed == 3
    assert Frame.FromString(link.queue[0].data).skip == 3
