"""The task's side of the data link with a fake socket: credit both ways, epochs, waiting, the last word."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from heronpy.wire.frames import CREDIT, DATA, LINK_HEADER, LINK_OPEN, Frame, message_of
from instance.link import LOOK_EVERY_S, DataLink
from tests.instance.harness import FakeContext, FakeSocket


class Harness:
    def __init__(self) -> None:
        self.wake_fd, self.wake = os.pipe2(os.O_NONBLOCK)
        context: Any = FakeContext()
        self.link = DataLink(3, b"t:3:1", "ipc://x", 1 << 26, self.wake_fd, context)
        self.sockets: list[FakeSocket] = context.made
        self.taken: list[tuple[Frame, int]] = []

    @property
    def sent(self) -> list[tuple[int, int, Frame]]:
        return self.sockets[-1].sent

    def come(self, frame: Frame, seq: int, epoch: int = 9) -> None:
        self.sockets[-1].inbox.append(message_of(LINK_HEADER.pack(epoch, seq), frame.SerializeToString()))

    def receive(self, budget: int = 64) -> int:
        return self.link.receive(lambda frame, size: self.taken.append((frame, size)), budget)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        os.close(self.wake_fd)
        os.close(self.wake)


@pytest.fixture
def h() -> Iterator[Harness]:
    harness = Harness()
    harness.link.open(9, 1000, 100)
    yield harness
    harness.close()


def data(count: int = 1, size: int = 50) -> bytes:
    return Frame(kind=DATA, count=count, payload=b"x" * size).SerializeToString()


def test_opening_says_so_and_grants_the_window(h: Harness) -> None:
    assert [(epoch, seq, frame.kind) for epoch, seq, frame in h.sent] == [(9, 1, LINK_OPEN), (9, 2, CREDIT)]
    assert (h.sent[1][2].granted_bytes, h.sent[1][2].granted_tuples) == (1000, 100)


def test_frames_wait_for_credit_in_order(h: Harness) -> None:
    assert h.link.blocked()
    for count in (1, 2, 3):
        h.link.send(data(count), count)
    assert (h.link.outbox_tuples, h.link.out_tuples()) == (6, 6)
    h.come(Frame(kind=CREDIT, granted_bytes=60), 1)
    h.receive()
    assert [frame.count for _, _, frame in h.sent[2:]] == [1, 2]
    h.come(Frame(kind=CREDIT, granted_bytes=10_000, consumed_bytes=len(data(1)), consumed_tuples=1), 2)
    h.receive()
    assert [frame.count for _, _, frame in h.sent[2:]] == [1, 2, 3]
    assert h.link.out_tuples() == 5 and not h.link.blocked()
    assert h.link.outbox_bytes == 0 and h.link.out_bytes() == h.link.sent_bytes - len(data(1))


def test_credit_goes_back_each_quarter_window(h: Harness) -> None:
    before = len(h.sent)
    h.link.consumed(240, 10)
    assert len(h.sent) == before and h.link.unreported()
    h.link.consumed(20, 10)
    credit = h.sent[-1][2]
    assert (credit.consumed_bytes, credit.consumed_frames, credit.granted_bytes) == (260, 2, 1260)
    h.link.consumed(1, 30)
    assert h.sent[-1][2].consumed_tuples == 50, "tuples count as well"
    h.link.window_tuples = 1
    h.link.consumed(1, 1)
    assert h.sent[-1][2].granted_tuples == 150, "grants never shrink"


def test_old_links_and_gaps_are_noticed_and_garbage_is_skipped(h: Harness) -> None:
    h.come(Frame(kind=DATA, count=1), 1)
    h.come(Frame(kind=DATA, count=2), 1, epoch=8)
    h.come(Frame(kind=DATA, count=3), 4)
    h.sockets[-1].inbox.append([b"what"])
    assert h.receive() == 3
    assert [frame.count for frame, _ in h.taken] == [1, 3]
    assert (h.link.stale_frames, h.link.gaps) == (2, 2)


def test_receive_stops_at_its_budget(h: Harness) -> None:
    for seq in range(1, 11):
        h.come(Frame(kind=DATA, count=1), seq)
    assert h.receive(budget=4) == 4 and h.receive() == 6 and h.receive() == 0


def test_a_dead_stream_manager_takes_along_what_it_still_held(h: Harness) -> None:
    """Another process answers; the same one would still have it."""
    h.come(Frame(kind=CREDIT, granted_bytes=1000), 1)
    h.receive()
    for count in (1, 2, 4):
        h.link.send(data(count), count)
    h.come(Frame(kind=CREDIT, granted_bytes=1000, consumed_tuples=3, settled_tuples=1), 2)
    h.receive()
    h.link.open(10, 1000, 100, stmgr=0)
    assert h.link.lost_tuples == 4, "the same process: only what it had not taken"
    h.come(Frame(kind=CREDIT, granted_bytes=1000), 1, epoch=10)
    h.receive()
    h.link.send(data(8), 8)
    h.come(Frame(kind=CREDIT, granted_bytes=1000, consumed_tuples=8, settled_tuples=5), 2, epoch=10)
    h.receive()
    h.link.open(11, 1000, 100, stmgr=7)
    assert h.link.lost_tuples == 4 + 3


def test_a_new_link_starts_afresh_and_takes_the_outbox_along(h: Harness) -> None:
    h.come(Frame(kind=CREDIT, granted_bytes=60), 1)
    h.receive()
    for count in (1, 2, 3):
        h.link.send(data(count), count)
    h.link.open(10, 1000, 100)
    assert h.link.lost_tuples == 3, "sent and never credited"
    assert h.sockets[0].closed
    h.come(Frame(kind=CREDIT, granted_bytes=10_000), 1, epoch=10)
    h.receive()
    assert [(epoch, frame.kind) for epoch, _, frame in h.sent] == [(10, LINK_OPEN), (10, CREDIT), (10, DATA)]
    assert h.sent[-1][2].count == 3


def test_the_last_word_needs_no_credit(h: Harness) -> None:
    for count in (1, 2):
        h.link.send(data(count, 5000), count)
    h.link.send_all()
    assert [frame.count for _, _, frame in h.sent[2:]] == [1, 2] and not h.link.outbox


def test_withdrawn_frames_count_as_lost(h: Harness) -> None:
    for count in (1, 2, 3):
        h.link.send(data(count), count)
    h.link.withdraw(lambda frame: Frame.FromString(frame).count == 2)
    assert (h.link.lost_tuples, h.link.outbox_tuples, len(h.link.outbox)) == (2, 4, 2)
    assert h.link.outbox_bytes == sum(len(frame) for frame, _ in h.link.outbox)


def test_a_byte_that_came_after_its_message_was_read_does_not_spin(h: Harness) -> None:
    os.write(h.wake, b"!")
    began = time.monotonic()
    h.link.wait(5.0)
    assert time.monotonic() - began < 4
    h.link.wait(0.05)
    assert time.monotonic() - began >= 0.05, "the wake descriptor was emptied"


def test_waiting_returns_at_once_when_there_is_something(h: Harness) -> None:
    h.come(Frame(kind=DATA, count=1), 1)
    began = time.monotonic()
    h.link.wait(5.0)
    h.sockets[-1].inbox.clear()
    soon = threading.Timer(0.02, h.sockets[-1].poke)
    soon.start()
    h.link.wait(5.0)
    soon.join()
    assert time.monotonic() - began < 4


def test_short_waits_in_a_row_look_at_the_socket_once_in_a_while(h: Harness) -> None:
    """A look is a system call, which a spout that is called every 0.2 ms would make as often."""
    h.receive()
    looks = 0
    for _ in range(20):
        h.link.wait(LOOK_EVERY_S / 5, frames=False)
        h.come(Frame(kind=CREDIT), 0)
        looks += h.receive() > 0
    assert 3 <= looks <= 4, "each fifth"
    h.link.wait(LOOK_EVERY_S / 5, frames=False)
    h.come(Frame(kind=CREDIT), 0)
    h.link.send_control(data())
    assert h.receive(), "a send may have used up the sign of it"
    h.link.wait(2 * LOOK_EVERY_S, frames=False)
    h.come(Frame(kind=CREDIT), 0)
    assert h.receive(), "a longer wait is followed by a look"


def test_traffic_is_counted_over_all_incarnations(h: Harness) -> None:
    link = h.link
    h.come(Frame(kind=CREDIT, granted_bytes=10_000), 1)
    h.come(Frame(kind=DATA, count=3, payload=b"x"), 2)
    h.receive()
    link.send(data(5), 5)
    link.consumed(20, 3)
    link.open(10, 1000, 100)
    h.come(Frame(kind=CREDIT, granted_bytes=10_000), 1, epoch=10)
    h.receive()
    link.send(data(2), 2)
    assert (link.sent_frames, link.total_sent_tuples) == (2, 7)
    assert (link.total_consumed_frames, link.total_consumed_tuples) == (1, 3)
    assert link.all_frames_received == 3
    assert link.all_frames_sent == sum(len(sock.sent) for sock in h.sockets)


def test_a_frame_that_comes_alone_costs_one_look(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a thousand frames a second most do; each look is a system call, and to fail to receive costs twice that."""
    sock, calls = h.sockets[-1], []
    look, receive = sock.getsockopt, sock.recv_multipart
    monkeypatch.setattr(sock, "getsockopt", lambda option: (calls.append("look"), look(option))[1])
    monkeypatch.setattr(sock, "recv_multipart", lambda flags: (calls.append("receive"), receive(flags))[1])
    h.receive()
    calls.clear()
    h.come(Frame(kind=DATA, count=1), 1)
    sock.poke()
    h.link.wait(5.0)
    assert h.receive() == 1 and calls == ["receive", "look"]
    calls.clear()
    h.link.wait(0.001)
    assert h.receive() == 0 and not calls, "it has looked already"
